package source

import (
	"testing"
	"time"

	"github.com/fencepost/fencepost"
)

// underWay is a source with head 0 in place, and the hold of a run for head 1.
func underWay(t *testing.T) (*rows, Policy, Hold) {
	t.Helper()
	r, p := settled(t)
	if _, err := r.push(p, delivery(1, 1, 1), 1); err != nil {
		t.Fatal(err)
	}
	b, ok := r.begin(p, runID(1), 1).(Began)
	if !ok {
		t.Fatal("the run did not begin")
	}
	return r, p, b.Hold
}

// What was applied last says nothing about a sink that another attempt may
// have changed since: whether it still has just that, only the sink can tell.
func TestWhatWasAppliedIsNotKnownAfterAnUnprovenAttempt(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		known bool
		after func(t *testing.T, r *rows, p Policy, h Hold)
	}{
		{"its worker died", false, func(_ *testing.T, r *rows, p Policy, _ Hold) {
			r.now = r.now.Add(p.Timings.Lease)
			_ = r.change(func(s Snapshot) (Change, error) { return OnWatch(s, p, runID(50)), nil }, Lookup{})
		}},
		{"it was partial", false, func(t *testing.T, r *rows, p Policy, h Hold) {
			if err := r.end(p, h, Ending{Status: Partial, Head: commit(1)}); err != nil {
				t.Fatal(err)
			}
		}},
		{"the sink failed, and the run has ended", false, trouble(Trouble{Reason: fencepost.ReasonRefused, Touched: true})},
		{"the sink failed, and the run goes on", false, trouble(Trouble{Reason: fencepost.ReasonTimeout, Touched: true})},
		{"the policy changed and went back in the middle of it", false, func(_ *testing.T, r *rows, p Policy, _ Hold) {
			next := p
			next.Revision = fencepost.SourceRevision{8}
			for n, p := range []Policy{next, p} {
				_ = r.change(func(s Snapshot) (Change, error) { return OnRevision(s, p, runID(60+n)), nil }, Lookup{})
			}
		}},
		{"the fetch failed", true, trouble(Trouble{Reason: fencepost.ReasonContent})},
		{"the provider failed", true, trouble(Trouble{Reason: fencepost.ReasonProvider})},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r, p, h := underWay(t)
			tt.after(t, r, p, h)
			if known := r.source.AppliedRevision == p.Revision; known != tt.known {
				t.Errorf("the last content is taken to be in place: %v, want %v", known, tt.known)
			}
			if r.source.Applied != commit(0) {
				t.Errorf("applied %v, want what it was", r.source.Applied)
			}
		})
	}
}

func trouble(what Trouble) func(*testing.T, *rows, Policy, Hold) {
	return func(t *testing.T, r *rows, p Policy, h Hold) {
		t.Helper()
		if err := r.change(func(s Snapshot) (c Change, err error) {
			c, _, err = OnTrouble(s, p, h, what)
			return c, err
		}, Lookup{}); err != nil {
			t.Fatal(err)
		}
	}
}

// The last accepted push names the announced head, also one that joins an open
// run: what was announced in between may have been forced away.
func TestTheLastPushIsTheAnnouncement(t *testing.T) {
	t.Parallel()
	r, p, h := underWay(t)
	for n, head := range []int{2, 1} {
		r.now = r.now.Add(time.Second)
		if _, err := r.push(p, delivery(n+2, n+2, head), n+2); err != nil {
			t.Fatal(err)
		}
	}
	if r.source.Announced != commit(1) {
		t.Errorf("announced %v, want that of the last push", r.source.Announced)
	}
	if err := r.end(p, h, Ending{Status: Complete, Head: commit(1), NewRun: runID(70)}); err != nil {
		t.Fatal(err)
	}
}

// A push that joins a run is met by its head alone: a provider that shows
// yesterday's head has not answered.
func TestAPushThatJoinsARunIsMetByItsHead(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		head int
		met  bool
	}{{"the announced head", 1, true}, {"the head of before", 0, false}} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r, p := settled(t)
			// The reconciler finds a head before its webhook comes.
			_ = r.change(func(s Snapshot) (Change, error) {
				return OnObservation(s, p, Observed{Head: commit(1), Named: true, Next: time.Minute, NewRun: runID(1)})
			}, Lookup{Request: Window(r.now, p)})
			b, ok := r.begin(p, runID(1), 1).(Began)
			if !ok {
				t.Fatal("the run did not begin")
			}
			r.now = r.now.Add(time.Second)
			if got, err := r.push(p, delivery(1, 1, 1), 2); err != nil || got != PushAccepted {
				t.Fatalf("answered %v, %v", got, err)
			}
			status := Complete
			if tt.head == 0 {
				status = Unchanged
			}
			if err := r.end(p, b.Hold, Ending{Status: status, Head: commit(tt.head)}); err != nil {
				t.Fatal(err)
			}
			if met := r.source.UnmetSince.IsZero(); met != tt.met {
				t.Errorf("met %v, want %v", met, tt.met)
			}
		})
	}
}
