// Package webhook verifies signed webhooks over the exact bytes received.
//
// A scheme ([GitHub], [Gitea], [Forgejo], [Gogs], [StandardWebhooks]) knows
// which headers carry the signature and what is signed. A [Keyring] holds the
// keys that may have signed it, each with its time. Both together are a
// [fencepost.Verifier], whose evidence [fencepost.Authenticate] seals into a
// proof:
//
//	ring, err := webhook.NewKeyring("acme", webhook.Anchor{ID: "2026-q4", Secret: secret})
//	scheme := webhook.GitHub{Keys: ring}
//	proof, err := fencepost.Authenticate(fencepost.NewIngressCheck(route, headers, body, now), scheme)
//
// [NewHandler] does all of this in front of any net/http handler. To rotate a
// key, give the new one a second place in the keyring and an overlapping
// window; a keyring never changes, so a change is a new keyring.
//
// [GitLabJob] is the scheme of what isn't signed by a shared secret: a token
// that a GitLab instance signs for a job, verified with public keys that were
// pinned in a [JobKeyring].
//
// # What a refusal tells
//
// Nothing. Its text is the same for every cause, and its cost too: a refusal
// computes as many MACs whether the signature is wrong, missing, ambiguous or
// malformed, and whether one key is live, all or none. Work makes that number
// the same for several keyrings, and [Decoy] spends it where there is no
// keyring at all, [JobDecoy] where it would hold public keys, of which
// refusals count the verifications; there the size of a keyring's keys makes a
// difference, but they are no secret. Which shared secret matched can't be told
// from the time that an acceptance takes, because every live one is tried. What
// was the matter is in [Refusal] for those who run the receiver.
//
// The schemes are small values to be made as literals. They are safe for
// concurrent use.
package webhook
