package durable

import (
	"io/fs"
	"os"
	"slices"
	"testing"
	"time"
)

// unprobedFS is the operating system's, whose files can't be probed.
type unprobedFS struct{ FS }

func (u unprobedFS) OpenFile(name string, flag int, perm fs.FileMode) (File, error) {
	f, err := u.FS.OpenFile(name, flag, perm)
	return struct{ File }{f}, err
}

// BenchmarkProbe is what it costs to see after each sync that the disk still
// takes a change: a write of 256 bytes and its sync with it and without, one
// after the other, so that both see the same disk.
func BenchmarkProbe(b *testing.B) {
	const size = 1 << 20
	open := func(fsys FS) File {
		r, err := OpenRoot(fsys)
		if err != nil {
			b.Fatal(err)
		}
		f, err := r.OpenFile("data", os.O_RDWR|os.O_CREATE, FilePerm)
		if err != nil {
			b.Fatal(err)
		}
		if err := ZeroFill(f, size); err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() {
			if err := f.Close(); err != nil {
				b.Error(err)
			}
			if err := r.Close(); err != nil {
				b.Error(err)
			}
		})
		return f
	}
	probed, plain := open(OS(b.TempDir())), open(unprobedFS{OS(b.TempDir())})
	frame := make([]byte, 256)
	once := func(f File, n int) time.Duration {
		start := time.Now()
		if _, err := f.WriteAt(frame, int64(n*len(frame)%size)); err != nil {
			b.Fatal(err)
		}
		if err := f.Sync(); err != nil {
			b.Fatal(err)
		}
		return time.Since(start)
	}
	var with, without []time.Duration
	for n := 0; b.Loop(); n++ {
		with, without = append(with, once(probed, n)), append(without, once(plain, n))
	}
	median := func(all []time.Duration) float64 {
		slices.Sort(all)
		return float64(all[len(all)/2])
	}
	b.ReportMetric(median(with)/1e3, "µs-median-with")
	b.ReportMetric(median(without)/1e3, "µs-median-without")
	b.ReportMetric(median(with)/median(without), "times")
}
