package source

import "github.com/fencepost/fencepost"

// A Fate is what becomes of a run whose attempt met a [fencepost.Reason].
// The zero Fate is none.
type Fate uint8

// The fates.
const (
	// FateRetry pauses the run for another attempt; after the last one it ends
	// failed.
	FateRetry Fate = iota + 1
	// FateTerminal ends the run failed at once: another attempt can't differ.
	// The reconciler's next window looks anew.
	FateTerminal
	// FateByPolicy ends the run failed at once because the policy says so:
	// with another policy it could be applied.
	FateByPolicy
	// FateLost stores nothing: somebody else has the source now.
	FateLost
	// FateNever is of reasons that no attempt of a run meets.
	FateNever
)

// FateOf maps every reason. ok is false for one that is not of the closed
// list in the root package; a test holds the two together.
func FateOf(r fencepost.Reason) (f Fate, ok bool) {
	switch r {
	case fencepost.ReasonUnavailable, fencepost.ReasonProvider, fencepost.ReasonRateLimited,
		fencepost.ReasonCredential, fencepost.ReasonAcquisition, fencepost.ReasonTimeout, fencepost.ReasonFull,
		fencepost.ReasonDraining, fencepost.ReasonHeadContradiction, fencepost.ReasonCommitGone,
		fencepost.ReasonSuperseded:
		return FateRetry, true

	case fencepost.ReasonIdentity, fencepost.ReasonContent, fencepost.ReasonProgramDigest,
		fencepost.ReasonMissingOutput, fencepost.ReasonOversizedOutput, fencepost.ReasonMalformedOutput,
		fencepost.ReasonMismatch, fencepost.ReasonRuntimeTampered, fencepost.ReasonRetriesExhausted,
		fencepost.ReasonCorrupt, fencepost.ReasonPoisoned, fencepost.ReasonParameters, fencepost.ReasonTampered,
		fencepost.ReasonRefused:
		return FateTerminal, true

	case fencepost.ReasonNotFastForward, fencepost.ReasonUnannouncedHead:
		return FateByPolicy, true

	case fencepost.ReasonLost, fencepost.ReasonOutOfOrder:
		return FateLost, true

	case fencepost.ReasonEventNotHandled, fencepost.ReasonMalformed, fencepost.ReasonUnauthenticated,
		fencepost.ReasonUnauthorized, fencepost.ReasonMethod, fencepost.ReasonTooLarge, fencepost.ReasonMediaType,
		fencepost.ReasonHeaders, fencepost.ReasonDeliveryConflict, fencepost.ReasonBindingConflict,
		fencepost.ReasonRevoked, fencepost.ReasonExpired,
		// Of gates.
		fencepost.ReasonClosed, fencepost.ReasonDraft, fencepost.ReasonNotMergeable, fencepost.ReasonGateUnproven,
		fencepost.ReasonGateChanged, fencepost.ReasonForeignStatus, fencepost.ReasonEvidence,
		fencepost.ReasonPublishConflict:
		return FateNever, true
	}
	return 0, false
}

// fateOf treats a reason that nobody has thought of as a passing trouble: the
// attempts are bounded, and nothing is applied.
func fateOf(r fencepost.Reason) Fate {
	f, ok := FateOf(r)
	if !ok || f == FateNever {
		return FateRetry
	}
	return f
}

// alertOf is the alert that a reason raises beside that of the run's end;
// empty for none.
func alertOf(r fencepost.Reason) AlertCode {
	switch r {
	case fencepost.ReasonCredential:
		return AlertCredential
	case fencepost.ReasonProvider, fencepost.ReasonRateLimited, fencepost.ReasonIdentity, fencepost.ReasonCommitGone,
		fencepost.ReasonAcquisition, fencepost.ReasonUnavailable:
		return AlertProvider
	case fencepost.ReasonHeadContradiction, fencepost.ReasonNotFastForward, fencepost.ReasonUnannouncedHead:
		return AlertHeadContradiction
	}
	return ""
}
