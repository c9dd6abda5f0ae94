package jobclient_test

import (
	"crypto/x509"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencepost/fencepost/internal/jobclient"
)

// served runs a controller over TLS.
func served(t *testing.T, h http.HandlerFunc) (*httptest.Server, *x509.CertPool) {
	t.Helper()
	server := httptest.NewUnstartedServer(h)
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	t.Cleanup(server.Close)
	roots := x509.NewCertPool()
	roots.AddCert(server.Certificate())
	return server, roots
}

func wired(server *httptest.Server, roots *x509.CertPool, s *said) jobclient.Config {
	c := config(nil, s)
	c.Controller, c.Roots, c.Transport = server.URL, roots, nil
	return c
}

func TestAResultComesOverTLS(t *testing.T) {
	t.Parallel()
	var polls atomic.Int32
	server, roots := served(t, func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Method == http.MethodPost && r.Header.Get("Authorization") == "Bearer "+token && r.URL.Path == "/jobs/docs":
			w.WriteHeader(http.StatusAccepted)
			fmt.Fprint(w, accepted)
		case r.Method == http.MethodGet && r.Header.Get("Authorization") == "Bearer "+secret && polls.Add(1) == 1:
			fmt.Fprint(w, waiting)
		default:
			fmt.Fprint(w, passed)
		}
	})
	s := &said{}
	report, err := jobclient.Run(t.Context(), wired(server, roots, s))
	if !report.Passed() || polls.Load() != 2 {
		t.Errorf("%+v, %v after %d polls", report, err, polls.Load())
	}
	quiet(t, s.String())
}

func TestACertificateThatIsNotTrustedIsTheEnd(t *testing.T) {
	t.Parallel()
	var asked atomic.Int32
	server, _ := served(t, func(http.ResponseWriter, *http.Request) { asked.Add(1) })
	_, err := jobclient.Run(t.Context(), wired(server, x509.NewCertPool(), &said{}))
	if got := outcome(jobclient.Report{}, err); got != "its certificate is not one that this machine trusts" || asked.Load() != 0 {
		t.Errorf("%q after %d requests", got, asked.Load())
	}
}

// Neither the token nor the poll secret follows a redirect.
func TestARedirectIsNotFollowed(t *testing.T) {
	t.Parallel()
	var elsewhere atomic.Int32
	other, _ := served(t, func(http.ResponseWriter, *http.Request) { elsewhere.Add(1) })
	for _, status := range []int{301, 302, 303, 307, 308} {
		for _, method := range []string{http.MethodPost, http.MethodGet} {
			server, roots := served(t, func(w http.ResponseWriter, r *http.Request) {
				if r.Method == method {
					http.Redirect(w, r, other.URL+r.URL.Path, status)
					return
				}
				w.WriteHeader(http.StatusAccepted)
				fmt.Fprint(w, accepted)
			})
			roots.AddCert(other.Certificate())
			report, err := jobclient.Run(t.Context(), wired(server, roots, &said{}))
			if got := outcome(report, err); got != "it answers with a redirect, which is never followed" {
				t.Errorf("%d to %s: %q", status, method, got)
			}
		}
	}
	if elsewhere.Load() != 0 {
		t.Errorf("%d requests followed", elsewhere.Load())
	}
}

// An answer that never ends is read to its bound.
func TestAnAnswerIsBounded(t *testing.T) {
	t.Parallel()
	server, roots := served(t, func(w http.ResponseWriter, _ *http.Request) {
		chunk := strings.Repeat(" ", 64<<10)
		for {
			if _, err := io.WriteString(w, chunk); err != nil {
				return
			}
		}
	})
	_, err := jobclient.Run(t.Context(), wired(server, roots, &said{}))
	if got := outcome(jobclient.Report{}, err); got != "what answers there is no controller" {
		t.Errorf("%q", got)
	}
}

// An answer that breaks off, or headers without end, are trouble like any other.
func TestWhatBreaksOffIsTriedAgain(t *testing.T) {
	t.Parallel()
	var posts atomic.Int32
	server, roots := served(t, func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Method == http.MethodGet:
			fmt.Fprint(w, passed)
		case posts.Add(1) == 1:
			w.Header().Set("Content-Length", "1000")
			w.WriteHeader(http.StatusAccepted)
			fmt.Fprint(w, accepted[:20])
		default:
			fmt.Fprint(w, replayed)
		}
	})
	s := &said{}
	report, err := jobclient.Run(t.Context(), wired(server, roots, s))
	if !report.Passed() || posts.Load() != 2 {
		t.Errorf("%+v, %v after %d posts", report, err, posts.Load())
	}
	if !strings.Contains(s.String(), "its answer broke off; trying again") {
		t.Errorf("said:\n%s", s)
	}
}

// A controller that says nothing holds a job no longer than its timeout.
func TestASlowControllerEndsWithTheTimeout(t *testing.T) {
	t.Parallel()
	over := make(chan struct{})
	server, roots := served(t, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusAccepted)
		_, _ = io.WriteString(w, accepted[:10])
		_ = http.NewResponseController(w).Flush()
		<-over
	})
	t.Cleanup(func() { close(over) })
	c := wired(server, roots, &said{})
	c.Timeout = 300 * time.Millisecond
	report, err := jobclient.Run(t.Context(), c)
	if got := outcome(report, err); !strings.HasPrefix(got, "no result within 300ms") {
		t.Errorf("%q", got)
	}
}

func TestPlainHTTPIsForThisMachine(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			w.WriteHeader(http.StatusAccepted)
			fmt.Fprint(w, accepted)
			return
		}
		fmt.Fprint(w, passed)
	}))
	t.Cleanup(server.Close)
	c := wired(server, nil, &said{})
	if _, err := jobclient.Run(t.Context(), c); !jobclient.IsConfig(err) {
		t.Errorf("plain http: %v", err)
	}
	c.AllowHTTP = true
	if report, err := jobclient.Run(t.Context(), c); !report.Passed() {
		t.Errorf("with leave: %v", err)
	}
}
