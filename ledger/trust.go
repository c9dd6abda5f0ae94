package ledger

import (
	"encoding/hex"

	"github.com/fencepost/fencepost"
)

// A TrustMark stands in a row for the trust set whose key authenticated its
// delivery. It is short: whoever compares marks asks whether those of all the
// sets that count differ. The zero TrustMark is of no set.
type TrustMark [8]byte

// MarkOf is the mark of a trust set: the first bytes of the digest of its name
// in the domain "fencepost.trust-mark/v1". That of no name is zero.
func MarkOf(set fencepost.TrustSetName) TrustMark {
	if set == "" {
		return TrustMark{}
	}
	sum := fencepost.NewEncoder("fencepost.trust-mark/v1").Text(string(set)).Sum()
	return TrustMark(sum[:len(TrustMark{})])
}

// IsZero reports whether m is of no trust set.
func (m TrustMark) IsZero() bool { return m == TrustMark{} }

// String returns 16 lower-case hexadecimal digits.
func (m TrustMark) String() string { return hex.EncodeToString(m[:]) }

// Retirable reports whether r may be forgotten once no key of its trust set
// can authenticate anything: it is done for ever, and it is of a set. Bounded
// rows go by themselves when their replay end has passed.
func Retirable(r Row, mark TrustMark) bool {
	_, bounded := r.Lifetime.End()
	return r.State == Done && !bounded && r.Trust == mark && !mark.IsZero()
}

// Holds reports whether r keeps the rows of its trust set from being retired:
// it is of that set, for ever, and not done.
func Holds(r Row, mark TrustMark) bool {
	_, bounded := r.Lifetime.End()
	return (r.State == Leased || r.State == Staged) && !bounded && r.Trust == mark && !mark.IsZero()
}
