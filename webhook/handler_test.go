package webhook_test

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/webhook"
)

// clock is a Now that stands still.
func clock() time.Time { return now }

func rule(signed fencepost.SignedTimeRule) fencepost.RouteRule {
	return fencepost.RouteRule{Route: "docs", TrustSet: "acme", SignedTime: signed}
}

func TestNewHandlerRefuses(t *testing.T) {
	t.Parallel()
	next := func(http.ResponseWriter, *http.Request, webhook.Delivery) {}
	good := webhook.Options{Rule: rule(fencepost.SignedTimeNone), Verifier: webhook.Decoy{}, Now: clock}
	with := func(change func(*webhook.Options)) webhook.Options {
		o := good
		change(&o)
		return o
	}
	if _, err := webhook.NewHandler(good, next); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		options webhook.Options
		next    webhook.Receiver
		want    error
	}{
		"no route":            {with(func(o *webhook.Options) { o.Rule.Route = "" }), next, fencepost.ErrZeroValue},
		"no trust set":        {with(func(o *webhook.Options) { o.Rule.TrustSet = "" }), next, fencepost.ErrZeroValue},
		"no signed-time rule": {with(func(o *webhook.Options) { o.Rule.SignedTime = 0 }), next, fencepost.ErrZeroValue},
		"no verifier":         {with(func(o *webhook.Options) { o.Verifier = nil }), next, fencepost.ErrZeroValue},
		"no clock":            {with(func(o *webhook.Options) { o.Now = nil }), next, fencepost.ErrZeroValue},
		"no receiver":         {good, nil, fencepost.ErrZeroValue},
		"negative body":       {with(func(o *webhook.Options) { o.MaxBody = -1 }), next, fencepost.ErrMalformed},
		"window out of range": {with(func(o *webhook.Options) { o.Rule.Window.MaxQueueAge = 1 }), next, fencepost.ErrMalformed},
	} {
		if _, err := webhook.NewHandler(test.options, test.next); !errors.Is(err, test.want) {
			t.Errorf("%s: err = %v, want %v", name, err, test.want)
		}
	}
}

func TestHandlerAnswers(t *testing.T) {
	t.Parallel()
	const body = `{"a":1}`
	keys := ring(t, webhook.Anchor{ID: "a"})
	dead := ring(t, webhook.Anchor{ID: "a"})
	dead.Zero()
	github := webhook.GitHub{Keys: keys}
	standard := webhook.StandardWebhooks{Keys: keys}
	signed := func(s interface {
		Sign(webhook.Message) ([]fencepost.Header, error)
	}, at time.Time) http.Header {
		pairs, err := s.Sign(webhook.Message{Body: []byte(body), ID: "msg_1", At: at})
		if err != nil {
			t.Fatal(err)
		}
		h := http.Header{"Content-Type": {"application/json"}}
		for _, p := range pairs {
			h.Add(p.Name, p.Value)
		}
		return h
	}
	type request struct {
		method string
		header http.Header
		body   string
		chunks bool
	}
	good := request{http.MethodPost, signed(github, now), body, false}
	with := func(change func(*request)) request {
		r := good
		r.header = r.header.Clone()
		change(&r)
		return r
	}
	contentType := func(values ...string) request {
		return with(func(r *request) { r.header["Content-Type"] = values })
	}
	none, required := rule(fencepost.SignedTimeNone), rule(fencepost.SignedTimeRequired)
	tests := map[string]struct {
		verifier fencepost.Verifier
		rule     fencepost.RouteRule
		request  request
		status   int
		reason   fencepost.Reason
	}{
		"signed":                  {github, none, good, 200, ""},
		"signed, of no length":    {github, none, with(func(r *request) { r.chunks = true }), 200, ""},
		"signed, charset":         {github, none, contentType("Application/JSON; charset=UTF-8"), 200, ""},
		"signed, quoted charset":  {github, none, contentType(`application/json;charset="utf-8"`), 200, ""},
		"GET":                     {github, none, with(func(r *request) { r.method = http.MethodGet }), 405, fencepost.ReasonMethod},
		"many headers":            {github, none, with(func(r *request) { r.header["X"] = make([]string, 129) }), 431, fencepost.ReasonHeaders},
		"large headers":           {github, none, with(func(r *request) { r.header.Set("X", strings.Repeat("x", 64<<10)) }), 431, fencepost.ReasonHeaders},
		"no media type":           {github, none, contentType(), 415, fencepost.ReasonMediaType},
		"two media types":         {github, none, contentType("application/json", "application/json"), 415, fencepost.ReasonMediaType},
		"form":                    {github, none, contentType("application/x-www-form-urlencoded"), 415, fencepost.ReasonMediaType},
		"another charset":         {github, none, contentType("application/json; charset=latin1"), 415, fencepost.ReasonMediaType},
		"another parameter":       {github, none, contentType("application/json; v=1"), 415, fencepost.ReasonMediaType},
		"two parameters":          {github, none, contentType("application/json; charset=utf-8; v=1"), 415, fencepost.ReasonMediaType},
		"compressed":              {github, none, with(func(r *request) { r.header.Set("Content-Encoding", "gzip") }), 415, fencepost.ReasonMediaType},
		"body too large":          {github, none, with(func(r *request) { r.body = strings.Repeat("x", 101) }), 413, fencepost.ReasonTooLarge},
		"too large, of no length": {github, none, with(func(r *request) { r.body, r.chunks = strings.Repeat("x", 101), true }), 413, fencepost.ReasonTooLarge},
		"largest body":            {github, none, with(func(r *request) { r.body = strings.Repeat("x", 100) }), 401, fencepost.ReasonUnauthenticated},
		"another body":            {github, none, with(func(r *request) { r.body += " " }), 401, fencepost.ReasonUnauthenticated},
		"not signed":              {github, none, with(func(r *request) { r.header.Del("X-Hub-Signature-256") }), 401, fencepost.ReasonUnauthenticated},
		"zeroed keys":             {webhook.GitHub{Keys: dead}, none, good, 503, fencepost.ReasonUnavailable},
		"signed time":             {standard, required, with(func(r *request) { r.header = signed(standard, now) }), 200, ""},
		"old signed time":         {standard, required, with(func(r *request) { r.header = signed(standard, now.Add(-6*time.Minute)) }), 401, fencepost.ReasonUnauthenticated},
		"signed time unwanted":    {standard, none, with(func(r *request) { r.header = signed(standard, now) }), 401, fencepost.ReasonUnauthenticated},
		"signed time wanted":      {github, required, good, 401, fencepost.ReasonUnauthenticated},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var got *webhook.Delivery
			h, err := webhook.NewHandler(webhook.Options{Rule: test.rule, Verifier: test.verifier, MaxBody: 100, Now: clock},
				func(_ http.ResponseWriter, _ *http.Request, d webhook.Delivery) { got = &d })
			if err != nil {
				t.Fatal(err)
			}
			r := httptest.NewRequest(test.request.method, "/anywhere", strings.NewReader(test.request.body))
			r.Header = test.request.header
			if test.request.chunks {
				r.ContentLength, r.Body = -1, io.NopCloser(io.MultiReader(strings.NewReader(test.request.body)))
			}
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			if w.Code != test.status {
				t.Fatalf("status %d, want %d: %s", w.Code, test.status, w.Body)
			}
			if test.status == 200 {
				if got == nil || string(got.Body) != test.request.body || !got.Valid() || got.Route() != "docs" || got.Received() != now {
					t.Errorf("delivery %+v", got)
				}
				return
			}
			if got != nil {
				t.Error("the receiver saw a refused request")
			}
			want := `{"outcome":"rejected","reason":"` + string(test.reason) + `","delivery":""}` + "\n"
			if w.Body.String() != want || w.Header().Get("Content-Type") != "application/json" ||
				w.Header().Get("Cache-Control") != "private, no-store" {
				t.Errorf("%q, %v", w.Body, w.Header())
			}
			if allow := w.Header().Get("Allow"); (allow == http.MethodPost) != (test.status == 405) {
				t.Errorf("Allow: %q", allow)
			}
		})
	}
}

func TestHandlerAbortsWhenTheClientBreaksOff(t *testing.T) {
	t.Parallel()
	h, err := webhook.NewHandler(webhook.Options{Rule: rule(fencepost.SignedTimeNone), Verifier: webhook.Decoy{}, Now: clock},
		func(http.ResponseWriter, *http.Request, webhook.Delivery) { t.Error("the receiver saw half a request") })
	if err != nil {
		t.Fatal(err)
	}
	r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader("half"))
	r.ContentLength = 8
	r.Header.Set("Content-Type", "application/json")
	defer func() {
		if got := recover(); got != http.ErrAbortHandler {
			t.Errorf("recovered %v, want http.ErrAbortHandler", got)
		}
	}()
	h.ServeHTTP(httptest.NewRecorder(), r)
}

func TestRequestHeadersAreAllThatWasReceived(t *testing.T) {
	t.Parallel()
	var got []fencepost.Header
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		got = webhook.RequestHeaders(r).All()
	}))
	defer server.Close()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL, io.MultiReader(bytes.NewReader([]byte("{}"))))
	if err != nil {
		t.Fatal(err)
	}
	r.Host = "hooks.example"
	r.Header = http.Header{"X-Twice": {"b", "a"}, "User-Agent": {"test"}, "Accept-Encoding": {"identity"}}
	r.Trailer = http.Header{"X-Late": nil, "X-Early": nil}
	response, err := server.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	if err := response.Body.Close(); err != nil {
		t.Error(err)
	}
	want := []fencepost.Header{
		{Name: "accept-encoding", Value: "identity"}, {Name: "host", Value: "hooks.example"},
		{Name: "trailer", Value: "X-Early"}, {Name: "trailer", Value: "X-Late"},
		{Name: "transfer-encoding", Value: "chunked"}, {Name: "user-agent", Value: "test"},
		{Name: "x-twice", Value: "b"}, {Name: "x-twice", Value: "a"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
