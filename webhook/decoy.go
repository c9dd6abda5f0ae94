package webhook

import (
	"crypto/sha256"
	"time"

	"github.com/fencepost/fencepost"
)

// A Decoy refuses every request, at the cost of a refusal by a real scheme:
// it stands in where there is no key to verify with, such as for a route that
// doesn't exist. The zero Decoy computes one MAC.
type Decoy struct {
	// Work is how many MACs a refusal costs; at least 1.
	Work int
}

// Verify implements [fencepost.Verifier]. Its error is always a *[Refusal].
func (d Decoy) Verify(_ fencepost.Headers, body []byte, _ time.Time) (fencepost.Evidence, error) {
	c := claim{parts: [3][]byte{body}}
	return fencepost.Evidence{}, &Refusal{Cause: CauseNoLiveAnchor, MACs: c.idle(max(d.Work, 1))}
}

// A JobDecoy is a [Decoy] among routes of [GitLabJob]: it refuses every
// request at the cost of their refusals.
type JobDecoy struct {
	// Work is how many RSA verifications a refusal costs; at least 1.
	Work int
}

// Verify implements [fencepost.Verifier]. Its error is always a *[Refusal].
func (d JobDecoy) Verify(h fencepost.Headers, _ []byte, _ time.Time) (fencepost.Evidence, error) {
	digest := sha256.Sum256([]byte(jobTokenOf(h, nil).signed))
	return fencepost.Evidence{}, &Refusal{Cause: CauseNoLiveAnchor, Verifications: idle(digest, max(d.Work, 1))}
}
