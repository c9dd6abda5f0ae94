package ops

import (
	"math"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/fencepost/fencepost"
)

// Build says what program this is.
type Build struct{ Version, Revision, Go string }

// Levels are read whenever metrics are. A nil function leaves its metrics
// out. They return quickly, from memory.
type Levels struct {
	// Bodies is the memory that request bodies take, and its budget.
	Bodies func() (used, budget int64)
	// Inbox is what is recorded and not done, its bounds, and how long the
	// oldest has waited.
	Inbox func() InboxLevel
	// Ledger is how many deliveries are recorded, and how many can be.
	Ledger func() (rows, capacity int64)
	// FullIn is how long the ledger has room at its present rate; ok is false
	// if it is longer than can be told.
	FullIn func() (left time.Duration, ok bool)
	// Artifacts is how much evidence is stored.
	Artifacts func() (count, bytes int64)
	// Running is how many evaluations are under way.
	Running func() int
}

// An InboxLevel is how full the inbox is.
type InboxLevel struct {
	Entries, MaxEntries int64
	Bytes, MaxBytes     int64
	Oldest              time.Duration
}

// MetricsOptions are what [Metrics] needs.
type MetricsOptions struct {
	Build  Build
	Levels Levels
	// Routes are the configured ones. Any other is counted as "unknown", so
	// that nothing in a request makes a label.
	Routes []fencepost.RouteName
	// Now is the wall clock.
	Now func() time.Time
}

// Metrics are all of the program's, in a registry of its own. docs/metrics.md
// has a line for each. No label holds a commit, a delivery, an address or a
// person (DESIGN §10). It is safe for concurrent use.
type Metrics struct {
	registry *prometheus.Registry
	now      func() time.Time
	routes   map[fencepost.RouteName]bool

	heartbeat   prometheus.Gauge
	ready       prometheus.Gauge
	checks      *prometheus.GaugeVec
	requests    *prometheus.CounterVec
	requestTime *prometheus.HistogramVec
	steps       *prometheus.CounterVec
	stepTime    *prometheus.HistogramVec
	fetched     *prometheus.CounterVec
	missed      *prometheus.CounterVec
	redelivered *prometheus.CounterVec
	anchorUsed  *prometheus.GaugeVec
	alertsOpen  *prometheus.GaugeVec
	alerts      *prometheus.CounterVec
	sources     sourceMetrics
}

// NewMetrics makes the registry.
func NewMetrics(o MetricsOptions) *Metrics {
	m := &Metrics{registry: prometheus.NewRegistry(), now: o.Now, routes: map[fencepost.RouteName]bool{}}
	for _, r := range o.Routes {
		m.routes[r] = true
	}
	m.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	m.gauge("build_info", "What program this is; always 1.", prometheus.Labels{
		"version": o.Build.Version, "revision": o.Build.Revision, "go": o.Build.Go,
	}).Set(1)
	m.heartbeat = m.gauge("heartbeat_timestamp_seconds", "When the controller last looked at its own health.", nil)
	m.ready = m.gauge("ready", "1 if every check is well.", nil)
	m.checks = m.gaugeVec("check_ok", "1 if the check is well.", "check")
	m.requests = m.counterVec("requests_total", "Requests to the public listener, by their answer.", "route", "outcome", "reason")
	m.requestTime = m.histogramVec("request_duration_seconds", "From the first byte of a request to its answer.",
		prometheus.ExponentialBuckets(0.0005, 2, 15), "outcome")
	m.steps = m.counterVec("steps_total", "What happened to deliveries of a gate, by the kinds of the receipt.", "gate", "step", "reason")
	m.stepTime = m.histogramVec("step_duration_seconds", "How long a step took.", prometheus.ExponentialBuckets(0.001, 2, 18), "step")
	m.fetched = m.counterVec("fetched_bytes_total", "Bytes received by fetches of the candidate and the action.", "gate")
	m.missed = m.counterVec("missed_deliveries_total", "Deliveries that the provider made or should have made, and that were unknown here.", "gate")
	m.redelivered = m.counterVec("redeliveries_total", "Deliveries that the provider was asked to make anew.", "gate")
	m.anchorUsed = m.gaugeVec("anchor_last_used_timestamp_seconds", "When a key last authenticated a delivery.", "trust", "anchor")
	m.alertsOpen = m.gaugeVec("alerts_open", "Open alerts.", "code")
	m.alerts = m.counterVec("alerts_raised_total", "Alerts raised.", "code")
	m.sources = m.sourceMetrics()
	m.levels(o.Levels)
	return m
}

const namespace = "fencepost"

func (m *Metrics) gauge(name, help string, labels prometheus.Labels) prometheus.Gauge {
	g := prometheus.NewGauge(prometheus.GaugeOpts{Namespace: namespace, Name: name, Help: help, ConstLabels: labels})
	m.registry.MustRegister(g)
	return g
}

func (m *Metrics) gaugeVec(name, help string, labels ...string) *prometheus.GaugeVec {
	g := prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: namespace, Name: name, Help: help}, labels)
	m.registry.MustRegister(g)
	return g
}

func (m *Metrics) counterVec(name, help string, labels ...string) *prometheus.CounterVec {
	c := prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: namespace, Name: name, Help: help}, labels)
	m.registry.MustRegister(c)
	return c
}

func (m *Metrics) histogramVec(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	h := prometheus.NewHistogramVec(prometheus.HistogramOpts{Namespace: namespace, Name: name, Help: help, Buckets: buckets}, labels)
	m.registry.MustRegister(h)
	return h
}

func (m *Metrics) levels(l Levels) {
	read := func(name, help string, value func() float64) {
		m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Namespace: namespace, Name: name, Help: help}, value))
	}
	if l.Bodies != nil {
		read("bodies_bytes", "Memory that request bodies in flight take.", func() float64 { used, _ := l.Bodies(); return float64(used) })
		read("bodies_budget_bytes", "The budget for it.", func() float64 { _, budget := l.Bodies(); return float64(budget) })
	}
	if l.Inbox != nil {
		read("inbox_entries", "Recorded deliveries that are not done.", func() float64 { return float64(l.Inbox().Entries) })
		read("inbox_max_entries", "The most of them.", func() float64 { return float64(l.Inbox().MaxEntries) })
		read("inbox_bytes", "Bytes that the inbox takes.", func() float64 { return float64(l.Inbox().Bytes) })
		read("inbox_max_bytes", "The most of them.", func() float64 { return float64(l.Inbox().MaxBytes) })
		read("inbox_oldest_seconds", "How long the oldest recorded delivery has waited.", func() float64 { return l.Inbox().Oldest.Seconds() })
	}
	if l.Ledger != nil {
		read("ledger_rows", "Deliveries that the ledger holds.", func() float64 { rows, _ := l.Ledger(); return float64(rows) })
		read("ledger_capacity", "The most that it can hold.", func() float64 { _, capacity := l.Ledger(); return float64(capacity) })
	}
	if l.FullIn != nil {
		read("ledger_full_in_seconds", "How long the ledger has room at the rate of the last week; +Inf for longer than a century.", func() float64 {
			left, ok := l.FullIn()
			if !ok {
				return math.Inf(1)
			}
			return left.Seconds()
		})
	}
	if l.Artifacts != nil {
		read("artifacts", "Artifacts stored.", func() float64 { count, _ := l.Artifacts(); return float64(count) })
		read("artifacts_bytes", "Bytes of them.", func() float64 { _, bytes := l.Artifacts(); return float64(bytes) })
	}
	if l.Running != nil {
		read("evaluations_running", "Evaluations under way.", func() float64 { return float64(l.Running()) })
	}
}

// Handler serves the metrics in Prometheus's formats.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{
		ErrorHandling: promhttp.HTTPErrorOnError, MaxRequestsInFlight: 4, Timeout: 10 * time.Second,
	})
}

// Answered counts a request's answer.
func (m *Metrics) Answered(route fencepost.RouteName, outcome string, reason fencepost.Reason, took time.Duration) {
	if !m.routes[route] {
		route = "unknown"
	}
	m.requests.WithLabelValues(string(route), outcome, string(reason)).Inc()
	m.requestTime.WithLabelValues(outcome).Observe(took.Seconds())
}

// Step counts one event of a receipt. A step without a duration has took 0.
func (m *Metrics) Step(gate, step string, reason fencepost.Reason, took time.Duration) {
	m.steps.WithLabelValues(gate, step, string(reason)).Inc()
	if took > 0 {
		m.stepTime.WithLabelValues(step).Observe(took.Seconds())
	}
}

// Fetched counts bytes received.
func (m *Metrics) Fetched(gate string, bytes int64) {
	m.fetched.WithLabelValues(gate).Add(float64(bytes))
}

// Missed counts deliveries that were unknown here.
func (m *Metrics) Missed(gate string, n int) { m.missed.WithLabelValues(gate).Add(float64(n)) }

// Redelivered counts deliveries that were asked for anew.
func (m *Metrics) Redelivered(gate string, n int) {
	m.redelivered.WithLabelValues(gate).Add(float64(n))
}

// AnchorUsed notes that a key authenticated a delivery.
func (m *Metrics) AnchorUsed(trust fencepost.TrustSetName, anchor fencepost.AnchorID) {
	m.anchorUsed.WithLabelValues(string(trust), string(anchor)).Set(seconds(m.now()))
}

// AlertRaised counts an alert that was not open before.
func (m *Metrics) AlertRaised(code string) { m.alerts.WithLabelValues(code).Inc() }

// AlertsOpen says how many alerts of a code are open.
func (m *Metrics) AlertsOpen(code string, n int) { m.alertsOpen.WithLabelValues(code).Set(float64(n)) }

// beat notes the answers of the checks, and that somebody asked.
func (m *Metrics) beat(results []Result, ready bool) {
	for _, r := range results {
		m.checks.WithLabelValues(r.Name).Set(truth(r.OK))
	}
	m.ready.Set(truth(ready))
	m.heartbeat.Set(seconds(m.now()))
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

func seconds(t time.Time) float64 { return float64(t.UnixMilli()) / 1000 }
