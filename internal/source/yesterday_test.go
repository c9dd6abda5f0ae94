package source_test

import (
	"context"
	"crypto/rand"
	"testing"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/source"
)

// forked has heads of which none contains another.
type forked struct{ *outside }

func (forked) Contains(_ context.Context, head, other fencepost.CommitID) (source.Ancestry, error) {
	if head == other {
		return source.Same, nil
	}
	return source.Apart, nil
}

// A provider that shows the applied head right after another one was announced
// has not answered, also where branches may be forced.
func TestYesterdaysHeadIsNoAnswerToAForcedPush(t *testing.T) {
	long(t)
	t.Parallel()
	tell(t, func(s *story) {
		forced := s.policy
		forced.ID[0], forced.Key, forced.AcceptForced = 2, "forced", true
		o := &outside{checkout: s.checkout, head: 1}
		p := s.process(options{others: []*source.Source{{Policy: forced, Remote: forked{o}, Sink: o}}})
		defer p.end()
		p.settled()
		d := source.DeliveryRow{Namespace: forced.Key, Source: forced.ID, Commit: number(2)}
		for _, id := range [][]byte{d.ID[:], d.Body[:], d.Delivery[:]} {
			if _, err := rand.Read(id); err != nil {
				s.Fatal(err)
			}
		}
		o.set(func(o *outside) { o.head, o.shown = 2, 1 })
		if _, err := p.intake.Push(context.Background(), forced, d); err != nil {
			s.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		if err := p.store.Change(context.Background(), forced.ID, source.Lookup{}, func(snap source.Snapshot) (source.Change, error) {
			if snap.Source.UnmetSince.IsZero() || snap.Open == nil || snap.Open.Reason != fencepost.ReasonHeadContradiction {
				s.Errorf("unmet since %v, open run %+v", snap.Source.UnmetSince, snap.Open)
			}
			return source.Change{}, nil
		}); err != nil {
			s.Fatal(err)
		}
		o.set(func(o *outside) { o.shown = 0 })
		time.Sleep(30 * time.Second)
		o.set(func(o *outside) {
			if o.applied != 2 {
				s.Errorf("head %d is applied, want the announced one", o.applied)
			}
		})
	})
}

// amended has heads of which each contains the first one, and no other.
type amended struct{ *outside }

func (amended) Contains(_ context.Context, head, other fencepost.CommitID) (source.Ancestry, error) {
	switch {
	case head == other:
		return source.Same, nil
	case other == number(1):
		return source.Ahead, nil
	case head == number(1):
		return source.Behind, nil
	}
	return source.Apart, nil
}

// Webhooks may come in another order than the pushes were in: the order of the
// heads is the provider's. What an earlier push named, forced away before it
// was ever applied, holds nothing up for longer than a further look.
func TestALateWebhookOfAHeadThatIsNoMoreHoldsNothingUp(t *testing.T) {
	long(t)
	t.Parallel()
	tell(t, func(s *story) {
		policy := s.policy
		policy.ID[0], policy.Key = 2, "amended"
		o := &outside{checkout: s.checkout, head: 1}
		p := s.process(options{others: []*source.Source{{Policy: policy, Remote: amended{o}, Sink: o}}})
		defer p.end()
		p.settled()
		o.set(func(o *outside) { o.why = fencepost.ReasonProvider })
		for _, head := range []byte{3, 2} {
			d := source.DeliveryRow{Namespace: policy.Key, Source: policy.ID, Commit: number(head)}
			for _, id := range [][]byte{d.ID[:], d.Body[:], d.Delivery[:]} {
				if _, err := rand.Read(id); err != nil {
					s.Fatal(err)
				}
			}
			if _, err := p.intake.Push(context.Background(), policy, d); err != nil {
				s.Fatal(err)
			}
		}
		o.set(func(o *outside) { o.head, o.why = 3, "" })
		time.Sleep(6 * time.Minute)
		o.set(func(o *outside) {
			if o.applied != 3 {
				s.Errorf("head %d is applied, want the branch's", o.applied)
			}
		})
		if s.isOpen(source.AlertHeadContradiction) {
			s.Error("the alert stays open")
		}
	})
}
