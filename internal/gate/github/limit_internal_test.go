package github

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/gate"
)

func TestLimiterTakesWhatGitHubSays(t *testing.T) {
	t.Parallel()
	start := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	reset := strconv.FormatInt(start.Add(20*time.Minute).Unix(), 10)
	for _, tc := range []struct {
		name   string
		status int
		header map[string]string
		wait   time.Duration // 0: no limit
		held   time.Duration // how long the next request has to wait
	}{
		{"plain answer", 200, nil, 0, 0},
		{"retry-after", 403, map[string]string{"Retry-After": "30"}, 30 * time.Second, 30 * time.Second},
		{"retry-after of a 429", 429, map[string]string{"Retry-After": "30"}, 30 * time.Second, 30 * time.Second},
		{"retry-after beyond reason", 429, map[string]string{"Retry-After": "99999"}, time.Hour, time.Hour},
		{"primary", 403, map[string]string{"X-Ratelimit-Remaining": "0", "X-Ratelimit-Limit": "5000", "X-Ratelimit-Reset": reset}, 20*time.Minute + time.Second, 20*time.Minute + time.Second},
		{"used up by this one", 200, map[string]string{"X-Ratelimit-Remaining": "0", "X-Ratelimit-Limit": "5000", "X-Ratelimit-Reset": reset}, 0, 20*time.Minute + time.Second},
		{"reset beyond reason", 429, map[string]string{"X-Ratelimit-Remaining": "0", "X-Ratelimit-Limit": "1", "X-Ratelimit-Reset": "9999999999"}, 2 * time.Hour, 2 * time.Hour},
		{"429 without a header", 429, nil, time.Minute, time.Minute},
		{"403 without a header", 403, nil, 0, 0},
		{"403 with requests left", 403, map[string]string{"X-Ratelimit-Remaining": "7", "X-Ratelimit-Limit": "5000", "X-Ratelimit-Reset": reset}, 0, 0},
		{"headers that are none", 429, map[string]string{"Retry-After": "soon", "X-Ratelimit-Remaining": "-1"}, time.Minute, time.Minute},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			l := &limiter{now: func() time.Time { return start }, reserve: 20}
			h := http.Header{}
			for k, v := range tc.header {
				h.Set(k, v)
			}
			until := l.learn(tc.status, h)
			if got := until.Sub(start); (tc.wait == 0) != until.IsZero() || (tc.wait != 0 && got != tc.wait) {
				t.Errorf("limited for %v, want %v", got, tc.wait)
			}
			err := l.admit("op", false)
			wait, _ := errors.AsType[*gate.WaitError](err)
			if (tc.held == 0) != (err == nil) || (wait != nil && wait.Until.Sub(start) != tc.held) {
				t.Errorf("next request: %v, want held for %v", err, tc.held)
			}
		})
	}
}

func TestSecondaryLimitsDoubleUntilOneRequestPasses(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	l := &limiter{now: func() time.Time { return now }, reserve: 20}
	for _, want := range []time.Duration{1, 2, 4, 8, 15, 15} {
		if got := l.learn(429, nil).Sub(now); got != want*time.Minute {
			t.Errorf("wait %v, want %v", got, want*time.Minute)
		}
	}
	l.learn(200, nil)
	if got := l.learn(429, nil).Sub(now); got != time.Minute {
		t.Errorf("wait %v after one that passed", got)
	}
}

func TestWritesGoOneAtATimeAndApart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPacer(time.Second, time.Now)
		start := time.Now()
		ends := make(chan time.Duration, 3)
		for range 3 {
			go func() {
				done, err := p.begin(t.Context())
				if err != nil {
					t.Error(err)
					return
				}
				time.Sleep(200 * time.Millisecond)
				ends <- time.Since(start)
				done()
			}()
		}
		for _, want := range []time.Duration{200, 1400, 2600} {
			if got := <-ends; got != want*time.Millisecond {
				t.Errorf("a write ended after %v, want %v ms", got, int64(want))
			}
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		cause := errors.New("enough")
		cancel(cause)
		if _, err := p.begin(ctx); !errors.Is(err, cause) {
			t.Errorf("error %v", err)
		}
		// What gave up did not take the turn with it.
		done, err := p.begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		done()
	})
}

func TestCacheIsBounded(t *testing.T) {
	t.Parallel()
	c := newCache(2, 80)
	put := func(url string, size int) { c.put(&cached{url: url, etag: "e", body: make([]byte, size)}) }
	put("a", 5)
	put("b", 5)
	if c.get("a") == nil {
		t.Fatal("a is gone")
	}
	put("c", 5)
	if c.get("b") != nil || c.get("a") == nil || c.get("c") == nil {
		t.Error("not the least recently used one went")
	}
	put("big", 11)
	if c.get("big") != nil {
		t.Error("an answer of more than an eighth was kept")
	}
	c.put(&cached{url: "untagged", body: []byte("x")})
	if c.get("untagged") != nil {
		t.Error("an answer without a tag was kept")
	}
}

func TestNextPage(t *testing.T) {
	t.Parallel()
	for link, want := range map[string]string{
		``: ``,
		`<https://a/x?page=2>; rel="next", <https://a/x?page=9>; rel="last"`: `https://a/x?page=2`,
		`<https://a/x?page=1>; rel="prev", <https://a/x?page=3>; rel="next"`: `https://a/x?page=3`,
		`<https://a/x>; rel=next`:                   `https://a/x`,
		`<https://a/x>; title="t"; rel="last next"`: `https://a/x`,
		`<https://a/x>; REL="NEXT"`:                 `https://a/x`,
		`<https://a/x>; rel="nextish"`:              ``,
		`<https://a/x`:                              ``,
		`https://a/x; rel="next"`:                   ``,
		`<https://a/x>; rel="prev"`:                 ``,
	} {
		if got := nextPage(link); got != want {
			t.Errorf("nextPage(%q) = %q, want %q", link, got, want)
		}
	}
}

func FuzzNextPage(f *testing.F) {
	base, err := url.Parse("https://api.github.com/api/v3")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(`<https://api.github.com/api/v3/x?page=2>; rel="next"`)
	f.Add(`<//evil/api/v3/>; rel="next"`)
	f.Add(`</api/v3/../x>; rel="next"`)
	f.Fuzz(func(t *testing.T, link string) {
		u, inside := below(base, nextPage(link))
		if inside && (u.Scheme != "https" || !strings.EqualFold(u.Host, "api.github.com") || u.User != nil) {
			t.Errorf("%q leads to %q", link, u)
		}
	})
}

func TestLimitsNameWhatIsOutOfRange(t *testing.T) {
	t.Parallel()
	if err := (Limits{}).Validate(); err != nil {
		t.Errorf("defaults: %v", err)
	}
	err := Limits{RequestTimeout: time.Hour, MaxPages: -1}.Validate()
	if !errors.Is(err, fencepost.ErrMalformed) {
		t.Errorf("error %v", err)
	}
}
