package lanetest

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/gitfetch"
	"github.com/fencepost/fencepost/internal/clock"
	"github.com/fencepost/fencepost/internal/durable"
	"github.com/fencepost/fencepost/internal/durable/crashfs"
	"github.com/fencepost/fencepost/internal/gate"
	"github.com/fencepost/fencepost/internal/gate/notebook"
	"github.com/fencepost/fencepost/ledger"
	"github.com/fencepost/fencepost/ledger/fileledger"
	"github.com/fencepost/fencepost/runner"
	"github.com/fencepost/fencepost/runner/check"
)

const (
	// patience is how long a scenario waits for what must come; it passes only
	// where something is broken.
	patience = 30 * time.Second
	// moment is how long it waits for what must not come.
	moment = 50 * time.Millisecond
	lease  = time.Minute
)

// A rig is one scenario under way: a world, and what outlives the processes of
// the gate.
type rig struct {
	*testing.T
	suite   Suite
	clock   *timer
	wire    *Wire
	world   World
	disk    *crashfs.Disk
	queue   *queue
	journal *journal
	alerts  *alerts
	program *program
	store   *store
	fetcher *fetcher
	limits  gate.Limits
	logs    *logs

	mu sync.Mutex
	// Guarded by mu:
	told map[fencepost.DeliveryID]fencepost.Reason // what a lane was told of ends
	sent []string                                  // header values of events
}

func newRig(t *testing.T, s Suite) *rig {
	t.Helper()
	r := &rig{
		T: t, suite: s, clock: &timer{read: clock.System().Now}, disk: crashfs.New(crashfs.Options{}), queue: newQueue(),
		journal: &journal{}, alerts: newAlerts(), program: &program{}, store: &store{}, logs: &logs{},
		told: map[fencepost.DeliveryID]fencepost.Reason{},
		// What fails is tried again at once; nothing else differs.
		limits: gate.Limits{
			Lease: lease, Backoff: time.Millisecond, MaxBackoff: 4 * time.Millisecond, LookPause: time.Millisecond, Drain: patience,
			Workers: 2,
		},
	}
	r.wire = &Wire{now: r.clock.now, writes: s.Writes}
	workspace, err := gitfetch.OpenWorkspace(t.TempDir())
	r.must(err)
	r.fetcher = &fetcher{workspace: workspace, transport: gitfetch.NewTransport(gitfetch.TransportOptions{}), before: func() {}, seen: map[string]checkout{}}
	t.Cleanup(func() {
		if err := r.fetcher.close(); err != nil {
			t.Error(err)
		}
	})
	r.world = s.New(t, r.clock.now, r.wire)
	return r
}

func (r *rig) must(err error) {
	r.Helper()
	if err != nil {
		r.Fatal(err)
	}
}

// A process is one pool over the rig's stores.
type process struct {
	rig   *rig
	pool  *gate.Pool
	disk  *crashfs.Process
	dead  *mortality
	stop  context.CancelFunc
	ended chan error
}

// start starts a process, which shares the disk with those before it.
func (r *rig) start() *process {
	r.Helper()
	p := &process{rig: r, disk: r.disk.Process(), dead: &mortality{}, ended: make(chan error, 1)}
	ctx, stop := context.WithCancel(r.Context())
	p.stop = stop
	book, err := fileledger.OpenOn(ctx, p.disk, fileledger.Config{
		Dir: "ledger", Lease: lease, Shards: 1, SegmentBytes: fileledger.MinSegment, Maintain: -1, Volatile: true, Now: r.clock.now, Instant: r.instant,
	})
	r.must(err)
	paper := r.notebook(p.disk)
	g := r.world.Gate(r)
	g.Name, g.Plan = "docs", gate.Plan{
		Action: gate.Source{URL: actionURL}, Commit: fencepost.CommitID{ObjectID: fencepost.ObjectID{0xac}},
		Program: "bin/check", SHA256: check.Digest{1}, Limits: runner.Limits{Wall: time.Minute},
	}
	g.Lane = &named{Lane: g.Lane, told: r.tell}
	p.pool, err = gate.New(gate.Config{
		Gates: []*gate.Gate{g}, Queue: &reader{queue: r.queue, dead: p.dead}, Ledger: book, Fetcher: r.fetcher, Runner: r.program,
		Store: r.store, Notes: paper, Standings: paper, Journal: r.journal, Alerts: r.alerts, Now: r.clock.now, Limits: r.limits,
		Log: slog.New(slog.NewTextHandler(r.logs, &slog.HandlerOptions{Level: slog.LevelDebug})),
	})
	r.must(err)
	go func() {
		err := p.pool.Run(ctx)
		p.ended <- errors.Join(err, paper.Close(), book.Close())
	}()
	return p
}

func (r *rig) notebook(disk *crashfs.Process) *notebook.Notebook {
	r.Helper()
	if err := disk.Mkdir("notebook", 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		r.Fatal(err)
	}
	paper, err := notebook.Open(durable.Sub(disk, "notebook"), notebook.Limits{}, r.clock.now)
	r.must(err)
	return paper
}

func (r *rig) instant() ledger.Instant {
	return ledger.Instant{Boot: ledger.BootID{1}, At: time.Duration(r.clock.now().UnixNano())}
}

func (r *rig) tell(d fencepost.DeliveryID, why fencepost.Reason) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.told[d] = why
}

// kill makes the process's further writes fail, as kill -9 does; what it waits
// for elsewhere goes on until end.
func (p *process) kill() {
	p.dead.kill()
	p.disk.Kill()
}

// end stops the process and waits for it.
func (p *process) end() {
	p.rig.Helper()
	p.stop()
	if err := <-p.ended; err != nil && !p.dead.is() {
		p.rig.Errorf("a process ended with %v", err)
	}
}

// deliver records an event as ingress does.
func (r *rig) deliver(e Event) fencepost.AcceptedDelivery {
	r.Helper()
	g := r.world.Gate(r)
	recorded := gate.Recorded{Route: g.Rule.Route, Received: r.clock.now(), Headers: e.Headers, Body: e.Body}
	proof, err := fencepost.Authenticate(fencepost.NewIngressCheck(recorded.Route, e.Headers, e.Body, recorded.Received), g.Trust)
	r.must(err)
	d, err := fencepost.Accept(proof, g.Rule, e.Headers, e.Body)
	r.must(err)
	recorded.Anchor = d.Anchor()
	r.mu.Lock()
	for _, h := range e.Headers.All() {
		r.sent = append(r.sent, h.Value)
	}
	r.mu.Unlock()
	r.queue.add(recorded, d.Key())
	return d
}

// wantClean fails if log, journal, alerts or evidence hold a secret of the world,
// what signed an event, or words from outside. Invariant 16
func (r *rig) wantClean() {
	r.Helper()
	r.mu.Lock()
	sent := slices.Clone(r.sent)
	r.mu.Unlock()
	forbidden := append(r.world.Secrets(), canary, "192.0.2.7")
	for _, value := range sent {
		// Shorter ones are no signatures: names of events, sizes, hosts.
		if len(value) >= 40 {
			forbidden = append(forbidden, value, strings.TrimPrefix(strings.TrimPrefix(value, "sha256="), "Bearer "))
		}
	}
	outputs := map[string]string{
		"log": r.logs.all(), "journal": r.journal.all(), "alerts": r.alerts.all(), "evidence": r.store.String(),
	}
	for where, text := range outputs {
		for _, f := range forbidden {
			if f == "" || strings.Contains(text, f) {
				r.Errorf("the %s holds %q, which belongs nowhere:\n%s", where, f, ending(text))
			}
		}
	}
	if outputs["journal"] == "" {
		r.Error("nothing was told at all")
	}
}

// settle waits until every delivery is done.
func (r *rig) settle() {
	r.Helper()
	timeout := time.NewTimer(patience)
	defer timeout.Stop()
	for {
		n, changed := r.queue.left()
		if n == 0 {
			return
		}
		select {
		case <-changed:
		case <-timeout.C:
			r.Fatalf("%d deliveries are not done\n%s\n%v\n%s", n, r.journal, r.alerts.left(), r.logs)
		}
	}
}

// work starts a process, lets it settle and ends it.
func (r *rig) work() {
	r.Helper()
	p := r.start()
	r.settle()
	p.end()
}

// verdict has a new event of the request worked off by a new process.
func (r *rig) verdict(q Request) fencepost.AcceptedDelivery {
	r.Helper()
	d := r.deliver(r.world.Event(r, q))
	r.work()
	return d
}

// evaluationOf is the evaluation of a delivery; "" before it was claimed.
func (r *rig) evaluationOf(d fencepost.AcceptedDelivery) string {
	r.Helper()
	id := ""
	for _, e := range r.journal.of(d.ID()) {
		if id != "" && e.Evaluation != "" && e.Evaluation != id {
			r.Errorf("invariant 4: delivery %s has evaluations %s and %s", d.ID(), id, e.Evaluation)
		}
		id = max(id, e.Evaluation)
	}
	return id
}

// wantShown fails unless the provider shows this one result of a delivery, once.
func (r *rig) wantShown(q Request, d fencepost.AcceptedDelivery, want gate.Conclusion) {
	r.Helper()
	id, found := r.evaluationOf(d), 0
	for _, s := range r.world.Shown(r, q) {
		if s.Evaluation != id {
			continue
		}
		found++
		if s.Conclusion != want || s.Copies != 1 || s.Partial {
			r.Errorf("shown %+v, want %s once", s, want)
		}
	}
	if found != 1 {
		r.Errorf("%d results are shown of %s, want %s\n%s\n%s", found, id, want, r.journal, r.logs)
	}
	r.wantEnd(d, fencepost.ReasonNone)
}

// wantNothing fails if anything is shown of a delivery that could count.
func (r *rig) wantNothing(q Request, d fencepost.AcceptedDelivery) {
	r.Helper()
	id := r.evaluationOf(d)
	for _, s := range r.world.Shown(r, q) {
		if s.Evaluation == id {
			r.Errorf("shown %+v, want nothing of it\n%s", s, r.journal)
		}
	}
}

// wantEnd fails unless the delivery ended, for one of these reasons, and its
// lane was told so.
func (r *rig) wantEnd(d fencepost.AcceptedDelivery, want ...fencepost.Reason) {
	r.Helper()
	// A worker without a lease may have told of its run since.
	var last gate.Event
	for _, e := range r.journal.of(d.ID()) {
		if e.Kind == gate.KindEnded || e.Kind == gate.KindRefused {
			last = e
		}
	}
	if last.Kind != gate.KindEnded || !slices.Contains(want, last.Reason) {
		r.Errorf("%s for %q, want an end for one of %q\n%s\n%s", last.Kind, last.Reason, want, r.journal, r.logs)
	}
	r.mu.Lock()
	told, ok := r.told[d.ID()]
	r.mu.Unlock()
	if !ok || told != last.Reason {
		r.Errorf("the lane was told %q (%v), want %q", told, ok, last.Reason)
	}
}

// wantStaged fails unless a failure for one of these reasons was staged.
func (r *rig) wantStaged(d fencepost.AcceptedDelivery, want ...fencepost.Reason) {
	r.Helper()
	for _, e := range r.journal.of(d.ID()) {
		if e.Kind == gate.KindStaged {
			if !slices.Contains(want, e.Reason) {
				r.Errorf("staged for %q, want one of %q\n%s", e.Reason, want, r.journal)
			}
			return
		}
	}
	r.Errorf("nothing was staged\n%s", r.journal)
}

// wantAlert waits for an alert.
func (r *rig) wantAlert(code gate.AlertCode) {
	r.Helper()
	timeout := time.NewTimer(patience)
	defer timeout.Stop()
	for {
		ok, changed := r.alerts.has(code)
		if ok {
			return
		}
		select {
		case <-changed:
		case <-timeout.C:
			r.Fatalf("no alert %s\n%s\n%s", code, r.journal, r.logs)
		}
	}
}

// wantCalm fails if an alert is open.
func (r *rig) wantCalm() {
	r.Helper()
	if open := r.alerts.left(); len(open) > 0 {
		r.Errorf("alerts %+v, want none open", open)
	}
}

// wantLocked fails if the provider would let the request be merged, or would not
// where locked is false.
func (r *rig) wantLocked(q Request, locked bool) {
	r.Helper()
	if why := r.world.Locked(r, q); (why != "") != locked {
		r.Errorf("locked for %q, want locked %v\n%s", why, locked, r.journal)
	}
}

// wantRuns fails unless the program ran so often in all.
func (r *rig) wantRuns(want int) {
	r.Helper()
	if n := r.program.count(); n != want {
		r.Errorf("the program ran %d times, want %d\n%s", n, want, r.journal)
	}
}

// writes counts the calls that show a result, by what they do.
func writesIn(calls []Call) map[string]int {
	n := map[string]int{}
	for _, c := range calls {
		if c.Write {
			n[c.Op]++
		}
	}
	return n
}

// once fails unless each kind of write was sent once.
func (r *rig) wantWrittenOnce(calls []Call) {
	r.Helper()
	n := writesIn(calls)
	if len(n) == 0 {
		r.Error("nothing was written")
	}
	for op, times := range n {
		if times != 1 {
			r.Errorf("%s was sent %d times\n%s", op, times, r.journal)
		}
	}
}

// logs keeps what is logged.
type logs struct {
	mu sync.Mutex
	b  bytes.Buffer // guarded by mu
}

// Write implements [io.Writer].
func (l *logs) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logs) String() string { return ending(l.all()) }

// all is the whole log.
func (l *logs) all() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// ending is the last lines of a text.
func ending(s string) string {
	const most = 20
	lines := strings.SplitAfter(s, "\n")
	return strings.Join(lines[max(0, len(lines)-most):], "")
}
