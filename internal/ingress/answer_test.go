package ingress_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/ingress"
	"github.com/fencepost/fencepost/webhook"
)

// The rows of DESIGN §4's table of responses.
func TestAnswers(t *testing.T) {
	t.Parallel()
	const id = "dlv_"
	recording := func(r ingress.Recording, err error) func(*world) {
		return func(w *world) {
			w.recorder.answer = func() (ingress.Recording, error) { return r, err }
		}
	}
	reasoned := func(reason fencepost.Reason) error { return &fencepost.Error{Op: "test.record", Reason: reason} }
	body := func(body string) func(*testing.T, *world) *request {
		return func(t *testing.T, w *world) *request { return w.docs(t, body) }
	}
	change := func(change func(*request)) func(*testing.T, *world) *request {
		return func(t *testing.T, w *world) *request {
			r := w.docs(t, goodBody)
			change(r)
			return r
		}
	}
	standard := func(change func(*request)) func(*testing.T, *world) *request {
		return func(t *testing.T, w *world) *request {
			r := w.signed(t, "/hooks/lab", goodBody, webhook.StandardWebhooks{Keys: w.keys}, then)
			if change != nil {
				change(r)
			}
			return r
		}
	}
	twice := func(r func(*testing.T, *world) *request) func(*testing.T, *world) *request {
		return func(t *testing.T, w *world) *request {
			w.send(t, r(t, w))
			return r(t, w)
		}
	}
	tests := map[string]struct {
		request func(*testing.T, *world) *request
		prepare func(*world)
		status  int
		want    reply
	}{
		"new work":                 {body(goodBody), nil, 202, reply{"accepted", "", id}},
		"new work, GitLab":         {standard(nil), nil, 200, reply{"accepted", "", id}},
		"recorded already":         {twice(body(goodBody)), nil, 200, reply{"replayed", "", id}},
		"recorded already, GitLab": {twice(standard(nil)), nil, 200, reply{"replayed", "", id}},
		"one follow-up pending":    {body(goodBody), recording(ingress.Coalesced, nil), 200, reply{"coalesced", "", id}},
		"with charset":             {change(func(r *request) { r.header.Set("Content-Type", "application/json; charset=utf-8") }), nil, 202, reply{"accepted", "", id}},
		"of no declared length":    {change(func(r *request) { r.chunked = true }), nil, 202, reply{"accepted", "", id}},
		"with a query":             {change(func(r *request) { r.target += "?route=lab" }), nil, 202, reply{"accepted", "", id}},
		"ping":                     {change(func(r *request) { r.header.Set("X-GitHub-Event", "ping") }), nil, 200, reply{"ignored", "event_not_handled", ""}},
		"not an object":            {body(`[]`), nil, 400, reply{"rejected", "malformed", ""}},
		"empty body":               {body(``), nil, 400, reply{"rejected", "malformed", ""}},
		"key twice":                {body(`{"repository":{"id":1,"id":1}}`), nil, 400, reply{"rejected", "malformed", ""}},
		"trailing bytes":           {body(goodBody + "x"), nil, 400, reply{"rejected", "malformed", ""}},
		"needed field missing":     {body(`{"repository":{}}`), nil, 400, reply{"rejected", "malformed", ""}},
		"key in other letter case": {body(`{"repository":{"ID":1}}`), nil, 400, reply{"rejected", "malformed", ""}},
		"wrong signature":          {change(func(r *request) { r.body = strings.Replace(r.body, "7", "8", 1) }), nil, 401, reply{"rejected", "unauthenticated", ""}},
		"no signature":             {change(func(r *request) { r.header.Del("X-Hub-Signature-256") }), nil, 401, reply{"rejected", "unauthenticated", ""}},
		"two signatures": {change(func(r *request) {
			r.header["X-Hub-Signature-256"] = append(r.header["X-Hub-Signature-256"], "sha256=00")
		}), nil, 401, reply{"rejected", "unauthenticated", ""}},
		"two events":       {change(func(r *request) { r.header.Add("X-GitHub-Event", "pull_request") }), nil, 401, reply{"rejected", "unauthenticated", ""}},
		"two delivery ids": {change(func(r *request) { r.header.Add("X-GitHub-Delivery", "5b2a") }), nil, 401, reply{"rejected", "unauthenticated", ""}},
		"no route":         {change(func(r *request) { r.target = "/hooks/nothing" }), nil, 401, reply{"rejected", "unauthenticated", ""}},
		"another route":    {change(func(r *request) { r.target = "/hooks/lab" }), nil, 401, reply{"rejected", "unauthenticated", ""}},
		"no hook at all":   {change(func(r *request) { r.target = "/healthz" }), nil, 401, reply{"rejected", "unauthenticated", ""}},
		"old signed time": {func(t *testing.T, w *world) *request {
			return w.signed(t, "/hooks/lab", goodBody, webhook.StandardWebhooks{Keys: w.keys}, then.Add(-6*time.Minute))
		}, nil, 401, reply{"rejected", "unauthenticated", ""}},
		"malformed and wrongly signed": {change(func(r *request) { r.body = `{"a":1,"a":1}` }), nil, 401, reply{"rejected", "unauthenticated", ""}},
		"another repository, GitLab": {func(t *testing.T, w *world) *request {
			return w.signed(t, "/hooks/lab", `{"repository":{"id":2}}`, webhook.StandardWebhooks{Keys: w.keys}, then)
		}, nil, 200, reply{"ignored", "unauthorized", ""}},
		"another repository":            {body(`{"repository":{"id":2}}`), nil, 403, reply{"rejected", "unauthorized", ""}},
		"GET":                           {change(func(r *request) { r.method = http.MethodGet }), nil, 405, reply{"rejected", "method", ""}},
		"HEAD":                          {change(func(r *request) { r.method = http.MethodHead }), nil, 405, reply{"rejected", "method", ""}},
		"OPTIONS of no route":           {change(func(r *request) { r.method, r.target = http.MethodOptions, "*" }), nil, 405, reply{"rejected", "method", ""}},
		"known delivery, other content": {body(goodBody), recording(ingress.Conflict, nil), 409, reply{"rejected", "delivery_conflict", id}},
		"body over the cap":             {body(goodBody + strings.Repeat(" ", 1000)), nil, 413, reply{"rejected", "too_large", ""}},
		"body over the cap, no length": {func(t *testing.T, w *world) *request {
			r := w.docs(t, goodBody+strings.Repeat(" ", 1000))
			r.chunked = true
			return r
		}, nil, 413, reply{"rejected", "too_large", ""}},
		"body at the cap": {body(goodBody + strings.Repeat(" ", 1000-len(goodBody))), nil, 202, reply{"accepted", "", id}},
		"body at the cap, no length": {func(t *testing.T, w *world) *request {
			r := w.docs(t, goodBody+strings.Repeat(" ", 1000-len(goodBody)))
			r.chunked = true
			return r
		}, nil, 202, reply{"accepted", "", id}},
		"form":                         {change(func(r *request) { r.header.Set("Content-Type", "application/x-www-form-urlencoded") }), nil, 415, reply{"rejected", "media_type", ""}},
		"no media type":                {change(func(r *request) { r.header.Del("Content-Type") }), nil, 415, reply{"rejected", "media_type", ""}},
		"compressed":                   {change(func(r *request) { r.header.Set("Content-Encoding", "gzip") }), nil, 415, reply{"rejected", "media_type", ""}},
		"many headers":                 {change(func(r *request) { r.header["X"] = make([]string, 20) }), nil, 431, reply{"rejected", "headers", ""}},
		"large headers":                {change(func(r *request) { r.header.Set("X", strings.Repeat("x", 2000)) }), nil, 431, reply{"rejected", "headers", ""}},
		"trailers":                     {change(func(r *request) { r.chunked, r.trailer = true, http.Header{"X-Hub-Signature-256": nil} }), nil, 431, reply{"rejected", "headers", ""}},
		"inbox full":                   {body(goodBody), recording(0, reasoned(fencepost.ReasonFull)), 503, reply{"rejected", "full", ""}},
		"inbox broken":                 {body(goodBody), recording(0, reasoned(fencepost.ReasonPoisoned)), 503, reply{"rejected", "unavailable", ""}},
		"inbox fails without a reason": {body(goodBody), recording(0, errors.New("canary-inbox")), 503, reply{"rejected", "unavailable", ""}},
		"inbox says nothing":           {body(goodBody), recording(0, nil), 503, reply{"rejected", "unavailable", ""}},
		"policy fails":                 {body(`{"repository":{"id":666}}`), nil, 503, reply{"rejected", "unavailable", ""}},
		"policy panics":                {body(`{"repository":{"id":667}}`), nil, 503, reply{"rejected", "unavailable", ""}},
		"keys zeroed under a route":    {body(goodBody), nil, 503, reply{"rejected", "unavailable", ""}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, ingress.Config{MaxBody: 1000, MaxHeaders: 20, MaxHeaderBytes: 2000}, fixedClock)
			if test.prepare != nil {
				test.prepare(w)
			}
			r := test.request(t, w)
			if strings.HasPrefix(name, "keys zeroed") {
				w.keys.Zero()
			}
			before := len(w.journal.answers())
			rec := w.send(t, r)
			got := read(t, rec)
			if test.want.Delivery == id {
				if _, err := fencepost.ParseDeliveryID(string(got.Delivery)); err != nil {
					t.Errorf("delivery %q: %v", got.Delivery, err)
				}
				got.Delivery = id
			}
			if diff := cmp.Diff(test.want, got); rec.Code != test.status || diff != "" {
				t.Fatalf("status %d, want %d; answer (-want +got):\n%s", rec.Code, test.status, diff)
			}
			said := w.journal.answers()[before:]
			if len(said) != 1 || said[0].Status != test.status || said[0].Outcome != got.Outcome || said[0].Reason != got.Reason {
				t.Errorf("the observer was told %+v", said)
			}
			if kept := w.recorder.recorded(); test.status >= 400 && kept != 0 {
				t.Errorf("%d requests were recorded", kept)
			}
			if s := w.Stats(); s != (ingress.Stats{}) {
				t.Errorf("something is left over: %+v", s)
			}
		})
	}
}

// A known message id with another body is a conflict, in the scheme that has
// message ids.
func TestConflictOfMessageIDs(t *testing.T) {
	t.Parallel()
	w := newWorld(t, ingress.Config{}, fixedClock)
	standard := webhook.StandardWebhooks{Keys: w.keys}
	first := read(t, w.send(t, w.signed(t, "/hooks/lab", goodBody, standard, then)))
	rec := w.send(t, w.signed(t, "/hooks/lab", goodBody+" ", standard, then))
	if got := read(t, rec); rec.Code != 409 || got != (reply{"rejected", "delivery_conflict", first.Delivery}) {
		t.Errorf("status %d, %+v", rec.Code, got)
	}
}

func TestReplayHasTheIDOfTheFirst(t *testing.T) {
	t.Parallel()
	w := newWorld(t, ingress.Config{}, fixedClock)
	first := read(t, w.send(t, w.docs(t, goodBody)))
	again := w.docs(t, goodBody)
	// Nothing of this is signed, so it is no other delivery.
	again.header.Set("X-GitHub-Delivery", "another")
	if got := read(t, w.send(t, again)); got != (reply{"replayed", "", first.Delivery}) {
		t.Errorf("got %+v, want replayed as %s", got, first.Delivery)
	}
}

func TestRecordHoldsTheNeededHeadersAlone(t *testing.T) {
	t.Parallel()
	w := newWorld(t, ingress.Config{}, fixedClock)
	r := w.docs(t, goodBody)
	r.header.Set("Authorization", "canary")
	r.header.Set("Cookie", "canary")
	w.send(t, r)
	if w.recorder.recorded() != 1 {
		t.Fatalf("%d recorded", w.recorder.recorded())
	}
	for _, k := range w.recorder.kept {
		want := []fencepost.Header{
			{Name: "x-github-delivery", Value: "5b2a"}, {Name: "x-github-event", Value: "pull_request"},
			{Name: "x-hub-signature-256", Value: r.header.Get("X-Hub-Signature-256")},
		}
		if diff := cmp.Diff(want, k.headers); diff != "" || k.body != goodBody {
			t.Errorf("body %q, headers (-want +got):\n%s", k.body, diff)
		}
		if k.delivery.Received() != then || k.delivery.Route() != "docs" || k.delivery.Anchor() != "a" {
			t.Errorf("delivery %+v", k.delivery)
		}
	}
	said := w.journal.answers()
	if len(said) != 1 || said[0].Route != "docs" || said[0].Anchor != "a" || said[0].Body != len(goodBody) {
		t.Errorf("the observer was told %+v", said)
	}
}

// The client may be gone, and what it sent is recorded all the same; but not
// for ever.
func TestRecordingOutlivesTheClient(t *testing.T) {
	t.Parallel()
	w := newWorld(t, ingress.Config{}, fixedClock)
	ctx, gone := context.WithCancel(t.Context())
	w.recorder.before = func(ctx context.Context) {
		gone()
		if ctx.Err() != nil {
			t.Errorf("the recording ended with its client: %v", ctx.Err())
		}
		if _, bounded := ctx.Deadline(); !bounded {
			t.Error("the recording has no end")
		}
	}
	r := w.docs(t, goodBody).http(ctx)
	w.ServeHTTP(discardingWriter{}, r)
	if w.recorder.recorded() != 1 {
		t.Errorf("%d recorded, want 1", w.recorder.recorded())
	}
}

// discardingWriter is a client that is gone.
type discardingWriter struct{}

func (discardingWriter) Header() http.Header       { return http.Header{} }
func (discardingWriter) Write([]byte) (int, error) { return 0, errors.New("gone") }
func (discardingWriter) WriteHeader(int)           {}
