package fileledger

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/durable"
	"github.com/fencepost/fencepost/ledger"
	"github.com/fencepost/fencepost/ledger/ledgertest"
)

// syncRate is how many writes of 4 KiB into a zero-filled file a single
// writer gets synced a second here and now: what other figures are held
// against, since disks differ and this one changes within minutes.
func syncRate(tb testing.TB, dir string) float64 {
	tb.Helper()
	fsys := durable.OS(dir)
	f, err := fsys.OpenFile("rate", os.O_RDWR|os.O_CREATE, durable.FilePerm)
	if err != nil {
		tb.Fatal(err)
	}
	defer f.Close()
	if err := durable.ZeroFill(f, 4<<20); err != nil {
		tb.Fatal(err)
	}
	b := make([]byte, 4096)
	start, n := time.Now(), 0
	for ; time.Since(start) < 500*time.Millisecond; n++ {
		b[0] = byte(n)
		if _, err := f.WriteAt(b, int64(n%1024)*4096); err != nil {
			tb.Fatal(err)
		}
		if err := f.Sync(); err != nil {
			tb.Fatal(err)
		}
	}
	return float64(n) / time.Since(start).Seconds()
}

// cycle takes one delivery from claim to done, each step synced before it is
// answered.
func cycle(tb testing.TB, l *Ledger, d fencepost.AcceptedDelivery, p fencepost.Publication) error {
	ctx := tb.Context()
	c, err := l.Claim(ctx, d)
	if err != nil {
		return err
	}
	a, ok := c.(fencepost.Acquired)
	if !ok {
		return fmt.Errorf("claim answered %T", c)
	}
	o, err := l.Stage(ctx, d, a.Lease, p)
	if err != nil {
		return err
	}
	s, ok := o.(fencepost.Staged)
	if !ok {
		return fmt.Errorf("stage answered %T", o)
	}
	e, err := l.Complete(ctx, d, s.Staged)
	if err != nil {
		return err
	}
	if _, ok := e.(fencepost.Completed); !ok {
		return fmt.Errorf("complete answered %T", e)
	}
	return nil
}

func benchPublication(tb testing.TB) fencepost.Publication {
	p, err := fencepost.NewPublication(make([]byte, 512))
	if err != nil {
		tb.Fatal(err)
	}
	return p
}

// run takes n deliveries through cycle with so many workers.
func runCycles(tb testing.TB, l *Ledger, prefix string, n, workers int) {
	p := benchPublication(tb)
	var next atomic.Int64
	var wait sync.WaitGroup
	for range workers {
		wait.Go(func() {
			for i := next.Add(1); i <= int64(n); i = next.Add(1) {
				d := ledgertest.Deliver(tb, ledgertest.Spec{ID: fmt.Sprint(prefix, i)})
				if err := cycle(tb, l, d, p); err != nil {
					tb.Error(err)
					return
				}
			}
		})
	}
	wait.Wait()
}

func BenchmarkCycle(b *testing.B) {
	for _, shards := range []int{1, 2, 4, 8, 16, 32} {
		for _, workers := range []int{1, 256} {
			b.Run(fmt.Sprintf("shards=%d/workers=%d", shards, workers), func(b *testing.B) {
				dir := b.TempDir()
				rate := syncRate(b, dir)
				l, err := Open(b.Context(), Config{Dir: filepath.Join(dir, "ledger"), Shards: shards, Maintain: -1, Volatile: true})
				if err != nil {
					b.Fatal(err)
				}
				defer l.Close()
				if err := l.CleanUp(b.Context()); err != nil {
					b.Fatal(err)
				}
				b.ResetTimer()
				runCycles(b, l, "d", b.N, workers)
				b.StopTimer()
				got := float64(b.N) / b.Elapsed().Seconds()
				b.ReportMetric(got, "deliveries/s")
				b.ReportMetric(rate, "syncs/s")
				b.ReportMetric(got/rate, "ratio")
				if err := l.Health().Err(); err != nil {
					b.Fatal(err)
				}
			})
		}
	}
}

// BenchmarkCycleProcesses spreads the cycles over several processes.
func BenchmarkCycleProcesses(b *testing.B) {
	for _, shards := range []int{1, 2, 4, 8, 16} {
		b.Run(fmt.Sprintf("shards=%d/processes=4/workers=64", shards), func(b *testing.B) {
			const processes, workers = 4, 64
			dir := b.TempDir()
			rate := syncRate(b, dir)
			var children []*child
			for i := range processes {
				children = append(children, spawn(b, "cycles", filepath.Join(dir, "ledger"), shards, fmt.Sprint("p", i, "-"), (b.N+processes-1)/processes, workers))
			}
			b.ResetTimer()
			for _, c := range children {
				c.start()
			}
			for _, c := range children {
				c.wait()
			}
			b.StopTimer()
			got := float64(b.N) / b.Elapsed().Seconds()
			b.ReportMetric(got, "deliveries/s")
			b.ReportMetric(rate, "syncs/s")
			b.ReportMetric(got/rate, "ratio")
		})
	}
}

// BenchmarkOpenMillion opens a ledger that holds a million deliveries, done
// for ever, and looks at one in each shard.
func BenchmarkOpenMillion(b *testing.B) {
	dir := b.TempDir()
	cfg := Config{Dir: filepath.Join(dir, "ledger"), Capacity: 2_000_000, Volatile: true, Maintain: -1}
	l, err := Open(b.Context(), cfg)
	if err != nil {
		b.Fatal(err)
	}
	if err := l.fill(b.Context(), 1_000_000); err != nil {
		b.Fatal(err)
	}
	if err := errors.Join(l.Compact(b.Context()), l.Close()); err != nil {
		b.Fatal(err)
	}
	var m runtime.MemStats
	for b.Loop() {
		l, err := Open(b.Context(), cfg)
		if err != nil {
			b.Fatal(err)
		}
		st, err := l.Stat(b.Context())
		if err != nil || st.Done != 1_000_000 {
			b.Fatalf("stat = %v, %v; want a million done", st, err)
		}
		b.StopTimer()
		runtime.GC()
		runtime.ReadMemStats(&m)
		b.StartTimer()
		if err := l.Close(); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(m.HeapAlloc)/(1<<20), "heap-MB")
}

// fill appends n rows that are done for ever, without their histories.
func (l *Ledger) fill(ctx context.Context, n int) error {
	rows := make([][]ledger.Row, len(l.shards))
	for i := range n {
		r := ledger.Row{
			State: ledger.Done, Key: sha256.Sum256(fmt.Append(nil, i)), Evaluation: fencepost.EvaluationID{1},
			Attempts: 1, Since: time.Unix(0, 0).UTC(), Published: [32]byte{1},
		}
		rows[l.owner(r.Key)] = append(rows[l.owner(r.Key)], r)
	}
	for n := range l.shards {
		err := l.enqueue(ctx, n, &op{do: func(_ context.Context, s *shard) (err error) {
			for _, r := range rows[n] {
				if r.Fence, err = fencepost.ParseFence(1); err != nil {
					return err
				}
				s.state.put(r.Key, ledger.Row{}, r)
			}
			return nil
		}})
		if err != nil {
			return err
		}
	}
	return nil
}
