package ingress_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/ingress"
	"github.com/fencepost/fencepost/webhook"
)

// steps are what can be wrong with a request, in the order in which it is
// looked at (DESIGN §4). What a later step does to a request must not undo
// an earlier one.
var steps = []struct {
	name   string
	status int
	reason fencepost.Reason
	spoil  func(*world, *request)
}{
	{"method", 405, fencepost.ReasonMethod, func(_ *world, r *request) { r.method = http.MethodPut }},
	{"headers", 431, fencepost.ReasonHeaders, func(_ *world, r *request) { r.header["X"] = make([]string, 30) }},
	{"media type", 415, fencepost.ReasonMediaType, func(_ *world, r *request) { r.header.Set("Content-Type", "text/plain") }},
	{"size", 413, fencepost.ReasonTooLarge, func(_ *world, r *request) { r.body += strings.Repeat(" ", 1000) }},
	{"signature", 401, fencepost.ReasonUnauthenticated, func(_ *world, r *request) {
		r.header.Set("X-Hub-Signature-256", "sha256="+strings.Repeat("0", 64))
	}},
	{"json", 400, fencepost.ReasonMalformed, nil},
	{"repository", 403, fencepost.ReasonUnauthorized, nil},
	{"event", 200, fencepost.ReasonEventNotHandled, func(_ *world, r *request) { r.header.Set("X-GitHub-Event", "push") }},
	{"record", 503, fencepost.ReasonFull, func(w *world, _ *request) {
		w.recorder.answer = func() (ingress.Recording, error) {
			return 0, &fencepost.Error{Op: "test.record", Reason: fencepost.ReasonFull}
		}
	}},
}

// Of any two things that are wrong, the answer is to the one that comes first
// in DESIGN §4, and nothing is recorded.
func TestTheFirstFaultIsAnswered(t *testing.T) {
	t.Parallel()
	bodies := map[string]string{"json": `{"repository":{"id":1},"a":1,"a":2}`, "repository": `{"repository":{"id":2}}`}
	for i, first := range steps {
		for _, second := range steps[i:] {
			t.Run(first.name+" before "+second.name, func(t *testing.T) {
				t.Parallel()
				w := newWorld(t, ingress.Config{MaxBody: 1000, MaxHeaders: 20}, fixedClock)
				body := goodBody
				for _, name := range []string{second.name, first.name} {
					if b, ok := bodies[name]; ok {
						body = b
					}
				}
				r := w.docs(t, body)
				for _, step := range []func(*world, *request){first.spoil, second.spoil} {
					if step != nil {
						step(w, r)
					}
				}
				rec := w.send(t, r)
				if got := read(t, rec); rec.Code != first.status || got.Reason != first.reason {
					t.Errorf("status %d, reason %q; want %d, %q", rec.Code, got.Reason, first.status, first.reason)
				}
				if first.name != "record" && w.recorder.seen != 0 {
					t.Error("the recorder was asked")
				}
			})
		}
	}
}

// DESIGN §2, invariant 1: nothing of a body is parsed before its signature
// verified over the exact bytes.
func TestNothingIsParsedBeforeItIsAuthentic(t *testing.T) {
	t.Parallel()
	w := newWorld(t, ingress.Config{}, fixedClock)
	for _, body := range []string{`{"repository":{"id":667}}`, `{`, "\xff", `{"repository":{"id":666}}`} {
		r := w.docs(t, body)
		r.body += " "
		// A policy that looked would panic, fail or say malformed.
		if rec := w.send(t, r); rec.Code != 401 {
			t.Errorf("%q: status %d, want 401", body, rec.Code)
		}
	}
}

// Receipt time is read after the exact body, before any key is tried.
func TestReceiptTimeIsOfTheWholeBody(t *testing.T) {
	t.Parallel()
	now := then.Add(-time.Second)
	w := newWorld(t, ingress.Config{}, func() time.Time { return now })
	r := w.docs(t, goodBody).http(t.Context())
	r.Body = bodyFunc(func(p []byte) (int, error) {
		now = then.Add(time.Second)
		return strings.NewReader(goodBody).Read(p)
	})
	w.ServeHTTP(discardingWriter{}, r)
	for _, k := range w.recorder.kept {
		if k.delivery.Received() != then.Add(time.Second) {
			t.Errorf("received %v, want after the body", k.delivery.Received())
		}
		return
	}
	t.Error("nothing was recorded")
}

type bodyFunc func(p []byte) (int, error)

func (f bodyFunc) Read(p []byte) (int, error) { return f(p) }
func (f bodyFunc) Close() error               { return nil }

// All that can't be authenticated gets one answer at one price: one call of a
// verifier and as many MACs, whatever it was (DESIGN §4).
func TestEveryRefusalIsTheSame(t *testing.T) {
	t.Parallel()
	w := newWorld(t, ingress.Config{}, fixedClock)
	var price spent
	w.Swap(w.table(t, func(v fencepost.Verifier) fencepost.Verifier { return counted{&price, v} }))
	docs := func(change func(*request)) *request {
		r := w.docs(t, goodBody)
		change(r)
		return r
	}
	late := keyring(t, webhook.Anchor{ID: "b"}) // whose window is over in the world
	standard := webhook.StandardWebhooks{Keys: w.keys}
	requests := map[string]*request{
		"no route":             docs(func(r *request) { r.target = "/hooks/nothing" }),
		"no route's name":      docs(func(r *request) { r.target = "/hooks/" }),
		"below a route":        docs(func(r *request) { r.target = "/hooks/docs/" }),
		"beside the hooks":     docs(func(r *request) { r.target = "/" }),
		"escaped":              docs(func(r *request) { r.target = "/hooks/d%6fcs" }),
		"case of a route":      docs(func(r *request) { r.target = "/hooks/Docs" }),
		"dots":                 docs(func(r *request) { r.target = "/hooks/../hooks/docs/." }),
		"unknown's own name":   docs(func(r *request) { r.target = "/hooks/%3F" }),
		"wrong signature":      docs(func(r *request) { r.header.Set("X-Hub-Signature-256", "sha256="+strings.Repeat("0", 64)) }),
		"no signature":         docs(func(r *request) { r.header.Del("X-Hub-Signature-256") }),
		"malformed signature":  docs(func(r *request) { r.header.Set("X-Hub-Signature-256", "sha1=00") }),
		"two signatures":       docs(func(r *request) { r.header.Add("X-Hub-Signature-256", "x") }),
		"two events":           docs(func(r *request) { r.header.Add("X-GitHub-Event", "push") }),
		"key outside window":   w.signed(t, "/hooks/docs", goodBody, webhook.GitHub{Keys: late}, then),
		"signed by nobody":     w.signed(t, "/hooks/docs", goodBody, webhook.GitHub{Keys: keyring(t, webhook.Anchor{ID: "x"})}, then),
		"another scheme":       w.signed(t, "/hooks/docs", goodBody, standard, then),
		"scheme of another":    w.signed(t, "/hooks/lab", goodBody, webhook.GitHub{Keys: w.keys}, then),
		"wrong, with id":       w.signed(t, "/hooks/lab", goodBody, webhook.StandardWebhooks{Keys: keyring(t, webhook.Anchor{ID: "x"})}, then),
		"signed long ago":      w.signed(t, "/hooks/lab", goodBody, standard, then.Add(-time.Hour)),
		"signed in the future": w.signed(t, "/hooks/lab", goodBody, standard, then.Add(time.Hour)),
	}
	var body string
	var header http.Header
	for name, r := range requests {
		rec := w.send(t, r)
		read(t, rec)
		if body == "" {
			body, header = rec.Body.String(), rec.Header()
		}
		if rec.Code != 401 || rec.Body.String() != body || !sameHeader(rec.Header(), header) {
			t.Errorf("%s: status %d, %q, %v; others have 401, %q, %v", name, rec.Code, rec.Body, rec.Header(), body, header)
		}
		calls, macs := price.take()
		// What was accepted by its signature was no refusal of the verifier's:
		// that it cost the same is a test of package webhook.
		if signedTime := strings.HasPrefix(name, "signed long") || strings.HasPrefix(name, "signed in"); calls != 1 || (macs != work && !signedTime) {
			t.Errorf("%s: %d calls of a verifier and %d MACs, want 1 and %d", name, calls, macs, work)
		}
	}
	if w.recorder.seen != 0 {
		t.Error("the recorder was asked")
	}
}

func sameHeader(a, b http.Header) bool {
	if len(a) != len(b) {
		return false
	}
	for name, values := range a {
		if strings.Join(values, "\x00") != strings.Join(b[name], "\x00") {
			return false
		}
	}
	return true
}
