package lanetest

import (
	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/gate"
)

// passes: what the program says is shown once, as it was staged, and opens the
// gate.
func passes(r *rig) {
	q := r.world.Open(r, false)
	r.wantLocked(q, true)
	d := r.verdict(q)
	r.wantShown(q, d, gate.Pass)
	r.wantLocked(q, false)
	r.wantRuns(1)
	r.wantWrittenOnce(r.wire.since(0))
	r.wantReadOnce(r.wire.since(0))
	r.wantCalm()
}

// blocks: a block is shown once and keeps the gate shut.
func blocks(r *rig) {
	r.program.set(true, nil)
	q := r.world.Open(r, false)
	d := r.verdict(q)
	r.wantShown(q, d, gate.Fail)
	r.wantLocked(q, true)
	r.wantWrittenOnce(r.wire.since(0))
	r.wantReadOnce(r.wire.since(0))
	r.wantCalm()
}

// inTheRun has something happen while the program runs for the first time, and
// returns the request and its delivery, done.
func (r *rig) inTheRun(happens func(q Request)) (Request, fencepost.AcceptedDelivery) {
	r.Helper()
	q := r.world.Open(r, false)
	r.program.set(false, func(run int, _ string) {
		if run == 1 {
			happens(q)
		}
	})
	return q, r.verdict(q)
}

// superseded: a head that moves while its predecessor is judged has no result
// until it is judged itself.
func superseded(r *rig) {
	q, d := r.inTheRun(func(q Request) { r.world.Push(r, q) })
	r.wantEnd(d, fencepost.ReasonSuperseded, fencepost.ReasonClosed)
	r.wantNothing(q, d)
	r.wantLocked(q, true)
	next := r.verdict(q)
	r.wantShown(q, next, gate.Pass)
	r.wantLocked(q, false)
}

// supersededOnceStaged: the same for a head that moves when its result is staged
// and was not taken, over a restart of the process.
func supersededOnceStaged(r *rig) {
	q := r.world.Open(r, false)
	first := r.start()
	r.wire.disturb(fault{match: isWrite, times: -1, effect: effect{before: true, run: first.kill}})
	d := r.deliver(r.world.Event(r, q))
	<-first.disk.Done()
	first.end()
	r.wire.calm()
	r.world.Push(r, q)
	r.work()
	r.wantEnd(d, fencepost.ReasonSuperseded)
	r.wantNothing(q, d)
	r.wantLocked(q, true)
	r.wantRuns(1)
}

// supersededAsPublished: the same for a head that moves while its result is on
// its way. What arrives is for a head that is not the request's any more, and no
// part of it counts alone.
func supersededAsPublished(r *rig) {
	q := r.world.Open(r, false)
	r.wire.disturb(fault{match: isWrite, effect: effect{pass: true, run: func() { r.world.Push(r, q) }}})
	d := r.verdict(q)
	r.wantEnd(d, fencepost.ReasonSuperseded, fencepost.ReasonNone)
	r.wantLocked(q, true)
	for _, s := range r.world.Shown(r, q) {
		if s.Partial || s.Copies != 1 {
			r.Errorf("shown %+v of a head that moved", s)
		}
	}
	next := r.verdict(q)
	r.wantShown(q, next, gate.Pass)
	r.wantLocked(q, false)
}

// closed: a request that is closed while it is judged gets no result.
func closed(r *rig) {
	q, d := r.inTheRun(func(q Request) { r.world.Close(r, q) })
	r.wantEnd(d, fencepost.ReasonClosed, fencepost.ReasonSuperseded)
	r.wantNothing(q, d)
}

// movedBase: a pass is for one tip of the base. Where the candidate is the head
// itself, the head does not contain the new tip, which is a failure of its own.
func movedBase(r *rig) {
	q, d := r.inTheRun(func(Request) { r.world.MoveBase(r) })
	for _, s := range r.world.Shown(r, q) {
		if s.Conclusion == gate.Pass {
			r.Errorf("shown %+v for a base that moved", s)
		}
	}
	r.wantEnd(d, fencepost.ReasonSuperseded, fencepost.ReasonNone)
	r.wantStaged(d, fencepost.ReasonSuperseded, fencepost.ReasonNotMergeable)
	r.wantLocked(q, true)
}

// renamed: a repository is its id, whatever its name is, before an event and
// while it is judged.
func renamed(r *rig) {
	q, d := r.inTheRun(func(Request) { r.world.Rename(r) })
	r.wantShown(q, d, gate.Pass)
	r.wantLocked(q, false)
	next := r.verdict(q)
	r.wantShown(q, next, gate.Pass)
	r.wantCalm()
}

// deletedFork: a head is fetched from the base repository, also when where it
// came from is gone.
func deletedFork(r *rig) {
	q := r.world.Open(r, true)
	e := r.world.Event(r, q)
	r.world.DeleteFork(r, q)
	d := r.deliver(e)
	r.work()
	r.wantShown(q, d, gate.Pass)
	r.wantLocked(q, false)
}

// duplicate: the same signed bytes are one delivery, however often they come.
func duplicate(r *rig) {
	q := r.world.Open(r, false)
	e := r.world.Event(r, q)
	d := r.deliver(e)
	r.deliver(e)
	r.work()
	if again := r.deliver(e); again.Key() != d.Key() {
		r.Errorf("delivery %s became %s", d.ID(), again.ID())
	}
	r.work()
	r.wantShown(q, d, gate.Pass)
	r.wantRuns(1)
	r.wantWrittenOnce(r.wire.since(0))
	if n := len(r.world.Shown(r, q)); n != 1 {
		r.Errorf("%d results are shown, want 1", n)
	}
}

// revoked: without the right to read, nothing is known of the gate, so nothing is
// published, people are told, and the delivery waits until the right is back.
func revoked(r *rig) {
	q := r.world.Open(r, false)
	r.program.set(false, func(run int, _ string) {
		if run == 1 {
			r.world.Revoke(r)
		}
	})
	d := r.deliver(r.world.Event(r, q))
	p := r.start()
	r.wantAlert(gate.AlertCredential)
	r.wantNothing(q, d)
	if n := len(writesIn(r.wire.since(0))); n > 0 {
		r.Errorf("%d writes were tried without the right to", n)
	}
	r.world.Authorize(r)
	r.settle()
	p.end()
	r.wantShown(q, d, gate.Pass)
	r.wantCalm()
}

// weakened: a rule that ceases to ask for the result while it is made is another
// gate: no pass for it.
func weakened(r *rig) {
	q, d := r.inTheRun(func(Request) { r.world.Weaken(r) })
	r.wantShown(q, d, gate.Fail)
	r.wantStaged(d, fencepost.ReasonGateUnproven, fencepost.ReasonGateChanged)
	r.wantAlert(gate.AlertProvider)
}

// foreign: what somebody else shows by our name is no result of ours, and beside
// it none of ours could be told from it.
func foreign(r *rig) {
	q := r.world.Open(r, false)
	r.world.Foreign(r, q)
	d := r.verdict(q)
	r.wantShown(q, d, gate.Fail)
	r.wantStaged(d, fencepost.ReasonForeignStatus)
	r.wantRuns(0)
}

// impersonated: what stands under our id and is not what was staged is never
// taken for it, nor written over.
func impersonated(r *rig) {
	q := r.world.Open(r, false)
	d := r.deliver(r.world.Event(r, q))
	r.program.set(false, func(_ int, evaluation string) { r.world.Impersonate(r, q, d.ID(), evaluation) })
	p := r.start()
	r.wantAlert(gate.AlertPublishConflict)
	p.end()
	if n := writesIn(r.wire.since(0)); len(n) > 0 {
		r.Errorf("written over it: %v", n)
	}
	if left, _ := r.queue.left(); left != 1 {
		r.Errorf("%d deliveries wait, want the one of %s", left, d.ID())
	}
}
