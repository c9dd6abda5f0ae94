package source_test

import (
	"context"
	"testing"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/source"
)

// unknowing can't tell how two heads stand: it does not have one of them.
type unknowing struct{ *outside }

func (u unknowing) Contains(_ context.Context, head, other fencepost.CommitID) (source.Ancestry, error) {
	if head == other {
		return source.Same, nil
	}
	return source.Unknown, nil
}

// A provider that goes on showing the applied head, and doesn't know the
// announced one, settles nothing before somebody was told.
func TestALaggingProviderIsAlertedBeforeItIsBelieved(t *testing.T) {
	long(t)
	t.Parallel()
	tell(t, func(s *story) {
		p := s.processOf(unknowing{s.outside}, s.outside, options{})
		defer p.end()
		p.settled()
		s.moved()
		s.set(func(o *outside) { o.shown = o.head - 1 })
		p.push()
		p.alarmed()
	})
}

// Also where runs are far more frequent than looks at the freshness: one of them
// always comes between the time for an alert and the alert.
func TestALaggingProviderIsNotBelievedWhileTheAlertWaits(t *testing.T) {
	long(t)
	t.Parallel()
	tell(t, func(s *story) {
		s.policy.Timings.AlertAfter, s.policy.Timings.Evaluate = 12*time.Minute, 110*time.Second
		s.policy.Timings.Reconcile, s.policy.Timings.Attempts = 30*time.Second, 1
		p := s.processOf(unknowing{s.outside}, s.outside, options{})
		defer p.end()
		p.settled()
		s.moved()
		s.set(func(o *outside) { o.shown = o.head - 1 })
		p.push()
		p.alarmed()
	})
}

// seasoned is a sink that has seen more fences than the store has given out.
type seasoned struct {
	*outside
	seen uint64
}

func (k seasoned) Apply(ctx context.Context, a source.Application) (source.Applied, error) {
	if a.Hold.Fence <= k.seen {
		return source.Applied{}, &source.BehindError{Seen: k.seen}
	}
	return k.outside.Apply(ctx, a)
}

// A store that was restored catches up with its sink in one attempt, and not
// at the price of a lease for each fence.
func TestAnOlderStoreCatchesUpWithItsSink(t *testing.T) {
	t.Parallel()
	tell(t, func(s *story) {
		p := s.processOf(s.outside, seasoned{s.outside, 41}, options{})
		defer p.end()
		p.complete(10 * time.Second)
		if s.isOpen(source.AlertRetriesExhausted) || s.isOpen(source.AlertRunFailed) || s.isOpen(source.AlertLockStale) {
			t.Error("catching up raised an alert")
		}
	})
}
