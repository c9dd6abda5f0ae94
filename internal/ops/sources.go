package ops

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fencepost/fencepost"
)

// recentRuns is how many runs the page shows.
const recentRuns = 30

// maxSources is how many sources the page shows: those in trouble first.
const maxSources = 200

// A SourceRow is one source as the page shows it. Zero times are unknown.
type SourceRow struct {
	Key, Provider, Repository, Ref, Sink string
	// Policy is its revision, in hexadecimal.
	Policy string
	// State says in a word how it stands: "fresh", "behind", "running",
	// "stale" (a freshness alert is open), "disabled" or "unknown".
	State string
	// Announced, Observed and Applied are heads, shortened; may be empty.
	Announced, Observed, Applied       string
	AnnouncedAt, ObservedAt, AppliedAt time.Time
	// Age is how long the earliest sign has been unmet; zero for none.
	Age time.Duration
	// Next is when the source is observed again.
	Next time.Time
	// Holder says who holds the lock, for how long, and since the last
	// renewal; empty for nobody.
	Holder string
	// FollowUp says that one more look is owed.
	FollowUp bool
	// Trouble is the reason of the last observation, if it failed.
	Trouble fencepost.Reason
}

// A RunRow is one run of a source as the page shows it.
type RunRow struct {
	ID, Source, Trigger, Status string
	Reason                      fencepost.Reason
	Detail                      string
	// Head is the head, shortened; may be empty.
	Head           string
	Attempts       int
	Queued, Ended  time.Time
	Took           time.Duration
	Files, Changed int64
	// Recovers is the run that this one recovers; may be empty.
	Recovers string
}

// Sources lists sources and their runs.
type Sources interface {
	// SourceRows returns at most limit rows, those in trouble first.
	SourceRows(ctx context.Context, limit int) ([]SourceRow, error)
	// RecentRuns returns at most limit rows, the newest first.
	RecentRuns(ctx context.Context, limit int) ([]RunRow, error)
}

// sourceMetrics are those of sources; a part of [Metrics].
type sourceMetrics struct {
	runs     *prometheus.CounterVec
	runTime  *prometheus.HistogramVec
	watched  *prometheus.GaugeVec
	unmet    *prometheus.GaugeVec
	observed *prometheus.GaugeVec
	jobs     *prometheus.GaugeVec
	jobsAge  *prometheus.GaugeVec
}

func (m *Metrics) sourceMetrics() sourceMetrics {
	return sourceMetrics{
		runs: m.counterVec("source_attempts_total", "Attempts of source runs, by how they ended.", "source", "status", "reason"),
		runTime: m.histogramVec("source_attempt_duration_seconds", "How long an attempt took.",
			prometheus.ExponentialBuckets(0.01, 2, 15), "status"),
		watched: m.gaugeVec("source_watchdog_timestamp_seconds", "When freshness and stale locks were last looked at."),
		unmet: m.gaugeVec("source_unmet_seconds", "How long the earliest sign of a new head has been without complete evidence; 0 for none.",
			"source"),
		observed: m.gaugeVec("source_observed_timestamp_seconds", "When the head was last observed, with repository and owner proven.",
			"source"),
		jobs:    m.gaugeVec("source_jobs_waiting", "Jobs that wait for a worker."),
		jobsAge: m.gaugeVec("source_jobs_oldest_seconds", "How long the oldest of them has waited."),
	}
}

// SourceAttempt counts an attempt of a run.
func (m *Metrics) SourceAttempt(source, status string, reason fencepost.Reason, took time.Duration) {
	m.sources.runs.WithLabelValues(source, status, string(reason)).Inc()
	m.sources.runTime.WithLabelValues(status).Observe(took.Seconds())
}

// SourcesWatched is the watchdog's heartbeat.
func (m *Metrics) SourcesWatched() { m.sources.watched.WithLabelValues().Set(seconds(m.now())) }

// SourceAge says how long a source's earliest sign has been unmet, and when it
// was last observed; zero for never.
func (m *Metrics) SourceAge(source string, unmet time.Duration, observed time.Time) {
	m.sources.unmet.WithLabelValues(source).Set(max(0, unmet.Seconds()))
	if !observed.IsZero() {
		m.sources.observed.WithLabelValues(source).Set(seconds(observed))
	}
}

// JobsWaiting says how many jobs wait, and for how long the oldest has.
func (m *Metrics) JobsWaiting(n int64, oldest time.Duration) {
	m.sources.jobs.WithLabelValues().Set(float64(n))
	m.sources.jobsAge.WithLabelValues().Set(oldest.Seconds())
}
