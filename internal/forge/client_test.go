package forge_test

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
	"github.com/fencepost/fencepost/internal/forge"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const token = "token-of-a-reader"

var (
	header = forge.Header{Name: "Authorization", Prefix: "token "}
	get    = forge.Request{Op: "get project", Method: http.MethodGet, Path: "/projects/20"}
	post   = forge.Request{Op: "post review", Method: http.MethodPost, Path: "/reviews", Body: []byte(`{"x":1}`)}
)

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

func open(t *testing.T, s *server, change ...func(*forge.Config)) (*forge.Client, *time.Time) {
	t.Helper()
	now := epoch
	c := forge.Config{
		API: &url.URL{Scheme: "https", Host: "forge.example.com", Path: "/api/v4/"}, Transport: s, Now: func() time.Time { return now },
		Token:  func(context.Context) (fencepost.Secret, error) { return fencepost.NewSecret([]byte(token)), nil },
		Limits: forge.Limits{MaxAnswer: 64 << 10, MaxPages: 3},
	}
	for _, f := range change {
		f(&c)
	}
	client, err := forge.New(c, header)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return client, &now
}

func TestAWriteIsJSONWithTheToken(t *testing.T) {
	t.Parallel()
	s := &server{answer: says(201, `{"id":1}`)}
	c, _ := open(t, s)
	if got, err := c.Do(t.Context(), post); err != nil || got.Status != 201 || string(got.Body) != `{"id":1}` {
		t.Fatalf("%+v, %v", got, err)
	}
	r := s.asked[0]
	sent, err := io.ReadAll(r.Body)
	if err != nil || string(sent) != `{"x":1}` || r.Header.Get("Content-Type") != "application/json" ||
		r.Header.Get("Authorization") != "token "+token || r.URL.String() != "https://forge.example.com/api/v4/reviews" {
		t.Errorf("sent %q to %s with %v, %v", sent, r.URL, r.Header, err)
	}
}

func TestEveryStatusHasItsReason(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		status int
		header []string
		read   fencepost.Reason
		write  fencepost.Reason
		// open is whether a write may have been done.
		open bool
	}{
		{status: 200},
		{status: 201, read: fencepost.ReasonProvider},
		{status: 204, read: fencepost.ReasonProvider, write: fencepost.ReasonProvider},
		{status: 301, header: []string{"Location", "https://evil.example.com/"}, read: fencepost.ReasonIdentity, write: fencepost.ReasonIdentity},
		{status: 302, read: fencepost.ReasonIdentity, write: fencepost.ReasonIdentity},
		{status: 304, read: fencepost.ReasonIdentity, write: fencepost.ReasonIdentity},
		{status: 400, read: fencepost.ReasonProvider, write: fencepost.ReasonProvider},
		{status: 401, read: fencepost.ReasonCredential, write: fencepost.ReasonCredential},
		{status: 403, read: fencepost.ReasonCredential, write: fencepost.ReasonCredential},
		{status: 404, write: fencepost.ReasonProvider},
		{status: 410, read: fencepost.ReasonProvider, write: fencepost.ReasonProvider},
		{status: 429, read: fencepost.ReasonRateLimited, write: fencepost.ReasonRateLimited},
		{status: 500, read: fencepost.ReasonProvider, write: fencepost.ReasonProvider, open: true},
		{status: 503, read: fencepost.ReasonProvider, write: fencepost.ReasonProvider, open: true},
		{status: 503, header: []string{"Retry-After", "7"}, read: fencepost.ReasonRateLimited, write: fencepost.ReasonRateLimited},
	} {
		for _, q := range []forge.Request{get, post} {
			s := &server{answer: says(c.status, "secret words of the server", c.header...)}
			client, _ := open(t, s)
			_, err := client.Do(t.Context(), q)
			want, unanswered := c.read, false
			if q.Method == http.MethodPost {
				want, unanswered = c.write, c.open
			}
			if fencepost.ReasonOf(err) != want || err != nil && (strings.Contains(err.Error(), "secret words") || strings.Contains(err.Error(), "evil")) {
				t.Errorf("%s %d: %v, want %q and no words of the server", q.Method, c.status, err, want)
			}
			if errors.Is(err, forge.ErrUnanswered) != unanswered {
				t.Errorf("%s %d: %v, want it open whether it was done: %v", q.Method, c.status, err, unanswered)
			}
			if len(s.asked) != 1 {
				t.Errorf("%s %d: %d requests, want one: no redirect is followed", q.Method, c.status, len(s.asked))
			}
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
		ask := func() error {
			_, err := client.Do(t.Context(), get)
			return err
		}
		told := ask()
		s.answer = says(200, "{}")
		*now = epoch.Add(c.want - time.Nanosecond)
		held := ask()
		if len(s.asked) != 1 {
			t.Errorf("%s: %d requests, want to wait for %s", c.name, len(s.asked), c.want)
		}
		for _, err := range []error{told, held} {
			wait, ok := errors.AsType[*forge.WaitError](err)
			if !ok || !wait.Until.Equal(epoch.Add(c.want)) || fencepost.ReasonOf(err) != fencepost.ReasonRateLimited {
				t.Errorf("%s: %v, want to be told to ask again after %s", c.name, err, c.want)
			}
		}
		*now = epoch.Add(c.want)
		if err := ask(); err != nil {
			t.Errorf("%s: %v after %s", c.name, err, c.want)
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
		for _, q := range []forge.Request{get, post} {
			client, _ := open(t, &server{answer: c.answer})
			_, err := client.Do(t.Context(), q)
			if fencepost.ReasonOf(err) != fencepost.ReasonProvider || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "10.1.2.3") {
				t.Errorf("%s: error %v, want %q", q.Method, err, c.want)
			}
			if writes := q.Method == http.MethodPost; errors.Is(err, forge.ErrUnanswered) != writes {
				t.Errorf("%s: %v, want it open whether it was done: %v", q.Method, err, writes)
			}
		}
	}
	for _, text := range []string{``, `{`, `{"id":1}x`, `{"id":1,"id":2}`, `{"id":"1"}`, "{\"id\":1,\"x\":\"\xff\"}", `[]`} {
		var v struct {
			ID int64 `json:"id"`
		}
		if err := forge.Decode("get", []byte(text), &v); fencepost.ReasonOf(err) != fencepost.ReasonProvider {
			t.Errorf("%q is read as %+v: %v", text, v, err)
		}
	}
	// What is absent is told from what is false, and names have one case.
	var v struct {
		Set   *bool `json:"set"`
		Unset *bool `json:"unset"`
	}
	if err := forge.Decode("get", []byte(`{"set":false,"UNSET":true,"more":{}}`), &v); err != nil || v.Set == nil || *v.Set || v.Unset != nil {
		t.Errorf("%+v, %v", v, err)
	}
}

func TestAMissingTokenIsTheCredentials(t *testing.T) {
	t.Parallel()
	for _, resolve := range []func(context.Context) (fencepost.Secret, error){
		func(context.Context) (fencepost.Secret, error) { return fencepost.Secret{}, errors.New("no such file") },
		func(context.Context) (fencepost.Secret, error) { return fencepost.Secret{}, nil },
	} {
		s := &server{answer: says(200, "{}")}
		c, _ := open(t, s, func(c *forge.Config) { c.Token = resolve })
		_, err := c.Do(t.Context(), get)
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
	for name, change := range map[string]func(*forge.Config){
		"no API":           func(c *forge.Config) { c.API = nil },
		"plain HTTP":       func(c *forge.Config) { c.API = &url.URL{Scheme: "http", Host: "h"} },
		"a user":           func(c *forge.Config) { c.API = &url.URL{Scheme: "https", Host: "h", User: url.User("u")} },
		"no token":         func(c *forge.Config) { c.Token = nil },
		"no clock":         func(c *forge.Config) { c.Now = nil },
		"token, anonymous": func(c *forge.Config) { c.Anonymous = true },
		"short timeout":    func(c *forge.Config) { c.Limits.RequestTimeout = time.Millisecond },
		"small answers":    func(c *forge.Config) { c.Limits.MaxAnswer = 1 },
		"many pages":       func(c *forge.Config) { c.Limits.MaxPages = 1001 },
		"long quiet":       func(c *forge.Config) { c.Limits.MaxQuiet = 2 * time.Hour },
	} {
		c := forge.Config{
			API: &url.URL{Scheme: "https", Host: "h"}, Now: func() time.Time { return epoch },
			Token: func(context.Context) (fencepost.Secret, error) { return fencepost.Secret{}, nil },
		}
		change(&c)
		if _, err := forge.New(c, header); !errors.Is(err, fencepost.ErrMalformed) && !errors.Is(err, fencepost.ErrZeroValue) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
