package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/config"
	"github.com/fencepost/fencepost/internal/forgesim"
	"github.com/fencepost/fencepost/internal/source"
	"github.com/fencepost/fencepost/internal/source/sourcedb"
	"github.com/fencepost/fencepost/internal/store"
	"github.com/fencepost/fencepost/internal/trial/world"
)

// BenchmarkManySources is what it costs one process to observe so many sources
// every two minutes whose heads don't move: processor time and memory of
// `serve` over two and a half minutes, after it has settled. The forge and its
// Git server are in the benchmark's own process, and in Git's.
func BenchmarkManySources(b *testing.B) {
	for _, n := range []int{100, 10000} {
		b.Run(strconv.Itoa(n), func(b *testing.B) { benchmarkMany(b, n) })
	}
}

const (
	settling = 30 * time.Second
	watching = 150 * time.Second
)

func benchmarkMany(b *testing.B, n int) {
	w := unstarted(b, world.Config{
		YAML: quick, RateLimit: 100 * n, Source: &world.SourceConfig{Repository: forgesim.Import{Files: map[string]string{"page": "1"}}},
	})
	multiply(b, w, n)
	w.Controller.Within = 3 * time.Minute
	settleAll(b, w)
	start(b, w)
	for b.Loop() {
		time.Sleep(settling)
		cpu, looks := processorTime(b, w.Controller.PID()), w.Forge.Count(forgesim.GitFetch)
		time.Sleep(watching)
		used := processorTime(b, w.Controller.PID()) - cpu
		looks = w.Forge.Count(forgesim.GitFetch) - looks
		b.ReportMetric(used.Seconds()/watching.Seconds(), "cores")
		b.ReportMetric(float64(looks), "looks")
		b.ReportMetric(float64(used.Microseconds())/float64(max(looks, 1)), "us/look")
		b.ReportMetric(resident(b, w.Controller.PID()), "MB")
	}
	b.ReportMetric(0, "ns/op")
}

// unstarted is a world whose controller is not started.
func unstarted(b *testing.B, c world.Config) *world.World {
	b.Helper()
	c.Binary, c.Program, c.Now, c.Dir = fencepostBinary, hostileProgram, time.Now, b.TempDir()
	c.Repository.Files = behave("pass")
	w, err := world.New(context.Background(), c)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := w.Close(); err != nil {
			b.Error(err)
		}
	})
	return w
}

// multiply writes the one source of the configuration n times, each with its
// own id and place.
func multiply(b *testing.B, w *world.World, n int) {
	b.Helper()
	text, err := os.ReadFile(w.ConfigFile)
	if err != nil {
		b.Fatal(err)
	}
	head, section, ok := strings.Cut(string(text), "sources:\n")
	section, rest, ok2 := strings.Cut(section, quick)
	if !ok || !ok2 {
		b.Fatal("the configuration has not the shape that is expected here")
	}
	var all strings.Builder
	all.WriteString(head + "sources:\n")
	for i := range n {
		all.WriteString(strings.NewReplacer(
			world.SourceName+":\n", fmt.Sprintf("%s-%d:\n", world.SourceName, i),
			world.SourceUUID, fmt.Sprintf("5a0e3a4e-6b0c-4f0e-9d7b-%012x", i+1),
			w.Served(), fmt.Sprintf("%s-%d", w.Served(), i),
		).Replace(section))
	}
	if err := os.WriteFile(w.ConfigFile, []byte(all.String()+quick+rest), 0o600); err != nil {
		b.Fatal(err)
	}
}

// settleAll puts every source on record as one that has its head: else the
// first runs would be most of what is measured.
func settleAll(b *testing.B, w *world.World) {
	b.Helper()
	c, err := config.Load(w.ConfigFile, os.LookupEnv)
	if err != nil {
		b.Fatal(err)
	}
	head, err := fencepost.ParseCommitID(w.Handbook.Ref("refs/heads/" + w.Handbook.DefaultBranch()))
	if err != nil {
		b.Fatal(err)
	}
	if err := os.MkdirAll(w.DataDir(), 0o700); err != nil {
		b.Fatal(err)
	}
	// A first start makes the data directory; its sources are all new then.
	start(b, w)
	if err := w.Controller.Kill(); err != nil {
		b.Fatal(err)
	}
	db, err := store.Open(b.Context(), store.Options{Path: filepath.Join(w.DataDir(), "state.db"), Now: time.Now})
	if err != nil {
		b.Fatal(err)
	}
	defer db.Close()
	// What the first start asked for is not wanted.
	for _, table := range []string{"river_job", "source_jobs"} {
		if _, err := db.Writer().ExecContext(b.Context(), "delete from "+table); err != nil {
			b.Fatal(err)
		}
	}
	rows := sourcedb.New(db, nil, sourcedb.Hooks{})
	for i := 0; i < len(c.Sources); i += 500 {
		part := c.Sources[i:min(i+500, len(c.Sources))]
		if err := rows.Together(b.Context(), func(ctx context.Context, tx *sourcedb.Bound) error {
			for j, s := range part {
				if err := tx.Change(ctx, s.ID, source.Lookup{}, func(snap source.Snapshot) (source.Change, error) {
					row := snap.Source
					row.Applied, row.AppliedTree, row.AppliedRevision = head, fencepost.TreeID(head), s.Digest
					row.Observed, row.ObservedAt, row.UnmetSince = head, snap.Now, time.Time{}
					// Spread over the two minutes, as they are after a while.
					row.NextCheck = snap.Now.Add(time.Duration(i+j) * 2 * time.Minute / time.Duration(len(c.Sources)))
					change := source.Change{Source: &row}
					if !snap.Lock.Free() {
						change.Lock = &source.LockRow{Fence: snap.Lock.Fence}
					}
					if snap.Open != nil {
						run := *snap.Open
						run.Status, run.EndedAt, run.Token = source.Coalesced, snap.Now, source.Token{}
						change.Update = &run
					}
					return change, nil
				}); err != nil {
					return err
				}
			}
			return nil
		}); err != nil {
			b.Fatal(err)
		}
	}
}

// processorTime is what a process has used, its children not counted.
func processorTime(b *testing.B, pid int) time.Duration {
	b.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		b.Fatal(err)
	}
	// After the name in brackets; utime and stime are the 14th and 15th field.
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	var ticks int
	for _, f := range fields[11:13] {
		n, err := strconv.Atoi(f)
		if err != nil {
			b.Fatal(err)
		}
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond
}

// resident is the memory of a process in MB.
func resident(b *testing.B, pid int) float64 {
	b.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		b.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) > 1 && f[0] == "VmRSS:" {
			kb, err := strconv.Atoi(f[1])
			if err != nil {
				b.Fatal(err)
			}
			return float64(kb) / 1024
		}
	}
	b.Fatal("no VmRSS")
	return 0
}
