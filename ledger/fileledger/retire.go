package fileledger

import (
	"context"
	"errors"
	"fmt"

	"github.com/fencepost/fencepost/ledger"
)

// maxRetired is how many trust sets can be retired: the other half of the
// marks in a snapshot is for those that are not.
const maxRetired = maxMarks / 2

// checkRetire reports why the rows of a trust set can't be retired.
func (s *state) checkRetire(mark ledger.TrustMark) error {
	if s.retired[mark] {
		return fmt.Errorf("retirement of a trust set that is retired: %w", ledger.ErrIllegalRow)
	}
	if len(s.retired) >= maxRetired {
		return fmt.Errorf("retirement of more than %d trust sets: %w", maxRetired, ledger.ErrIllegalRow)
	}
	for _, r := range s.rows {
		if ledger.Holds(r, mark) {
			return fmt.Errorf("retirement of a trust set with work under way: %w", ledger.ErrIllegalRow)
		}
	}
	return nil
}

// retire forgets the rows of a trust set that are done for ever.
func (s *state) retire(mark ledger.TrustMark) {
	for key, r := range s.rows {
		if ledger.Retirable(r, mark) {
			s.put(key, r, ledger.Row{})
		}
	}
	s.retired[mark] = true
	s.hidden += s.done.of(mark)
}

// trust counts the rows of each trust set.
func (s *state) trust(t ledger.Trust) {
	for _, r := range s.rows {
		t.Count(r)
	}
	marked := 0
	if s.done != nil {
		for _, m := range s.done.marks {
			if !s.retired[m.mark] {
				t.Add(m.mark, ledger.TrustRows{Retirable: m.rows})
			}
			marked += m.rows
		}
	}
	t.Add(ledger.TrustMark{}, ledger.TrustRows{Other: s.done.len() - marked})
	for mark := range s.retired {
		t.Retire(mark)
	}
}

// Trust counts the rows by the trust set that their deliveries were
// authenticated by. Its errors are those of [fencepost.Ledger].
func (l *Ledger) Trust(ctx context.Context) (ledger.Trust, error) {
	all := ledger.Trust{}
	var errs []error
	for n := range l.shards {
		// Of this shard's own: where ctx ends first, its loop still fills it.
		part := ledger.Trust{}
		o := &op{do: func(_ context.Context, s *shard) error {
			s.state.trust(part)
			return nil
		}}
		if err := l.enqueue(ctx, n, o); err != nil {
			errs = append(errs, err)
			continue
		}
		all.AddAll(part)
	}
	return all, opError("ledger.trust", errors.Join(errs...))
}

// Retired are the marks of trust sets that were retired, sorted. Its errors
// are those of [fencepost.Ledger].
func (l *Ledger) Retired(ctx context.Context) ([]ledger.TrustMark, error) {
	head, err := l.head(ctx)
	return head.Retired, err
}

// Retire forgets the rows of a trust set that are done for ever, and durably
// answers every delivery that it authenticated and that is not known
// [fencepost.Expired] from then on. The caller has made sure that no key of the
// set can authenticate anything any more: otherwise a delivery that was
// published would be taken for new under another set.
//
// Each shard is one durable step; after an error some may have retired theirs,
// and saying it again goes on. Where a delivery of the set is leased or staged
// the error matches [ledger.ErrHeld] and nothing was retired, unless a delivery was
// claimed in between. It returns how many rows were retired.
func (l *Ledger) Retire(ctx context.Context, mark ledger.TrustMark) (int, error) {
	const name = "ledger.retire"
	if mark.IsZero() {
		return 0, fmt.Errorf("%s: no trust set: %w", name, ErrConfig)
	}
	t, err := l.Trust(ctx)
	if err != nil {
		return 0, err
	}
	if held := t[mark].Held; held > 0 {
		return 0, &ledger.HeldError{Rows: held}
	}
	total := 0
	for n := range l.shards {
		// Of this shard's own, as above. A refusal is kept apart: an error of
		// the operation would be one of all that share its pass.
		done := new(retirement)
		o := &op{do: func(ctx context.Context, s *shard) (err error) {
			*done, err = s.retire(ctx, mark)
			return err
		}}
		if err := l.enqueue(ctx, n, o); err != nil {
			return total, opError(name, err)
		}
		if done.refused != nil {
			return total, opError(name, done.refused)
		}
		total += done.rows
	}
	return total, nil
}

// A retirement is what came of one in a shard.
type retirement struct {
	rows    int
	refused error
}

func (s *shard) retire(ctx context.Context, mark ledger.TrustMark) (retirement, error) {
	if s.state.retired[mark] {
		return retirement{}, nil
	}
	t := ledger.Trust{}
	s.state.trust(t)
	if held := t[mark].Held; held > 0 {
		return retirement{refused: &ledger.HeldError{Rows: held}}, nil
	}
	if len(s.state.retired) >= maxRetired {
		return retirement{refused: fmt.Errorf("%d trust sets are retired, and no more can be", maxRetired)}, nil
	}
	before := s.state.count()
	if err := s.append(ctx, record{stamp: s.state.stamp.at(s.led.cfg.Instant()), mark: mark}, ledger.Row{}); err != nil {
		return retirement{}, err
	}
	return retirement{rows: before - s.state.count()}, nil
}
