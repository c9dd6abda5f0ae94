package ledgertest

import (
	"strings"

	"github.com/fencepost/fencepost"
)

func stageRows() []row {
	return []row{
		{"stage/leased/Staged", 0, func(w *world) {
			d := w.permanent("a")
			l := w.acquire(d)
			s := want[fencepost.Staged](w, "Stage", w.stage(d, l, w.publication("result")))
			w.checkStaged(s.Staged, d, l, "result")
			w.checkLease(s.Lease)
			if s.Lease.Fence() != l.Fence() || s.Lease.Evaluation() != l.Evaluation() {
				w.Fatalf("publication lease under fence %v, want the staging one's %v", s.Lease.Fence(), l.Fence())
			}
		}},
		{"stage/leased-passed-not-taken-over/Staged", 0, func(w *world) {
			// Clocks decide when a takeover may be tried, never whether a
			// write is legal.
			d := w.permanent("a")
			l := w.acquire(d)
			w.passLease()
			s := want[fencepost.Staged](w, "Stage", w.stage(d, l, w.publication("result")))
			w.checkLease(s.Lease)
			want[fencepost.Busy](w, "Claim", w.claim(d))
		}},
		{"stage/largest-publication/Staged", 0, func(w *world) {
			d := w.permanent("a")
			text := strings.Repeat("x\x00\xff\n", fencepost.MaxPublicationBytes/4)
			l, _ := w.stageNew(d, text)
			w.passLease()
			w.publish(d, l, text)
		}},
		{"stage/older-fence/Lost", 0, func(w *world) {
			d := w.permanent("a")
			old := w.acquire(d)
			w.passLease()
			l := w.acquire(d)
			want[fencepost.Lost](w, "Stage", w.stage(d, old, w.publication("stale")))
			want[fencepost.Staged](w, "Stage", w.stage(d, l, w.publication("result")))
			want[fencepost.Lost](w, "Stage", w.stage(d, old, w.publication("stale")))
			w.passLease()
			w.publish(d, l, "result")
		}},
		{"stage/other-evaluation/Lost", 0, func(w *world) {
			d := w.permanent("a")
			l := w.acquire(d)
			forged := w.grant(otherEvaluation(l.Evaluation()), l.Fence())
			want[fencepost.Lost](w, "Stage", w.stage(d, forged, w.publication("result")))
			want[fencepost.Renewed](w, "Renew", w.renew(d, l))
		}},
		{"stage/unclaimed/Lost", 0, func(w *world) {
			l := w.acquire(w.permanent("a"))
			want[fencepost.Lost](w, "Stage", w.stage(w.permanent("b"), l, w.publication("result")))
			want[fencepost.Acquired](w, "Claim", w.claim(w.permanent("b")))
		}},
		{"stage/other-binding/Lost", 0, func(w *world) {
			l := w.acquire(w.permanent("a"))
			want[fencepost.Lost](w, "Stage", w.stage(w.conflicting("a"), l, w.publication("result")))
			want[fencepost.Renewed](w, "Renew", w.renew(w.permanent("a"), l))
		}},
		{"stage/staged-same-value/Staged-the-same", 0, func(w *world) {
			d := w.permanent("a")
			l, first := w.stageNew(d, "result")
			again := want[fencepost.Staged](w, "Stage", w.stage(d, l, w.publication("result")))
			if !again.Staged.Equal(first) {
				w.Fatalf("staged again as another value")
			}
			if !again.Lease.Valid() || again.Lease.Fence() != l.Fence() {
				w.Fatalf("lease under fence %v, want %v", again.Lease.Fence(), l.Fence())
			}
		}},
		{"stage/staged-same-value/not-a-renewal", frozen, func(w *world) {
			d := w.permanent("a")
			l, _ := w.stageNew(d, "result")
			w.h.Elapse(w.h.Lease / 2)
			again := want[fencepost.Staged](w, "Stage", w.stage(d, l, w.publication("result")))
			if got := again.Lease.Window(); got != w.h.Lease-w.h.Lease/2 {
				w.Fatalf("window = %v, want what is left, %v", got, w.h.Lease-w.h.Lease/2)
			}
			w.h.Elapse(w.h.Lease)
			again = want[fencepost.Staged](w, "Stage", w.stage(d, l, w.publication("result")))
			if again.Lease.Valid() {
				w.Fatalf("a lease of %v after its end", again.Lease.Window())
			}
			w.publish(d, l, "result")
		}},
		{"stage/staged-same-value-older-fence/Staged-without-lease", 0, func(w *world) {
			d := w.permanent("a")
			l, first := w.stageNew(d, "result")
			w.passLease()
			w.publish(d, l, "result")
			again := want[fencepost.Staged](w, "Stage", w.stage(d, l, w.publication("result")))
			if !again.Staged.Equal(first) || again.Lease.Valid() {
				w.Fatalf("same value %v, lease valid %v; want true, false: another worker publishes", again.Staged.Equal(first), again.Lease.Valid())
			}
		}},
		{"stage/staged-other-value/Lost", 0, func(w *world) {
			d := w.permanent("a")
			l, _ := w.stageNew(d, "result")
			want[fencepost.Lost](w, "Stage", w.stage(d, l, w.publication("another")))
			want[fencepost.Lost](w, "Stage", w.stage(d, l, w.publication("result ")))
			w.passLease()
			w.publish(d, l, "result")
		}},
		{"stage/staged-none-instead/Lost", 0, func(w *world) {
			d := w.permanent("a")
			l, _ := w.stageNew(d, "result")
			none, err := fencepost.NoPublication(fencepost.ReasonSuperseded)
			if err != nil {
				w.Fatalf("NoPublication: %v", err)
			}
			want[fencepost.Lost](w, "Stage", w.stage(d, l, none))
		}},
		{"stage/staged-same-value-other-evaluation/Lost", 0, func(w *world) {
			d := w.permanent("a")
			l, _ := w.stageNew(d, "result")
			forged := w.grant(otherEvaluation(l.Evaluation()), l.Fence())
			want[fencepost.Lost](w, "Stage", w.stage(d, forged, w.publication("result")))
		}},
		{"stage/done/Lost", 0, func(w *world) {
			d := w.permanent("a")
			l, _ := w.finish(d, "result")
			want[fencepost.Lost](w, "Stage", w.stage(d, l, w.publication("result")))
			want[fencepost.Lost](w, "Stage", w.stage(d, l, w.publication("another")))
			want[fencepost.Completed](w, "Claim", w.claim(d))
		}},
	}
}

func completeRows() []row {
	return []row{
		{"complete/staged/Completed", 0, func(w *world) { w.finish(w.permanent("a"), "result") }},
		{"complete/staged-by-an-older-publisher/Completed", 0, func(w *world) {
			// Whoever published the staged value may say so: there is only
			// the one value.
			d := w.permanent("a")
			l, s := w.stageNew(d, "result")
			w.passLease()
			w.publish(d, l, "result")
			want[fencepost.Completed](w, "Complete", w.complete(d, s))
		}},
		{"complete/done-same-value/Completed", 0, func(w *world) {
			d := w.permanent("a")
			_, s := w.finish(d, "result")
			want[fencepost.Completed](w, "Complete", w.complete(d, s))
		}},
		{"complete/staged-other-value/Lost", 0, func(w *world) {
			d := w.permanent("a")
			l, _ := w.stageNew(d, "result")
			want[fencepost.Lost](w, "Complete", w.complete(d, w.restore(d, l.Evaluation(), w.publication("another"))))
			want[fencepost.Busy](w, "Claim", w.claim(d))
		}},
		{"complete/done-other-value/Lost", 0, func(w *world) {
			d := w.permanent("a")
			l, _ := w.finish(d, "result")
			want[fencepost.Lost](w, "Complete", w.complete(d, w.restore(d, l.Evaluation(), w.publication("another"))))
		}},
		{"complete/staged-other-evaluation/Lost", 0, func(w *world) {
			d := w.permanent("a")
			l, _ := w.stageNew(d, "result")
			want[fencepost.Lost](w, "Complete", w.complete(d, w.restore(d, otherEvaluation(l.Evaluation()), w.publication("result"))))
		}},
		{"complete/done-other-evaluation/Lost", 0, func(w *world) {
			d := w.permanent("a")
			l, _ := w.finish(d, "result")
			want[fencepost.Lost](w, "Complete", w.complete(d, w.restore(d, otherEvaluation(l.Evaluation()), w.publication("result"))))
		}},
		{"complete/leased/Lost", 0, func(w *world) {
			d := w.permanent("a")
			l := w.acquire(d)
			want[fencepost.Lost](w, "Complete", w.complete(d, w.restore(d, l.Evaluation(), w.publication("result"))))
			want[fencepost.Renewed](w, "Renew", w.renew(d, l))
		}},
		{"complete/unclaimed/Lost", 0, func(w *world) {
			l := w.acquire(w.permanent("a"))
			d := w.permanent("b")
			want[fencepost.Lost](w, "Complete", w.complete(d, w.restore(d, l.Evaluation(), w.publication("result"))))
			want[fencepost.Acquired](w, "Claim", w.claim(d))
		}},
		{"complete/other-delivery/Lost", 0, func(w *world) {
			_, s := w.stageNew(w.permanent("a"), "result")
			w.stageNew(w.permanent("b"), "result")
			want[fencepost.Lost](w, "Complete", w.complete(w.permanent("b"), s))
		}},
		{"complete/other-binding/Lost", 0, func(w *world) {
			_, s := w.stageNew(w.permanent("a"), "result")
			want[fencepost.Lost](w, "Complete", w.complete(w.conflicting("a"), s))
			want[fencepost.Completed](w, "Complete", w.complete(w.permanent("a"), s))
		}},
	}
}
