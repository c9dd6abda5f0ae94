package simulation

import (
	"fmt"
	"slices"
	"strings"

	"github.com/fencepost/fencepost"
)

// An oracle is what the trace has shown of one delivery, told apart from
// everything that the controllers believe.
//
// It knows the order of the steps at which things were asked and answered, and
// nothing of what is inside: what was asked after something else had been
// answered must agree with it.
type oracle struct {
	acked    bool
	eval     fencepost.EvaluationID
	fences   []granted
	asked    []asked
	staged   string // the text of what is staged, "" before
	stagedAt int    // the step of the first answer that said so
	// completedAt is the step of the first answer that said so; 0 before.
	completedAt int
	documents   []string // distinct ones that were sent
	sent, shown int
	ended       []fencepost.Reason
	refused     []fencepost.Reason
	takenOut    bool

	// announced is the step of the last note of each slot.
	announced map[int]int

	// attempts are of each slot: since when it may publish, and what it read
	// of the gate since.
	attempts map[int]*attempt
}

// A granted is one lease: its fence, and the steps at which it was asked for
// and answered.
type granted struct {
	fence     uint64
	sent, got int
	slot      int
}

// An asked is one request to stage: it may have had its effect though its
// answer was lost.
type asked struct {
	fence uint64
	sent  int
	text  string
}

type attempt struct {
	since    int
	revision fencepost.GateRevision
	read     bool
}

// A Violation is something that must never happen.
type Violation struct {
	// Rule names the invariant, as DESIGN §2 numbers them.
	Rule string
	Text string
}

// Error says what rule is broken, and how.
func (v Violation) Error() string { return v.Rule + ": " + v.Text }

// broken notes a violation.
func (s *Sim) broken(rule, format string, args ...any) {
	s.violations = append(s.violations, Violation{rule, fmt.Sprintf(format, args...)})
}

// judge holds an event against what came before it.
func (s *Sim) judge(e event) {
	if e.delivery < 0 {
		if e.kind == evShown {
			s.broken("7", "the provider shows what is of no delivery")
		}
		return
	}
	o := s.oracles[e.delivery]
	switch e.kind {
	case evAcked:
		o.acked = true
	case evAcquired:
		s.judgeGrant(o, e)
		if o.stagedAt != 0 && e.sent > o.stagedAt {
			s.broken("6", "d%d: an execution lease (fence %d) after it was staged", e.delivery, e.fence)
		}
		o.attempts[e.slot] = &attempt{since: e.step}
	case evPublish:
		s.judgeGrant(o, e)
		s.judgeStaged(o, e)
		o.attempts[e.slot] = &attempt{since: e.step}
		s.setPhase(e.slot, e.delivery, Looking)
	case evKnownDone:
		if o.stagedAt == 0 {
			s.broken("3", "d%d: completed without having been staged", e.delivery)
		}
		o.complete(e.step)
	case evRenewed:
		s.judgeHolder(o, e, "renewed")
	case evStageAsked:
		o.asked = append(o.asked, asked{e.fence, e.sent, e.text})
	case evStaged:
		if !o.eval.IsZero() && e.eval != o.eval {
			s.broken("4", "d%d: staged as %s, was %s", e.delivery, e.eval, o.eval)
		}
		if e.text != o.staged && !o.mayBeStaged(e) {
			// The same value is Staged to everybody.
			s.judgeHolder(o, e, "staged")
		}
		s.judgeStaged(o, e)
		o.attempts[e.slot] = &attempt{since: e.step}
		s.setPhase(e.slot, e.delivery, Looking)
	case evCompleted:
		s.judgeStaged(o, e)
		o.complete(e.step)
	case evRefreshed:
		if a := o.attempts[e.slot]; a != nil && e.sent > a.since {
			a.read, a.revision = true, e.revision
		}
	case evSent:
		s.judgeSent(o, e)
	case evShown:
		o.shown++
		s.judgeDocument(o, e)
	case evEnded:
		o.ended = append(o.ended, e.reason)
	case evRefused:
		o.refused = append(o.refused, e.reason)
		if e.reason != fencepost.ReasonExpired || !s.wallMoved {
			s.broken("3", "d%d: refused as %s", e.delivery, e.reason)
		}
	case evTakenOut:
		o.takenOut = true
	}
}

// end is how the delivery ended, for people.
func (o *oracle) end() string {
	switch {
	case len(o.refused) > 0:
		return "refused " + string(o.refused[0])
	case len(o.ended) == 0:
		return "none"
	case o.shown > 0:
		return "shown"
	case strings.HasPrefix(o.staged, nonePrefix):
		return o.staged
	}
	return "moved on before it was shown"
}

func (o *oracle) complete(step int) {
	if o.completedAt == 0 {
		o.completedAt = step
	}
}

// judgeGrant: one evaluation id for ever, and fences that grow.
func (s *Sim) judgeGrant(o *oracle, e event) {
	if o.eval.IsZero() {
		o.eval = e.eval
	}
	if o.eval != e.eval {
		s.broken("4", "d%d: evaluation %s, was %s", e.delivery, e.eval, o.eval)
	}
	for _, g := range o.fences {
		if g.fence == e.fence {
			s.broken("5", "d%d: fence %d was granted twice", e.delivery, e.fence)
		}
		if e.sent > g.got && e.fence < g.fence {
			s.broken("5", "d%d: fence %d after fence %d", e.delivery, e.fence, g.fence)
		}
	}
	o.fences = append(o.fences, granted{e.fence, e.sent, e.step, e.slot})
}

// judgeHolder: nobody with an older fence is told yes.
func (s *Sim) judgeHolder(o *oracle, e event, what string) {
	for _, g := range o.fences {
		if g.fence > e.fence && e.sent > g.got {
			s.broken("5", "d%d: %s under fence %d, after fence %d was granted at step %d", e.delivery, what, e.fence, g.fence, g.got)
		}
	}
	if !slices.ContainsFunc(o.fences, func(g granted) bool { return g.fence == e.fence && g.slot == e.slot }) {
		s.broken("5", "d%d: %s under fence %d, which this process was not granted", e.delivery, what, e.fence)
	}
	if what == "renewed" && o.stagedAt != 0 && e.sent > o.stagedAt {
		s.broken("6", "d%d: renewed to run after it was staged", e.delivery)
	}
}

// mayBeStaged reports whether a holder of a newer fence asked for the same
// value, and was not overtaken itself when it did. DESIGN §5
func (o *oracle) mayBeStaged(e event) bool {
	return slices.ContainsFunc(o.asked, func(a asked) bool {
		return a.fence > e.fence && a.text == e.text && !slices.ContainsFunc(o.fences, func(g granted) bool {
			return g.fence > a.fence && a.sent > g.got
		})
	})
}

// judgeStaged: one value for ever.
func (s *Sim) judgeStaged(o *oracle, e event) {
	if o.stagedAt == 0 {
		o.staged, o.stagedAt = e.text, e.step
		return
	}
	if o.staged != e.text {
		s.broken("7", "d%d: %s is staged, was %s", e.delivery, short(e.text), short(o.staged))
	}
}

// judgeSent: staged before, those bytes, and by a worker that has read the gate
// in this attempt.
func (s *Sim) judgeSent(o *oracle, e event) {
	s.judgeDocument(o, e)
	o.sent++
	if !slices.Contains(o.documents, e.text) {
		o.documents = append(o.documents, e.text)
	}
	if len(o.documents) > 1 {
		s.broken("7", "d%d: %d different documents were sent", e.delivery, len(o.documents))
	}
	if s.overtakenSince(o, e.slot) {
		// What was announced in time is on its way: its bytes may come once
		// more. Invariant 7
		s.deliveries[e.delivery].late = true
	}
	a := o.attempts[e.slot]
	switch {
	case a == nil || !a.read:
		s.broken("9", "d%d: sent without having read the gate in this attempt", e.delivery)
	case !e.revision.IsZero() && a.revision != e.revision:
		s.broken("9", "d%d: sent for gate %.8s, which is %.8s", e.delivery, e.revision, a.revision)
	}
}

// overtakenSince reports whether somebody else was granted the delivery after
// this process had announced its write.
func (s *Sim) overtakenSince(o *oracle, slot int) bool {
	var own uint64
	for _, g := range o.fences {
		if g.slot == slot {
			own = max(own, g.fence)
		}
	}
	for _, g := range o.fences {
		if g.slot != slot && g.fence > own && g.got > o.announced[slot] {
			return true
		}
	}
	return false
}

func (s *Sim) judgeDocument(o *oracle, e event) {
	switch {
	case o.stagedAt == 0:
		s.broken("6", "d%d: %s before anything was staged", e.delivery, evNames[e.kind])
	case e.text != o.staged:
		s.broken("7", "d%d: %s is not what is staged", e.delivery, evNames[e.kind])
	}
}

// judgeEnd holds the end of the run against what was promised.
func (s *Sim) judgeEnd() {
	for i, o := range s.oracles {
		copies := 0
		if !o.eval.IsZero() {
			copies = len(s.provider.copies(o.eval))
		}
		if copies > 1 && !s.deliveries[i].late {
			s.broken("7", "d%d: shown %d times", i, copies)
		}
		if !o.acked {
			continue
		}
		switch {
		case !o.hasEnd():
			s.broken("3", "d%d was acknowledged and has no end", i)
		case len(o.refused) == 0 && o.completedAt == 0:
			s.broken("3", "d%d ended without being completed", i)
		case o.completedAt != 0 && copies == 0 && s.wouldShow(o):
			s.broken("7", "d%d is completed and not shown, and its gate has not moved", i)
		}
	}
}

// hasEnd reports whether the delivery was ended or refused, and taken out.
func (o *oracle) hasEnd() bool { return len(o.ended)+len(o.refused) > 0 && o.takenOut }

// wouldShow reports whether what is staged is for the gate as it is now. Gates
// move forward alone, so that it was for the gate at all times since.
func (s *Sim) wouldShow(o *oracle) bool {
	if strings.HasPrefix(o.staged, nonePrefix) {
		return false
	}
	v := s.provider.verdict(o.staged)
	now := s.provider.snapshot(v.Subject).Revision
	if v.Revision.IsZero() {
		return !now.IsZero()
	}
	return v.Revision == now
}
