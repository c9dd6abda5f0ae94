package forgesim

import (
	"math/rand/v2"
	"time"
)

// A Hostility says how often the forge does what GitHub's rules leave open but
// a client would rather not meet. Fractions are of the requests concerned, 0
// to 1. The zero value is polite.
//
// With equal seeds and an equal order of requests the forge misbehaves alike.
type Hostility struct {
	// Seed chooses which requests are met.
	Seed uint64
	// ServerError is the fraction of REST reads answered 502 or 503.
	ServerError float64
	// LostWrite is the fraction of REST writes that are done and answered 502
	// all the same.
	LostWrite float64
	// MergePolls is up to how many more "mergeable": null answers come.
	MergePolls int
	// HiddenReads is up to how many lists of Check Runs leave out a run that
	// was just made.
	HiddenReads int
	// Duplicate is the fraction of webhooks delivered twice.
	Duplicate float64
	// Reorder is the fraction of webhooks that overtake the one before.
	Reorder float64
	// Lose is the fraction of webhooks that never arrive: the log has them as
	// timed out.
	Lose float64
	// Late is the fraction of webhooks that wait, up to LateBy, before they
	// are sent.
	Late   float64
	LateBy time.Duration
	// LongTokens issues installation tokens of several hundred characters.
	LongTokens bool
	// ServicePreamble begins git advertisements with the line that protocol v2
	// does without and github.com sends.
	ServicePreamble bool
	// OldestFirst lists Check Runs oldest first: no order is promised.
	OldestFirst bool
}

// Hostile is the hostility that tests use: every kind of it, with seed choosing,
// but for Lose and Late: what is lost is found by looking for it alone.
func Hostile(seed uint64) Hostility {
	return Hostility{
		Seed:            seed,
		ServerError:     0.03,
		LostWrite:       0.05,
		MergePolls:      2,
		HiddenReads:     1,
		Duplicate:       0.15,
		Reorder:         0.25,
		LongTokens:      seed%2 == 1,
		ServicePreamble: seed%3 != 0,
		OldestFirst:     seed%2 == 0,
	}
}

// A mood draws from a Hostility. Guarded by Forge.mu.
type mood struct {
	Hostility
	rng *rand.Rand
}

func newMood(h Hostility) *mood {
	return &mood{Hostility: h, rng: rand.New(rand.NewPCG(h.Seed, 0x666f726765))}
}

func (m *mood) chance(fraction float64) bool {
	return fraction > 0 && m.rng.Float64() < fraction
}

// lateness is how long a webhook waits.
func (m *mood) lateness() time.Duration {
	if m.LateBy <= 0 || !m.chance(m.Late) {
		return 0
	}
	return time.Duration(m.rng.Int64N(int64(m.LateBy))) + 1
}

func (m *mood) upTo(n int) int {
	if n <= 0 {
		return 0
	}
	return m.rng.IntN(n + 1)
}
