package source

import (
	"testing"
	"time"

	"github.com/fencepost/fencepost"
)

// A policy that changes makes no look younger: while nothing can be observed,
// each change would put the alert off.
func TestAChangedPolicyIsNoObservation(t *testing.T) {
	t.Parallel()
	r, p := settled(t)
	register := func(p Policy) {
		_ = r.change(func(s Snapshot) (Change, error) { return OnRevision(s, p, runID(int(r.source.Version)+100)), nil }, Lookup{})
	}
	judge := func(p Policy) bool {
		_ = r.change(func(s Snapshot) (Change, error) { return OnFreshness(s, p), nil }, Lookup{})
		return r.alerts[AlertFreshness]
	}
	for n := range 3 {
		if n > 0 && judge(p) {
			t.Fatalf("the alert is raised after %v", r.now.Sub(r.source.ObservedAt))
		}
		r.now = r.now.Add(p.Timings.AlertAfter / 3)
		p.Revision = fencepost.SourceRevision{byte(20 + n)}
		register(p)
	}
	if !judge(p) {
		t.Error("no alert, though nothing was observed for all of that time")
	}

	// One that comes back was not looked at meanwhile, and owed nobody a look.
	_ = r.change(func(s Snapshot) (Change, error) { return OnRemoval(s), nil }, Lookup{})
	r.now = r.now.Add(24 * time.Hour)
	register(p)
	if judge(p) {
		t.Error("the alert is raised for a time in which the source was not configured")
	}
	r.now = r.now.Add(p.Timings.AlertAfter)
	if !judge(p) {
		t.Error("no alert, though nothing was observed since it came back")
	}
}

// What was pushed while a source was off is applied when it is on again, and
// counts from then.
func TestAPushToASourceThatIsOffMakesNoAge(t *testing.T) {
	t.Parallel()
	r, p := settled(t)
	off := p
	off.Revision, off.Enabled = fencepost.SourceRevision{8}, false
	register := func(p Policy, n int) {
		_ = r.change(func(s Snapshot) (Change, error) { return OnRevision(s, p, runID(n)), nil }, Lookup{})
	}
	register(off, 60)
	if _, err := r.push(off, delivery(1, 1, 1), 1); err != nil {
		t.Fatal(err)
	}
	if _, ok := r.begin(off, runID(1), 1).(Over); !ok {
		t.Fatal("a source that is off began a run")
	}
	r.now = r.now.Add(24 * time.Hour)
	p.Revision = fencepost.SourceRevision{9}
	register(p, 61)
	_ = r.change(func(s Snapshot) (Change, error) { return OnFreshness(s, p), nil }, Lookup{})
	if r.alerts[AlertFreshness] {
		t.Error("the alert is raised for a time in which the source was off")
	}
}

// A look is stored with its batch, and may have begun before a run that has
// ended since: what that saw is newer.
func TestALookOfBeforeARunIsNoNews(t *testing.T) {
	t.Parallel()
	r, p := settled(t)
	p.AcceptUnannounced = false
	r.now = r.now.Add(time.Minute)
	began := r.now
	r.now = r.now.Add(time.Second)
	if _, err := r.push(p, delivery(1, 1, 2), 1); err != nil {
		t.Fatal(err)
	}
	b, ok := r.begin(p, runID(1), 1).(Began)
	if !ok {
		t.Fatal("the run did not begin")
	}
	r.now = r.now.Add(time.Second)
	if err := r.end(p, b.Hold, Ending{Status: Complete, Head: commit(2)}); err != nil {
		t.Fatal(err)
	}
	r.now = r.now.Add(time.Second)
	if err := r.change(func(s Snapshot) (Change, error) {
		return OnObservation(s, p, Observed{Head: commit(1), Age: r.now.Sub(began), Next: time.Minute, NewRun: runID(2)})
	}, Lookup{Request: Window(r.now, p)}); err != nil {
		t.Fatal(err)
	}
	if r.source.Observed != commit(2) || !r.source.UnmetSince.IsZero() || r.open() != nil || len(r.alerts) > 0 {
		t.Errorf("observed %v, unmet since %v, open %+v, alerts %v", r.source.Observed, r.source.UnmetSince, r.open(), r.alerts)
	}
}
