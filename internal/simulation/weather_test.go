package simulation

import (
	"context"
	"fmt"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/durable/crashfs"
	"github.com/fencepost/fencepost/internal/gate"
	"github.com/fencepost/fencepost/ledger"
	"github.com/fencepost/fencepost/ledger/fileledger"
)

func (s *Sim) phase(slot, delivery int) Phase {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.phases[[2]int{slot, delivery}]
}

// setPhase lets an evaluation be in a phase, which begins what is planned for
// it.
func (s *Sim) setPhase(slot, delivery int, p Phase) {
	s.mu.Lock()
	s.phases[[2]int{slot, delivery}] = p
	s.mu.Unlock()
	for i := range s.plan {
		if f := &s.plan[i]; !f.begun && f.phase == p {
			f.begun, f.slot, f.delivery = true, slot, delivery
		}
	}
}

// enter follows an evaluation into the phase of its next call.
func (s *Sim) enter(a *actor) {
	was := s.phase(a.slot, a.delivery)
	if is := was.after(a.op); is != was {
		s.setPhase(a.slot, a.delivery, is)
	}
}

// faultNow lets the faults come whose time it is; those at calls become due.
// It reports whether anything has changed.
func (s *Sim) faultNow() bool {
	for i := range s.plan {
		f := &s.plan[i]
		if !f.begun {
			continue
		}
		if f.skip > 0 {
			f.skip--
			continue
		}
		now := *f
		s.plan = append(s.plan[:i], s.plan[i+1:]...)
		if now.kind.onDisk() || now.kind.ofProvider() {
			s.due = append(s.due, now)
			return false
		}
		s.happen(now)
		return true
	}
	return false
}

// faultAt is the fault that is due at a call.
func (s *Sim) faultAt(a *actor) Kind {
	// A fault at the provider's call comes with the very call that began its
	// phase.
	for i := range s.plan {
		f := &s.plan[i]
		if f.begun && f.kind.ofProvider() && atProvider(a.op) && f.slot == a.slot && f.delivery == a.delivery {
			now := *f
			s.plan = append(s.plan[:i], s.plan[i+1:]...)
			return s.meets(now)
		}
	}
	for i, f := range s.due {
		fits := f.slot == a.slot
		switch {
		case f.kind.ofProvider():
			fits = fits && atProvider(a.op) && f.delivery == a.delivery && (Possible(f.kind, s.phase(a.slot, a.delivery)))
		case f.kind == SyncError:
			fits = fits && (a.op == string(crashfs.OpSync) || a.op == string(crashfs.OpSyncDir))
		default:
			fits = fits && a.disk && a.op != string(crashfs.OpLock)
		}
		if fits {
			s.due = append(s.due[:i], s.due[i+1:]...)
			return s.meets(f)
		}
	}
	return 0
}

func atProvider(op string) bool { return op == "refresh" || op == "find" || op == "create" }

// meets counts a fault that comes at a call.
func (s *Sim) meets(f planned) Kind {
	p := s.phase(f.slot, f.delivery)
	if f.kind.ofProvider() && !Possible(f.kind, p) {
		return 0
	}
	s.faults[f.kind][p]++
	return f.kind
}

// happen lets a fault come between two calls.
func (s *Sim) happen(f planned) {
	p := s.slots[f.slot]
	if p == nil && f.kind != Repeat && f.kind != GateMoved {
		return
	}
	s.faults[f.kind][s.phase(f.slot, f.delivery)]++
	s.digest(uint64(f.kind))
	if s.record {
		s.note(event{kind: evFault, slot: f.slot, delivery: f.delivery, text: f.kind.String()})
	}
	sign := time.Duration(1 - 2*int(f.draw%2))
	if f.kind == WallHour || f.kind == WallDay || f.kind == Suspend || f.kind == BootPause {
		s.clocks.Lock()
		defer s.clocks.Unlock()
	}
	switch f.kind {
	case Kill:
		p.kill()
	case CrashLost, CrashKept, CrashTorn:
		s.reboot(f.kind)
	case DiskFull:
		s.disk.SetCapacity(s.disk.Used() + int64(f.draw%4096))
		s.at(s.now()+time.Duration(f.draw%20_000)*time.Millisecond, func() { s.disk.SetCapacity(0) })
	case Stop:
		p.stoppedUntil = s.now() + time.Duration(f.draw%3)*lease/2 + lease/3
		s.at(p.stoppedUntil, func() {})
	case Restart:
		p.stop()
	case WallHour:
		s.wallStep += sign * time.Hour
		s.wallMoved = true
	case WallDay:
		s.wallStep += sign * 24 * time.Hour
		s.wallMoved = true
	case Suspend:
		slept := lease/2 + time.Duration(f.draw%15_000)*time.Millisecond
		s.slept += slept
		s.wallStep += slept
	case BootPause:
		if s.pauseUntil < s.now() {
			s.paused += s.pauseUntil - s.pauseFrom
			s.pauseFrom = s.now()
			s.pauseUntil = s.now() + time.Duration(f.draw%20_000)*time.Millisecond
		}
	case Repeat:
		s.send(f.delivery, time.Duration(f.draw%3000)*time.Millisecond+time.Duration(s.steps), int(f.draw>>32%8))
	case GateMoved:
		s.move(f.draw, f.delivery)
	}
}

// move changes the gate: a push to the delivery's request, which is delivered
// itself, another base, or another rule.
func (s *Sim) move(draw uint64, delivery int) {
	switch draw % 3 {
	case 0:
		number := s.deliveries[delivery].subject.Number
		s.provider.requests[number-1].head++
		if n := s.newDelivery(number); n >= 0 {
			s.send(n, time.Duration(draw>>8%1500)*time.Millisecond+time.Duration(s.steps), int(draw>>32%8))
		}
	case 1:
		s.provider.base++
	default:
		s.provider.rule++
	}
}

// bootTime is the clock of the machine's start: its sleep counts, its pauses
// do not.
func (s *Sim) bootTime() time.Duration {
	running := s.now() - s.paused
	if s.pauseUntil > 0 {
		running -= max(0, min(s.now(), s.pauseUntil)-s.pauseFrom)
	}
	return running + s.slept
}

// wall is the wall clock as the system has it.
func (s *Sim) wall() time.Time {
	s.clocks.Lock()
	defer s.clocks.Unlock()
	return time.Now().Round(0).Add(s.wallStep)
}

// candidates are the test merges that there may be.
func (s *Sim) candidates() []checkout {
	var all []checkout
	for base := range s.provider.base + 1 {
		b := commitOf('b', 0, base)
		for i, r := range s.provider.requests {
			for head := range r.head + 1 {
				h := commitOf('h', i+1, head)
				all = append(all, checkout{candidate(h, b), []fencepost.CommitID{b.ID, h.ID}})
			}
		}
	}
	return all
}

// fetchedFor is the delivery for which a process fetches a commit, as far as
// that is known.
func (s *Sim) fetchedFor(p *process, c fencepost.CommitID) int {
	for i, r := range s.provider.requests {
		for base := range s.provider.base + 1 {
			for head := range r.head + 1 {
				h := commitOf('h', i+1, head)
				if candidate(h, commitOf('b', 0, base)).ID == c {
					return s.workingOn(p, gate.Subject{Number: int64(i + 1)})
				}
			}
		}
	}
	return -1
}

// Root makes the empty data directory that all runs start from.
func Root(ctx context.Context) (*crashfs.Disk, error) {
	disk := crashfs.New(crashfs.Options{})
	p := disk.Process()
	for _, dir := range []string{inboxDir, "notebook", "artifacts"} {
		if err := p.Mkdir(dir, 0o700); err != nil {
			return nil, err
		}
	}
	now := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)
	cfg := ledgerConfig()
	cfg.Now = func() time.Time { return now }
	cfg.Instant = func() ledger.Instant { return ledger.Instant{Boot: ledger.BootID{0xff}} }
	if err := makeParts(ctx, p, cfg, cfg.Now); err != nil {
		return nil, fmt.Errorf("make root: %w", err)
	}
	p.Kill()
	return disk.After(crashfs.KeepAll), nil
}

// audit loses power once more, and reads what is left.
func (s *Sim) audit() {
	disk := s.disk
	if !disk.Crashed() {
		disk.Crash()
	}
	disk = disk.After(crashfs.LoseAll)
	p := disk.Process()
	defer p.Kill()
	cfg := ledgerConfig()
	cfg.Now, cfg.Instant, cfg.Random = s.wall, s.instant, &randomness{seed: s.seed}
	l, err := fileledger.OpenOn(context.Background(), p, cfg)
	if err != nil {
		s.broken("3", "the ledger after the last crash: %v", err)
		return
	}
	for i, o := range s.oracles {
		row, ok, err := l.Lookup(context.Background(), s.deliveries[i].key)
		switch {
		case err != nil:
			s.broken("3", "d%d: look up: %v", i, err)
		case o.completedAt != 0 && (!ok || row.State != ledger.Done):
			s.broken("3", "d%d is completed, and its row %v is not", i, row.State)
		case o.completedAt != 0 && row.Evaluation != o.eval:
			s.broken("4", "d%d: row of %s, was %s", i, row.Evaluation, o.eval)
		}
	}
	if err := l.Close(); err != nil {
		s.broken("harness", "close: %v", err)
	}
}
