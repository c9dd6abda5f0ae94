package ledgertest

import (
	"fmt"
	"time"

	"github.com/fencepost/fencepost"
)

func claimRows() []row {
	return []row{
		{"claim/unclaimed/Acquired", 0, func(w *world) {
			a := want[fencepost.Acquired](w, "Claim", w.claim(w.permanent("a")))
			w.checkLease(a.Lease)
			if a.Reclaimed || a.Attempt != 1 {
				w.Fatalf("Reclaimed, Attempt = %v, %d; want false, 1", a.Reclaimed, a.Attempt)
			}
		}},
		{"claim/two-deliveries/two-evaluations", 0, func(w *world) {
			a, b := w.acquire(w.permanent("a")), w.acquire(w.permanent("b"))
			if a.Evaluation() == b.Evaluation() {
				w.Fatalf("both deliveries have evaluation %v", a.Evaluation())
			}
		}},
		{"claim/leased/Busy", 0, func(w *world) {
			d := w.permanent("a")
			l := w.acquire(d)
			busy := want[fencepost.Busy](w, "Claim", w.claim(d))
			if busy.After < 0 || busy.After > w.h.Lease || !busy.Deadline.Equal(l.Deadline()) {
				w.Fatalf("Busy until %v, %v from now; want until %v, at most %v", busy.Deadline, busy.After, l.Deadline(), w.h.Lease)
			}
			want[fencepost.Renewed](w, "Renew", w.renew(d, l))
		}},
		{"claim/leased-at-its-deadline/Busy", frozen, func(w *world) {
			d := w.permanent("a")
			w.acquire(d)
			w.h.Elapse(w.h.Lease)
			want[fencepost.Busy](w, "Claim", w.claim(d))
		}},
		{"claim/leased-just-past-its-deadline/Acquired", frozen, func(w *world) {
			d := w.permanent("a")
			old := w.acquire(d)
			w.h.Elapse(w.h.Lease + 1)
			w.checkTakeover(old, w.acquire(d))
		}},
		{"claim/leased-passed/Acquired-same-evaluation-new-fence", 0, func(w *world) {
			d := w.permanent("a")
			old := w.acquire(d)
			for attempt := 2; attempt <= 4; attempt++ {
				w.passLease()
				a := want[fencepost.Acquired](w, "Claim", w.claim(d))
				w.checkTakeover(old, a.Lease)
				if !a.Reclaimed || a.Attempt != attempt {
					w.Fatalf("Reclaimed, Attempt = %v, %d; want true, %d", a.Reclaimed, a.Attempt, attempt)
				}
				old = a.Lease
			}
		}},
		{"claim/leased-renewed/Busy", 0, func(w *world) {
			d := w.permanent("a")
			l := w.acquire(d)
			w.h.Elapse(w.h.Lease - 2*time.Second)
			want[fencepost.Renewed](w, "Renew", w.renew(d, l))
			w.h.Elapse(w.h.Lease - 2*time.Second)
			want[fencepost.Busy](w, "Claim", w.claim(d))
		}},
		{"claim/staged-live-publisher/Busy", 0, func(w *world) {
			d := w.permanent("a")
			w.stageNew(d, "result")
			want[fencepost.Busy](w, "Claim", w.claim(d))
		}},
		{"claim/staged-late-in-the-lease/Busy", 0, func(w *world) {
			d := w.permanent("a")
			l := w.acquire(d)
			w.h.Elapse(w.h.Lease - 2*time.Second)
			want[fencepost.Staged](w, "Stage", w.stage(d, l, w.publication("result")))
			w.h.Elapse(w.h.Lease - 2*time.Second)
			want[fencepost.Busy](w, "Claim", w.claim(d))
		}},
		{"claim/staged-publisher-passed/Publish", 0, func(w *world) {
			d := w.permanent("a")
			l, _ := w.stageNew(d, "result")
			for range 3 {
				w.passLease()
				p := w.publish(d, l, "result")
				l = p.Lease
				want[fencepost.Busy](w, "Claim", w.claim(d))
			}
		}},
		{"claim/staged-none-publisher-passed/Publish-none", 0, func(w *world) {
			d := w.permanent("a")
			none, err := fencepost.NoPublication(fencepost.ReasonSuperseded)
			if err != nil {
				w.Fatalf("NoPublication: %v", err)
			}
			want[fencepost.Staged](w, "Stage", w.stage(d, w.acquire(d), none))
			w.passLease()
			p := want[fencepost.Publish](w, "Claim", w.claim(d))
			if why, ok := p.Staged.Publication().None(); !ok || why != fencepost.ReasonSuperseded {
				w.Fatalf("None() = %q, %v; want superseded, true", why, ok)
			}
		}},
		{"claim/done/Completed", 0, func(w *world) {
			d := w.permanent("a")
			w.finish(d, "result")
			want[fencepost.Completed](w, "Claim", w.claim(d))
			w.passLease()
			want[fencepost.Completed](w, "Claim", w.claim(d))
		}},
		{"claim/leased-other-binding/BindingConflict", 0, func(w *world) {
			l := w.acquire(w.permanent("a"))
			w.conflict("a")
			w.passLease()
			w.conflict("a")
			w.checkTakeover(l, w.acquire(w.permanent("a")))
		}},
		{"claim/staged-other-binding/BindingConflict", 0, func(w *world) {
			w.stageNew(w.permanent("a"), "result")
			w.conflict("a")
			w.passLease()
			w.conflict("a")
		}},
		{"claim/done-other-binding/BindingConflict", 0, func(w *world) {
			w.finish(w.permanent("a"), "result")
			w.conflict("a")
		}},
		{"claim/no-capacity/Full", capacity, fullRow},
		{"claim/other-replay-window/ReasonParameters", 0, func(w *world) {
			other := w.h.Window
			other.MaxQueueAge += time.Minute
			d := Deliver(w, Spec{ID: "a", Signed: w.h.Now(), Window: other})
			c, err := w.h.Ledger.Claim(w.Context(), d)
			if err == nil || fencepost.ReasonOf(err) != fencepost.ReasonParameters {
				w.Fatalf("Claim = %T, %v; want reason %q", c, err, fencepost.ReasonParameters)
			}
		}},
	}
}

func (w *world) conflict(id string) {
	w.Helper()
	want[fencepost.BindingConflict](w, "Claim", w.claim(w.conflicting(id)))
}

// fullRow claims until there is no room. A ledger in parts may be full for
// one delivery a little before it is for another, never after its capacity.
func fullRow(w *world) {
	first := w.permanent("0")
	l := w.acquire(first)
	acquired, full := 1, fencepost.AcceptedDelivery{}
	for i := 1; !full.Valid(); i++ {
		d := w.permanent(fmt.Sprint(i))
		switch c := w.claim(d).(type) {
		case fencepost.Acquired:
			acquired++
		case fencepost.Full:
			full = d
		case fencepost.BindingConflict, fencepost.Busy, fencepost.Completed, fencepost.Expired, fencepost.Publish:
			w.Fatalf("Claim answered %T, want Acquired or Full", c)
		}
		if acquired > w.h.Capacity {
			w.Fatalf("%d rows in a ledger for %d", acquired, w.h.Capacity)
		}
	}
	if acquired < w.h.Capacity/2 {
		w.Fatalf("full at %d rows, made for %d", acquired, w.h.Capacity)
	}
	want[fencepost.Full](w, "Claim", w.claim(full))
	// What is known goes on, and is not forgotten to make room.
	want[fencepost.Renewed](w, "Renew", w.renew(first, l))
	s := want[fencepost.Staged](w, "Stage", w.stage(first, l, w.publication("result")))
	want[fencepost.Completed](w, "Complete", w.complete(first, s.Staged))
	want[fencepost.Completed](w, "Claim", w.claim(first))
	for i := 1; i < acquired; i += max(acquired/16, 1) {
		want[fencepost.Busy](w, "Claim", w.claim(w.permanent(fmt.Sprint(i))))
	}
}

func renewRows() []row {
	lost := func(name string, f func(w *world, d fencepost.AcceptedDelivery, l fencepost.Lease) fencepost.Lease) row {
		return row{"renew/" + name + "/Lost", 0, func(w *world) {
			d := w.permanent("a")
			stale := f(w, d, w.acquire(d))
			want[fencepost.Lost](w, "Renew", w.renew(d, stale))
		}}
	}
	return []row{
		{"renew/leased/Renewed", 0, func(w *world) {
			d := w.permanent("a")
			l := w.acquire(d)
			for range 3 {
				w.h.Elapse(w.h.Lease / 2)
				r := want[fencepost.Renewed](w, "Renew", w.renew(d, l))
				w.checkRenewed(l, r.Lease)
				l = r.Lease
			}
			want[fencepost.Busy](w, "Claim", w.claim(d))
		}},
		{"renew/leased-at-its-deadline/Renewed", frozen, func(w *world) {
			d := w.permanent("a")
			l := w.acquire(d)
			w.h.Elapse(w.h.Lease)
			w.checkRenewed(l, want[fencepost.Renewed](w, "Renew", w.renew(d, l)).Lease)
		}},
		{"renew/leased-passed/Lost", 0, func(w *world) {
			d := w.permanent("a")
			l := w.acquire(d)
			w.passLease()
			want[fencepost.Lost](w, "Renew", w.renew(d, l))
			w.checkTakeover(l, w.acquire(d))
		}},
		lost("older-fence", func(w *world, d fencepost.AcceptedDelivery, l fencepost.Lease) fencepost.Lease {
			w.passLease()
			w.acquire(d)
			return l
		}),
		lost("later-fence", func(w *world, _ fencepost.AcceptedDelivery, l fencepost.Lease) fencepost.Lease {
			return w.grant(l.Evaluation(), w.fenceAt(l.Fence(), 1))
		}),
		lost("other-evaluation", func(w *world, _ fencepost.AcceptedDelivery, l fencepost.Lease) fencepost.Lease {
			return w.grant(otherEvaluation(l.Evaluation()), l.Fence())
		}),
		lost("staged", func(w *world, d fencepost.AcceptedDelivery, l fencepost.Lease) fencepost.Lease {
			want[fencepost.Staged](w, "Stage", w.stage(d, l, w.publication("result")))
			return l
		}),
		lost("publication-lease", func(w *world, d fencepost.AcceptedDelivery, l fencepost.Lease) fencepost.Lease {
			want[fencepost.Staged](w, "Stage", w.stage(d, l, w.publication("result")))
			w.passLease()
			return w.publish(d, l, "result").Lease
		}),
		lost("done", func(w *world, d fencepost.AcceptedDelivery, l fencepost.Lease) fencepost.Lease {
			s := want[fencepost.Staged](w, "Stage", w.stage(d, l, w.publication("result")))
			want[fencepost.Completed](w, "Complete", w.complete(d, s.Staged))
			return l
		}),
		{"renew/unclaimed/Lost", 0, func(w *world) {
			l := w.acquire(w.permanent("a"))
			want[fencepost.Lost](w, "Renew", w.renew(w.permanent("b"), l))
			want[fencepost.Acquired](w, "Claim", w.claim(w.permanent("b")))
		}},
		{"renew/other-binding/Lost", 0, func(w *world) {
			l := w.acquire(w.permanent("a"))
			want[fencepost.Lost](w, "Renew", w.renew(w.conflicting("a"), l))
			want[fencepost.Renewed](w, "Renew", w.renew(w.permanent("a"), l))
		}},
		{"renew/other-delivery/Lost", 0, func(w *world) {
			l := w.acquire(w.permanent("a"))
			w.acquire(w.permanent("b"))
			want[fencepost.Lost](w, "Renew", w.renew(w.permanent("b"), l))
		}},
	}
}

// checkRenewed holds a renewed lease to the one before.
func (w *world) checkRenewed(old, next fencepost.Lease) {
	w.Helper()
	if next.Evaluation() != old.Evaluation() || next.Fence() != old.Fence() {
		w.Fatalf("renewed to %v under fence %v, want %v under %v", next.Evaluation(), next.Fence(), old.Evaluation(), old.Fence())
	}
	w.checkLease(next)
	if next.Deadline().Before(old.Deadline()) {
		w.Fatalf("renewed until %v, before %v", next.Deadline(), old.Deadline())
	}
}
