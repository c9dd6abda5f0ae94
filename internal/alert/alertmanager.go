package alert

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/fencepost/fencepost"
)

// resolvedFor is how long a resolved alert is still told, so that it is heard
// also by an Alertmanager that was away.
const resolvedFor = 15 * time.Minute

// batchSize bounds the alerts of one request.
const batchSize = 256

// maxPause is where the pause between attempts stops doubling.
const maxPause = 30 * time.Second

// ErrRefused: the Alertmanager answered something else than 2xx.
var ErrRefused = errors.New("alertmanager refused the alerts")

// A Lister is the part of [Book] that an [Alertmanager] needs.
type Lister interface {
	Alerts() []Alert
	Changed() <-chan struct{}
}

// AlertmanagerOptions say whom to tell, and how hard to try.
type AlertmanagerOptions struct {
	// URL is the base URL; /api/v2/alerts is added.
	URL *url.URL
	// Transport carries the requests; nil for a plain one without proxy.
	Transport http.RoundTripper
	// Timeout of one request; default 10 s.
	Timeout time.Duration
	// Attempts at one state of the alerts before the next repeat; default 5.
	Attempts int
	// Repeat is how often open alerts are told anew; default 1 min. An alert
	// ends there by itself four repeats after it was last told.
	Repeat time.Duration
	// Now is the wall clock.
	Now func() time.Time
	// Log takes a line when telling begins to fail, and when it works again.
	Log *slog.Logger
}

// An Alertmanager tells one Prometheus Alertmanager of all open alerts, at
// each change and at each repeat, and of those resolved lately. It keeps no
// state: what was not heard is told again.
type Alertmanager struct {
	list   Lister
	o      AlertmanagerOptions
	client *http.Client
	// failing is owned by Run.
	failing bool
}

// NewAlertmanager takes the options; zero fields are their defaults.
func NewAlertmanager(list Lister, o AlertmanagerOptions) *Alertmanager {
	o.Timeout = cmp.Or(o.Timeout, 10*time.Second)
	o.Attempts = cmp.Or(o.Attempts, 5)
	o.Repeat = cmp.Or(o.Repeat, time.Minute)
	if o.Transport == nil {
		o.Transport = &http.Transport{MaxIdleConns: 1, IdleConnTimeout: 2 * o.Repeat, DisableCompression: true}
	}
	return &Alertmanager{list: list, o: o, client: &http.Client{
		Transport: o.Transport,
		CheckRedirect: func(*http.Request, []*http.Request) error {
			return http.ErrUseLastResponse
		},
	}}
}

// Run tells until ctx ends, which is no error.
func (m *Alertmanager) Run(ctx context.Context) error {
	defer m.client.CloseIdleConnections()
	tick := time.NewTicker(m.o.Repeat)
	defer tick.Stop()
	for {
		m.tell(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-m.list.Changed():
		case <-tick.C:
		}
	}
}

// tell tries until it is heard, out of attempts, or ended.
func (m *Alertmanager) tell(ctx context.Context) {
	pause := time.Second
	for attempt := 1; ; attempt++ {
		err := m.post(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err == nil:
			if m.failing {
				m.o.Log.Info("alertmanager takes alerts again")
			}
			m.failing = false
			return
		}
		if !m.failing {
			m.o.Log.Warn("alertmanager does not take alerts; they stay here and are told again", "reason", string(fencepost.ReasonUnavailable))
		}
		m.failing = true
		if attempt == m.o.Attempts || !sleep(ctx, pause) {
			return
		}
		pause = min(2*pause, maxPause)
	}
}

// sleep reports whether it slept to its end.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

// A postedAlert is Alertmanager's API v2 "postableAlert".
type postedAlert struct {
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
	StartsAt    time.Time         `json:"startsAt"`
	EndsAt      time.Time         `json:"endsAt"`
}

func (m *Alertmanager) post(ctx context.Context) error {
	now := m.o.Now().UTC()
	var batch []postedAlert
	for _, a := range m.list.Alerts() {
		if a.Status == Resolved && now.Sub(a.Until) > resolvedFor {
			continue
		}
		batch = append(batch, m.posted(a, now))
		if len(batch) == batchSize {
			if err := m.send(ctx, batch); err != nil {
				return err
			}
			batch = batch[:0]
		}
	}
	if len(batch) == 0 {
		return nil
	}
	return m.send(ctx, batch)
}

func (m *Alertmanager) posted(a Alert, now time.Time) postedAlert {
	ends := a.Until
	if a.Status == Open {
		ends = now.Add(4 * m.o.Repeat)
	}
	return postedAlert{
		Labels: map[string]string{
			"alertname": "Fencepost", "service": "fencepost", "code": string(a.Code), "subject": string(a.Subject),
		},
		Annotations: map[string]string{
			"summary": a.Code.Meaning(), "count": fmt.Sprint(a.Count),
		},
		StartsAt: a.Since, EndsAt: ends,
	}
}

func (m *Alertmanager) send(ctx context.Context, batch []postedAlert) error {
	body, err := json.Marshal(batch)
	if err != nil {
		return fmt.Errorf("post alerts: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, m.o.Timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, m.o.URL.JoinPath("api", "v2", "alerts").String(), bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("post alerts: %w", err)
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := m.client.Do(req)
	if err != nil {
		return fmt.Errorf("post alerts: %w", err)
	}
	defer resp.Body.Close()
	// A short rest is read so that the connection can be used again.
	_, _ = io.CopyN(io.Discard, resp.Body, 4<<10)
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		return fmt.Errorf("post alerts: status %d: %w", resp.StatusCode, ErrRefused)
	}
	return nil
}
