package ledger_test

import (
	"testing"
	"time"

	"github.com/fencepost/fencepost/ledger"
)

// TestFencesGoOnAboveAllThatWereHandedOut plays a ledger that is copied and
// brought back again and again, each time from any of the copies, while every
// ledger that there was hands out fences as fast as the rule takes them to be
// able to. What is handed out after a restore is above all that was before.
func TestFencesGoOnAboveAllThatWereHandedOut(t *testing.T) {
	t.Parallel()
	const perSecond = 1 << 17
	for _, pause := range []time.Duration{time.Millisecond, time.Second, time.Hour, 20 * 24 * time.Hour, 400 * 24 * time.Hour} {
		t.Run(pause.String(), func(t *testing.T) {
			t.Parallel()
			now := noon
			fence, highest := uint64(7), uint64(7)
			copies := []uint64{}
			for n := range 40 {
				copies = append(copies, fence)
				now = now.Add(pause)
				fence += uint64(pause.Seconds() * perSecond / 2)
				highest = max(highest, fence)
				// The last copy, the first, and those in between.
				from := copies[n*n%len(copies)]
				now = now.Add(pause)
				fence = ledger.Ahead(from, now)
				if fence < highest {
					t.Fatalf("restore %d from a copy at %d goes on above %d, but %d was handed out", n, from, fence, highest)
				}
				fence++
				highest = fence
			}
		})
	}
}
