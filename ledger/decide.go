package ledger

import (
	"fmt"
	"time"

	"github.com/fencepost/fencepost"
)

// A Request is one operation on one delivery: [ClaimRequest],
// [RenewRequest], [StageRequest], [CompleteRequest] or [RepeatRequest].
//
//sumtype:decl
type Request interface {
	// On is the delivery that it is about.
	On() fencepost.AcceptedDelivery
	// Op names the operation in errors: "ledger.claim".
	Op() string

	isRequest()
}

func (ClaimRequest) isRequest()    {}
func (RenewRequest) isRequest()    {}
func (StageRequest) isRequest()    {}
func (CompleteRequest) isRequest() {}
func (RepeatRequest) isRequest()   {}

// A ClaimRequest is [fencepost.Ledger.Claim].
type ClaimRequest struct{ Delivery fencepost.AcceptedDelivery }

// A RenewRequest is [fencepost.Ledger.Renew].
type RenewRequest struct {
	Delivery fencepost.AcceptedDelivery
	Lease    fencepost.Lease
}

// A StageRequest is [fencepost.Ledger.Stage].
type StageRequest struct {
	Delivery    fencepost.AcceptedDelivery
	Lease       fencepost.Lease
	Publication fencepost.Publication
}

// A CompleteRequest is [fencepost.Ledger.Complete].
type CompleteRequest struct {
	Delivery fencepost.AcceptedDelivery
	Staged   fencepost.StagedPublication
}

// A RepeatRequest asks whether a delivery is known without claiming it, and
// moves its row's replay end to the delivery's where that is later: the
// *replayed* answer of DESIGN §4.
type RepeatRequest struct{ Delivery fencepost.AcceptedDelivery }

// On returns the delivery.
func (r ClaimRequest) On() fencepost.AcceptedDelivery { return r.Delivery }

// On returns the delivery.
func (r RenewRequest) On() fencepost.AcceptedDelivery { return r.Delivery }

// On returns the delivery.
func (r StageRequest) On() fencepost.AcceptedDelivery { return r.Delivery }

// On returns the delivery.
func (r CompleteRequest) On() fencepost.AcceptedDelivery { return r.Delivery }

// On returns the delivery.
func (r RepeatRequest) On() fencepost.AcceptedDelivery { return r.Delivery }

// Op returns "ledger.claim".
func (ClaimRequest) Op() string { return "ledger.claim" }

// Op returns "ledger.renew".
func (RenewRequest) Op() string { return "ledger.renew" }

// Op returns "ledger.stage".
func (StageRequest) Op() string { return "ledger.stage" }

// Op returns "ledger.complete".
func (CompleteRequest) Op() string { return "ledger.complete" }

// Op returns "ledger.repeat".
func (RepeatRequest) Op() string { return "ledger.repeat" }

// An Answer is what an operation is told. Exactly the field of the request's
// kind is set.
type Answer struct {
	Claim      fencepost.Claim
	Renewal    fencepost.Renewal
	Stage      fencepost.StageOutcome
	Completion fencepost.Completion
	Repeat     Repeat
}

// A Repeat says what a ledger knows of a delivery.
type Repeat uint8

// What a ledger may know. The zero Repeat is no answer.
const (
	// RepeatUnknown: there is no row.
	RepeatUnknown Repeat = iota + 1
	// RepeatKnown: there is a row for exactly this delivery.
	RepeatKnown
	// RepeatConflict: the key is known with another body.
	RepeatConflict
)

// A Moment is everything but the row that a decision rests on, read by the
// ledger in the same atomic step.
type Moment struct {
	// Wall judges replay ends, inclusive; and is told to people.
	Wall time.Time
	// Now is the clock that leases are timed by.
	Now Instant
	// Running is the ledger's own accumulated running time.
	Running time.Duration
	// ClosedThrough is the latest replay end of any row that was ever
	// removed, or zero. A delivery that ended by then is never new again,
	// whatever the wall clock says.
	ClosedThrough time.Time
	// Lease is the ledger's lease duration; positive.
	Lease time.Duration
	// HolderDead says that the row's holder is proven dead, so that its
	// lease needs no waiting for.
	HolderDead bool
	// Retired says that the rows of the delivery's trust set were retired:
	// what that set authenticated is never new again.
	Retired bool
	// NoRoom says that there is no capacity for a new row.
	NoRoom bool
}

// Fresh is what a new lease is made of. Fence is higher than every fence
// that this delivery ever had, also before a clean-up of its row; Evaluation
// is random. They are spent only if the answer hands out a lease under them.
type Fresh struct {
	Fence      fencepost.Fence
	Evaluation fencepost.EvaluationID
	Holder     Holder
}

// Check refuses values that were never made, with an error that matches
// [fencepost.ErrZeroValue], and a bounded delivery that was accepted under
// another replay window than the ledger's, with
// [fencepost.ReasonParameters] (DESIGN §5).
func Check(req Request, w fencepost.ReplayWindow) error {
	d, ok := req.On(), true
	switch r := req.(type) {
	case RenewRequest:
		ok = r.Lease.Valid()
	case StageRequest:
		ok = r.Lease.Valid() && r.Publication.Valid()
	case CompleteRequest:
		ok = r.Staged.Valid()
	case ClaimRequest, RepeatRequest:
	}
	if !ok || !d.Valid() {
		return fmt.Errorf("%s: %w", req.Op(), fencepost.ErrZeroValue)
	}
	if _, bounded := d.Lifetime().End(); bounded && d.Window() != w {
		return &fencepost.Error{
			Op: req.Op(), Reason: fencepost.ReasonParameters,
			Err: fmt.Errorf("delivery %s was accepted under replay window %v, the ledger has %v", d.ID(), d.Window(), w),
		}
	}
	return nil
}

// Decide is the table of DESIGN §5 and nothing else: no I/O, clock or
// chance. Row is what is stored for the request's delivery, or the zero Row;
// the row it returns is the one to store before the answer is given, equal
// to row where nothing changes. The request has passed [Check]. It panics
// on a fresh fence or evaluation that is zero where it needs one: a bug of
// the caller.
func Decide(row Row, req Request, at Moment, fresh Fresh) (Row, Answer) {
	switch r := req.(type) {
	case ClaimRequest:
		next, c := claim(row, r.Delivery, at, fresh)
		return next, Answer{Claim: c}
	case RenewRequest:
		next, c := renew(row, r, at, fresh)
		return next, Answer{Renewal: c}
	case StageRequest:
		next, c := stage(row, r, at, fresh)
		return next, Answer{Stage: c}
	case CompleteRequest:
		next, c := complete(row, r, at)
		return next, Answer{Completion: c}
	case RepeatRequest:
		next, c := repeat(row, r.Delivery, at)
		return next, Answer{Repeat: c}
	}
	panic(fmt.Sprintf("ledger.Decide: request of type %T", req))
}

func claim(row Row, d fencepost.AcceptedDelivery, at Moment, fresh Fresh) (Row, fencepost.Claim) {
	if row.State == Unclaimed {
		return claimNew(d, at, fresh)
	}
	if row.Binding != d.Binding() {
		return row, fencepost.BindingConflict{}
	}
	row = extend(row, d, at)
	switch row.State {
	case Leased:
		if left := row.Execution.left(at.Now); left >= 0 && !at.HolderDead {
			return row, fencepost.Busy{Deadline: row.Execution.Until, After: left}
		}
		row.Fence = fresh.Fence
		row.Attempts = min(row.Attempts+1, MaxAttempts)
		row.Execution = newTerm(at, fresh)
		return row, fencepost.Acquired{Lease: grant(row, row.Execution, at), Reclaimed: true, Attempt: int(row.Attempts)}
	case Staged:
		if left := row.Publishing.left(at.Now); left >= 0 && !at.HolderDead {
			return row, fencepost.Busy{Deadline: row.Publishing.Until, After: left}
		}
		row.Fence = fresh.Fence
		row.Publishing = newTerm(at, fresh)
		return row, fencepost.Publish{Staged: staged(row), Lease: grant(row, row.Publishing, at)}
	default:
		return row, fencepost.Completed{}
	}
}

func claimNew(d fencepost.AcceptedDelivery, at Moment, fresh Fresh) (Row, fencepost.Claim) {
	if end, bounded := d.Lifetime().End(); bounded &&
		(d.Lifetime().Passed(at.Wall) || !at.ClosedThrough.IsZero() && !end.After(at.ClosedThrough)) {
		return Row{}, fencepost.Expired{}
	}
	if at.Retired {
		return Row{}, fencepost.Expired{}
	}
	if at.NoRoom {
		return Row{}, fencepost.Full{}
	}
	row := setRunningEnd(Row{
		State: Leased, Key: d.Key(), Binding: d.Binding(),
		Evaluation: fresh.Evaluation, Trust: MarkOf(d.TrustSet()), Fence: fresh.Fence, Attempts: 1,
		Since: wholeSecond(at.Wall), Lifetime: d.Lifetime(), Execution: newTerm(at, fresh),
	}, d, at)
	return row, fencepost.Acquired{Lease: grant(row, row.Execution, at), Attempt: 1}
}

func renew(row Row, r RenewRequest, at Moment, fresh Fresh) (Row, fencepost.Renewal) {
	if row.State != Leased || !holds(row, r.Delivery, r.Lease) || row.Execution.left(at.Now) < 0 {
		return row, fencepost.Lost{}
	}
	row.Execution = later(row.Execution, newTerm(at, fresh))
	return row, fencepost.Renewed{Lease: grant(row, row.Execution, at)}
}

// stage does not look at the clock: an execution lease that has passed but
// was not taken over still stages. Clocks decide when a takeover may be
// tried, never whether a write is legal (invariant 18).
func stage(row Row, r StageRequest, at Moment, fresh Fresh) (Row, fencepost.StageOutcome) {
	switch {
	case row.State == Leased && holds(row, r.Delivery, r.Lease):
		row.Publishing = later(row.Execution, newTerm(at, fresh))
		row.Execution = Term{}
		row.State, row.Since = Staged, wholeSecond(at.Wall)
		row.Publication = r.Publication
		return row, fencepost.Staged{Staged: staged(row), Lease: grant(row, row.Publishing, at)}
	case row.State == Staged && row.Binding == r.Delivery.Binding() &&
		row.Evaluation == r.Lease.Evaluation() && row.Publication.Equal(r.Publication):
		// Said again, not renewed: the lease is what is left of it, and none
		// under a fence that somebody else has since been given.
		out := fencepost.Staged{Staged: staged(row)}
		if row.Fence == r.Lease.Fence() && row.Publishing.left(at.Now) > 0 {
			out.Lease = grant(row, row.Publishing, at)
		}
		return row, out
	}
	return row, fencepost.Lost{}
}

func complete(row Row, r CompleteRequest, at Moment) (Row, fencepost.Completion) {
	s := r.Staged
	if row.State < Staged || row.Binding != r.Delivery.Binding() ||
		row.Key != s.Delivery() || row.Evaluation != s.Evaluation() {
		return row, fencepost.Lost{}
	}
	if row.State == Done {
		if row.Published != s.Publication().Digest() {
			return row, fencepost.Lost{}
		}
		return row, fencepost.Completed{}
	}
	if !row.Publication.Equal(s.Publication()) {
		return row, fencepost.Lost{}
	}
	row.State, row.Since = Done, wholeSecond(at.Wall)
	row.Published = row.Publication.Digest()
	row.Publication, row.Publishing = fencepost.Publication{}, Term{}
	return row, fencepost.Completed{}
}

func repeat(row Row, d fencepost.AcceptedDelivery, at Moment) (Row, Repeat) {
	switch {
	case row.State == Unclaimed:
		return row, RepeatUnknown
	case row.Binding != d.Binding():
		return row, RepeatConflict
	}
	return extend(row, d, at), RepeatKnown
}

// holds reports whether l is the row's lease: a comparison for equality, in
// the same step as the change that it permits.
func holds(row Row, d fencepost.AcceptedDelivery, l fencepost.Lease) bool {
	return row.Binding == d.Binding() && row.Evaluation == l.Evaluation() && row.Fence == l.Fence()
}

// extend moves the replay end to d's where that is later, on both clocks.
func extend(row Row, d fencepost.AcceptedDelivery, at Moment) Row {
	next := row.Lifetime.Later(d.Lifetime())
	if next == row.Lifetime {
		return row
	}
	row.Lifetime = next
	return setRunningEnd(row, d, at)
}

// setRunningEnd dates the end on the running clock. What is left of the
// lifetime by the wall clock may be too little, if that has jumped ahead: so
// it is as long as a delivery's life can be from its signed time on, and then
// both clocks would have to be wrong for the row to go early (invariant 18).
func setRunningEnd(row Row, d fencepost.AcceptedDelivery, at Moment) Row {
	end, bounded := row.Lifetime.End()
	if !bounded {
		row.RunningEnd = 0
		return row
	}
	w := d.Window()
	row.RunningEnd = max(row.RunningEnd, at.Running+max(w.MaxSignedAge+w.MaxQueueAge, end.Sub(at.Wall)))
	return row
}

func newTerm(at Moment, fresh Fresh) Term {
	return Term{
		Deadline: Instant{Boot: at.Now.Boot, At: at.Now.At + at.Lease},
		Until:    at.Wall.Add(at.Lease).UTC().Round(0),
		Holder:   fresh.Holder,
	}
}

// later is next, with neither of its deadlines earlier than in old.
func later(old, next Term) Term {
	if old.Deadline.Boot == next.Deadline.Boot {
		next.Deadline.At = max(old.Deadline.At, next.Deadline.At)
		if old.Until.After(next.Until) {
			next.Until = old.Until
		}
	}
	return next
}

func grant(row Row, t Term, at Moment) fencepost.Lease {
	l, err := fencepost.GrantLease(row.Evaluation, row.Fence, t.left(at.Now), t.Until)
	if err != nil {
		panic("ledger.Decide: " + err.Error())
	}
	return l
}

func staged(row Row) fencepost.StagedPublication {
	s, err := row.Staged()
	if err != nil {
		panic("ledger.Decide: " + err.Error())
	}
	return s
}

func wholeSecond(t time.Time) time.Time { return time.Unix(t.Unix(), 0).UTC() }
