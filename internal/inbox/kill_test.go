package inbox

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/durable"
)

const victimDir = "FENCEPOST_TEST_INBOX"

// onDisk is for tests on the machine's own file system.
var onDisk = Config{SegmentBytes: 256 << 10, MaxBytes: 1 << 30, MinFree: -1, NotDurable: true}

// victimMain is the process that TestAKilledProcessLosesNothing kills: it
// records from many goroutines, works off half of it, and says what was
// acknowledged and what was done.
func victimMain(dir string) {
	t := deaf{}
	first, err := strconv.ParseUint(os.Getenv(victimDir+"_FIRST"), 10, 64)
	must(t, err)
	b, err := Open(t.Context(), durable.OS(dir), onDisk)
	must(t, err)
	var wg sync.WaitGroup
	wg.Go(func() { must(t, b.Run(t.Context())) })
	for g := range uint64(8) {
		wg.Go(func() {
			for i := first + g; ; i += 8 {
				m := mail{id: i, body: bytes.Repeat(fmt.Appendf(nil, "%d.", i), 1000)}
				_, err := b.Record(t.Context(), m.accepted(t), headers, m.body)
				must(t, err)
				fmt.Println("acked", m.accepted(t).Key().Hex())
				if i%2 == 0 {
					continue
				}
				item, err := b.Next(t.Context())
				must(t, err)
				fmt.Println("done", item.Key.Hex())
				must(t, b.Done(item.ID, ""))
			}
		})
	}
	wg.Wait()
}

// deaf is the tester of a process that is about to be killed.
type deaf struct{}

func (deaf) Helper()                  {}
func (deaf) Context() context.Context { return context.Background() }
func (deaf) Fatal(args ...any)        { fmt.Println("failed", fmt.Sprint(args...)) }

func TestAKilledProcessLosesNothing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	must(t, os.Mkdir(dir+"/inbox", 0o700))
	dir += "/inbox"
	open := map[string]bool{} // acknowledged, not done
	for round := range 4 {
		victim(t, dir, round, 400+300*round, open)
	}
	b, err := Open(t.Context(), durable.OS(dir), onDisk)
	must(t, err)
	must(t, b.Health())
	held := map[string]bool{}
	for s := b.Stats(); s.Entries > s.Leased; s = b.Stats() {
		item, r := take(t, b)
		if r.Key != item.Key || len(r.Body) < 2000 || !bytes.HasPrefix(r.Body[len(r.Body)/1000:], r.Body[:len(r.Body)/1000]) {
			t.Fatalf("%v reads %.40q", item.Key, r.Body)
		}
		held[item.Key.Hex()] = true
	}
	for key := range open {
		if !held[key] {
			t.Errorf("%.16s was acknowledged and is lost", key)
		}
	}
	t.Logf("%d acknowledged and open, %d held", len(open), len(held))
	must(t, b.Close())
}

// victim runs a process, kills it after it has said so many lines, and notes
// what it said.
func victim(t *testing.T, dir string, round, lines int, open map[string]bool) {
	t.Helper()
	exe, err := os.Executable()
	must(t, err)
	cmd := exec.CommandContext(t.Context(), exe, "-test.run=^$")
	cmd.Env = append(os.Environ(), victimDir+"="+dir, fmt.Sprintf("%s_FIRST=%d", victimDir, round*1_000_000))
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	scanner := bufio.NewScanner(out)
	for n := 0; scanner.Scan(); n++ {
		what, key, ok := strings.Cut(scanner.Text(), " ")
		if n == lines {
			must(t, cmd.Process.Kill())
		}
		switch {
		case !ok:
			continue // cut off by its death
		case what == "acked" && len(key) == 2*len(fencepost.DeliveryKey{}):
			if _, done := open[key]; !done {
				open[key] = true
			}
		case what == "done":
			open[key] = false
		case what == "failed":
			t.Errorf("round %d: %s", round, key)
		}
	}
	err = cmd.Wait()
	if exit, ok := errors.AsType[*exec.ExitError](err); !ok || exit.Success() {
		t.Errorf("round %d: the process was not killed: %v", round, err)
	}
	for key, isOpen := range open {
		if !isOpen {
			delete(open, key)
		}
	}
}
