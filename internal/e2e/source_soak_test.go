package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fencepost/fencepost/internal/forgesim"
	"github.com/fencepost/fencepost/internal/store"
	"github.com/fencepost/fencepost/internal/trial/world"
)

// A storm is many sources in bad weather: pushes at random, webhooks that are
// lost, late and doubled, controllers that are killed. With one seed it does
// the same in the same order; what comes of that depends on the machine, too.
type storm struct {
	t    *testing.T
	seed uint64
	rng  *rand.Rand
	f    *world.Field

	watchers map[string]*watcher
	commits  map[string][]string // by key, the newest last

	mu    sync.Mutex
	story []string
}

// perRepository is how many sources are branches of one repository: each push
// has a webhook for each of them.
const perRepository = 10

// stormField says which sources there are.
func stormField(seed uint64, sources int) world.FieldConfig {
	config := world.FieldConfig{
		Repositories: map[string]forgesim.Import{},
		Hostility: forgesim.Hostility{
			Seed: seed, Lose: 0.3, Duplicate: 0.15, Reorder: 0.2, Late: 0.2, LateBy: 2 * time.Second, ServerError: 0.02,
		},
		Timings: strings.Replace(swift, "reconcile: 2s", fmt.Sprintf("reconcile: %ds", 2+sources/20), 1),
	}
	for i := range sources {
		repository := fmt.Sprintf("books-%d", i/perRepository)
		config.Repositories[repository] = forgesim.Import{Files: edition(0)}
		key := fmt.Sprintf("book-%d", i)
		config.Sources = append(config.Sources, world.FieldSource{Key: key, Repository: repository, Branch: key})
	}
	return config
}

func newStorm(t *testing.T, seed uint64, f *world.Field) *storm {
	s := &storm{
		t: t, seed: seed, f: f, rng: rand.New(rand.NewPCG(seed, 0x73746f726d)),
		watchers: map[string]*watcher{}, commits: map[string][]string{},
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("seed %d; FENCEPOST_SOAK_SEED repeats it; the story ends with:\n%s", seed,
				strings.Join(s.story[max(0, len(s.story)-150):], "\n"))
		}
	})
	for _, source := range f.Sources {
		w := watch(f.Served(source.Key), time.Minute)
		s.watchers[source.Key] = w
		head := f.Repositories[source.Repository].Ref("refs/heads/" + source.Branch)
		tr, err := committed(t.Context(), f.Repositories[source.Repository].GitDir(), head)
		if err != nil {
			t.Fatal(err)
		}
		w.know(tr)
		s.commits[source.Key] = []string{head}
	}
	return s
}

func (s *storm) tell(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.story = append(s.story, time.Now().Format("04:05.000 ")+fmt.Sprintf(format, args...))
}

// push moves a branch by one commit.
func (s *storm) push(source world.FieldSource) {
	n := len(s.commits[source.Key])
	files := edition(n)
	tr := tree{}
	for path, text := range files {
		tr[path] = "100644 " + text
	}
	s.watchers[source.Key].know(tr)
	commit, err := s.f.Repositories[source.Repository].Push(s.t.Context(), forgesim.Push{
		Branch: source.Branch, Change: forgesim.Change{Files: files},
	})
	if err != nil {
		s.t.Fatal(err)
	}
	s.commits[source.Key] = append(s.commits[source.Key], commit)
	s.tell("push %s %d %.7s", source.Key, n, commit)
}

// rage pushes and kills for a time. hit is called for each kill with the
// number of the controller.
func (s *storm) rage(during time.Duration, pause time.Duration, kills int) {
	began, done := time.Now(), 0
	for time.Since(began) < during || done < kills {
		s.push(s.f.Sources[s.rng.IntN(len(s.f.Sources))])
		if s.rng.IntN(4) == 0 {
			continue // a burst
		}
		if done < kills && time.Since(began) >= during*time.Duration(done+1)/time.Duration(kills+1) {
			done++
			s.strike(s.rng.IntN(len(s.f.Controllers)))
		}
		select {
		case <-time.After(time.Duration(s.rng.Int64N(int64(2 * pause)))):
		case <-s.t.Context().Done():
			return
		}
	}
}

// strike kills a controller and starts it again.
func (s *storm) strike(i int) {
	s.tell("kill controller %d", i)
	if err := s.f.Controllers[i].Kill(); err != nil {
		s.t.Fatal(err)
	}
	took, err := s.f.Controllers[i].Start(context.Background())
	if err != nil {
		s.t.Fatal(err)
	}
	s.tell("controller %d is ready after %s", i, took.Round(time.Millisecond))
}

// observe lets readers look at every source, and an auditor at the run logs,
// until it is stopped.
func (s *storm) observe(l ledger) (stop func()) {
	ctx, cancel := context.WithCancel(s.t.Context())
	var all sync.WaitGroup
	all.Go(func() {
		for ctx.Err() == nil {
			for _, w := range s.watchers {
				w.look(true)
			}
			select {
			case <-ctx.Done():
			case <-time.After(5 * time.Millisecond):
			}
		}
	})
	all.Go(func() {
		ended := map[string]string{}
		for ctx.Err() == nil {
			s.audit(ctx, l, ended)
			select {
			case <-ctx.Done():
			case <-time.After(300 * time.Millisecond):
			}
		}
	})
	return func() { cancel(); all.Wait() }
}

// audit holds every log that has ended against what it was when it was first
// seen to be.
func (s *storm) audit(ctx context.Context, l ledger, ended map[string]string) {
	err := l.db.Read(ctx, "audit", func(ctx context.Context, tx *store.Tx) error {
		seen := 0
		err := tx.Each(ctx, `select id, status || ' ' || reason || ' ' || head || ' ' || version || ' ' || attempts || ' ' || ended_at
			from source_runs where ended_at <> 0`, nil, func(scan func(...any) error) error {
			var id, text string
			if err := scan(&id, &text); err != nil {
				return err
			}
			seen++
			if was, ok := ended[id]; ok && was != text {
				s.t.Errorf("log %s had ended as %q and is %q", id, was, text)
			}
			ended[id] = text
			return nil
		})
		if err == nil && seen < len(ended) {
			s.t.Errorf("%d ended logs, there were %d", seen, len(ended))
		}
		return err
	})
	if err != nil && ctx.Err() == nil {
		s.tell("audit: %v", err)
	}
}

// settle waits until every source is what its branch is, and judges the whole
// history.
func (s *storm) settle(l ledger, stop func(), within time.Duration) {
	began := time.Now()
	_, err := world.Await(s.t.Context(), within, func() (struct{}, bool, error) {
		behind := s.behind(l)
		if len(behind) == 0 {
			return struct{}{}, true, nil
		}
		time.Sleep(200 * time.Millisecond)
		return struct{}{}, false, nil
	})
	s.tell("settled after %s: %v", time.Since(began).Round(time.Millisecond), err)
	for _, key := range s.behind(l) {
		st := l.state(key)
		s.t.Errorf("%s did not converge: applied %.7s, want %.7s, follow-up %t, run %+v, trouble %s; its runs: %s",
			key, st.Applied, s.head(key), st.FollowUp, st.Run, st.Trouble, l.story(key))
	}
	stop()
	l.wantSound()
	reads, seen := 0, 0
	for _, source := range s.f.Sources {
		w := s.watchers[source.Key]
		w.look(true)
		for _, fault := range w.faults {
			s.t.Errorf("a reader of %s: %s", source.Key, fault)
		}
		reads, seen = reads+w.reads, seen+w.seen
		wantServed(s.t, s.f, source.Key, s.head(source.Key))
		if st := l.state(source.Key); w.fence > st.LastFence {
			s.t.Errorf("%s is served under fence %d, above the last one given out, %d", source.Key, w.fence, st.LastFence)
		}
	}
	pushes := 0
	for _, commits := range s.commits {
		pushes += len(commits) - 1
	}
	s.t.Logf("seed %d: %d sources, %d pushes, %d runs (%d complete, %d failed, %d follow-ups, %d recoveries), %d trees seen by readers in %d reads; all converged %s after the last push",
		s.seed, len(s.f.Sources), pushes, l.count("select count(*) from source_runs"),
		l.count("select count(*) from source_runs where status = 'complete'"), l.count("select count(*) from source_runs where status = 'failed'"),
		l.count("select count(*) from source_runs where trigger_kind = 'follow_up'"), l.count("select count(*) from source_runs where trigger_kind = 'recovery'"),
		seen, reads, time.Since(began).Round(time.Millisecond))
}

func (s *storm) head(key string) string { return s.commits[key][len(s.commits[key])-1] }

// behind are the sources that are not, or not provably, what their branch is.
func (s *storm) behind(l ledger) (keys []string) {
	states := l.states()
	for _, source := range s.f.Sources {
		st := states[source.Key]
		if st.Applied.String() != s.head(source.Key) || st.Run != nil || st.FollowUp || !st.UnmetSince.IsZero() {
			keys = append(keys, source.Key)
		}
	}
	return keys
}

func soakSeed(t *testing.T) uint64 {
	t.Helper()
	if os.Getenv("FENCEPOST_SOAK_SEED") != "" {
		return uint64(fromEnv(t, "FENCEPOST_SOAK_SEED", 0))
	}
	return rand.Uint64() >> 16
}

// Every source converges to the exact head, whatever is lost and
// whoever dies (DESIGN §9, invariants 3, 5, 14).
func TestEverySourceConvergesThroughKillsAndLostWebhooks(t *testing.T) {
	t.Parallel()
	seed := soakSeed(t)
	sources, seconds := fromEnv(t, "FENCEPOST_SOAK_SOURCES", 12), fromEnv(t, "FENCEPOST_SOAK_SECONDS", 10)
	f := newField(t, stormField(seed, sources))
	s, l := newStorm(t, seed, f), lookInto(t, f)
	stop := s.observe(l)
	defer stop()
	s.rage(time.Duration(seconds)*time.Second, time.Duration(max(50, 1500/sources))*time.Millisecond, max(3, seconds/15))
	s.settle(l, stop, 5*time.Minute)
}

// What a storm believes that it pushed is what Git has: readers are judged by
// the one, what is served in the end by the other.
func TestAStormKnowsWhatItPushes(t *testing.T) {
	t.Parallel()
	forge, err := forgesim.New(t.Context(), forgesim.Config{Dir: t.TempDir(), Now: time.Now})
	if err != nil {
		t.Fatal(err)
	}
	r, err := forge.ImportRepository(t.Context(), forgesim.Import{Owner: "acme", Name: "book", Files: edition(7)})
	if err != nil {
		t.Fatal(err)
	}
	got, err := committed(t.Context(), r.GitDir(), r.Ref("refs/heads/main"))
	if err != nil {
		t.Fatal(err)
	}
	want := tree{}
	for path, text := range edition(7) {
		want[path] = "100644 " + text
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
