package crashfs

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// A Check is a life of the machine: it recovers what is on d, holds that
// against what it knows of earlier lives, and works on. The machine may crash
// at any call, or a process may be killed; then is the check of what is left,
// which knows also what was answered in this life. It is called several times
// for one crash, with other disks, so a check keeps what it learns to the
// check that it returns. err says what was found wrong; ErrCrashed and
// ErrKilled are nothing wrong where there was a crash.
type Check func(d *Disk) (then Check, err error)

// An Explorer crashes the machine at every call that changes anything, in
// every way to forget that it is given, and does the same to the recovery.
// It is not safe for concurrent use.
type Explorer struct {
	// Faults are tried at a call, one at a time: each has Crash or Kill.
	Faults func(Call) []Fault
	// Policies are the ways to forget that are tried at the crash number
	// level, counted from 1, of a row of crashes, where so many changes are
	// not synced; state counts what was tried before. Two that forget the
	// same are tried once.
	Policies func(level, unsynced, state int) []Policy
	// Depth is how many crashes there are one after another at most.
	Depth int
	// Deeper says whether the life after crash number state of that level,
	// counted from 1, is crashed itself. Nil means always.
	Deeper func(level, state int) bool
	// Enough, if set, ends the exploration early when it says so.
	Enough func() bool

	// States counts, for each level from 1 on, the crashes whose leftovers
	// were checked.
	States []int
}

// Total is the number of crashes whose leftovers were checked.
func (e *Explorer) Total() int {
	n := 0
	for _, s := range e.States {
		n += s
	}
	return n
}

// A step is one crash on the way to a finding.
type step struct {
	call   Call
	fault  Fault
	policy int
}

// String is for people.
func (s step) String() string {
	what, when := "crash", s.fault.Crash
	if s.fault.Kill != 0 {
		what, when = "kill", s.fault.Kill
	}
	if s.fault.Err != nil {
		what = fmt.Sprintf("%v, then %s", s.fault.Err, what)
	}
	at := fmt.Sprintf("%s %s", s.call.Op, s.call.Name)
	if s.call.Op == OpWrite {
		at += fmt.Sprintf(" of %d bytes at %d", s.call.Len, s.call.Off)
	}
	moment := [...]string{Before: "before", Inside: fmt.Sprintf("after %d bytes of", s.fault.Keep), After: "after"}[when]
	return fmt.Sprintf("%s %s call %d, %s, policy %d", what, moment, s.call.N, at, s.policy)
}

// A Finding is a check that failed, and the crashes that led to it.
type Finding struct {
	Crashes []string
	Err     error
}

// Error tells the crashes, one a line, and what was found.
func (f *Finding) Error() string {
	if len(f.Crashes) == 0 {
		return fmt.Sprintf("without a crash: %v", f.Err)
	}
	return strings.Join(f.Crashes, "\nthen ") + "\nfinds: " + f.Err.Error()
}

// Unwrap returns what was found.
func (f *Finding) Unwrap() error { return f.Err }

// Explore runs first on copies of d. Its error is a [Finding].
func (e *Explorer) Explore(d *Disk, first Check) error {
	e.States = make([]int, e.Depth)
	return e.explore(d, first, nil)
}

// explore runs a life once whole, and then with every crash in it.
func (e *Explorer) explore(d *Disk, check Check, path []step) error {
	found := func(path []step, err error) error {
		f := &Finding{Err: err}
		for _, s := range path {
			f.Crashes = append(f.Crashes, s.String())
		}
		return f
	}
	var calls []Call
	whole := d.Killed()
	whole.Plan(func(c Call) Fault { calls = append(calls, c); return Fault{} })
	then, err := check(whole)
	if err != nil {
		return found(path, err)
	}
	level := len(path)
	if level == e.Depth || level > 0 && e.Deeper != nil && !e.Deeper(level, e.States[level-1]) {
		return nil
	}
	for _, call := range calls {
		for _, fault := range e.Faults(call) {
			if e.Enough != nil && e.Enough() {
				return nil
			}
			at := d.Killed()
			hit := Call{}
			at.Plan(func(c Call) Fault {
				if c.N != call.N {
					return Fault{}
				}
				hit = c
				return fault
			})
			then, err := check(at)
			if hit.N == 0 {
				// The order of calls of several goroutines was another one,
				// and this life ended first.
				if err != nil {
					return found(path, err)
				}
				continue
			}
			if err != nil && !errors.Is(err, ErrCrashed) && !errors.Is(err, ErrKilled) {
				return found(append(slices.Clone(path), step{hit, fault, 0}), err)
			}
			if err := e.left(at, then, append(slices.Clone(path), step{hit, fault, 0})); err != nil {
				return err
			}
		}
	}
	// And a crash when all is done.
	whole.Crash()
	last := Call{N: whole.Calls(), Op: "end", Name: "of the life"}
	return e.left(whole, then, append(slices.Clone(path), step{last, Fault{Crash: After}, 0}))
}

// left explores all that may be left of a disk.
func (e *Explorer) left(d *Disk, then Check, path []step) error {
	level := len(path) - 1
	if !d.Crashed() {
		e.States[level]++
		d.Plan(nil)
		return e.explore(d, then, path)
	}
	seen := map[string]bool{}
	for i, policy := range e.Policies(level+1, d.Unsynced(), e.States[level]) {
		var kept []byte
		after := d.After(func(unit, versions int) int {
			k := min(max(policy(unit, versions), 0), versions)
			kept = append(kept, byte(k))
			return k
		})
		if seen[string(kept)] {
			continue
		}
		seen[string(kept)] = true
		e.States[level]++
		path[level].policy = i
		if err := e.explore(after, then, path); err != nil {
			return err
		}
	}
	return nil
}

// EveryCrash gives each call that changes anything the faults that differ: a
// crash before it, for a write also inside of it, where keep says after how
// many bytes, and for a sync also after it, before anyone knows.
func EveryCrash(keep ...int) func(Call) []Fault {
	return func(c Call) []Fault {
		if !c.Op.Changes() {
			return nil // it leaves what the one before has left
		}
		faults := []Fault{{Crash: Before}}
		switch c.Op {
		case OpWrite:
			for _, n := range append([]int{c.Len - 1}, keep...) {
				if n > 0 && n < c.Len {
					faults = append(faults, Fault{Crash: Inside, Keep: n})
				}
			}
		case OpSync, OpSyncDir, OpSyncTree:
			faults = append(faults, Fault{Crash: After})
		}
		return faults
	}
}

// EveryKill gives each call that changes anything the deaths that differ, as
// [EveryCrash] does; a sync may also fail, and its process die before it can
// say so.
func EveryKill(failure error, keep ...int) func(Call) []Fault {
	crashes := EveryCrash(keep...)
	return func(c Call) []Fault {
		faults := crashes(c)
		for i := range faults {
			faults[i].Kill, faults[i].Crash = faults[i].Crash, 0
		}
		if c.Op == OpSync {
			faults = append(faults, Fault{Err: failure, Kill: After})
		}
		return faults
	}
}

// EveryLoss is all ways to forget that lose or keep everything, lose or keep
// one change alone, and so many at random.
func EveryLoss(unsynced, state, random int) []Policy {
	all := []Policy{LoseAll, KeepAll}
	for i := range unsynced {
		all = append(all, LoseOne(i), KeepOne(i))
	}
	for i := range random {
		all = append(all, Random(uint64(state)<<16|uint64(i)))
	}
	return all
}

// SomeLoss is two ways to forget of those of [EveryLoss], others at each
// crash.
func SomeLoss(unsynced, state int) []Policy {
	all := EveryLoss(unsynced, state, 1)
	return []Policy{all[0], all[1+state%(len(all)-1)]}
}
