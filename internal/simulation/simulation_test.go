package simulation_test

import (
	"context"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/fencepost/fencepost/internal/durable/crashfs"
	"github.com/fencepost/fencepost/internal/simulation"
)

var root = sync.OnceValues(func() (*crashfs.Disk, error) { return simulation.Root(context.Background()) })

func run(t *testing.T, seed uint64, o simulation.Options) simulation.Result {
	t.Helper()
	disk, err := root()
	if err != nil {
		t.Fatal(err)
	}
	var r simulation.Result
	synctest.Test(t, func(*testing.T) { r = simulation.Run(seed, disk, o) })
	return r
}

func TestMain(m *testing.M) {
	// A run lives for milliseconds: what it leaves is swept with that of many.
	debug.SetGCPercent(800)
	os.Exit(m.Run())
}

func TestOne(t *testing.T) {
	seed, _ := strconv.ParseUint(os.Getenv("SEED"), 10, 64)
	r := run(t, seed, simulation.Options{Record: true})
	t.Log(r.Story)
	t.Log(r.Steps, r.Took, r.Hash, r.Violations)
}

func TestMany(t *testing.T) {
	n, _ := strconv.ParseUint(os.Getenv("N"), 10, 64)
	from, _ := strconv.ParseUint(os.Getenv("FROM"), 10, 64)
	bad := 0
	steps := 0
	for seed := from; seed < from+n; seed++ {
		if os.Getenv("V") != "" {
			println(seed)
		}
		r := run(t, seed, simulation.Options{})
		steps += r.Steps
		if len(r.Violations) > 0 {
			t.Log(seed, r.Steps, r.Took, r.Violations)
			if bad++; bad > 20 {
				break
			}
		}
	}
	t.Log("steps", steps)
}

func TestTwice(t *testing.T) {
	n, _ := strconv.ParseUint(os.Getenv("N"), 10, 64)
	from, _ := strconv.ParseUint(os.Getenv("FROM"), 10, 64)
	for seed := from; seed < from+n; seed++ {
		r := run(t, seed, simulation.Options{})
		q := run(t, seed, simulation.Options{})
		if r.Hash == q.Hash {
			continue
		}
		for range 50 {
			r, q := run(t, seed, simulation.Options{Record: true}), run(t, seed, simulation.Options{Record: true})
			if r.Hash == q.Hash {
				continue
			}
			a, b := strings.Split(r.Story, "\n"), strings.Split(q.Story, "\n")
			for i := range a {
				if a[i] != b[i] {
					t.Fatalf("seed %d: %s\n\n%s", seed, strings.Join(a[max(0, i-50):i+6], "\n"), strings.Join(b[i:i+6], "\n"))
				}
			}
		}
		t.Fatal(seed)
	}
}
