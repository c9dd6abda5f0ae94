package gitlab_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/fencepost/fencepost"
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
		Limits: gitlab.Limits{MaxAnswer: 64 << 10, MaxPages: 3},
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

func TestEveryStatusHasItsReason(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		status int
		header []string
		want   fencepost.Reason
	}{
		{200, nil, ""}, {404, nil, ""},
		{201, nil, fencepost.ReasonProvider}, {204, nil, fencepost.ReasonProvider}, {304, nil, fencepost.ReasonIdentity},
		{301, []string{"Location", "https://evil.example.com/"}, fencepost.ReasonIdentity}, {302, nil, fencepost.ReasonIdentity},
		{400, nil, fencepost.ReasonProvider}, {401, nil, fencepost.ReasonCredential}, {403, nil, fencepost.ReasonCredential},
		{410, nil, fencepost.ReasonProvider}, {429, nil, fencepost.ReasonRateLimited}, {500, nil, fencepost.ReasonProvider},
		{503, nil, fencepost.ReasonProvider}, {503, []string{"Retry-After", "7"}, fencepost.ReasonRateLimited},
	} {
		s := &server{answer: says(c.status, "secret words of the server", c.header...)}
		client, _ := open(t, s)
		_, err := client.Get(t.Context(), "get project", "/projects/20", "")
		if fencepost.ReasonOf(err) != c.want || err != nil && (strings.Contains(err.Error(), "secret words") || strings.Contains(err.Error(), "evil")) {
			t.Errorf("%d: %v, want %q and no words of the server", c.status, err, c.want)
		}
		if len(s.asked) != 1 {
			t.Errorf("%d: %d requests, want one: no redirect is followed", c.status, len(s.asked))
		}
	}
}

func TestAServerThatAsksForItIsLeftAlone(t *testing.T) {
	t.Parallel()
	reset := fmt.Sprint(epoch.Add(40 * time.Second).Unix())
	for _, c := range []struct {
		name   string
		header []string
		want   time.Duration
	}{
		{"in seconds", []string{"Retry-After", "30", "RateLimit-Reset", reset}, 30 * time.Second},
		{"until a time", []string{"RateLimit-Reset", reset}, 40 * time.Second},
		{"until a time that has passed", []string{"RateLimit-Reset", "1"}, time.Minute},
		{"without saying how long", nil, time.Minute},
		{"in no number", []string{"Retry-After", "soon"}, time.Minute},
		{"for a year", []string{"Retry-After", "31536000"}, 10 * time.Minute},
	} {
		s := &server{answer: says(429, "", c.header...)}
		client, now := open(t, s)
		get := func() fencepost.Reason {
			_, err := client.Get(t.Context(), "get", "/projects/20", "")
			return fencepost.ReasonOf(err)
		}
		get()
		s.answer = says(200, "{}")
		*now = epoch.Add(c.want - time.Nanosecond)
		if got := get(); got != fencepost.ReasonRateLimited || len(s.asked) != 1 {
			t.Errorf("%s: %q after %d requests, want to wait for %s", c.name, got, len(s.asked), c.want)
		}
		*now = epoch.Add(c.want)
		if got := get(); got != "" {
			t.Errorf("%s: %q after %s", c.name, got, c.want)
		}
	}
}

func TestWhatIsNoAnswerSaysSoInOurWords(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		answer func(*http.Request) (*http.Response, error)
		want   string
	}{
		{says(200, strings.Repeat("x", 64<<10+1)), "too large"},
		{func(*http.Request) (*http.Response, error) { return nil, errors.New("dial 10.1.2.3") }, "the connection failed"},
		{func(*http.Request) (*http.Response, error) { return nil, context.DeadlineExceeded }, "no answer in time"},
	} {
		client, _ := open(t, &server{answer: c.answer})
		_, err := client.Get(t.Context(), "get", "/projects/20", "")
		if fencepost.ReasonOf(err) != fencepost.ReasonProvider || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "10.1.2.3") {
			t.Errorf("error %v, want %q", err, c.want)
		}
	}
	for _, text := range []string{``, `{`, `{"id":1}x`, `{"id":1,"id":2}`, `{"id":"1"}`, "{\"id\":1,\"x\":\"\xff\"}", `[]`} {
		var v struct {
			ID int64 `json:"id"`
		}
		if err := gitlab.Decode("get", []byte(text), &v); fencepost.ReasonOf(err) != fencepost.ReasonProvider {
			t.Errorf("%q is read as %+v: %v", text, v, err)
		}
	}
	// What is absent is told from what is false, and names have one case.
	var v struct {
		Set   *bool `json:"set"`
		Unset *bool `json:"unset"`
	}
	if err := gitlab.Decode("get", []byte(`{"set":false,"UNSET":true,"more":{}}`), &v); err != nil || v.Set == nil || *v.Set || v.Unset != nil {
		t.Errorf("%+v, %v", v, err)
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
	if _, err := gitlab.Pages(t.Context(), c, "list", "/d", func(int) {}); !errors.Is(err, gitlab.ErrTooManyPages) {
		t.Errorf("a list without an end: %v", err)
	}
}

func TestAMissingTokenIsTheCredentials(t *testing.T) {
	t.Parallel()
	for _, get := range []func(context.Context) (fencepost.Secret, error){
		func(context.Context) (fencepost.Secret, error) { return fencepost.Secret{}, errors.New("no such file") },
		func(context.Context) (fencepost.Secret, error) { return fencepost.Secret{}, nil },
	} {
		s := &server{answer: says(200, "{}")}
		c, _ := open(t, s, func(c *gitlab.Config) { c.Token = get })
		_, err := c.Get(t.Context(), "get", "/projects/20", "")
		_, _, gitErr := c.GitCredential(t.Context())
		if fencepost.ReasonOf(err) != fencepost.ReasonCredential || fencepost.ReasonOf(gitErr) != fencepost.ReasonCredential || len(s.asked) != 0 {
			t.Errorf("%v, %v, %d requests", err, gitErr, len(s.asked))
		}
	}
	c, _ := open(t, &server{})
	user, secret, err := c.GitCredential(t.Context())
	if err != nil || user == "" || string(secret.Reveal()) != token {
		t.Errorf("user %q, %v", user, err)
	}
}

func TestNewRefuses(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*gitlab.Config){
		"no API":           func(c *gitlab.Config) { c.API = nil },
		"plain HTTP":       func(c *gitlab.Config) { c.API = &url.URL{Scheme: "http", Host: "h"} },
		"a user":           func(c *gitlab.Config) { c.API = &url.URL{Scheme: "https", Host: "h", User: url.User("u")} },
		"no token":         func(c *gitlab.Config) { c.Token = nil },
		"no clock":         func(c *gitlab.Config) { c.Now = nil },
		"token, anonymous": func(c *gitlab.Config) { c.Anonymous = true },
		"short timeout":    func(c *gitlab.Config) { c.Limits.RequestTimeout = time.Millisecond },
		"small answers":    func(c *gitlab.Config) { c.Limits.MaxAnswer = 1 },
		"many pages":       func(c *gitlab.Config) { c.Limits.MaxPages = 1001 },
		"long quiet":       func(c *gitlab.Config) { c.Limits.MaxQuiet = 2 * time.Hour },
	} {
		c := gitlab.Config{
			API: &url.URL{Scheme: "https", Host: "h"}, Now: func() time.Time { return epoch },
			Token: func(context.Context) (fencepost.Secret, error) { return fencepost.Secret{}, nil },
		}
		change(&c)
		if _, err := gitlab.New(c); !errors.Is(err, fencepost.ErrMalformed) && !errors.Is(err, fencepost.ErrZeroValue) {
			t.Errorf("%s: %v", name, err)
		}
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
