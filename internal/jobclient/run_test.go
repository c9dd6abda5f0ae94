package jobclient_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/jobclient"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	delivery = "dlv_aaaaaaaaaaaaaaaaaaaaaaaaaa"
	canary   = "signature-canary-signature-canary-signature"
	token    = "eyJhbGciOiJSUzI1NiJ9.eyJqdGkiOiIxIn0." + canary
	secret   = "poll-secret-canary-0123456789-poll-secret-x"

	accepted = `{"outcome":"accepted","reason":"","delivery":"` + delivery + `","poll":"` + secret + `"}`
	replayed = `{"outcome":"replayed","reason":"","delivery":"` + delivery + `","poll":"` + secret + `"}`
	waiting  = `{"outcome":"waiting","reason":"","delivery":"` + delivery + `","conclusion":"","title":"","summary":""}`
	passed   = `{"outcome":"result","reason":"","delivery":"` + delivery + `","conclusion":"success","title":"2 checks","summary":"all well"}`
	blocked  = `{"outcome":"result","reason":"","delivery":"` + delivery + `","conclusion":"failure","title":"1 of 2","summary":"a link is dead"}`
	ended    = `{"outcome":"ended","reason":"superseded","delivery":"` + delivery + `","conclusion":"","title":"","summary":""}`
)

func rejected(reason string) string {
	return `{"outcome":"rejected","reason":"` + reason + `","delivery":""}`
}

// A step is one answer of a controller.
type step struct {
	status int
	body   string
	header http.Header
	// lost is a request whose answer never comes, though it was taken.
	lost bool
	// after is how long the answer takes.
	after time.Duration
}

// A controller answers requests in order; its last answers are repeated. It is
// a transport, so that a bubble's time can be its own.
type controller struct {
	t            testing.TB
	posts, polls []step

	mu sync.Mutex
	// Guarded by mu:
	posted, polled int
	at             []time.Time
}

func (c *controller) RoundTrip(r *http.Request) (*http.Response, error) {
	c.mu.Lock()
	steps, n := c.posts, &c.posted
	want := "Bearer " + token
	if r.Method == http.MethodGet {
		steps, n, want = c.polls, &c.polled, "Bearer "+secret
	}
	*n++
	c.at = append(c.at, time.Now())
	if len(steps) == 0 {
		c.mu.Unlock()
		c.t.Errorf("unexpected %s", r.Method)
		return nil, errors.New("unexpected")
	}
	s := steps[min(*n, len(steps))-1]
	c.mu.Unlock()
	c.check(r, want)
	if s.after > 0 {
		select {
		case <-time.After(s.after):
		case <-r.Context().Done():
			return nil, context.Cause(r.Context())
		}
	}
	if s.lost {
		return nil, errors.New("connection reset " + token)
	}
	rec := httptest.NewRecorder()
	for name, values := range s.header {
		rec.Header()[name] = values
	}
	rec.WriteHeader(s.status)
	_, _ = rec.WriteString(s.body)
	return rec.Result(), nil
}

// check holds what every request has.
func (c *controller) check(r *http.Request, authorization string) {
	if got := r.Header.Values("Authorization"); len(got) != 1 || got[0] != authorization {
		c.t.Errorf("%s is sent with another secret than its own", r.Method)
	}
	switch r.Method {
	case http.MethodPost:
		body, err := io.ReadAll(r.Body)
		if err != nil || string(body) != `{"merge_request":7}` || r.URL.String() != "https://controller.example/jobs/docs" || r.Header.Get("Content-Type") != "application/json" {
			c.t.Errorf("sent %q to %s as %q, %v", body, r.URL, r.Header.Get("Content-Type"), err)
		}
	case http.MethodGet:
		if r.Body != nil || r.URL.String() != "https://controller.example/jobs/docs/"+delivery {
			c.t.Errorf("asked %s with body %v", r.URL, r.Body != nil)
		}
	default:
		c.t.Errorf("method %s", r.Method)
	}
}

func one(status int, body string) []step { return []step{{status: status, body: body}} }

// said are the lines of a run.
type said struct {
	mu    sync.Mutex
	lines []string
}

func (s *said) say(line string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lines = append(s.lines, line)
}

func (s *said) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(s.lines, "\n")
}

func config(c http.RoundTripper, s *said) jobclient.Config {
	return jobclient.Config{
		Controller: "https://controller.example", Route: "docs", Token: fencepost.NewSecret([]byte(token)), MergeRequest: 7,
		Timeout: 30 * time.Minute, Now: time.Now, Say: s.say, Transport: c,
	}
}

// quiet fails if any text holds a secret or would not stay on its line.
func quiet(t *testing.T, texts ...string) {
	t.Helper()
	for _, text := range texts {
		for _, leak := range []string{canary, secret, "\x1b", "\r", "\u202e"} {
			if strings.Contains(text, leak) {
				t.Errorf("%q is told: %q", leak, text)
			}
		}
	}
}

// outcome is how a run came out, for comparison.
func outcome(report jobclient.Report, err error) string {
	var fault *jobclient.Error
	switch {
	case err == nil && report.Passed():
		return "pass"
	case err == nil:
		return strings.TrimSpace(report.Outcome + " " + report.Conclusion + string(report.Reason))
	case errors.As(err, &fault):
		return fault.What
	}
	return err.Error()
}

// Of all answers that there may be, one alone is a pass.
func TestEveryAnswerHasItsEnd(t *testing.T) {
	t.Parallel()
	const foreign = "what answers there is no controller"
	result := func(old, replacement string) []step { return one(200, strings.Replace(passed, old, replacement, 1)) }
	for name, tc := range map[string]struct {
		posts, polls []step
		want         string
	}{
		"a pass":         {one(202, accepted), one(200, passed), "pass"},
		"a block":        {one(202, accepted), one(200, blocked), "result failure"},
		"an end":         {one(202, accepted), one(200, ended), "ended superseded"},
		"a pass, waited": {one(202, accepted), []step{{status: 200, body: waiting}, {status: 200, body: waiting}, {status: 200, body: passed}}, "pass"},
		"sent twice":     {one(200, replayed), one(200, passed), "pass"},

		"token refused":        {one(401, rejected("unauthenticated")), nil, "the job's token is not accepted (401)"},
		"another project":      {one(403, rejected("unauthorized")), nil, "the job is not of the project that the gate names (403)"},
		"another hint":         {one(409, `{"outcome":"rejected","reason":"delivery_conflict","delivery":"`+delivery+`"}`), nil, "this token was sent with another merge request before (409)"},
		"malformed":            {one(400, rejected("malformed")), nil, "the token has a claim that the gate can't use, or the hint is malformed (400)"},
		"another pipeline":     {one(200, `{"outcome":"ignored","reason":"event_not_handled","delivery":""}`), nil, "the gate does not handle this job's pipeline"},
		"too large":            {one(413, rejected("too_large")), nil, "the request is refused (413 too_large)"},
		"headers":              {one(431, rejected("headers")), nil, "the request is refused (431 headers)"},
		"no such page":         {one(404, "<html>"), nil, foreign},
		"another server":       {one(200, "<html>welcome</html>"), nil, foreign},
		"nothing":              {one(204, ""), nil, foreign},
		"not JSON alone":       {one(202, accepted+accepted), nil, foreign},
		"unknown member":       {one(202, strings.Replace(accepted, "{", `{"extra":1,`, 1)), nil, foreign},
		"member twice":         {one(202, strings.Replace(accepted, "{", `{"outcome":"accepted",`, 1)), nil, foreign},
		"no poll secret":       {one(202, `{"outcome":"accepted","reason":"","delivery":"`+delivery+`"}`), nil, foreign},
		"short poll secret":    {one(202, strings.Replace(accepted, secret, secret[1:], 1)), nil, foreign},
		"odd poll secret":      {one(202, strings.Replace(accepted, secret, secret[1:]+" ", 1)), nil, foreign},
		"no delivery":          {one(202, strings.Replace(accepted, delivery, "", 1)), nil, foreign},
		"path for a delivery":  {one(202, strings.Replace(accepted, delivery, "../docs/"+delivery, 1)), nil, foreign},
		"accepted, created":    {one(201, accepted), nil, foreign},
		"coalesced":            {one(200, strings.Replace(accepted, "accepted", "coalesced", 1)), nil, foreign},
		"a pass instead":       {one(200, passed), nil, foreign},
		"large answer":         {one(202, accepted+strings.Repeat(" ", 1<<20)), nil, foreign},
		"redirect":             {[]step{{status: 307, header: http.Header{"Location": {"https://elsewhere.example/"}}}}, nil, "it answers with a redirect, which is never followed"},
		"redirect of the poll": {one(202, accepted), []step{{status: 302, header: http.Header{"Location": {"https://elsewhere.example/"}}, body: passed}}, "it answers with a redirect, which is never followed"},

		"poll refused":              {one(202, accepted), one(401, rejected("unauthenticated")), "the controller does not know its own delivery any more (401)"},
		"poll forbidden":            {one(202, accepted), one(403, rejected("unauthorized")), foreign},
		"poll of another server":    {one(202, accepted), one(200, "<html>"), foreign},
		"poll, large":               {one(202, accepted), one(200, passed+strings.Repeat(" ", 1<<20)), foreign},
		"another delivery's pass":   {one(202, accepted), result(delivery, "dlv_aaaaaaaaaaaaaaaaaaaaaaaaae"), foreign},
		"no delivery's pass":        {one(202, accepted), result(delivery, ""), foreign},
		"a pass with 202":           {one(202, accepted), one(202, passed), foreign},
		"a pass with 401":           {one(202, accepted), one(401, passed), "the controller does not know its own delivery any more (401)"},
		"another conclusion":        {one(202, accepted), result("success", "neutral"), foreign},
		"Success":                   {one(202, accepted), result("success", "Success"), foreign},
		"no conclusion":             {one(202, accepted), result(`"success"`, `""`), foreign},
		"a pass that has a reason":  {one(202, accepted), result(`"reason":""`, `"reason":"superseded"`), foreign},
		"a pass that ended":         {one(202, accepted), result(`"result"`, `"ended"`), foreign},
		"a pass that is waited for": {one(202, accepted), result(`"result"`, `"accepted"`), foreign},
		"an end of no reason":       {one(202, accepted), one(200, strings.Replace(ended, "superseded", "", 1)), "ended"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := &said{}
				report, err := jobclient.Run(t.Context(), config(&controller{t: t, posts: tc.posts, polls: tc.polls}, s))
				if got := outcome(report, err); got != tc.want {
					t.Errorf("%q, want %q", got, tc.want)
				}
				if err != nil {
					if (report != jobclient.Report{}) || jobclient.IsConfig(err) || report.Passed() {
						t.Errorf("report %+v with error %v", report, err)
					}
					if fault, ok := errors.AsType[*jobclient.Error](err); !ok || fault.Where == "" || fault.Mend == "" || strings.Contains(err.Error(), "\n") {
						t.Errorf("the error says not what, where and the mend in one line: %v", err)
					}
					quiet(t, err.Error())
				}
				quiet(t, s.String(), fmt.Sprintf("%+v", report))
			})
		})
	}
}

// What may pass is tried again with growing pauses, and a lost answer is
// repeated with the same token: the controller knows it again.
func TestTroubleIsWaitedOut(t *testing.T) {
	t.Parallel()
	for name, trouble := range map[string]step{
		"full":              {status: 503, body: rejected("full")},
		"draining":          {status: 503, body: rejected("draining")},
		"bad gateway":       {status: 502, body: "<html>"},
		"too many requests": {status: 429},
		"request timeout":   {status: 408},
		"lost answer":       {lost: true},
		"no answer":         {after: time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := &controller{
					t:     t,
					posts: []step{trouble, trouble, trouble, {status: 200, body: replayed}},
					polls: []step{trouble, {status: 200, body: waiting}, trouble, trouble, {status: 200, body: passed}},
				}
				s := &said{}
				report, err := jobclient.Run(t.Context(), config(c, s))
				if got := outcome(report, err); got != "pass" || c.posted != 4 || c.polled != 5 {
					t.Errorf("%s after %d posts and %d polls; want a pass after 4 and 5", got, c.posted, c.polled)
				}
				last := time.Duration(0)
				for i := 1; i < c.posted; i++ {
					pause := c.at[i].Sub(c.at[i-1])
					if trouble.after > 0 {
						pause -= 30 * time.Second
					}
					if pause < time.Second || pause < last*9/10 || pause > 12*time.Second {
						t.Errorf("pause %d is %v, after %v", i, pause, last)
					}
					last = pause
				}
				quiet(t, s.String())
			})
		})
	}
}

func TestRetryAfterIsObeyed(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		value       string
		least, most time.Duration
	}{
		"seconds":      {"90", 90 * time.Second, 108 * time.Second},
		"a date":       {"Sat, 01 Jan 2000 00:02:00 GMT", 119 * time.Second, 145 * time.Second},
		"a past date":  {"Fri, 31 Dec 1999 00:00:00 GMT", time.Second, 2 * time.Second},
		"none":         {"", time.Second, 2 * time.Second},
		"no number":    {"soon", time.Second, 2 * time.Second},
		"less than we": {"0", time.Second, 2 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := &controller{t: t, polls: one(200, passed), posts: []step{
					{status: 503, header: http.Header{"Retry-After": {tc.value}}}, {status: 202, body: accepted},
				}}
				if report, err := jobclient.Run(t.Context(), config(c, &said{})); !report.Passed() {
					t.Fatal(err)
				}
				if pause := c.at[1].Sub(c.at[0]); pause < tc.least || pause > tc.most {
					t.Errorf("paused %v, want %v to %v", pause, tc.least, tc.most)
				}
			})
		})
	}
}

// The token lives for minutes, a run may take longer: what is polled with does
// not expire.
func TestAResultIsFetchedAfterTheTokenHasExpired(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		c := &controller{t: t, posts: []step{{status: 202, body: accepted}, {status: 401, body: rejected("unauthenticated")}}}
		for range 100 {
			c.polls = append(c.polls, step{status: 200, body: waiting})
		}
		c.polls = append(c.polls, step{status: 200, body: passed})
		s := &said{}
		report, err := jobclient.Run(t.Context(), config(c, s))
		if got := outcome(report, err); got != "pass" || c.posted != 1 {
			t.Errorf("%s after %d posts", got, c.posted)
		}
		took := time.Since(began)
		if took < 10*time.Minute || took > 20*time.Minute {
			t.Errorf("100 looks took %v", took)
		}
		if n := strings.Count(s.String(), "still waiting"); n < 9 || n > 20 {
			t.Errorf("said %d times that it waits:\n%s", n, s)
		}
	})
}

func TestATimeoutIsNoPass(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		posts, polls []step
		want         string
	}{
		"no answer ever":    {[]step{{after: time.Hour}}, nil, "no result within 30m0s (at the end: no answer in time)"},
		"never taken":       {one(503, rejected("full")), nil, "no result within 30m0s (at the end: status 503)"},
		"no result":         {one(202, accepted), one(200, waiting), "no result within 30m0s"},
		"down while it ran": {one(202, accepted), []step{{status: 200, body: waiting}, {lost: true}}, "no result within 30m0s (at the end: no connection)"},
		"asked to wait long": {[]step{{status: 503, header: http.Header{"Retry-After": {"999999999"}}}}, nil,
			"no result within 30m0s (at the end: status 503)"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				began, s := time.Now(), &said{}
				c := &controller{t: t, posts: tc.posts, polls: tc.polls}
				report, err := jobclient.Run(t.Context(), config(c, s))
				if got := outcome(report, err); got != tc.want {
					t.Errorf("%q, want %q", got, tc.want)
				}
				if took := time.Since(began); took != 30*time.Minute {
					t.Errorf("took %v, want the timeout", took)
				}
				if n := c.posted + c.polled; n > 300 {
					t.Errorf("%d requests within half an hour", n)
				}
				if n := strings.Count(s.String(), "\n"); n > 40 {
					t.Errorf("%d lines are said:\n%s", n, s)
				}
				quiet(t, err.Error(), s.String())
			})
		})
	}
}

// A signal ends the job at once, whatever it does, and never with a pass.
func TestTheEndOfTheContextIsTheEnd(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]*controller{
		"while sending":         {posts: []step{{after: time.Hour}}},
		"while pausing":         {posts: []step{{status: 503, header: http.Header{"Retry-After": {"900"}}}}},
		"while waiting":         {posts: one(202, accepted), polls: one(200, waiting)},
		"while asking a result": {posts: one(202, accepted), polls: []step{{status: 200, body: passed, after: time.Hour}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c.t = t
				ctx, cancel := context.WithCancel(t.Context())
				time.AfterFunc(25*time.Second, cancel)
				began := time.Now()
				report, err := jobclient.Run(ctx, config(c, &said{}))
				if !errors.Is(err, context.Canceled) || report.Passed() {
					t.Errorf("%+v, %v; want the end of the context", report, err)
				}
				if took := time.Since(began); took != 25*time.Second {
					t.Errorf("took %v, want 25s", took)
				}
			})
		})
	}
}

// What the other side says reaches the log without control characters, and
// without the secrets of the job even if it says them.
func TestWhatIsToldIsClean(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		text := `"\u001b[31mred\u001b[0m\r\n\u0000\u009b\u202eok\u2028\tend ` + token + ` ` + secret + ` ` + canary + `"`
		body := strings.NewReplacer(`"2 checks"`, text, `"all well"`, text).Replace(passed)
		s := &said{}
		report, err := jobclient.Run(t.Context(), config(&controller{t: t, posts: one(202, accepted), polls: one(200, body)}, s))
		if err != nil {
			t.Fatal(err)
		}
		want := jobclient.Report{
			Delivery: delivery, Outcome: "result", Conclusion: "success",
			Title:   "[31mred[0m ok end [redacted] [redacted] [redacted]",
			Summary: "[31mred[0m\nok\tend [redacted] [redacted] [redacted]",
		}
		if diff := cmp.Diff(want, report); diff != "" {
			t.Errorf("report (-want +got):\n%s", diff)
		}
		body = `{"outcome":"rejected","reason":"` + token + ` \u001b[2J ` + canary + `","delivery":""}`
		_, err = jobclient.Run(t.Context(), config(&controller{t: t, posts: one(418, body)}, s))
		if err == nil || !strings.Contains(err.Error(), "[redacted]") {
			t.Errorf("error %v", err)
		}
		quiet(t, fmt.Sprint(err), s.String())
		body = `{"outcome":"ended","reason":"` + secret + `\n\u001b","delivery":"` + delivery + `","conclusion":"","title":"","summary":""}`
		report, err = jobclient.Run(t.Context(), config(&controller{t: t, posts: one(202, accepted), polls: one(200, body)}, s))
		quiet(t, fmt.Sprintf("%+v %v", report, err))
	})
}
