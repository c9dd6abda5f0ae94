package gitfetch_test

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/gitfetch"
	"github.com/fencepost/fencepost/gitfetch/internal/gitserver"
	"github.com/google/go-cmp/cmp"
)

func TestURLsAreSentAsTheyAreWritten(t *testing.T) {
	t.Parallel()
	s := gitserver.New(t)
	repo := s.Repo(t, "a group/r+1.git")
	commit := repo.Commit(t, "main", sample())
	for _, path := range []string{"/a%20group/r+1.git", "/a%20group/r%2B1.git", "/a%20group/r+1.git/"} {
		req := request(repo, commit)
		req.URL = s.URL + path
		if c := fetch(t, req); c.Repository() != req.URL {
			t.Errorf("%s: repository %s", path, c.Repository())
		}
	}
	for _, r := range s.Requests() {
		if !strings.HasPrefix(r.RequestURI, "/a%20group/r+1.git/") && !strings.HasPrefix(r.RequestURI, "/a%20group/r%2B1.git/") {
			t.Errorf("asked for %s", r.RequestURI)
		}
	}
}

func TestAnAbsentRepositoryIsNotFound(t *testing.T) {
	t.Parallel()
	s := gitserver.New(t)
	repo := s.Repo(t, "r.git")
	commit := repo.Commit(t, "main", sample())
	req := request(repo, commit)
	req.URL = s.URL + "/absent.git"
	_, err := workspace(t).Fetch(t.Context(), req)
	if !errors.Is(err, gitfetch.ErrNotFound) || fencepost.ReasonOf(err) != fencepost.ReasonAcquisition {
		t.Errorf("err = %v, want %v", err, gitfetch.ErrNotFound)
	}
}

// canary is what must never be seen outside the Authorization header.
const canary = "canary-3c9e1f"

func credential(user, secret string) gitfetch.Credential {
	return func(context.Context) (string, fencepost.Secret, error) {
		return user, fencepost.NewSecret([]byte(secret)), nil
	}
}

// demand answers 401 to all who don't bring the right credential.
func demand(user, secret string) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if u, p, ok := r.BasicAuth(); !ok || u != user || p != secret {
				w.Header().Set("WWW-Authenticate", `Basic realm="git"`)
				http.Error(w, "you said "+r.Header.Get("Authorization"), http.StatusUnauthorized)
				return
			}
			next.ServeHTTP(w, r)
		})
	}
}

func TestCredentials(t *testing.T) {
	t.Parallel()
	s := gitserver.New(t)
	repo := s.Repo(t, "r.git")
	commit := repo.Commit(t, "main", sample())
	s.Wrap(demand("x-access-token", canary))
	errVault := errors.New("vault is sealed")

	req := request(repo, commit)
	req.Credential = credential("x-access-token", canary)
	fetch(t, req)

	for name, tt := range map[string]struct {
		credential gitfetch.Credential
		want       error
	}{
		"none":                  {nil, gitfetch.ErrCredential},
		"wrong":                 {credential("x-access-token", "wrong-"+canary), gitfetch.ErrCredential},
		"not to be had":         {func(context.Context) (string, fencepost.Secret, error) { return "", fencepost.Secret{}, errVault }, errVault},
		"with a line end":       {credential("u", canary+"\r\nX: y"), gitfetch.ErrCredential},
		"with a colon in front": {credential("u:v", canary), gitfetch.ErrCredential},
	} {
		req.Credential = tt.credential
		_, err := workspace(t).Fetch(t.Context(), req)
		if !errors.Is(err, tt.want) || fencepost.ReasonOf(err) != fencepost.ReasonCredential {
			t.Errorf("%s: err = %v (%s), want %v", name, err, fencepost.ReasonOf(err), tt.want)
		}
		wantNoCanary(t, err)
	}
}

// wantNoCanary searches everything that an error shows for the secret, also
// in the form that the header has.
func wantNoCanary(t *testing.T, err error) {
	t.Helper()
	encoded := base64.StdEncoding.EncodeToString([]byte("x-access-token:" + canary))
	for _, text := range []string{fmt.Sprint(err), fmt.Sprintf("%+v", err), fmt.Sprintf("%#v", err)} {
		if strings.Contains(text, canary) || strings.Contains(text, encoded[:20]) {
			t.Errorf("the credential shows in %q", text)
		}
	}
}

func TestASecretInTheURLIsRefusedAndNotShown(t *testing.T) {
	t.Parallel()
	for _, url := range []string{
		"https://user:" + canary + "@example.org/r.git", "https://" + canary + "@example.org/r.git", "https://example.org/r.git?token=" + canary,
		"https://example.org/r.git#" + canary, "https://exa mple.org/" + canary, "https://example.org/\x7f" + canary, "https://[::1" + canary,
		"ftp://example.org/" + canary, "http://example.org/" + canary, "https:///" + canary, "https:opaque" + canary, "https://example.org:0/" + canary,
		"https://example.org:99999/" + canary, "/local/" + canary, "ext::sh -c " + canary, canary, "",
	} {
		_, err := workspace(t).Fetch(t.Context(), gitfetch.Request{URL: url, Commit: fencepost.CommitID{ObjectID: fencepost.ObjectID{1}}})
		if !errors.Is(err, gitfetch.ErrRequest) {
			t.Errorf("%q: err = %v, want %v", url, err, gitfetch.ErrRequest)
		}
		wantNoCanary(t, err)
	}
}

func TestTLSWithOwnAuthorities(t *testing.T) {
	t.Parallel()
	s, server := gitserver.NewTLS(t)
	repo := s.Repo(t, "r.git")
	req := gitfetch.Request{URL: repo.URL, Commit: repo.Commit(t, "main", sample())}
	_, err := workspace(t).Fetch(t.Context(), req)
	if unknown, ok := errors.AsType[x509.UnknownAuthorityError](err); !ok {
		t.Errorf("err = %v, want %T", err, unknown)
	}
	req.RootCAs = x509.NewCertPool()
	req.RootCAs.AddCert(server.Certificate())
	fetch(t, req)
}

func TestRequestsCarryWhatTheProtocolNeedsAndNothingElse(t *testing.T) {
	t.Parallel()
	s := gitserver.New(t)
	repo := s.Repo(t, "r.git")
	req := request(repo, repo.Commit(t, "main", sample()))
	req.URL += "//"
	s.Wrap(func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			http.SetCookie(w, &http.Cookie{Name: "session", Value: "1", Path: "/"})
			next.ServeHTTP(w, r)
		})
	})
	fetch(t, req)
	got := s.Requests()
	if len(got) != 2 {
		t.Fatalf("%d requests", len(got))
	}
	if got[0].Method != http.MethodGet || got[0].URL.String() != "/r.git/info/refs?service=git-upload-pack" {
		t.Errorf("first request: %s %s", got[0].Method, got[0].URL)
	}
	if got[1].Method != http.MethodPost || got[1].URL.String() != "/r.git/git-upload-pack" || got[1].ContentLength <= 0 || got[1].TransferEncoding != nil {
		t.Errorf("second request: %s %s, %d bytes, %v", got[1].Method, got[1].URL, got[1].ContentLength, got[1].TransferEncoding)
	}
	for _, r := range got {
		want := map[string]string{"Git-Protocol": "version=2", "Accept-Encoding": "identity", "Cookie": "", "Authorization": "", "Content-Encoding": ""}
		for name, value := range want {
			if r.Header.Get(name) != value {
				t.Errorf("%s %s: %s: %q, want %q", r.Method, r.URL, name, r.Header.Get(name), value)
			}
		}
	}
}

func TestRedirects(t *testing.T) {
	t.Parallel()
	s := gitserver.New(t)
	repo := s.Repo(t, "new.git")
	commit := repo.Commit(t, "main", sample())
	stolen := make(chan string, 16)
	// Another port of the same host, as where net/http would send the
	// credential along.
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		stolen <- r.Header.Get("Authorization")
		http.Redirect(w, r, s.URL+r.URL.String(), http.StatusFound)
	}))
	t.Cleanup(other.Close)
	const tail = "/info/refs?service=git-upload-pack"
	s.Wrap(func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if _, to, ok := strings.Cut(r.Header.Get("User-Agent")+r.URL.Path, "/to/"); ok {
				to, _ = strings.CutSuffix(to, "/info/refs")
				target := map[string]string{
					"new": "/new.git" + tail, "other": other.URL + "/new.git" + tail, "again": "/to/new" + tail,
					"user": strings.Replace(s.URL, "//", "//u:p@", 1) + "/new.git" + tail, "login": "/login", "ftp": "ftp://x" + tail,
					"short": "/new.git/info/refs", "more": "/new.git" + tail + "&x=1", "none": "",
				}[to]
				if target != "" {
					w.Header().Set("Location", target)
				}
				w.WriteHeader(http.StatusMovedPermanently)
				return
			}
			if r.URL.Path == "/post.git/git-upload-pack" {
				http.Redirect(w, r, "/new.git/git-upload-pack", http.StatusTemporaryRedirect)
				return
			}
			r.URL.Path = strings.Replace(r.URL.Path, "/post.git", "/new.git", 1)
			next.ServeHTTP(w, r)
		})
	})
	tests := []struct {
		name    string
		path    string
		hops    int
		origins []string
		want    error
	}{
		{"none by default", "/to/new", 0, nil, gitfetch.ErrRedirect},
		{"to the same origin", "/to/new", 1, nil, nil},
		{"two hops", "/to/again", 2, nil, nil},
		{"one hop too many", "/to/again", 1, nil, gitfetch.ErrRedirect},
		{"to another origin", "/to/other", 5, nil, gitfetch.ErrRedirect},
		{"to another origin that is allowed", "/to/other", 5, []string{other.URL}, nil},
		{"with a user in it", "/to/user", 5, nil, gitfetch.ErrRedirect},
		{"to a login page", "/to/login", 5, nil, gitfetch.ErrRedirect},
		{"to another scheme", "/to/ftp", 5, nil, gitfetch.ErrRedirect},
		{"with a shorter tail", "/to/short", 5, nil, gitfetch.ErrRedirect},
		{"with a longer tail", "/to/more", 5, nil, gitfetch.ErrRedirect},
		{"to nowhere", "/to/none", 5, nil, gitfetch.ErrRedirect},
		{"of a command", "/post.git", 5, nil, gitfetch.ErrRedirect},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			req := request(repo, commit)
			req.URL = s.URL + tt.path
			req.Budgets.Redirects = tt.hops
			req.RedirectOrigins = tt.origins
			req.Credential = credential("x-access-token", canary)
			before := len(s.Requests())
			c, err := workspace(t).Fetch(t.Context(), req)
			if !errors.Is(err, tt.want) {
				t.Fatalf("err = %v, want %v", err, tt.want)
			}
			wantNoCanary(t, err)
			if err == nil && c.Repository() != req.URL {
				t.Errorf("repository %s, want the one that was asked for", c.Repository())
			}
			for _, r := range s.Requests()[before:] {
				if _, secret, _ := r.BasicAuth(); secret != canary {
					t.Errorf("%s %s to the configured origin without the credential", r.Method, r.URL)
				}
			}
		})
	}
	close(stolen)
	seen := 0
	for header := range stolen {
		seen++
		if header != "" {
			t.Errorf("the other origin got %q", header)
		}
	}
	if seen != 1 {
		t.Errorf("the other origin was asked %d times, want once", seen)
	}
}

func TestAnHTTPSOriginNeverLeadsToHTTP(t *testing.T) {
	t.Parallel()
	s, server := gitserver.NewTLS(t)
	plain := gitserver.New(t)
	repo := s.Repo(t, "r.git")
	commit := repo.Commit(t, "main", sample())
	s.Wrap(func(http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, plain.URL+r.URL.String(), http.StatusFound)
		})
	})
	req := gitfetch.Request{URL: repo.URL, Commit: commit, AllowHTTP: true, RedirectOrigins: []string{plain.URL}, RootCAs: x509.NewCertPool()}
	req.RootCAs.AddCert(server.Certificate())
	req.Budgets.Redirects = 3
	if _, err := workspace(t).Fetch(t.Context(), req); !errors.Is(err, gitfetch.ErrRedirect) {
		t.Errorf("err = %v, want %v", err, gitfetch.ErrRedirect)
	}
	if n := len(plain.Requests()); n != 0 {
		t.Errorf("%d requests in plain text", n)
	}
}

func TestLsRefs(t *testing.T) {
	t.Parallel()
	s := gitserver.New(t)
	repo := s.Repo(t, "r.git")
	commit := repo.Commit(t, "main", sample())
	repo.Commit(t, "main2", sample()[:1])
	repo.Git(t, "tag", "-a", "-m", "tag", "v1", commit.String())
	got, err := gitfetch.LsRefs(t.Context(), request(repo, fencepost.CommitID{}), "refs/heads/main", "refs/tags/v1", "HEAD", "refs/heads/absent")
	if err != nil {
		t.Fatal(err)
	}
	want := []gitfetch.Ref{
		{Name: "HEAD", ID: commit.ObjectID, Symref: "refs/heads/main"},
		{Name: "refs/heads/main", ID: commit.ObjectID},
		{Name: "refs/tags/v1", ID: repo.Resolve(t, "v1").ObjectID, Peeled: commit.ObjectID},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("refs (-want +got):\n%s", diff)
	}
	for _, ref := range got {
		if ref.Commit() != commit {
			t.Errorf("%s leads to %s, want %s", ref.Name, ref.Commit(), commit)
		}
	}
	for _, bad := range []string{"", "main", "refs/heads/../x", "refs/heads/a b", "refs/heads/x\nwant", "refs/heads/.x", "refs/heads/x.lock", "refs//x", "refs/heads/"} {
		if _, err := gitfetch.LsRefs(t.Context(), request(repo, fencepost.CommitID{}), bad); !errors.Is(err, gitfetch.ErrRequest) {
			t.Errorf("%q: err = %v, want %v", bad, err, gitfetch.ErrRequest)
		}
	}
	empty := s.Repo(t, "empty.git")
	if got, err := gitfetch.LsRefs(t.Context(), request(empty, fencepost.CommitID{}), "HEAD"); err != nil || len(got) != 0 {
		t.Errorf("of an empty repository: %v, %v", got, err)
	}
}

func TestRemoteTextIsAtHandAndNotInTheError(t *testing.T) {
	t.Parallel()
	s := gitserver.New(t)
	repo := s.Repo(t, "r.git")
	commit := repo.Commit(t, "main", sample())
	s.Wrap(func(http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Retry-After", "7")
			w.Header().Set("Content-Type", "text/plain; charset=utf-8")
			w.WriteHeader(http.StatusTooManyRequests)
			w.Write([]byte("slow\x1b[31m down\r\n" + strings.Repeat("x", 9000)))
		})
	})
	_, err := workspace(t).Fetch(t.Context(), request(repo, commit))
	se, ok := errors.AsType[*gitfetch.StatusError](err)
	if !ok || !errors.Is(err, gitfetch.ErrRateLimited) || fencepost.ReasonOf(err) != fencepost.ReasonRateLimited || se.RetryAfter != 7*time.Second {
		t.Fatalf("err = %#v", err)
	}
	if !strings.HasPrefix(se.Text, "slow?[31m down  xxx") || len(se.Text) > 4<<10 {
		t.Errorf("text %q", se.Text)
	}
	if strings.Contains(err.Error(), "slow") {
		t.Errorf("the server's words are in %q", err)
	}
	if bytes.ContainsAny([]byte(se.Text), "\x1b\r\n") {
		t.Errorf("control characters in %q", se.Text)
	}
}
