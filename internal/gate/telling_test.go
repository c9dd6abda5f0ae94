package gate_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fencepost/fencepost/internal/gate"
)

// A journal keeps events in memory.
type journal struct {
	mu     sync.Mutex
	events []gate.Event
	fail   error
}

func (j *journal) Record(_ context.Context, e gate.Event) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.fail != nil {
		return j.fail
	}
	j.events = append(j.events, e)
	return nil
}

func (j *journal) setFail(err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.fail = err
}

func (j *journal) all() []gate.Event {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Clone(j.events)
}

// kinds is the transcript of what happened, in short.
func (j *journal) kinds() string {
	var out []string
	for _, e := range j.all() {
		text := string(e.Kind)
		if e.Reason != "" {
			text += ":" + string(e.Reason)
		}
		out = append(out, text)
	}
	return strings.Join(out, " ")
}

func (j *journal) String() string {
	var b strings.Builder
	for _, e := range j.all() {
		fmt.Fprintf(&b, "%s %s %s fence %d attempt %d %s %v\n", e.At.Format(time.TimeOnly), e.Delivery, e.Kind, e.Fence, e.Attempt, e.Reason, e.Details)
	}
	return b.String()
}

// alerts keeps the open ones, and counts all.
type alerts struct {
	mu     sync.Mutex
	open   map[string]gate.Alert
	raised []string
}

func (a *alerts) Raise(al gate.Alert) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.open[string(al.Code)+" "+al.Subject] = al
	a.raised = append(a.raised, string(al.Code)+":"+string(al.Reason))
}

func (a *alerts) Resolve(code gate.AlertCode, subject string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.open, string(code)+" "+subject)
}

func (a *alerts) all() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.raised)
}

func (a *alerts) opened() map[string]gate.Alert {
	a.mu.Lock()
	defer a.mu.Unlock()
	return maps.Clone(a.open)
}

func (a *alerts) wasRaised(want string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Contains(a.raised, want)
}

func (a *alerts) isOpen(code gate.AlertCode) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	for k := range a.open {
		if strings.HasPrefix(k, string(code)+" ") {
			return true
		}
	}
	return false
}
