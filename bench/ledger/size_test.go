package ledger

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencepost/fencepost/ledger/fileledger"
	"github.com/fencepost/fencepost/ledger/ledgertest"
)

const sizeChild = "FENCEPOST_BENCH_SIZE"

// BenchmarkSize opens ledgers of ever more rows, done for ever, each in a
// process of its own, and tells what that takes and what a claim costs there.
// BENCH_ROWS are the sizes.
func BenchmarkSize(b *testing.B) {
	sizes := os.Getenv("BENCH_ROWS")
	if sizes == "" {
		sizes = "1000,10000,100000,1000000"
	}
	for size := range strings.SplitSeq(sizes, ",") {
		n, err := strconv.Atoi(size)
		if err != nil {
			b.Fatal(err)
		}
		dir := b.TempDir()
		for _, step := range []string{"fill", "look"} {
			cmd := exec.CommandContext(b.Context(), os.Args[0])
			cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s,%d,%s", sizeChild, step, n, dir))
			var out bytes.Buffer
			cmd.Stdout, cmd.Stderr = &out, os.Stderr
			if err := cmd.Run(); err != nil {
				b.Fatalf("%s %d: %v", step, n, err)
			}
			if step == "look" {
				fmt.Print(out.String())
			}
		}
		if err := os.RemoveAll(filepath.Join(dir, "ledger")); err != nil {
			b.Fatal(err)
		}
	}
}

// sizeMain is one step of BenchmarkSize.
func sizeMain(tb testing.TB, what string) error {
	parts := strings.SplitN(what, ",", 3)
	n, err := strconv.Atoi(parts[1])
	if err != nil {
		return err
	}
	cfg := fileledger.Config{Dir: filepath.Join(parts[2], "ledger"), Capacity: min(max(2*n, 10_000), fileledger.MaxCapacity), MaxBytes: 8 << 30}
	if parts[0] == "fill" {
		return fill(tb, cfg, n)
	}
	before := resident()
	start := time.Now()
	l, err := fileledger.Open(tb.Context(), cfg)
	if err != nil {
		return err
	}
	defer l.Close()
	st, err := l.Stat(tb.Context())
	if err != nil {
		return err
	}
	opened := time.Since(start)
	rss := resident()
	var took []time.Duration
	for i := range 2000 {
		d := ledgertest.Deliver(tb, ledgertest.Spec{ID: fmt.Sprint("new", i), Body: "x"})
		start := time.Now()
		if _, err := l.Claim(tb.Context(), d); err != nil {
			return err
		}
		took = append(took, time.Since(start))
	}
	slices.Sort(took)
	us := func(q float64) int64 { return took[int(q*float64(len(took)-1))].Microseconds() }
	disk := int64(0)
	err = filepath.WalkDir(cfg.Dir, func(_ string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		info, err := e.Info()
		if err == nil && strings.HasSuffix(e.Name(), ".snap") {
			disk += info.Size()
		}
		return err
	})
	fmt.Printf("%8d rows: open and count %6.1f ms, resident %5.1f MB (%.1f before), %.1f bytes of memory and %.1f of snapshots a row; claim p50 %d us, p99 %d us\n",
		st.Done, float64(opened.Microseconds())/1000, float64(rss)/1e6, float64(before)/1e6,
		float64(rss-before)/float64(n), float64(disk)/float64(n), us(0.5), us(0.99))
	return err
}

// resident is the process's resident size in bytes; 0 where it can't be read.
func resident() int64 {
	text, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(text))
	pages, err := strconv.ParseInt(fields[1], 10, 64)
	if err != nil {
		return 0
	}
	return pages * int64(os.Getpagesize())
}

// fill takes n deliveries to done, and compacts.
func fill(tb testing.TB, cfg fileledger.Config, n int) error {
	l, err := fileledger.Open(tb.Context(), cfg)
	if err != nil {
		return err
	}
	defer l.Close()
	s := &ledgerStore{tb: tb, Ledger: l}
	var next atomic.Int64
	errs := make(chan error)
	const workers = 512
	for range workers {
		go func() {
			for i := next.Add(1); i <= int64(n); i = next.Add(1) {
				if err := s.Cycle(tb.Context(), keyOf(fmt.Sprint(i)), []byte("x")); err != nil {
					errs <- err
					return
				}
			}
			errs <- nil
		}()
	}
	for range workers {
		if e := <-errs; e != nil {
			err = e
		}
	}
	if err != nil {
		return err
	}
	return l.Compact(tb.Context())
}
