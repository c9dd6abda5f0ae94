package gate

import (
	"context"
	"sync"

	"github.com/fencepost/fencepost"
)

// stuck is a wait that nothing else tells of: giveBack does.
func stuck(ctx context.Context, op string, err error) later {
	return later{why: reasonOf(ctx, err), untold: op}
}

// A stall is an alert that those share who wait for the same mend. The zero
// stall is none.
type stall struct {
	code    AlertCode
	subject string
}

// stallOf says which alert a wait is worth. Stores that are broken or full are
// one of the whole gate; what merely fails is one of the delivery, and only
// once it has failed as often as an evaluation may.
func (w *work) stallOf(e later) stall {
	subject := string(w.deliveryID())
	if w.gate != nil {
		subject = string(w.gate.Name)
	}
	switch e.why {
	case fencepost.ReasonCorrupt, fencepost.ReasonPoisoned, fencepost.ReasonParameters:
		return stall{AlertLedgerCorrupt, subject}
	case fencepost.ReasonFull:
		return stall{AlertLedgerCapacity, subject}
	case fencepost.ReasonDraining:
		return stall{}
	}
	if e.untold == "" || w.task.retries < w.pool.Limits.Attempts {
		return stall{}
	}
	return stall{AlertRetriesExhausted, string(w.deliveryID())}
}

// stalls counts the tasks of each stall: it is raised with the first one, and
// ends with the last.
type stalls struct {
	alerts Alerts

	mu    sync.Mutex
	tasks map[stall]int // guarded by mu, which is held over alerts so that they come in order
}

func newStalls(a Alerts) *stalls { return &stalls{alerts: a, tasks: map[stall]int{}} }

// move makes to the stall that t is in. t is the caller's.
func (s *stalls) move(t *task, to stall, why fencepost.Reason) {
	from := t.stall
	if from == to {
		return
	}
	t.stall = to
	s.mu.Lock()
	defer s.mu.Unlock()
	if to != (stall{}) {
		s.tasks[to]++
		if s.tasks[to] == 1 {
			s.alerts.Raise(Alert{Code: to.code, Subject: to.subject, Reason: why})
		}
	}
	if from != (stall{}) {
		s.tasks[from]--
		if s.tasks[from] == 0 {
			delete(s.tasks, from)
			s.alerts.Resolve(from.code, from.subject)
		}
	}
}

// over resolves alerts of a subject that went well, those of an earlier process
// among them, unless somebody still waits for their mend.
func (s *stalls) over(subject string, codes ...AlertCode) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, code := range codes {
		if s.tasks[stall{code, subject}] == 0 {
			s.alerts.Resolve(code, subject)
		}
	}
}
