package ledger

import (
	"errors"
	"fmt"
)

// ErrHeld: rows of a trust set that are not done keep it from being retired.
var ErrHeld = errors.New("deliveries of the trust set are not done")

// A HeldError says how many deliveries keep a trust set from being retired.
// It matches [ErrHeld].
type HeldError struct {
	// Rows are leased or staged.
	Rows int
}

// Error says what to do.
func (e *HeldError) Error() string {
	return fmt.Sprintf("%d deliveries of the trust set are leased or staged; let them end, then retire it", e.Rows)
}

// Is reports whether target is [ErrHeld].
func (e *HeldError) Is(target error) bool { return target == ErrHeld }

// TrustRows counts the rows of one trust set.
type TrustRows struct {
	// Retirable rows are done for ever; Held ones are leased or staged, and
	// for ever; Other ones are bounded, and go by themselves.
	Retirable, Held, Other int
	// Retired says that the set was retired.
	Retired bool
}

// Rows is their number.
func (r TrustRows) Rows() int { return r.Retirable + r.Held + r.Other }

// Trust counts rows by trust set. Those under the zero mark were made before
// rows had one, and can't be retired; all of them count as Other.
type Trust map[TrustMark]TrustRows

// Count counts one row.
func (t Trust) Count(r Row) {
	switch {
	case Retirable(r, r.Trust):
		t.Add(r.Trust, TrustRows{Retirable: 1})
	case Holds(r, r.Trust):
		t.Add(r.Trust, TrustRows{Held: 1})
	default:
		t.Add(r.Trust, TrustRows{Other: 1})
	}
}

// Add adds rows of one set.
func (t Trust) Add(mark TrustMark, rows TrustRows) {
	sum := t[mark]
	sum.Retirable += rows.Retirable
	sum.Held += rows.Held
	sum.Other += rows.Other
	sum.Retired = sum.Retired || rows.Retired
	if sum != (TrustRows{}) {
		t[mark] = sum
	}
}

// AddAll adds those of another count.
func (t Trust) AddAll(other Trust) {
	for mark, rows := range other {
		t.Add(mark, rows)
	}
}

// Retire says that a set was retired.
func (t Trust) Retire(mark TrustMark) { t.Add(mark, TrustRows{Retired: true}) }
