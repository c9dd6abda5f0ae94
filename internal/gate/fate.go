package gate

import "github.com/fencepost/fencepost"

// A Fate is what becomes of an evaluation that met a [fencepost.Reason]
// before anything was staged.
type Fate uint8

// The fates. DESIGN §8, "What a run that gave no conclusion ends as".
const (
	// FateFail stages a failure with the reason.
	FateFail Fate = iota + 1
	// FateRetry counts an attempt and tries again under a new fence; after the
	// last attempt a failure is staged.
	FateRetry
	// FateWait tries again without counting: nobody could have concluded
	// anything, and a failure could not be published either.
	FateWait
	// FateNone stages that there is nothing to publish.
	FateNone
	// FateDrop ends the delivery without ever making it work.
	FateDrop
	// FateLost stages nothing and asks the ledger anew: somebody else may hold
	// the delivery.
	FateLost
)

// FateOf maps every reason. ok is false for one that is not of the closed list
// in the root package; a test holds the two together.
func FateOf(r fencepost.Reason) (f Fate, ok bool) {
	switch r {
	case fencepost.ReasonTimeout, fencepost.ReasonMissingOutput, fencepost.ReasonOversizedOutput,
		fencepost.ReasonMalformedOutput, fencepost.ReasonMismatch, fencepost.ReasonRuntimeTampered,
		fencepost.ReasonProgramDigest, fencepost.ReasonContent, fencepost.ReasonNotMergeable,
		fencepost.ReasonGateUnproven, fencepost.ReasonForeignStatus, fencepost.ReasonRetriesExhausted:
		return FateFail, true

	case fencepost.ReasonUnavailable, fencepost.ReasonAcquisition, fencepost.ReasonProvider,
		fencepost.ReasonEvidence, fencepost.ReasonGateChanged:
		return FateRetry, true

	case fencepost.ReasonRateLimited, fencepost.ReasonCredential, fencepost.ReasonDraining, fencepost.ReasonFull,
		fencepost.ReasonCorrupt, fencepost.ReasonPoisoned, fencepost.ReasonParameters:
		return FateWait, true

	case fencepost.ReasonSuperseded, fencepost.ReasonClosed, fencepost.ReasonDraft,
		// The commit or the repository to publish on is not there.
		fencepost.ReasonCommitGone, fencepost.ReasonIdentity:
		return FateNone, true

	case fencepost.ReasonRevoked, fencepost.ReasonExpired, fencepost.ReasonTampered,
		fencepost.ReasonEventNotHandled, fencepost.ReasonMalformed, fencepost.ReasonUnauthenticated,
		fencepost.ReasonUnauthorized, fencepost.ReasonBindingConflict, fencepost.ReasonDeliveryConflict,
		// Answers of ingress, which never become a delivery.
		fencepost.ReasonMethod, fencepost.ReasonTooLarge, fencepost.ReasonMediaType, fencepost.ReasonHeaders,
		// Of sources.
		fencepost.ReasonNotFastForward, fencepost.ReasonHeadContradiction, fencepost.ReasonUnannouncedHead,
		fencepost.ReasonRefused:
		return FateDrop, true

	case fencepost.ReasonLost, fencepost.ReasonOutOfOrder, fencepost.ReasonPublishConflict:
		return FateLost, true
	}
	return 0, false
}

// fateOf treats a reason that nobody has thought of as a passing trouble: it
// can never become a pass.
func fateOf(r fencepost.Reason) Fate {
	if f, ok := FateOf(r); ok {
		return f
	}
	return FateRetry
}
