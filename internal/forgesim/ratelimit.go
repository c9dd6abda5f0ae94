package forgesim

import (
	"net/http"
	"strconv"
	"time"
)

// anonymousRateLimit is the hour's requests without a credential.
const anonymousRateLimit = 60

// An allowance counts one identity's requests of an hour. Guarded by Forge.mu.
type allowance struct {
	limit, used int
	reset       time.Time
}

// allowanceOf finds the identity's allowance for now. Called with mu held.
func (f *Forge) allowanceOf(who identity) *allowance {
	key, limit := who.String(), f.config.RateLimit
	if who.app == nil && who.token == nil {
		limit = min(limit, anonymousRateLimit)
	}
	now := f.now()
	a := f.limits[key]
	if a == nil || !now.Before(a.reset) {
		a = &allowance{limit: limit, reset: now.Add(time.Hour).Truncate(time.Second)}
		f.limits[key] = a
	}
	return a
}

func (a *allowance) remaining() int { return max(a.limit-a.used, 0) }

// write puts the headers that every answer carries.
func (a *allowance) write(h http.Header) {
	h.Set("X-RateLimit-Limit", strconv.Itoa(a.limit))
	h.Set("X-RateLimit-Remaining", strconv.Itoa(a.remaining()))
	h.Set("X-RateLimit-Used", strconv.Itoa(a.used))
	h.Set("X-RateLimit-Reset", strconv.FormatInt(a.reset.Unix(), 10))
	h.Set("X-RateLimit-Resource", "core")
}

// exhausted is what a primary limit answers.
func exhausted(code int) answer {
	return failure(code, "API rate limit exceeded")
}

// setRetryAfter writes whole seconds, rounded up; nothing for zero.
func setRetryAfter(h http.Header, after time.Duration) {
	if after > 0 {
		h.Set("Retry-After", strconv.FormatInt(int64((after+time.Second-1)/time.Second), 10))
	}
}
