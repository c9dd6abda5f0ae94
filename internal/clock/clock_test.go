package clock_test

import (
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/fencepost/fencepost/internal/clock"
)

var epoch = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

// script reads one given time after the other; they carry no monotonic
// reading, so a step back shows as no time passed.
func script(times ...time.Time) func() time.Time {
	return func() time.Time {
		now := times[0]
		times = times[1:]
		return now
	}
}

func TestWallFollowsStepsForwardAndWorksOffStepsBack(t *testing.T) {
	t.Parallel()
	at := func(s int) time.Time { return epoch.Add(time.Duration(s) * time.Second) }
	raw := []time.Time{at(0), at(10), at(3610), at(20), at(22), at(3620), at(8000)}
	want := []time.Time{at(0), at(10), at(3610), at(3610), at(3611), at(3620), at(8000)}
	w := clock.NewWall(script(raw...), time.Time{})
	for i := range raw {
		if got := w.Now(); !got.Equal(want[i]) {
			t.Errorf("reading %d: %v, want %v", i, got, want[i])
		}
	}
}

func TestWallIsNeverBeforeItsFloor(t *testing.T) {
	t.Parallel()
	floor := epoch.Add(time.Hour)
	w := clock.NewWall(script(epoch, epoch.Add(2*time.Hour)), floor)
	if got := w.Now(); !got.Equal(floor) {
		t.Errorf("first reading %v, want the floor %v", got, floor)
	}
	if got, want := w.Now(), epoch.Add(2*time.Hour); !got.Equal(want) {
		t.Errorf("second reading %v, want %v", got, want)
	}
}

func TestWallNeverGoesBack(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		offsets := rapid.SliceOfN(rapid.Int64Range(-int64(48*time.Hour), int64(48*time.Hour)), 2, 50).Draw(t, "offsets")
		times := make([]time.Time, len(offsets))
		for i, o := range offsets {
			times[i] = epoch.Add(time.Duration(o))
		}
		w := clock.NewWall(script(times...), time.Time{})
		last := time.Time{}
		for i := range times {
			now := w.Now()
			if now.Before(last) || now.Before(times[i]) {
				t.Fatalf("reading %d: %v after %v, raw clock %v", i, now, last, times[i])
			}
			last = now
		}
	})
}

func TestSystemWallMovesWithTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := clock.System()
		before := w.Now()
		time.Sleep(time.Minute)
		if got := w.Now().Sub(before); got != time.Minute {
			t.Errorf("a minute took %v", got)
		}
		if before.Location() != time.UTC {
			t.Errorf("location %v, want UTC", before.Location())
		}
	})
}

// TestWallSlowsDownAfterAStepBack uses the monotonic reading that time.Now
// has: after a step back of an hour, two hours are needed to work it off.
func TestWallSlowsDownAfterAStepBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var step time.Duration
		w := clock.NewWall(func() time.Time { return time.Now().Add(step) }, time.Time{})
		start := w.Now()
		step = -time.Hour
		w.Now()
		time.Sleep(time.Hour)
		got := w.Now().Sub(start)
		// Add shifts the monotonic reading too, so the step itself shows as
		// no time at all, and the hour after it as an hour.
		if got != 30*time.Minute {
			t.Errorf("after an hour at half speed: %v, want 30m", got)
		}
		time.Sleep(time.Hour)
		if got := w.Now().Sub(start); got != time.Hour {
			t.Errorf("after two hours: %v, want 1h, as the system says", got)
		}
		time.Sleep(time.Hour)
		if got := w.Now().Sub(start); got != 2*time.Hour {
			t.Errorf("after three hours: %v, want full speed again", got)
		}
	})
}

func TestSystemBootNeverGoesBackAndHasOneID(t *testing.T) {
	t.Parallel()
	b, err := clock.SystemBoot()
	if err != nil {
		t.Fatal(err)
	}
	first := b.Now()
	if first.Boot == "" || first.Up < 0 {
		t.Fatalf("first reading %+v", first)
	}
	for range 1000 {
		next := b.Now()
		d, ok := next.Sub(first)
		if !ok || d < 0 {
			t.Fatalf("%v after %v: %v, %v", next, first, d, ok)
		}
		first = next
	}
}

func TestInstantsOfDifferentStarts(t *testing.T) {
	t.Parallel()
	a := clock.Instant{Boot: "a", Up: time.Hour}
	b := clock.Instant{Boot: "b", Up: time.Second}
	if _, ok := a.Sub(b); ok {
		t.Error("instants of different starts were compared")
	}
	if !a.Reached(b) {
		t.Error("a deadline of an earlier start is not reached")
	}
	if a.Reached(clock.Instant{Boot: "a", Up: time.Hour - 1}) {
		t.Error("reached before its time")
	}
	if !a.Reached(a) || !a.Reached(a.Add(1)) {
		t.Error("not reached at its time")
	}
}
