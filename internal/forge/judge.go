package forge

import (
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

// judge turns a status into an error with a reason. contracts/gitea.md §4,
// contracts/gitlab.md §8
func (c *Client) judge(q Request, status int, h http.Header) error {
	answered := &StatusError{Code: status}
	switch {
	case status == http.StatusOK, status == http.StatusCreated && q.writes():
		return nil
	case status == http.StatusNotFound && !q.writes(), status == http.StatusNotModified && q.ETag != "":
		return nil
	case status == http.StatusTooManyRequests, status == http.StatusServiceUnavailable && h.Get("Retry-After") != "":
		return &WaitError{Until: c.beQuiet(c.wait(h)), Err: Fail(q.Op, fencepost.ReasonRateLimited, answered)}
	case status == http.StatusUnauthorized, status == http.StatusForbidden:
		return Fail(q.Op, fencepost.ReasonCredential, answered)
	case status >= 300 && status < 400:
		return Fail(q.Op, fencepost.ReasonIdentity, errors.New("the address leads to another: renamed or transferred"))
	case q.writes() && status >= http.StatusInternalServerError:
		return Fail(q.Op, fencepost.ReasonProvider, fmt.Errorf("%w: %w", ErrUnanswered, answered))
	}
	return Fail(q.Op, fencepost.ReasonProvider, answered)
}

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

// beQuiet lets no request leave for d, and returns when the next may.
func (c *Client) beQuiet(d time.Duration) time.Time {
	until := c.config.Now().Add(min(d, c.config.Limits.MaxQuiet))
	c.mu.Lock()
	defer c.mu.Unlock()
	if until.After(c.quiet) {
		c.quiet = until
	}
	return c.quiet
}
