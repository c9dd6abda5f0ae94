package github

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/gate"
)

// An answer is a response whose body was read to its end.
type answer struct {
	url    string
	status int
	header http.Header
	body   []byte
}

// forbiddenWait is how long a 403 that names no limit is held to last: it may
// be a secondary rate limit, where GitHub wants at least a minute.
const forbiddenWait = time.Minute

// A StatusError is an answer that was not the one hoped for.
type StatusError struct {
	// Code is the HTTP status.
	Code int
}

// Error names the status.
func (e *StatusError) Error() string { return fmt.Sprintf("answered %d", e.Code) }

// A movedError is a redirect. It is never followed; location is what the
// server said, unproven.
type movedError struct{ location string }

// Error says so.
func (e *movedError) Error() string { return "redirected; a renamed repository?" }

// A tokenRefusedError is a 401; date is when it was, by GitHub's clock.
type tokenRefusedError struct {
	token fencepost.Secret
	date  string
}

// Error says so.
func (e *tokenRefusedError) Error() string { return "the token was refused" }

// A briefError is a failure that may be gone a moment later. Its text is our
// own: a library's could hold URLs and addresses.
type briefError struct {
	text  string
	cause error
}

// Error returns our own text.
func (e *briefError) Error() string { return e.text }

// Unwrap returns the library's error.
func (e *briefError) Unwrap() error { return e.cause }

// judge turns an answer into a result or a typed error.
func (c *Client) judge(k call, a *answer, held *cached, token fencepost.Secret, limited time.Time) (*answer, error) {
	fail := func(why fencepost.Reason, err error) error {
		return &fencepost.Error{Op: k.op, Reason: why, Err: err}
	}
	status := &StatusError{Code: a.status}
	switch {
	case !limited.IsZero():
		return nil, &gate.WaitError{Until: limited, Err: fail(fencepost.ReasonRateLimited, status)}
	case a.status == http.StatusNotModified && held != nil:
		return &answer{url: held.url, status: http.StatusOK, header: held.header, body: held.body}, nil
	case a.status == http.StatusNotModified && k.etag != "":
		*k.unchanged = true
		return a, nil
	case a.status >= 200 && a.status < 300:
		return a, nil
	case a.status >= 300 && a.status < 400:
		return nil, fail(fencepost.ReasonProvider, &movedError{location: a.header.Get("Location")})
	case a.status == http.StatusUnauthorized:
		return nil, fail(fencepost.ReasonCredential, &tokenRefusedError{token: token, date: a.header.Get("Date")})
	case a.status == http.StatusForbidden:
		return nil, &gate.WaitError{Until: c.now().Add(forbiddenWait), Err: fail(fencepost.ReasonCredential, status)}
	case a.status >= 500:
		return nil, fail(fencepost.ReasonProvider, c.serverError(k, a))
	default:
		return nil, fail(fencepost.ReasonProvider, status)
	}
}

// serverError is a 5xx. The server may have taken a write before it failed.
func (c *Client) serverError(k call, a *answer) error {
	var err error = &briefError{text: fmt.Sprintf("answered %d", a.status), cause: &StatusError{Code: a.status}}
	if after, ok := headerInt(a.header, "Retry-After"); ok && after > 0 {
		wait := min(time.Duration(after)*time.Second, maxRetryAfter)
		err = &gate.WaitError{Until: c.now().Add(wait), Err: &StatusError{Code: a.status}}
	}
	return unknown(k, err)
}

// unknown marks the failure of a request that may have changed something.
func unknown(k call, err error) error {
	if k.repeatable() {
		return err
	}
	return fmt.Errorf("%w: %w", gate.ErrUnknown, err)
}

// transportError is a request without a usable answer.
func transportError(k call, err error) error {
	brief := &briefError{text: "the connection failed", cause: err}
	op, _ := errors.AsType[*net.OpError](err)
	switch {
	case errors.Is(err, fencepost.ErrTooLarge):
		brief.text = "the answer is too large"
	case errors.Is(err, context.DeadlineExceeded):
		brief.text = "no answer in time"
	case errors.Is(err, context.Canceled):
		brief.text = "canceled"
	case op != nil && op.Op == "dial":
		// Nothing was sent.
		brief.text = "no connection"
		return &fencepost.Error{Op: k.op, Reason: fencepost.ReasonProvider, Err: brief}
	}
	return &fencepost.Error{Op: k.op, Reason: fencepost.ReasonProvider, Err: unknown(k, brief)}
}

// decode reads a 2xx answer. One that is cut short or not what its description
// says is a failure of the provider, and of a write an unknown outcome.
func (a *answer) decode(k call, into any) error {
	if k.secret {
		defer clear(a.body)
	}
	if into == nil || a.status == http.StatusNotModified {
		return nil
	}
	if err := decode(a.body, into); err != nil {
		brief := &briefError{text: "the answer is not the JSON that was to come", cause: err}
		return &fencepost.Error{Op: k.op, Reason: fencepost.ReasonProvider, Err: unknown(k, brief)}
	}
	return nil
}

// statusOf returns the HTTP status behind an error, 0 for none.
func statusOf(err error) int {
	if s, ok := errors.AsType[*StatusError](err); ok {
		return s.Code
	}
	return 0
}
