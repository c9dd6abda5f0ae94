package gitlab

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/fencepost/fencepost"
)

// usualQuiet is how long a server is left alone that asks for it without saying
// how long.
const usualQuiet = time.Minute

// judge turns a status into an error with a reason. contracts/gitlab.md §8
func (c *Client) judge(op string, status int, h http.Header, conditional bool) error {
	answered := &StatusError{Code: status}
	switch {
	case status == http.StatusOK, status == http.StatusNotFound, status == http.StatusNotModified && conditional:
		return nil
	case status == http.StatusTooManyRequests, status == http.StatusServiceUnavailable && h.Get("Retry-After") != "":
		c.beQuiet(c.wait(h))
		return Fail(op, fencepost.ReasonRateLimited, answered)
	case status == http.StatusUnauthorized, status == http.StatusForbidden:
		return Fail(op, fencepost.ReasonCredential, answered)
	case status >= 300 && status < 400:
		return Fail(op, fencepost.ReasonIdentity, errors.New("the address leads to another: renamed or transferred"))
	}
	return Fail(op, fencepost.ReasonProvider, answered)
}

// A StatusError is an answer that was not the one hoped for.
type StatusError struct {
	// Code is the HTTP status.
	Code int
}

// Error names the status.
func (e *StatusError) Error() string { return fmt.Sprintf("answered %d", e.Code) }

// wait is for how long the server asks to be left alone: Retry-After in
// seconds, or else until RateLimit-Reset, a time in Unix seconds.
func (c *Client) wait(h http.Header) time.Duration {
	if n, err := strconv.ParseUint(h.Get("Retry-After"), 10, 31); err == nil {
		return time.Duration(n) * time.Second
	}
	if n, err := strconv.ParseInt(h.Get("RateLimit-Reset"), 10, 64); err == nil && n > 0 {
		if d := time.Unix(n, 0).Sub(c.config.Now()); d > 0 {
			return d
		}
	}
	return usualQuiet
}

func (c *Client) quietUntil() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.quiet
}

func (c *Client) beQuiet(d time.Duration) {
	until := c.config.Now().Add(min(d, c.config.Limits.MaxQuiet))
	c.mu.Lock()
	defer c.mu.Unlock()
	if until.After(c.quiet) {
		c.quiet = until
	}
}

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

func broken(op string, err error) error {
	e := &brokenError{text: "the connection failed", cause: err}
	switch {
	case errors.Is(err, fencepost.ErrTooLarge):
		e.text = "the answer is too large"
	case errors.Is(err, context.DeadlineExceeded):
		e.text = "no answer in time"
	case errors.Is(err, context.Canceled):
		e.text = "canceled"
	}
	return Fail(op, fencepost.ReasonProvider, e)
}

// Fail is the error of a call, with its public reason.
func Fail(op string, why fencepost.Reason, err error) error {
	return &fencepost.Error{Op: op, Reason: why, Err: err}
}
