package lanetest

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// canary stands in whatever comes from outside of a lane and belongs into no
// output: an address, a path of the host, a provider's words.
const canary = "CANARY-c4f1"

// errCut is what a caller gets whose connection was cut.
var errCut = errors.New("the connection was cut: " + canary + " at 192.0.2.7, /srv/" + canary)

// A Call is one call of a lane to its provider.
type Call struct {
	// Span is the method of the lane that made it, and how often that method
	// had been called by its process: "refresh 2". It is empty outside of all.
	Span string
	// Op is the HTTP method and the URL's path, or the name that [Wire.Do] was
	// given; Query is the URL's.
	Op, Query string
	// Write is set for what shows a result, Own for what is done on our own
	// side.
	Write, Own bool
	At         time.Time
}

func (c Call) String() string { return c.Span + ": " + c.Op }

// read reports whether it is a GET.
func (c Call) read() bool { return strings.HasPrefix(c.Op, http.MethodGet+" ") }

// An effect is what becomes of a call.
type effect struct {
	// status answers in the provider's place, with after as Retry-After.
	status int
	after  time.Duration
	// before cuts the connection before the call arrives, otherwise it is cut
	// before its answer does.
	before bool
	// run is called before everything else.
	run func()
	// pass lets the call through and the answer come.
	pass bool
}

// A fault is an effect on the calls that match, the first times of them; all
// where times is negative.
type fault struct {
	match  func(Call) bool
	times  int
	effect effect
}

// A Wire is what lies between lanes and their provider: it notes each call, and
// disturbs those that a scenario picks. It is safe for concurrent use.
type Wire struct {
	now    func() time.Time
	writes func(op string) bool

	mu sync.Mutex
	// Guarded by mu:
	calls  []Call
	faults []*fault
}

// Transport passes requests on to next; every lane of a [World] uses one.
func (w *Wire) Transport(next http.RoundTripper) http.RoundTripper { return &tapped{w, next} }

type tapped struct {
	wire *Wire
	next http.RoundTripper
}

// RoundTrip implements [http.RoundTripper].
func (t *tapped) RoundTrip(r *http.Request) (*http.Response, error) {
	op := r.Method + " " + r.URL.Path
	e, met := t.wire.arrive(Call{Span: spanOf(r.Context()), Op: op, Query: r.URL.RawQuery})
	switch {
	case !met || e.pass:
		return t.next.RoundTrip(r)
	case e.status == 0 && !e.before:
		resp, err := t.next.RoundTrip(r)
		if err != nil {
			return nil, err
		}
		return nil, errors.Join(errCut, resp.Body.Close())
	}
	if r.Body != nil {
		if err := r.Body.Close(); err != nil {
			return nil, err
		}
	}
	if e.status == 0 {
		return nil, errCut
	}
	return e.answer(r), nil
}

// CloseIdleConnections lets an [http.Client] close what it can.
func (t *tapped) CloseIdleConnections() {
	if c, ok := t.next.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

func (e effect) answer(r *http.Request) *http.Response {
	const body = `{"message":"` + canary + `"}`
	h := http.Header{"Content-Type": {"application/json"}, "X-Canary": {canary}, "Content-Length": {strconv.Itoa(len(body))}}
	if e.after > 0 {
		h.Set("Retry-After", strconv.Itoa(int(e.after/time.Second)))
	}
	return &http.Response{
		Status: http.StatusText(e.status), StatusCode: e.status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: h, Body: io.NopCloser(strings.NewReader(body)), ContentLength: int64(len(body)), Request: r,
	}
}

// Do is for what a lane does on our own side that its sender sees, such as what it
// puts where that fetches it. An error is do's own, or that of a disturbance, which
// is of no other package's kind.
func (w *Wire) Do(ctx context.Context, op string, do func() error) error {
	e, met := w.arrive(Call{Span: spanOf(ctx), Op: op, Own: true})
	switch {
	case !met || e.pass:
		return do()
	case e.status == 0 && !e.before:
		return errors.Join(errCut, do())
	}
	return errCut
}

// arrive notes a call and finds what befalls it.
func (w *Wire) arrive(c Call) (effect, bool) {
	w.mu.Lock()
	c.At, c.Write = w.now(), w.writes(c.Op)
	w.calls = append(w.calls, c)
	var met *fault
	for _, f := range w.faults {
		if f.times != 0 && f.match(c) {
			met = f
			break
		}
	}
	if met == nil {
		w.mu.Unlock()
		return effect{}, false
	}
	met.times--
	w.mu.Unlock()
	if met.effect.run != nil {
		met.effect.run()
	}
	return met.effect, true
}

// disturb puts a fault into force.
func (w *Wire) disturb(f fault) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if f.times == 0 {
		f.times = 1
	}
	w.faults = append(w.faults, &f)
}

// calm ends every fault.
func (w *Wire) calm() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.faults = nil
}

// since returns the calls after the first n.
func (w *Wire) since(n int) []Call {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.calls[n:])
}

func (w *Wire) len() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.calls)
}

// A spanKey is the context key of the name of a span.
type spanKey struct{}

func spanOf(ctx context.Context) string {
	s, _ := ctx.Value(spanKey{}).(string)
	return s
}

// InProcess answers requests by a handler, without a socket.
func InProcess(h http.Handler) http.RoundTripper { return inProcess{h} }

type inProcess struct{ handler http.Handler }

// RoundTrip implements [http.RoundTripper].
func (p inProcess) RoundTrip(r *http.Request) (*http.Response, error) {
	answer := httptest.NewRecorder()
	p.handler.ServeHTTP(answer, r)
	if r.Body != nil {
		if err := r.Body.Close(); err != nil {
			return nil, err
		}
	}
	resp := answer.Result()
	resp.Request = r
	return resp, nil
}
