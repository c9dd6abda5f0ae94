package lanetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/gitfetch"
	"github.com/fencepost/fencepost/internal/gate"
	"github.com/fencepost/fencepost/runner"
	"github.com/fencepost/fencepost/runner/check"
)

// A queue is the inbox in memory; it outlives processes.
type queue struct {
	mu sync.Mutex
	// Guarded by mu:
	entries map[string]gate.Recorded
	order   []gate.Ticket
	changed chan struct{}
}

func newQueue() *queue {
	return &queue{entries: map[string]gate.Recorded{}, changed: make(chan struct{})}
}

func (q *queue) add(r gate.Recorded, d fencepost.DeliveryKey) {
	q.mu.Lock()
	defer q.mu.Unlock()
	t := gate.Ticket{ID: strconv.Itoa(len(q.order)), Received: r.Received, Delivery: d.ID(), Key: d}
	q.entries[t.ID] = r
	q.order = append(q.order, t)
	q.announce()
}

// announce is called with mu held.
func (q *queue) announce() {
	close(q.changed)
	q.changed = make(chan struct{})
}

// left is how many deliveries are not done, and what tells of a change.
func (q *queue) left() (int, <-chan struct{}) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.entries), q.changed
}

// A reader is a queue as one process reads it.
type reader struct {
	*queue
	dead *mortality
	next int // of order; Next is called by one goroutine
}

// Next implements [gate.Queue].
func (r *reader) Next(ctx context.Context) (gate.Ticket, error) {
	for {
		r.mu.Lock()
		changed := r.changed
		for r.next < len(r.order) {
			t := r.order[r.next]
			r.next++
			if _, there := r.entries[t.ID]; there {
				r.mu.Unlock()
				return t, nil
			}
		}
		r.mu.Unlock()
		select {
		case <-ctx.Done():
			return gate.Ticket{}, context.Cause(ctx)
		case <-changed:
		}
	}
}

// Read implements [gate.Queue].
func (r *reader) Read(_ context.Context, t gate.Ticket) (gate.Recorded, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	rec, ok := r.entries[t.ID]
	if !ok {
		return gate.Recorded{}, gate.ErrNotHeld
	}
	return rec, nil
}

// Done implements [gate.Queue].
func (r *reader) Done(_ context.Context, t gate.Ticket) error {
	if r.dead.is() {
		return errDead
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.entries, t.ID)
	r.announce()
	return nil
}

// errDead is what the calls of a killed process get.
var errDead = errors.New("the process is dead")

// A mortality tells whether a process was killed. Its disk is dead as well; this
// is for what is not on the disk.
type mortality struct {
	mu   sync.Mutex
	gone bool // guarded by mu
}

func (m *mortality) is() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.gone
}

func (m *mortality) kill() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.gone = true
}

// A journal keeps events.
type journal struct {
	mu     sync.Mutex
	events []gate.Event // guarded by mu
}

// Record implements [gate.Journal].
func (j *journal) Record(_ context.Context, e gate.Event) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.events = append(j.events, e)
	return nil
}

// of returns the events of a delivery.
func (j *journal) of(d fencepost.DeliveryID) []gate.Event {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(j.events), func(e gate.Event) bool { return e.Delivery != d })
}

// all is the journal in words.
func (j *journal) all() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	var b strings.Builder
	for _, e := range j.events {
		fmt.Fprintf(&b, "%s %s %s %s %v\n", e.Delivery, e.Kind, e.Evaluation, e.Reason, e.Details)
	}
	return b.String()
}

func (j *journal) String() string { return ending(j.all()) }

// Alerts that are open.
type alerts struct {
	mu sync.Mutex
	// Guarded by mu:
	open    map[string]gate.Alert
	raised  []gate.Alert
	changed chan struct{}
}

func newAlerts() *alerts {
	return &alerts{open: map[string]gate.Alert{}, changed: make(chan struct{})}
}

// Raise implements [gate.Alerts].
func (a *alerts) Raise(l gate.Alert) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.open[string(l.Code)+" "+l.Subject] = l
	a.raised = append(a.raised, l)
	close(a.changed)
	a.changed = make(chan struct{})
}

// Resolve implements [gate.Alerts].
func (a *alerts) Resolve(code gate.AlertCode, subject string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.open, string(code)+" "+subject)
}

// has reports whether an alert of that code was ever raised, and what tells of a
// change.
func (a *alerts) has(code gate.AlertCode) (bool, <-chan struct{}) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.ContainsFunc(a.raised, func(l gate.Alert) bool { return l.Code == code }), a.changed
}

// all is every alert that was raised.
func (a *alerts) all() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return fmt.Sprint(a.raised)
}

// left lists the alerts that are open.
func (a *alerts) left() []gate.Alert {
	a.mu.Lock()
	defer a.mu.Unlock()
	var open []gate.Alert
	for _, l := range a.open {
		open = append(open, l)
	}
	return open
}

// A store keeps evidence in memory.
type store struct {
	mu   sync.Mutex
	kept []string // guarded by mu
}

// Put implements [gate.Store].
func (s *store) Put(_ context.Context, data []byte) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.kept = append(s.kept, string(data))
	return "art_" + strconv.Itoa(len(s.kept)), nil
}

func (s *store) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(s.kept, "\n")
}

// A program is what runs: it concludes at once, and does nothing with the files.
type program struct {
	mu sync.Mutex
	// Guarded by mu:
	block  bool
	runs   int
	during func(run int, evaluation string) // called without mu
}

func (p *program) set(block bool, during func(run int, evaluation string)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.block, p.during = block, during
}

func (p *program) count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.runs
}

// Run implements [gate.Runner]: it renews its lease before and after.
func (p *program) Run(ctx context.Context, j runner.Job) runner.Record {
	p.mu.Lock()
	p.runs++
	run, block, during := p.runs, p.block, p.during
	p.mu.Unlock()
	lost := func(err error) runner.Record {
		return runner.Record{Outcome: runner.Failed{Reason: fencepost.ReasonLost, Err: err}, Request: []byte("{}")}
	}
	if _, err := j.Lease.Renew(ctx); err != nil {
		return lost(err)
	}
	if during != nil {
		evaluation, _, _ := strings.Cut(j.Run, ":")
		during(run, evaluation)
	}
	if _, err := j.Lease.Renew(ctx); err != nil {
		return lost(err)
	}
	conclusion := check.ConclusionPass
	if block {
		conclusion = check.ConclusionBlock
	}
	return runner.Record{Request: []byte("{}"), Outcome: runner.Concluded{
		Result: check.Result{Conclusion: conclusion, Title: "All links lead somewhere", Summary: "2 files, 0 broken links"},
		Report: []byte("{}"), ResultBytes: []byte("{}"),
	}}
}

// actionURL is where the plan's action would be.
const actionURL = "https://checks.invalid/acme/checks.git"

// A fetcher fetches each commit once, for real, and gives what it was from then
// on: nothing reads the files. The action is not fetched at all.
type fetcher struct {
	workspace *gitfetch.Workspace
	transport *gitfetch.Transport
	before    func() // called before each fetch from the provider

	mu   sync.Mutex
	seen map[string]checkout // guarded by mu
}

// Fetch implements [gate.Fetcher].
func (f *fetcher) Fetch(ctx context.Context, r gitfetch.Request) (gate.Checkout, error) {
	if r.URL == actionURL {
		return checkout{commit: r.Commit, tree: fencepost.TreeID{ObjectID: r.Commit.ObjectID}}, nil
	}
	key := r.URL + " " + r.Commit.String()
	f.mu.Lock()
	c, ok := f.seen[key]
	f.mu.Unlock()
	if ok {
		return c, nil
	}
	f.before()
	r.Transport = f.transport
	fetched, err := f.workspace.Fetch(ctx, r)
	if err != nil {
		return nil, err
	}
	c = checkout{fetched.Commit(), fetched.Tree(), fetched.Parents()}
	if err := fetched.Remove(); err != nil {
		return nil, err
	}
	f.mu.Lock()
	f.seen[key] = c
	f.mu.Unlock()
	return c, nil
}

func (f *fetcher) close() error {
	f.transport.Close()
	return f.workspace.Close()
}

// A checkout is what is left of one whose files are gone.
type checkout struct {
	commit  fencepost.CommitID
	tree    fencepost.TreeID
	parents []fencepost.CommitID
}

// Commit implements [gate.Checkout], as all methods here do.
func (c checkout) Commit() fencepost.CommitID { return c.commit }

// Tree is the commit's.
func (c checkout) Tree() fencepost.TreeID { return c.tree }

// Root leads nowhere.
func (c checkout) Root() string { return "/nonexistent" }

// Verify has nothing to verify.
func (c checkout) Verify(context.Context) error { return nil }

// Parents are the commit's.
func (c checkout) Parents() []fencepost.CommitID { return c.parents }

// Stats say that it is one file.
func (c checkout) Stats() gitfetch.Stats { return gitfetch.Stats{Files: 1} }

// Remove has nothing to remove.
func (c checkout) Remove() error { return nil }

// A timer is the suite's clock: the machine's, and what was added to it.
type timer struct {
	read func() time.Time

	mu    sync.Mutex
	ahead time.Duration // guarded by mu
}

func (c *timer) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.read().Add(c.ahead)
}

func (c *timer) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ahead += d
}
