package fencepost

import (
	"context"
	"time"
)

// A Ledger decides, for many workers on one or many machines, who may run,
// stage and publish a delivery. DESIGN §5 is its table; package ledger holds
// it as one pure function, and ledger/ledgertest as a suite that every
// implementation must pass.
//
// Consistency: operations on one delivery are linearizable over all
// processes that share the ledger. Durability: an answer is given only when
// the change it reports, and every change it depends on, is on stable
// storage. Safe for concurrent use.
//
// An error means *unknown*: the operation may or may not have taken effect.
// The caller stops as if it had lost, and a later Claim tells what is so. No
// error is retried inside. Errors are *[Error]s with the reasons
// [ReasonUnavailable], [ReasonCorrupt], [ReasonPoisoned] or
// [ReasonParameters] (the delivery was accepted under another replay
// window), or match [ErrZeroValue] for a value that was never made.
//
// Not promised: that a holder notices the loss of its lease before it calls
// again, and any order between different deliveries.
type Ledger interface {
	// Claim asks for the right to work on d.
	Claim(ctx context.Context, d AcceptedDelivery) (Claim, error)
	// Renew asks for a later deadline of an execution lease.
	Renew(ctx context.Context, d AcceptedDelivery, l Lease) (Renewal, error)
	// Stage freezes p. After it there is never a new execution lease for d.
	Stage(ctx context.Context, d AcceptedDelivery, l Lease, p Publication) (StageOutcome, error)
	// Complete records that s is published, or that there is nothing to
	// publish.
	Complete(ctx context.Context, d AcceptedDelivery, s StagedPublication) (Completion, error)
}

// Claim is the closed set of answers to [Ledger.Claim]: [Acquired], [Busy],
// [Publish], [Completed], [BindingConflict], [Full] and [Expired].
//
//sumtype:decl
type Claim interface{ isClaim() }

// Renewal is the closed set of answers to [Ledger.Renew]: [Renewed], [Lost].
//
//sumtype:decl
type Renewal interface{ isRenewal() }

// StageOutcome is the closed set of answers to [Ledger.Stage]: [Staged],
// [Lost].
//
//sumtype:decl
type StageOutcome interface{ isStageOutcome() }

// Completion is the closed set of answers to [Ledger.Complete]:
// [Completed], [Lost].
//
//sumtype:decl
type Completion interface{ isCompletion() }

// Acquired grants an execution lease: a new fence, under a new evaluation id
// at the first claim and the same one at every later.
type Acquired struct {
	Lease Lease
	// Reclaimed reports that an earlier lease of this evaluation ended
	// without staging.
	Reclaimed bool
	// Attempt counts the execution leases of this evaluation, this one
	// included, across restarts: 1 at the first claim. It stops at
	// 16,777,215.
	Attempt int
}

// Busy says that somebody else holds a live lease.
type Busy struct {
	// Deadline is the wall time of that lease's end, for people.
	Deadline time.Time
	// After is how long from now that lease can last at most unless renewed.
	After time.Duration
}

// Publish hands over what is staged, with a publication lease: nobody else
// is told to publish before it ends. It can't be renewed.
type Publish struct {
	Staged StagedPublication
	Lease  Lease
}

// Completed says that the delivery has reached its end.
type Completed struct{}

// BindingConflict says that the key is known with another body.
type BindingConflict struct{}

// Full says that there is no room for a new row. Nothing was forgotten to
// make some.
type Full struct{}

// Expired says that the delivery's replay end passed before its first claim.
type Expired struct{}

// Renewed extends the lease; its deadline is never earlier than before.
type Renewed struct{ Lease Lease }

// Lost says that the row is not what the caller takes it for: its lease
// passed, was taken over, or the value is another one. Nothing changed.
type Lost struct{}

// Staged says that the publication is frozen.
type Staged struct {
	Staged StagedPublication
	// Lease is the publication lease, under the fence that staged. It is
	// not valid if another worker has meanwhile been told to publish: then
	// only Claim may hand the publication out again.
	Lease Lease
}

func (Acquired) isClaim()        {}
func (Busy) isClaim()            {}
func (Publish) isClaim()         {}
func (Completed) isClaim()       {}
func (BindingConflict) isClaim() {}
func (Full) isClaim()            {}
func (Expired) isClaim()         {}
func (Renewed) isRenewal()       {}
func (Lost) isRenewal()          {}
func (Staged) isStageOutcome()   {}
func (Lost) isStageOutcome()     {}
func (Completed) isCompletion()  {}
func (Lost) isCompletion()       {}
