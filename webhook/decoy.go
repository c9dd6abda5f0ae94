package webhook

import (
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
