package gate_test

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/gitfetch"
	"github.com/fencepost/fencepost/internal/gate"
	"github.com/fencepost/fencepost/internal/gate/notebook"
	"github.com/fencepost/fencepost/ledger"
	"github.com/fencepost/fencepost/ledger/ledgertest"
	"github.com/fencepost/fencepost/runner"
	"github.com/fencepost/fencepost/runner/check"
)

// A queue is the inbox in memory; it outlives processes.
type queue struct {
	mu sync.Mutex
	// Guarded by mu:
	seq     int
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
	q.seq++
	t := gate.Ticket{ID: strconv.Itoa(q.seq), Received: r.Received, Delivery: d.ID(), Key: d}
	q.entries[t.ID] = r
	q.order = append(q.order, t)
	close(q.changed)
	q.changed = make(chan struct{})
}

// alter changes every recorded body.
func (q *queue) alter(change func(r *gate.Recorded)) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for id, r := range q.entries {
		change(&r)
		q.entries[id] = r
	}
}

func (q *queue) len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.entries)
}

// keys are of all that was ever recorded, in order.
func (q *queue) keys() []fencepost.DeliveryKey {
	q.mu.Lock()
	defer q.mu.Unlock()
	var keys []fencepost.DeliveryKey
	for _, t := range q.order {
		keys = append(keys, t.Key)
	}
	return keys
}

func (q *queue) left() []string {
	q.mu.Lock()
	defer q.mu.Unlock()
	var left []string
	for _, r := range q.entries {
		left = append(left, string(r.Body))
	}
	slices.Sort(left)
	return left
}

// A reader is a queue as one process reads it.
type reader struct {
	*queue
	seen map[string]bool
}

func (q *queue) open() *reader { return &reader{queue: q, seen: map[string]bool{}} }

func (r *reader) Next(ctx context.Context) (gate.Ticket, error) {
	for {
		r.mu.Lock()
		changed := r.changed
		for _, t := range r.order {
			if _, there := r.entries[t.ID]; there && !r.seen[t.ID] {
				r.seen[t.ID] = true
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

func (r *reader) Read(_ context.Context, t gate.Ticket) (gate.Recorded, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	rec, ok := r.entries[t.ID]
	if !ok {
		return gate.Recorded{}, errors.New("no such entry")
	}
	return rec, nil
}

func (r *reader) Done(_ context.Context, t gate.Ticket) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.entries, t.ID)
	return nil
}

type mortalQueue struct {
	fate *mortality
	*reader
}

func (q mortalQueue) Read(ctx context.Context, t gate.Ticket) (gate.Recorded, error) {
	return call(q.fate, "read", func() (gate.Recorded, error) { return q.reader.Read(ctx, t) })
}

func (q mortalQueue) Done(ctx context.Context, t gate.Ticket) error {
	_, err := call(q.fate, "done", func() (struct{}, error) { return struct{}{}, q.reader.Done(ctx, t) })
	return err
}

type mortalLedger struct {
	fate *mortality
	*ledgertest.Memory
}

func (l mortalLedger) Claim(ctx context.Context, d fencepost.AcceptedDelivery) (fencepost.Claim, error) {
	return call(l.fate, "claim", func() (fencepost.Claim, error) { return l.Memory.Claim(ctx, d) })
}

func (l mortalLedger) Lookup(ctx context.Context, d fencepost.DeliveryKey) (ledger.Row, bool, error) {
	type answer struct {
		row ledger.Row
		ok  bool
	}
	a, err := call(l.fate, "lookup", func() (answer, error) {
		row, ok, err := l.Memory.Lookup(ctx, d)
		return answer{row, ok}, err
	})
	return a.row, a.ok, err
}

func (l mortalLedger) Renew(ctx context.Context, d fencepost.AcceptedDelivery, lease fencepost.Lease) (fencepost.Renewal, error) {
	return call(l.fate, "renew", func() (fencepost.Renewal, error) { return l.Memory.Renew(ctx, d, lease) })
}

func (l mortalLedger) Stage(ctx context.Context, d fencepost.AcceptedDelivery, lease fencepost.Lease, p fencepost.Publication) (fencepost.StageOutcome, error) {
	return call(l.fate, "stage", func() (fencepost.StageOutcome, error) { return l.Memory.Stage(ctx, d, lease, p) })
}

func (l mortalLedger) Complete(ctx context.Context, d fencepost.AcceptedDelivery, s fencepost.StagedPublication) (fencepost.Completion, error) {
	return call(l.fate, "complete", func() (fencepost.Completion, error) { return l.Memory.Complete(ctx, d, s) })
}

type mortalNotes struct {
	fate *mortality
	book *notebook.Notebook
}

func (n mortalNotes) Change(ctx context.Context, d fencepost.DeliveryKey, change func(*gate.Note)) (gate.Note, error) {
	return call(n.fate, "note", func() (gate.Note, error) { return n.book.Change(ctx, d, change) })
}

func (n mortalNotes) Forget(ctx context.Context, d fencepost.DeliveryKey) error {
	_, err := call(n.fate, "forget", func() (struct{}, error) { return struct{}{}, n.book.Forget(ctx, d) })
	return err
}

type mortalStandings struct {
	fate *mortality
	book *notebook.Notebook
}

func (n mortalStandings) Enter(ctx context.Context, g gate.Name, s gate.Subject) (gate.Standing, error) {
	return call(n.fate, "enter", func() (gate.Standing, error) { return n.book.Enter(ctx, g, s) })
}

func (n mortalStandings) Newest(ctx context.Context, g gate.Name, s gate.Subject) (gate.Standing, error) {
	return n.book.Newest(ctx, g, s)
}

func (n mortalStandings) Advance(ctx context.Context, g gate.Name, s gate.Subject, st gate.Standing) (gate.Standing, error) {
	return call(n.fate, "advance", func() (gate.Standing, error) { return n.book.Advance(ctx, g, s, st) })
}

func (n mortalStandings) Leave(ctx context.Context, g gate.Name, s gate.Subject) error {
	_, err := call(n.fate, "leave", func() (struct{}, error) { return struct{}{}, n.book.Leave(ctx, g, s) })
	return err
}

func (n mortalStandings) Known(ctx context.Context, g gate.Name, s gate.Subject) (bool, error) {
	return n.book.Known(ctx, g, s)
}

// A checkout is a tree of no files.
type checkout struct {
	commit  gate.Commit
	parents []fencepost.CommitID
	removed func() error
}

func (c checkout) Commit() fencepost.CommitID    { return c.commit.ID }
func (c checkout) Tree() fencepost.TreeID        { return c.commit.Tree }
func (c checkout) Root() string                  { return "/nowhere" }
func (c checkout) Verify(context.Context) error  { return nil }
func (c checkout) Parents() []fencepost.CommitID { return c.parents }
func (c checkout) Stats() gitfetch.Stats         { return gitfetch.Stats{Files: 1} }
func (c checkout) Remove() error                 { return c.removed() }

// A fetcher makes checkouts of what the provider has.
type fetcher struct {
	p    *provider
	fate *mortality
}

func (f fetcher) Fetch(_ context.Context, r gitfetch.Request) (gate.Checkout, error) {
	return call(f.fate, "fetch", func() (gate.Checkout, error) {
		f.p.mu.Lock()
		defer f.p.mu.Unlock()
		if f.p.onFetch != nil {
			if err := f.p.onFetch(r); err != nil {
				return nil, err
			}
		}
		c := checkout{commit: gate.Commit{ID: r.Commit, Tree: fencepost.TreeID{ObjectID: r.Commit.ObjectID}}, removed: f.p.remove}
		if f.p.anyHead {
			c.parents = []fencepost.CommitID{f.p.base.ID, mergeOf(r.Commit)}
		}
		if r.Commit == f.p.candidate.ID {
			c.parents = []fencepost.CommitID{f.p.base.ID, f.p.head.ID}
			if f.p.altered {
				c.parents[0] = f.p.head.ID
			}
		}
		return c, nil
	})
}

// A program is what runs.
type program struct {
	mu sync.Mutex
	// Guarded by mu:
	pass   bool
	takes  time.Duration
	reason fencepost.Reason // fails with it, unless empty
	left   error            // what could not be cleaned up
	// during is called while a run lasts, without mu.
	during func(run int)
	runs   int
	live   int
	most   int // runs at once
	jobs   []runner.Job
}

func (p *program) set(change func(p *program)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change(p)
}

func (p *program) count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.runs
}

func (p *program) running() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.live
}

func (p *program) mostAtOnce() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.most
}

func (p *program) Run(ctx context.Context, j runner.Job) runner.Record {
	p.mu.Lock()
	p.runs++
	p.live++
	p.most = max(p.most, p.live)
	p.jobs = append(p.jobs, j)
	run, pass, takes, reason, during, left := p.runs, p.pass, p.takes, p.reason, p.during, p.left
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.live--
	}()
	fail := func(r fencepost.Reason, err error) runner.Record {
		return runner.Record{Outcome: runner.Failed{Reason: r, Err: err}, Request: []byte(`{"run":"r"}`)}
	}
	if _, err := j.Lease.Renew(ctx); err != nil {
		return fail(fencepost.ReasonLost, err)
	}
	lost := make(chan error, 1)
	beat, stop := context.WithCancel(ctx)
	go func() { lost <- runner.Keep(beat, j.Lease, time.Now) }()
	if during != nil {
		during(run)
	}
	timer := time.NewTimer(takes)
	defer timer.Stop()
	select {
	case <-timer.C:
		stop()
		<-lost
	case err := <-lost:
		stop()
		if ctx.Err() != nil {
			return fail(fencepost.ReasonUnavailable, context.Cause(ctx))
		}
		return fail(fencepost.ReasonLost, err)
	}
	if reason != "" {
		return fail(reason, errors.New("as the test wants it"))
	}
	conclusion := check.ConclusionBlock
	if pass {
		conclusion = check.ConclusionPass
	}
	return runner.Record{
		Request: []byte(`{"run":"r"}`), Duration: takes, Cleanup: left,
		Protections: []runner.ProtectionState{{Protection: runner.ProtectionLandlock, On: true}},
		Outcome: runner.Concluded{
			Result: check.Result{Conclusion: conclusion, Title: "Title " + strconv.Itoa(run), Summary: "Summary"},
			Report: []byte(`{"links": 2}`), ResultBytes: []byte(`{"conclusion":"pass"}`),
		},
	}
}

type mortalRunner struct {
	fate *mortality
	*program
}

func (r mortalRunner) Run(ctx context.Context, j runner.Job) runner.Record {
	record, err := call(r.fate, "run", func() (runner.Record, error) { return r.program.Run(ctx, j), nil })
	if err != nil {
		return runner.Record{Outcome: runner.Failed{Reason: fencepost.ReasonUnavailable, Err: err}}
	}
	return record
}

// A store keeps evidence in memory.
type store struct {
	mu   sync.Mutex
	kept []string
	fail error
}

func (s *store) Put(_ context.Context, data []byte) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fail != nil {
		return "", s.fail
	}
	s.kept = append(s.kept, string(data))
	return "art_" + strconv.Itoa(len(s.kept)), nil
}

func (s *store) setFail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fail = err
}

func (s *store) last() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.kept) == 0 {
		return ""
	}
	return s.kept[len(s.kept)-1]
}

type mortalStore struct {
	fate *mortality
	*store
}

func (s mortalStore) Put(ctx context.Context, data []byte) (string, error) {
	return call(s.fate, "put", func() (string, error) { return s.store.Put(ctx, data) })
}
