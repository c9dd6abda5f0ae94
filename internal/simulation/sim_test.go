package simulation

import (
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"testing/synctest"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/durable"
	"github.com/fencepost/fencepost/internal/durable/crashfs"
	"github.com/fencepost/fencepost/internal/gate"
)

const (
	// Patience is how long after the last fault every delivery may take to
	// reach its end.
	Patience = 30 * time.Minute
	// chaos is how long faults may come at all.
	chaos = 4 * time.Minute
	// maxSteps bounds a run that goes in circles.
	maxSteps = 200_000
)

// A Result is what a run came to.
type Result struct {
	Seed uint64
	// Hash is the digest of the whole trace.
	Hash uint64
	// Steps is how often the token was given, Took the simulated time.
	Steps int
	Took  time.Duration
	// Faults counts the faults that came, by kind and phase.
	Faults [lastKind + 1][lastPhase + 1]int
	// Ends are how the deliveries ended, by reason; Copies how many of them
	// are shown twice.
	Ends   []string
	Copies int
	// Violations are what must not have happened; empty if all is well.
	Violations []Violation
	// Story is what happened, where it was asked for.
	Story string
}

// A Sim is one run.
type Sim struct {
	seed   uint64
	mutant Mutant
	record bool
	rng    *rand.Rand
	sched  *scheduler
	fine   bool // reading the disk takes the token, too
	sticky int  // of 100: how often the last process goes on

	start    time.Time
	disk     *crashfs.Disk
	provider *provider
	over     chan struct{} // closed at the end

	// Owned by the loop, which runs while nobody else does.
	slots           []*process // nil while none is there
	lives           []int
	all             []*process
	timed           []appointment
	plan            []planned
	due             []planned // on the disk or at the provider: at the next call
	calm            bool
	calmSince       time.Duration
	down, rebooting bool // the machine has crashed, and will start again
	boots           int
	slept, paused   time.Duration // of the boot clock
	pauseFrom       time.Duration
	pauseUntil      time.Duration
	wallStep        time.Duration
	wallMoved       bool
	phases          map[[2]int]Phase
	last            int // the slot that had the token
	buf             []*actor
	hash            uint64
	story           []event
	violations      []Violation
	faults          [lastKind + 1][lastPhase + 1]int
	plannedCount    int

	// Owned by whoever has the token.
	steps int
	runs  int

	// clocks guards what the clocks are made of: boots, slept to pauseUntil,
	// and wallStep.
	clocks sync.Mutex

	mu sync.Mutex
	// Guarded by mu, as are changes of slots, steps and phases:
	window, spare []event
	deliveries    []*delivery
	oracles       []*oracle
	numbers       map[fencepost.DeliveryKey]int
	ids           map[fencepost.DeliveryID]int
	subjects      map[string]gate.Subject
	leases        map[int]fencepost.Lease
	senders, sent int
}

// An appointment is something that happens at a time.
type appointment struct {
	at time.Duration
	do func()
}

// Options say how to run a seed.
type Options struct {
	// Mutant is a fault planted in the controllers.
	Mutant Mutant
	// Record keeps the story.
	Record bool
}

// Run runs one seed from an empty world that is a copy of root, a disk that
// [Root] has made. It must be called in a bubble of its own.
func Run(seed uint64, root *crashfs.Disk, o Options) Result {
	s := &Sim{
		seed: seed, mutant: o.Mutant, record: o.Record, rng: rand.New(rand.NewPCG(seed, 0x66656e6365)),
		sched: newScheduler(), start: time.Now(), disk: root.After(crashfs.KeepAll), over: make(chan struct{}),
		phases: map[[2]int]Phase{}, numbers: map[fencepost.DeliveryKey]int{}, ids: map[fencepost.DeliveryID]int{},
		subjects: map[string]gate.Subject{}, leases: map[int]fencepost.Lease{}, hash: seed,
	}
	s.provider = &provider{sim: s, verdicts: map[string]gate.Verdict{}}
	s.draw()
	s.loop()
	s.end()
	r := Result{Seed: seed, Hash: s.hash, Steps: s.steps, Took: s.now(), Faults: s.faults, Violations: s.violations}
	for _, o := range s.oracles {
		r.Ends = append(r.Ends, o.end())
		if o.shown > 1 {
			r.Copies++
		}
	}
	if s.record {
		r.Story = s.Story()
	}
	return r
}

// draw makes the shape of the run and its faults.
func (s *Sim) draw() {
	r := s.rng
	processes := [...]int{1, 1, 2, 2, 2, 3}[r.IntN(6)]
	s.fine = r.IntN(16) == 0
	s.sticky = r.IntN(10) * 10
	s.slots, s.lives = make([]*process, processes), make([]int, processes)
	s.provider.requests = make([]request, 1+r.IntN(2))
	for i := range processes {
		s.launch(i)
	}
	for range r.IntN(5) {
		k := Kind(1 + r.IntN(int(lastKind)))
		phase := Phase(1 + r.IntN(int(lastPhase)))
		for !Possible(k, phase) {
			phase = Phase(1 + r.IntN(int(lastPhase)))
		}
		skip := 0
		switch {
		case k.ofProvider():
		case phase == Fetching, phase == Refreshing, phase == Looking, phase == Creating:
			skip = r.IntN(2) // these are over soon
		default:
			skip = r.IntN(14)
		}
		s.plan = append(s.plan, planned{kind: k, phase: phase, skip: skip, draw: r.Uint64()})
	}
	// A worker is overtaken only where another process has its delivery, too.
	overtaking := slices.ContainsFunc(s.plan, func(f planned) bool { return f.kind == Suspend || f.kind == Stop })
	for range [...]int{1, 1, 1, 2, 2, 3}[r.IntN(6)] {
		n := s.newDelivery(int64(1 + r.IntN(len(s.provider.requests))))
		first := r.IntN(8)
		s.send(n, time.Duration(r.IntN(4000))*time.Millisecond+time.Duration(n), first)
		if r.IntN(3) == 0 || overtaking {
			s.send(n, time.Duration(r.IntN(4000))*time.Millisecond+time.Duration(n), first+1)
		}
	}
	s.plannedCount = len(s.plan)
	s.at(chaos, s.calmDown)
}

func (s *Sim) now() time.Duration { return time.Since(s.start) }

// at makes an appointment.
func (s *Sim) at(when time.Duration, do func()) {
	i, _ := slices.BinarySearchFunc(s.timed, when+1, func(a appointment, t time.Duration) int { return int(a.at - t) })
	s.timed = slices.Insert(s.timed, i, appointment{when, do})
}

// loop gives the token until every delivery has reached its end.
func (s *Sim) loop() {
	for len(s.violations) == 0 {
		synctest.Wait()
		s.flush()
		if s.keepAppointments() || s.lookAfter() {
			continue
		}
		if s.done() {
			return
		}
		if s.steps > maxSteps {
			s.broken("liveness", "no end after %d steps", s.steps)
			return
		}
		s.buf = s.sched.able(s.buf, s.now())
		if len(s.buf) == 0 {
			s.idle()
			continue
		}
		if s.faultNow() {
			continue
		}
		if draw := s.rng.IntN(64); draw < 3 {
			s.let(draw)
			continue
		}
		s.give(s.choose())
	}
}

// let lets time pass while somebody waits for the token: the machine is slow.
func (s *Sim) let(how int) {
	d := time.Duration(1+s.rng.IntN(2000)) * time.Microsecond
	if how == 0 && s.rng.IntN(4) == 0 {
		d = time.Duration(1+s.rng.IntN(3000)) * time.Millisecond
	}
	if len(s.timed) > 0 {
		d = min(d, max(s.timed[0].at-s.now(), 1))
	}
	time.Sleep(d)
}

// idle waits for the next appointment, or until somebody comes.
func (s *Sim) idle() {
	if len(s.timed) == 0 {
		s.broken("liveness", "nobody has anything to do")
		return
	}
	timer := time.NewTimer(s.timed[0].at - s.now())
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-s.sched.arrived:
	}
}

// choose draws who goes on.
func (s *Sim) choose() *actor {
	if s.rng.IntN(100) < s.sticky {
		var same []*actor
		for _, a := range s.buf {
			if a.slot == s.last {
				same = append(same, a)
			}
		}
		if len(same) > 0 {
			return same[s.rng.IntN(len(same))]
		}
	}
	return s.buf[s.rng.IntN(len(s.buf))]
}

// give gives the token to an actor, with the fault that is due at its call.
func (s *Sim) give(a *actor) {
	s.mu.Lock()
	s.steps++
	s.mu.Unlock()
	s.last = a.slot
	o := order{draw: s.rng.Uint64()}
	if a.delivery >= 0 {
		s.enter(a)
		if a.op == "note" {
			s.oracles[a.delivery].announced[a.slot] = s.steps
		}
	}
	o.fault.kind = s.faultAt(a)
	s.digest(uint64(a.slot), uint64(a.delivery), fnv(a.op), fnv(a.name), uint64(a.off), uint64(o.fault.kind), uint64(s.now()))
	if s.record {
		text := a.op
		if a.name != "" {
			text += " " + a.name
		}
		if o.fault.kind != 0 {
			text += "  << " + o.fault.kind.String()
		}
		s.note(event{kind: evCall, slot: a.slot, delivery: a.delivery, text: text})
	}
	s.sched.release(a, o)
}

// keepAppointments does what is due.
func (s *Sim) keepAppointments() bool {
	kept := false
	for len(s.timed) > 0 && s.timed[0].at <= s.now() {
		do := s.timed[0].do
		s.timed = slices.Delete(s.timed, 0, 1)
		do()
		kept = true
	}
	return kept
}

// lookAfter starts anew what has ended, the whole machine where it must be.
func (s *Sim) lookAfter() bool {
	if s.down && !s.rebooting {
		s.afterCrash(CrashTorn)
		return true
	}
	if s.down {
		return false
	}
	for slot, p := range s.slots {
		if p == nil {
			continue
		}
		select {
		case <-p.ended:
		default:
			if !p.isGone() {
				continue
			}
		}
		s.place(slot, nil)
		if !p.isGone() {
			p.kill() // it has ended by itself; nothing of it may stay
		}
		if s.poisoned() {
			s.reboot(CrashTorn)
			return true
		}
		s.at(s.now()+time.Duration(200+s.rng.IntN(2000))*time.Millisecond, func() {
			if s.slots[slot] == nil && !s.down {
				s.launch(slot)
			}
		})
		return true
	}
	if s.steps%32 == 0 && s.poisoned() {
		s.reboot(CrashTorn)
		return true
	}
	return false
}

// poisoned reports whether a sync has failed for good: then an operator starts
// the machine again.
func (s *Sim) poisoned() bool {
	p := s.disk.Process()
	defer p.Kill()
	for _, dir := range []string{".", ledgerDir, inboxDir} {
		fsys := durable.Sub(p, dir)
		if _, err := fsys.Stat(durable.PoisonName); err == nil {
			return true
		}
		b, err := durable.ReadFile(fsys, durable.HealthName, 4096)
		if err == nil && len(b) > 0 && b[0] != 0 {
			return true
		}
	}
	return false
}

// reboot crashes the machine, and has it start again.
func (s *Sim) reboot(k Kind) {
	s.disk.Crash()
	s.crashed()
	s.afterCrash(k)
}

// crashed ends all processes: the disk has crashed.
func (s *Sim) crashed() {
	s.down = true
	for slot, p := range s.slots {
		if p != nil {
			p.kill()
			s.place(slot, nil)
		}
	}
}

// afterCrash has the machine start again.
func (s *Sim) afterCrash(k Kind) {
	s.rebooting = true
	draw := s.rng.Uint64()
	s.at(s.now()+time.Duration(500+s.rng.IntN(4000))*time.Millisecond, func() {
		s.disk = s.disk.After(policy(k, draw))
		s.disk.SetCapacity(0)
		s.clocks.Lock()
		s.boots++
		s.clocks.Unlock()
		s.down, s.rebooting = false, false
		if s.poisoned() {
			s.clearPoison()
		}
		for slot := range s.slots {
			s.launch(slot)
		}
	})
}

// clearPoison is the operator, who has looked at why the machine was started
// anew.
func (s *Sim) clearPoison() {
	p := s.disk.Process()
	defer p.Kill()
	for _, dir := range []string{".", ledgerDir, inboxDir} {
		fsys := durable.Sub(p, dir)
		err := durable.ClearPoison(fsys)
		if err == nil {
			var root *durable.Root
			if root, err = durable.OpenRoot(fsys); err == nil {
				err = root.Close()
			}
		}
		if err != nil {
			s.broken("harness", "clear poison: %v", err)
		}
	}
}

// calmDown ends the faults.
func (s *Sim) calmDown() {
	if s.calm {
		return
	}
	s.calm, s.calmSince = true, s.now()
	s.plan, s.due = nil, nil
	s.disk.SetCapacity(0)
	for _, p := range s.slots {
		if p != nil {
			p.stoppedUntil = 0
		}
	}
	s.moveOn()
	s.at(s.now()+Patience, func() {
		s.broken("liveness", "deliveries without an end %v after the last fault", Patience)
	})
}

// moveOn moves the gate every now and then, as people do, while something is
// shown twice: only that ends it.
func (s *Sim) moveOn() {
	s.at(s.now()+2*time.Minute, func() {
		for i, o := range s.oracles {
			if s.deliveries[i].late && !o.takenOut && o.shown > 1 {
				s.provider.rule++
				break
			}
		}
		s.moveOn()
	})
}

// done reports whether every delivery has reached its end.
func (s *Sim) done() bool {
	// Who is in the middle of adopting a log has no entries of it yet.
	if s.down || len(s.buf) > 0 && (s.steps%16 != 0 || s.owing()) {
		return false
	}
	s.mu.Lock()
	senders := s.senders
	s.mu.Unlock()
	if senders > 0 {
		return false
	}
	if len(s.timed) > 0 && !s.calm && s.pending() {
		return false
	}
	for _, p := range s.slots {
		if p == nil || !s.isUp(p) || p.inbox.Stats().Entries > 0 {
			return false
		}
	}
	return true
}

// owing reports whether something that was acknowledged has no end yet. Where
// nobody works any more it never will.
func (s *Sim) owing() bool {
	return slices.ContainsFunc(s.oracles, func(o *oracle) bool { return o.acked && !o.hasEnd() })
}

// pending reports whether appointments are left that may change anything.
func (s *Sim) pending() bool { return len(s.timed) > 1 }

// isUp reports whether a process takes deliveries.
func (s *Sim) isUp(p *process) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return p.up
}

func (s *Sim) setUp(p *process) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p.up = true
}

// place puts a process, or none, into a slot.
func (s *Sim) place(slot int, p *process) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.slots[slot] = p
}

// alive returns a process that takes deliveries, or nil.
func (s *Sim) alive(n int) *process {
	s.mu.Lock()
	p := s.slots[n%len(s.slots)]
	s.mu.Unlock()
	if p == nil || p.isGone() || !s.isUp(p) {
		return nil
	}
	return p
}

// end lets everybody go, and holds what is left against what was promised.
func (s *Sim) end() {
	close(s.over)
	for _, p := range s.all {
		p.kill()
	}
	for _, p := range s.all {
		<-p.ended
	}
	synctest.Wait()
	s.flush()
	if len(s.violations) == 0 {
		s.judgeEnd()
	}
	if len(s.violations) == 0 {
		s.audit()
	}
}

// numberOf is the number of a delivery, -1 for none.
func (s *Sim) numberOf(k fencepost.DeliveryKey) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n, ok := s.numbers[k]; ok {
		return n
	}
	return -1
}

func (s *Sim) numberOfID(id fencepost.DeliveryID) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n, ok := s.ids[id]; ok {
		return n
	}
	return -1
}

func (s *Sim) deliveryOf(v gate.Verdict) int { return s.numberOfID(v.Delivery) }

var errSubject = &fencepost.Error{Op: "admit", Reason: fencepost.ReasonMalformed, Err: errors.New("no such body")}

func (s *Sim) subjectOf(body string) (gate.Subject, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if subject, ok := s.subjects[body]; ok {
		return subject, nil
	}
	return gate.Subject{}, errSubject
}

// works notes what a process works on: of one request one delivery at a time.
func (s *Sim) works(p *process, d fencepost.DeliveryKey) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n, ok := s.numbers[d]; ok {
		p.working[s.deliveries[n].subject.Number] = n
	}
}

func (s *Sim) workingOn(p *process, subject gate.Subject) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n, ok := p.working[subject.Number]; ok {
		return n
	}
	return -1
}
