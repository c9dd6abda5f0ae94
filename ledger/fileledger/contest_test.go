//go:build unix

package fileledger

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/ledger"
	"github.com/fencepost/fencepost/ledger/internal/contest"
)

// contestConfig has small segments, so that processes compact beneath each
// other, and shards of which each is many deliveries'.
func contestConfig(dir string, now func() time.Time, instant func() ledger.Instant) Config {
	return Config{
		Dir: dir, Lease: MinLease, Shards: 2, SegmentBytes: MinSegment, Volatile: true, Maintain: 50 * time.Millisecond,
		Now: now, Instant: instant,
	}
}

func openForContest(ctx context.Context, a contest.Assignment, now func() time.Time, instant func() ledger.Instant) (fencepost.Ledger, func() error, error) {
	l, err := Open(ctx, contestConfig(a.Where, now, instant))
	if err != nil {
		return nil, nil, err
	}
	return l, l.Close, nil
}

// TestProcessesInContest: what eight processes are answered is linearizable,
// though they are killed, stopped for longer than a lease lasts, and their
// wall clock jumps. FENCEPOST_CONTEST is how many operations the record run
// wants; each ledger is fought over for a while.
func TestProcessesInContest(t *testing.T) {
	t.Parallel()
	goal, disturbances := 200, 12
	record := false
	if text := os.Getenv("FENCEPOST_CONTEST"); text != "" {
		var err error
		if goal, err = strconv.Atoi(text); err != nil {
			t.Fatalf("FENCEPOST_CONTEST: %v", err)
		}
		record, disturbances = true, 100
	}
	var sum contest.Result
	ledgers := 0
	for ; sum.Operations < goal || record && ledgers < 10; ledgers++ {
		dir := filepath.Join(t.TempDir(), "ledger")
		sum = sum.Add(contest.Contest{
			Where: dir, Processes: 8, Disturbances: disturbances, Every: 150 * time.Millisecond,
			// A lease of five seconds has passed after a quarter of one.
			Speed: 20, Stop: 700 * time.Millisecond, Seed: uint64(ledgers),
		}.Run(t))
		report, err := Verify(t.Context(), Config{Dir: dir})
		if err != nil || report.Err() != nil {
			t.Fatalf("verify: %v, %v", err, report.Err())
		}
		if t.Failed() {
			t.Fatalf("ledger %d", ledgers)
		}
	}
	t.Logf("%d ledgers of 8 processes: %v", ledgers, sum)
}

// asProcess runs as a process of a contest, if this is one.
func asProcess() (is bool, code int) {
	return contest.Process(context.Background(), openForContest)
}
