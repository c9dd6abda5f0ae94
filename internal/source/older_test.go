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
