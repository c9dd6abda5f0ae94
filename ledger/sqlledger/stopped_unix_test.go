//go:build unix

package sqlledger

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/ledger"
)

// TestAStoppedProcessStagesAndCompletesNothing: a process that is stopped
// (SIGSTOP) for longer than its lease goes on (SIGCONT) as if nothing had
// happened. What it asks for then is answered Lost, before and after the
// worker that took over has staged, and the one result is that worker's.
func TestAStoppedProcessStagesAndCompletesNothing(t *testing.T) {
	t.Parallel()
	url := postgres.Database(t)
	cfg := Config{URL: url, Lease: MinLease, Volatile: true, Connections: 4}
	l, err := Open(t.Context(), cfg)
	must0(t, err)
	defer l.Close()
	child := exec.CommandContext(t.Context(), os.Args[0])
	child.Env = append(os.Environ(), stoppedChild+"="+url)
	child.Stderr = os.Stderr
	in, err1 := child.StdinPipe()
	out, err2 := child.StdoutPipe()
	must0(t, errors.Join(err1, err2, child.Start()))
	defer func() { _ = child.Wait() }()
	defer func() { _ = child.Process.Kill() }()
	lines := bufio.NewScanner(out)
	hear := func() string {
		if !lines.Scan() {
			t.Fatalf("the process ended: %v", lines.Err())
		}
		return lines.Text()
	}
	start := time.Now()
	say := func(what string) { t.Logf("%5.1f s  %s", time.Since(start).Seconds(), what) }
	say("the first worker " + hear())
	must0(t, child.Process.Signal(syscall.SIGSTOP))
	say("its process is stopped (SIGSTOP)")
	d := lateDelivery(t)
	var lease fencepost.Lease
	for lease = (fencepost.Lease{}); !lease.Valid(); {
		c, err := l.Claim(t.Context(), d)
		must0(t, err)
		switch c := c.(type) {
		case fencepost.Acquired:
			lease = c.Lease
			say(fmt.Sprintf("the second worker acquires it under fence %v, attempt %d", lease.Fence(), c.Attempt))
		case fencepost.Busy:
			time.Sleep(c.After + time.Millisecond)
		case fencepost.BindingConflict, fencepost.Completed, fencepost.Expired, fencepost.Full, fencepost.Publish:
			t.Fatalf("claim answered %T", c)
		}
	}
	must0(t, child.Process.Signal(syscall.SIGCONT))
	say("the first worker's process goes on (SIGCONT)")
	const lost = "renew Lost, stage Lost, complete Lost"
	ask := func(when string) {
		_, err := fmt.Fprintln(in)
		must0(t, err)
		got := hear()
		say("the first worker, " + when + ": " + got)
		if got != lost {
			t.Errorf("%s: %s, want %s", when, got, lost)
		}
	}
	ask("while the second works")
	o, err := l.Stage(t.Context(), d, lease, publication(t, "second"))
	staged := must[fencepost.Staged](t, o, err).Staged
	ask("when the second has staged")
	c, err := l.Complete(t.Context(), d, staged)
	must[fencepost.Completed](t, c, err)
	ask("when the second has completed")
	row, _, err := l.Lookup(t.Context(), d.Key())
	if err != nil || row.State != ledger.Done || row.Published != publication(t, "second").Digest() || row.Attempts != 2 {
		t.Errorf("the row is %v, attempt %d, %v; want done with the second's result", row.State, row.Attempts, err)
	}
	say(fmt.Sprintf("the row is %v with the second worker's result, attempt %d", row.State, row.Attempts))
}
