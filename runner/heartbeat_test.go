package runner_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/fencepost/fencepost/runner"
)

// DESIGN §7: halfway through each window it proves, at most 5 s apart.
func TestLeaseIsRenewedHalfwayAndAtMostFiveSecondsApart(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		window time.Duration
		want   []time.Duration
	}{
		"long":  {time.Minute, []time.Duration{0, 5 * time.Second, 10 * time.Second, 15 * time.Second, 20 * time.Second}},
		"ten":   {10 * time.Second, []time.Duration{0, 5 * time.Second, 10 * time.Second, 15 * time.Second, 20 * time.Second}},
		"short": {8 * time.Second, []time.Duration{0, 4 * time.Second, 8 * time.Second, 12 * time.Second, 16 * time.Second, 20 * time.Second}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				var at []time.Duration
				lease := runner.RenewerFunc(func(context.Context) (time.Duration, error) {
					at = append(at, time.Since(start))
					return c.window, nil
				})
				ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second+time.Millisecond)
				defer cancel()
				if err := runner.Keep(ctx, lease, time.Now); err != nil {
					t.Fatalf("Keep: %v", err)
				}
				if diff := cmp.Diff(c.want, at); diff != "" {
					t.Errorf("renewed at (-want +got):\n%s", diff)
				}
			})
		})
	}
}

func TestLeaseIsLostAtTheFirstFailure(t *testing.T) {
	t.Parallel()
	broken := errors.New("ledger unreachable")
	for name, c := range map[string]struct {
		// renew is what the third renewal does.
		renew func(context.Context) (time.Duration, error)
		cause error
		after time.Duration
	}{
		"error":         {func(context.Context) (time.Duration, error) { return 0, broken }, broken, 8 * time.Second},
		"no window":     {func(context.Context) (time.Duration, error) { return 0, nil }, runner.ErrLost, 8 * time.Second},
		"past window":   {func(context.Context) (time.Duration, error) { return -1, nil }, runner.ErrLost, 8 * time.Second},
		"late error":    {func(context.Context) (time.Duration, error) { time.Sleep(time.Second); return 0, broken }, broken, 9 * time.Second},
		"never answers": {func(ctx context.Context) (time.Duration, error) { <-ctx.Done(); return 0, ctx.Err() }, runner.ErrLost, 12 * time.Second},
		// It ignores its context and is right in the end: too late.
		"answers late": {func(context.Context) (time.Duration, error) { time.Sleep(20 * time.Second); return time.Minute, nil }, runner.ErrLost, 28 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				start, n := time.Now(), 0
				err := runner.Keep(t.Context(), runner.RenewerFunc(func(ctx context.Context) (time.Duration, error) {
					if n++; n == 3 {
						return c.renew(ctx)
					}
					return 8 * time.Second, nil
				}), time.Now)
				if !errors.Is(err, runner.ErrLost) || !errors.Is(err, c.cause) {
					t.Errorf("err = %v, want ErrLost and %v", err, c.cause)
				}
				if got := time.Since(start); got != c.after {
					t.Errorf("lost after %v, want exactly %v", got, c.after)
				}
			})
		})
	}
}

func TestWindowCountsFromTheStartOfTheCall(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		var at []time.Duration
		lease := runner.RenewerFunc(func(context.Context) (time.Duration, error) {
			at = append(at, time.Since(start))
			time.Sleep(time.Second)
			return 6 * time.Second, nil
		})
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		if err := runner.Keep(ctx, lease, time.Now); err != nil {
			t.Fatal(err)
		}
		want := []time.Duration{0, 3 * time.Second, 6 * time.Second, 9 * time.Second}
		if diff := cmp.Diff(want, at); diff != "" {
			t.Errorf("renewed at (-want +got):\n%s", diff)
		}
	})
}

// Whatever windows the ledger gives, the time between two renewals never
// passes half of the earlier one, nor five seconds.
func TestNoGapIsLongerThanHalfAWindow(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		windows := rapid.SliceOfN(rapid.Int64Range(int64(time.Millisecond), int64(time.Minute)), 1, 20).Draw(rt, "windows")
		synctest.Test(t, func(t *testing.T) {
			var last time.Time
			var window time.Duration
			n := 0
			done := errors.New("done")
			err := runner.Keep(t.Context(), runner.RenewerFunc(func(context.Context) (time.Duration, error) {
				now := time.Now()
				if gap := now.Sub(last); n > 0 && gap > min(window/2, runner.MaxHeartbeat) {
					rt.Errorf("renewal %d after %v in a window of %v", n, gap, window)
				}
				if n == len(windows) {
					return 0, done
				}
				last, window = now, time.Duration(windows[n])
				n++
				return window, nil
			}), time.Now)
			if !errors.Is(err, done) {
				rt.Errorf("err = %v", err)
			}
		})
	})
}
