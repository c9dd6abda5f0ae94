package inbox

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/durable"
)

// BenchmarkRecord records bodies from many goroutines on the real disk, takes
// them up and is done with them, so that segments turn over as in service.
func BenchmarkRecord(b *testing.B) {
	for _, n := range []int{1, 64} {
		for _, size := range []int{8 << 10, 25 << 10} {
			b.Run(fmt.Sprintf("goroutines=%d/body=%d", n, size), func(b *testing.B) {
				benchmarkRecord(b, n, size)
			})
		}
	}
}

func benchmarkRecord(b *testing.B, goroutines, size int) {
	box, err := Open(b.Context(), durable.OS(b.TempDir()), Config{NotDurable: true})
	if err != nil {
		b.Fatal(err)
	}
	body := bytes.Repeat([]byte("x"), size)
	deliveries := make([]fencepost.AcceptedDelivery, b.N)
	for i := range deliveries {
		deliveries[i] = mail{id: uint64(i), body: body[:1]}.accepted(b)
	}
	var wg, background sync.WaitGroup
	background.Go(func() {
		if err := box.Run(b.Context()); err != nil {
			b.Error(err)
		}
	})
	background.Go(func() {
		for {
			item, err := box.Next(b.Context())
			if errors.Is(err, ErrClosed) {
				return
			}
			if err := errors.Join(err, box.Done(item.ID, "")); err != nil && !errors.Is(err, ErrClosed) {
				b.Error(err)
				return
			}
		}
	})
	b.SetBytes(int64(size))
	b.ReportAllocs()
	b.ResetTimer()
	var next atomic.Int64
	for range goroutines {
		wg.Go(func() {
			for {
				i := next.Add(1) - 1
				if i >= int64(b.N) {
					return
				}
				if _, err := box.Record(b.Context(), deliveries[i], headers, body); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "records/s")
	b.ReportMetric(float64(b.N)/float64(box.own.commits), "records/sync")
	if err := box.Close(); err != nil {
		b.Fatal(err)
	}
	background.Wait()
}

// BenchmarkBareSync is what one sync of one process costs at the moment, to
// hold the others against.
func BenchmarkBareSync(b *testing.B) {
	f, err := durable.OS(b.TempDir()).OpenFile("f", os.O_RDWR|os.O_CREATE, durable.FilePerm)
	if err != nil {
		b.Fatal(err)
	}
	if err := durable.ZeroFill(f, 64<<20); err != nil {
		b.Fatal(err)
	}
	body := make([]byte, 8<<10)
	b.ResetTimer()
	for i := range b.N {
		if _, err := f.WriteAt(body, int64(i%8000)*int64(len(body))); err != nil {
			b.Fatal(err)
		}
		if err := f.Sync(); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "syncs/s")
	if err := f.Close(); err != nil {
		b.Fatal(err)
	}
}
