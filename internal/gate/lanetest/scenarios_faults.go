package lanetest

import (
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/gate"
)

func isWrite(c Call) bool { return c.Write }

// lostAnswer: for each write whose answer is lost, what it did is looked up, and
// it is not sent again.
func lostAnswer(r *rig) {
	q := r.world.Open(r, false)
	r.eachWrite(q, func(r *rig, op string) {
		r.wire.disturb(fault{match: func(c Call) bool { return c.Op == op }})
	}, 1)
}

// lostWrite: a write that never arrived is sent again, once it was looked for in
// vain.
func lostWrite(r *rig) {
	q := r.world.Open(r, false)
	r.eachWrite(q, func(r *rig, op string) {
		r.wire.disturb(fault{match: func(c Call) bool { return c.Op == op }, effect: effect{before: true}})
	}, 2)
}

// eachWrite has a verdict made for each kind of write that one is shown by, with
// it disturbed, and wants that it was sent so often and is shown once.
func (r *rig) eachWrite(q Request, disturb func(r *rig, op string), want int) {
	r.Helper()
	r.verdict(q)
	ops := writesIn(r.wire.since(0))
	if len(ops) == 0 {
		r.Fatal("nothing was written")
	}
	for op := range ops {
		from := r.wire.len()
		disturb(r, op)
		d := r.verdict(q)
		r.wire.calm()
		r.wantShown(q, d, gate.Pass)
		for did, n := range writesIn(r.wire.since(from)) {
			if wanted := map[bool]int{true: want, false: 1}[did == op]; n != wanted {
				r.Errorf("%s disturbed: %s was sent %d times, want %d\n%s", op, did, n, wanted, r.journal)
			}
		}
	}
	r.wantLocked(q, false)
	r.wantCalm()
}

// exhaustive names the environment variable that has every call of every reading
// fail, where otherwise each fails in one reading.
const exhaustive = "FENCEPOST_EXHAUSTIVE"

// spread leaves of the calls that several readings make one, of each reading
// another.
func spread(calls []Call) (some []Call) {
	readings := map[string][]Call{}
	for _, c := range calls {
		if strings.HasPrefix(c.Span, spanRefresh+" ") {
			key := c.Op + "?" + c.Query
			readings[key] = append(readings[key], c)
		}
	}
	turn := 0
	for _, c := range calls {
		same := readings[c.Op+"?"+c.Query]
		switch {
		case !strings.HasPrefix(c.Span, spanRefresh+" "):
			some = append(some, c)
		case c == same[0]:
			some = append(some, same[turn%len(same)])
			turn++
		}
	}
	return some
}

// oneInTwo leaves the first call of each two.
func oneInTwo(calls []Call) (some []Call) {
	for two := range slices.Chunk(calls, 2) {
		some = append(some, two[0])
	}
	return some
}

// stumbles: whichever call of an evaluation is answered by a server error for as
// long as its reading or publication is tried, the evaluation ends as it would
// have, and its result is shown once.
func stumbles(r *rig) {
	q := r.world.Open(r, false)
	r.verdict(q)
	calls := distinct(r.wire.since(0))
	if os.Getenv(exhaustive) == "" {
		calls = spread(calls)
		if r.suite.Twin {
			calls = oneInTwo(calls)
		}
	}
	for i, c := range calls {
		status := []int{http.StatusInternalServerError, http.StatusBadGateway, http.StatusServiceUnavailable}[i%3]
		met := 0
		r.wire.disturb(fault{times: -1, match: c.like,
			effect: effect{status: status, run: func() { met++ }}})
		d := r.verdict(q)
		r.wire.calm()
		if met == 0 {
			r.Errorf("%s was not made again", c)
		}
		r.wantShown(q, d, gate.Pass)
		r.wantCalm()
		if r.Failed() {
			r.Fatalf("%s was answered %d", c, status)
		}
	}
	r.wantLocked(q, false)
	if len(calls) < 5 {
		r.Errorf("only %d calls were disturbed: %v", len(calls), calls)
	}
}

// like reports whether a call of another evaluation is the same one: what it made
// has other numbers.
func (c Call) like(other Call) bool {
	return c.Span == other.Span && c.Query == other.Query && unnumbered(c.Op) == unnumbered(other.Op)
}

func unnumbered(op string) string { return strings.TrimRight(op, "0123456789") }

// distinct lists calls once each, in order.
func distinct(calls []Call) []Call {
	var some []Call
	for _, c := range calls {
		c.At = time.Time{}
		if !slices.Contains(some, c) {
			some = append(some, c)
		}
	}
	return some
}

// limited: who is told to wait sends nothing for so long, nor counts it as a
// failure, and goes on when the time has come: where it reads, and where it
// writes.
func limited(r *rig) {
	const wait = 40 * time.Second
	// A lane that does not say until when is tried again after this.
	r.limits.Backoff, r.limits.MaxBackoff = moment/2, moment/2
	q := r.world.Open(r, false)
	places := []string{"reading", "writing"}
	if r.suite.Fetched {
		places = places[:1]
	}
	for _, where := range places {
		told := make(chan string, 1) // by whom it was heard
		heard := ""
		r.wire.disturb(fault{
			match: func(c Call) bool {
				heard = c.Span
				return c.Write == (where == "writing")
			},
			effect: effect{status: http.StatusTooManyRequests, after: wait, run: func() { told <- heard }},
		})
		from := r.wire.len()
		d := r.deliver(r.world.Event(r, q))
		p := r.start()
		r.quiet(p, d, from, <-told)
		r.clock.advance(wait + time.Second)
		p.pool.Wake(d.Key())
		r.settle()
		p.end()
		r.wantShown(q, d, gate.Pass)
		for _, e := range r.journal.of(d.ID()) {
			if e.Attempt > 1 {
				r.Errorf("%s: to be told to wait was counted as a failure: %+v", where, e)
			}
		}
	}
	r.wantCalm()
}

// quiet fails if a lane calls its provider although it was told to wait, also
// when it is woken. What was under way with the call that was told may come
// still.
func (r *rig) quiet(p *process, d fencepost.AcceptedDelivery, from int, heard string) {
	r.Helper()
	pause := time.NewTimer(moment)
	defer pause.Stop()
	<-pause.C
	p.pool.Wake(d.Key())
	pause.Reset(moment)
	<-pause.C
	told := false
	for _, c := range r.wire.since(from) {
		told = told || c.Span == heard
		if told && c.Span != heard {
			r.Errorf("%s was called, though %s was told to wait", c, heard)
		}
	}
	if left, _ := r.queue.left(); left != 1 {
		r.Errorf("%d deliveries wait, want 1", left)
	}
}

// crashed: a process that dies between what the provider took and what the
// ledger was told of it leaves a result that the next one finds and writes no
// second time.
func crashed(r *rig) {
	q := r.world.Open(r, false)
	r.verdict(q)
	// The last write is the one after which a result is whole.
	last := ""
	for _, c := range r.wire.since(0) {
		if c.Write {
			last = c.Op
		}
	}
	from := r.wire.len()
	first := r.start()
	r.wire.disturb(fault{match: func(c Call) bool { return c.Op == last }, effect: effect{pass: true, run: first.kill}})
	d := r.deliver(r.world.Event(r, q))
	<-first.disk.Done()
	first.end()
	r.work()
	r.wantShown(q, d, gate.Pass)
	r.wantWrittenOnce(r.wire.since(from))
	r.wantRuns(2)
}

// stale: a worker whose lease has passed while it ran stages and publishes
// nothing; the one that took over does.
func stale(r *rig) {
	q := r.world.Open(r, false)
	held, go_ := make(chan struct{}), make(chan struct{})
	r.program.set(false, func(run int, _ string) {
		if run == 1 {
			close(held)
			<-go_
		}
	})
	d := r.deliver(r.world.Event(r, q))
	slow := r.start()
	<-held
	r.clock.advance(2 * lease)
	r.work()
	r.wantShown(q, d, gate.Pass)
	before := r.wire.len()
	close(go_)
	slow.end()
	if n := writesIn(r.wire.since(before)); len(n) > 0 {
		r.Errorf("the worker without a lease wrote %v", n)
	}
	r.wantFencesGrow(d)
	r.wantShown(q, d, gate.Pass)
	r.wantWrittenOnce(r.wire.since(0))
}

// wantFencesGrow fails unless two claims have happened, under growing fences.
func (r *rig) wantFencesGrow(d fencepost.AcceptedDelivery) {
	r.Helper()
	var fences []uint64
	for _, e := range r.journal.of(d.ID()) {
		if e.Kind == gate.KindClaimed {
			fences = append(fences, e.Fence)
		}
	}
	if len(fences) != 2 || fences[0] >= fences[1] {
		r.Errorf("fences %v of the claims, want two that grow", fences)
	}
}
