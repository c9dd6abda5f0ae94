package gate_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
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
	// waiting, where set, is told of ends: the lane is a [gate.Awaited].
	waiting *waiting
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
	var lane gate.Lane = mortalLane{fate, w.provider}
	if w.waiting != nil {
		lane = awaitedLane{mortalLane{fate, w.provider}, w.waiting}
	}
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

type trust struct {
	mu      sync.Mutex
	anchors map[fencepost.AnchorID]bool
	fail    error
}

// failing makes every look fail; nil ends that.
func (t *trust) failing(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.fail = err
}

func (t *trust) failure() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.fail
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
	if err := t.failure(); err != nil {
		return fencepost.Evidence{}, err
	}
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
