package ledger

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/fencepost/fencepost"
)

// ErrIllegalRow is matched by every error about a row, or a change of one,
// that DESIGN §5 does not allow.
var ErrIllegalRow = errors.New("illegal ledger row")

// A State is how far a delivery has come. An expired lease is still Leased.
type State uint8

// The states, in their only order. The zero State means that there is no row.
const (
	Unclaimed State = iota
	Leased
	Staged
	Done
)

// String returns the state's name in lower case.
func (s State) String() string {
	switch s {
	case Unclaimed:
		return "unclaimed"
	case Leased:
		return "leased"
	case Staged:
		return "staged"
	case Done:
		return "done"
	}
	return "state(" + strconv.Itoa(int(s)) + ")"
}

// A BootID tells one start of the clock that leases are timed by from the
// next. A store whose clock outlives restarts (an SQL server's) uses one
// fixed id. The zero BootID names none.
type BootID [16]byte

// An Instant is a reading of the clock that leases are timed by. Readings of
// different boots can't be compared.
type Instant struct {
	Boot BootID
	At   time.Duration
}

// A Holder says where to look whether the holder of a lease still lives. It
// means nothing to [Decide]; the zero Holder can't be looked up.
type Holder struct {
	Slot  uint32
	Epoch uint64
}

// A Term is the temporary part of a lease. The zero Term is none.
type Term struct {
	// Deadline is inclusive: at it, the lease still stands.
	Deadline Instant
	// Until is the wall time of the deadline, for people.
	Until time.Time
	// Holder is who obtained or last renewed it.
	Holder Holder
}

// IsZero reports whether t is no term.
func (t Term) IsZero() bool { return t == Term{} }

// left is how long t still lasts at now; negative when it has passed.
func (t Term) left(now Instant) time.Duration {
	if t.Deadline.Boot != now.Boot {
		return -1
	}
	return t.Deadline.At - now.At
}

// MaxAttempts is where [Row.Attempts] stops counting.
const MaxAttempts = 1<<24 - 1

// A Row is what a ledger knows of one delivery. The zero Row is Unclaimed:
// there is none. [Row.Validate] says which field belongs to which state.
type Row struct {
	State      State
	Key        fencepost.DeliveryKey
	Binding    fencepost.Binding
	Evaluation fencepost.EvaluationID
	// Trust marks the trust set whose key authenticated the delivery when
	// it was first claimed; zero in a row that was made before there were
	// marks. It decides nothing but which rows can be retired.
	Trust TrustMark
	// Fence is the latest lease's, for good.
	Fence fencepost.Fence
	// Attempts counts the execution leases, at most [MaxAttempts].
	Attempts uint32
	// Since is the wall time, in whole seconds, at which the row came into
	// its state, for people.
	Since time.Time
	// Lifetime never gets shorter.
	Lifetime fencepost.ReplayLifetime
	// RunningEnd is the end of a bounded lifetime on the ledger's own
	// running time: a second clock, so that a wall clock that jumps ahead
	// does not open the replay window. Zero for a permanent lifetime.
	RunningEnd time.Duration

	// Execution is set in state Leased alone.
	// Invariant: staged ⇒ no execution lease.
	Execution Term
	// Publishing is set in state Staged alone.
	Publishing Term
	// Publication is set in state Staged alone. Invariant: immutable.
	Publication fencepost.Publication
	// Published is the publication's digest, in state Done alone.
	Published [32]byte
}

// Equal reports whether r and q are the same value.
func (r Row) Equal(q Row) bool {
	if !r.Publication.Equal(q.Publication) {
		return false
	}
	r.Publication, q.Publication = fencepost.Publication{}, fencepost.Publication{}
	return r.scalars() == q.scalars()
}

// scalars is a row as a comparable value, less its publication.
type scalars struct {
	state      State
	key        fencepost.DeliveryKey
	binding    fencepost.Binding
	evaluation fencepost.EvaluationID
	trust      TrustMark
	fence      fencepost.Fence
	attempts   uint32
	since      time.Time
	lifetime   fencepost.ReplayLifetime
	running    time.Duration
	execution  Term
	publishing Term
	published  [32]byte
}

func (r *Row) scalars() scalars {
	return scalars{
		r.State, r.Key, r.Binding, r.Evaluation, r.Trust, r.Fence, r.Attempts, r.Since,
		r.Lifetime, r.RunningEnd, r.Execution, r.Publishing, r.Published,
	}
}

// Staged returns what a staged row holds for publishing. Its error matches
// [ErrIllegalRow] in any other state.
func (r Row) Staged() (fencepost.StagedPublication, error) {
	if r.State != Staged {
		return fencepost.StagedPublication{}, fmt.Errorf("nothing is staged in state %v: %w", r.State, ErrIllegalRow)
	}
	s, err := fencepost.RestoreStaged(r.Key, r.Evaluation, r.Publication)
	if err != nil {
		return fencepost.StagedPublication{}, fmt.Errorf("%w: %w", ErrIllegalRow, err)
	}
	return s, nil
}

// Validate reports a row that no sequence of operations leads to. Its error
// matches [ErrIllegalRow].
func (r Row) Validate() error {
	if r.State == Unclaimed {
		if !r.Equal(Row{}) {
			return illegal("an unclaimed row holds something")
		}
		return nil
	}
	if r.State > Done {
		return illegal("unknown " + r.State.String())
	}
	if r.Key.IsZero() || r.Evaluation.IsZero() || r.Fence.IsZero() {
		return illegal("key, evaluation or fence missing")
	}
	if r.Attempts == 0 || r.Attempts > MaxAttempts {
		return illegal("attempts out of range")
	}
	if err := r.validateTimes(); err != nil {
		return err
	}
	return r.validateState()
}

func (r *Row) validateTimes() error {
	if s := r.Since.Unix(); s < 0 || s >= 1<<40 || r.Since != time.Unix(s, 0).UTC() {
		return illegal("since is not a whole UTC second from 1970 on")
	}
	end, bounded := r.Lifetime.End()
	if bounded && !nanoRange(end) {
		return illegal("replay end out of range")
	}
	if r.RunningEnd < 0 || !bounded && r.RunningEnd != 0 {
		return illegal("running end out of range, or without a replay end")
	}
	return nil
}

func (r *Row) validateState() error {
	leased, staged := !r.Execution.IsZero(), !r.Publishing.IsZero()
	digested := r.Published != [32]byte{}
	want := [3]bool{r.State == Leased, r.State == Staged, r.State == Done}
	if [3]bool{leased, staged, digested} != want || r.Publication.Valid() != (r.State == Staged) {
		return illegal("a " + r.State.String() + " row holds what another state does")
	}
	for _, t := range []Term{r.Execution, r.Publishing} {
		if !t.IsZero() && (t.Deadline.Boot == BootID{} || t.Deadline.At < 0 || !nanoRange(t.Until)) {
			return illegal("deadline out of range")
		}
	}
	return nil
}

// nanoRange reports whether t is UTC, without monotonic reading, and fits
// nanoseconds since 1970 in 63 bits.
func nanoRange(t time.Time) bool {
	return t.Unix() >= 0 && t.Unix() < math.MaxInt64/int64(time.Second) && t == time.Unix(0, t.UnixNano()).UTC()
}

func illegal(what string) error { return fmt.Errorf("%s: %w", what, ErrIllegalRow) }

// CheckEdge reports a change that no operation makes: the edges are
// unclaimed → leased → staged → done, each state to itself, and done →
// unclaimed by clean-up. Both rows are valid. Its error matches
// [ErrIllegalRow].
func CheckEdge(from, to Row) error {
	if from.State == Unclaimed {
		if to.State > Leased {
			return illegalEdge(from, to)
		}
		return nil
	}
	if to.State == Unclaimed {
		if _, bounded := from.Lifetime.End(); from.State != Done || !bounded {
			return illegalEdge(from, to)
		}
		return nil
	}
	if to.State != from.State && to.State != from.State+1 {
		return illegalEdge(from, to)
	}
	return checkKept(from, to)
}

// checkKept holds what a change of a row must keep.
func checkKept(from, to Row) error {
	switch {
	case from.Key != to.Key, from.Binding != to.Binding, from.Evaluation != to.Evaluation, from.Trust != to.Trust:
		return illegal("a row changed its identity")
	case from.Lifetime.Later(to.Lifetime) != to.Lifetime:
		return illegal("a replay end went back")
	case to.Fence.Before(from.Fence):
		return illegal("a fence went back")
	case to.Fence != from.Fence && (from.State != to.State || to.State == Done):
		return illegal("a new fence on a change that is no takeover")
	case from.State == Staged && to.State == Staged && !from.Publication.Equal(to.Publication):
		return illegal("a staged publication changed")
	case from.State == Staged && to.State == Done && from.Publication.Digest() != to.Published:
		return illegal("done with another publication than was staged")
	case from.State == Done && from.Published != to.Published:
		return illegal("a done row changed what was published")
	}
	return nil
}

func illegalEdge(from, to Row) error {
	return illegal("from " + from.State.String() + " to " + to.State.String())
}

// Removable reports whether clean-up may remove r: it is done, and its
// bounded replay end has passed on the wall clock and on the ledger's own
// running time (DESIGN §5). The ledger must then keep
// [Moment.ClosedThrough] at or after the row's replay end, durably, with or
// before the removal.
func Removable(r Row, wall time.Time, running time.Duration) bool {
	return r.State == Done && r.Lifetime.Passed(wall) && running > r.RunningEnd
}
