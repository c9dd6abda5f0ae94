package gitlab_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/forge"
	"github.com/fencepost/fencepost/internal/forge/gitlab"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const token = "glpat-of-a-reader"

// A server answers in place of a connection.
type server struct {
	answer func(*http.Request) (*http.Response, error)
	asked  []*http.Request
}

// RoundTrip implements [http.RoundTripper].
func (s *server) RoundTrip(r *http.Request) (*http.Response, error) {
	s.asked = append(s.asked, r)
	return s.answer(r)
}

func says(status int, body string, header ...string) func(*http.Request) (*http.Response, error) {
	return func(*http.Request) (*http.Response, error) {
		h := http.Header{}
		for i := 0; i < len(header); i += 2 {
			h.Add(header[i], header[i+1])
		}
		return &http.Response{StatusCode: status, Header: h, Body: io.NopCloser(strings.NewReader(body))}, nil
	}
}

// epoch is the time of our clock at first.
var epoch = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

func open(t *testing.T, s *server, change ...func(*gitlab.Config)) (*gitlab.Client, *time.Time) {
	t.Helper()
	now := epoch
	c := gitlab.Config{
		API: &url.URL{Scheme: "https", Host: "gitlab.example.com", Path: "/api/v4/"}, Transport: s, Now: func() time.Time { return now },
		Token:  func(context.Context) (fencepost.Secret, error) { return fencepost.NewSecret([]byte(token)), nil },
		Limits: forge.Limits{MaxAnswer: 64 << 10, MaxPages: 3},
	}
	for _, f := range change {
		f(&c)
	}
	client, err := gitlab.New(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return client, &now
}

func TestARequestGoesToTheAPIWithItsToken(t *testing.T) {
	t.Parallel()
	s := &server{answer: says(200, `{"id":20}`, "Etag", `W/"a"`)}
	c, _ := open(t, s)
	a, err := c.Get(t.Context(), "get", "/projects/20?x=%2F", "")
	if err != nil || a.Status != 200 || !a.Found() || a.ETag != `W/"a"` || string(a.Body) != `{"id":20}` {
		t.Fatalf("%+v, %v", a, err)
	}
	r := s.asked[0]
	if r.URL.String() != "https://gitlab.example.com/api/v4/projects/20?x=%2F" || r.Method != http.MethodGet ||
		r.Header.Get("PRIVATE-TOKEN") != token || r.Header.Get("Authorization") != "" || strings.Contains(r.URL.String(), token) {
		t.Errorf("asked %s %s with %v", r.Method, r.URL, r.Header)
	}
	s.answer = says(304, "")
	if a, err := c.Get(t.Context(), "get", "/projects/20", `W/"a"`); err != nil || a.Status != 304 || s.asked[1].Header.Get("If-None-Match") != `W/"a"` {
		t.Errorf("conditional: %+v, %v", a, err)
	}
	anonymous, _ := open(t, s, func(c *gitlab.Config) { c.Token, c.Anonymous = nil, true })
	s.answer = says(404, "")
	if a, err := anonymous.Get(t.Context(), "get", "/projects/20", ""); err != nil || a.Found() || s.asked[2].Header.Get("PRIVATE-TOKEN") != "" {
		t.Errorf("anonymous: %+v, %v", a, err)
	}
}

func TestPagesFollowLinks(t *testing.T) {
	t.Parallel()
	const api = "https://gitlab.example.com/api/v4"
	pages := map[string][2]string{
		"/a":        {`[1,2]`, `<` + api + `/a?page=1>; rel="first", <` + api + `/a?page=2>; rel="next"`},
		"/a?page=2": {`[3]`, `<` + api + `/a?page=1>; rel="prev"`},
		"/b":        {`[1]`, `<https://evil.example.com/api/v4/b?page=2>; rel="next"`},
		"/c":        {`[1]`, `<` + api + `evil.example.com/c>; rel="next"`},
		"/d":        {`[1]`, `<` + api + `/d>; rel="next"`},
		"/e":        {`{}`, ``},
		"/f":        {`[1]`, `</api/v4/f?page=2>; rel="next"`},
	}
	s := &server{}
	s.answer = func(r *http.Request) (*http.Response, error) {
		p, ok := pages[strings.TrimPrefix(r.URL.String(), api)]
		if !ok || r.URL.Host != "gitlab.example.com" {
			return says(404, "")(r)
		}
		return says(200, p[0], "Link", p[1])(r)
	}
	c, _ := open(t, s)
	for _, tt := range []struct {
		path  string
		found bool
		sum   int
		fails bool
	}{{"/a", true, 6, false}, {"/b", false, 0, true}, {"/c", false, 0, true}, {"/d", true, 3, true}, {"/e", false, 0, true}, {"/f", false, 0, true}, {"/g", false, 0, false}} {
		sum := 0
		found, err := gitlab.Pages(t.Context(), c, "list", tt.path, func(n int) { sum += n })
		if found != tt.found || sum != tt.sum || (err != nil) != tt.fails || err != nil && fencepost.ReasonOf(err) != fencepost.ReasonProvider {
			t.Errorf("%s: found %v, sum %d, %v", tt.path, found, sum, err)
		}
	}
	if _, err := gitlab.Pages(t.Context(), c, "list", "/d", func(int) {}); !errors.Is(err, forge.ErrTooManyPages) {
		t.Errorf("a list without an end: %v", err)
	}
}

func TestValidPath(t *testing.T) {
	t.Parallel()
	for path, want := range map[string]bool{
		"acme/docs": true, "acme/handbooks/docs": true, "a.b/c-d_e": true,
		"": false, "docs": false, "acme/": false, "/docs": false, "acme//docs": false, "acme/../docs": false, "acme/do cs": false, "acme/d?x": false,
	} {
		if got := gitlab.ValidPath(path); got != want {
			t.Errorf("%q: %v, want %v", path, got, want)
		}
	}
}
