package ledger

import (
	"errors"
	"maps"
	"slices"
)

// A Health says what is wrong with a ledger, as far as a process knows from
// memory. The zero Health is well. Its errors have a [fencepost.Reason].
type Health struct {
	// Poisoned is why the store takes no more writes of this process; nil if
	// it does.
	Poisoned error
	// Corrupt are the parts of the store that are stopped, by number.
	Corrupt map[int]error
	// Failing are the parts of the store whose operations failed twice in a row
	// and have not succeeded since, by number, with the last error. Nothing
	// says that what they hold is wrong: they serve again as soon as they can.
	Failing map[int]error
	// Maintenance is why the last clean-up or compaction did not go well, or
	// why it could not be seen whether a holder lives. Nothing of it endangers
	// what is stored.
	Maintenance error
}

// OK reports whether every part serves.
func (h Health) OK() bool { return h.Poisoned == nil && len(h.Corrupt)+len(h.Failing) == 0 }

// Err returns one error for all that keeps parts from serving, or nil.
func (h Health) Err() error {
	errs := []error{h.Poisoned}
	for _, parts := range []map[int]error{h.Corrupt, h.Failing} {
		for _, n := range slices.Sorted(maps.Keys(parts)) {
			errs = append(errs, parts[n])
		}
	}
	return errors.Join(errs...)
}
