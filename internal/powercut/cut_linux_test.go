package powercut_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/fencepost/fencepost/internal/powercut"
	"github.com/fencepost/fencepost/ledger/fileledger"
)

func TestMain(m *testing.M) {
	if text := os.Getenv(writerEnv); text != "" {
		os.Exit(runWriter(text))
	}
	goleak.VerifyTestMain(m)
}

const (
	writers = 3
	// cutsPerVolume is after how many cuts a new file system is made.
	cutsPerVolume = 10
	// A cut comes within this time after the writers were answered so often.
	cutBefore, answered = 350 * time.Millisecond, 40
	// span is how many deliveries the writers work on at a time; half of them
	// are new after each cut.
	span = 300
	// keepMails is how many mails stay in the inbox over the next cut.
	keepMails = 200
	endWithin = time.Minute
)

// A fileSystem is one that is cut, mounted with options.
type fileSystem struct {
	kind    powercut.Kind
	options string
}

var fileSystems = []fileSystem{
	{powercut.Ext4, "data=ordered,commit=1"},
	{powercut.Ext4, "data=ordered,commit=5"},
	{powercut.Ext4, "data=ordered,commit=1000"},
	{powercut.XFS, ""},
	{powercut.Btrfs, ""},
}

func (fs fileSystem) name() string {
	return strings.TrimSpace(fmt.Sprintf("%s %s", fs.kind, fs.options))
}

// cuts is how many cuts are made of it: FENCEPOST_CUTS of each kind of file
// system, as `make cuts` sets, or a few.
func (fs fileSystem) cuts(t *testing.T) int {
	t.Helper()
	text := os.Getenv("FENCEPOST_CUTS")
	if text == "" {
		return 20 / len(fileSystems)
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		t.Fatalf("FENCEPOST_CUTS=%q: want a number above 0", text)
	}
	same := 0
	for _, other := range fileSystems {
		if other.kind == fs.kind {
			same++
		}
	}
	return (n + same - 1) / same
}

// Invariants 3 to 7 over power cuts: whatever was answered before a cut is
// there after it, the ledger verifies, and the work goes on.
func TestPowerCutsLoseNothingAnswered(t *testing.T) {
	t.Parallel()
	for _, fs := range fileSystems {
		t.Run(fs.name(), func(t *testing.T) {
			var total tally
			for n := fs.cuts(t); n > 0; n -= cutsPerVolume {
				v := powercut.Make(t, t.TempDir(), fs.kind, fs.options)
				kept := newPromises()
				for i := range min(n, cutsPerVolume) {
					total.add(cut(t, v, kept, i, false))
					for _, text := range kept.broken {
						t.Error(text)
					}
					if t.Failed() {
						t.FailNow()
					}
				}
				v.Close()
			}
			t.Logf("%d cuts: %d answers before them; %d times a delivery and %d times a mail was looked for after one; %d lost",
				total.cuts, total.answers, total.deliveries, total.mails, total.lost)
		})
	}
}

// The negative control: without syncs, the same cuts lose what was answered.
func TestPowerCutsLoseWhatWasNotSynced(t *testing.T) {
	t.Parallel()
	for _, fs := range fileSystems {
		t.Run(fs.name(), func(t *testing.T) {
			var total tally
			for range (fs.cuts(t) + 19) / 20 {
				v := powercut.Make(t, t.TempDir(), fs.kind, fs.options)
				total.add(cut(t, v, newPromises(), 0, true))
				v.Close()
			}
			t.Logf("%d cuts without syncs: %d answers before them, %d deliveries and mails lost of %d",
				total.cuts, total.answers, total.lost, total.deliveries+total.mails)
			if total.lost == 0 {
				t.Error("nothing was lost without syncs: these cuts show nothing")
			}
		})
	}
}

// A tally is what cuts came to.
type tally struct{ cuts, answers, deliveries, mails, lost int }

func (t *tally) add(more tally) {
	t.cuts += more.cuts
	t.answers += more.answers
	t.deliveries += more.deliveries
	t.mails += more.mails
	t.lost += more.lost
}

// cut has processes write, cuts their power, and looks at what is left.
func cut(t *testing.T, v *powercut.Volume, kept *promises, round int, deaf bool) tally {
	t.Helper()
	seed := rand.Uint64()
	h := listen(t, orders{Dir: v.Path(), Boot: v.Starts(), First: 1 + round*span/2, Count: span, Deaf: deaf}, seed)
	h.await(answered)
	time.Sleep(rand.N(cutBefore))
	heard := h.cut(v)
	for _, a := range heard {
		kept.hear(a)
	}
	sum := tally{cuts: 1, answers: len(heard), deliveries: len(kept.rows), mails: len(kept.mails)}
	v.Restart()
	before := kept.lost
	if err := inspect(t, v, kept); err != nil {
		if !deaf {
			t.Fatalf("after a cut: %v", err)
		}
		// Not even a ledger is left.
		sum.lost = sum.deliveries + sum.mails
		return sum
	}
	sum.lost = kept.lost - before
	return sum
}

// inspect holds a volume against the promises, and goes on with it.
func inspect(t *testing.T, v *powercut.Volume, kept *promises) (err error) {
	t.Helper()
	ctx := t.Context()
	verify := func() error {
		report, err := fileledger.Verify(ctx, fileledger.Config{Dir: filepath.Join(v.Path(), ledgerDir)})
		if err != nil {
			return err
		}
		return report.Err()
	}
	if err := verify(); err != nil {
		return fmt.Errorf("verify: %w", err)
	}
	l, b, err := openStores(ctx, v.Path(), v.Starts(), false)
	if err != nil {
		return fmt.Errorf("open: %w", err)
	}
	err = errors.Join(kept.checkLedger(ctx, l), kept.checkInbox(ctx, b, keepMails))
	if err == nil {
		err = kept.goOn(ctx, l, span/4)
	}
	if err = errors.Join(err, l.Close(), b.Close()); err != nil {
		return err
	}
	return verify()
}

// A hearing takes down what writers are answered.
type hearing struct {
	t         *testing.T
	processes []*exec.Cmd
	readers   sync.WaitGroup

	mu    sync.Mutex
	heard []ack
	over  bool // the power is cut: what is said now counts for nothing
}

// listen starts writers and returns when all are at work.
func listen(t *testing.T, o orders, seed uint64) *hearing {
	t.Helper()
	h := &hearing{t: t}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ready := make(chan error, 2*writers)
	for i := range uint64(writers) {
		o.Seed = seed + i
		text, err := json.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.CommandContext(t.Context(), exe)
		cmd.Env = append(os.Environ(), writerEnv+"="+string(text))
		cmd.Stderr = os.Stderr
		out, err := cmd.StdoutPipe()
		if err == nil {
			err = cmd.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		h.processes = append(h.processes, cmd)
		h.readers.Go(func() { h.read(out, ready) })
	}
	for range writers {
		select {
		case err := <-ready:
			if err != nil {
				h.end()
				t.Fatal(err)
			}
		case <-time.After(endWithin):
			h.end()
			t.Fatalf("writers are not ready after %v", endWithin)
		}
	}
	return h
}

// endedEarly is noted of a writer that ends while there is power.
const endedEarly = "it has ended by itself"

// read takes down one writer's lines until it ends.
func (h *hearing) read(out io.Reader, ready chan<- error) {
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		var a ack
		if err := json.Unmarshal(lines.Bytes(), &a); err != nil {
			continue // cut off by its death
		}
		switch a.Op {
		case readyOp:
			ready <- nil
		case failedOp:
			select {
			case ready <- fmt.Errorf("a writer: %s", a.Value):
			default: // nobody asks any more
			}
		}
		h.mu.Lock()
		// What was to be forgotten may be, whenever we hear of it.
		if !h.over || a.Op == doingOp {
			h.heard = append(h.heard, a)
		}
		h.mu.Unlock()
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.over {
		h.heard = append(h.heard, ack{Op: failedOp, Value: endedEarly})
	}
}

// await returns when so many answers were heard.
func (h *hearing) await(answers int) {
	h.t.Helper()
	for waited := time.Duration(0); ; waited += time.Millisecond {
		h.mu.Lock()
		n := len(h.heard)
		h.mu.Unlock()
		if n >= answers {
			return
		}
		if waited > endWithin {
			h.end()
			h.t.Fatalf("%d answers, want %d: %v", n, answers, h.heard)
		}
		time.Sleep(time.Millisecond)
	}
}

// cut cuts the power, ends the writers, and returns what they had been
// answered when it was cut.
func (h *hearing) cut(v *powercut.Volume) []ack {
	h.mu.Lock()
	h.over = true
	v.Cut()
	h.mu.Unlock()
	h.end()
	return h.heard
}

func (h *hearing) end() {
	for _, p := range h.processes {
		_ = p.Process.Kill() // it may have ended by itself
	}
	h.readers.Wait()
	for _, p := range h.processes {
		_ = p.Wait() // killed
	}
}
