package ops

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/fencepost/fencepost"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var at = time.Date(2026, 11, 5, 12, 0, 0, 0, time.UTC)

func now() time.Time { return at }

// A fixture is everything that a page shows.
type fixture struct {
	deliveries []DeliveryRow
	gates      []GateRow
	alerts     []AlertRow
	sources    []SourceRow
	runs       []RunRow
	err        error
}

func (f fixture) SourceRows(context.Context, int) ([]SourceRow, error) { return f.sources, f.err }
func (f fixture) RecentRuns(context.Context, int) ([]RunRow, error)    { return f.runs, f.err }

func (f fixture) RecentDeliveries(_ context.Context, limit int) ([]DeliveryRow, error) {
	return f.deliveries[:min(limit, len(f.deliveries))], f.err
}
func (f fixture) GateRows(context.Context) ([]GateRow, error) { return f.gates, f.err }
func (f fixture) AlertRows() []AlertRow                       { return f.alerts }
func (f fixture) Figures(context.Context) []Figure {
	return []Figure{{"deliveries waiting", "3", "100,000"}, {"ledger rows", "1,204", "1,000,000"}, {"evidence", "212 MiB", "4 GiB"}}
}

func (f fixture) Artifact(_ context.Context, ref string) ([]byte, error) {
	switch ref {
	case "art_here":
		return []byte("<script>alert(1)</script>"), nil
	case "art_gone":
		return nil, fmt.Errorf("get: %w", ErrGone)
	case "art_broken":
		return nil, errors.New("open /var/lib/secret-path: input/output error")
	}
	return nil, fencepost.ErrMalformed
}

func example() fixture {
	return fixture{
		deliveries: []DeliveryRow{
			{ID: "dlv_abcdefghijklmnopqrstuvwx34", Gate: "docs", Subject: "#7 5e1c309", State: "published", Conclusion: "success", Received: at.Add(-3 * time.Minute), Last: at, Claims: 1, Evidence: "art_here"},
			{ID: "dlv_bbbbbbbbbbbbbbbbbbbbbbbb34", Gate: "docs", Subject: "#8 0d34ab1", State: "published", Conclusion: "failure", Received: at.Add(-9 * time.Minute), Last: at, Claims: 2, Replays: 1, Evidence: "art_gone"},
			{ID: "dlv_cccccccccccccccccccccccc34", Gate: "handbook", Subject: "#21 77aa0be", State: "ended", Reason: fencepost.ReasonSuperseded, Conclusion: "none", Received: at.Add(-50 * time.Minute), Last: at, Claims: 1},
			{ID: "dlv_dddddddddddddddddddddddd34", Gate: "handbook", Subject: "#22 <b>x</b>", State: "retrying", Reason: fencepost.ReasonProvider, Received: at.Add(-51 * time.Minute), Last: at, Claims: 3},
		},
		gates: []GateRow{
			{Name: "docs", Provider: "github", Repository: "acme/docs", Base: "refs/heads/main", Check: "fencepost/docs", Policy: strings.Repeat("21e46d1d", 8)},
			{Name: "handbook", Provider: "github", Repository: "acme/handbook", Base: "refs/heads/main", Check: "fencepost/links", Policy: strings.Repeat("90ab12cd", 8)},
		},
		sources: []SourceRow{
			{Key: "site", Provider: "gitea", Repository: "acme/site", Ref: "refs/heads/main", Sink: "directory", Policy: strings.Repeat("ab12cd34", 8), State: "stale", Announced: "77aa0be", AnnouncedAt: at.Add(-15 * time.Minute), Observed: "5e1c309", ObservedAt: at.Add(-14 * time.Minute), Applied: "5e1c309", AppliedAt: at.Add(-3 * time.Hour), Age: 15 * time.Minute, Next: at.Add(time.Minute), Trouble: fencepost.ReasonProvider},
			{Key: "handbook-src", Provider: "github", Repository: "acme/<i>handbook</i>", Ref: "refs/heads/main", Sink: "rows", Policy: strings.Repeat("cd34ab12", 8), State: "running", Announced: "0d34ab1", AnnouncedAt: at.Add(-2 * time.Second), Observed: "1234567", ObservedAt: at.Add(-time.Minute), Applied: "1234567", AppliedAt: at.Add(-time.Hour), Holder: "held for 2 s, renewed 2 s ago", FollowUp: true, Next: at.Add(70 * time.Second)},
		},
		runs: []RunRow{
			{ID: "run_aaaaaaaaaaaaaaaaaaaaaaaa34", Source: "handbook-src", Trigger: "push", Status: "running", Attempts: 1, Queued: at.Add(-2 * time.Second)},
			{ID: "run_bbbbbbbbbbbbbbbbbbbbbbbb34", Source: "site", Trigger: "recovery", Status: "failed", Reason: fencepost.ReasonContent, Detail: "wire_bytes", Head: "77aa0be", Attempts: 3, Queued: at.Add(-9 * time.Minute), Ended: at.Add(-8 * time.Minute), Took: 1234 * time.Millisecond, Recovers: "run_cccccccccccccccccccccccc34"},
		},
		alerts: []AlertRow{
			{Code: "provider", Subject: "gate:handbook", Meaning: "a provider fails or is not what the configuration says", Open: true, Since: at.Add(-52 * time.Minute), Age: 52 * time.Minute, Count: 14},
			{Code: "missed_delivery", Subject: "gate:docs", Meaning: "the provider has what never came here", Since: at.Add(-30 * time.Hour), Age: 2 * time.Hour, Count: 2},
		},
	}
}

func serverOf(f fixture, checks ...Check) *Server {
	return New(Options{
		Metrics: NewMetrics(MetricsOptions{Now: now, Routes: []fencepost.RouteName{"docs"}}),
		Health:  NewHealth(HealthOptions{Now: now}, checks...),
		Gates:   f, Sources: f, Deliveries: f, Alerts: f, Artifacts: f, Figures: f,
		Build: Build{Version: "v1.2.3", Go: "go1.26"}, Now: now, Log: slog.New(slog.DiscardHandler),
	})
}

func ask(t *testing.T, s *Server, method, target string) *httptest.ResponseRecorder {
	t.Helper()
	w := httptest.NewRecorder()
	s.Handler().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), method, target, nil))
	return w
}

func well(context.Context) error { return nil }

func TestOnlyReadingIsPossible(t *testing.T) {
	t.Parallel()
	s := serverOf(example())
	for _, path := range []string{"/", "/healthz", "/readyz", "/metrics", "/artifacts/art_here"} {
		for _, method := range []string{"POST", "PUT", "DELETE", "PATCH", "OPTIONS", "CONNECT", "TRACE"} {
			w := ask(t, s, method, path)
			if w.Code != http.StatusMethodNotAllowed || w.Header().Get("Allow") != "GET, HEAD" {
				t.Errorf("%s %s = %d, want 405", method, path, w.Code)
			}
		}
		get, head := ask(t, s, "GET", path), ask(t, s, "HEAD", path)
		if get.Code != http.StatusOK || head.Code != http.StatusOK || get.Body.Len() == 0 {
			t.Errorf("GET %s = %d with %d bytes, HEAD %d, want 200 for both", path, get.Code, get.Body.Len(), head.Code)
		}
		for name, want := range map[string]string{
			"Cache-Control": "private, no-store", "X-Content-Type-Options": "nosniff", "X-Robots-Tag": "noindex", "Referrer-Policy": "no-referrer",
		} {
			if got := get.Header().Get(name); got != want {
				t.Errorf("GET %s: %s = %q, want %q", path, name, got, want)
			}
		}
		if csp := get.Header().Get("Content-Security-Policy"); !strings.HasPrefix(csp, "default-src 'none'; ") || strings.Contains(csp, "script") || strings.Contains(csp, "unsafe") {
			t.Errorf("GET %s: policy %q lets something run", path, csp)
		}
	}
	if w := ask(t, s, "GET", "/other"); w.Code != http.StatusNotFound {
		t.Errorf("GET /other = %d, want 404", w.Code)
	}
}

func TestReadyzNamesEachCheckWithoutItsError(t *testing.T) {
	t.Parallel()
	bad := &fencepost.Error{Op: "ledger.probe", Reason: fencepost.ReasonPoisoned, Err: errors.New("secret-path")}
	tests := []struct {
		name   string
		checks []Check
		code   int
		body   string
	}{
		{"all well", []Check{{"ledger", well}, {"inbox", well}}, 200, `{"ready":true,"checks":[{"name":"ledger","ok":true},{"name":"inbox","ok":true}]}`},
		{"one with a reason", []Check{{"ledger", func(context.Context) error { return bad }}, {"inbox", well}}, 503,
			`{"ready":false,"checks":[{"name":"ledger","ok":false,"reason":"poisoned"},{"name":"inbox","ok":true}]}`},
		{"one without", []Check{{"disk", func(context.Context) error { return errors.New("secret-path") }}}, 503, `{"ready":false,"checks":[{"name":"disk","ok":false,"reason":"unavailable"}]}`},
		{"one that panics", []Check{{"disk", func(context.Context) error { panic("secret-path") }}}, 503, `{"ready":false,"checks":[{"name":"disk","ok":false,"reason":"unavailable"}]}`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := serverOf(fixture{}, tt.checks...)
			w := ask(t, s, "GET", "/readyz")
			if w.Code != tt.code || strings.TrimSpace(w.Body.String()) != tt.body {
				t.Errorf("readyz = %d %s, want %d %s", w.Code, w.Body, tt.code, tt.body)
			}
			if w := ask(t, s, "GET", "/healthz"); w.Code != 200 {
				t.Errorf("healthz = %d, want 200 whatever the checks say", w.Code)
			}
		})
	}
}

func TestChecksAreBoundedAndShared(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		h := NewHealth(HealthOptions{Timeout: 2 * time.Second, Keep: 5 * time.Second, Now: time.Now}, Check{"slow", func(ctx context.Context) error {
			asked++
			<-ctx.Done()
			return ctx.Err()
		}})
		begun := time.Now()
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		var wg sync.WaitGroup
		for range 10 {
			wg.Go(func() {
				if results, ready := h.Results(gone); ready || results[0].OK {
					t.Error("a check that never answers is well")
				}
			})
		}
		wg.Wait()
		if took := time.Since(begun); asked != 1 || took != 2*time.Second {
			t.Errorf("ten askers made %d checks in %v, want one in 2s", asked, took)
		}
		time.Sleep(5 * time.Second)
		h.Results(t.Context())
		if asked != 2 {
			t.Errorf("asked %d times, want the answers kept for 5s only", asked)
		}
	})
}

func TestArtifactsAreFilesToSave(t *testing.T) {
	t.Parallel()
	s := serverOf(example())
	w := ask(t, s, "GET", "/artifacts/art_here")
	if w.Code != 200 || w.Body.String() != "<script>alert(1)</script>" {
		t.Fatalf("artifact = %d %q", w.Code, w.Body)
	}
	if got := w.Header().Get("Content-Type"); got != "text/plain; charset=utf-8" {
		t.Errorf("Content-Type = %q", got)
	}
	if got := w.Header().Get("Content-Disposition"); got != `attachment; filename="art_here.txt"` {
		t.Errorf("Content-Disposition = %q", got)
	}
	for target, want := range map[string]int{"art_gone": 410, "art_broken": 500, "nonsense": 404, "..%2f..%2fetc%2fpasswd": 404, "a%22%0d%0ab": 404} {
		w := ask(t, s, "GET", "/artifacts/"+target)
		if w.Code != want || strings.Contains(w.Body.String(), "secret-path") {
			t.Errorf("%s = %d %q, want %d and nothing of the error", target, w.Code, w.Body, want)
		}
	}
}

func TestThePageShowsWhatThereIs(t *testing.T) {
	t.Parallel()
	w := ask(t, serverOf(example(), Check{"ledger", well}), "GET", "/")
	page := w.Body.String()
	for _, want := range []string{
		`<span class="mark good">ready</span>`, "gate:handbook", "a provider fails or is not what the configuration says", "52 min",
		"acme/docs", "21e46d1d21e4", "dlv_abcdefghijklmnopqrstuvwx34", `href="/artifacts/art_here"`, "superseded", "#22 &lt;b&gt;x&lt;/b&gt;",
		"1,204", "v1.2.3", `<span class="mark bad">stale</span>`, "acme/&lt;i&gt;handbook&lt;/i&gt;", "held for 2 s", "wire_bytes", "run_cccccccccccccccccccccccc34",
		`<span class="mark bad">block</span>`,
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	for _, not := range []string{"<script", "javascript:", "onclick", "http://", "https://", "<form", "ZgotmplZ"} {
		if strings.Contains(page, not) {
			t.Errorf("the page has %q", not)
		}
	}
}

func TestThePageSurvivesWhatItCantRead(t *testing.T) {
	t.Parallel()
	f := example()
	f.err = errors.New("secret-path")
	w := ask(t, serverOf(f, Check{"disk", func(context.Context) error { return errors.New("secret-path") }}), "GET", "/")
	page := w.Body.String()
	if w.Code != 200 || !strings.Contains(page, "gates, sources, runs, deliveries. The log says why.") || !strings.Contains(page, "gate:handbook") || !strings.Contains(page, "not ready") {
		t.Errorf("page = %d:\n%s", w.Code, page)
	}
	if strings.Contains(page, "secret-path") {
		t.Error("the page shows an error's text")
	}
}

func TestThePageIsBounded(t *testing.T) {
	t.Parallel()
	var f fixture
	for i := range 500 {
		f.deliveries = append(f.deliveries, DeliveryRow{ID: fencepost.DeliveryID(fmt.Sprintf("dlv_%d", i))})
		f.alerts = append(f.alerts, AlertRow{Subject: "s"})
	}
	page := ask(t, serverOf(f), "GET", "/").Body.String()
	if got := strings.Count(page, "<code>dlv_"); got != recentDeliveries {
		t.Errorf("%d deliveries, want %d", got, recentDeliveries)
	}
	if got := strings.Count(page, ">resolved<"); got != recentAlerts {
		t.Errorf("%d resolved alerts, want %d", got, recentAlerts)
	}
}

// TestMetricsAreDocumented holds docs/metrics.md against what is served when
// everything has been counted once.
func TestMetricsAreDocumented(t *testing.T) {
	t.Parallel()
	m := NewMetrics(MetricsOptions{Now: now, Routes: []fencepost.RouteName{"docs"}, Levels: Levels{
		Bodies: func() (int64, int64) { return 1, 2 }, Inbox: func() InboxLevel { return InboxLevel{} },
		Ledger: func() (int64, int64) { return 1, 2 }, FullIn: func() (time.Duration, bool) { return time.Hour, false },
		Artifacts: func() (int64, int64) { return 1, 2 }, Running: func() int { return 1 },
	}})
	m.Answered("docs", "accepted", fencepost.ReasonNone, time.Millisecond)
	m.Answered("/etc/passwd", "rejected", fencepost.ReasonUnauthenticated, time.Millisecond)
	m.Step("docs", "fetched", fencepost.ReasonNone, time.Second)
	m.Fetched("docs", 10)
	m.Missed("docs", 1)
	m.Redelivered("docs", 1)
	m.AnchorUsed("acme", "2026-q4")
	m.SourceAttempt("handbook-src", "complete", "", time.Second)
	m.SourceAge("handbook-src", time.Minute, at)
	m.SourcesWatched()
	m.JobsWaiting(2, time.Second)
	m.AlertRaised("provider")
	m.AlertsOpen("provider", 1)
	m.beat([]Result{{Name: "disk", OK: true}}, true)
	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "GET", "/metrics", nil))
	text := w.Body.String()
	if strings.Contains(text, "passwd") || !strings.Contains(text, `fencepost_requests_total{outcome="rejected",reason="unauthenticated",route="unknown"} 1`) {
		t.Errorf("a path of a request became a label:\n%s", text)
	}
	doc, err := os.ReadFile("../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	served := regexp.MustCompile(`(?m)^# TYPE (fencepost_\S+)`).FindAllStringSubmatch(text, -1)
	documented := regexp.MustCompile("(?m)^\\| `(fencepost_[a-z_]+)").FindAllStringSubmatch(string(doc), -1)
	names := func(matches [][]string) (list []string) {
		for _, m := range matches {
			list = append(list, m[1])
		}
		slices.Sort(list)
		return list
	}
	if got, want := names(documented), names(served); !slices.Equal(got, want) {
		t.Errorf("docs/metrics.md has\n%v\nserved are\n%v", got, want)
	}
	rules, err := os.ReadFile("../../deploy/prometheus/rules.yaml")
	if err != nil {
		t.Fatal(err)
	}
	used := regexp.MustCompile(`fencepost_[a-z_]+`).FindAllString(string(rules), -1)
	if len(used) < 8 {
		t.Errorf("the alerting rules name only %v", used)
	}
	for _, name := range used {
		if !slices.Contains(names(served), name) {
			t.Errorf("the alerting rules name %s, which is not served", name)
		}
	}
}

func TestRunServesUntilItsContextEnds(t *testing.T) {
	t.Parallel()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := serverOf(example(), Check{"disk", well})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx, l) }()
	get := func(path, host string) (int, string) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+l.Addr().String()+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		if host != "" {
			req.Host = host
		}
		client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(body)
	}
	for _, tt := range []struct {
		path, host string
		want       int
	}{
		{"/", "", 200}, {"/", "localhost:8081", 200}, {"/", "[::1]:8081", 200}, {"/", "evil.example.org", 421}, {"/artifacts/art_here", "evil.example.org:80", 421},
		{"/metrics", "node.example.org", 200}, {"/healthz", "node.example.org", 200},
	} {
		if code, _ := get(tt.path, tt.host); code != tt.want {
			t.Errorf("%s as %q = %d, want %d", tt.path, tt.host, code, tt.want)
		}
	}
	_, metrics := get("/metrics", "")
	for _, want := range []string{"fencepost_ready 1", `fencepost_check_ok{check="disk"} 1`, "fencepost_heartbeat_timestamp_seconds 1.7938"} {
		if !strings.Contains(metrics, want) {
			t.Errorf("metrics lack %q", want)
		}
	}
	cancel()
	if err := <-done; err != nil {
		t.Errorf("Run = %v, want nil", err)
	}
}

func TestConnectionsAreBounded(t *testing.T) {
	t.Parallel()
	inner, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := &limitedListener{Listener: inner, room: make(chan struct{}, 1)}
	defer l.Close()
	accepted := make(chan net.Conn)
	go func() {
		defer close(accepted)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			accepted <- c
		}
	}()
	dial := func() net.Conn {
		c, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", inner.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	one, two := dial(), dial()
	defer one.Close()
	defer two.Close()
	first := <-accepted
	select {
	case c := <-accepted:
		c.Close()
		t.Fatal("a second connection was accepted")
	case <-time.After(50 * time.Millisecond): // an accept that is wrong would have come
	}
	first.Close()
	first.Close() // a second Close gives no second room
	second := <-accepted
	if got := len(l.room); got != 1 {
		t.Errorf("room taken = %d, want 1", got)
	}
	second.Close()
	inner.Close()
	for c := range accepted {
		c.Close()
	}
}

func TestWhatTookLongIsShownInSeconds(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		0: "0 ms", 1234 * time.Millisecond: "1234 ms", 10 * time.Second: "10.0 s", 30412 * time.Millisecond: "30.4 s",
	} {
		if got := took(d); got != want {
			t.Errorf("took(%d) = %q, want %q", d, got, want)
		}
	}
}
