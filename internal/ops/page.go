package ops

import (
	"bytes"
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"fmt"
	"html/template"
	"net/http"
	"time"

	"github.com/fencepost/fencepost"
)

// recentDeliveries is how many deliveries the page shows.
const recentDeliveries = 50

// recentAlerts bounds the resolved alerts that it shows.
const recentAlerts = 20

// A DeliveryRow is one delivery as the page shows it.
type DeliveryRow struct {
	ID   fencepost.DeliveryID
	Gate string
	// Subject says what it asked about, such as "#7 5e1c309".
	Subject string
	// State is the latest kind of event, such as "published".
	State  string
	Reason fencepost.Reason
	// Conclusion is what was staged: "success", "failure", "none" or "".
	Conclusion string
	Received   time.Time
	Last       time.Time
	Claims     int
	Replays    int
	// Evidence is an artifact's reference, or empty.
	Evidence string
}

// Deliveries lists what came lately.
type Deliveries interface {
	// RecentDeliveries returns at most limit rows, the newest first.
	RecentDeliveries(ctx context.Context, limit int) ([]DeliveryRow, error)
}

// A GateRow is one gate as the page shows it.
type GateRow struct {
	Name, Provider, Repository, Base, Check string
	// Policy is the digest of the policy, in hexadecimal.
	Policy string
}

// Gates lists the configured gates.
type Gates interface {
	GateRows(ctx context.Context) ([]GateRow, error)
}

// An AlertRow is one alert as the page shows it.
type AlertRow struct {
	Code, Subject string
	// Meaning is the code's, for people.
	Meaning string
	Open    bool
	Since   time.Time
	Age     time.Duration
	Count   int64
}

// Alerts lists alerts, the open ones first.
type Alerts interface {
	AlertRows() []AlertRow
}

// A Figure is a number worth knowing, with its bound if it has one.
type Figure struct{ Name, Value, Bound string }

// Figures lists numbers for the page.
type Figures interface {
	Figures(ctx context.Context) []Figure
}

//go:embed page.html
var pageText string

//go:embed page.css
var pageStyle string

// A view is what the template gets.
type view struct {
	Style      template.CSS
	Now        time.Time
	Build      Build
	Ready      bool
	Checks     []Result
	Alerts     []AlertRow
	Gates      []GateRow
	Sources    []SourceRow
	Runs       []RunRow
	Deliveries []DeliveryRow
	Figures    []Figure
	// Unreadable names the parts that could not be read.
	Unreadable []string
	Has        struct{ Alerts, Gates, Sources, Deliveries bool }
}

func pageTemplate() *template.Template {
	return template.Must(template.New("page").Funcs(template.FuncMap{
		"when": func(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05") },
		"iso":  func(t time.Time) string { return t.UTC().Format(time.RFC3339) },
		"age":  age,
		"ago":  func(now, t time.Time) string { return age(now.Sub(t)) },
		"took": took,
		"short": func(digest string) string {
			return digest[:min(12, len(digest))]
		},
	}).Parse(pageText))
}

// took says how long something took that is over.
func took(d time.Duration) string {
	if d < 10*time.Second {
		return fmt.Sprintf("%d ms", d.Milliseconds())
	}
	return fmt.Sprintf("%.1f s", d.Seconds())
}

// age says a duration in its two largest units.
func age(d time.Duration) string {
	d = max(0, d)
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%d s", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%d min", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h %d min", int(d.Hours()), int(d.Minutes())%60)
	}
	return fmt.Sprintf("%d d %d h", int(d.Hours())/24, int(d.Hours())%24)
}

// pagePolicy allows the page's own style and nothing else at all.
func pagePolicy() string {
	sum := sha256.Sum256([]byte(pageStyle))
	return "default-src 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) +
		"'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
}

// page renders the operations page. What can't be read is named on it: a
// page that fails as a whole would hide the rest when it is needed most.
func (s *Server) page(w http.ResponseWriter, r *http.Request) {
	v := s.look(r.Context())
	var b bytes.Buffer
	if err := s.template.Execute(&b, v); err != nil {
		s.o.Log.Error("operations page not rendered", "reason", string(fencepost.ReasonUnavailable))
		http.Error(w, "internal error", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Content-Security-Policy", pagePolicy())
	if r.Method == http.MethodGet {
		_, _ = w.Write(b.Bytes())
	}
}

func (s *Server) look(ctx context.Context) view {
	v := view{Style: template.CSS(pageStyle), Now: s.o.Now(), Build: s.o.Build}
	v.Checks, v.Ready = s.o.Health.Results(ctx)
	failed := func(part string, err error) {
		if err != nil {
			s.o.Log.Error("operations page lacks a part", "reason", string(fencepost.ReasonOf(err)))
			v.Unreadable = append(v.Unreadable, part)
		}
	}
	if s.o.Alerts != nil {
		v.Has.Alerts = true
		resolved := 0
		for _, a := range s.o.Alerts.AlertRows() {
			if !a.Open {
				if resolved++; resolved > recentAlerts {
					break
				}
			}
			v.Alerts = append(v.Alerts, a)
		}
	}
	var err error
	if s.o.Gates != nil {
		v.Has.Gates = true
		v.Gates, err = s.o.Gates.GateRows(ctx)
		failed("gates", err)
	}
	if s.o.Sources != nil {
		v.Has.Sources = true
		v.Sources, err = s.o.Sources.SourceRows(ctx, maxSources)
		failed("sources", err)
		v.Runs, err = s.o.Sources.RecentRuns(ctx, recentRuns)
		failed("runs", err)
	}
	if s.o.Deliveries != nil {
		v.Has.Deliveries = true
		v.Deliveries, err = s.o.Deliveries.RecentDeliveries(ctx, recentDeliveries)
		failed("deliveries", err)
	}
	if s.o.Figures != nil {
		v.Figures = s.o.Figures.Figures(ctx)
	}
	return v
}
