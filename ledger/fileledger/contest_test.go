//go:build unix

package fileledger

import (
	"context"
	"path/filepath"
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
// wall clock jumps.
func TestProcessesInContest(t *testing.T) {
	t.Parallel()
	contest.Series(t, func(int) contest.Contest {
		// A lease of five seconds has passed after a quarter of one.
		return contest.Contest{Where: filepath.Join(t.TempDir(), "ledger"), Speed: 20, Stop: 700 * time.Millisecond}
	}, func(c contest.Contest) {
		report, err := Verify(t.Context(), Config{Dir: c.Where})
		if err != nil || report.Err() != nil {
			t.Fatalf("verify: %v, %v", err, report.Err())
		}
	})
}

// asProcess runs as a process of a contest, if this is one.
func asProcess() (is bool, code int) {
	return contest.Process(context.Background(), openForContest)
}
