package gitfetch_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/gitfetch"
	"github.com/fencepost/fencepost/gitfetch/internal/gitserver"
	"github.com/fencepost/fencepost/gitfetch/internal/pktline"
)

func transport(t *testing.T, opts gitfetch.TransportOptions) *gitfetch.Transport {
	t.Helper()
	tr := gitfetch.NewTransport(opts)
	t.Cleanup(tr.Close)
	return tr
}

// lister answers ls-refs, and counts connections and requests.
type lister struct {
	mu       sync.Mutex
	conns    map[net.Conn]bool
	gets     int
	posts    int
	auth     []string // of each request
	answer   func(w http.ResponseWriter, r *http.Request) bool
	requests chan struct{} // where set, posts wait for it
}

func (l *lister) start(t *testing.T) *httptest.Server {
	t.Helper()
	l.conns = make(map[net.Conn]bool)
	server := httptest.NewUnstartedServer(l)
	server.Config.ConnState = func(c net.Conn, state http.ConnState) {
		l.mu.Lock()
		defer l.mu.Unlock()
		if state == http.StateNew {
			l.conns[c] = true
		}
	}
	server.Start()
	t.Cleanup(server.Close)
	return server
}

func (l *lister) counts() (conns, gets, posts int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.conns), l.gets, l.posts
}

func (l *lister) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	l.mu.Lock()
	l.auth = append(l.auth, r.Header.Get("Authorization"))
	if r.Method == http.MethodPost {
		l.posts++
	} else {
		l.gets++
	}
	answer := l.answer
	l.mu.Unlock()
	if answer != nil && answer(w, r) {
		return
	}
	if r.Method == http.MethodPost {
		if l.requests != nil {
			<-l.requests
		}
		w.Header().Set("Content-Type", typeResult)
		_, _ = w.Write(pktline.AppendFlush(pktline.AppendText(nil, "1111111111111111111111111111111111111111 refs/heads/main")))
		return
	}
	w.Header().Set("Content-Type", typeAdvertisement)
	_, _ = w.Write(advertisement())
}

func lsMain(t *testing.T, req gitfetch.Request) error {
	t.Helper()
	refs, err := gitfetch.LsRefs(t.Context(), req, "refs/heads/main")
	if err == nil && (len(refs) != 1 || refs[0].Name != "refs/heads/main") {
		t.Errorf("refs %+v", refs)
	}
	return err
}

func TestATransportKeepsItsConnectionAndWhatTheServerCanDo(t *testing.T) {
	t.Parallel()
	l := &lister{}
	server := l.start(t)
	now := time.Unix(1_700_000_000, 0)
	tr := transport(t, gitfetch.TransportOptions{RememberFor: time.Hour, Remember: 2, Now: func() time.Time { return now }})
	ask := func(repo string) {
		t.Helper()
		if err := lsMain(t, gitfetch.Request{URL: server.URL + "/" + repo, AllowHTTP: true, Transport: tr}); err != nil {
			t.Fatal(err)
		}
	}
	want := func(wantConns, wantGets, wantPosts int) {
		t.Helper()
		if conns, gets, posts := l.counts(); conns != wantConns || gets != wantGets || posts != wantPosts {
			t.Errorf("%d connections, %d first requests, %d commands; want %d, %d, %d", conns, gets, posts, wantConns, wantGets, wantPosts)
		}
	}
	ask("a")
	want(1, 1, 1)
	for range 5 {
		ask("a")
	}
	want(1, 1, 6)
	ask("b")
	want(1, 2, 7)
	now = now.Add(time.Hour)
	ask("a")
	want(1, 3, 8)
	ask("c") // one of a and b is forgotten for it
	ask("c")
	want(1, 4, 10)
}

func TestWhatIsNoLongerTrueIsAskedAgain(t *testing.T) {
	t.Parallel()
	sha256 := pktline.AppendFlush(pktline.AppendText(pktline.AppendText(pktline.AppendText(nil, "version 2"), "ls-refs"), "object-format=sha256"))
	get := func(r *http.Request) bool { return r.Method == http.MethodGet }
	var odd atomic.Bool
	tests := []struct {
		name        string
		answer      func(w http.ResponseWriter, r *http.Request) bool
		want        error
		gets, posts int // after the change
	}{
		{"the repository is gone", func(w http.ResponseWriter, _ *http.Request) bool { w.WriteHeader(404); return true }, gitfetch.ErrNotFound, 1, 1},
		{"it moved", func(w http.ResponseWriter, r *http.Request) bool {
			http.Redirect(w, r, "https://elsewhere.example"+r.URL.String(), http.StatusMovedPermanently)
			return true
		}, gitfetch.ErrRedirect, 1, 1},
		{"it is another", func(w http.ResponseWriter, r *http.Request) bool {
			w.Header().Set("Content-Type", typeResult)
			if get(r) {
				w.Header().Set("Content-Type", typeAdvertisement)
				_, _ = w.Write(sha256)
			}
			return true // to a command, nothing
		}, gitfetch.ErrObjectFormat, 1, 1},
		{"the credential is bad", func(w http.ResponseWriter, _ *http.Request) bool { w.WriteHeader(401); return true }, gitfetch.ErrCredential, 0, 1},
		{"too often", func(w http.ResponseWriter, _ *http.Request) bool { w.WriteHeader(429); return true }, gitfetch.ErrRateLimited, 0, 1},
		{"an answer that is none, once", func(w http.ResponseWriter, r *http.Request) bool {
			w.Header().Set("Content-Type", typeResult)
			return !get(r) && odd.CompareAndSwap(false, true)
		}, nil, 1, 2},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			l := &lister{}
			req := gitfetch.Request{URL: l.start(t).URL + "/r", AllowHTTP: true, Transport: transport(t, gitfetch.TransportOptions{})}
			if err := lsMain(t, req); err != nil {
				t.Fatal(err)
			}
			_, gets, posts := l.counts()
			l.mu.Lock()
			l.answer = tt.answer
			l.mu.Unlock()
			if err := lsMain(t, req); !errors.Is(err, tt.want) {
				t.Errorf("err = %v, want %v", err, tt.want)
			}
			_, gets2, posts2 := l.counts()
			if gets2-gets != tt.gets || posts2-posts != tt.posts {
				t.Errorf("%d first requests, %d commands; want %d, %d", gets2-gets, posts2-posts, tt.gets, tt.posts)
			}
		})
	}
}

// TestAKeptConnectionThatIsGoneIsNoFailure has the server close what is idle.
func TestAKeptConnectionThatIsGoneIsNoFailure(t *testing.T) {
	t.Parallel()
	l := &lister{}
	server := l.start(t)
	req := gitfetch.Request{URL: server.URL + "/r", AllowHTTP: true, Transport: transport(t, gitfetch.TransportOptions{})}
	for range 20 {
		if err := lsMain(t, req); err != nil {
			t.Fatal(err)
		}
		server.CloseClientConnections()
	}
}

func TestCredentialsAreOfRequestsAndNotOfConnections(t *testing.T) {
	t.Parallel()
	l := &lister{}
	server := l.start(t)
	tr := transport(t, gitfetch.TransportOptions{ConnsPerHost: 1})
	as := func(secret string) gitfetch.Request {
		req := gitfetch.Request{URL: server.URL + "/r", AllowHTTP: true, Transport: tr}
		if secret != "" {
			req.Credential = func(context.Context) (string, fencepost.Secret, error) {
				return "u", fencepost.NewSecret([]byte(secret)), nil
			}
		}
		return req
	}
	for _, secret := range []string{"a", "b", "", "a", ""} {
		if err := lsMain(t, as(secret)); err != nil {
			t.Fatal(err)
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	want := []string{"Basic dTph", "Basic dTph", "Basic dTpi", "", "Basic dTph", ""} // the first made two requests
	if fmt.Sprint(l.auth) != fmt.Sprint(want) || len(l.conns) != 1 {
		t.Errorf("credentials %q on %d connections, want %q on 1", l.auth, len(l.conns), want)
	}
}

// TestConnectionsAreSharedOnlyUnderTheSameRules: one that was made for a request
// that trusts a server must not serve one that does not.
func TestConnectionsAreSharedOnlyUnderTheSameRules(t *testing.T) {
	t.Parallel()
	s, server := gitserver.NewTLS(t)
	repo := s.Repo(t, "r.git")
	commit := repo.Commit(t, "main", sample())
	tr := transport(t, gitfetch.TransportOptions{})
	trusting := gitfetch.Request{URL: repo.URL, Commit: commit, Transport: tr, RootCAs: server.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs}
	fetch(t, trusting)
	distrusting := trusting
	distrusting.RootCAs = nil
	seen := len(s.Requests())
	if _, err := workspace(t).Fetch(t.Context(), distrusting); err == nil {
		t.Error("a server that is not trusted served a fetch")
	}
	if n := len(s.Requests()); n != seen {
		t.Errorf("it got %d requests", n-seen)
	}
	fetch(t, trusting)
}

func TestFetchesAndLooksShareATransport(t *testing.T) {
	t.Parallel()
	s := gitserver.New(t)
	repo := s.Repo(t, "r.git")
	commit := repo.Commit(t, "main", sample())
	req := request(repo, commit)
	req.Transport = transport(t, gitfetch.TransportOptions{ConnsPerHost: 2})
	var wait sync.WaitGroup
	for range 6 {
		wait.Go(func() {
			if err := lsMain(t, req); err != nil {
				t.Error(err)
			}
			c, err := workspace(t).Fetch(t.Context(), req)
			if err != nil {
				t.Error(err)
				return
			}
			if err := c.Verify(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	wait.Wait()
	if n := len(s.Requests()); n > 2*6+6 {
		t.Errorf("%d requests", n)
	}
}

func TestAClosedTransportTakesNothingMore(t *testing.T) {
	t.Parallel()
	l := &lister{requests: make(chan struct{})}
	tr := gitfetch.NewTransport(gitfetch.TransportOptions{})
	req := gitfetch.Request{URL: l.start(t).URL + "/r", AllowHTTP: true, Transport: tr}
	asked := make(chan error)
	go func() {
		_, err := gitfetch.LsRefs(t.Context(), req, "refs/heads/main")
		asked <- err
	}()
	l.requests <- struct{}{} // it is under way
	closed := make(chan struct{})
	go func() {
		tr.Close()
		close(closed)
	}()
	if err := <-asked; err != nil {
		t.Errorf("what was under way: %v", err)
	}
	<-closed
	if err := lsMain(t, req); !errors.Is(err, gitfetch.ErrRequest) {
		t.Errorf("after Close: %v, want %v", err, gitfetch.ErrRequest)
	}
	tr.Close()
}
