package fileledger

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/durable"
	"github.com/fencepost/fencepost/internal/durable/crashfs"
	"github.com/fencepost/fencepost/ledger"
	"github.com/fencepost/fencepost/ledger/ledgertest"
)

// A world is what is known outside of a ledger: what was asked of it, and
// what it answered. A crash can't change that; so it is what recovery is held
// against. A world is copied before each life that starts from it.
type world struct {
	tb       testing.TB
	clock    *settableClock
	cfg      Config
	accounts []account
	// story tells what was asked and answered, one line each.
	story []string
}

// An account is what is known of one delivery.
type account struct {
	d fencepost.AcceptedDelivery
	// leases were granted, in order.
	leases     []fencepost.Lease
	evaluation fencepost.EvaluationID
	// staged is what was answered to be staged, done that it was completed.
	staged fencepost.StagedPublication
	done   bool
	// cleaning: a clean-up was begun that may take the row.
	cleaning bool

	// What operations may have done that had no answer.
	maybeClaim, maybeDone bool
	maybeStage            []fencepost.Publication
}

// A wrong is a broken invariant (DESIGN §2).
type wrong struct {
	invariant int
	what      string
}

func (w *wrong) Error() string { return fmt.Sprintf("invariant %d: %s", w.invariant, w.what) }

// Capacity of the worlds' ledgers, and their deliveries: some more than fit.
const (
	worldRows       = 5
	worldDeliveries = 7
	worldBounded    = 5 // from this delivery on they have a replay end
)

func newWorld(tb testing.TB, seed uint64) *world {
	w := &world{tb: tb, clock: &settableClock{at: moments{wall: time.Date(2026, 10, 1, 12, 0, 0, 0, time.UTC), since: time.Hour, boot: 1}}}
	cfg, err := Config{
		Shards: 1, Capacity: worldRows, SegmentBytes: MinSegment, MaxBytes: 64 << 20, Maintain: -1, Volatile: true,
		Now: w.clock.now, Instant: w.clock.instant,
	}.withDefaults()
	if err != nil {
		tb.Fatal(err)
	}
	// Small segments bring rotation.
	cfg.SegmentBytes = 16 << 10
	var key [32]byte
	binary.LittleEndian.PutUint64(key[:], seed)
	cfg.Random = rand.NewChaCha8(key)
	w.cfg = cfg
	for n := range worldDeliveries {
		spec := ledgertest.Spec{ID: fmt.Sprint("d", n)}
		if n >= worldBounded {
			spec.Signed = w.clock.now()
		}
		w.accounts = append(w.accounts, account{d: ledgertest.Deliver(tb, spec)})
	}
	return w
}

func (w *world) clone() *world {
	c := *w
	c.clock = &settableClock{at: w.clock.read()}
	c.cfg.Now, c.cfg.Instant = c.clock.now, c.clock.instant
	c.accounts = slices.Clone(w.accounts)
	for i := range c.accounts {
		a := &c.accounts[i]
		a.leases, a.maybeStage = slices.Clone(a.leases), slices.Clone(a.maybeStage)
	}
	c.story = slices.Clone(w.story)
	return &c
}

// moments are the readings of a settableClock.
type moments struct {
	wall  time.Time
	since time.Duration
	boot  uint64
}

// A settableClock stands still unless it is moved; it can be copied, which
// that of ledgertest can't.
type settableClock struct {
	mu sync.Mutex
	at moments // guarded by mu
}

func (c *settableClock) read() moments {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at
}

func (c *settableClock) now() time.Time { return c.read().wall }

func (c *settableClock) instant() ledger.Instant {
	at := c.read()
	i := ledger.Instant{At: at.since}
	binary.LittleEndian.PutUint64(i.Boot[:], at.boot)
	return i
}

// move moves the wall clock, and if both is set also the clock since boot.
func (c *settableClock) move(d time.Duration, both bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at.wall = c.at.wall.Add(d)
	if both {
		c.at.since += d
	}
}

func (c *settableClock) restart() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at.boot++
	c.at.since = time.Minute
	c.at.wall = c.at.wall.Add(time.Minute)
}

func (w *world) tell(format string, args ...any) {
	w.story = append(w.story, fmt.Sprintf(format, args...))
}

// told wraps what is wrong into the whole story.
func (w *world) told(err error) error {
	if err == nil || died(err) {
		return err
	}
	return fmt.Errorf("%w\n\t%s", err, strings.Join(w.story, "\n\t"))
}

// died reports whether err is the end of the machine or of the process.
func died(err error) bool {
	return errors.Is(err, crashfs.ErrCrashed) || errors.Is(err, crashfs.ErrKilled)
}

func (a *account) latest() fencepost.Lease {
	if len(a.leases) == 0 {
		return fencepost.Lease{}
	}
	return a.leases[len(a.leases)-1]
}

func (a *account) known() bool { return !a.evaluation.IsZero() }

// mayBeStaged reports whether p is what was staged, or may have been.
func (a *account) mayBeStaged(p fencepost.Publication) bool {
	if a.staged.Valid() {
		return a.staged.Publication().Equal(p)
	}
	return slices.ContainsFunc(a.maybeStage, p.Equal)
}

// granted holds a lease against those before, and takes note of it.
func (a *account) granted(l fencepost.Lease) error {
	if a.known() && l.Evaluation() != a.evaluation {
		return &wrong{4, fmt.Sprintf("evaluations %v and %v of one delivery", a.evaluation, l.Evaluation())}
	}
	if last := a.latest(); last.Valid() && !last.Fence().Before(l.Fence()) {
		return &wrong{5, fmt.Sprintf("fence %v after %v", l.Fence(), last.Fence())}
	}
	a.leases, a.evaluation, a.maybeClaim = append(a.leases, l), l.Evaluation(), false
	return nil
}

// settle takes note that p is what is staged.
func (a *account) settle(s fencepost.StagedPublication) error {
	switch {
	case a.known() && s.Evaluation() != a.evaluation:
		return &wrong{4, "staged under another evaluation"}
	case a.staged.Valid() && !a.staged.Publication().Equal(s.Publication()):
		return &wrong{7, "another publication than was staged"}
	}
	a.staged, a.maybeStage = s, nil
	return nil
}

// claim claims delivery n and judges the answer.
func (w *world) claim(l fencepost.Ledger, n int) error {
	a := &w.accounts[n]
	c, err := l.Claim(w.tb.Context(), a.d)
	w.tell("claim %d: %T %v", n, c, err)
	if err != nil {
		a.maybeClaim = true
		return err
	}
	switch c := c.(type) {
	case fencepost.Acquired:
		switch {
		case a.staged.Valid(), a.done:
			return &wrong{6, "an execution lease after staging"}
		case a.cleaning:
			return &wrong{4, "a delivery is new again after a clean-up"}
		}
		a.maybeStage, a.maybeDone = nil, false
		return a.granted(c.Lease)
	case fencepost.Publish:
		if a.done {
			return &wrong{6, "to be published after it was done"}
		}
		if !a.mayBeStaged(c.Staged.Publication()) {
			return &wrong{7, fmt.Sprintf("to be published is %.20q, which nobody staged", c.Staged.Publication().Bytes())}
		}
		a.maybeDone = false
		return errors.Join(a.granted(c.Lease), a.settle(c.Staged))
	case fencepost.Busy:
		if a.done || !a.known() && !a.maybeClaim {
			return &wrong{8, "busy with what nobody claimed, or is done"}
		}
	case fencepost.Completed:
		if !a.done && !a.maybeDone {
			return &wrong{8, "done, and nobody completed it"}
		}
		a.done = true
	case fencepost.Full:
		if a.known() && !a.cleaning {
			return &wrong{10, "a row was forgotten, and there is no room for it"}
		}
	case fencepost.Expired:
		if _, bounded := a.d.Lifetime().End(); !bounded || a.known() && !a.cleaning {
			return &wrong{10, "a row was forgotten, and is expired"}
		}
	case fencepost.BindingConflict:
		return &wrong{4, "another body under the same key"}
	}
	return nil
}

// renew renews under the lease so many before the latest.
func (w *world) renew(l fencepost.Ledger, n, back int) error {
	a := &w.accounts[n]
	if back >= len(a.leases) {
		return nil
	}
	lease := a.leases[len(a.leases)-1-back]
	r, err := l.Renew(w.tb.Context(), a.d, lease)
	w.tell("renew %d under %v: %T %v", n, lease.Fence(), r, err)
	if err != nil {
		return err
	}
	if _, ok := r.(fencepost.Renewed); ok && (back > 0 || a.staged.Valid() || a.done) {
		return &wrong{5, "a holder of an older fence renewed"}
	}
	return nil
}

// stage stages text under the lease so many before the latest.
func (w *world) stage(l fencepost.Ledger, n, back int, text string) error {
	a := &w.accounts[n]
	if back >= len(a.leases) {
		return nil
	}
	lease := a.leases[len(a.leases)-1-back]
	p, err := fencepost.NewPublication([]byte(text))
	if err != nil {
		return err
	}
	o, err := l.Stage(w.tb.Context(), a.d, lease, p)
	w.tell("stage %d under %v, %d bytes %.12q: %T %v", n, lease.Fence(), len(text), text, o, err)
	if err != nil {
		if back == 0 && !a.maybeClaim && !a.staged.Valid() && !a.done {
			a.maybeStage = append(a.maybeStage, p)
		}
		return err
	}
	s, ok := o.(fencepost.Staged)
	if !ok {
		if back == 0 && !a.maybeClaim && len(a.maybeStage) == 0 && !a.staged.Valid() && !a.done && !a.cleaning {
			return &wrong{8, "the holder is answered Lost"}
		}
		return nil
	}
	switch {
	case a.done && !a.staged.Valid():
		return &wrong{6, "staged after it was done"}
	case !a.mayBeStaged(p) && (back > 0 || a.staged.Valid()):
		return &wrong{5, "a holder of an older fence staged"}
	case !s.Staged.Publication().Equal(p):
		return &wrong{7, "staged other bytes"}
	}
	return a.settle(s.Staged)
}

// complete completes delivery n with what is staged, or with text if it is
// not empty.
func (w *world) complete(l fencepost.Ledger, n int, text string) error {
	a := &w.accounts[n]
	s := a.staged
	if text != "" && a.known() {
		p, err := fencepost.NewPublication([]byte(text))
		if err != nil {
			return err
		}
		if s, err = fencepost.RestoreStaged(a.d.Key(), a.evaluation, p); err != nil {
			return err
		}
	}
	if !s.Valid() {
		return nil
	}
	c, err := l.Complete(w.tb.Context(), a.d, s)
	w.tell("complete %d %.12q: %T %v", n, s.Publication().Bytes(), c, err)
	right := a.mayBeStaged(s.Publication())
	if err != nil {
		a.maybeDone = a.maybeDone || right
		return err
	}
	if _, ok := c.(fencepost.Completed); ok {
		if !right {
			return &wrong{7, "completed with another publication than was staged"}
		}
		a.done = true
		return a.settle(s)
	}
	if right && a.staged.Valid() && !a.cleaning {
		return &wrong{8, "what is staged is answered Lost"}
	}
	return nil
}

// cleanUp removes what may be removed.
func (w *world) cleanUp(l *Ledger) error {
	w.tell("clean up")
	for i := range w.accounts {
		a := &w.accounts[i]
		end, bounded := a.d.Lifetime().End()
		if bounded && (a.done || a.maybeDone) && w.clock.now().After(end) {
			a.cleaning = true
		}
	}
	return l.CleanUp(w.tb.Context())
}

// verify holds every row against what is known of it.
func (w *world) verify(l *Ledger) error {
	for n := range w.accounts {
		a := &w.accounts[n]
		row, known, err := l.Lookup(w.tb.Context(), a.d.Key())
		if err != nil {
			return err
		}
		if err := a.verify(row, known); err != nil {
			w.tell("row of %d: %v, fence %v, known %v", n, row.State, row.Fence, known)
			return fmt.Errorf("delivery %d: %w", n, err)
		}
	}
	return nil
}

func (a *account) verify(row ledger.Row, known bool) error {
	switch {
	case !known && a.known() && !a.cleaning:
		return &wrong{3, "it was answered, and is gone"}
	case !known:
		return nil
	case !a.known() && !a.maybeClaim:
		return &wrong{8, "nobody claimed it, and there is a row"}
	case a.known() && row.Evaluation != a.evaluation:
		return &wrong{4, "its row has another evaluation"}
	}
	switch last := a.latest().Fence(); {
	case row.Fence.Before(last):
		return &wrong{5, fmt.Sprintf("fence %v of its row, %v was answered", row.Fence, last)}
	case last.Before(row.Fence) && !a.maybeClaim:
		return &wrong{5, fmt.Sprintf("fence %v of its row, nobody claimed after %v", row.Fence, last)}
	}
	switch row.State {
	case ledger.Leased:
		if a.staged.Valid() || a.done {
			return &wrong{6, "it was staged, and is leased"}
		}
	case ledger.Staged:
		if a.done {
			return &wrong{6, "it was done, and is staged"}
		}
		if !a.mayBeStaged(row.Publication) {
			return &wrong{7, fmt.Sprintf("its row holds %.20q, which nobody staged", row.Publication.Bytes())}
		}
	case ledger.Done:
		if !a.done && !a.maybeDone {
			return &wrong{8, "nobody completed it, and it is done"}
		}
		same := func(p fencepost.Publication) bool { return p.Digest() == row.Published }
		if a.staged.Valid() && !same(a.staged.Publication()) || !a.staged.Valid() && !slices.ContainsFunc(a.maybeStage, same) {
			return &wrong{7, "done with another publication than was staged"}
		}
	case ledger.Unclaimed:
		return &wrong{8, "an unclaimed row"}
	}
	return nil
}

// finish takes everything to its end, with attempts by every holder of old.
func (w *world) finish(l *Ledger) error {
	w.clock.move(w.cfg.Lease+time.Second, true)
	for n := range w.accounts {
		a := &w.accounts[n]
		if !a.known() && !a.maybeClaim && n > 1 {
			continue // enough life to show that it goes on
		}
		steps := []func() error{
			func() error { return w.claim(l, n) },
			func() error { return w.renew(l, n, 1) },
			func() error { return w.stage(l, n, 1, "late") },
			func() error { return w.complete(l, n, "forged") },
			func() error { return w.stage(l, n, 0, "recovered") },
			func() error { return w.complete(l, n, "") },
			func() error { return w.claim(l, n) },
		}
		for _, step := range steps {
			if err := step(); err != nil {
				return fmt.Errorf("delivery %d: %w", n, err)
			}
		}
		if a.known() && !a.done {
			return fmt.Errorf("delivery %d does not reach its end", n)
		}
	}
	return nil
}

// recover is the check of what a crash or kill has left; killed says that the
// machine went on.
func (w *world) recover(killed bool) crashfs.Check {
	return func(disk *crashfs.Disk) (crashfs.Check, error) {
		next := w.clone()
		if !killed {
			next.clock.restart()
		}
		err := next.recoverOn(disk)
		return next.recover(!disk.Crashed()), next.told(err)
	}
}

func (w *world) recoverOn(disk *crashfs.Disk) error {
	w.tell("a new start")
	p := disk.Process()
	// Nothing is changed by looking, and nothing is called damage that is
	// none.
	if _, err := p.Stat(testName); err == nil {
		report, err := verifyIn(w.tb.Context(), durable.Sub(p, testName))
		if err == nil {
			err = report.Err()
		}
		if err != nil {
			return fmt.Errorf("verify: %w", err)
		}
	}
	l, err := openIn(w.tb.Context(), w.cfg, p, testName)
	if err != nil {
		return err
	}
	defer func() { _ = l.Close() }() // where the machine has crashed it can't
	for _, step := range []func() error{
		func() error { return w.verify(l) },
		func() error { return w.finish(l) },
		func() error { return w.verify(l) },
		func() error { return l.Compact(w.tb.Context()) },
		func() error { return w.verify(l) },
	} {
		if err := step(); err != nil {
			return err
		}
	}
	return l.Health().Err()
}

// founded is a disk with an empty ledger on it.
func founded(tb testing.TB) *crashfs.Disk {
	tb.Helper()
	w, disk := newWorld(tb, 0), crashfs.New(crashfs.Options{})
	l, err := openIn(tb.Context(), w.cfg, disk.Process(), testName)
	if err == nil {
		err = l.Close()
	}
	if err != nil {
		tb.Fatal(err)
	}
	return disk.After(crashfs.KeepAll)
}

// filler is as long as a publication is to be.
func filler(text string, n int) string {
	return text + string(bytes.Repeat([]byte("."), max(0, n-len(text))))
}
