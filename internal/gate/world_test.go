package gate_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/gitfetch"
	"github.com/fencepost/fencepost/internal/durable/crashfs"
	"github.com/fencepost/fencepost/internal/gate"
	"github.com/fencepost/fencepost/internal/gate/notebook"
	"github.com/fencepost/fencepost/ledger/ledgertest"
	"github.com/fencepost/fencepost/runner"
	"github.com/fencepost/fencepost/runner/check"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// errDead is what every call of a killed process gets.
var errDead = errors.New("the process is dead")

// A world is what outlives the processes of a gate: provider, ledger, queue,
// disk. Its time is that of a synctest bubble.
type world struct {
	t        testing.TB
	disk     *crashfs.Disk
	ledger   *ledgertest.Memory
	provider *provider
	queue    *queue
	program  *program
	store    *store
	journal  *journal
	alerts   *alerts
	trust    *trust
	limits   gate.Limits
	plan     gate.Plan
	logs     *lockedBuffer
}

// inWorld runs a test in a bubble.
func inWorld(t *testing.T, test func(t *testing.T, w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(t, newWorld(t)) })
}

func newWorld(t testing.TB) *world {
	w := &world{
		t: t, disk: crashfs.New(crashfs.Options{}), provider: newProvider(), queue: newQueue(),
		program: &program{pass: true}, store: &store{}, journal: &journal{}, alerts: &alerts{open: map[string]gate.Alert{}},
		trust: &trust{anchors: map[fencepost.AnchorID]bool{"a": true}}, logs: &lockedBuffer{},
		limits: gate.Limits{Drain: time.Second},
		plan: gate.Plan{
			Action: gate.Source{URL: "https://forge.invalid/acme/checks.git"}, Commit: commitID("ac"),
			Program: "bin/check", SHA256: check.Digest{1}, Limits: runner.Limits{Wall: 60 * time.Second},
		},
	}
	w.ledger = ledgertest.NewMemory(ledgertest.MemoryConfig{Now: time.Now})
	return w
}

func commitID(pair string) fencepost.CommitID {
	id, err := fencepost.ParseCommitID(strings.Repeat(pair, 20))
	if err != nil {
		panic(err)
	}
	return id
}

func commit(pair string) gate.Commit {
	return gate.Commit{ID: commitID(pair), Tree: fencepost.TreeID{ObjectID: commitID(pair).ObjectID}}
}

// A process is one pool over the world's parts.
type process struct {
	pool  *gate.Pool
	fate  *mortality
	stop  context.CancelFunc
	ended chan error
}

// start starts a process. It dies, where diesAt is above zero, at that call of
// any part, before or after the call has had its effect.
func (w *world) start(fate *mortality) *process {
	w.t.Helper()
	if fate == nil {
		fate = &mortality{}
	}
	book, err := notebook.Open(w.disk.Process(), notebook.Limits{}, time.Now)
	if err != nil {
		w.t.Fatal(err)
	}
	lane := mortalLane{fate, w.provider}
	g := &gate.Gate{
		Name: "docs", Trust: w.trust, Lane: lane, Provider: "github", RepositoryID: "1", Plan: w.plan,
		Rule: fencepost.RouteRule{Route: "docs", TrustSet: "acme", SignedTime: fencepost.SignedTimeNone, Window: fencepost.DefaultReplayWindow},
	}
	pool, err := gate.New(gate.Config{
		Gates: []*gate.Gate{g}, Queue: mortalQueue{fate, w.queue.open()}, Ledger: mortalLedger{fate, w.ledger},
		Fetcher: fetcher{w.provider, fate}, Runner: mortalRunner{fate, w.program}, Store: mortalStore{fate, w.store},
		Notes: mortalNotes{fate, book}, Standings: mortalStandings{fate, book},
		Journal: w.journal, Alerts: w.alerts, Now: time.Now, Limits: w.limits,
		Log: slog.New(slog.NewTextHandler(w.logs, &slog.HandlerOptions{Level: slog.LevelDebug})),
	})
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, stop := context.WithCancel(w.t.Context())
	p := &process{pool: pool, fate: fate, stop: stop, ended: make(chan error, 1)}
	go func() {
		p.ended <- errors.Join(pool.Run(ctx), book.Close())
	}()
	return p
}

// end stops a process and waits for it.
func (p *process) end(t testing.TB) {
	t.Helper()
	p.stop()
	if err := <-p.ended; err != nil && !p.fate.dead() {
		t.Errorf("run: %v", err)
	}
}

// settle lets time pass until every delivery is done, for two hours at most.
func (w *world) settle() {
	w.t.Helper()
	for range 7200 {
		synctest.Wait()
		if w.queue.len() == 0 {
			return
		}
		time.Sleep(time.Second)
	}
	w.t.Fatalf("not done after two hours: %v\n%s", w.queue.left(), w.journal)
}

// run starts a process, lets it settle and ends it.
func (w *world) run() {
	w.t.Helper()
	p := w.start(nil)
	w.settle()
	p.end(w.t)
}

// note reads what is remembered of a delivery.
func (w *world) note(key fencepost.DeliveryKey) gate.Note {
	w.t.Helper()
	book, err := notebook.Open(w.disk.Process(), notebook.Limits{}, time.Now)
	if err != nil {
		w.t.Fatal(err)
	}
	note, err := book.Change(w.t.Context(), key, func(*gate.Note) {})
	if err := errors.Join(err, book.Close()); err != nil {
		w.t.Fatal(err)
	}
	return note
}

// known tells whether a subject was entered.
func (w *world) known(s gate.Subject) bool {
	w.t.Helper()
	book, err := notebook.Open(w.disk.Process(), notebook.Limits{}, time.Now)
	if err != nil {
		w.t.Fatal(err)
	}
	known, err := book.Known(w.t.Context(), "docs", s)
	if err := errors.Join(err, book.Close()); err != nil {
		w.t.Fatal(err)
	}
	return known
}

// deliver records a delivery for a head, as ingress does.
func (w *world) deliver(number int64, head fencepost.CommitID) fencepost.DeliveryKey {
	return w.deliverAs(number, head, "a", "")
}

// record makes a signed request as ingress records it.
func (w *world) record(number int64, head string) gate.Recorded {
	return w.recordAs("a", fmt.Appendf(nil, "%d %s", number, head))
}

func (w *world) recordAs(anchor fencepost.AnchorID, body []byte) gate.Recorded {
	sum := sha256.Sum256(body)
	h := fencepost.NewHeaders([]fencepost.Header{{Name: "x-signature", Value: string(anchor) + ":" + hex.EncodeToString(sum[:])}})
	return gate.Recorded{Route: "docs", Received: time.Now(), Anchor: anchor, Headers: h, Body: body}
}

func (w *world) deliverAs(number int64, head fencepost.CommitID, anchor fencepost.AnchorID, salt string) fencepost.DeliveryKey {
	w.t.Helper()
	r := w.recordAs(anchor, fmt.Appendf(nil, "%d %s %s", number, head, salt))
	h, body := r.Headers, r.Body
	proof, err := fencepost.Authenticate(fencepost.NewIngressCheck(r.Route, h, body, r.Received), trusting{})
	if err != nil {
		w.t.Fatal(err)
	}
	d, err := fencepost.Accept(proof, fencepost.RouteRule{
		Route: "docs", TrustSet: "acme", SignedTime: fencepost.SignedTimeNone, Window: fencepost.DefaultReplayWindow,
	}, h, body)
	if err != nil {
		w.t.Fatal(err)
	}
	w.queue.add(r, d.Key())
	return d.Key()
}

// wantRuns fails unless the provider shows exactly these conclusions.
func (w *world) wantRuns(want ...string) {
	w.t.Helper()
	got := []string{}
	for _, r := range w.provider.shown() {
		text := r.Conclusion.String()
		if r.Reason != "" {
			text += " " + string(r.Reason)
		}
		got = append(got, text)
	}
	if want == nil {
		want = []string{}
	}
	if !slices.Equal(got, want) {
		w.t.Errorf("shown %q, want %q\n%s", got, want, w.journal)
	}
}

// wantEnd fails unless the last event of that kind has the reason.
func (w *world) wantEnd(kind gate.Kind, want fencepost.Reason) {
	w.t.Helper()
	for _, e := range slices.Backward(w.journal.all()) {
		if e.Kind == kind {
			if e.Reason != want {
				w.t.Errorf("%s with reason %q, want %q\n%s", kind, e.Reason, want, w.journal)
			}
			return
		}
	}
	w.t.Errorf("no event %s\n%s", kind, w.journal)
}

// mortality kills a process at a chosen call. The zero value never does.
type mortality struct {
	mu     sync.Mutex
	at     int  // the call, from 1; 0 never
	before bool // before its effect, else after it
	calls  int
	gone   bool
	only   string // counts calls of this name alone, where set
	// survives makes the one call fail and leaves the process alive.
	survives bool
	// fails, where set, makes calls fail before their effect.
	fails func(name string) error
	died  string // the call at which it did
}

func (m *mortality) dead() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.gone
}

func (m *mortality) failWith(fails func(name string) error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.fails = fails
}

func (m *mortality) kill() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.gone = true
}

// errOf is the error of a call that failed: of a write, its outcome is not
// known.
func errOf(name string) error {
	if name == "create" {
		return unknown()
	}
	return errDead
}

// call does an operation, unless the process is dead or dies of it.
func call[T any](m *mortality, name string, do func() (T, error)) (T, error) {
	var zero T
	m.mu.Lock()
	if m.gone {
		m.mu.Unlock()
		return zero, errDead
	}
	if m.fails != nil {
		if err := m.fails(name); err != nil {
			m.mu.Unlock()
			return zero, err
		}
	}
	dies := false
	if m.only == "" || m.only == name {
		m.calls++
		dies = m.calls == m.at
	}
	if dies {
		m.died = name
	}
	if dies && m.before {
		m.gone = !m.survives
		m.mu.Unlock()
		return zero, errOf(name)
	}
	m.mu.Unlock()
	v, err := do()
	if dies {
		if !m.survives {
			m.kill()
		}
		return zero, errOf(name)
	}
	return v, err
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer // guarded by mu
}

func (w *lockedBuffer) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.b.Write(p)
}

func (w *lockedBuffer) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.b.String()
}

// A provider is a forge in a few lines: one request, its gate, and the results
// it shows.
type provider struct {
	mu sync.Mutex
	// Guarded by mu:
	head, base, candidate gate.Commit
	rule                  int // changes the revision and nothing else
	state                 fencepost.Reason
	results               []gate.Verdict
	creates, refreshes    int
	foreign               int // results under our key that we did not make
	hide                  int // lookups that still leave out what is there
	// What goes wrong, by call; called with mu held, the number from 1.
	onRefresh func(n int) error
	onCreate  func(n int) (before, after error)
	onFind    func() error
	onFetch   func(r gitfetch.Request) error
	inRefresh func(ctx context.Context)
	anyHead   bool // every head is its request's
	unwanted  bool // no event is let in any more
	// far is how long each call takes. Not guarded: set before the start.
	far     time.Duration
	altered bool // git's parents differ from the API's
}

func newProvider() *provider {
	return &provider{head: commit("11"), base: commit("22"), candidate: commit("33")}
}

func (p *provider) shown() []gate.Verdict {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.results)
}

func (p *provider) writes() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.creates
}

func (p *provider) set(change func(p *provider)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change(p)
}

// Admit reads "number head".
func (p *provider) Admit(_ fencepost.Headers, body []byte) (gate.Subject, error) {
	fields := strings.Fields(string(body))
	var number int64
	if len(fields) < 2 {
		return gate.Subject{}, &fencepost.Error{Op: "admit", Reason: fencepost.ReasonMalformed}
	}
	p.mu.Lock()
	unwanted := p.unwanted
	p.mu.Unlock()
	if unwanted || fields[1] == "unwanted" {
		return gate.Subject{}, &fencepost.Error{Op: "admit", Reason: fencepost.ReasonEventNotHandled}
	}
	_, err := fmt.Sscan(fields[0], &number)
	head, err2 := fencepost.ParseCommitID(fields[1])
	return gate.Subject{Number: number, Head: head, BaseRef: "refs/heads/main"}, errors.Join(err, err2)
}

func (p *provider) Refresh(ctx context.Context, s gate.Subject) (gate.Snapshot, error) {
	time.Sleep(p.far)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refreshes++
	if p.inRefresh != nil {
		p.inRefresh(ctx)
	}
	if p.onRefresh != nil {
		if err := p.onRefresh(p.refreshes); err != nil {
			return gate.Snapshot{}, err
		}
	}
	head, candidate := p.head, p.candidate
	if p.anyHead {
		head = gate.Commit{ID: s.Head, Tree: fencepost.TreeID{ObjectID: s.Head.ObjectID}}
		candidate.ID = mergeOf(s.Head)
		candidate.Tree = fencepost.TreeID{ObjectID: candidate.ID.ObjectID}
	}
	switch {
	case s.Head != head.ID:
		return gate.Snapshot{State: fencepost.ReasonSuperseded, Repository: "acme/docs"}, nil
	case p.state == fencepost.ReasonClosed, p.state == fencepost.ReasonDraft:
		return gate.Snapshot{State: p.state, Repository: "acme/docs"}, nil
	}
	e := fencepost.NewEncoder("fencepost.gate-revision/v1").Bytes(head.ID.ObjectID[:]).
		Bytes(p.base.ID.ObjectID[:]).Int(int64(p.rule)).Text(string(p.state)).Int(s.Number)
	return gate.Snapshot{
		State: p.state, Revision: e.Sum(), Repository: "acme/docs", Base: p.base, Head: head, Candidate: candidate,
		Facts: []gate.Fact{{Name: "request.state", Expected: "open", Observed: "open"}},
	}, nil
}

// mergeOf is the test merge of a head where every head has one, and the other
// way round.
func mergeOf(id fencepost.CommitID) fencepost.CommitID {
	id.ObjectID[0] ^= 0x80
	return id
}

func (p *provider) Source(gate.Snapshot) (gate.Source, error) {
	return gate.Source{URL: "https://forge.invalid/acme/docs.git"}, nil
}

func (p *provider) Compose(v gate.Verdict) ([]byte, error) { return json.Marshal(v) }

func (p *provider) Inspect(document []byte) (v gate.Verdict, err error) {
	return v, json.Unmarshal(document, &v)
}

func (p *provider) Find(_ context.Context, document []byte) (gate.Published, bool, error) {
	time.Sleep(p.far)
	v, err := p.Inspect(document)
	if err != nil {
		return gate.Published{}, false, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.onFind != nil {
		if err := p.onFind(); err != nil {
			return gate.Published{}, false, err
		}
	}
	if p.hide > 0 {
		p.hide--
		return gate.Published{}, false, nil
	}
	n := p.foreign
	for _, r := range p.results {
		if r.Evaluation == v.Evaluation {
			n++
		}
	}
	switch n {
	case 0:
		return gate.Published{}, false, nil
	case 1:
		return gate.Published{ID: v.Evaluation.String()}, true, nil
	}
	return gate.Published{}, false, &fencepost.Error{Op: "find", Reason: fencepost.ReasonPublishConflict}
}

func (p *provider) Create(_ context.Context, document []byte) (gate.Published, error) {
	time.Sleep(p.far)
	v, err := p.Inspect(document)
	if err != nil {
		return gate.Published{}, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.creates++
	var after error
	if p.onCreate != nil {
		var before error
		if before, after = p.onCreate(p.creates); before != nil {
			return gate.Published{}, before
		}
	}
	p.results = append(p.results, v)
	return gate.Published{ID: v.Evaluation.String()}, after
}

// A mortalLane is the provider as one process reaches it.
type mortalLane struct {
	fate *mortality
	*provider
}

func (l mortalLane) Refresh(ctx context.Context, s gate.Subject) (gate.Snapshot, error) {
	return call(l.fate, "refresh", func() (gate.Snapshot, error) { return l.provider.Refresh(ctx, s) })
}

func (l mortalLane) Find(ctx context.Context, d []byte) (gate.Published, bool, error) {
	type answer struct {
		p  gate.Published
		ok bool
	}
	a, err := call(l.fate, "find", func() (answer, error) {
		p, ok, err := l.provider.Find(ctx, d)
		return answer{p, ok}, err
	})
	return a.p, a.ok, err
}

func (l mortalLane) Create(ctx context.Context, d []byte) (gate.Published, error) {
	return call(l.fate, "create", func() (gate.Published, error) { return l.provider.Create(ctx, d) })
}

type trust struct {
	mu      sync.Mutex
	anchors map[fencepost.AnchorID]bool
}

func (t *trust) Trusts(a fencepost.AnchorID) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.anchors[a]
}

func (t *trust) add(a fencepost.AnchorID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.anchors[a] = true
}

func (t *trust) revoke(a fencepost.AnchorID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.anchors, a)
}

func (t *trust) Verify(h fencepost.Headers, body []byte, _ time.Time) (fencepost.Evidence, error) {
	signature, _ := h.Only("x-signature")
	anchor, _, _ := strings.Cut(signature, ":")
	if !t.Trusts(fencepost.AnchorID(anchor)) {
		return fencepost.Evidence{}, fencepost.ErrUnauthenticated
	}
	return trusting{}.Verify(h, body, time.Time{})
}

// trusting believes every anchor.
type trusting struct{}

func (trusting) Verify(h fencepost.Headers, body []byte, _ time.Time) (fencepost.Evidence, error) {
	signature, _ := h.Only("x-signature")
	anchor, sum, _ := strings.Cut(signature, ":")
	want := sha256.Sum256(body)
	if sum != hex.EncodeToString(want[:]) {
		return fencepost.Evidence{}, fencepost.ErrUnauthenticated
	}
	return fencepost.Evidence{Anchor: fencepost.AnchorID(anchor), TrustSet: "acme", Replay: fencepost.ReplayBody{}}, nil
}
