package webhook

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/fencepost/fencepost"
)

// Defaults of a [Handler] (DESIGN §4).
const (
	// DefaultMaxBody is the largest body, 25 MiB: what GitHub and GitLab send
	// at most.
	DefaultMaxBody = 25 << 20
	// MaxHeaders is how many header pairs a request may have.
	MaxHeaders = 128
	// MaxHeaderBytes bounds all names and values of the headers together.
	MaxHeaderBytes = 64 << 10
)

// A Delivery is an authenticated request.
type Delivery struct {
	fencepost.AcceptedDelivery
	// Headers are all headers. Those that the scheme doesn't sign prove
	// nothing: with [GitHub] and its like that is every one of them.
	Headers fencepost.Headers
	// Body is the exact body. The receiver owns it.
	Body []byte
}

// A Receiver takes an authenticated request and answers it.
type Receiver func(w http.ResponseWriter, r *http.Request, d Delivery)

// Options say what a [Handler] accepts.
type Options struct {
	// Rule names route and trust set and says what holds for signed times.
	// Its zero Window means [fencepost.DefaultReplayWindow].
	Rule fencepost.RouteRule
	// Verifier is a scheme with its keys.
	Verifier fencepost.Verifier
	// MaxBody is the largest body in bytes; zero means [DefaultMaxBody].
	MaxBody int64
	// Now is the clock that receipt times are read from.
	Now func() time.Time
}

// A Handler authenticates requests before a [Receiver] sees them. It is an
// [http.Handler] for any server, and it is safe for concurrent use.
//
// It answers 405, 431, 415 or 413 to what can't be a webhook, and 401, with
// one body whatever the cause, to what can't be authenticated. It does not
// recognise repeats, which is what [Delivery.Key] is for, and holds slow
// clients off no better than the server it runs in.
type Handler struct {
	options Options
	next    Receiver
}

// NewHandler checks the options. Its error matches [fencepost.ErrZeroValue]
// for something left out and [fencepost.ErrMalformed] for something out of
// range.
func NewHandler(o Options, next Receiver) (*Handler, error) {
	if o.Rule.Window == (fencepost.ReplayWindow{}) {
		o.Rule.Window = fencepost.DefaultReplayWindow
	}
	if o.MaxBody == 0 {
		o.MaxBody = DefaultMaxBody
	}
	switch {
	case o.Rule.Route == "", o.Rule.TrustSet == "", o.Rule.SignedTime == 0:
		return nil, fmt.Errorf("webhook: handler without route, trust set or signed-time rule: %w", fencepost.ErrZeroValue)
	case o.Verifier == nil, o.Now == nil, next == nil:
		return nil, fmt.Errorf("webhook: handler without verifier, clock or receiver: %w", fencepost.ErrZeroValue)
	case o.MaxBody < 0:
		return nil, fmt.Errorf("webhook: handler for bodies of %d bytes: %w", o.MaxBody, fencepost.ErrMalformed)
	}
	if err := o.Rule.Window.Validate(); err != nil {
		return nil, fmt.Errorf("webhook: handler: replay window: %w", err)
	}
	return &Handler{options: o, next: next}, nil
}

// ServeHTTP implements [http.Handler].
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	headers := RequestHeaders(r)
	switch {
	case r.Method != http.MethodPost:
		w.Header().Set("Allow", http.MethodPost)
		refuse(w, http.StatusMethodNotAllowed, fencepost.ReasonMethod)
		return
	case headers.Len() > MaxHeaders, headers.Size() > MaxHeaderBytes:
		refuse(w, http.StatusRequestHeaderFieldsTooLarge, fencepost.ReasonHeaders)
		return
	case !IsJSON(headers):
		refuse(w, http.StatusUnsupportedMediaType, fencepost.ReasonMediaType)
		return
	case r.ContentLength > h.options.MaxBody:
		refuse(w, http.StatusRequestEntityTooLarge, fencepost.ReasonTooLarge)
		return
	}
	body, err := readBody(http.MaxBytesReader(w, r.Body, h.options.MaxBody), r.ContentLength)
	if tooLarge, ok := errors.AsType[*http.MaxBytesError](err); ok && tooLarge != nil {
		refuse(w, http.StatusRequestEntityTooLarge, fencepost.ReasonTooLarge)
		return
	} else if err != nil {
		// The client is gone or sent less than it promised: there is no
		// request to answer.
		panic(http.ErrAbortHandler)
	}
	accepted, err := h.accept(headers, body)
	if err != nil {
		status, reason := http.StatusUnauthorized, fencepost.ReasonUnauthenticated
		if !errors.Is(err, fencepost.ErrUnauthenticated) && !errors.Is(err, fencepost.ErrSignedTime) {
			status, reason = http.StatusServiceUnavailable, fencepost.ReasonUnavailable
			w.Header().Set("Retry-After", "10")
		}
		refuse(w, status, reason)
		return
	}
	h.next(w, r, Delivery{AcceptedDelivery: accepted, Headers: headers, Body: body})
}

func (h *Handler) accept(headers fencepost.Headers, body []byte) (fencepost.AcceptedDelivery, error) {
	check := fencepost.NewIngressCheck(h.options.Rule.Route, headers, body, h.options.Now())
	return fencepost.Receive(check, h.options.Verifier, h.options.Rule)
}

// RequestHeaders returns every (name, value) pair of the request in the one
// canonical order, with those that net/http keeps elsewhere: Host,
// Transfer-Encoding, and Trailer with the announced names.
//
// It is as near to what was received as net/http lets one see: equal repeats
// of Content-Length have become one, Content-Length beside Transfer-Encoding
// is gone, and "Pragma: no-cache" alone has brought a Cache-Control.
func RequestHeaders(r *http.Request) fencepost.Headers {
	var room [32]fencepost.Header
	pairs := room[:0]
	for name, values := range r.Header {
		for _, v := range values {
			pairs = append(pairs, fencepost.Header{Name: name, Value: v})
		}
	}
	if r.Host != "" {
		pairs = append(pairs, fencepost.Header{Name: "host", Value: r.Host})
	}
	for _, v := range r.TransferEncoding {
		pairs = append(pairs, fencepost.Header{Name: "transfer-encoding", Value: v})
	}
	if len(r.Trailer) > 0 {
		for _, v := range slices.Sorted(maps.Keys(r.Trailer)) {
			pairs = append(pairs, fencepost.Header{Name: "trailer", Value: v})
		}
	}
	return fencepost.NewHeaders(pairs)
}

// IsJSON reports whether the one Content-Type is application/json, alone or
// with charset=utf-8, and the body is not said to be compressed: a signature
// covers the bytes sent, and they must be the JSON text itself (DESIGN §4).
func IsJSON(h fencepost.Headers) bool {
	if len(h.Values("content-encoding")) > 0 {
		return false
	}
	value, ok := h.Only("content-type")
	if !ok {
		return false
	}
	kind, parameters, has := strings.Cut(value, ";")
	if !strings.EqualFold(strings.Trim(kind, " \t"), "application/json") {
		return false
	}
	if !has {
		return true
	}
	name, charset, _ := strings.Cut(strings.Trim(parameters, " \t"), "=")
	if len(charset) > 1 && charset[0] == '"' && charset[len(charset)-1] == '"' {
		charset = charset[1 : len(charset)-1]
	}
	return strings.EqualFold(name, "charset") && strings.EqualFold(charset, "utf-8")
}

// readBody reads r to its end, which limits itself; length is the declared
// number of bytes, or negative for none.
func readBody(r io.Reader, length int64) ([]byte, error) {
	if length >= 0 {
		body := make([]byte, length)
		_, err := io.ReadFull(r, body)
		return body, err
	}
	var body []byte
	for {
		body = slices.Grow(body, 512)
		n, err := r.Read(body[len(body):cap(body)])
		body = body[:len(body)+n]
		if err == io.EOF {
			return body, nil
		}
		if err != nil {
			return nil, err
		}
	}
}

func refuse(w http.ResponseWriter, status int, reason fencepost.Reason) {
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", "private, no-store")
	h.Set("X-Robots-Tag", "noindex")
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	// A client that is gone misses its refusal; there is nobody to tell.
	_, _ = fmt.Fprintf(w, `{"outcome":"rejected","reason":%q,"delivery":""}`+"\n", string(reason))
}
