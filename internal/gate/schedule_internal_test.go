package gate

import (
	"context"
	"errors"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/fencepost/fencepost"
)

func nextID(t *testing.T, s *schedule) string {
	t.Helper()
	got, err := s.next(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return got.ticket.ID
}

func TestScheduleGoesByTimeThenByArrival(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSchedule(time.Now, 1000)
		start := time.Now()
		a, b := &task{ticket: Ticket{ID: "a"}}, &task{ticket: Ticket{ID: "b"}}
		s.add(a)
		s.add(b)
		if got := nextID(t, s); got != "a" {
			t.Errorf("first %s", got)
		}
		s.again(a, start.Add(time.Minute))
		if got := nextID(t, s); got != "b" {
			t.Errorf("then %s", got)
		}
		s.again(b, start.Add(30*time.Second))
		if got := nextID(t, s); got != "b" || time.Since(start) != 30*time.Second {
			t.Errorf("then %s after %v", got, time.Since(start))
		}
		s.drop(b)
		if got := nextID(t, s); got != "a" || time.Since(start) != time.Minute {
			t.Errorf("then %s after %v", got, time.Since(start))
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		cause := errors.New("enough")
		cancel(cause)
		if _, err := s.next(ctx); !errors.Is(err, cause) {
			t.Errorf("error %v", err)
		}
	})
}

func TestALineIsForOneAtATimeAndTheNewestGoesNext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, k := newSchedule(time.Now, 1000), lineKey{"docs", 7}
		tasks := map[string]*task{}
		for i, id := range []string{"old", "older", "newest"} {
			tasks[id] = &task{ticket: Ticket{ID: id, Received: time.Unix(int64(10*i), 0)}}
			s.add(tasks[id])
		}
		for _, id := range []string{"old", "older", "newest"} {
			if got := nextID(t, s); got != id {
				t.Fatalf("next %s, want %s", got, id)
			}
			if entered := s.enter(tasks[id], k); entered != (id == "old") {
				t.Errorf("%s entered: %v", id, entered)
			}
		}
		s.drop(tasks["old"])
		for _, id := range []string{"newest", "older"} {
			if got := nextID(t, s); got != id {
				t.Errorf("next %s, want %s", got, id)
			}
			s.drop(tasks[id])
		}
		if len(s.lines) != 0 || s.held != 0 || s.waiting.Len() != 0 {
			t.Errorf("left: %d lines, %d held, %d waiting", len(s.lines), s.held, s.waiting.Len())
		}
	})
}

// TestScheduleLosesNothing drives a schedule at random against what must hold:
// every task is in exactly one place, and no line has two at work.
func TestScheduleLosesNothing(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(r *rapid.T) {
		now := time.Unix(0, 0)
		s := newSchedule(func() time.Time { return now }, 1000)
		held, working := 0, map[*task]bool{}
		r.Repeat(map[string]func(*rapid.T){
			"add": func(r *rapid.T) {
				var key fencepost.DeliveryKey
				key[0] = byte(rapid.IntRange(1, 9).Draw(r, "key"))
				s.add(&task{key: key, ticket: Ticket{Received: now}})
				held++
			},
			"take": func(r *rapid.T) {
				got, _, _ := s.take()
				if got == nil {
					return
				}
				if got.line == (lineKey{}) {
					if !s.enter(got, lineKey{"docs", int64(rapid.IntRange(1, 3).Draw(r, "line"))}) {
						return
					}
				}
				working[got] = true
			},
			"again": func(r *rapid.T) {
				for got := range working {
					delete(working, got)
					s.again(got, now.Add(time.Duration(rapid.IntRange(0, 5).Draw(r, "wait"))))
					return
				}
			},
			"drop": func(*rapid.T) {
				for got := range working {
					delete(working, got)
					s.drop(got)
					held--
					return
				}
			},
			"wake": func(r *rapid.T) {
				var key fencepost.DeliveryKey
				key[0] = byte(rapid.IntRange(1, 9).Draw(r, "key"))
				s.wake(key)
			},
			"time": func(*rapid.T) { now = now.Add(3) },
			"": func(r *rapid.T) {
				parked := 0
				for _, l := range s.lines {
					parked += len(l.parked)
				}
				if got := s.waiting.Len() + parked + len(working); got != held || s.held != held {
					r.Fatalf("%d tasks in their places, %d counted, want %d", got, s.held, held)
				}
				lines := map[lineKey]bool{}
				for t := range working {
					if lines[t.line] {
						r.Fatalf("two at work on %v", t.line)
					}
					lines[t.line] = true
				}
			},
		})
	})
}

func TestBackoffGrowsWithinItsBounds(t *testing.T) {
	t.Parallel()
	for retries, want := range map[int]time.Duration{
		0: 2 * time.Second, 1: 2 * time.Second, 2: 4 * time.Second, 5: 32 * time.Second, 7: 2 * time.Minute, 1000: 2 * time.Minute,
	} {
		for range 50 {
			if got := backoff(2*time.Second, 2*time.Minute, retries, rand.N); got < want/2 || got > want {
				t.Errorf("after %d: %v, want %v to %v", retries, got, want/2, want)
			}
		}
	}
}

func TestTextsAreCleanAndBounded(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"a\r\nb\x00c\xff":                "a b c?",
		"  spaced \t out ":               "spaced out",
		string(make([]byte, 3)):          "",
		repeat("a", MaxTitle-1) + " cut": repeat("a", MaxTitle-1),
	} {
		if got := oneLine(in); got != want {
			t.Errorf("oneLine(%q) = %q, want %q", in, got, want)
		}
	}
	if got := markdown("# T\r\n\ttab\x07\n\n  "); got != "# T\n\ttab" {
		t.Errorf("markdown: %q", got)
	}
	rapid.Check(t, func(r *rapid.T) {
		s := rapid.String().Draw(r, "text")
		if got := oneLine(s + s + s); len([]rune(got)) > MaxTitle || oneLine(got) != got {
			r.Errorf("oneLine(%q) = %q", s, got)
		}
		if got := markdown(s); len(got) > MaxSummary || markdown(got) != got {
			r.Errorf("markdown(%q) = %q", s, got)
		}
	})
	long := markdown(string(make([]byte, 0)) + repeat("é", MaxSummary))
	if len(long) > MaxSummary || len(long) < MaxSummary-1 {
		t.Errorf("%d bytes", len(long))
	}
}

func repeat(s string, n int) string {
	b := make([]byte, 0, len(s)*n)
	for range n {
		b = append(b, s...)
	}
	return string(b)
}

func TestEveryFailureIsExplained(t *testing.T) {
	t.Parallel()
	general, _ := explain("made_up")
	for _, r := range []fencepost.Reason{
		fencepost.ReasonTimeout, fencepost.ReasonMissingOutput, fencepost.ReasonOversizedOutput, fencepost.ReasonMalformedOutput,
		fencepost.ReasonMismatch, fencepost.ReasonRuntimeTampered, fencepost.ReasonProgramDigest, fencepost.ReasonContent,
		fencepost.ReasonNotMergeable, fencepost.ReasonGateUnproven, fencepost.ReasonForeignStatus, fencepost.ReasonGateChanged,
		fencepost.ReasonAcquisition, fencepost.ReasonProvider, fencepost.ReasonEvidence, fencepost.ReasonUnavailable,
	} {
		title, summary := explain(r)
		if title == general || title == "" || summary == "" || len(title) > MaxTitle {
			t.Errorf("%s: %q, %q", r, title, summary)
		}
	}
}
