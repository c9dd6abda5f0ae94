package gate

import (
	"context"
	"errors"

	"github.com/fencepost/fencepost"
)

// A Finding is a [Fact] about a gate's provider that can be seen without an
// event, and what mends it.
type Finding struct {
	Fact
	// Mend is what to do where the fact is not met; it is of our own making.
	Mend string
	// Advice is set where the gate works also while it is not met.
	Advice bool
	// Skipped is why it could not be looked at; "": it was.
	Skipped string
}

// An Examiner is a [Lane] that can look at what its gate needs of the provider
// before there is an event: rights, rule, webhook.
type Examiner interface {
	// Examine reads it and changes nothing. What can't be read is a finding
	// like the rest. It is safe for concurrent use.
	Examine(ctx context.Context) []Finding
}

// An Examination collects findings. The zero value is empty.
type Examination struct{ Findings []Finding }

// Need adds what a gate can't do without.
func (e *Examination) Need(name, want, seen, mend string) {
	e.Findings = append(e.Findings, Finding{Fact: Fact{Name: name, Expected: want, Observed: seen}, Mend: mend})
}

// Advise adds what a gate works without.
func (e *Examination) Advise(name, want, seen, mend string) {
	e.Findings = append(e.Findings, Finding{Fact: Fact{Name: name, Expected: want, Observed: seen}, Mend: mend, Advice: true})
}

// Skip adds what could not be looked at.
func (e *Examination) Skip(name, why string) {
	e.Findings = append(e.Findings, Finding{Fact: Fact{Name: name}, Skipped: why})
}

// Told is an error of a lane's client in the words that it is of: the client's
// own, of which none is a provider's or a library's.
func Told(err error) string {
	if e, ok := errors.AsType[*fencepost.Error](err); ok && e.Err != nil {
		return string(e.Reason) + ": " + e.Err.Error()
	}
	return string(fencepost.ReasonOf(err))
}
