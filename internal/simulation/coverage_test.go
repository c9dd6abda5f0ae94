package simulation

import (
	"fmt"
	"strings"
)

// A Tally sums up runs.
type Tally struct {
	Runs, Steps uint64
	// Hash is that of all traces, whatever their order.
	Hash uint64
	// Faults counts the faults that came, by kind and phase.
	Faults [lastKind + 1][lastPhase + 1]uint64
	// Ends counts how deliveries ended, by reason; Copies what was shown more
	// than once, by a write that came too late to be looked for.
	Ends   map[string]uint64
	Copies uint64
}

// Add takes in the result of a run.
func (t *Tally) Add(r Result) {
	t.Runs++
	t.Steps += uint64(r.Steps)
	t.Hash ^= mix(r.Seed, r.Hash)
	for k := range r.Faults {
		for p := range r.Faults[k] {
			t.Faults[k][p] += uint64(r.Faults[k][p])
		}
	}
	if t.Ends == nil {
		t.Ends = map[string]uint64{}
	}
	for _, end := range r.Ends {
		t.Ends[end]++
	}
	t.Copies += uint64(r.Copies)
}

// Merge takes in another tally.
func (t *Tally) Merge(o Tally) {
	t.Runs, t.Steps, t.Hash, t.Copies = t.Runs+o.Runs, t.Steps+o.Steps, t.Hash^o.Hash, t.Copies+o.Copies
	for k := range o.Faults {
		for p := range o.Faults[k] {
			t.Faults[k][p] += o.Faults[k][p]
		}
	}
	if t.Ends == nil {
		t.Ends = map[string]uint64{}
	}
	for end, n := range o.Ends {
		t.Ends[end] += n
	}
}

// Missing lists the faults that can come in a phase and never did.
func (t *Tally) Missing() []string {
	var missing []string
	for k := Kind(1); k <= lastKind; k++ {
		for p := Phase(1); p <= lastPhase; p++ {
			if Possible(k, p) && t.Faults[k][p] == 0 {
				missing = append(missing, fmt.Sprintf("%s while %s", k, p))
			}
		}
	}
	return missing
}

// String is the table of kinds and phases.
func (t *Tally) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d runs, %d steps, hash %016x, %d shown twice by a late write\n", t.Runs, t.Steps, t.Hash, t.Copies)
	fmt.Fprintf(&b, "ends: %v\n%-18s", t.Ends, "")
	for p := Phase(1); p <= lastPhase; p++ {
		fmt.Fprintf(&b, "%9s", p)
	}
	b.WriteByte('\n')
	for k := Kind(1); k <= lastKind; k++ {
		fmt.Fprintf(&b, "%-18s", k)
		for p := Phase(1); p <= lastPhase; p++ {
			if Possible(k, p) {
				fmt.Fprintf(&b, "%9d", t.Faults[k][p])
			} else {
				fmt.Fprintf(&b, "%9s", "")
			}
		}
		b.WriteByte('\n')
	}
	return b.String()
}
