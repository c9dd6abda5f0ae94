package simulation

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"go.uber.org/goleak"

	"github.com/fencepost/fencepost/internal/durable/crashfs"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var root = sync.OnceValues(func() (*crashfs.Disk, error) { return Root(context.Background()) })

// run runs one seed in a bubble of its own.
func run(t *testing.T, seed uint64, o Options) Result {
	t.Helper()
	disk, err := root()
	if err != nil {
		t.Fatal(err)
	}
	var r Result
	synctest.Test(t, func(*testing.T) { r = Run(seed, disk, o) })
	return r
}

// report is what a failing seed is told with: all of its story, and how to see
// it again.
func report(t *testing.T, seed uint64, o Options) string {
	t.Helper()
	o.Record = true
	r := run(t, seed, o)
	var b strings.Builder
	b.WriteString(r.Story)
	for _, v := range r.Violations {
		fmt.Fprintf(&b, "seed %d breaks %v\n", seed, v)
	}
	fmt.Fprintf(&b, "again: SIMULATE_SEED=%d go test ./internal/simulation -run TestOneSeed -v\n", seed)
	return b.String()
}

// number is an environment variable's, or a default.
func number(t *testing.T, name string, otherwise uint64) uint64 {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return n
}

// few is how many seeds a test takes where nobody says otherwise.
func few(seeds uint64) uint64 {
	if raceEnabled {
		return seeds / 8
	}
	return seeds
}

// TestEverySeed runs SIMULATE_SEEDS seeds from SIMULATE_FROM on. With
// SIMULATE_TALLY it writes what they came to into that file, for
// TestTallies.
func TestEverySeed(t *testing.T) {
	from, count := number(t, "SIMULATE_FROM", 0), number(t, "SIMULATE_SEEDS", few(2000))
	workers := runtime.GOMAXPROCS(0)
	tallies := make([]Tally, workers)
	t.Run("seeds", func(t *testing.T) {
		for w := range workers {
			t.Run(strconv.Itoa(w), func(t *testing.T) {
				t.Parallel()
				for seed := from + uint64(w); seed < from+count; seed += uint64(workers) {
					r := run(t, seed, Options{})
					if len(r.Violations) > 0 {
						t.Fatal(report(t, seed, Options{}))
					}
					tallies[w].Add(r)
				}
			})
		}
	})
	var all Tally
	for _, one := range tallies {
		all.Merge(one)
	}
	t.Logf("seeds %d to %d\n%s", from, from+count-1, &all)
	if name := os.Getenv("SIMULATE_TALLY"); name != "" && !t.Failed() {
		text, err := json.Marshal(all)
		if err == nil {
			err = os.WriteFile(name, text, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// TestTallies adds the tallies in the directory SIMULATE_TALLIES up, prints
// the table, and wants every fault to have come in every phase that it can
// come in.
func TestTallies(t *testing.T) {
	dir := os.Getenv("SIMULATE_TALLIES")
	if dir == "" {
		t.Skip("SIMULATE_TALLIES names the directory; make simulate sets it")
	}
	names, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil {
		t.Fatal(err)
	}
	var all Tally
	for _, name := range names {
		var one Tally
		text, err := os.ReadFile(name)
		if err == nil {
			err = json.Unmarshal(text, &one)
		}
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		all.Merge(one)
	}
	t.Logf("\n%s", &all)
	if missing := all.Missing(); len(missing) > 0 {
		t.Errorf("never came: %s", strings.Join(missing, ", "))
	}
	if want := number(t, "SIMULATE_SEEDS", 0); all.Runs < want {
		t.Errorf("%d runs, want %d", all.Runs, want)
	}
}

// TestTheSameSeedIsTheSameRun: the whole trace, call by call.
func TestTheSameSeedIsTheSameRun(t *testing.T) {
	from := number(t, "SIMULATE_FROM", 1_000_000)
	for seed := from; seed < from+number(t, "SIMULATE_TWICE", few(160)); seed++ {
		first := run(t, seed, Options{})
		if again := run(t, seed, Options{}); again.Hash != first.Hash {
			t.Fatalf("seed %d: hash %016x, then %016x\n%s", seed, first.Hash, again.Hash, difference(t, seed))
		}
	}
}

// difference looks for two runs of a seed that part, and shows where.
func difference(t *testing.T, seed uint64) string {
	t.Helper()
	for range 100 {
		first, again := run(t, seed, Options{Record: true}), run(t, seed, Options{Record: true})
		if first.Hash == again.Hash {
			continue
		}
		a, b := strings.Split(first.Story, "\n"), strings.Split(again.Story, "\n")
		for i := range min(len(a), len(b)) {
			if a[i] != b[i] {
				return strings.Join(a[max(0, i-40):min(i+5, len(a))], "\n") + "\nor\n" + strings.Join(b[i:min(i+5, len(b))], "\n")
			}
		}
	}
	return "it did not happen again"
}

// TestOneSeed tells the story of SIMULATE_SEED.
func TestOneSeed(t *testing.T) {
	seed := number(t, "SIMULATE_SEED", 1)
	text := report(t, seed, Options{})
	if os.Getenv("SIMULATE_SEED") != "" {
		t.Logf("\n%s", text)
	}
	if strings.Contains(text, "breaks") {
		t.Error(text)
	}
	for _, want := range []string{"acknowledged", "acquired fence", "staged", "SENT", "SHOWN", "completed", "taken out", "again: SIMULATE_SEED=1 "} {
		if seed == 1 && !strings.Contains(text, want) {
			t.Errorf("the story has no %q", want)
		}
	}
}

// within is in how many seeds a mutant must be found.
const within = 4000

// foundBy is a seed that finds a mutant: where to look first.
var foundBy = map[Mutant]uint64{
	IgnoresSyncErrors: 160, TakesUnknownForDone: 378, NeverLoses: 403, ComparesNoFence: 769, StagesInMemory: 2250,
}

// TestEveryMutantIsFound: what is broken in the controllers on purpose.
func TestEveryMutantIsFound(t *testing.T) {
	for _, m := range Mutants() {
		t.Run(m.String(), func(t *testing.T) {
			t.Parallel()
			if near, ok := foundBy[m]; ok {
				if r := run(t, near, Options{Mutant: m}); len(r.Violations) > 0 {
					t.Logf("%v: seed %d: %v", m, near, r.Violations[0])
					return
				}
			}
			for seed := range uint64(within) {
				if r := run(t, seed, Options{Mutant: m}); len(r.Violations) > 0 {
					t.Logf("%v: seed %d: %v", m, seed, r.Violations[0])
					return
				}
			}
			t.Errorf("not found in %d seeds", within)
		})
	}
}

// TestAFailingSeedTellsItsStory, with its rule and the command.
func TestAFailingSeedTellsItsStory(t *testing.T) {
	text := report(t, 0, Options{Mutant: NeverSends})
	for _, want := range []string{"seed 0 breaks 7: d", "is completed and not shown", "again: SIMULATE_SEED=0 ", "lock ledger/locks/a00", "completed"} {
		if !strings.Contains(text, want) {
			t.Errorf("the report has no %q:\n%s", want, text)
		}
	}
}
