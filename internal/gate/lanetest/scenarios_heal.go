package lanetest

import (
	"context"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/gate"
)

// madeReady: a draft gets no result. Of one that is made ready without a word of
// it, people are told, and the next event heals it.
func madeReady(r *rig) {
	q := r.world.Open(r, false)
	r.world.Draft(r, q, true)
	d := r.verdict(q)
	r.wantEnd(d, fencepost.ReasonDraft)
	r.wantMissed(q, d, func() { r.world.Draft(r, q, false) })
}

// reopened: the same of a request that was closed while it was judged.
func reopened(r *rig) {
	q, d := r.inTheRun(func(q Request) { r.world.Close(r, q) })
	r.wantEnd(d, fencepost.ReasonClosed, fencepost.ReasonSuperseded)
	r.wantMissed(q, d, func() { r.world.Reopen(r, q) })
}

// wantMissed fails unless the request, which a delivery has ended for without a
// result, is healed when it comes back and the event that says so is lost: it is
// noticed once it is back, and not before, and forgotten with the next event.
func (r *rig) wantMissed(q Request, d fencepost.AcceptedDelivery, back func()) {
	r.Helper()
	r.wantNothing(q, d)
	paper := r.notebook(r.disk.Process())
	g := gate.Watched{Gate: "docs"}
	lane := r.world.Gate(r).Lane
	watcher, ok := lane.(gate.Watcher)
	if !ok {
		r.Fatal("the lane is no gate.Watcher")
	}
	g.Watcher = watcher
	g.Log, _ = lane.(gate.DeliveryLog)
	alerts := newAlerts()
	var seen gate.HealReport
	var failed error
	looked := func() {}
	healer, err := gate.NewHealer(gate.HealConfig{
		Gates: []gate.Watched{g}, Standings: paper, Alerts: alerts, Now: r.clock.now,
		Report: func(report gate.HealReport, err error) {
			seen, failed = report, err
			looked()
		},
	})
	r.must(err)
	look := func(want int, when string) {
		r.Helper()
		// Events have time to come before they count as lost.
		r.clock.advance(time.Hour)
		ctx, cancel := context.WithCancel(r.Context())
		defer cancel()
		looked = cancel
		r.must(healer.Run(ctx))
		r.must(failed)
		if seen.Unknown != want || seen.Asked+seen.Missed != want || len(alerts.left()) != seen.Missed {
			r.Errorf("%s: %+v and alerts %+v, want %d unknown, and that asked for or told of\n%s", when, seen, alerts.left(), want, r.journal)
		}
	}
	look(0, "as it ended")
	back()
	look(1, "as it came back")
	r.program.set(false, nil)
	next := r.verdict(q)
	r.wantShown(q, next, gate.Pass)
	r.wantLocked(q, false)
	look(0, "with a result")
	r.must(paper.Close())
}
