package source_test

import (
	"context"
	"testing"
	"time"

	"github.com/fencepost/fencepost/internal/source"
)

// broken is a sink with a bug.
type broken struct{ *outside }

func (broken) Place(context.Context) (source.Place, error) { panic("bug") }

// A panic is a bug of ours: it costs its own attempt, as a worker that died
// does, and neither the process nor other sources.
func TestAPanicCostsItsOwnAttempt(t *testing.T) {
	t.Parallel()
	tell(t, func(s *story) {
		other := s.policy
		other.ID[0], other.Key = 2, "other"
		buggy := broken{&outside{checkout: s.checkout, head: 1}}
		p := s.process(options{others: []*source.Source{{Policy: other, Remote: buggy, Sink: buggy}}})
		defer p.end()
		p.settled()
		time.Sleep(2 * time.Minute)
		if !s.isOpen(source.AlertLockStale) || !s.isOpen(source.AlertRunFailed) {
			t.Error("nobody was told of the attempt that panicked")
		}
		s.moved()
		p.push()
		p.complete(time.Minute)
	})
}

// blind has a bug where it looks.
type blind struct{ *outside }

func (blind) Observe(context.Context) (source.Observation, error) { panic("bug") }

func TestAPanicCostsItsOwnLook(t *testing.T) {
	long(t)
	t.Parallel()
	tell(t, func(s *story) {
		other := s.policy
		other.ID[0], other.Key = 2, "other"
		buggy := blind{&outside{checkout: s.checkout, head: 1}}
		p := s.process(options{others: []*source.Source{{Policy: other, Remote: buggy, Sink: buggy}}})
		defer p.end()
		p.settled()
		time.Sleep(5 * time.Minute)
		if !s.isOpen(source.AlertProvider) {
			t.Error("nobody was told of the looks that panicked")
		}
		// A head that no webhook tells of is found all the same.
		s.moved()
		p.complete(3 * time.Minute)
	})
}
