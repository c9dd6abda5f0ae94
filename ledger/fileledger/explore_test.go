package fileledger

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/fencepost/fencepost/internal/durable/crashfs"
)

// A deed is one step of a workload.
type deed struct {
	name string
	do   func(*stage) error
}

// A stage is where a workload is played: two processes with the ledger open,
// each from its first deed on.
type stage struct {
	*world
	disk      *crashfs.Disk
	processes [2]*Ledger
	texts     int
}

func (s *stage) at(n int) (*Ledger, error) {
	if s.processes[n] == nil {
		l, err := openIn(s.tb.Context(), s.cfg, s.disk.Process(), testName)
		if err != nil {
			return nil, err
		}
		s.processes[n] = l
	}
	return s.processes[n], nil
}

// on makes a deed of what process p does.
func on(p int, name string, do func(s *stage, l *Ledger) error) deed {
	return deed{fmt.Sprintf("process %d: %s", p, name), func(s *stage) error {
		l, err := s.at(p)
		if err != nil {
			return err
		}
		return do(s, l)
	}}
}

func (s *stage) text(size int) string {
	s.texts++
	return filler(fmt.Sprint("text ", s.texts, " "), size)
}

// alphabet is what the systematic workloads are made of.
func alphabet() []deed {
	claim := func(p, n int) deed {
		return on(p, fmt.Sprint("claim ", n), func(s *stage, l *Ledger) error { return s.claim(l, n) })
	}
	return []deed{
		claim(0, 0), claim(1, 0), claim(0, worldBounded),
		on(0, "renew 0", func(s *stage, l *Ledger) error { return s.renew(l, 0, 0) }),
		on(0, "stage 0", func(s *stage, l *Ledger) error { return s.stage(l, 0, 0, s.text(700)) }),
		on(1, "complete 0", func(s *stage, l *Ledger) error { return s.complete(l, 0, "") }),
		on(0, "compact", func(s *stage, l *Ledger) error { return l.Compact(s.tb.Context()) }),
		on(1, "clean up", func(s *stage, l *Ledger) error {
			s.clock.move(s.cfg.Window.MaxSignedAge+s.cfg.Window.MaxQueueAge+time.Second, true)
			return s.cleanUp(l)
		}),
		{"a lease passes", func(s *stage) error { s.clock.move(s.cfg.Lease+time.Second, true); return nil }},
		on(0, "work on 5", func(s *stage, l *Ledger) error {
			return errors.Join(s.claim(l, worldBounded), s.stage(l, worldBounded, 0, s.text(6000)), s.complete(l, worldBounded, ""))
		}),
	}
}

// draw makes a workload of so many deeds at random.
func draw(r *rand.Rand, deeds int) []deed {
	var all []deed
	for range deeds {
		p, n, back := r.IntN(2), r.IntN(worldDeliveries), r.IntN(3)/2
		size := []int{1, 300, 512, 3000, 7000}[r.IntN(5)]
		switch r.IntN(16) {
		case 0, 1, 2, 3:
			all = append(all, on(p, fmt.Sprint("claim ", n), func(s *stage, l *Ledger) error { return s.claim(l, n) }))
		case 4:
			all = append(all, on(p, fmt.Sprint("renew ", n), func(s *stage, l *Ledger) error { return s.renew(l, n, back) }))
		case 5, 6, 7:
			all = append(all, on(p, fmt.Sprint("stage ", n), func(s *stage, l *Ledger) error { return s.stage(l, n, back, s.text(size)) }))
		case 8, 9:
			all = append(all, on(p, fmt.Sprint("complete ", n), func(s *stage, l *Ledger) error { return s.complete(l, n, "") }))
		case 10:
			all = append(all, on(p, "compact", func(s *stage, l *Ledger) error { return l.Compact(s.tb.Context()) }))
		case 11:
			all = append(all, on(p, "clean up", func(s *stage, l *Ledger) error { return s.cleanUp(l) }))
		case 12:
			all = append(all, deed{"a lease passes", func(s *stage) error { s.clock.move(s.cfg.Lease+time.Second, true); return nil }})
		case 13:
			jump := time.Duration(r.IntN(7)-3) * time.Hour
			all = append(all, deed{fmt.Sprint("the wall clock jumps by ", jump), func(s *stage) error { s.clock.move(jump, false); return nil }})
		case 14:
			all = append(all, deed{"a replay window passes", func(s *stage) error {
				s.clock.move(s.cfg.Window.MaxSignedAge+s.cfg.Window.MaxQueueAge+time.Second, true)
				return nil
			}})
		case 15:
			all = append(all, on(p, "closes and opens", func(s *stage, l *Ledger) error {
				s.processes[p] = nil
				if err := l.Close(); err != nil {
					return err
				}
				_, err := s.at(p)
				return err
			}))
		}
	}
	return all
}

// life is a workload as the first life of a ledger.
func life(w *world, deeds []deed) crashfs.Check {
	return func(disk *crashfs.Disk) (crashfs.Check, error) {
		s := &stage{world: w.clone(), disk: disk}
		var err error
		for _, d := range deeds {
			s.tell("%s", d.name)
			if err = d.do(s); err != nil {
				break
			}
		}
		for _, l := range s.processes {
			if l != nil {
				_ = l.Close() // a dead process closes nothing
			}
		}
		return s.recover(!disk.Crashed()), s.told(err)
	}
}

// enumerate is how many crash states the record run checks; the tests check
// some thousand.
func enumerate(tb testing.TB) (states int, record bool) {
	tb.Helper()
	text := os.Getenv("FENCEPOST_ENUMERATE")
	if text == "" {
		return 1000, false
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		tb.Fatalf("FENCEPOST_ENUMERATE: %q is no number of states", text)
	}
	return n, true
}

// almostOver says when a run is to end to tell what it saw: a little before
// the test's own end.
func almostOver(t *testing.T) func() bool {
	deadline, bounded := t.Deadline()
	return func() bool { return bounded && time.Until(deadline) < 10*time.Second }
}

// keeps are the lengths at which a write is torn.
var keeps = []int{1, 511, 512, 513, 4095, 4096}

// TestEnumeratedCrashes crashes every short workload, and random ones, at
// every call, and every so often the recovery, and its recovery, at every
// call as well; what is left is held against what was answered.
func TestEnumeratedCrashes(t *testing.T) {
	t.Parallel()
	goal, record := enumerate(t)
	over := almostOver(t)
	empty := founded(t)
	// Another run goes on with other workloads.
	from, err := strconv.Atoi(cmp.Or(os.Getenv("FENCEPOST_ENUMERATE_FROM"), "0"))
	if err != nil {
		t.Fatalf("FENCEPOST_ENUMERATE_FROM: %v", err)
	}
	failure := syscall.EIO
	workloads := map[string]struct {
		share int // of the goal, in tenths
		disk  *crashfs.Disk
		// next is workload number i; nil when there is none any more.
		next   func(i int) []deed
		faults func(crashfs.Call) []crashfs.Fault
	}{
		"founding": {1, crashfs.New(crashfs.Options{}), func(i int) []deed {
			if i != from && record {
				return nil
			}
			return alphabet()[:1]
		}, crashfs.EveryCrash(keeps...)},
		"short":  {4, empty, short, crashfs.EveryCrash(keeps...)},
		"random": {3, empty, random, crashfs.EveryCrash(keeps...)},
		"kills":  {2, empty, random, crashfs.EveryKill(failure, keeps...)},
	}
	for name, w := range workloads {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var states [3]int
			goal := goal * w.share / 10
			total := func() int { return states[0] + states[1] + states[2] }
			i := 0
			for i = from; total() < goal && !over(); i++ {
				deeds := w.next(i)
				if !record {
					deeds = w.next(i * 37 % 1110) // some of all
				}
				if deeds == nil {
					break
				}
				e := explorer(record, i, w.faults)
				before := total()
				e.Enough = func() bool { return before+e.Total() >= goal || over() || !record && e.Total() > 20 }
				if err := e.Explore(w.disk, life(newWorld(t, uint64(i)), deeds)); err != nil {
					t.Fatalf("workload %d: %v", i, err)
				}
				for level, n := range e.States {
					states[level] += n
				}
			}
			if total() < min(goal, 30) {
				t.Errorf("%d states: too few", total())
			}
			t.Logf("%s: %d workloads, %d states: %d, and in their recovery %d, and in its recovery %d",
				name, i-from, total(), states[0], states[1], states[2])
		})
	}
}

// explorer tries everything at the first crash, and at every so many of them
// also at each call of the recovery.
func explorer(record bool, workload int, faults func(crashfs.Call) []crashfs.Fault) *crashfs.Explorer {
	e := &crashfs.Explorer{Faults: faults, Depth: 3}
	every, random := 19, 0
	if record {
		every, random = 499, 8
	}
	e.Policies = func(level, unsynced, state int) []crashfs.Policy {
		if level > 1 || !record {
			return crashfs.SomeLoss(unsynced, state)
		}
		return crashfs.EveryLoss(unsynced, state, random)
	}
	e.Deeper = func(level, state int) bool { return state%(every*level*level) == 7 }
	if !record {
		// One crash in so many calls, others in each workload.
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

// short is the workload number i of those of one to three deeds.
func short(i int) []deed {
	letters := alphabet()
	for length, count := 1, len(letters); length <= 3; length, count = length+1, count*len(letters) {
		if i >= count {
			i -= count
			continue
		}
		var deeds []deed
		for range length {
			deeds = append(deeds, letters[i%len(letters)])
			i /= len(letters)
		}
		return deeds
	}
	return nil
}

// random is the workload of seed i.
func random(i int) []deed {
	r := rand.New(rand.NewPCG(uint64(i), 4))
	return draw(r, 4+r.IntN(9))
}
