package github

import (
	"errors"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/gate"
)

// Waits that GitHub's answers may ask for are taken within these bounds, so
// that no header can silence a gate for days.
const (
	secondaryWait    = time.Minute      // the first one where no header says how long
	maxSecondaryWait = 15 * time.Minute // its bound while it doubles
	maxRetryAfter    = time.Hour
	maxReset         = 2 * time.Hour
)

// A limiter holds one identity's standing with GitHub's rate limits. Going on
// against them can get an App banned, so while one is in force no request
// leaves.
type limiter struct {
	now     func() time.Time
	reserve int // percent

	mu sync.Mutex
	// Guarded by mu:
	until            time.Time // no request before
	strikes          int       // secondary limits in a row without a header
	limit, remaining int       // of the last answer that said so; limit 0: unknown
	reset            time.Time
}

// admit refuses a request that GitHub would, and a background one that would
// eat what live work needs.
func (l *limiter) admit(op string, background bool) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	if now.Before(l.until) {
		return waitError(op, l.until, fencepost.ReasonRateLimited, "held back")
	}
	if background && now.Before(l.reset) && l.remaining*100 < l.limit*l.reserve {
		return waitError(op, l.reset, fencepost.ReasonRateLimited, "the rest of the hour is for live work")
	}
	return nil
}

// learn reads the headers of an answer. If the answer is a rate limit it
// returns until when; a zero time else. contracts/github.md §5
func (l *limiter) learn(status int, h http.Header) time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	left, known := l.remember(h, now)
	refused := status == http.StatusForbidden || status == http.StatusTooManyRequests
	after, asked := headerInt(h, "Retry-After")
	switch {
	case refused && asked:
		l.until = now.Add(min(time.Duration(after)*time.Second, maxRetryAfter))
	case known && left == 0 && l.reset.After(now):
		// The next request would be refused, even if this one was not.
		l.until = l.reset
	case status == http.StatusTooManyRequests, refused && known && left == 0:
		wait := min(secondaryWait<<min(l.strikes, 8), maxSecondaryWait)
		l.strikes++
		l.until = now.Add(wait)
	default:
		if status < http.StatusBadRequest {
			l.strikes = 0
		}
		return time.Time{}
	}
	if !refused {
		return time.Time{}
	}
	return l.until
}

// remember takes the counters over. It is called with mu held.
func (l *limiter) remember(h http.Header, now time.Time) (remaining int64, known bool) {
	remaining, known = headerInt(h, "X-Ratelimit-Remaining")
	limit, okLimit := headerInt(h, "X-Ratelimit-Limit")
	reset, okReset := headerInt(h, "X-Ratelimit-Reset")
	if known && okLimit && okReset {
		l.remaining, l.limit = int(remaining), int(limit)
		// A second more: GitHub's clock and ours differ.
		l.reset = earlier(time.Unix(reset, 0).Add(time.Second), now.Add(maxReset))
	}
	return remaining, known
}

// headerInt reads a header that holds one number from 0 to 2^31.
func headerInt(h http.Header, name string) (int64, bool) {
	n, err := strconv.ParseUint(h.Get(name), 10, 64)
	if err != nil || (n > 1<<31 && name != "X-Ratelimit-Reset") || n > 1<<40 {
		return 0, false
	}
	return int64(n), true
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

func waitError(op string, until time.Time, why fencepost.Reason, text string) error {
	return &gate.WaitError{Until: until, Err: &fencepost.Error{Op: op, Reason: why, Err: errors.New(text)}}
}
