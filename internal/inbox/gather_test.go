package inbox

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/fencepost/fencepost/internal/durable/crashfs"
)

// come records the mails of these ids at once, and returns how long that took
// by the bubble's clock.
func come(t *testing.T, b *Inbox, ids ...uint64) time.Duration {
	t.Helper()
	begin := time.Now()
	var wg sync.WaitGroup
	for _, id := range ids {
		wg.Go(func() {
			m := mail{id: id, body: text("body")}
			if got, err := b.Record(t.Context(), m.accepted(t), headers, m.body); err != nil || got != Accepted {
				t.Errorf("Record(%d) = %v, %v; want accepted", id, got, err)
			}
		})
	}
	wg.Wait()
	return time.Since(begin)
}

// A leader that finds company waits for more, for no longer than Gather, and
// commits all of it in one.
func TestLeaderWaitsForCompany(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		gather time.Duration
		there  int // in the batch when its leader begins
		late   int // come half the wait later
		took   time.Duration
		batch  int // how many the first commit held
	}{
		"alone":                     {0, 1, 0, 0, 1},
		"too few to wait":           {0, gatherFrom - 1, 0, 0, gatherFrom - 1},
		"enough, and nobody else":   {0, gatherFrom, 0, 2 * time.Millisecond, gatherFrom},
		"enough, and one more":      {0, gatherFrom, 1, time.Millisecond, gatherFrom + 1},
		"as many as wanted at once": {0, gatherFrom + 1, 0, 0, gatherFrom + 1},
		"a wait of its own":         {time.Second, gatherFrom, 0, time.Second, gatherFrom},
		"not at all":                {-1, gatherFrom, 0, 0, gatherFrom},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				cfg := small
				cfg.Gather = test.gather
				b := open(t, crashfs.New(crashfs.Options{}).Process(), cfg)
				defer func() { must(t, b.Close()) }()
				j := b.own
				first := make([]*request, test.there)
				for i := range first {
					first[i] = &request{typ: frameSynced}
				}
				batch, leads := j.join(first...)
				if !leads {
					t.Fatal("the first to come does not lead")
				}
				begin := time.Now()
				var wg sync.WaitGroup
				wg.Go(func() { j.await(batch, true) })
				for range test.late {
					time.Sleep(b.cfg.Gather / 2)
					if late, leads := j.join(&request{typ: frameSynced}); late != batch || leads {
						t.Error("who comes while the leader waits is in another batch")
					}
				}
				wg.Wait()
				if took := time.Since(begin); took != test.took || len(batch.requests) != test.batch || j.commits != 1 {
					t.Errorf("%d requests in %d commits after %v; want %d in 1 after %v",
						len(batch.requests), j.commits, took, test.batch, test.took)
				}
			})
		})
	}
}

// However many come one by one, none of them waits for company.
func TestLoneSenderNeverWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := open(t, crashfs.New(crashfs.Options{}).Process(), small)
		defer func() { must(t, b.Close()) }()
		for id := range uint64(200) {
			if took := come(t, b, id); took != 0 {
				t.Fatalf("record %d waited %v", id, took)
			}
		}
	})
}

func TestGatheringLearns(t *testing.T) {
	t.Parallel()
	var g gathering
	for range 2 * gatherMost {
		want := g.want(gatherFrom)
		g.learn(want, want)
	}
	if g.want(gatherFrom) != gatherMost {
		t.Errorf("after all have come every time, %d are waited for; want %d", g.want(gatherFrom), gatherMost)
	}
	g.learn(gatherMost, 10)
	for i := range gatherPause {
		if want := g.want(gatherFrom); want != 10 {
			t.Fatalf("%d commits after only 10 came, %d are waited for", i, want)
		}
		g.learn(10, 10)
	}
	g.learn(10, 10)
	if want := g.want(gatherFrom); want != 11 {
		t.Errorf("after the pause %d are waited for, want 11", want)
	}
}

func TestGatheringIsBounded(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var g gathering
		for range rapid.IntRange(0, 300).Draw(t, "commits") {
			n := rapid.IntRange(1, 100).Draw(t, "there")
			want := g.want(n)
			if n < gatherFrom && want > n {
				t.Fatalf("a batch of %d waits for %d", n, want)
			}
			if want > max(n, gatherMost) {
				t.Fatalf("a batch of %d waits for %d, over the bound", n, want)
			}
			g.learn(want, n+rapid.IntRange(0, 50).Draw(t, "more"))
		}
	})
}
