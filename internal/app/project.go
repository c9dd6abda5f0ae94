package app

import (
	"context"
	"math"
	"sync/atomic"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/ledger"
)

// projectEvery is how often it is looked how fast the ledger fills: all of its
// rows are read for that, and what is looked for is weeks away.
const projectEvery = 6 * time.Hour

// A rate is how many rows a day come to stay.
type rate struct{ bits atomic.Uint64 }

func (r *rate) perDay() float64 { return math.Float64frombits(r.bits.Load()) }

func (r *rate) set(perDay float64) { r.bits.Store(math.Float64bits(perDay)) }

// project keeps the rate at which the ledger fills until ctx has ended. Where
// it can't be read, what was known before stands.
func (a *App) project(ctx context.Context) {
	tick := time.NewTicker(projectEvery)
	defer tick.Stop()
	for {
		now := a.Now()
		ages, err := a.spine.ages(ctx, now)
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			a.Log.WarnContext(ctx, "how fast the ledger fills could not be read", "reason", string(fencepost.ReasonOf(err)))
		} else {
			a.spine.rate.set(ages.PerDay(now))
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// ledgerFullIn is how long the ledger has room at the rate of the last week;
// ok is false if it is longer than can be told.
func (a *App) ledgerFullIn() (left time.Duration, ok bool) {
	rows, capacity := a.ledgerLevel()
	return ledger.FullIn(int(rows), int(capacity), a.spine.rate.perDay())
}
