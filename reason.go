package fencepost

// A Reason is a public code that says why something was refused, failed or
// ended. It may be shown to anyone; the text behind it stays in the log.
// The list is closed: docs/reasons.md has a line for each.
type Reason string

// Reasons of ingress answers (DESIGN §4).
const (
	// ReasonNone is the absence of a reason: the thing succeeded.
	ReasonNone Reason = ""
	// ReasonEventNotHandled: authentic, but outside the route's closed list.
	ReasonEventNotHandled Reason = "event_not_handled"
	// ReasonMalformed: authentic, but not one valid object with the needed fields.
	ReasonMalformed Reason = "malformed"
	// ReasonUnauthenticated: no proof could be made, or the route is unknown.
	ReasonUnauthenticated Reason = "unauthenticated"
	// ReasonUnauthorized: authentic, but not what the route's policy names.
	ReasonUnauthorized Reason = "unauthorized"
	// ReasonMethod: another HTTP method than the route takes.
	ReasonMethod Reason = "method"
	// ReasonTooLarge: the body is over the route's cap.
	ReasonTooLarge Reason = "too_large"
	// ReasonMediaType: not application/json.
	ReasonMediaType Reason = "media_type"
	// ReasonHeaders: too many headers, or too many bytes of them.
	ReasonHeaders Reason = "headers"
	// ReasonDeliveryConflict: a known delivery with other content.
	ReasonDeliveryConflict Reason = "delivery_conflict"
	// ReasonFull: a bounded store has no room; try later.
	ReasonFull Reason = "full"
	// ReasonUnavailable: something needed does not work now; try later.
	ReasonUnavailable Reason = "unavailable"
	// ReasonDraining: the server is stopping; try another, or later.
	ReasonDraining Reason = "draining"
)

// Reasons for which a recorded delivery never becomes work (DESIGN §4).
const (
	// ReasonRevoked: the anchor that authenticated it is no longer trusted.
	ReasonRevoked Reason = "revoked"
	// ReasonExpired: it waited longer than the queue age, or its replay end passed.
	ReasonExpired Reason = "expired"
	// ReasonTampered: the recorded bytes no longer verify.
	ReasonTampered Reason = "tampered"
)

// Reasons of runs without a conclusion (DESIGN §7).
const (
	// ReasonTimeout: the wall limit passed.
	ReasonTimeout Reason = "timeout"
	// ReasonMissingOutput: the program left no result.
	ReasonMissingOutput Reason = "missing_output"
	// ReasonOversizedOutput: report or result is over its cap.
	ReasonOversizedOutput Reason = "oversized_output"
	// ReasonMalformedOutput: report or result is not well formed.
	ReasonMalformedOutput Reason = "malformed_output"
	// ReasonMismatch: ids, digests, exit status and conclusion disagree.
	ReasonMismatch Reason = "mismatch"
	// ReasonRuntimeTampered: output names were replaced or the program altered.
	ReasonRuntimeTampered Reason = "runtime_tampered"
	// ReasonLost: the lease was lost or could not be checked; nothing is staged.
	ReasonLost Reason = "lost"
	// ReasonProgramDigest: the action's program is not the one that is pinned.
	ReasonProgramDigest Reason = "program_digest"
)

// Reasons of evaluations (DESIGN §8).
const (
	// ReasonSuperseded: the gate moved on; there is nothing to publish.
	ReasonSuperseded Reason = "superseded"
	// ReasonClosed: the request is closed or merged.
	ReasonClosed Reason = "closed"
	// ReasonDraft: the request is a draft.
	ReasonDraft Reason = "draft"
	// ReasonNotMergeable: the provider made no test merge.
	ReasonNotMergeable Reason = "not_mergeable"
	// ReasonGateUnproven: no active rule requires exactly our check.
	ReasonGateUnproven Reason = "gate_unproven"
	// ReasonGateChanged: rule or authorization of the gate changed during the run, head and base did not.
	ReasonGateChanged Reason = "gate_changed"
	// ReasonForeignStatus: somebody else's run or status bears our name.
	ReasonForeignStatus Reason = "foreign_status"
	// ReasonIdentity: the provider's repository is not the configured one.
	ReasonIdentity Reason = "identity"
	// ReasonCommitGone: the commit does not exist any more.
	ReasonCommitGone Reason = "commit_gone"
	// ReasonCredential: the provider refused our credential.
	ReasonCredential Reason = "credential"
	// ReasonProvider: the provider failed, or answered what its description excludes.
	ReasonProvider Reason = "provider"
	// ReasonRateLimited: the provider asked us to wait.
	ReasonRateLimited Reason = "rate_limited"
	// ReasonAcquisition: the exact content could not be fetched within its budgets.
	ReasonAcquisition Reason = "acquisition"
	// ReasonContent: the fetched content breaks a rule of the tree policy.
	ReasonContent Reason = "content"
	// ReasonEvidence: the evidence could not be stored.
	ReasonEvidence Reason = "evidence"
	// ReasonPublishConflict: what the provider shows under our key is not what was staged.
	ReasonPublishConflict Reason = "publish_conflict"
	// ReasonRetriesExhausted: the bounded number of attempts was used up.
	ReasonRetriesExhausted Reason = "retries_exhausted"
	// ReasonOutOfOrder: the ledger's row says otherwise than the caller.
	ReasonOutOfOrder Reason = "out_of_order"
)

// Reasons of source runs (DESIGN §9).
const (
	// ReasonNotFastForward: the head doesn't contain the last one, and the policy refuses that.
	ReasonNotFastForward Reason = "not_fast_forward"
	// ReasonHeadContradiction: the provider shows an older head than it announced or showed before.
	ReasonHeadContradiction Reason = "head_contradiction"
	// ReasonUnannouncedHead: no accepted delivery named the head, and the policy refuses that.
	ReasonUnannouncedHead Reason = "unannounced_head"
	// ReasonRefused: the sink's program, or its rule, said no.
	ReasonRefused Reason = "refused"
)

// Reasons of stores (DESIGN §5).
const (
	// ReasonCorrupt: stored bytes do not verify.
	ReasonCorrupt Reason = "corrupt"
	// ReasonPoisoned: a sync failed; the root takes no more writes.
	ReasonPoisoned Reason = "poisoned"
	// ReasonParameters: the root was made with other parameters.
	ReasonParameters Reason = "parameters"
	// ReasonBindingConflict: a known delivery key with another binding.
	ReasonBindingConflict Reason = "binding_conflict"
)

// String returns the code.
func (r Reason) String() string { return string(r) }
