//go:build unix

package contest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/fencepost/fencepost/ledger/ledgertest"
)

// A Contest is how many fight over a ledger, for how long, and who disturbs.
type Contest struct {
	// Where is passed on to the processes.
	Where string
	// Processes is how many there are at a time.
	Processes int
	// Disturbances is how often somebody interferes: a process is killed, or
	// stopped and resumed, or the wall clock is stepped, or Disturb is called.
	Disturbances int
	// Every is the time between two, about.
	Every time.Duration
	// Speed: see [Assignment].
	Speed int
	// Stop lets processes be stopped, for up to the time it says.
	Stop time.Duration
	// Disturb, if it is not nil, is one more way to interfere.
	Disturb func(testing.TB)
	// Seed says who is disturbed when, and what all do.
	Seed uint64
}

// A Result counts what happened.
type Result struct {
	Operations, Kills, Stops, Steps, Others int
}

// String is for people.
func (r Result) String() string {
	return fmt.Sprintf("%d operations, %d kills, %d stops, %d steps of the clock, %d other disturbances", r.Operations, r.Kills, r.Stops, r.Steps, r.Others)
}

// Add sums up.
func (r Result) Add(o Result) Result {
	return Result{r.Operations + o.Operations, r.Kills + o.Kills, r.Stops + o.Stops, r.Steps + o.Steps, r.Others + o.Others}
}

// Variable asks for a record run: it holds how many operations it has at
// least, in recordLedgers ledgers at least.
const Variable = "FENCEPOST_CONTEST"

const (
	shortOperations, recordLedgers        = 100, 10
	shortDisturbances, recordDisturbances = 6, 100
)

// Series holds contests of eight processes, each over a ledger of its own: one,
// or as many as [Variable] asks for. fresh says where the ledger of contest n
// is and what else is particular to it; after, if it is not nil, looks at what
// was left.
func Series(tb testing.TB, fresh func(n int) Contest, after func(Contest)) {
	tb.Helper()
	goal, ledgers, disturbances := shortOperations, 1, shortDisturbances
	if text := os.Getenv(Variable); text != "" {
		var err error
		if goal, err = strconv.Atoi(text); err != nil {
			tb.Fatalf("%s: %v", Variable, err)
		}
		ledgers, disturbances = recordLedgers, recordDisturbances
	}
	var sum Result
	n := 0
	for ; sum.Operations < goal || n < ledgers; n++ {
		c := fresh(n)
		c.Processes, c.Disturbances, c.Every, c.Seed = 8, disturbances, 150*time.Millisecond, uint64(n)
		sum = sum.Add(c.Run(tb))
		if after != nil {
			after(c)
		}
		if tb.Failed() {
			tb.Fatalf("ledger %d", n)
		}
	}
	tb.Logf("%d ledgers of 8 processes: %v", n, sum)
}

// unbounded is how many operations a process does that is to be killed.
const unbounded = 1 << 30

type player struct {
	cmd    *exec.Cmd
	alive  io.Closer
	stderr bytes.Buffer
}

// Run holds a contest, and fails tb if the history is not linearizable or a
// process ends by itself.
func (c Contest) Run(tb testing.TB) Result {
	tb.Helper()
	dir := tb.TempDir()
	random := rand.New(rand.NewPCG(c.Seed, 3))
	var result Result
	next := 0
	spawn := func() *player {
		a := Assignment{
			Client: next, Seed: c.Seed, Where: c.Where, Directory: dir, Speed: max(1, c.Speed), Operations: unbounded,
		}
		next++
		return start(tb, a)
	}
	players := make([]*player, c.Processes)
	for i := range players {
		players[i] = spawn()
	}
	defer func() {
		for _, p := range players {
			p.kill(tb)
		}
	}()
	for i := range players {
		players[i].ready(tb, dir, i)
	}
	if err := os.WriteFile(startName(dir), nil, 0o600); err != nil {
		tb.Fatal(err)
	}
	for range c.Disturbances {
		pause(tb.Context(), c.Every/2+time.Duration(random.Int64N(int64(c.Every))))
		i := random.IntN(len(players))
		switch choice := random.IntN(10); {
		case choice == 0 && c.Disturb != nil:
			c.Disturb(tb)
			result.Others++
		case choice < 3:
			step := strconv.Itoa((random.IntN(3) - 1) * 3600)
			if err := os.WriteFile(filepath.Join(dir, "step"), []byte(step), 0o600); err != nil {
				tb.Fatal(err)
			}
			result.Steps++
		case choice < 6 && c.Stop > 0:
			players[i].signal(tb, syscall.SIGSTOP)
			pause(tb.Context(), time.Duration(random.Int64N(int64(c.Stop))))
			players[i].signal(tb, syscall.SIGCONT)
			result.Stops++
		default:
			players[i].kill(tb)
			players[i] = spawn()
			result.Kills++
		}
	}
	for _, p := range players {
		p.kill(tb)
	}
	players = nil
	result.Operations = check(tb, dir)
	return result
}

func start(tb testing.TB, a Assignment) *player {
	tb.Helper()
	text, err := json.Marshal(a)
	if err != nil {
		tb.Fatal(err)
	}
	p := &player{cmd: exec.CommandContext(tb.Context(), os.Args[0], "-test.run=^$")}
	p.cmd.Env = append(os.Environ(), env+"="+string(text))
	p.cmd.Stderr = &p.stderr
	// The process ends when this one does, however that ends.
	if p.alive, err = p.cmd.StdinPipe(); err != nil {
		tb.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	return p
}

// startTime bounds the wait for a process's ledger.
const startTime = 2 * time.Minute

// ready waits until a process has opened the ledger.
func (p *player) ready(tb testing.TB, dir string, client int) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), startTime)
	defer cancel()
	for ctx.Err() == nil {
		if _, err := os.Stat(logName(dir, client)); err == nil {
			return
		}
		pause(ctx, startPause)
	}
	tb.Errorf("process %d has not opened the ledger within %v", client, startTime)
}

func (p *player) signal(tb testing.TB, s syscall.Signal) {
	tb.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		tb.Errorf("%v: %v: %s", s, err, p.stderr.String())
	}
}

// kill ends a process, which must not have ended by itself.
func (p *player) kill(tb testing.TB) {
	tb.Helper()
	err := p.cmd.Process.Kill()
	if errors.Is(err, os.ErrProcessDone) {
		err = nil
	}
	err = errors.Join(err, killed(p.cmd.Wait()))
	if err != nil {
		tb.Errorf("process: %v: %s", err, p.stderr.String())
	}
}

// killed is nil for the end of a process that was killed.
func killed(err error) error {
	exit, ok := errors.AsType[*exec.ExitError](err)
	if ok && exit.Sys().(syscall.WaitStatus).Signaled() {
		return nil
	}
	return fmt.Errorf("it ended by itself: %w", errors.Join(err, errors.New("not killed")))
}

// check reads all transcripts and holds the history against the table.
func check(tb testing.TB, dir string) int {
	tb.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "*.log"))
	if err != nil {
		tb.Fatal(err)
	}
	var h ledgertest.History
	for _, name := range names {
		f, err := os.Open(name)
		if err != nil {
			tb.Fatal(err)
		}
		if err := errors.Join(h.Read(f), f.Close()); err != nil {
			tb.Fatalf("%s: %v", name, err)
		}
	}
	h.Check(tb, true)
	return h.Len()
}
