package source_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net/http/cgi"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/gitfetch"
	"github.com/fencepost/fencepost/internal/clock"
	"github.com/fencepost/fencepost/internal/source"
	"github.com/fencepost/fencepost/internal/source/jobs"
	"github.com/fencepost/fencepost/internal/source/sourcedb"
	"github.com/fencepost/fencepost/internal/store"
)

// anyCheckout is a real checkout, which only package gitfetch can make. These
// stories are about time; what is in it doesn't matter to them.
var anyCheckout = sync.OnceValues(func() (*gitfetch.Checkout, error) {
	dir, err := os.MkdirTemp("", "fencepost-fourteen-")
	if err != nil {
		return nil, err
	}
	git := func(args ...string) (string, error) {
		cmd := exec.Command("git", append([]string{"-C", filepath.Join(dir, "repo.git")}, args...)...)
		cmd.Env = append(os.Environ(), "GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.org",
			"GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@example.org", "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null")
		out, err := cmd.Output()
		return strings.TrimSpace(string(out)), err
	}
	if err := os.Mkdir(filepath.Join(dir, "repo.git"), 0o700); err != nil {
		return nil, err
	}
	if _, err := git("init", "--bare", "-q"); err != nil {
		return nil, err
	}
	tree, err := git("mktree", "--missing")
	if err != nil {
		return nil, err
	}
	commit, err := git("commit-tree", "-m", "empty", tree)
	if err != nil {
		return nil, err
	}
	if _, err := git("update-ref", "refs/heads/main", commit); err != nil {
		return nil, err
	}
	core, err := exec.Command("git", "--exec-path").Output()
	if err != nil {
		return nil, err
	}
	server := httptest.NewServer(&cgi.Handler{
		Path: filepath.Join(strings.TrimSpace(string(core)), "git-http-backend"),
		Env:  []string{"GIT_PROJECT_ROOT=" + dir, "GIT_HTTP_EXPORT_ALL=1", "GIT_PROTOCOL=version=2"},
	})
	defer server.Close()
	id, err := fencepost.ParseCommitID(commit)
	if err != nil {
		return nil, err
	}
	return gitfetch.Fetch(context.Background(), gitfetch.Request{
		URL: server.URL + "/repo.git", Commit: id, Dir: filepath.Join(dir, "checkout"), AllowHTTP: true,
	})
})

func TestMain(m *testing.M) {
	code := m.Run()
	if c, err := anyCheckout(); err == nil {
		if err := os.RemoveAll(filepath.Dir(c.Root())); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// An outside is one source's provider and sink, with switches for what fails.
// Heads are numbered along one line of history; zero is none.
type outside struct {
	mu              sync.Mutex
	checkout        *gitfetch.Checkout
	head, shown     byte             // shown stands in for head where it is set
	why             fencepost.Reason // why looking fails, where it is set
	slow            time.Duration    // how long the sink takes
	hang            bool             // the sink never returns while this is set
	fetched         byte
	applied         byte
	observed, tries int
	late            int // applications whose guard refused
}

func (o *outside) set(change func(*outside)) {
	o.mu.Lock()
	defer o.mu.Unlock()
	change(o)
}

func number(n byte) (c fencepost.CommitID) {
	if n != 0 {
		c.ObjectID[19] = n
	}
	return c
}

func (o *outside) Observe(context.Context) (source.Observation, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.why != "" {
		return source.Observation{}, &fencepost.Error{Op: "observe", Reason: o.why, Err: errors.New("by the script")}
	}
	o.observed++
	if o.shown != 0 {
		return source.Observation{Head: number(o.shown)}, nil
	}
	return source.Observation{Head: number(o.head)}, nil
}

func (*outside) Contains(_ context.Context, head, other fencepost.CommitID) (source.Ancestry, error) {
	switch a, b := head.ObjectID[19], other.ObjectID[19]; {
	case a == b:
		return source.Same, nil
	case a > b:
		return source.Ahead, nil
	}
	return source.Behind, nil
}

func (o *outside) Fetch(_ context.Context, head fencepost.CommitID, _ source.Place) (*gitfetch.Checkout, error) {
	o.set(func(o *outside) { o.fetched = head.ObjectID[19] })
	return o.checkout, nil
}

func (*outside) Probe(context.Context) error                 { return nil }
func (*outside) Place(context.Context) (source.Place, error) { return source.Place{}, nil }

func (o *outside) Apply(ctx context.Context, a source.Application) (source.Applied, error) {
	o.mu.Lock()
	o.tries++
	fetched, slow, hang := o.fetched, o.slow, o.hang
	o.mu.Unlock()
	for hang {
		// Deaf to ctx, as a sink on a dead network file system is.
		time.Sleep(time.Second)
		o.set(func(o *outside) { hang = o.hang })
	}
	select {
	case <-time.After(slow):
	case <-ctx.Done():
		return source.Applied{}, &source.SinkError{Reason: fencepost.ReasonTimeout, Err: ctx.Err()}
	}
	if err := a.Guard(context.WithoutCancel(ctx)); err != nil {
		o.set(func(o *outside) { o.late++ })
		return source.Applied{}, err
	}
	o.set(func(o *outside) { o.applied = fetched })
	return source.Applied{Counts: source.Counts{Files: 1}}, nil
}

// flaky is a store whose database can be away.
type flaky struct {
	*sourcedb.Store
	away *atomic.Bool
}

func (f flaky) err() error {
	if f.away.Load() {
		return &fencepost.Error{Op: "database", Reason: fencepost.ReasonUnavailable, Err: errors.New("by the script")}
	}
	return nil
}

func (f flaky) Change(ctx context.Context, id fencepost.SourceID, l source.Lookup, t source.Transition) error {
	if err := f.err(); err != nil {
		return err
	}
	return f.Store.Change(ctx, id, l, t)
}

func (f flaky) Renew(ctx context.Context, h source.Hold, d time.Duration) (time.Time, error) {
	if err := f.err(); err != nil {
		return time.Time{}, err
	}
	return f.Store.Renew(ctx, h, d)
}

func (f flaky) Unfresh(ctx context.Context, after time.Duration, limit int) ([]fencepost.SourceID, error) {
	if err := f.err(); err != nil {
		return nil, err
	}
	return f.Store.Unfresh(ctx, after, limit)
}

func (f flaky) Due(ctx context.Context, limit int, claim time.Duration) ([]source.SourceRow, error) {
	if err := f.err(); err != nil {
		return nil, err
	}
	return f.Store.Due(ctx, limit, claim)
}

// A story is one source on a real store and a real queue, in a bubble of fake
// time. Processes start and stop in it as the story says.
type story struct {
	*testing.T
	*outside
	policy source.Policy
	path   string
	step   atomic.Int64 // nanoseconds that the wall clock is off
	away   atomic.Bool
	begun  time.Time

	mu     sync.Mutex
	raised map[source.AlertCode]time.Duration // guarded by mu: when, from tell
	open   map[source.AlertCode]bool          // guarded by mu
	signed time.Time                          // guarded by mu: when the head moved
}

func tell(t *testing.T, what func(*story)) {
	checkout, err := anyCheckout()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "state.db")
	synctest.Test(t, func(t *testing.T) {
		s := &story{
			T: t, outside: &outside{checkout: checkout, head: 1}, path: path, begun: time.Now(),
			raised: map[source.AlertCode]time.Duration{}, open: map[source.AlertCode]bool{},
			policy: source.Policy{
				ID: fencepost.SourceID{1}, Key: "handbook", Revision: fencepost.SourceRevision{1}, Contracts: source.Digest{2},
				Lineage: source.Digest{3}, Enabled: true, AcceptUnannounced: true, Timings: fencepost.DefaultTimings,
			},
		}
		what(s)
	})
}

// moved moves the head, and starts the fourteen minutes.
func (s *story) moved() {
	s.set(func(o *outside) { o.head++ })
	s.mu.Lock()
	defer s.mu.Unlock()
	s.signed = time.Now()
	clear(s.raised)
}

func (s *story) alerted(a sourcedb.Alert) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open[a.Code] = a.Open(); a.Open() {
		if _, ok := s.raised[a.Code]; !ok {
			s.raised[a.Code] = time.Since(s.signed)
		}
	}
}

func (s *story) isOpen(code source.AlertCode) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.open[code]
}

// options are what processes of a story differ in.
type options struct {
	workers    int
	noSchedule bool // nobody carries out periodic work: every leader is dead
	others     []*source.Source
}

// process starts one. The function that it returns ends it: at once, as kill
// -9 does as far as the rows can tell, or in order.
func (s *story) process(o options) (p *running) {
	s.Helper()
	return s.processOf(s.outside, s.outside, o)
}

// processOf is [story.process] with another remote or sink.
func (s *story) processOf(remote source.Remote, sink source.Sink, o options) (p *running) {
	s.Helper()
	ctx, stop := context.WithCancel(context.Background())
	wall := clock.NewWall(func() time.Time { return time.Now().Add(time.Duration(s.step.Load())) }, time.Time{})
	db, err := store.Open(ctx, store.Options{Path: s.path, Now: wall.Now})
	if err != nil {
		s.Fatal(err)
	}
	log := slog.New(slog.NewTextHandler(s.Output(), &slog.HandlerOptions{Level: slog.LevelWarn}))
	c := jobs.Config{
		DB: db.Writer(), Dialect: jobs.SQLite, Now: wall.Now, Log: slog.New(slog.DiscardHandler), Workers: o.workers,
		// A fake quarter of an hour has many quarters of a second.
		Poll: 5 * time.Second,
	}
	if err := jobs.Migrate(ctx, c); err != nil {
		s.Fatal(err)
	}
	q, err := jobs.New(c)
	if err != nil {
		s.Fatal(err)
	}
	st := flaky{sourcedb.New(db, q, sourcedb.Hooks{
		Job: func(source.JobRow) { q.Wake() }, Alert: s.alerted,
	}), &s.away}
	all := map[fencepost.SourceID]*source.Source{s.policy.ID: {Policy: s.policy, Remote: remote, Sink: sink}}
	policies := []source.Policy{s.policy}
	for _, other := range o.others {
		all[other.ID] = other
		policies = append(policies, other.Policy)
	}
	p = &running{story: s, intake: source.Intake{Store: st, Random: rand.Reader}, store: st}
	worker := &source.Worker{Store: st, Sources: all, Owner: source.Owner{1}, Random: rand.Reader, Now: wall.Now, Log: log}
	reconciler := &source.Reconciler{Store: st, Sources: all, Random: rand.Reader, Now: wall.Now, Log: log}
	watchdog := &source.Watchdog{Store: st, Sources: all, Random: rand.Reader, OnError: func(err error) { s.Log("watchdog:", err) }}
	if err := watchdog.Freshness(ctx); err != nil {
		s.Fatal(err)
	}
	if err := p.intake.Register(ctx, policies); err != nil {
		s.Fatal(err)
	}
	var tasks []jobs.Periodic
	if !o.noSchedule {
		tasks = []jobs.Periodic{{Name: "reconcile", Every: 10 * time.Second, Timeout: time.Minute, Run: reconciler.Tick}}
	}
	var parts sync.WaitGroup
	parts.Go(func() {
		if err := q.Run(ctx, map[string]jobs.Worker{source.HandlerRun: worker}, tasks); err != nil {
			s.Error(err)
		}
	})
	parts.Go(func() {
		if err := watchdog.Run(ctx); err != nil {
			s.Error(err)
		}
	})
	p.end = sync.OnceFunc(func() {
		stop()
		s.set(func(o *outside) { o.hang = false })
		parts.Wait()
		worker.Wait()
		if err := db.Close(); err != nil {
			s.Error(err)
		}
	})
	return p
}

type running struct {
	*story
	intake source.Intake
	store  source.Store
	end    func()
}

// push delivers the webhook for the present head.
func (p *running) push() {
	p.Helper()
	var d source.DeliveryRow
	p.set(func(o *outside) { d.Commit = number(o.head) })
	d.Namespace, d.Source = p.policy.Key, p.policy.ID
	for _, id := range [][]byte{d.ID[:], d.Body[:], d.Delivery[:]} {
		if _, err := rand.Read(id); err != nil {
			p.Fatal(err)
		}
	}
	if _, err := p.intake.Push(context.Background(), p.policy, d); err != nil {
		p.Fatal(err)
	}
}

// settled waits for the first run.
func (p *running) settled() {
	p.Helper()
	p.complete(time.Minute)
}

// complete waits until the sink has the head, at most for the given time, and
// says how long it took.
func (p *running) complete(within time.Duration) {
	p.Helper()
	begun := time.Now()
	for {
		done := false
		p.set(func(o *outside) { done = o.applied == o.head })
		if done {
			// The row follows the sink.
			time.Sleep(time.Second)
			p.Logf("complete after %v", time.Since(begun).Round(100*time.Millisecond))
			return
		}
		if time.Since(begun) > within {
			p.Fatalf("not complete after %v; alerts %v", within, p.raised)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// alarmed waits for the freshness alert until the fourteen minutes are over.
func (p *running) alarmed() {
	p.Helper()
	for !p.isOpen(source.AlertFreshness) {
		p.mu.Lock()
		over := time.Since(p.signed) > fencepost.MaxFreshness
		p.mu.Unlock()
		if over {
			p.Fatalf("neither complete nor alerted after %v", fencepost.MaxFreshness)
		}
		time.Sleep(time.Second)
	}
	p.mu.Lock()
	p.Logf("alerts, from the head's move on: %v", p.raised)
	p.mu.Unlock()
}

// recovered: with the cause gone the source gets complete by itself, and the
// alert is resolved.
func (p *running) recovered() {
	p.Helper()
	p.complete(10 * time.Minute)
	time.Sleep(p.policy.Timings.Evaluate + time.Second)
	if p.isOpen(source.AlertFreshness) {
		p.Error("the freshness alert is open although the content is complete")
	}
}

// DESIGN §2, invariant 15: from the earliest trustworthy sign of a new head at
// most 14 minutes pass until complete evidence or a raised alert.
func TestFourteenMinutes(t *testing.T) {
	t.Parallel()
	t.Run("a push is applied at once", func(t *testing.T) {
		t.Parallel()
		tell(t, func(s *story) {
			p := s.process(options{})
			defer p.end()
			p.settled()
			s.moved()
			p.push()
			p.complete(time.Second)
		})
	})
	t.Run("webhook lost just after a look", func(t *testing.T) {
		t.Parallel()
		tell(t, func(s *story) {
			p := s.process(options{})
			defer p.end()
			p.settled()
			var looks int
			s.set(func(o *outside) { looks = o.observed })
			for seen := looks; seen == looks; s.set(func(o *outside) { seen = o.observed }) {
				time.Sleep(time.Second)
			}
			s.moved()
			p.complete(fencepost.DefaultTimings.Reconcile + 15*time.Second)
		})
	})
	t.Run("worker dead right after it began", func(t *testing.T) {
		t.Parallel()
		tell(t, func(s *story) {
			p := s.process(options{workers: 1})
			defer p.end()
			p.settled()
			// A worker of another process takes the run and is never heard of again.
			s.moved()
			s.set(func(o *outside) { o.slow = time.Millisecond })
			if run, err := p.intake.Request(context.Background(), s.policy, "dead", source.Digest{5}); err != nil {
				t.Fatal(err)
			} else if err := p.store.Change(context.Background(), s.policy.ID, source.Lookup{Run: run}, func(snap source.Snapshot) (source.Change, error) {
				c, _ := source.OnBegin(snap, s.policy, source.Begin{Run: run, Owner: source.Owner{9}, Token: source.Token{9}})
				return c, nil
			}); err != nil {
				t.Fatal(err)
			}
			p.push()
			p.complete(3 * time.Minute)
			if _, ok := s.raised[source.AlertLockStale]; !ok {
				// Unless this process's worker was faster, somebody had to notice.
				t.Log("the dead worker had come too late")
			}
		})
	})
	t.Run("hung sink", func(t *testing.T) {
		long(t)
		t.Parallel()
		tell(t, func(s *story) {
			p := s.process(options{})
			defer p.end()
			p.settled()
			s.set(func(o *outside) { o.hang = true })
			s.moved()
			p.push()
			p.alarmed()
			s.set(func(o *outside) { o.hang = false })
			p.recovered()
		})
	})
	for _, why := range []fencepost.Reason{fencepost.ReasonProvider, fencepost.ReasonCredential, fencepost.ReasonUnavailable, fencepost.ReasonIdentity} {
		t.Run("looking fails with "+string(why), func(t *testing.T) {
			long(t)
			t.Parallel()
			tell(t, func(s *story) {
				p := s.process(options{})
				defer p.end()
				p.settled()
				s.set(func(o *outside) { o.why = why })
				s.moved()
				p.alarmed()
				s.set(func(o *outside) { o.why = "" })
				p.recovered()
			})
		})
	}
	t.Run("yesterday's head", func(t *testing.T) {
		long(t)
		t.Parallel()
		tell(t, func(s *story) {
			p := s.process(options{})
			defer p.end()
			p.settled()
			s.moved()
			s.set(func(o *outside) { o.shown = o.head - 1 })
			p.push()
			p.alarmed()
			if !s.isOpen(source.AlertHeadContradiction) {
				t.Error("nobody was told that the provider shows an old head")
			}
			s.set(func(o *outside) { o.shown = 0 })
			p.recovered()
		})
	})
	t.Run("process dead over the deadline", func(t *testing.T) {
		t.Parallel()
		tell(t, func(s *story) {
			p := s.process(options{})
			p.settled()
			s.moved()
			p.end()
			time.Sleep(20 * time.Minute)
			s.set(func(o *outside) { o.why = fencepost.ReasonProvider })
			next := s.process(options{})
			defer next.end()
			// At start, before anything else.
			if !s.isOpen(source.AlertFreshness) {
				t.Fatal("the start did not judge the time in which nobody watched")
			}
			s.set(func(o *outside) { o.why = "" })
			next.recovered()
		})
	})
	t.Run("database away", func(t *testing.T) {
		long(t)
		t.Parallel()
		tell(t, func(s *story) {
			p := s.process(options{})
			defer p.end()
			p.settled()
			s.moved()
			s.away.Store(true)
			time.Sleep(5 * time.Minute)
			s.away.Store(false)
			p.complete(5 * time.Minute)
		})
	})
	for _, d := range []time.Duration{-6 * time.Hour, 6 * time.Hour} {
		t.Run(fmt.Sprintf("clock steps by %v", d), func(t *testing.T) {
			long(t)
			t.Parallel()
			tell(t, func(s *story) {
				p := s.process(options{})
				defer p.end()
				p.settled()
				s.moved()
				s.step.Store(int64(d))
				p.complete(10 * time.Minute)
			})
		})
	}
	t.Run("queue full of other sources", func(t *testing.T) {
		t.Parallel()
		tell(t, func(s *story) {
			var others []*source.Source
			for i := range 30 {
				o := &outside{checkout: s.checkout, head: 1, slow: 100 * time.Second}
				policy := s.policy
				policy.ID[0], policy.Key = byte(i+2), fencepost.RouteName(fmt.Sprintf("other-%d", i))
				others = append(others, &source.Source{Policy: policy, Remote: o, Sink: o})
			}
			p := s.process(options{workers: 2, others: others})
			defer p.end()
			s.moved()
			for !p.isOpen(source.AlertFreshness) {
				done := false
				s.set(func(o *outside) { done = o.applied == o.head })
				if done {
					return
				}
				if time.Since(s.signed) > fencepost.MaxFreshness {
					t.Fatal("neither complete nor alerted")
				}
				time.Sleep(time.Second)
			}
		})
	})
	t.Run("no leader for periodic work", func(t *testing.T) {
		long(t)
		t.Parallel()
		tell(t, func(s *story) {
			p := s.process(options{noSchedule: true})
			defer p.end()
			p.settled()
			s.moved()
			p.alarmed()
		})
	})
}
