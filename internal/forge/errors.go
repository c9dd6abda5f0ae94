package forge

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fencepost/fencepost"
)

// Sentinels that errors of clients match.
var (
	// ErrUnanswered: a write was sent, and whether it was done is not known.
	ErrUnanswered = errors.New("the write may have been done")
	// ErrTooManyPages: a list has more pages than are read.
	ErrTooManyPages = errors.New("the list has more pages than are read")
)

// A WaitError is a failure that is known to last until a certain time.
type WaitError struct {
	// Until is the earliest time at which asking again makes sense, by our
	// clock.
	Until time.Time
	// Err carries the reason.
	Err error
}

// Error says until when, and why.
func (e *WaitError) Error() string {
	return fmt.Sprintf("wait until %s: %v", e.Until.UTC().Format(time.RFC3339), e.Err)
}

// Unwrap returns the reason.
func (e *WaitError) Unwrap() error { return e.Err }

// A StatusError is an answer that was not the one hoped for.
type StatusError struct {
	// Code is the HTTP status.
	Code int
}

// Error names the status.
func (e *StatusError) Error() string { return fmt.Sprintf("answered %d", e.Code) }

// A brokenError is a request without a usable answer. Its text is our own: a
// library's could hold URLs and addresses.
type brokenError struct {
	text  string
	cause error
}

// Error returns our own text.
func (e *brokenError) Error() string { return e.text }

// Unwrap returns the library's error.
func (e *brokenError) Unwrap() error { return e.cause }

func broken(q Request, err error) error {
	e := &brokenError{text: "the connection failed", cause: err}
	switch {
	case errors.Is(err, fencepost.ErrTooLarge):
		e.text = "the answer is too large"
	case errors.Is(err, context.DeadlineExceeded):
		e.text = "no answer in time"
	case errors.Is(err, context.Canceled):
		e.text = "canceled"
	}
	if q.writes() {
		return Fail(q.Op, fencepost.ReasonProvider, fmt.Errorf("%w: %w", ErrUnanswered, e))
	}
	return Fail(q.Op, fencepost.ReasonProvider, e)
}

// Fail is the error of a call, with its public reason.
func Fail(op string, why fencepost.Reason, err error) error {
	return &fencepost.Error{Op: op, Reason: why, Err: err}
}
