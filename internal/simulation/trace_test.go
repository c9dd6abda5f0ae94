package simulation

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fencepost/fencepost"
)

// An evKind says what an event tells.
type evKind uint8

const (
	// A sender was told that its delivery is recorded.
	evAcked evKind = iota + 1
	// Answers of the ledger, as a process got them.
	evAcquired
	evPublish
	evKnownDone
	evBusy
	evRefusedClaim
	evRenewed
	evStageAsked
	evStaged
	evCompleted
	// A gate was read.
	evRefreshed
	// A document was sent; the provider shows it.
	evSent
	evShown
	// A delivery has ended or was refused; it was taken out of an inbox.
	evEnded
	evRefused
	evTakenOut
	// For the story alone.
	evFault
	evLife
	evTold
	evCall
)

var evNames = [...]string{
	evAcked: "acknowledged", evAcquired: "acquired", evPublish: "told to publish", evKnownDone: "claim: completed",
	evBusy: "claim: busy", evRefusedClaim: "claim: refused", evRenewed: "renewed", evStageAsked: "asks to stage", evStaged: "staged", evCompleted: "completed",
	evRefreshed: "gate read", evSent: "SENT", evShown: "SHOWN", evEnded: "ended", evRefused: "refused", evTakenOut: "taken out",
	evFault: "FAULT", evLife: "process", evTold: "event", evCall: "",
}

// An event is one thing that happened.
type event struct {
	// step is the token under which it happened, at the time since the start.
	step int
	at   time.Duration
	// sent is the step at which what it answers was asked.
	sent           int
	kind           evKind
	slot, delivery int
	fence          uint64
	eval           fencepost.EvaluationID
	revision       fencepost.GateRevision
	reason         fencepost.Reason
	text           string
}

// note takes an event of the present step.
func (s *Sim) note(e event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e.step, e.at = s.steps, s.now()
	s.window = append(s.window, e)
}

// flush brings the events of a step into one order: what several goroutines
// did under one token has none of its own.
func (s *Sim) flush() {
	s.mu.Lock()
	window := s.window
	s.window = s.spare[:0]
	s.spare = window
	s.mu.Unlock()
	if len(window) > 1 {
		slices.SortStableFunc(window, func(a, b event) int {
			return cmp.Or(cmp.Compare(a.slot, b.slot), cmp.Compare(a.delivery, b.delivery), cmp.Compare(a.step, b.step))
		})
	}
	for _, e := range window {
		s.digest(uint64(e.kind), uint64(e.slot), uint64(e.delivery), e.fence)
		if s.record {
			s.story = append(s.story, e)
		}
		s.judge(e)
	}
}

// digest takes numbers into the trace's hash.
func (s *Sim) digest(numbers ...uint64) {
	for _, n := range numbers {
		s.hash = (s.hash ^ n) * 0x9e3779b97f4a7c15
		s.hash ^= s.hash >> 29
	}
}

// fnv is FNV-1a (Fowler, Noll, Vo).
func fnv[T ~string | ~[]byte](data T) uint64 {
	h := uint64(0xcbf29ce484222325)
	for i := range len(data) {
		h = (h ^ uint64(data[i])) * 0x100000001b3
	}
	return h
}

// String is for people.
func (e event) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%6d %12s  ", e.step, e.at.Round(time.Microsecond))
	if e.slot >= 0 {
		fmt.Fprintf(&b, "p%d ", e.slot)
	} else {
		b.WriteString("   ")
	}
	if e.delivery >= 0 {
		fmt.Fprintf(&b, "d%d ", e.delivery)
	} else {
		b.WriteString("   ")
	}
	b.WriteString(evNames[e.kind])
	if e.fence != 0 {
		fmt.Fprintf(&b, " fence %d", e.fence)
	}
	if !e.eval.IsZero() {
		fmt.Fprintf(&b, " %.10s", e.eval)
	}
	if e.sent != 0 {
		fmt.Fprintf(&b, " (asked at %d)", e.sent)
	}
	if e.reason != "" {
		fmt.Fprintf(&b, " reason %s", e.reason)
	}
	if e.kind == evRefreshed || e.kind == evSent {
		fmt.Fprintf(&b, " revision %.8s", e.revision)
	}
	if e.text != "" {
		b.WriteString(" " + short(e.text))
	}
	return b.String()
}

// short is a document as the story has it.
func short(text string) string {
	if !strings.HasPrefix(text, "{") {
		return text
	}
	return fmt.Sprintf("document %08x of %d bytes", uint32(fnv(text)), len(text))
}

// Story is what happened, for people.
func (s *Sim) Story() string {
	var b strings.Builder
	fmt.Fprintf(&b, "seed %d: %d processes, %d deliveries, %d faults planned\n", s.seed, len(s.slots), len(s.deliveries), s.plannedCount)
	for i, d := range s.deliveries {
		fmt.Fprintf(&b, "d%d is %s, body %q\n", i, d.id, d.body)
	}
	b.WriteString("  step         time  who    what\n")
	for _, e := range s.story {
		b.WriteString(e.String())
		b.WriteByte('\n')
	}
	return b.String()
}
