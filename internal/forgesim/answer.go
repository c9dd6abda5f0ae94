package forgesim

import (
	"io"
	"net/http"
)

// An Answer is what a request to a forge of another make gets in place of the
// usual. A status of zero closes the connection.
type Answer struct {
	Status int
	Header http.Header
	Body   string
}

// Write answers a request.
func (a *Answer) Write(w http.ResponseWriter) {
	if a.Status == 0 {
		panic(http.ErrAbortHandler)
	}
	for name, values := range a.Header {
		w.Header()[name] = values
	}
	w.WriteHeader(a.Status)
	if _, err := io.WriteString(w, a.Body); err != nil {
		panic(http.ErrAbortHandler)
	}
}

// Silence is an answer that goes nowhere.
type Silence struct{}

// Header implements [http.ResponseWriter].
func (Silence) Header() http.Header { return http.Header{} }

// Write implements [http.ResponseWriter].
func (Silence) Write(p []byte) (int, error) { return len(p), nil }

// WriteHeader implements [http.ResponseWriter].
func (Silence) WriteHeader(int) {}
