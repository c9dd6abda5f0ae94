package ledger

import (
	"iter"
	"time"
)

const (
	// NearFullPercent of its capacity is where a ledger is near full,
	NearFullPercent = 90
	// NearFullIn is a good time before it would be full, at the present rate,
	// to say so: there is still time to make room.
	NearFullIn = 30 * 24 * time.Hour

	// GrowthWindow is the time over which growth is looked at: a week, so that
	// weekends count.
	GrowthWindow = 7 * 24 * time.Hour
	// fullInMost is the longest time that is told.
	fullInMost = 100 * 365 * 24 * time.Hour
	// growthLeast is the least time that it is a mean of: a ledger's first busy
	// hour is no rate of its years.
	growthLeast = 24 * time.Hour
)

// Ages say how old rows are. The zero Ages are of no rows.
type Ages struct {
	// Oldest is the earliest [Row.Since]; OldestLeased and OldestStaged are of
	// those states. Zero for none.
	Oldest, OldestLeased, OldestStaged time.Time
	// Permanent rows came into their state within the last week, and stay for
	// ever.
	Permanent int
}

// CountAges goes through rows.
func CountAges(rows iter.Seq2[Row, error], now time.Time) (Ages, error) {
	var a Ages
	for r, err := range rows {
		if err != nil {
			return Ages{}, err
		}
		a.Add(r, now)
	}
	return a, nil
}

// Add counts one row.
func (a *Ages) Add(r Row, now time.Time) {
	a.Oldest = earlier(a.Oldest, r.Since)
	switch r.State {
	case Leased:
		a.OldestLeased = earlier(a.OldestLeased, r.Since)
	case Staged:
		a.OldestStaged = earlier(a.OldestStaged, r.Since)
	case Unclaimed, Done:
	}
	if _, bounded := r.Lifetime.End(); !bounded && now.Sub(r.Since) <= GrowthWindow {
		a.Permanent++
	}
}

func earlier(a, b time.Time) time.Time {
	if a.IsZero() || b.Before(a) {
		return b
	}
	return a
}

// PerDay is how many rows a day came to stay for ever, over the last week or
// as long as there are rows, and at least a day. Bounded rows go again, and
// fill nothing in the long run.
func (a Ages) PerDay(now time.Time) float64 {
	if a.Permanent == 0 {
		return 0
	}
	over := min(GrowthWindow, max(growthLeast, now.Sub(a.Oldest)))
	return float64(a.Permanent) / (over.Hours() / 24)
}

// FullIn is how long a ledger has room at a rate; ok is false if it has for
// longer than can be told.
func FullIn(rows, capacity int, perDay float64) (left time.Duration, ok bool) {
	if rows >= capacity {
		return 0, true
	}
	const day = 24 * time.Hour
	days := float64(capacity-rows) / perDay // infinite at a rate of zero
	if perDay < 0 || days > float64(fullInMost/day) {
		return 0, false
	}
	return time.Duration(days * float64(day)), true
}

// NearFull reports whether it is time to make room: [NearFullPercent] is
// reached, or it would be full within a time such as [NearFullIn]; 0 looks at
// what is reached alone.
func NearFull(rows, capacity int, perDay float64, within time.Duration) bool {
	left, ok := FullIn(rows, capacity, perDay)
	return int64(rows)*100 >= int64(capacity)*NearFullPercent || ok && left <= within
}
