package doctor

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/fencepost/fencepost/internal/durable"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestAClockIsHeldAgainstAServers(t *testing.T) {
	t.Parallel()
	start := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	for name, tc := range map[string]struct {
		ours time.Duration
		want Status
		seen string
	}{
		"right":                    {0, OK, "within 5s"},
		"a moment":                 {4 * time.Second, OK, "within 5s"},
		"ahead":                    {20 * time.Second, Warn, "20s ahead of"},
		"behind":                   {-30 * time.Second, Warn, "behind"},
		"ahead beyond use":         {2 * time.Minute, Fail, "2m0s ahead of"},
		"behind by an hour or two": {-2 * time.Hour, Fail, "behind"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Date", start.Format(http.TimeFormat))
				w.WriteHeader(http.StatusUnauthorized)
			}))
			defer s.Close()
			got := look(t, s.URL, 0, start.Add(tc.ours+time.Second/2))
			if len(got) != 2 || got[0].Status != OK || got[1].Status != tc.want || !strings.Contains(got[1].Seen, tc.seen) {
				t.Errorf("%+v", got)
			}
			if got[1].Status != OK && got[1].Mend == "" {
				t.Error("no mend")
			}
		})
	}
}

func look(t *testing.T, at string, healthy int, now time.Time) []Check {
	t.Helper()
	u, err := url.Parse(at)
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	return Look(t.Context(), client, Reach{Subject: "it", Name: "reach", URL: u, Healthy: healthy}, func() time.Time { return now })
}

func TestAServerThatIsNotThere(t *testing.T) {
	t.Parallel()
	s := httptest.NewServer(http.NotFoundHandler())
	if got := look(t, s.URL, http.StatusOK, time.Now()); got[0].Status != Fail || !strings.Contains(got[0].Seen, "404") {
		t.Errorf("%+v", got)
	}
	s.Close()
	got := look(t, s.URL+"/secret-path", 0, time.Now())
	if len(got) != 1 || got[0].Status != Fail || got[0].Mend == "" || strings.Contains(got[0].Seen, "secret-path") {
		t.Errorf("%+v", got)
	}
}

func TestSpace(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		free int64
		want Status
	}{{1 << 20, Fail}, {100 << 20, Warn}, {1 << 30, OK}} {
		if got := Space(durable.Volume{Free: tc.free}, 64<<20, 512<<20); got.Status != tc.want || (got.Mend == "") != (tc.want == OK) {
			t.Errorf("%d free: %+v", tc.free, got)
		}
	}
}

func TestSyncs(t *testing.T) {
	t.Parallel()
	for took, want := range map[time.Duration]Status{time.Microsecond: Warn, time.Millisecond: OK, time.Second: Warn} {
		if got := judgeSyncs(Check{}, took); got.Status != want || (got.Mend == "") != (want == OK) {
			t.Errorf("%s: %+v", took, got)
		}
	}
	dir := t.TempDir()
	if got := Syncs(dir, time.Now); got.Status == Fail {
		t.Errorf("%+v", got)
	}
	if got := Syncs(dir+"/nowhere", time.Now); got.Status != Fail || got.Mend == "" || strings.Contains(got.Seen, dir) {
		t.Errorf("%+v", got)
	}
}

func TestTextsStayOnTheirLine(t *testing.T) {
	t.Parallel()
	var r Report
	r.Add(Check{Subject: "a\nb", Seen: "\x1b[31mred\x00" + strings.Repeat("é", 300), Status: Warn}, Check{Status: Fail})
	c := r.Checks[0]
	if c.Subject != "a b" || strings.ContainsAny(c.Seen, "\x1b\x00\n") || len(c.Seen) > maxText+len("…") || !strings.HasSuffix(c.Seen, "é…") {
		t.Errorf("%q", c)
	}
	if r.Healthy() || r.Count(Warn) != 1 || r.Count(Fail) != 1 || !(Report{Checks: r.Checks[:1]}).Healthy() {
		t.Error("counted wrongly")
	}
}
