package alert

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencepost/fencepost/internal/durable/crashfs"
)

// A receiver is an Alertmanager's API as far as it is used: it keeps what it
// is told, and answers with the next of its statuses, or else 200. Status 0
// is no answer at all.
type receiver struct {
	mu       sync.Mutex
	statuses []int
	posts    [][]postedAlert
	at       []time.Duration
	since    time.Time
}

func (r *receiver) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Method != http.MethodPost || req.URL.String() != "http://am.example.org/base/api/v2/alerts" || req.Header.Get("Content-Type") != "application/json" {
		return nil, errors.New("no such call: " + req.Method + " " + req.URL.String())
	}
	var posted []postedAlert
	if err := json.NewDecoder(io.LimitReader(req.Body, 1<<20)).Decode(&posted); err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.posts, r.at = append(r.posts, posted), append(r.at, time.Since(r.since))
	status := http.StatusOK
	if len(r.statuses) > 0 {
		status, r.statuses = r.statuses[0], r.statuses[1:]
	}
	if status == 0 {
		return nil, errors.New("connection refused")
	}
	return &http.Response{StatusCode: status, Header: http.Header{"Location": {"http://elsewhere.example.org/"}}, Body: io.NopCloser(strings.NewReader("secret answer"))}, nil
}

// told runs an Alertmanager over a book inside a bubble while work goes on.
func told(t *testing.T, statuses []int, work func(b *Book)) (*receiver, string) {
	t.Helper()
	var r *receiver
	var log bytes.Buffer
	synctest.Test(t, func(t *testing.T) {
		r = &receiver{statuses: statuses, since: time.Now()}
		b, err := OpenBook(Options{FS: crashfs.New(crashfs.Options{}).Process(), Now: time.Now, Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		m := NewAlertmanager(b, AlertmanagerOptions{
			URL: &url.URL{Scheme: "http", Host: "am.example.org", Path: "/base"}, Transport: r, Now: time.Now,
			Log: slog.New(slog.NewTextHandler(&log, nil)), Attempts: 3, Repeat: time.Minute,
		})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- m.Run(ctx) }()
		synctest.Wait()
		work(b)
		synctest.Wait()
		cancel()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	})
	return r, log.String()
}

func raise(t *testing.T, b *Book, s Subject) {
	t.Helper()
	if err := b.Raise(Provider, s); err != nil {
		t.Fatal(err)
	}
	synctest.Wait()
}

func TestAlertmanagerIsToldAtOnceAndAgain(t *testing.T) {
	t.Parallel()
	r, log := told(t, nil, func(b *Book) {
		raise(t, b, "gate:docs")
		time.Sleep(90 * time.Second)
		if err := b.Resolve(Provider, "gate:docs"); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		time.Sleep(16 * time.Minute)
	})
	// At the raise, at the first repeat, at the resolution, and at the
	// repeats of the quarter of an hour after it.
	if len(r.posts) < 4 || r.at[0] != 0 || r.at[1] != time.Minute || r.at[2] != 90*time.Second {
		t.Fatalf("told at %v", r.at)
	}
	if last := r.at[len(r.at)-1]; last > 90*time.Second+resolvedFor {
		t.Errorf("told of a resolved alert at %v, more than %v after", last, resolvedFor)
	}
	first := r.posts[0][0]
	want := map[string]string{"alertname": "Fencepost", "service": "fencepost", "code": "provider", "subject": "gate:docs"}
	for k, v := range want {
		if first.Labels[k] != v {
			t.Errorf("label %s = %q, want %q", k, first.Labels[k], v)
		}
	}
	if len(first.Labels) != len(want) {
		t.Errorf("labels = %v, want %v alone", first.Labels, want)
	}
	if got := first.EndsAt.Sub(first.StartsAt); got != 4*time.Minute {
		t.Errorf("an open alert ends after %v, want 4m", got)
	}
	resolved := r.posts[2][0]
	if got := resolved.EndsAt.Sub(resolved.StartsAt); got != 90*time.Second {
		t.Errorf("the resolved alert ends after %v, want 1m30s", got)
	}
	if log != "" {
		t.Errorf("log:\n%s\nwant none", log)
	}
}

func TestAlertmanagerRetriesWithBounds(t *testing.T) {
	t.Parallel()
	r, log := told(t, []int{500, 0, 302, 503}, func(b *Book) {
		raise(t, b, "gate:docs")
		time.Sleep(70 * time.Second)
	})
	want := []time.Duration{0, time.Second, 3 * time.Second, time.Minute, 61 * time.Second}
	if len(r.at) != len(want) {
		t.Fatalf("tried at %v, want %v", r.at, want)
	}
	for i := range want {
		if r.at[i] != want[i] {
			t.Errorf("tried at %v, want %v", r.at, want)
			break
		}
	}
	if strings.Count(log, "does not take alerts") != 1 || strings.Count(log, "takes alerts again") != 1 {
		t.Errorf("log:\n%s\nwant one line when it fails and one when it works", log)
	}
	if strings.Contains(log, "refused") || strings.Contains(log, "example.org") {
		t.Errorf("log:\n%s\nholds an error's text or an address", log)
	}
}

func TestAlertmanagerTellsInBatches(t *testing.T) {
	t.Parallel()
	r, _ := told(t, nil, func(b *Book) {
		for i := range batchSize + 1 {
			if err := b.Raise(InboxExpired, Subject("dlv_"+strings.Repeat("a", i%70)+string(rune('a'+i%26))+string(rune('a'+i/26%26)))); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
	})
	n := len(r.posts)
	if n < 2 || len(r.posts[n-2]) != batchSize || len(r.posts[n-1]) != 1 {
		t.Errorf("the last two of %d posts have %d and %d alerts, want %d and 1", n, len(r.posts[n-2]), len(r.posts[n-1]), batchSize)
	}
}
