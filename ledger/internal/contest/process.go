//go:build unix

package contest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/clock"
	"github.com/fencepost/fencepost/ledger"
	"github.com/fencepost/fencepost/ledger/ledgertest"
)

// env makes a test binary a process of a contest: it holds an assignment.
const env = "FENCEPOST_LEDGER_CONTEST"

// An Assignment is what one process is told.
type Assignment struct {
	// Client tells the processes of a contest apart; Seed what it does.
	Client int
	Seed   uint64
	// Where says where the ledger is, in the words of the test.
	Where string
	// Directory is for the contest's own files.
	Directory string
	// Speed is how much faster than the machine's the clock is that leases
	// are timed by.
	Speed int
	// Operations ends the process by itself, after so many.
	Operations int
}

// windowEvery is how long deliveries are worked on before others follow, and
// windowSize how many there are at a time: so few that all processes meet on
// them, and for so short a time that the history of each stays short.
const (
	windowEvery = 120 * time.Millisecond
	windowSize  = 16
)

// An Opener opens the ledger of an assignment with these clocks.
type Opener func(ctx context.Context, a Assignment, now func() time.Time, instant func() ledger.Instant) (l fencepost.Ledger, close func() error, err error)

// Process runs as a process of a contest, if this is one, and reports whether
// it is. It is called first in TestMain. code is what to exit with.
func Process(ctx context.Context, open Opener) (is bool, code int) {
	text := os.Getenv(env)
	if text == "" {
		return false, 0
	}
	var a Assignment
	err := json.Unmarshal([]byte(text), &a)
	if err == nil {
		err = a.work(ctx, open)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return true, 1
	}
	return true, 0
}

// A worker is what a process knows.
type worker struct {
	Assignment
	random *rand.Rand
	boot   clock.Boot
	ledger fencepost.Ledger
	// held are leases that it has or had, with what it saw staged under them.
	held []holding
}

type holding struct {
	delivery fencepost.AcceptedDelivery
	lease    fencepost.Lease
	staged   fencepost.StagedPublication
}

// maxHeld bounds what is remembered.
const maxHeld = 8

func (a Assignment) work(ctx context.Context, open Opener) (err error) {
	boot, err := clock.SystemBoot()
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	// Nobody waits for this one: it ends with the process, and that with it.
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // until the end of who started it
		stop()
	}()
	l, closeLedger, err := open(ctx, a, a.wall(), a.instant(boot))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeLedger()) }()
	out, err := os.OpenFile(logName(a.Directory, a.Client), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	if err := a.awaitStart(ctx); err != nil {
		return err
	}
	w := &worker{
		Assignment: a, random: rand.New(rand.NewPCG(a.Seed, uint64(a.Client))), boot: boot,
		ledger: ledgertest.Transcribe(out, a.Client, l, func() time.Duration { return boot.Now().Up }),
	}
	for n := 0; n < a.Operations && ctx.Err() == nil; n++ {
		w.step(ctx, n)
	}
	return nil
}

// startPause is the time between two looks whether a contest has started.
const startPause = 5 * time.Millisecond

// awaitStart returns when all have opened the ledger: on SQLite who works in a
// loop can keep one who comes later from it for minutes.
func (a Assignment) awaitStart(ctx context.Context) error {
	for {
		_, err := os.Stat(startName(a.Directory))
		if !errors.Is(err, fs.ErrNotExist) || ctx.Err() != nil {
			return err
		}
		pause(ctx, startPause)
	}
}

// startName is the file that starts a contest.
func startName(dir string) string { return filepath.Join(dir, "start") }

func logName(dir string, client int) string {
	return filepath.Join(dir, fmt.Sprintf("%06d.log", client))
}

// wall is the wall clock, which the contest steps: a file holds by how much,
// in seconds.
func (a Assignment) wall() func() time.Time {
	system := clock.System()
	name := filepath.Join(a.Directory, "step")
	return func() time.Time {
		b, err := os.ReadFile(name)
		if err != nil {
			return system.Now()
		}
		seconds, err := strconv.Atoi(strings.TrimSpace(string(b)))
		if err != nil {
			return system.Now() // it is just being written
		}
		return system.Now().Add(time.Duration(seconds) * time.Second)
	}
}

func (a Assignment) instant(boot clock.Boot) func() ledger.Instant {
	return func() ledger.Instant {
		now := boot.Now()
		id := ledger.BootID{1}
		copy(id[1:], now.Boot)
		return ledger.Instant{Boot: id, At: now.Up * time.Duration(a.Speed)}
	}
}

// delivery is one of those that all work on now.
func (w *worker) delivery() fencepost.AcceptedDelivery {
	window := int(w.boot.Now().Up / windowEvery)
	return ledgertest.Deliver(deaf{}, ledgertest.Spec{ID: fmt.Sprint(window, "-", w.random.IntN(windowSize))})
}

// step does one thing. Whatever is answered, the history tells.
func (w *worker) step(ctx context.Context, n int) {
	if len(w.held) > 0 && w.random.IntN(3) > 0 {
		w.goOn(ctx, w.random.IntN(len(w.held)), n)
		return
	}
	d := w.delivery()
	c, err := w.ledger.Claim(ctx, d)
	if err != nil {
		pause(ctx, 10*time.Millisecond)
		return
	}
	switch c := c.(type) {
	case fencepost.Acquired:
		w.hold(holding{delivery: d, lease: c.Lease})
	case fencepost.Publish:
		w.hold(holding{delivery: d, lease: c.Lease, staged: c.Staged})
	case fencepost.Busy, fencepost.Completed, fencepost.BindingConflict, fencepost.Full, fencepost.Expired:
	}
}

func (w *worker) hold(h holding) {
	if len(w.held) == maxHeld {
		w.held = w.held[1:]
	}
	w.held = append(w.held, h)
}

// goOn goes on with what is held; in vain, where another one has taken over.
func (w *worker) goOn(ctx context.Context, i, n int) {
	h := &w.held[i]
	switch choice := w.random.IntN(10); {
	case choice < 2:
		_, _ = w.ledger.Renew(ctx, h.delivery, h.lease) // the history tells
	case h.staged.Valid():
		_, _ = w.ledger.Complete(ctx, h.delivery, h.staged) // the history tells
		if choice < 8 {
			w.held = append(w.held[:i], w.held[i+1:]...)
		}
	default:
		p, err := fencepost.NewPublication(fmt.Appendf(nil, "%d %d", w.Client, n))
		if err != nil {
			panic(err)
		}
		o, err := w.ledger.Stage(ctx, h.delivery, h.lease, p)
		if s, ok := o.(fencepost.Staged); ok && err == nil {
			h.staged = s.Staged
		}
	}
}

func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// deaf is as much of a testing.TB as making a delivery needs.
type deaf struct{ testing.TB }

func (deaf) Helper()                   {}
func (deaf) Fatalf(f string, a ...any) { panic(fmt.Sprintf(f, a...)) }
