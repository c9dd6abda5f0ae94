package github_test

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/forgesim"
)

// A meeting sends a request on only once one of each kind in its round is
// there: requests of one round that came one after the other would wait for
// ever.
type meeting struct {
	next   http.RoundTripper
	rounds [][]string

	mu   sync.Mutex
	here map[string]chan struct{} // guarded by mu; closed once one of the kind came
}

func kindOf(path string) string {
	switch {
	case strings.HasSuffix(path, "/repos/acme/docs"):
		return "repository"
	case strings.Contains(path, "/pulls/"):
		return "request"
	case strings.Contains(path, "/git/ref/"):
		return "tip"
	case strings.Contains(path, "/git/commits/"):
		return "commit"
	case strings.Contains(path, "/rules/"):
		return "rule"
	case strings.HasSuffix(path, "/check-runs"):
		return "runs"
	case strings.HasSuffix(path, "/status"):
		return "statuses"
	}
	return ""
}

func (m *meeting) came(kind string) chan struct{} {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.here[kind] == nil {
		m.here[kind] = make(chan struct{})
	}
	return m.here[kind]
}

func (m *meeting) RoundTrip(r *http.Request) (*http.Response, error) {
	kind := kindOf(r.URL.Path)
	for _, round := range m.rounds {
		if err := m.meet(r.Context(), kind, round); err != nil {
			return nil, err
		}
	}
	return m.next.RoundTrip(r)
}

func (m *meeting) meet(ctx context.Context, kind string, round []string) error {
	for _, k := range round {
		if k != kind {
			continue
		}
		c := m.came(kind)
		m.mu.Lock()
		select {
		case <-c:
		default:
			close(c)
		}
		m.mu.Unlock()
		for _, other := range round {
			select {
			case <-m.came(other):
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
	}
	return nil
}

func TestWhatIsIndependentIsReadSideBySide(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	_, s := b.open(forgesim.OpenPull{})
	b.refresh(s) // the test merge is there
	limits := quick()
	limits.ReadAttempts = 1
	lane := b.newLaneOver(&meeting{
		next: b.forge.RoundTripper(), here: map[string]chan struct{}{},
		rounds: [][]string{{"request", "tip"}, {"commit", "rule", "runs", "statuses"}},
	}, limits)
	got, err := lane.Refresh(t.Context(), s)
	must(t, err)
	if got.State != fencepost.ReasonNone {
		t.Errorf("state %q", got.State)
	}
}

// A lane that has proven its repository's name proves it again beside the rest,
// and asks for no commit that it knows.
func TestALaterRefreshTakesTwoRounds(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	_, s := b.open(forgesim.OpenPull{})
	b.refresh(s) // the test merge is there
	limits := quick()
	limits.ReadAttempts = 1
	m := &meeting{next: b.forge.RoundTripper(), here: map[string]chan struct{}{}}
	lane := b.newLaneOver(m, limits)
	first, err := lane.Refresh(t.Context(), s)
	must(t, err)
	const commits = "GET /repos/{owner}/{repo}/git/commits/{commit_sha}"
	asked := b.forge.Count(commits)
	m.rounds = [][]string{{"repository", "request", "tip"}, {"rule", "runs", "statuses"}}
	again, err := lane.Refresh(t.Context(), s)
	must(t, err)
	if again.Revision != first.Revision {
		t.Errorf("snapshot %+v, want %+v", again, first)
	}
	if n := b.forge.Count(commits) - asked; asked == 0 || n != 0 {
		t.Errorf("%d commits were asked for first, and %d again", asked, n)
	}
}

func TestWhatBelongsToAnUnsettledMergeDecidesNothing(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	_, s := b.open(forgesim.OpenPull{})
	want := b.refresh(s)
	// The candidate is not visible for a moment: what is asked about it beside
	// fails, too, and must not be taken for the provider's last word.
	merge := want.Candidate.ID.String()
	fresh := b.newLaneOver(&hiding{next: b.forge.RoundTripper(), sha: merge, looks: 1}, quick())
	got, err := fresh.Refresh(t.Context(), s)
	must(t, err)
	if got.Revision != want.Revision {
		t.Errorf("snapshot %+v", got)
	}
}

// hiding answers 404 to what is asked about a commit until that many looks at
// the request have passed.
type hiding struct {
	next  http.RoundTripper
	sha   string
	looks int

	mu   sync.Mutex
	seen int // guarded by mu
}

func (h *hiding) RoundTrip(r *http.Request) (*http.Response, error) {
	h.mu.Lock()
	if kindOf(r.URL.Path) == "request" {
		h.seen++
	}
	hide := h.seen <= h.looks && strings.Contains(r.URL.Path, h.sha)
	h.mu.Unlock()
	if !hide {
		return h.next.RoundTrip(r)
	}
	return &http.Response{
		Status: "404 Not Found", StatusCode: http.StatusNotFound, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{"Content-Type": {"application/json"}}, Body: http.NoBody, Request: r,
	}, nil
}
