package gate

import "context"

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
