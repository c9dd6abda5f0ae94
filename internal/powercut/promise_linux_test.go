package powercut_test

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/inbox"
	"github.com/fencepost/fencepost/ledger"
	"github.com/fencepost/fencepost/ledger/fileledger"
)

// A promise is what is known of one delivery from answers: a row on the disk
// may have come further, and nothing else.
type promise struct {
	state      ledger.State
	evaluation string
	fence      uint64
	value      string
	// fences were given; each once.
	fences map[uint64]bool
}

// Promises are what a volume has to keep.
type promises struct {
	rows map[int]*promise
	// mails are those that were answered; true once forgetting one has begun.
	mails map[string]bool
	// broken are the sentences about what does not hold, and lost how many
	// answers are gone without a trace.
	broken []string
	lost   int
}

func newPromises() *promises {
	return &promises{rows: map[int]*promise{}, mails: map[string]bool{}}
}

func (p *promises) breach(format string, args ...any) {
	p.broken = append(p.broken, fmt.Sprintf(format, args...))
}

var stateOf = map[string]ledger.State{
	acquiredOp: ledger.Leased, renewedOp: ledger.Leased,
	stagedOp: ledger.Staged, publishOp: ledger.Staged, completedOp: ledger.Done,
}

// hear adds an answer. Those of several processes come in any order.
func (p *promises) hear(a ack) {
	switch a.Op {
	case readyOp, fullOp, noRoomOp:
		return
	case failedOp:
		p.breach("a writer failed before the cut: %s", a.Value)
		return
	case recordedOp:
		if _, begun := p.mails[a.Mail]; !begun {
			p.mails[a.Mail] = false
		}
		return
	case doingOp:
		p.mails[a.Mail] = true
		return
	}
	r := p.rows[a.N]
	if r == nil {
		r = &promise{evaluation: a.Evaluation, fences: map[uint64]bool{}}
		p.rows[a.N] = r
	}
	if r.evaluation != a.Evaluation {
		p.breach("delivery %d has the evaluations %s and %s [4]", a.N, r.evaluation, a.Evaluation)
	}
	if a.Op == acquiredOp || a.Op == publishOp {
		if r.fences[a.Fence] {
			p.breach("delivery %d was given the fence %d twice [5]", a.N, a.Fence)
		}
		r.fences[a.Fence] = true
	}
	if a.Value != "" {
		if r.value != "" && r.value != a.Value {
			p.breach("delivery %d has the results %s and %s [7]", a.N, r.value, a.Value)
		}
		r.value = a.Value
	}
	r.state, r.fence = max(r.state, stateOf[a.Op]), max(r.fence, a.Fence)
}

// checkLedger holds the rows against the promises, and takes over what else
// is found: it has to stay, too.
func (p *promises) checkLedger(ctx context.Context, l *fileledger.Ledger) error {
	for n, r := range p.rows {
		row, found, err := l.Lookup(ctx, deliveryOf(n).Key())
		if err != nil {
			return fmt.Errorf("look delivery %d up: %w", n, err)
		}
		if !found {
			p.lost++
			p.breach("delivery %d was answered %v and is gone [3]", n, r.state)
			continue
		}
		got := promise{state: row.State, evaluation: row.Evaluation.String(), fence: row.Fence.Uint64(), fences: r.fences}
		switch row.State {
		case ledger.Staged:
			got.value = valueOf(row.Publication)
		case ledger.Done:
			got.value = fmt.Sprintf("%x", row.Published[:8])
		}
		if got.state < r.state {
			p.lost++
			p.breach("delivery %d was answered %v and is %v [3]", n, r.state, got.state)
		}
		if got.evaluation != r.evaluation {
			p.breach("delivery %d had the evaluation %s and has %s [4]", n, r.evaluation, got.evaluation)
		}
		if got.fence < r.fence {
			p.breach("delivery %d had the fence %d and has %d [5]", n, r.fence, got.fence)
		}
		if r.value != "" && got.value != r.value {
			p.breach("delivery %d had the result %s and has %s [7]", n, r.value, got.value)
		}
		p.rows[n] = &got
	}
	return nil
}

// goOn takes up to most of the unfinished deliveries to their ends.
func (p *promises) goOn(ctx context.Context, l *fileledger.Ledger, most int) error {
	for _, n := range slices.Sorted(maps.Keys(p.rows)) {
		if p.rows[n].state == ledger.Done {
			continue
		}
		if most--; most < 0 {
			return nil
		}
		before := *p.rows[n]
		if err := p.finish(ctx, l, n, before); err != nil {
			return fmt.Errorf("go on with delivery %d, which is %v: %w", n, before.state, err)
		}
	}
	return nil
}

func (p *promises) finish(ctx context.Context, l *fileledger.Ledger, n int, before promise) error {
	d := deliveryOf(n)
	claim, err := l.Claim(ctx, d)
	if err != nil {
		return err
	}
	var staged fencepost.StagedPublication
	switch c := claim.(type) {
	case fencepost.Acquired:
		if before.state != ledger.Leased {
			p.breach("delivery %d is %v and was leased once more [6]", n, before.state)
		}
		p.later(n, before, c.Lease)
		p.hear(leaseAck(acquiredOp, n, c.Lease))
		pub, err := fencepost.NewPublication(fmt.Appendf(nil, "after %d", n))
		if err != nil {
			return err
		}
		o, err := l.Stage(ctx, d, c.Lease, pub)
		if err != nil {
			return err
		}
		s, ok := o.(fencepost.Staged)
		if !ok {
			return fmt.Errorf("stage answered %T", o)
		}
		staged = s.Staged
	case fencepost.Publish:
		p.later(n, before, c.Lease)
		staged = c.Staged
		a := leaseAck(publishOp, n, c.Lease)
		a.Value = valueOf(staged.Publication())
		p.hear(a)
	default:
		return fmt.Errorf("claim answered %T, though its holder is dead", claim)
	}
	if _, err := l.Complete(ctx, d, staged); err != nil {
		return err
	}
	p.hear(ack{Op: completedOp, N: n, Evaluation: staged.Evaluation().String(), Value: valueOf(staged.Publication())})
	return nil
}

func (p *promises) later(n int, before promise, l fencepost.Lease) {
	if l.Fence().Uint64() <= before.fence {
		p.breach("delivery %d had the fence %d, and the next is %d [5]", n, before.fence, l.Fence().Uint64())
	}
}

// checkInbox takes every mail out, reads it, and keeps at most keep of them.
func (p *promises) checkInbox(ctx context.Context, b *inbox.Inbox, keep int) error {
	if err := b.Health(); err != nil {
		p.breach("the inbox is damaged: %v", err)
	}
	held := map[string]inbox.ItemID{}
	for s := b.Stats(); s.Entries > s.Leased; s = b.Stats() {
		item, err := b.Next(ctx)
		if err != nil {
			return err
		}
		r, err := b.Read(ctx, item.ID)
		if err != nil {
			return err
		}
		name := nameOf(r)
		if _, twice := held[name]; twice {
			p.breach("mail %s was handed out twice", name)
		}
		if !bytes.Equal(r.Body, bodyOf(name)) || !strings.Contains(name, "-") {
			p.breach("mail %q has another body", name)
		}
		held[name] = item.ID
	}
	for name, forgotten := range p.mails {
		if _, ok := held[name]; !ok && !forgotten {
			p.lost++
			p.breach("mail %s was accepted and is gone [3]", name)
		}
	}
	// What is held stays, until its end was begun; ends that were begun may
	// have come.
	clear(p.mails)
	for name, id := range held {
		p.mails[name] = keep <= 0
		if keep--; keep >= 0 {
			continue
		}
		if err := b.Done(id, ""); err != nil {
			return err
		}
	}
	return nil
}
