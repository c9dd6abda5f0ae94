package ingress_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto"
	"crypto/hmac"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/ingress"
	"github.com/fencepost/fencepost/webhook"
)

// issuerKey signs the tokens of these tests; it is nobody's.
var issuerKey = sync.OnceValue(func() *rsa.PrivateKey {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		panic(err)
	}
	return key
})

const (
	issuer   = "https://gitlab.example"
	audience = "https://fencepost.example"
)

// token is a job's, as GitLab makes it, issued at that time for five minutes.
func token(t testing.TB, id string, issued time.Time) string {
	t.Helper()
	b64 := base64.RawURLEncoding.EncodeToString
	head := fmt.Sprintf(`{"alg":"RS256","typ":"JWT","kid":%q}`, webhook.ThumbprintOf(&issuerKey().PublicKey))
	payload := fmt.Sprintf(`{"iss":%q,"aud":%q,"jti":%q,"iat":%d,"nbf":%[4]d,"exp":%d,"runner_id":1}`,
		issuer, audience, id, issued.Unix(), issued.Add(5*time.Minute).Unix())
	text := b64([]byte(head)) + "." + b64([]byte(payload))
	digest := sha256.Sum256([]byte(text))
	signature, err := rsa.SignPKCS1v15(nil, issuerKey(), crypto.SHA256, digest[:])
	if err != nil {
		t.Fatal(err)
	}
	return text + "." + b64(signature)
}

// hintOnly admits one hint alone.
type hintOnly struct{}

func (hintOnly) Admit(_ fencepost.Headers, body []byte) error {
	switch string(body) {
	case `{"merge_request":7}`, `{"merge_request":8}`:
		return nil
	case `{"merge_request":0}`:
		return &fencepost.Error{Op: "test.admit", Reason: fencepost.ReasonUnauthorized}
	case `{}`:
		return &fencepost.Error{Op: "test.admit", Reason: fencepost.ReasonEventNotHandled}
	}
	return &fencepost.Error{Op: "test.admit", Reason: fencepost.ReasonMalformed}
}

// told are the results of a test.
type told struct {
	mu    sync.Mutex
	of    map[fencepost.DeliveryID]ingress.Result
	err   error
	asked int
	wait  bool // until the end of the context
}

func (r *told) Result(ctx context.Context, d fencepost.DeliveryID) (ingress.Result, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asked++
	if r.wait {
		<-ctx.Done()
		return ingress.Result{}, context.Cause(ctx)
	}
	return r.of[d], r.err
}

func (r *told) tell(d fencepost.DeliveryID, result ingress.Result) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.of = map[fencepost.DeliveryID]ingress.Result{d: result}
}

// jobWorld is a server with one job route, "train", beside the hook "docs".
type jobWorld struct {
	*world
	results *told
	key     fencepost.Secret
	price   spent
}

func newJobWorld(t testing.TB, cfg ingress.Config, now func() time.Time) *jobWorld {
	t.Helper()
	w := &jobWorld{results: &told{}, key: fencepost.NewSecret([]byte(strings.Repeat("k", 32))), world: &world{
		keys: keyring(t, webhook.Anchor{ID: "a"}), recorder: &memory{}, journal: &journal{}, log: &bytes.Buffer{},
	}}
	var err error
	w.Server, err = ingress.New(ingress.Options{
		Config: cfg, Table: w.table(t), Now: now, Observer: w.journal,
		Log: slog.New(slog.NewJSONHandler(w.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	})
	if err != nil {
		t.Fatal(err)
	}
	return w
}

const jobWork = 2

func (w *jobWorld) table(t testing.TB) *ingress.Table {
	t.Helper()
	ring, err := webhook.NewJobKeyring("instance", webhook.JobAnchor{ID: "one", Key: &issuerKey().PublicKey})
	if err != nil {
		t.Fatal(err)
	}
	docs := ingress.Route{Rule: unsigned, Verifier: webhook.GitHub{Keys: w.keys}, Headers: needed(webhook.GitHub{}), Admission: newPolicy(), Recorder: w.recorder}
	docs.Rule.Route = "docs"
	scheme := webhook.GitLabJob{Issuer: issuer, Audience: audience, Keys: ring, Work: jobWork}
	train := ingress.Route{
		Rule: timed, Verifier: counted{&w.price, scheme}, Headers: scheme.Headers(), Admission: hintOnly{}, Recorder: w.recorder,
		Job: &ingress.Job{Key: w.key, Results: w.results},
	}
	train.Rule.Route, train.Rule.TrustSet = "train", "instance"
	table, err := ingress.NewTable(ingress.Decoys{
		Hooks: webhook.Decoy{}, Jobs: counted{&w.price, webhook.JobDecoy{Work: jobWork}},
	}, docs, train)
	if err != nil {
		t.Fatal(err)
	}
	return table
}

const hint = `{"merge_request":7}`

func (w *jobWorld) job(t testing.TB, id string) *request {
	t.Helper()
	return &request{method: http.MethodPost, target: "/jobs/train", body: hint, header: http.Header{
		"Content-Type": {"application/json"}, "Authorization": {"Bearer " + token(t, id, then)},
	}}
}

// answered is the body of an answer to a job.
type answered struct {
	Outcome    ingress.Outcome      `json:"outcome"`
	Reason     fencepost.Reason     `json:"reason"`
	Delivery   fencepost.DeliveryID `json:"delivery"`
	Poll       string               `json:"poll"`
	Conclusion string               `json:"conclusion"`
	Title      string               `json:"title"`
	Summary    string               `json:"summary"`
}

// said checks what all answers have in common.
func said(t testing.TB, rec *httptest.ResponseRecorder) answered {
	t.Helper()
	for name, want := range map[string]string{
		"Content-Type": "application/json", "Cache-Control": "private, no-store", "X-Robots-Tag": "noindex", "X-Content-Type-Options": "nosniff",
	} {
		if got := rec.Header().Values(name); len(got) != 1 || got[0] != want {
			t.Errorf("status %d has %s: %q, want %q", rec.Code, name, got, want)
		}
	}
	if got := rec.Header().Get("Allow"); (got == "GET, POST") != (rec.Code == http.StatusMethodNotAllowed) {
		t.Errorf("status %d has Allow: %q", rec.Code, got)
	}
	if got := rec.Header().Get("Retry-After"); (got == "10") != (rec.Code == http.StatusServiceUnavailable) {
		t.Errorf("status %d has Retry-After: %q", rec.Code, got)
	}
	var a answered
	d := json.NewDecoder(rec.Body)
	d.DisallowUnknownFields()
	if err := d.Decode(&a); err != nil {
		t.Errorf("answer of status %d: %v", rec.Code, err)
	}
	return a
}

func poll(d fencepost.DeliveryID, secret string) *request {
	return &request{method: http.MethodGet, target: "/jobs/train/" + string(d), header: http.Header{"Authorization": {"Bearer " + secret}}}
}

func TestAnswersToJobs(t *testing.T) {
	t.Parallel()
	const id = "dlv_"
	change := func(change func(*request)) func(*testing.T, *jobWorld) *request {
		return func(t *testing.T, w *jobWorld) *request {
			r := w.job(t, "1")
			change(r)
			return r
		}
	}
	body := func(body string) func(*testing.T, *jobWorld) *request {
		return change(func(r *request) { r.body = body })
	}
	for name, test := range map[string]struct {
		request func(*testing.T, *jobWorld) *request
		status  int
		want    answered
	}{
		"new work": {body(hint), 202, answered{Outcome: "accepted", Delivery: id, Poll: "secret"}},
		"recorded already": {func(t *testing.T, w *jobWorld) *request {
			r := w.job(t, "1")
			w.send(t, r)
			return r
		}, 200, answered{Outcome: "replayed", Delivery: id, Poll: "secret"}},
		"same token, other hint": {func(t *testing.T, w *jobWorld) *request {
			r := w.job(t, "1")
			w.send(t, r)
			r.body = `{"merge_request":8}`
			return r
		}, 409, answered{Outcome: "rejected", Reason: "delivery_conflict", Delivery: id}},
		"no declared length":  {change(func(r *request) { r.chunked = true }), 202, answered{Outcome: "accepted", Delivery: id, Poll: "secret"}},
		"of another pipeline": {body(`{}`), 200, answered{Outcome: "ignored", Reason: "event_not_handled"}},
		"no hint":             {body(``), 400, answered{Outcome: "rejected", Reason: "malformed"}},
		"of another project":  {body(`{"merge_request":0}`), 403, answered{Outcome: "rejected", Reason: "unauthorized"}},
		"no token":            {change(func(r *request) { r.header.Del("Authorization") }), 401, answered{Outcome: "rejected", Reason: "unauthenticated"}},
		"two tokens":          {change(func(r *request) { r.header.Add("Authorization", "Bearer x") }), 401, answered{Outcome: "rejected", Reason: "unauthenticated"}},
		"altered token":       {change(func(r *request) { r.header.Set("Authorization", r.header.Get("Authorization")+"A") }), 401, answered{Outcome: "rejected", Reason: "unauthenticated"}},
		"no route":            {change(func(r *request) { r.target = "/jobs/nothing" }), 401, answered{Outcome: "rejected", Reason: "unauthenticated"}},
		"a hook's name":       {change(func(r *request) { r.target = "/jobs/docs" }), 401, answered{Outcome: "rejected", Reason: "unauthenticated"}},
		"below a route":       {change(func(r *request) { r.target = "/jobs/train/" + id }), 401, answered{Outcome: "rejected", Reason: "unauthenticated"}},
		"expired token":       {change(func(r *request) { r.header.Set("Authorization", "Bearer "+token(t, "1", then.Add(-6*time.Minute))) }), 401, answered{Outcome: "rejected", Reason: "unauthenticated"}},
		"PUT":                 {change(func(r *request) { r.method = http.MethodPut }), 405, answered{Outcome: "rejected", Reason: "method"}},
		"HEAD":                {change(func(r *request) { r.method = http.MethodHead }), 405, answered{Outcome: "rejected", Reason: "method"}},
		"form":                {change(func(r *request) { r.header.Set("Content-Type", "text/plain") }), 415, answered{Outcome: "rejected", Reason: "media_type"}},
		"large hint":          {body(hint + strings.Repeat(" ", 4<<10)), 413, answered{Outcome: "rejected", Reason: "too_large"}},
		"large hint, chunked": {change(func(r *request) { r.body, r.chunked = hint+strings.Repeat(" ", 4<<10), true }), 413, answered{Outcome: "rejected", Reason: "too_large"}},
		"many headers":        {change(func(r *request) { r.header["X"] = make([]string, 200) }), 431, answered{Outcome: "rejected", Reason: "headers"}},
		"inbox full": {func(t *testing.T, w *jobWorld) *request {
			w.recorder.answer = func() (ingress.Recording, error) {
				return 0, &fencepost.Error{Op: "test.record", Reason: fencepost.ReasonFull}
			}
			return w.job(t, "1")
		}, 503, answered{Outcome: "rejected", Reason: "full"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newJobWorld(t, ingress.Config{}, fixedClock)
			rec := w.send(t, test.request(t, w))
			got := said(t, rec)
			if test.want.Delivery == id {
				if _, err := fencepost.ParseDeliveryID(string(got.Delivery)); err != nil {
					t.Errorf("delivery %q: %v", got.Delivery, err)
				}
				got.Delivery = id
			}
			if len(got.Poll) == 43 {
				got.Poll = "secret"
			}
			if diff := cmp.Diff(test.want, got); rec.Code != test.status || diff != "" {
				t.Errorf("status %d, want %d; answer (-want +got):\n%s", rec.Code, test.status, diff)
			}
		})
	}
}

// A hook's route is none of a job's: nothing that is known of one helps at the
// other.
func TestAJobIsNoHook(t *testing.T) {
	t.Parallel()
	w := newJobWorld(t, ingress.Config{}, fixedClock)
	r := w.job(t, "1")
	r.target = "/hooks/train"
	if rec := w.send(t, r); rec.Code != 401 {
		t.Errorf("status %d, want 401", rec.Code)
	}
	d := w.docs(t, goodBody)
	d.target = "/jobs/docs"
	if rec := w.send(t, d); rec.Code != 401 {
		t.Errorf("status %d, want 401", rec.Code)
	}
	first := said(t, w.send(t, w.docs(t, goodBody)))
	if first.Outcome != "accepted" || first.Poll != "" {
		t.Errorf("a hook is told %+v", first)
	}
	g := w.docs(t, "")
	g.method = http.MethodGet
	if rec := w.send(t, g); rec.Code != 405 || rec.Header().Get("Allow") != "POST" {
		t.Errorf("GET of a hook: status %d, Allow %q", rec.Code, rec.Header().Get("Allow"))
	}
}

// The secret is of the route and the delivery alone: a repeat, also at another
// process or after a restart, is given the same.
func TestThePollSecretIsOfTheDelivery(t *testing.T) {
	t.Parallel()
	w := newJobWorld(t, ingress.Config{}, fixedClock)
	first, again, other := said(t, w.send(t, w.job(t, "1"))), said(t, w.send(t, w.job(t, "1"))), said(t, w.send(t, w.job(t, "2")))
	elsewhere := said(t, newJobWorld(t, ingress.Config{}, fixedClock).send(t, w.job(t, "1")))
	if again.Poll != first.Poll || again.Delivery != first.Delivery || elsewhere.Poll != first.Poll || elsewhere.Delivery != first.Delivery {
		t.Errorf("a repeat has %v and %v; first was %v", again, elsewhere, first)
	}
	if other.Poll == first.Poll || other.Delivery == first.Delivery {
		t.Error("two deliveries have one secret")
	}
}

func TestAJobFetchesItsResult(t *testing.T) {
	t.Parallel()
	w := newJobWorld(t, ingress.Config{}, fixedClock)
	job := said(t, w.send(t, w.job(t, "1")))
	text := "two \"lines\"\n\x1b[31m</script>\u2028\xff"
	for name, test := range map[string]struct {
		result ingress.Result
		want   answered
	}{
		"nothing yet":         {ingress.Result{}, answered{Outcome: "waiting"}},
		"a pass":              {ingress.Result{Conclusion: "success", Title: "2 checks", Summary: text}, answered{Outcome: "result", Conclusion: "success", Title: "2 checks", Summary: strings.ToValidUTF8(text, "\ufffd")}},
		"a block":             {ingress.Result{Conclusion: "failure", Title: "t"}, answered{Outcome: "result", Conclusion: "failure", Title: "t"}},
		"an end":              {ingress.Result{Ended: true, Reason: fencepost.ReasonSuperseded}, answered{Outcome: "ended", Reason: "superseded"}},
		"an end of no reason": {ingress.Result{Ended: true}, answered{Outcome: "ended"}},
	} {
		w.results.tell(job.Delivery, test.result)
		before := len(w.journal.answers())
		rec := w.send(t, poll(job.Delivery, job.Poll))
		test.want.Delivery = job.Delivery
		got := said(t, rec)
		if diff := cmp.Diff(test.want, got); rec.Code != 200 || diff != "" {
			t.Errorf("%s: status %d (-want +got):\n%s", name, rec.Code, diff)
		}
		told := w.journal.answers()[before:]
		if len(told) != 1 || !told[0].Poll || told[0].Route != "train" || told[0].Outcome != got.Outcome || told[0].Status != 200 {
			t.Errorf("%s: the observer was told %+v", name, told)
		}
	}
	w.results.err = errors.New("canary")
	if rec := w.send(t, poll(job.Delivery, job.Poll)); rec.Code != 503 || said(t, rec).Reason != "unavailable" {
		t.Errorf("results that can't be read: status %d", rec.Code)
	}
	if w.recorder.recorded() != 1 {
		t.Errorf("%d recorded, want the job alone", w.recorder.recorded())
	}
}

// secretOf is the poll secret of docs/encoding.md.
func secretOf(key fencepost.Secret, route, delivery string) string {
	digest := fencepost.NewEncoder("fencepost.poll/v1").Text(route).Text(delivery).Sum()
	mac := hmac.New(sha256.New, key.Reveal())
	mac.Write(digest[:])
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

// Whoever has not the delivery's own secret is told nothing, in one way, and
// nothing is looked up.
func TestEveryRefusalOfAPollIsTheSame(t *testing.T) {
	t.Parallel()
	w := newJobWorld(t, ingress.Config{}, fixedClock)
	job, other := said(t, w.send(t, w.job(t, "1"))), said(t, w.send(t, w.job(t, "2")))
	good := func(change func(*request)) *request {
		r := poll(job.Delivery, job.Poll)
		change(r)
		return r
	}
	target := func(target string) *request { return good(func(r *request) { r.target = target }) }
	value := func(value ...string) *request { return good(func(r *request) { r.header["Authorization"] = value }) }
	id := string(job.Delivery)
	requests := map[string]*request{
		"another's secret":   poll(job.Delivery, other.Poll),
		"wrong secret":       poll(job.Delivery, strings.Repeat("A", 43)),
		"no secret":          poll(job.Delivery, ""),
		"longer":             poll(job.Delivery, job.Poll+"A"),
		"shorter":            poll(job.Delivery, job.Poll[:42]),
		"very long":          poll(job.Delivery, strings.Repeat(job.Poll, 100)),
		"no header":          value(),
		"twice":              value("Bearer "+job.Poll, "Bearer "+job.Poll),
		"without scheme":     value(job.Poll),
		"other scheme":       value("Basic " + job.Poll),
		"scheme in lower":    value("bearer " + job.Poll),
		"the token":          value(w.job(t, "1").header.Get("Authorization")),
		"unknown delivery":   poll(fencepost.DeliveryKey{1}.ID(), job.Poll),
		"no delivery":        target("/jobs/train/"),
		"no delivery's name": target("/jobs/train"),
		"malformed delivery": target("/jobs/train/dlv_1"),
		"its own secret":     poll("dlv_1", secretOf(w.key, "train", "dlv_1")),
		"a stand-in's":       poll("dlv_1", secretOf(w.key, "train", string(fencepost.DeliveryKey{}.ID()))),
		"another route's":    poll(job.Delivery, secretOf(w.key, "docs", id)),
		"upper case":         target("/jobs/train/" + strings.ToUpper(id)),
		"escaped":            target("/jobs/train/%64" + id[1:]),
		"below a delivery":   target("/jobs/train/" + id + "/"),
		"unknown route":      target("/jobs/nothing/" + id),
		"a hook's name":      target("/jobs/docs/" + id),
		"no route":           target("/jobs/"),
		"no route's name":    target("/jobs//" + id),
		"unknown's own name": target("/jobs/?/" + id),
		"long route":         target("/jobs/" + strings.Repeat("a", 5000) + "/" + id),
	}
	var body string
	var header http.Header
	for name, r := range requests {
		rec := w.send(t, r)
		if body == "" {
			body, header = rec.Body.String(), rec.Header()
		}
		if rec.Code != 401 || rec.Body.String() != body || !sameHeader(rec.Header(), header) {
			t.Errorf("%s: status %d, %q, %v; others have 401, %q, %v", name, rec.Code, rec.Body, rec.Header(), body, header)
		}
	}
	if w.results.asked != 0 {
		t.Errorf("results were looked up %d times for who may not ask", w.results.asked)
	}
	// It is the answer of a job that could not be authenticated, too.
	r := w.job(t, "3")
	r.header.Del("Authorization")
	if rec := w.send(t, r); rec.Body.String() != body || !sameHeader(rec.Header(), header) {
		t.Errorf("a job is refused otherwise: %q, %v", rec.Body, rec.Header())
	}
	if rec := w.send(t, poll(job.Delivery, job.Poll)); rec.Code != 200 {
		t.Errorf("the good one has status %d", rec.Code)
	}
}

// All that can't be authenticated costs a job one call of a verifier, and as
// many verifications of a signature (DESIGN §4).
func TestEveryRefusalOfAJobCostsTheSame(t *testing.T) {
	t.Parallel()
	w := newJobWorld(t, ingress.Config{}, fixedClock)
	count := func(change func(*request)) (calls, verifications int) {
		r := w.job(t, "1")
		change(r)
		if rec := w.send(t, r); rec.Code != 401 {
			t.Errorf("status %d, want 401", rec.Code)
		}
		return w.price.take()
	}
	for name, change := range map[string]func(*request){
		"no route":      func(r *request) { r.target = "/jobs/nothing" },
		"a hook's name": func(r *request) { r.target = "/jobs/docs" },
		"no token":      func(r *request) { r.header.Del("Authorization") },
		"two tokens":    func(r *request) { r.header.Add("Authorization", "x") },
		"wrong":         func(r *request) { r.header.Set("Authorization", r.header.Get("Authorization")+"A") },
	} {
		if calls, verifications := count(change); calls != 1 || verifications != jobWork {
			t.Errorf("%s: %d calls of a verifier and %d verifications, want 1 and %d", name, calls, verifications, jobWork)
		}
	}
}

func TestAPollIsBounded(t *testing.T) {
	t.Parallel()
	w := newJobWorld(t, ingress.Config{MaxHeaders: 20, MaxHeaderBytes: 2000, RecordTimeout: time.Millisecond}, fixedClock)
	job := said(t, w.send(t, w.job(t, "1")))
	spoiled := func(change func(*request)) *httptest.ResponseRecorder {
		r := poll(job.Delivery, job.Poll)
		change(r)
		return w.send(t, r)
	}
	for name, test := range map[string]struct {
		rec    *httptest.ResponseRecorder
		status int
		reason fencepost.Reason
	}{
		"many headers":  {spoiled(func(r *request) { r.header["X"] = make([]string, 30) }), 431, "headers"},
		"large headers": {spoiled(func(r *request) { r.header.Set("X", strings.Repeat("x", 3000)) }), 431, "headers"},
		"trailer":       {spoiled(func(r *request) { r.chunked, r.trailer = true, http.Header{"X": nil} }), 431, "headers"},
		"a body":        {spoiled(func(r *request) { r.body = "x" }), 413, "too_large"},
		"chunked":       {spoiled(func(r *request) { r.chunked = true }), 413, "too_large"},
	} {
		if got := said(t, test.rec); test.rec.Code != test.status || got.Reason != test.reason {
			t.Errorf("%s: status %d, reason %q; want %d, %q", name, test.rec.Code, got.Reason, test.status, test.reason)
		}
	}
	if w.results.asked != 0 {
		t.Errorf("results were looked up %d times", w.results.asked)
	}
	w.results.wait = true
	if rec := w.send(t, poll(job.Delivery, job.Poll)); rec.Code != 503 {
		t.Errorf("results that don't come: status %d, want 503", rec.Code)
	}
	if s := w.Stats(); s != (ingress.Stats{}) {
		t.Errorf("something is left over: %+v", s)
	}
}

// unreadable is a body that must not be read.
type unreadable struct{ t *testing.T }

func (u unreadable) Read([]byte) (int, error) {
	u.t.Error("the body of a poll was read")
	return 0, errors.New("read")
}
func (unreadable) Close() error { return nil }

func TestNothingOfAPollsBodyIsRead(t *testing.T) {
	t.Parallel()
	w := newJobWorld(t, ingress.Config{}, fixedClock)
	job := said(t, w.send(t, w.job(t, "1")))
	for _, n := range []int64{-1, 0, 1, 1 << 30} {
		r := poll(job.Delivery, job.Poll).http(t.Context())
		r.Body, r.ContentLength = unreadable{t}, n
		rec := httptest.NewRecorder()
		w.ServeHTTP(rec, r)
		if closing := rec.Header().Get("Connection") == "close"; closing != (n != 0) {
			t.Errorf("%d bytes: Connection: close is %v", n, closing)
		}
	}
}

// A poll with a body ends its connection, over the network too: its bytes are
// no next request.
func TestAPollWithABodyEndsItsConnection(t *testing.T) {
	t.Parallel()
	w := newJobWorld(t, ingress.Config{}, time.Now)
	address := live(t, w.world)
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := fmt.Fprintf(conn, "GET /jobs/train/x HTTP/1.1\r\nHost: x\r\nContent-Length: 40\r\n\r\nGET /jobs/train/y HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if err := conn.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != 413 || !resp.Close {
		t.Errorf("status %d, closing %v; want 413 and the end", resp.StatusCode, resp.Close)
	}
	if n := len(w.journal.answers()); n != 1 {
		t.Errorf("%d requests, want 1", n)
	}
}

func TestAPollIsNotAnsweredWhileDraining(t *testing.T) {
	t.Parallel()
	w := newJobWorld(t, ingress.Config{Drain: time.Millisecond}, fixedClock)
	job := said(t, w.send(t, w.job(t, "1")))
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if err := w.Run(ctx, ln); err != nil {
		t.Fatal(err)
	}
	rec := w.send(t, poll(job.Delivery, job.Poll))
	if got := said(t, rec); rec.Code != 503 || got.Reason != "draining" || rec.Header().Get("Connection") != "close" {
		t.Errorf("status %d, %+v", rec.Code, got)
	}
}

func TestATableOfJobsIsWhole(t *testing.T) {
	t.Parallel()
	key := fencepost.NewSecret(make([]byte, 32))
	route := func(job *ingress.Job) ingress.Route {
		r := ingress.Route{Rule: timed, Verifier: webhook.JobDecoy{}, Admission: hintOnly{}, Recorder: &memory{}, Job: job}
		r.Rule.Route = "train"
		return r
	}
	good := &ingress.Job{Key: key, Results: &told{}}
	both := ingress.Decoys{Hooks: webhook.Decoy{}, Jobs: webhook.JobDecoy{}}
	for name, test := range map[string]struct {
		decoys ingress.Decoys
		routes []ingress.Route
		want   error
	}{
		"nothing wrong":          {both, []ingress.Route{route(good)}, nil},
		"no decoy":               {ingress.Decoys{Hooks: webhook.Decoy{}}, []ingress.Route{route(good)}, fencepost.ErrZeroValue},
		"no key":                 {both, []ingress.Route{route(&ingress.Job{Results: &told{}})}, fencepost.ErrZeroValue},
		"short key":              {both, []ingress.Route{route(&ingress.Job{Key: fencepost.NewSecret(make([]byte, 31)), Results: &told{}})}, fencepost.ErrZeroValue},
		"no results":             {both, []ingress.Route{route(&ingress.Job{Key: key})}, fencepost.ErrZeroValue},
		"a name of hook and job": {both, []ingress.Route{route(nil), route(good)}, fencepost.ErrMalformed},
	} {
		if _, err := ingress.NewTable(test.decoys, test.routes...); !errors.Is(err, test.want) {
			t.Errorf("%s: %v, want %v", name, err, test.want)
		}
	}
}

// No token, poll secret or text of a report goes where people look, whatever is
// answered; a poll secret goes nowhere but to the job.
func TestNothingOfAJobLeaksOut(t *testing.T) {
	t.Parallel()
	w := newJobWorld(t, ingress.Config{}, fixedClock)
	job := said(t, w.send(t, w.job(t, "1")))
	auth := w.job(t, "1").header.Get("Authorization")
	secrets := append(strings.Split(strings.TrimPrefix(auth, "Bearer "), "."), job.Poll, "canary", base64.StdEncoding.EncodeToString(w.key.Reveal()))
	w.results.tell(job.Delivery, ingress.Result{Conclusion: "success", Title: "canary", Summary: "canary"})
	var answers strings.Builder
	for _, method := range []string{http.MethodPost, http.MethodGet, http.MethodHead, "CANARY"} {
		for _, target := range []string{"/jobs/train", "/jobs/train/" + string(job.Delivery), "/jobs/canary", "/jobs/train/canary", "/jobs/canary/canary?canary"} {
			for _, header := range []string{auth, "Bearer " + job.Poll, "canary"} {
				for _, body := range []string{hint, "", `{"canary":1}`} {
					r := w.job(t, "1")
					r.method, r.target, r.body = method, target, body
					r.header.Set("Authorization", header)
					rec := w.send(t, r)
					if own := rec.Code == 200 && (method == http.MethodGet || strings.Contains(rec.Body.String(), "replayed")); !own {
						fmt.Fprintln(&answers, rec.Code, rec.Header(), rec.Body)
					}
				}
			}
		}
	}
	for name, out := range map[string]string{
		"log": w.log.String(), "answers": answers.String(), "observer": fmt.Sprintf("%+v", w.journal.answers()),
	} {
		for _, secret := range secrets {
			if out == "" || strings.Contains(out, secret) {
				t.Errorf("%s is empty or holds %q:\n%.2000s", name, secret, out)
			}
		}
	}
	if log := w.log.String(); !strings.Contains(log, `"job replayed"`) || !strings.Contains(log, `"poll result"`) {
		t.Error("the log tells jobs and polls not apart")
	}
}
