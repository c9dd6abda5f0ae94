package fencepost

import "errors"

// Sentinels that errors of this package match.
var (
	// ErrMalformed: a value does not have its one legal form.
	ErrMalformed = errors.New("malformed")
	// ErrUnauthenticated: the bytes did not authenticate; why is not said.
	ErrUnauthenticated = errors.New("unauthenticated")
	// ErrCheckUsed: an [IngressCheck] authenticates once.
	ErrCheckUsed = errors.New("ingress check already used")
	// ErrZeroValue: a value that only its maker can make was not made by it.
	ErrZeroValue = errors.New("zero value where a made one is needed")
	// ErrSignedTime: the proof carries a signed time where the route's rule
	// excludes one, lacks one where it demands one, or its age is over the
	// ceiling.
	ErrSignedTime = errors.New("signed time against the route's rule")
	// ErrTooLarge: a value is over its bound.
	ErrTooLarge = errors.New("too large")
)

// An Error is a failure whose Reason may be shown to anyone. Err is for the
// log.
type Error struct {
	// Op names what was being done, as package.verb: "ledger.claim".
	Op string
	// Reason is the public code.
	Reason Reason
	// Err is the cause; it may be nil.
	Err error
}

// Error returns Op, Reason and the cause in one line.
func (e *Error) Error() string {
	s := e.Op + ": " + string(e.Reason)
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// ReasonOf returns the reason of the first [Error] in err's chain,
// [ReasonNone] for nil, and [ReasonUnavailable] for an error without one.
func ReasonOf(err error) Reason {
	if err == nil {
		return ReasonNone
	}
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Reason
	}
	return ReasonUnavailable
}
