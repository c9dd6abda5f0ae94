package simulation

import (
	"time"

	"github.com/fencepost/fencepost"
)

// A Mutant is a fault of the controller itself, planted in the parts around
// the real code, that the simulation must find.
type Mutant int

// The mutants. The zero Mutant is none.
const (
	// AcksBeforeSync answers the sender before the entry is recorded.
	AcksBeforeSync Mutant = iota + 1
	// SkipsInboxSyncs and SkipsLedgerSyncs never sync their logs,
	// SkipsDirectorySyncs never syncs a directory.
	SkipsInboxSyncs
	SkipsLedgerSyncs
	SkipsDirectorySyncs
	// IgnoresSyncErrors goes on after a sync that failed.
	IgnoresSyncErrors
	// IgnoresLocks lets every process append to the ledger at once;
	// IgnoresSlotLocks takes the inbox logs of processes that live.
	IgnoresLocks
	IgnoresSlotLocks
	// ComparesNoFence lets whoever once held a lease renew and stage under the
	// present one.
	ComparesNoFence
	// NeverLoses tells every renewal that it went well.
	NeverLoses
	// RunsAgainAfterStaged hands a staged delivery out to be run.
	RunsAgainAfterStaged
	// IgnoresBusy grants a lease that somebody else holds.
	IgnoresBusy
	// NewEvaluationAtReclaim gives another id to each lease.
	NewEvaluationAtReclaim
	// StagesInMemory answers what another worker staged with one's own.
	StagesInMemory
	// PublishesOtherBytes changes a document when it is sent by a process that
	// was started anew.
	PublishesOtherBytes
	// PublishesWithoutLooking takes the gate to be what it once was.
	PublishesWithoutLooking
	// NeverFinds looks nothing up.
	NeverFinds
	// TakesUnknownForDone and NeverSends complete what was never published.
	TakesUnknownForDone
	NeverSends
	// ForgetsThatItSent keeps no note of a write.
	ForgetsThatItSent
	// ForgetsAtTakeUp takes a delivery out of the inbox when it is taken up.
	ForgetsAtTakeUp
	lastMutant = ForgetsAtTakeUp
)

var mutantNames = [...]string{
	AcksBeforeSync: "acks before sync", SkipsInboxSyncs: "skips inbox syncs", SkipsLedgerSyncs: "skips ledger syncs",
	SkipsDirectorySyncs: "skips directory syncs", IgnoresSyncErrors: "ignores sync errors", IgnoresLocks: "ignores the append lock",
	IgnoresSlotLocks: "ignores slot locks", ComparesNoFence: "compares no fence", NeverLoses: "never loses a lease",
	RunsAgainAfterStaged: "runs again after staged", IgnoresBusy: "ignores busy", NewEvaluationAtReclaim: "new evaluation at reclaim",
	StagesInMemory: "stages in memory", PublishesOtherBytes: "publishes other bytes",
	PublishesWithoutLooking: "publishes without reading the gate", NeverFinds: "never finds what is shown",
	TakesUnknownForDone: "takes unknown for done", NeverSends: "never sends", ForgetsThatItSent: "forgets that it sent",
	ForgetsAtTakeUp: "forgets at take-up",
}

// String names the mutant.
func (m Mutant) String() string { return mutantNames[m] }

// Mutants lists them all.
func Mutants() []Mutant {
	var all []Mutant
	for m := range lastMutant {
		all = append(all, m+1)
	}
	return all
}

// spoilClaim is what a mutant makes of an answer.
func (s *Sim) spoilClaim(delivery int, answer fencepost.Claim) fencepost.Claim {
	s.mu.Lock()
	defer s.mu.Unlock()
	held := s.leases[delivery]
	switch a := answer.(type) {
	case fencepost.Acquired:
		if s.mutant == NewEvaluationAtReclaim && a.Reclaimed {
			e := a.Lease.Evaluation()
			e[0] ^= byte(a.Lease.Fence().Uint64()) | 1
			if l, err := fencepost.GrantLease(e, a.Lease.Fence(), a.Lease.Window(), a.Lease.Deadline()); err == nil {
				a.Lease = l
			}
		}
		s.leases[delivery] = a.Lease
		return a
	case fencepost.Publish:
		if s.mutant == RunsAgainAfterStaged {
			return fencepost.Acquired{Lease: a.Lease, Reclaimed: true, Attempt: 2}
		}
	case fencepost.Busy:
		if s.mutant == IgnoresBusy && held.Valid() {
			return fencepost.Acquired{Lease: held, Reclaimed: true, Attempt: 2}
		}
	}
	return answer
}

// heldBy is the lease that stands, for a mutant that takes any other for it.
func (s *Sim) heldBy(delivery int) (fencepost.Lease, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.leases[delivery], s.mutant == ComparesNoFence && s.leases[delivery].Valid()
}

// stageInMemory answers as if what is staged were always one's own.
func (s *Sim) stageInMemory(d fencepost.AcceptedDelivery, l fencepost.Lease, p fencepost.Publication) fencepost.StageOutcome {
	st, err := fencepost.RestoreStaged(d.Key(), l.Evaluation(), p)
	if err != nil {
		return fencepost.Lost{}
	}
	granted, err := fencepost.GrantLease(l.Evaluation(), l.Fence(), 10*time.Second, l.Deadline())
	if err != nil {
		return fencepost.Lost{}
	}
	return fencepost.Staged{Staged: st, Lease: granted}
}
