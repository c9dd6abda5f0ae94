package ingress_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/ingress"
	"github.com/fencepost/fencepost/internal/strictjson"
	"github.com/fencepost/fencepost/webhook"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// then is when requests come, by a clock that stands still.
var then = time.Date(2026, 11, 5, 12, 0, 0, 0, time.UTC)

func fixedClock() time.Time { return then }

// anchorA is live at all times.
var anchorA = webhook.Anchor{ID: "a"}

func keyring(t testing.TB, anchors ...webhook.Anchor) *webhook.Keyring {
	t.Helper()
	for i := range anchors {
		anchors[i].Secret = fencepost.NewSecret([]byte("the one secret of " + string(anchors[i].ID)))
	}
	k, err := webhook.NewKeyring("acme", anchors...)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// policy is an admission that is like a gate's: events of one repository and
// one kind.
type policy struct{ decoder *strictjson.Decoder[event] }

type event struct {
	Repository struct {
		ID int64 `json:"id"`
	} `json:"repository"`
}

func newPolicy() policy {
	return policy{strictjson.NewDecoder[event](strictjson.Limits{})}
}

func (p policy) Admit(h fencepost.Headers, body []byte) error {
	e, err := p.decoder.Decode(body)
	kind, _ := h.Only("x-github-event")
	switch {
	case err != nil:
		return &fencepost.Error{Op: "test.admit", Reason: fencepost.ReasonMalformed, Err: err}
	case e.Repository.ID == 666:
		return errors.New("a fault of the policy's own")
	case e.Repository.ID == 667:
		panic("canary-panic")
	case e.Repository.ID != 1:
		return &fencepost.Error{Op: "test.admit", Reason: fencepost.ReasonUnauthorized}
	case kind != "pull_request":
		return &fencepost.Error{Op: "test.admit", Reason: fencepost.ReasonEventNotHandled}
	}
	return nil
}

// memory is a recorder that keeps what it is given, as the inbox would.
type memory struct {
	// Before, if set, is called first, without the lock.
	before func(ctx context.Context)
	// Answer, if set, decides instead of what is kept.
	answer func() (ingress.Recording, error)

	mu   sync.Mutex
	kept map[fencepost.DeliveryKey]kept
	seen int
}

type kept struct {
	delivery fencepost.AcceptedDelivery
	headers  []fencepost.Header
	body     string
}

func (m *memory) Record(ctx context.Context, d fencepost.AcceptedDelivery, h fencepost.Headers, body []byte) (ingress.Recording, error) {
	if m.before != nil {
		m.before(ctx)
		if err := context.Cause(ctx); err != nil {
			return 0, err
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.seen++
	if m.answer != nil {
		return m.answer()
	}
	if m.kept == nil {
		m.kept = map[fencepost.DeliveryKey]kept{}
	}
	switch before, known := m.kept[d.Key()]; {
	case !known:
		m.kept[d.Key()] = kept{d, h.All(), string(body)}
		return ingress.Accepted, nil
	case before.delivery.Binding() != d.Binding():
		return ingress.Conflict, nil
	}
	return ingress.Replayed, nil
}

func (m *memory) recorded() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.kept)
}

// journal is an observer that remembers.
type journal struct {
	mu  sync.Mutex
	all []ingress.Answered
}

func (j *journal) Answered(a ingress.Answered) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.all = append(j.all, a)
}

func (j *journal) answers() []ingress.Answered {
	j.mu.Lock()
	defer j.mu.Unlock()
	return append([]ingress.Answered(nil), j.all...)
}

// spent is what requests have cost.
type spent struct {
	mu    sync.Mutex
	calls int
	macs  int // and verifications of signatures
}

func (s *spent) take() (calls, macs int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	calls, macs, s.calls, s.macs = s.calls, s.macs, 0, 0
	return calls, macs
}

// counted is a verifier whose cost is counted.
type counted struct {
	price *spent
	fencepost.Verifier
}

func (c counted) Verify(h fencepost.Headers, body []byte, received time.Time) (fencepost.Evidence, error) {
	ev, err := c.Verifier.Verify(h, body, received)
	c.price.mu.Lock()
	defer c.price.mu.Unlock()
	c.price.calls++
	if refusal, ok := errors.AsType[*webhook.Refusal](err); ok {
		c.price.macs += refusal.MACs + refusal.Verifications
	}
	return ev, err
}

var (
	unsigned = fencepost.RouteRule{TrustSet: "acme", SignedTime: fencepost.SignedTimeNone, Window: fencepost.DefaultReplayWindow}
	timed    = fencepost.RouteRule{TrustSet: "acme", SignedTime: fencepost.SignedTimeRequired, Window: fencepost.DefaultReplayWindow}
)

// needed are the headers that a route of scheme reads.
func needed(scheme interface{ Headers() []string }) []string {
	return append(scheme.Headers(), "x-github-event", "x-github-delivery")
}

// world is a server with two routes, "docs" in GitHub's scheme and "lab" in
// Standard Webhooks'.
type world struct {
	*ingress.Server
	keys     *webhook.Keyring
	recorder *memory
	journal  *journal
	log      *bytes.Buffer
}

const work = 3

func newWorld(t testing.TB, cfg ingress.Config, now func() time.Time) *world {
	t.Helper()
	w := &world{
		keys:     keyring(t, webhook.Anchor{ID: "a"}, webhook.Anchor{ID: "b", Until: then}),
		recorder: &memory{}, journal: &journal{}, log: &bytes.Buffer{},
	}
	var err error
	w.Server, err = ingress.New(ingress.Options{
		Config: cfg, Table: w.table(t, nil), Now: now, Observer: w.journal,
		Log: slog.New(slog.NewJSONHandler(w.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	})
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// table makes the world's table; wrap, if given, goes around each verifier.
func (w *world) table(t testing.TB, wrap func(fencepost.Verifier) fencepost.Verifier) *ingress.Table {
	t.Helper()
	return w.tableOf(t, newPolicy(), wrap)
}

func (w *world) tableOf(t testing.TB, admission ingress.Admission, wrap func(fencepost.Verifier) fencepost.Verifier) *ingress.Table {
	t.Helper()
	if wrap == nil {
		wrap = func(v fencepost.Verifier) fencepost.Verifier { return v }
	}
	github, standard := webhook.GitHub{Keys: w.keys, Work: work}, webhook.StandardWebhooks{Keys: w.keys, Work: work}
	docs := ingress.Route{Rule: unsigned, Verifier: wrap(github), Headers: needed(github), Admission: admission, Recorder: w.recorder}
	docs.Rule.Route = "docs"
	lab := ingress.Route{Rule: timed, Verifier: wrap(standard), Headers: needed(standard), Admission: admission, Recorder: w.recorder, PlainOK: true}
	lab.Rule.Route = "lab"
	table, err := ingress.NewTable(ingress.Decoys{Hooks: wrap(webhook.Decoy{Work: work})}, docs, lab)
	if err != nil {
		t.Fatal(err)
	}
	return table
}

const goodBody = `{"repository":{"id":1},"number":7}`

// request is what a test changes before it is sent.
type request struct {
	method, target, body string
	header               http.Header
	chunked              bool
	trailer              http.Header
}

// docs is a good request to the route docs with this body.
func (w *world) docs(t testing.TB, body string) *request {
	t.Helper()
	return w.signed(t, "/hooks/docs", body, webhook.GitHub{Keys: w.keys}, then)
}

func (w *world) signed(t testing.TB, target, body string, scheme interface {
	Sign(webhook.Message) ([]fencepost.Header, error)
}, at time.Time,
) *request {
	t.Helper()
	pairs, err := scheme.Sign(webhook.Message{Body: []byte(body), ID: "msg_1", At: at})
	if err != nil {
		t.Fatal(err)
	}
	r := &request{method: http.MethodPost, target: target, body: body, header: http.Header{
		"Content-Type": {"application/json"}, "X-Github-Event": {"pull_request"}, "X-Github-Delivery": {"5b2a"},
	}}
	for _, p := range pairs {
		r.header.Add(p.Name, p.Value)
	}
	return r
}

// http is the request as net/http's server hands it to a handler.
func (r *request) http(ctx context.Context) *http.Request {
	hr := httptest.NewRequest(r.method, "http://hooks.example/", strings.NewReader(r.body)).WithContext(ctx)
	if u, err := hr.URL.Parse(r.target); err == nil {
		hr.URL = u
	}
	hr.Header = r.header.Clone()
	if r.chunked {
		hr.ContentLength, hr.TransferEncoding = -1, []string{"chunked"}
	} else {
		hr.Header.Set("Content-Length", "x") // a pair like any other to us
	}
	hr.Trailer = r.trailer
	return hr
}

// send hands r to the server without a network.
func (w *world) send(t testing.TB, r *request) *httptest.ResponseRecorder {
	t.Helper()
	rec := httptest.NewRecorder()
	w.ServeHTTP(rec, r.http(t.Context()))
	return rec
}

// reply is the body of every answer.
type reply struct {
	Outcome  ingress.Outcome      `json:"outcome"`
	Reason   fencepost.Reason     `json:"reason"`
	Delivery fencepost.DeliveryID `json:"delivery"`
}

// read checks what all answers have in common.
func read(t testing.TB, rec *httptest.ResponseRecorder) reply {
	t.Helper()
	for name, want := range map[string]string{
		"Content-Type": "application/json", "Cache-Control": "private, no-store", "X-Robots-Tag": "noindex", "X-Content-Type-Options": "nosniff",
	} {
		if got := rec.Header().Values(name); len(got) != 1 || got[0] != want {
			t.Errorf("status %d has %s: %q, want %q", rec.Code, name, got, want)
		}
	}
	if got := rec.Header().Get("Allow"); (got == "POST") != (rec.Code == http.StatusMethodNotAllowed) {
		t.Errorf("status %d has Allow: %q", rec.Code, got)
	}
	if got := rec.Header().Get("Retry-After"); (got == "10") != (rec.Code == http.StatusServiceUnavailable) {
		t.Errorf("status %d has Retry-After: %q", rec.Code, got)
	}
	var fields map[string]string
	var got reply
	if err := errors.Join(json.Unmarshal(rec.Body.Bytes(), &fields), json.Unmarshal(rec.Body.Bytes(), &got)); err != nil || len(fields) != 3 {
		t.Errorf("answer %q: %v", rec.Body, err)
	}
	return got
}
