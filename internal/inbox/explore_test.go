package inbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/durable/crashfs"
)

// A world is what is known outside of an inbox. It is copied before each life
// that starts from it.
type world struct {
	t testing.TB
	// sent holds the body of every request that was ever sent.
	sent map[fencepost.DeliveryKey]string
	// acked are those that were acknowledged and of which nobody said Done.
	acked map[fencepost.DeliveryKey]bool
	// next is the next new request.
	next  uint64
	story []string
}

func newWorld(t testing.TB) *world {
	return &world{t: t, sent: map[fencepost.DeliveryKey]string{}, acked: map[fencepost.DeliveryKey]bool{}}
}

func (w *world) clone() *world {
	c := *w
	c.sent, c.acked, c.story = maps.Clone(w.sent), maps.Clone(w.acked), slices.Clone(w.story)
	return &c
}

func (w *world) tell(format string, args ...any) {
	w.story = append(w.story, fmt.Sprintf(format, args...))
}

func (w *world) told(err error) error {
	if err == nil || errors.Is(err, crashfs.ErrCrashed) || errors.Is(err, crashfs.ErrKilled) {
		return err
	}
	return fmt.Errorf("%w\n\t%s", err, strings.Join(w.story, "\n\t"))
}

func (w *world) ctx() context.Context { return context.WithoutCancel(w.t.Context()) }

// record sends request id; the same id is the same request.
func (w *world) record(b *Inbox, id uint64, size int, later time.Duration) error {
	m := mail{id: id, body: fmt.Appendf(nil, "%d %0*d", id, size, id)}
	if id%4 == 3 { // has a replay end, which a repeat may move
		m.at = epoch.Add(later)
		m.signed = m.at
	}
	d := m.accepted(w.t)
	if body, sent := w.sent[d.Key()]; sent {
		m.body = []byte(body)
		d = m.accepted(w.t)
	}
	w.sent[d.Key()] = string(m.body)
	o, err := b.Record(w.ctx(), d, headers, m.body)
	w.tell("record %d of %d bytes: %v, %v", id, len(m.body), o, err)
	switch {
	case errors.Is(err, ErrFull):
		return nil
	case err != nil:
		return err
	case o == Conflict:
		return errors.New("a request conflicts with itself")
	}
	w.acked[d.Key()] = true
	return nil
}

// finish works on one item, and says Done, or puts it back.
func (w *world) finish(b *Inbox, done bool) error {
	if s := b.Stats(); s.Entries == s.Leased {
		return nil
	}
	item, err := b.Next(w.ctx())
	if err != nil {
		return err
	}
	r, err := b.Read(w.ctx(), item.ID)
	w.tell("work on %v: done %v, %v", item.Key, done, err)
	if err != nil {
		return err
	}
	if string(r.Body) != w.sent[item.Key] || r.Headers.Digest() != headers.Digest() {
		return fmt.Errorf("%v reads %.40q, was sent as %.40q", item.Key, r.Body, w.sent[item.Key])
	}
	if !done {
		return b.Release(item.ID)
	}
	delete(w.acked, item.Key) // it may come back, or not
	return b.Done(item.ID, fencepost.ReasonSuperseded)
}

// verify reads all that is there.
func (w *world) verify(b *Inbox) error {
	if err := b.Health(); err != nil {
		return fmt.Errorf("false alarm: %w", err)
	}
	held := map[fencepost.DeliveryKey]bool{}
	var items []ItemID
	for s := b.Stats(); s.Entries > s.Leased; s = b.Stats() {
		item, err := b.Next(w.ctx())
		if err != nil {
			return err
		}
		items = append(items, item.ID)
		r, err := b.Read(w.ctx(), item.ID)
		if err != nil {
			return err
		}
		if body, ok := w.sent[item.Key]; !ok || body != string(r.Body) {
			return fmt.Errorf("%v reads %.40q, was sent as %.40q", item.Key, r.Body, body)
		}
		held[item.Key] = true
	}
	for key := range w.acked {
		if !held[key] {
			return fmt.Errorf("%v was acknowledged and is lost", key)
		}
	}
	for _, id := range items {
		if err := b.Release(id); err != nil {
			return err
		}
	}
	return nil
}

// recover is the check of what is left; it goes on with a life of its own.
func (w *world) recover(disk *crashfs.Disk) (crashfs.Check, error) {
	next := w.clone()
	next.tell("a new start")
	err := next.recoverOn(disk)
	return next.recover, next.told(err)
}

func (w *world) recoverOn(disk *crashfs.Disk) error {
	b, err := Open(w.ctx(), disk.Process(), small)
	if err != nil {
		return err
	}
	w.next += 1000
	for _, step := range []func() error{
		func() error { return w.verify(b) },
		func() error { return w.record(b, w.next, 900, 0) },
		func() error { return w.finish(b, true) },
		func() error { return b.tidy(w.ctx()) },
		func() error { return w.record(b, w.next+3, 3000, 0) },
		func() error { return w.finish(b, true) },
		func() error { return b.tidy(w.ctx()) },
		func() error { return w.verify(b) },
	} {
		if err := step(); err != nil {
			_ = b.Close() // as far as it goes: it may be dead
			return err
		}
	}
	return b.Close()
}

// life is a workload of so many deeds by two processes, drawn from seed.
func (w *world) life(seed uint64) crashfs.Check {
	return func(disk *crashfs.Disk) (crashfs.Check, error) {
		next := w.clone()
		next.tell("seed %d", seed)
		err := next.act(disk, rand.New(rand.NewPCG(seed, 9)))
		return next.recover, next.told(err)
	}
}

func (w *world) act(disk *crashfs.Disk, r *rand.Rand) error {
	var open [2]*Inbox
	var processes [2]*crashfs.Process
	defer func() {
		for _, b := range open {
			if b != nil {
				_ = b.Close() // as far as it goes: it may be dead
			}
		}
	}()
	cfg := small
	cfg.MaxBytes = 10 * minSegment
	for range 6 + r.IntN(12) {
		n := r.IntN(2)
		if open[n] == nil {
			w.tell("process %d opens", n)
			processes[n] = disk.Process()
			b, err := Open(w.ctx(), processes[n], cfg)
			if err != nil {
				return err
			}
			open[n] = b
		}
		b := open[n]
		var err error
		switch deed := r.IntN(16); deed {
		default:
			w.next++
			err = w.record(b, w.next, []int{1, 300, 512, 2000, 3900, 6000}[r.IntN(6)], 0)
		case 6, 7:
			err = w.record(b, uint64(r.IntN(int(w.next)+1)), 40, time.Duration(r.IntN(100))*time.Second)
		case 8, 9, 10:
			err = w.finish(b, true)
		case 11:
			err = w.finish(b, false)
		case 12:
			w.tell("process %d tidies up", n)
			err = b.tidy(w.ctx())
		case 13:
			w.tell("process %d adopts", n)
			err = b.adopt(w.ctx())
		case 14:
			w.tell("process %d closes", n)
			open[n] = nil
			err = b.Close()
		case 15:
			w.tell("process %d is killed", n)
			processes[n].Kill()
			_ = b.Close() // a dead process closes nothing
			open[n] = nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// TestEnumeratedCrashes crashes random lives of two processes, and every so
// often the recovery and adoption that follow, and what follows that, at every
// call. FENCEPOST_ENUMERATE is how many states the record run checks.
func TestEnumeratedCrashes(t *testing.T) {
	t.Parallel()
	goal, record := 600, false
	if text := os.Getenv("FENCEPOST_ENUMERATE"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 {
			t.Fatalf("FENCEPOST_ENUMERATE: %q is no number of states", text)
		}
		goal, record = n, true
	}
	from, err := strconv.ParseUint(cmp.Or(os.Getenv("FENCEPOST_ENUMERATE_FROM"), "0"), 10, 64)
	if err != nil {
		t.Fatalf("FENCEPOST_ENUMERATE_FROM: %v", err)
	}
	deadline, bounded := t.Deadline()
	over := func() bool { return bounded && time.Until(deadline) < 10*time.Second }
	keeps := []int{1, 511, 512, 513, 4095, 4096}
	for name, faults := range map[string]func(crashfs.Call) []crashfs.Fault{
		"crashes": crashfs.EveryCrash(keeps...), "kills": crashfs.EveryKill(syscall.EIO, keeps...),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var states [3]int
			total := func() int { return states[0] + states[1] + states[2] }
			seed := from
			for ; total() < goal/2 && !over(); seed++ {
				e := explorer(record, int(seed), faults)
				before := total()
				e.Enough = func() bool { return before+e.Total() >= goal/2 || over() || !record && e.Total() > 20 }
				if err := e.Explore(crashfs.New(crashfs.Options{}), newWorld(t).life(seed)); err != nil {
					t.Fatalf("seed %d: %v", seed, err)
				}
				for level, n := range e.States {
					states[level] += n
				}
			}
			t.Logf("%s: %d workloads, %d states: %d, and in their recovery %d, and in its recovery %d",
				name, seed-from, total(), states[0], states[1], states[2])
		})
	}
}

// explorer tries everything at the first crash, and at every so many of them
// also at each call of the recovery; of that, in the short run, some.
func explorer(record bool, workload int, faults func(crashfs.Call) []crashfs.Fault) *crashfs.Explorer {
	e := &crashfs.Explorer{Faults: faults, Depth: 3}
	every := 19
	if record {
		every = 499
	}
	e.Policies = func(level, unsynced, state int) []crashfs.Policy {
		if level > 1 || !record {
			return crashfs.SomeLoss(unsynced, state)
		}
		return crashfs.EveryLoss(unsynced, state, 8)
	}
	e.Deeper = func(level, state int) bool { return state%(every*level*level) == 7 }
	if !record {
		n := workload
		e.Faults = func(c crashfs.Call) []crashfs.Fault {
			var some []crashfs.Fault
			for _, f := range faults(c) {
				if n++; n%11 == 3 {
					some = append(some, f)
				}
			}
			return some
		}
	}
	return e
}
