package source

import "testing"

// What a sink could not remove is told although the run is complete, and over
// when a later one leaves nothing.
func TestALeftoverIsToldBesideACompleteRun(t *testing.T) {
	t.Parallel()
	r, p := settled(t)
	for n, left := range []bool{true, false} {
		if _, err := r.push(p, delivery(n+1, n+1, n+1), n+1); err != nil {
			t.Fatal(err)
		}
		b, ok := r.begin(p, runID(n+1), n+1).(Began)
		if !ok {
			t.Fatal("the run did not begin")
		}
		if err := r.end(p, b.Hold, Ending{Status: Complete, Head: commit(n + 1), Leftover: left}); err != nil {
			t.Fatal(err)
		}
		if r.alerts[AlertCleanupFailed] != left {
			t.Errorf("leftover %v: the alert is %v", left, r.alerts[AlertCleanupFailed])
		}
	}
}
