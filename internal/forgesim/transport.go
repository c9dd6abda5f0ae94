package forgesim

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"strconv"
)

// ErrDropped is the error of a [Forge.RoundTripper] whose forge closed the
// connection instead of answering.
var ErrDropped = errors.New("connection closed by the forge")

// RoundTripper answers requests in process, without a socket, so that it works
// in a testing/synctest bubble. The URL's host does not matter; paths are as
// for [Forge.ServeHTTP]. Dropped connections are [ErrDropped], truncated bodies
// end in [io.ErrUnexpectedEOF].
func (f *Forge) RoundTripper() http.RoundTripper { return inProcess{f} }

type inProcess struct{ f *Forge }

// RoundTrip implements [http.RoundTripper].
func (t inProcess) RoundTrip(r *http.Request) (*http.Response, error) {
	inner := r.Clone(r.Context())
	inner.RequestURI = r.URL.RequestURI()
	if inner.Body == nil {
		inner.Body = http.NoBody
	}
	defer inner.Body.Close()
	w := &recorder{header: http.Header{}}
	dropped := w.serve(t.f, inner)
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	if dropped && w.status == 0 {
		return nil, ErrDropped
	}
	body := io.Reader(&w.body)
	if dropped {
		body = io.MultiReader(body, cutOff{})
	}
	length, err := strconv.ParseInt(w.header.Get("Content-Length"), 10, 64)
	if err != nil {
		length = -1
	}
	return &http.Response{
		Status: strconv.Itoa(w.status) + " " + http.StatusText(w.status), StatusCode: w.status,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Header: w.header, Body: io.NopCloser(body),
		ContentLength: length, Request: r,
	}, nil
}

// cutOff is the end of a body that was cut.
type cutOff struct{}

func (cutOff) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

// A recorder is the answer of a handler that is called directly.
type recorder struct {
	header http.Header
	status int
	body   bytes.Buffer
}

// Header implements [http.ResponseWriter].
func (w *recorder) Header() http.Header { return w.header }

// WriteHeader implements [http.ResponseWriter].
func (w *recorder) WriteHeader(status int) {
	if w.status == 0 {
		w.status = status
	}
}

// Write implements [http.ResponseWriter].
func (w *recorder) Write(p []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	return w.body.Write(p)
}

// serve calls the handler and reports whether it closed the connection.
func (w *recorder) serve(h http.Handler, r *http.Request) (dropped bool) {
	defer func() {
		if reason := recover(); reason != nil {
			if err, ok := reason.(error); !ok || !errors.Is(err, http.ErrAbortHandler) {
				panic(reason)
			}
			dropped = true
		}
	}()
	h.ServeHTTP(w, r)
	return false
}
