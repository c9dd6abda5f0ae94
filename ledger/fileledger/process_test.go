package fileledger

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/durable"
	"github.com/fencepost/fencepost/internal/durable/crashfs"
	"github.com/fencepost/fencepost/ledger/ledgertest"
)

// TestADeadHoldersLeaseNeedsNoWaiting: a killed process's slot is free; a
// live one's is not.
func TestADeadHoldersLeaseNeedsNoWaiting(t *testing.T) {
	t.Parallel()
	p, disk := newPlay(t), crashfs.New(crashfs.Options{})
	first, second := disk.Process(), disk.Process()
	a, err := openIn(t.Context(), p.cfg, first, testName)
	if err != nil {
		t.Fatal(err)
	}
	b, err := openIn(t.Context(), p.cfg, second, testName)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	claim := func() fencepost.Claim {
		t.Helper()
		c, err := b.Claim(t.Context(), p.permanent(0))
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	c, err := a.Claim(t.Context(), p.permanent(0))
	if err != nil {
		t.Fatal(err)
	}
	old := c.(fencepost.Acquired).Lease
	if c := claim(); c == nil || fmt.Sprintf("%T", c) != "fencepost.Busy" {
		t.Fatalf("while its holder lives: %T, want Busy", c)
	}
	first.Kill()
	_ = a.Close()
	got, ok := claim().(fencepost.Acquired)
	if !ok || got.Lease.Evaluation() != old.Evaluation() || !old.Fence().Before(got.Lease.Fence()) {
		t.Fatalf("after its holder died: %+v, want Acquired under a later fence", got)
	}
	// The slot has another owner now: still not the old holder.
	third, err := openIn(t.Context(), p.cfg, disk.Process(), testName)
	if err != nil {
		t.Fatal(err)
	}
	defer third.Close()
	if dead, err := b.slots.dead(a.slots.own); err != nil || !dead {
		t.Errorf("the killed holder is dead = %v, %v, now that its slot is another's", dead, err)
	}
	if dead, err := b.slots.dead(third.slots.own); err != nil || dead {
		t.Errorf("the slot's new owner is dead = %v, %v", dead, err)
	}
}

// TestAnIdleProcessFollowsWhatOthersCompacted: the segments that it knew are
// gone when it looks again.
func TestAnIdleProcessFollowsWhatOthersCompacted(t *testing.T) {
	t.Parallel()
	f := onCrashFS(t)
	f.cfg.Shards, f.cfg.SegmentBytes = 1, 16<<10
	p := &play{tb: t, cfg: f.cfg, clock: f.clock}
	idle, busy := f.ledger(), f.ledger()
	if err := p.take(idle, p.permanent(0), "result", "claim"); err != nil {
		t.Fatal(err)
	}
	for round := range 3 {
		for n := range 8 {
			if err := p.take(busy, p.permanent(1+8*round+n), "result", "done"); err != nil {
				t.Fatal(err)
			}
		}
		if err := busy.Compact(t.Context()); err != nil {
			t.Fatal(err)
		}
		if round == 1 {
			continue // two compactions at once, for the idle one
		}
		for n := range 1 + 8*(round+1) {
			c, err := idle.Claim(t.Context(), p.permanent(n))
			if err != nil {
				t.Fatalf("round %d, delivery %d: %v", round, n, err)
			}
			if _, done := c.(fencepost.Completed); done != (n > 0) {
				t.Fatalf("round %d, delivery %d: %T", round, n, c)
			}
		}
	}
	report, err := verifyIn(t.Context(), durable.Sub(f.process(), testName))
	if err != nil || report.Err() != nil {
		t.Fatalf("verify: %v, %v", err, report.Err())
	}
	if s := report.Shards[0]; s.Done != 24 || s.Leased != 1 || s.Segments > 2 || s.Snapshot == 0 {
		t.Errorf("report = %+v, want 24 done, 1 leased behind a snapshot", s)
	}
}

// TestLogsAreCompactedByThemselves: a log does not grow for ever.
func TestLogsAreCompactedByThemselves(t *testing.T) {
	t.Parallel()
	f := onCrashFS(t)
	f.cfg.Shards, f.cfg.SegmentBytes, f.cfg.Capacity = 1, 16<<10, 1000
	p := &play{tb: t, cfg: f.cfg, clock: f.clock}
	l := f.ledger()
	for n := range 60 {
		if err := p.take(l, p.permanent(n), "result", "done"); err != nil {
			t.Fatal(err)
		}
	}
	st, err := l.Stat(t.Context())
	if err != nil || st.Done != 60 || st.Segments > compactSegments+2 {
		t.Fatalf("stat = %v, %v; want 60 done in at most %d segments", st, err, compactSegments+2)
	}
	if err := l.Health().Maintenance; err != nil {
		t.Error(err)
	}
	for n := range 60 {
		if c, err := l.Claim(t.Context(), p.permanent(n)); err != nil || c != fencepost.Claim(fencepost.Completed{}) {
			t.Fatalf("delivery %d: %T, %v; want Completed", n, c, err)
		}
	}
}

// An ack is what a child was answered, one line of its output each.
type ack struct {
	Op         string // "acquired", "staged", "publish", "completed"
	N          int
	Evaluation string
	Fence      uint64
	Value      string
}

// childHistory DIR SEED takes a few deliveries to their ends again and again
// and tells every answer, until it is killed.
func childHistory(args []string) error {
	seed, err := strconv.ParseUint(args[1], 10, 64)
	if err != nil {
		return err
	}
	tb := &childTB{}
	l, err := Open(tb.Context(), killConfig(args[0]))
	if err != nil {
		return err
	}
	if err := ready(); err != nil {
		return err
	}
	random := rand.New(rand.NewPCG(seed, 7))
	for i := 0; ; i++ {
		if err := childStep(tb, l, random, fmt.Sprint(seed, "-", i)); err != nil {
			return err
		}
	}
}

const killDeliveries = 400

func killConfig(dir string) Config {
	return Config{Dir: dir, Lease: MinLease, Shards: 2, SegmentBytes: MinSegment, Volatile: true, Maintain: 50 * time.Millisecond}
}

// childStep takes one delivery as far as it comes.
func childStep(tb testing.TB, l *Ledger, random *rand.Rand, text string) error {
	ctx := tb.Context()
	n := random.IntN(killDeliveries)
	d := ledgertest.Deliver(tb, ledgertest.Spec{ID: fmt.Sprint("k", n)})
	c, err := l.Claim(ctx, d)
	if err != nil {
		return err
	}
	var staged fencepost.StagedPublication
	switch c := c.(type) {
	case fencepost.Acquired:
		tell(ack{Op: "acquired", N: n, Evaluation: c.Lease.Evaluation().String(), Fence: c.Lease.Fence().Uint64()})
		p, err := fencepost.NewPublication([]byte(text + strings.Repeat(".", random.IntN(8000))))
		if err != nil {
			return err
		}
		s, err := l.Stage(ctx, d, c.Lease, p)
		if err != nil {
			return err
		}
		got, ok := s.(fencepost.Staged)
		if !ok {
			return nil // taken over
		}
		staged = got.Staged
		tell(ack{Op: "staged", N: n, Evaluation: staged.Evaluation().String(), Fence: c.Lease.Fence().Uint64(), Value: value(staged)})
	case fencepost.Publish:
		staged = c.Staged
		tell(ack{Op: "publish", N: n, Evaluation: staged.Evaluation().String(), Fence: c.Lease.Fence().Uint64(), Value: value(staged)})
	default:
		return nil
	}
	e, err := l.Complete(ctx, d, staged)
	if err != nil {
		return err
	}
	if _, ok := e.(fencepost.Completed); !ok {
		return fmt.Errorf("complete answered %T", e)
	}
	tell(ack{Op: "completed", N: n, Evaluation: staged.Evaluation().String(), Value: value(staged)})
	return nil
}

func value(s fencepost.StagedPublication) string {
	d := s.Publication().Digest()
	return fmt.Sprintf("%x", d[:8])
}

func tell(a ack) {
	b, err := json.Marshal(a)
	if err != nil {
		panic(err)
	}
	fmt.Println(string(b))
}

// TestKilledProcesses kills processes that work on the same deliveries, over
// and over: what they were answered agrees with each other and with what is
// left in the end.
func TestKilledProcesses(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "ledger")
	const processes = 3
	rounds := 8
	if exhaustive {
		rounds = 300
	}
	acks := make(chan ack, 1024)
	collected := make(chan map[int][]ack)
	go func() {
		byDelivery := map[int][]ack{}
		for a := range acks {
			byDelivery[a.N] = append(byDelivery[a.N], a)
		}
		collected <- byDelivery
	}()
	var running []*child
	random := rand.New(rand.NewPCG(1, 2))
	for round := range rounds {
		for len(running) < processes {
			c := spawn(t, "history", dir, round*processes+len(running))
			c.start()
			running = append(running, c)
		}
		// Until the victim has got somewhere.
		victim := random.IntN(len(running))
		for range 5 + random.IntN(60) {
			listen(t, running[victim], acks)
		}
		kill(t, running[victim], acks)
		running = append(running[:victim], running[victim+1:]...)
	}
	for _, c := range running {
		kill(t, c, acks)
	}
	close(acks)
	checkKilled(t, dir, <-collected)
}

// listen takes one line of a child's.
func listen(t *testing.T, c *child, acks chan<- ack) {
	t.Helper()
	line, err := c.out.ReadString('\n')
	if err != nil {
		t.Fatalf("child ended by itself: %v: %s", err, c.err.String())
	}
	sendAck(t, line, acks)
}

func sendAck(t *testing.T, line string, acks chan<- ack) {
	t.Helper()
	var a ack
	if err := json.Unmarshal([]byte(line), &a); err != nil {
		t.Fatalf("child says %q: %v", line, err)
	}
	acks <- a
}

// kill kills a child as kill -9 does and takes what it has still said.
func kill(t *testing.T, c *child, acks chan<- ack) {
	t.Helper()
	if err := c.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(c.out)
	for lines.Scan() {
		if strings.HasSuffix(lines.Text(), "}") { // the last line may be cut
			sendAck(t, lines.Text(), acks)
		}
	}
	if err := c.cmd.Wait(); err == nil {
		t.Fatal("a killed child ended well")
	}
}

// checkKilled holds all answers against each other and the ledger.
func checkKilled(t *testing.T, dir string, acks map[int][]ack) {
	t.Helper()
	report, err := Verify(t.Context(), Config{Dir: dir})
	if err != nil || report.Err() != nil {
		t.Fatalf("verify: %v, %v", err, report.Err())
	}
	l, err := Open(t.Context(), killConfig(dir))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	total := 0
	for n, all := range acks {
		total += len(all)
		d := ledgertest.Deliver(t, ledgertest.Spec{ID: fmt.Sprint("k", n)})
		row, ok, err := l.Lookup(t.Context(), d.Key())
		if err != nil || !ok {
			t.Fatalf("delivery %d was answered and is gone: %v", n, err)
		}
		evaluation, staged := row.Evaluation.String(), ""
		fences := map[uint64]string{}
		for _, a := range all {
			if a.Evaluation != evaluation {
				t.Errorf("delivery %d: evaluations %s and %s", n, a.Evaluation, evaluation)
			}
			if a.Value != "" && staged != "" && a.Value != staged {
				t.Errorf("delivery %d: published %s and %s", n, a.Value, staged)
			}
			staged = max(staged, a.Value)
			if a.Fence > row.Fence.Uint64() {
				t.Errorf("delivery %d: fence %d was answered, the row has %v", n, a.Fence, row.Fence)
			}
			if a.Op == "acquired" || a.Op == "publish" {
				if other := fences[a.Fence]; other != "" {
					t.Errorf("delivery %d: fence %d was given twice: %s, %s", n, a.Fence, other, a.Op)
				}
				fences[a.Fence] = a.Op
			}
			if a.Op == "completed" && row.State.String() != "done" {
				t.Errorf("delivery %d was completed and is %v", n, row.State)
			}
		}
	}
	if total < 100 {
		t.Errorf("%d answers: too few to say anything", total)
	}
	t.Logf("%d answers about %d deliveries agree", total, len(acks))
}

// TestProcessesShareOneLedger: several live processes, one history.
func TestProcessesShareOneLedger(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "ledger")
	var children []*child
	for i := range 3 {
		children = append(children, spawn(t, "cycles", dir, 2, fmt.Sprint("p", i, "-"), 60, 8))
	}
	for _, c := range children {
		c.start()
	}
	for _, c := range children {
		c.wait()
	}
	l, err := Open(t.Context(), Config{Dir: dir, Shards: 2, Volatile: true, Maintain: -1})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if st, err := l.Stat(t.Context()); err != nil || st.Done != 180 || st.Rows() != 180 {
		t.Errorf("stat = %v, %v; want 180 done", st, err)
	}
}

// TestCloseAnswersWhoWaits: nobody waits for a ledger that is closed.
func TestCloseAnswersWhoWaits(t *testing.T) {
	t.Parallel()
	f := onDisk(t)
	p := &play{tb: t, cfg: f.cfg, clock: f.clock}
	l, err := openIn(t.Context(), f.cfg, f.process(), testName)
	if err != nil {
		t.Fatal(err)
	}
	errs := make(chan error)
	for n := range 50 {
		go func() {
			_, err := l.Claim(context.WithoutCancel(t.Context()), p.permanent(n))
			errs <- err
		}()
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	for range 50 {
		if err := <-errs; err != nil && !errors.Is(err, ErrClosed) && !errors.Is(err, context.Canceled) {
			t.Errorf("a claim at the close: %v, want ErrClosed", err)
		}
	}
	if _, err := l.Claim(t.Context(), p.permanent(0)); !errors.Is(err, ErrClosed) {
		t.Errorf("a claim after the close: %v, want ErrClosed", err)
	}
	if err := l.Close(); !errors.Is(err, ErrClosed) {
		t.Errorf("a second close: %v, want ErrClosed", err)
	}
}
