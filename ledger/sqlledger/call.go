package sqlledger

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/store"
	"github.com/fencepost/fencepost/ledger"
)

// The kinds of a request, as ledger_step_v1 knows them.
const (
	kindClaim = iota + 1
	kindRenew
	kindStage
	kindComplete
	kindRepeat
)

// callStep confirms what it saw where an answer may rest on that alone: not
// where the row is another's to work on.
const callStep = `select now_us, no_room, last_fence_, closed, running, coalesce(drawn, 0),
		seen_state, coalesce(seen_evaluation, ''), coalesce(seen_fence, 0), seen, stored,
		case when stored is null and (seen_state = 3 or seen_state > 0 and ?::int <> 1) then ` + store.Confirm + ` else '' end
	from ledger_step_v1(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`

// A call is an operation as one statement: what it compares and may store, and
// what came back.
type call struct {
	req ledger.Request
	own change
	// kind, evaluation, fence and publication are the request's.
	kind        int
	evaluation  fencepost.EvaluationID
	fence       int64
	publication fencepost.Publication
	// dead is a lease that needs no waiting for, if any.
	dead fencepost.Lease

	sight  sight
	noRoom bool
	// running is the part's running time, in nanoseconds.
	running int64
	// drawn is a new fence of the part, or 0.
	drawn int64
	// stored is the digest of the row that was stored; empty if none was.
	stored []byte
}

func newCall(req ledger.Request, own change) *call {
	c := &call{req: req, own: own}
	switch r := req.(type) {
	case ledger.ClaimRequest:
		c.kind, c.evaluation = kindClaim, own.evaluation
	case ledger.RenewRequest:
		c.kind, c.evaluation, c.fence = kindRenew, r.Lease.Evaluation(), int64(r.Lease.Fence().Uint64())
	case ledger.StageRequest:
		c.kind, c.evaluation, c.fence, c.publication = kindStage, r.Lease.Evaluation(), int64(r.Lease.Fence().Uint64()), r.Publication
	case ledger.CompleteRequest:
		c.kind, c.publication = kindComplete, r.Staged.Publication()
		if r.Staged.Delivery() == r.Delivery.Key() {
			// Of another delivery it matches no row of this one.
			c.evaluation = r.Staged.Evaluation()
		}
	case ledger.RepeatRequest:
		c.kind = kindRepeat
	}
	return c
}

// args are those of ledger_step_v1.
func (c *call) args(l *Ledger) []any {
	d := c.req.On()
	binding, trust := d.Binding(), ledger.MarkOf(d.TrustSet())
	part := l.owner(d.Key())
	var end any
	if t, bounded := d.Lifetime().End(); bounded {
		end = t.UnixNano()
	}
	marks := trust[:]
	if trust.IsZero() {
		marks = []byte{}
	}
	var publication []byte
	_, none := c.publication.None()
	if c.publication.Valid() {
		publication = ledger.AppendPublication(nil, c.publication)
	}
	var dead []byte
	if c.dead.Valid() {
		id := c.dead.Evaluation()
		dead = id[:]
	}
	w := l.cfg.Window
	return []any{
		c.kind, d.Key().Hex(), int64(part), binding[:], serverBoot[:], int64(l.cfg.Lease), int64(w.MaxSignedAge + w.MaxQueueAge), end,
		l.claimed(part), marks, c.evaluation.String(), c.evaluation[:], c.fence, dead, int64(c.dead.Fence().Uint64()), publication, none, c.own.token,
	}
}

// call is an operation in one round trip. What is answered is decided here, by
// the table of package ledger, on what the database saw; and the row that it
// stored must be the one that the table says.
func (l *Ledger) call(ctx context.Context, req ledger.Request, own change) (ledger.Answer, error) {
	c := newCall(req, own)
	answer, err := l.callOnce(ctx, c)
	if busy, ok := answer.Claim.(fencepost.Busy); err == nil && ok && busy.After >= 0 && l.abandoned.Has(c.sight.row.Evaluation, c.sight.row.Fence) {
		// Only now is it known whose lease it is: this process gave it up.
		c.dead, err = fencepost.GrantLease(c.sight.row.Evaluation, c.sight.row.Fence, 1, c.sight.wall)
		if err != nil {
			return ledger.Answer{}, err
		}
		return l.callOnce(ctx, c)
	}
	return answer, err
}

func (l *Ledger) callOnce(ctx context.Context, c *call) (ledger.Answer, error) {
	key := c.req.On().Key()
	var now, state, fence int64
	var evaluation string
	var body []byte
	c.sight = sight{key: key}
	p := &c.sight.part
	p.number = int64(l.owner(key))
	var confirmed string
	found, err := l.db.Call(ctx, c.req.Op(), callStep, append([]any{c.kind}, c.args(l)...), &now, &c.noRoom, &p.lastFence, &p.closed, &c.running, &c.drawn,
		&state, &evaluation, &fence, &body, &c.stored, &confirmed)
	if err != nil {
		return ledger.Answer{}, err
	}
	if !found || p.lastFence < 0 {
		return ledger.Answer{}, fmt.Errorf("part %d is missing: %w", p.number, ErrCorrupt)
	}
	c.sight.wall, c.sight.now = l.clock(now)
	if err := c.sight.decode(state, evaluation, fence, body); err != nil {
		return ledger.Answer{}, err
	}
	return c.decide(l.cfg.Lease)
}

// decide decides on what the database saw, and holds what it stored to that.
func (c *call) decide(lease time.Duration) (ledger.Answer, error) {
	s := c.sight
	at := ledger.Moment{
		Wall: s.wall, Now: s.now, Lease: lease, NoRoom: c.noRoom, Running: time.Duration(c.running),
		HolderDead: c.dead.Valid() && c.dead.Evaluation() == s.row.Evaluation && c.dead.Fence() == s.row.Fence,
	}
	if s.part.closed > 0 {
		at.ClosedThrough = time.Unix(0, s.part.closed).UTC()
	}
	// Where none was drawn the table must not need one, or the rows differ.
	fresh := ledger.Fresh{Evaluation: c.own.evaluation}
	var err error
	if fresh.Fence, err = fencepost.ParseFence(uint64(max(c.drawn, 1))); err != nil {
		return ledger.Answer{}, err
	}
	next, answer := ledger.Decide(s.row, c.req, at, fresh)
	if next.Equal(s.row) {
		if len(c.stored) != 0 {
			return ledger.Answer{}, c.disagree("a row was stored, and none should be")
		}
		return answer, nil
	}
	body, err := ledger.AppendRow(make([]byte, 0, ledger.EncodedLen(next)), next)
	if err != nil {
		return ledger.Answer{}, errors.Join(c.disagree("no row can be stored"), err)
	}
	if sum := sha256.Sum256(body); string(sum[:]) != string(c.stored) {
		return ledger.Answer{}, c.disagree("another row was stored")
	}
	return answer, nil
}

// disagree says that the database's function and the table are not the same.
func (c *call) disagree(how string) error {
	return fmt.Errorf("%s of delivery %s: the database's function ledger_step_v1 decided otherwise than this program: %s: %w",
		c.req.Op(), c.sight.key, how, ErrCorrupt)
}
