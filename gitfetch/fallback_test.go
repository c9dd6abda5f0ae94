package gitfetch_test

import (
	"bytes"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/gitfetch"
	"github.com/fencepost/fencepost/gitfetch/internal/object"
	"github.com/fencepost/fencepost/gitfetch/internal/packtest"
)

// A picky server gives a commit out to whoever asks for nothing special, and
// does something else to the others.
type picky struct {
	odd     func(w http.ResponseWriter, body []byte) // to what is not plain
	plain   http.HandlerFunc
	special atomic.Int64 // requests that were not plain
}

func (p *picky) start(t *testing.T) string {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			w.Header().Set("Content-Type", typeAdvertisement)
			_, _ = w.Write(advertisement())
			return
		}
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		w.Header().Set("Content-Type", typeResult)
		if bytes.Contains(body, []byte("thin-pack")) || bytes.Contains(body, []byte("filter ")) || !bytes.Contains(body, []byte("deepen 1")) {
			p.special.Add(1)
			p.odd(w, body)
			return
		}
		p.plain(w, r)
	}))
	t.Cleanup(server.Close)
	return server.URL + "/r.git"
}

// bare gives the connection of a request to talk, which closes it.
func bare(talk func(net.Conn)) func(http.ResponseWriter, []byte) {
	return func(w http.ResponseWriter, _ []byte) {
		c, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			panic(err)
		}
		talk(c)
		_ = c.Close()
	}
}

func refusing(code int, headers ...string) func(http.ResponseWriter, []byte) {
	return func(w http.ResponseWriter, _ []byte) { coded(code, headers...)(w, nil) }
}

// TestAServerThatFailsAtAShortcutIsAskedPlainly once, whatever the failure
// looks like; where it says something of the repository or of us, that holds.
func TestAServerThatFailsAtAShortcutIsAskedPlainly(t *testing.T) {
	t.Parallel()
	var old, now forge
	first := old.commit(old.tree(file("README", old.blob("hello\n")), file("other", old.blob("x"))))
	second := now.commit(now.tree(file("README", now.blob("hello, moon\n")), file("other", now.blob("x"))))
	whole := answerWith(second, now.b.Bytes())
	var dirs forge // what a filter leaves of it
	id := func(content string) fencepost.ObjectID { return packtest.ID(object.Blob, []byte(content)) }
	dirs.commit(dirs.tree(file("README", id("hello, moon\n")), file("other", id("x"))))
	tests := []struct {
		name string
		odd  func(http.ResponseWriter, []byte)
		want error // nil: it falls back
	}{
		{"400", refusing(400), nil},
		{"413", refusing(413), nil},
		{"500", refusing(500), nil},
		{"502", refusing(502, "Content-Type", "text/html"), nil},
		{"503", refusing(503), nil},
		{"504", refusing(504), nil},
		{"a reset", bare(func(c net.Conn) { _ = c.(*net.TCPConn).SetLinger(0) }), nil},
		{"no answer", bare(func(net.Conn) {}), nil},
		{"an end within the pack", bare(func(c net.Conn) {
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Type: "+typeResult+"\r\nContent-Length: 100000\r\n\r\n"+string(whole[:len(whole)-40]))
		}), nil},
		{"503 for a while", refusing(503, "Retry-After", "9"), gitfetch.ErrRateLimited},
		{"500 for a while", refusing(500, "Retry-After", "9"), &gitfetch.StatusError{Status: 500}},
		{"429", refusing(429), gitfetch.ErrRateLimited},
		{"401", refusing(401), gitfetch.ErrCredential},
		{"404", refusing(404), gitfetch.ErrNotFound},
		{"a redirect", refusing(307, "Location", "/x"), gitfetch.ErrRedirect},
		{"an answer that is no HTTP", bare(func(c net.Conn) { _, _ = io.WriteString(c, "SSH-2.0-x\r\n") }), nil},
	}
	shortcuts := map[string]func(*testing.T, *gitfetch.Request, *picky){
		"an earlier checkout": func(t *testing.T, r *gitfetch.Request, _ *picky) {
			h := &host{advertisement: advertisement(), result: answerWith(first, old.b.Bytes())}
			r.Have = have(t, fetch(t, gitfetch.Request{URL: h.start(t), Commit: fencepost.CommitID{ObjectID: first}, AllowHTTP: true}))
		},
		"a filter": func(_ *testing.T, r *gitfetch.Request, _ *picky) {
			r.Select = func(path string) bool { return path == "README" }
		},
		"single files": func(_ *testing.T, r *gitfetch.Request, p *picky) {
			r.Select = func(path string) bool { return path == "README" }
			fail := p.odd
			p.odd = func(w http.ResponseWriter, body []byte) {
				if bytes.Contains(body, []byte("filter ")) {
					p.special.Add(-1)
					_, _ = w.Write(answerWith(second, dirs.b.Bytes()))
					return
				}
				fail(w, body)
			}
		},
	}
	for how, with := range shortcuts {
		for _, tt := range tests {
			t.Run(how+"/"+tt.name, func(t *testing.T) {
				t.Parallel()
				plain := 0
				p := &picky{odd: tt.odd, plain: func(w http.ResponseWriter, _ *http.Request) {
					plain++
					_, _ = w.Write(whole)
				}}
				w := workspace(t)
				req := gitfetch.Request{Commit: fencepost.CommitID{ObjectID: second}, AllowHTTP: true}
				with(t, &req, p)
				req.URL = p.start(t)
				c, err := w.Fetch(t.Context(), req)
				if tt.want != nil {
					want, isStatus := tt.want.(*gitfetch.StatusError)
					got, _ := errors.AsType[*gitfetch.StatusError](err)
					if isStatus && (got == nil || got.Status != want.Status) || !isStatus && !errors.Is(err, tt.want) || plain != 0 {
						t.Errorf("err = %v after %d plain requests, want %v", err, plain, tt.want)
					}
					return
				}
				if err != nil {
					t.Fatal(err)
				}
				if st := c.Stats(); st.Fallback != gitfetch.FallbackAnswer || st.Incremental || st.Filtered || plain != 1 {
					t.Errorf("%+v after %d plain requests", st, plain)
				}
				if got, err := os.ReadFile(filepath.Join(c.Root(), "README")); err != nil || string(got) != "hello, moon\n" {
					t.Errorf("README: %q, %v", got, err)
				}
			})
		}
	}
}

// TestAServerThatFailsAtEverythingIsAskedTwice and no more.
func TestAServerThatFailsAtEverythingIsAskedTwice(t *testing.T) {
	t.Parallel()
	commit, pack := good()
	had := have(t, fetch(t, gitfetch.Request{
		URL: (&host{advertisement: advertisement(), result: answerWith(commit, pack)}).start(t), Commit: fencepost.CommitID{ObjectID: commit}, AllowHTTP: true}))
	plain := 0
	p := &picky{odd: refusing(500), plain: func(w http.ResponseWriter, r *http.Request) { plain++; coded(502)(w, r) }}
	_, err := workspace(t).Fetch(t.Context(), gitfetch.Request{URL: p.start(t), Commit: fencepost.CommitID{ObjectID: fencepost.ObjectID{7}}, AllowHTTP: true, Have: had})
	if status, _ := errors.AsType[*gitfetch.StatusError](err); status == nil || status.Status != 502 || plain != 1 || p.special.Load() != 1 {
		t.Errorf("err = %v after %d and %d requests, want 502 after one of each", err, p.special.Load(), plain)
	}
}
