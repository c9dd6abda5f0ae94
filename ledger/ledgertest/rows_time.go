package ledgertest

import (
	"time"

	"github.com/fencepost/fencepost"
)

// clockRows: no step of the wall clock touches a lease (invariant 18), and
// nothing that was answered is lost by a restart (invariant 3).
func clockRows() []row {
	jump := func(name string, by time.Duration) row {
		return row{"clock/wall-" + name + "/lease-as-before", stepWall | frozen, func(w *world) {
			d := w.permanent("a")
			l := w.acquire(d)
			w.h.Elapse(w.h.Lease / 2)
			w.h.StepWall(by)
			want[fencepost.Busy](w, "Claim", w.claim(d))
			r := want[fencepost.Renewed](w, "Renew", w.renew(d, l))
			w.checkRenewed(l, r.Lease)
			w.h.StepWall(by)
			w.h.Elapse(w.h.Lease)
			want[fencepost.Busy](w, "Claim", w.claim(d))
			w.h.Elapse(1)
			want[fencepost.Lost](w, "Renew", w.renew(d, r.Lease))
			next := w.acquire(d)
			w.checkTakeover(l, next)
			want[fencepost.Staged](w, "Stage", w.stage(d, next, w.publication("result")))
			w.h.StepWall(by)
			want[fencepost.Busy](w, "Claim", w.claim(d))
			w.passLease()
			w.publish(d, next, "result")
		}}
	}
	return []row{
		jump("back-an-hour", -time.Hour),
		jump("ahead-an-hour", time.Hour),
		jump("back-a-day", -24*time.Hour),
		jump("ahead-a-year", 365*24*time.Hour),
		{"reopen/leased/not-forgotten", reopen, func(w *world) {
			d := w.permanent("a")
			l := w.acquire(d)
			w.h.Ledger = w.h.Reopen()
			w.takeOver(d, l)
		}},
		{"reopen/leased/older-fence-Lost", reopen, func(w *world) {
			d := w.permanent("a")
			old := w.acquire(d)
			w.h.Ledger = w.h.Reopen()
			l := w.takeOver(d, old)
			want[fencepost.Lost](w, "Renew", w.renew(d, old))
			want[fencepost.Lost](w, "Stage", w.stage(d, old, w.publication("stale")))
			want[fencepost.Staged](w, "Stage", w.stage(d, l, w.publication("result")))
		}},
		{"reopen/renewed/not-forgotten", reopen, func(w *world) {
			d := w.permanent("a")
			l := w.acquire(d)
			w.h.Elapse(w.h.Lease - 2*time.Second)
			want[fencepost.Renewed](w, "Renew", w.renew(d, l))
			w.h.Ledger = w.h.Reopen()
			w.h.Elapse(w.h.Lease - 2*time.Second)
			// Its holder is the same, if anybody, so that it still renews.
			want[fencepost.Renewed](w, "Renew", w.renew(d, l))
		}},
		{"reopen/staged/Publish-the-same-bytes", reopen, func(w *world) {
			d := w.permanent("a")
			l, _ := w.stageNew(d, "result")
			for range 3 {
				w.h.Ledger = w.h.Reopen()
				w.passLease()
				l = w.publish(d, l, "result").Lease
			}
		}},
		{"reopen/done/Completed", reopen, func(w *world) {
			d := w.permanent("a")
			_, s := w.finish(d, "result")
			w.h.Ledger = w.h.Reopen()
			want[fencepost.Completed](w, "Claim", w.claim(d))
			want[fencepost.Completed](w, "Complete", w.complete(d, s))
			w.conflict("a")
		}},
		{"restart/leased/Acquired-at-once", restart, func(w *world) {
			d := w.permanent("a")
			old := w.acquire(d)
			w.h.Ledger = w.h.Restart()
			want[fencepost.Lost](w, "Renew", w.renew(d, old))
			w.checkTakeover(old, w.acquire(d))
		}},
		{"restart/staged/Publish-at-once", restart, func(w *world) {
			d := w.permanent("a")
			l, _ := w.stageNew(d, "result")
			w.h.Ledger = w.h.Restart()
			w.publish(d, l, "result")
		}},
		{"restart/leased-not-taken-over/Staged", restart, func(w *world) {
			d := w.permanent("a")
			l := w.acquire(d)
			w.h.Ledger = w.h.Restart()
			s := want[fencepost.Staged](w, "Stage", w.stage(d, l, w.publication("result")))
			w.checkLease(s.Lease)
		}},
	}
}

// takeOver waits for the lease and claims d again.
func (w *world) takeOver(d fencepost.AcceptedDelivery, old fencepost.Lease) fencepost.Lease {
	w.Helper()
	w.passLease()
	l := w.acquire(d)
	w.checkTakeover(old, l)
	return l
}

// lifetimeRows: replay ends, their extension, and clean-up.
func lifetimeRows() []row {
	return []row{
		{"claim/unclaimed-at-its-replay-end/Acquired", frozen, func(w *world) {
			d := w.bounded("a")
			w.h.Elapse(w.life())
			w.acquire(d)
		}},
		{"claim/unclaimed-replay-end-passed/Expired", 0, func(w *world) {
			d := w.bounded("a")
			w.h.Elapse(w.life() + time.Second)
			want[fencepost.Expired](w, "Claim", w.claim(d))
			want[fencepost.Expired](w, "Claim", w.claim(d))
		}},
		{"claim/leased-replay-end-passed/Acquired", 0, func(w *world) {
			d := w.bounded("a")
			l := w.acquire(d)
			w.h.Elapse(w.life() + w.h.Lease + time.Second)
			w.checkTakeover(l, w.acquire(d))
		}},
		{"claim/staged-replay-end-passed/Publish", cleanUp, func(w *world) {
			d := w.bounded("a")
			l, s := w.stageNew(d, "result")
			w.h.Elapse(w.life() + w.h.Lease + time.Second)
			w.cleanUp()
			w.publish(d, l, "result")
			want[fencepost.Completed](w, "Complete", w.complete(d, s))
		}},
		{"claim/done-before-its-replay-end/Completed", cleanUp, func(w *world) {
			d := w.bounded("a")
			w.finish(d, "result")
			w.h.Elapse(w.life() - time.Second)
			w.cleanUp()
			want[fencepost.Completed](w, "Claim", w.claim(d))
		}},
		{"claim/done-at-its-replay-end/Completed", cleanUp | frozen, func(w *world) {
			d := w.bounded("a")
			w.finish(d, "result")
			w.h.Elapse(w.life())
			w.cleanUp()
			want[fencepost.Completed](w, "Claim", w.claim(d))
		}},
		{"claim/done-permanent-after-years/Completed", cleanUp, func(w *world) {
			d := w.permanent("a")
			w.finish(d, "result")
			w.h.Elapse(5 * 365 * 24 * time.Hour)
			w.cleanUp()
			want[fencepost.Completed](w, "Claim", w.claim(d))
		}},
		{"clean-up/done-replay-end-passed/Expired", cleanUp, func(w *world) {
			d := w.bounded("a")
			l, s := w.finish(d, "result")
			w.h.Elapse(w.life() + time.Second)
			w.cleanUp()
			want[fencepost.Expired](w, "Claim", w.claim(d))
			want[fencepost.Lost](w, "Complete", w.complete(d, s))
			want[fencepost.Lost](w, "Stage", w.stage(d, l, w.publication("result")))
		}},
		{"clean-up/then-the-wall-steps-back/Expired", cleanUp | stepWall, func(w *world) {
			d := w.bounded("a")
			w.finish(d, "result")
			w.h.Elapse(w.life() + time.Second)
			w.cleanUp()
			w.h.StepWall(-w.life())
			want[fencepost.Expired](w, "Claim", w.claim(d))
		}},
		{"clean-up/then-the-wall-steps-back-and-reopen/Expired", cleanUp | stepWall | reopen, func(w *world) {
			d := w.bounded("a")
			w.finish(d, "result")
			w.h.Elapse(w.life() + time.Second)
			w.cleanUp()
			w.h.StepWall(-w.life())
			w.h.Ledger = w.h.Reopen()
			want[fencepost.Expired](w, "Claim", w.claim(d))
		}},
		{"clean-up/the-wall-jumped-ahead/Completed", cleanUp | stepWall, func(w *world) {
			d := w.bounded("a")
			w.finish(d, "result")
			w.h.StepWall(w.life() + time.Hour)
			w.cleanUp()
			want[fencepost.Completed](w, "Claim", w.claim(d))
			w.h.StepWall(-w.life() - time.Hour)
			want[fencepost.Completed](w, "Claim", w.claim(d))
		}},
		lateClaimRow("first-claim", func(w *world, d fencepost.AcceptedDelivery) fencepost.AcceptedDelivery { return d }),
		lateClaimRow("repeat", func(w *world, d fencepost.AcceptedDelivery) fencepost.AcceptedDelivery {
			w.acquire(d)
			w.h.Elapse(w.life() / 2)
			return w.bounded("a")
		}),
		{"clean-up/frees-capacity-and-fences-still-grow", cleanUp, func(w *world) {
			signed := w.h.Now()
			d := w.bounded("a")
			old, _ := w.finish(d, "result")
			w.h.Elapse(w.life() + time.Second)
			w.cleanUp()
			// The sender signs the same message again, later: a new life.
			again := w.bounded("a")
			if again.Key() != d.Key() || !w.h.Now().After(signed) {
				w.Fatal("the repeat is not the same delivery at a later time")
			}
			l := w.acquire(again)
			if l.Evaluation() == old.Evaluation() {
				w.Fatalf("evaluation %v came back after clean-up", l.Evaluation())
			}
			if !old.Fence().Before(l.Fence()) {
				w.Fatalf("fence = %v after clean-up, want one above %v", l.Fence(), old.Fence())
			}
			want[fencepost.Lost](w, "Renew", w.renew(again, old))
			want[fencepost.Lost](w, "Stage", w.stage(again, old, w.publication("stale")))
			want[fencepost.Renewed](w, "Renew", w.renew(again, l))
		}},
		repeatRow("leased", func(w *world, d fencepost.AcceptedDelivery) { w.acquire(d) }),
		repeatRow("staged", func(w *world, d fencepost.AcceptedDelivery) { w.stageNew(d, "result") }),
		repeatRow("done", func(w *world, d fencepost.AcceptedDelivery) { w.finish(d, "result") }),
		{"repeat/earlier-end/kept", cleanUp, func(w *world) {
			early := w.bounded("a")
			w.h.Elapse(time.Hour)
			w.finish(w.bounded("a"), "result")
			want[fencepost.Completed](w, "Claim", w.claim(early))
			w.h.Elapse(w.life() - time.Second)
			w.cleanUp()
			want[fencepost.Completed](w, "Claim", w.claim(early))
		}},
	}
}

// lateClaimRow: what dates a row's end, the first claim or a repeat, comes when
// the wall clock has jumped ahead by half of the delivery's life. The other
// half later the wall says that the end has passed, half a life too early: the
// row stays, and a resend after the clock was put right is no new delivery
// (invariants 4 and 18).
func lateClaimRow(name string, last func(*world, fencepost.AcceptedDelivery) fencepost.AcceptedDelivery) row {
	return row{"clean-up/the-wall-jumped-ahead-before-the-" + name + "/Completed", cleanUp | stepWall, func(w *world) {
		d := last(w, w.bounded("a"))
		w.h.StepWall(w.life() / 2)
		w.claim(d)
		w.h.Elapse(w.life()/2 + w.h.Lease + time.Second)
		w.drain(d)
		w.cleanUp()
		w.h.StepWall(-w.life() / 2)
		want[fencepost.Completed](w, "Claim", w.claim(w.bounded("a")))
	}}
}

// repeatRow: a repeat with a later signed time durably moves the replay end
// (DESIGN §4), in whatever state it finds the row.
func repeatRow(state string, reach func(*world, fencepost.AcceptedDelivery)) row {
	return row{"repeat/" + state + "/later-end-moves-the-replay-end", cleanUp | reopen, func(w *world) {
		first := w.bounded("a")
		reach(w, first)
		w.h.Elapse(w.life() / 2)
		w.claim(w.bounded("a"))
		w.h.Ledger = w.h.Reopen()
		w.h.Elapse(w.life()/2 + w.h.Lease + time.Second)
		// Past the first end, before the second.
		w.drain(first)
		w.cleanUp()
		want[fencepost.Completed](w, "Claim", w.claim(first))
	}}
}

// drain takes d to done from wherever it is.
func (w *world) drain(d fencepost.AcceptedDelivery) {
	w.Helper()
	switch c := w.claim(d).(type) {
	case fencepost.Acquired:
		s := want[fencepost.Staged](w, "Stage", w.stage(d, c.Lease, w.publication("result")))
		want[fencepost.Completed](w, "Complete", w.complete(d, s.Staged))
	case fencepost.Publish:
		want[fencepost.Completed](w, "Complete", w.complete(d, c.Staged))
	case fencepost.Completed:
	case fencepost.BindingConflict, fencepost.Busy, fencepost.Expired, fencepost.Full:
		w.Fatalf("Claim answered %T, want Acquired, Publish or Completed", c)
	}
}

func (w *world) cleanUp() {
	w.Helper()
	if err := w.h.CleanUp(w.Context()); err != nil {
		w.Fatalf("clean-up: %v", err)
	}
}
