package gate

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/fencepost/fencepost"
)

// An OpenRequest is a request that the provider shows as open and ready.
type OpenRequest struct {
	Subject Subject
	// Changed is when it last changed, by the provider's clock.
	Changed time.Time
}

// A Watcher shows which requests a gate ought to know.
type Watcher interface {
	// Open lists the open requests against the gate's base.
	Open(ctx context.Context) ([]OpenRequest, error)
	// Shown reports whether the provider shows any result of the gate on the
	// subject's head.
	Shown(ctx context.Context, s Subject) (bool, error)
}

// A LoggedDelivery is an attempt to deliver as the provider's log has it.
type LoggedDelivery struct {
	// ID is what it is asked for again by; Delivery is the same for all
	// attempts at one delivery.
	ID, Delivery string
	At           time.Time
	// Taken is set when it was answered 2xx.
	Taken bool
}

// A DeliveryLog is a provider's log of deliveries of handled events.
type DeliveryLog interface {
	// Log lists attempts since a time, newest first.
	Log(ctx context.Context, since time.Time) ([]LoggedDelivery, error)
	// Named says what a logged delivery asks for; an error with a reason of
	// [Admitter] says that it asks for nothing.
	Named(ctx context.Context, id string) (Subject, error)
	// Redeliver asks the provider to deliver it once more.
	Redeliver(ctx context.Context, id string) error
}

// A Watched is a gate whose missed deliveries are looked for.
type Watched struct {
	Gate    Name
	Watcher Watcher
	// Log is nil where the provider keeps none.
	Log DeliveryLog
}

// HealLimits bound a [Healer]. The zero value of a field is its default.
type HealLimits struct {
	// Interval is the time between two looks at a gate, from three quarters of
	// it to all of it by chance; default 5 min.
	Interval time.Duration
	// Timeout bounds one look; default 2 min.
	Timeout time.Duration
	// Grace is how old a change must be before its event counts as missed:
	// events may be late. Default 2 min.
	Grace time.Duration
	// Lookback is how far the delivery log is read; default 72 h, GitHub's own.
	Lookback time.Duration
	// Redeliveries is how many deliveries are asked for in one look, Inspected
	// how many logged ones are opened to find them; defaults 20, 100.
	Redeliveries, Inspected int
	// Patience is how long a redelivery that was asked for may take before it
	// is asked for again, Asks how often one is; defaults 10 min, 3.
	Patience time.Duration
	Asks     int
}

func (l HealLimits) withDefaults() HealLimits {
	setDefault(&l.Interval, 5*time.Minute)
	setDefault(&l.Timeout, 2*time.Minute)
	setDefault(&l.Grace, 2*time.Minute)
	setDefault(&l.Lookback, 72*time.Hour)
	setDefault(&l.Redeliveries, 20)
	setDefault(&l.Inspected, 100)
	setDefault(&l.Patience, 10*time.Minute)
	setDefault(&l.Asks, 3)
	return l
}

// A HealReport is what one look at a gate found.
type HealReport struct {
	Gate Name
	// Open requests there were, Unknown of them had no record here; Untaken
	// logged deliveries were never answered 2xx.
	Open, Unknown, Untaken int
	// Asked deliveries were asked for again; Missed requests have none that
	// could be.
	Asked, Missed int
}

// A HealConfig is everything that a [Healer] works with.
type HealConfig struct {
	Gates     []Watched
	Standings Standings
	Alerts    Alerts
	// Report, where set, is told of each look. It returns at once.
	Report func(HealReport, error)
	Now    func() time.Time
	Limits HealLimits
}

// A Healer finds deliveries that the provider sent, or should have, and that
// nothing is known of here, and asks for them again. It goes by the
// provider's state, so that no event has to have existed; and nothing of what
// it reads becomes work: only signed bytes do. DESIGN §8
type Healer struct {
	HealConfig
	// Owned by Run: the deliveries asked for, and the subjects of open alerts
	// of each gate.
	asked  map[string]ask
	raised map[Name]map[string]bool
}

// An ask is what was asked for of one delivery.
type ask struct {
	last  time.Time
	times int
}

// NewHealer makes a healer. Its error matches [fencepost.ErrZeroValue].
func NewHealer(c HealConfig) (*Healer, error) {
	if c.Standings == nil || c.Alerts == nil || c.Now == nil {
		return nil, fmt.Errorf("healer: a part is missing: %w", fencepost.ErrZeroValue)
	}
	for _, g := range c.Gates {
		if g.Gate == "" || g.Watcher == nil {
			return nil, fmt.Errorf("healer: gate without name or watcher: %w", fencepost.ErrZeroValue)
		}
	}
	c.Limits = c.Limits.withDefaults()
	return &Healer{HealConfig: c, asked: map[string]ask{}, raised: map[Name]map[string]bool{}}, nil
}

// Run looks at every gate in turn, right away and then at each interval, until
// ctx ends; then it returns nil.
func (h *Healer) Run(ctx context.Context) error {
	for {
		for _, g := range h.Gates {
			report, err := h.look(ctx, g)
			if ctx.Err() != nil {
				return nil
			}
			if h.Report != nil {
				h.Report(report, err)
			}
		}
		h.forget()
		// Not all processes at once.
		rest := h.Limits.Interval
		if err := pause(ctx, rest-rest/4+rand.N(rest/4+1)); err != nil {
			return nil
		}
	}
}

// look compares one gate's open requests with what is known here.
func (h *Healer) look(ctx context.Context, g Watched) (HealReport, error) {
	ctx, cancel := context.WithTimeout(ctx, h.Limits.Timeout)
	defer cancel()
	report := HealReport{Gate: g.Gate}
	open, err := g.Watcher.Open(ctx)
	if err != nil {
		return report, fmt.Errorf("list open requests: %w", err)
	}
	report.Open = len(open)
	missing, err := h.unknown(ctx, g, open)
	report.Unknown = len(missing)
	if err != nil {
		return report, err
	}
	if len(missing) > 0 && g.Log != nil {
		whole, err := h.askAgain(ctx, g, missing, &report)
		if err != nil || !whole {
			return report, err
		}
	}
	h.alert(g.Gate, open, missing, &report)
	return report, nil
}

// unknown keeps the requests that nothing is recorded of, by their subjects.
// A result at the provider is a record, too: ours are forgotten some day.
func (h *Healer) unknown(ctx context.Context, g Watched, open []OpenRequest) (map[Subject]bool, error) {
	missing := map[Subject]bool{}
	for _, o := range open {
		if h.Now().Sub(o.Changed) < h.Limits.Grace {
			continue
		}
		known, err := h.Standings.Known(ctx, g.Gate, o.Subject)
		if err != nil {
			return missing, fmt.Errorf("look up subject: %w", err)
		}
		if known {
			continue
		}
		shown, err := g.Watcher.Shown(ctx, o.Subject)
		if err != nil {
			return missing, fmt.Errorf("look up result: %w", err)
		}
		if shown {
			if _, err := h.Standings.Enter(ctx, g.Gate, o.Subject); err != nil {
				return missing, fmt.Errorf("remember subject: %w", err)
			}
			continue
		}
		missing[o.Subject] = true
	}
	return missing, nil
}

// askAgain walks through the delivery log, newest first, and asks for the
// first delivery of each missing subject. What it asked for, or is still to
// come, leaves missing. whole is false where a limit ended the walk: the next
// look goes on.
func (h *Healer) askAgain(ctx context.Context, g Watched, missing map[Subject]bool, report *HealReport) (whole bool, err error) {
	logged, err := g.Log.Log(ctx, h.Now().Add(-h.Limits.Lookback))
	if err != nil {
		return false, fmt.Errorf("read delivery log: %w", err)
	}
	for i, d := range newestAttempts(logged, report) {
		if len(missing) == 0 {
			break
		}
		if i >= h.Limits.Inspected || report.Asked >= h.Limits.Redeliveries {
			return false, nil
		}
		s, err := g.Log.Named(ctx, d.ID)
		switch fencepost.ReasonOf(err) {
		case fencepost.ReasonNone:
		case fencepost.ReasonMalformed, fencepost.ReasonUnauthorized, fencepost.ReasonEventNotHandled:
			continue
		default:
			return false, fmt.Errorf("read logged delivery: %w", err)
		}
		if !missing[s] {
			continue
		}
		if err := h.ask(ctx, g, d, s, missing, report); err != nil {
			return false, err
		}
	}
	return true, nil
}

// ask asks for one delivery, unless it was asked for a moment ago, or so often
// that asking does not help.
func (h *Healer) ask(ctx context.Context, g Watched, d LoggedDelivery, s Subject, missing map[Subject]bool, report *HealReport) error {
	before := h.asked[d.Delivery]
	switch {
	case before.times >= h.Limits.Asks && h.Now().Sub(before.last) >= h.Limits.Patience:
		return nil
	case before.times > 0 && h.Now().Sub(before.last) < h.Limits.Patience:
		delete(missing, s)
		return nil
	}
	if err := g.Log.Redeliver(ctx, d.ID); err != nil {
		return fmt.Errorf("ask for redelivery: %w", err)
	}
	h.asked[d.Delivery] = ask{last: h.Now(), times: before.times + 1}
	delete(missing, s)
	report.Asked++
	return nil
}

// newestAttempts keeps the newest attempt at each delivery, in the same order,
// and counts those of which no attempt was taken.
func newestAttempts(logged []LoggedDelivery, report *HealReport) []LoggedDelivery {
	taken := map[string]bool{}
	var newest []LoggedDelivery
	for _, d := range logged {
		if _, seen := taken[d.Delivery]; !seen {
			newest = append(newest, d)
		}
		taken[d.Delivery] = taken[d.Delivery] || d.Taken
	}
	for _, t := range taken {
		if !t {
			report.Untaken++
		}
	}
	return newest
}

// alert tells of the requests that can't be helped from here: a new push, or
// closing and reopening, makes the provider send an event. Alerts of requests
// that are not missing any more end.
func (h *Healer) alert(g Name, open []OpenRequest, missing map[Subject]bool, report *HealReport) {
	now := map[string]bool{}
	for _, o := range open {
		if !missing[o.Subject] {
			continue
		}
		subject := string(g) + ":" + strconv.FormatInt(o.Subject.Number, 10)
		now[subject] = true
		report.Missed++
		h.Alerts.Raise(Alert{Code: AlertMissedDelivery, Subject: subject, Age: h.Now().Sub(o.Changed)})
	}
	for subject := range h.raised[g] {
		if !now[subject] {
			h.Alerts.Resolve(AlertMissedDelivery, subject)
		}
	}
	h.raised[g] = now
}

// forget drops what was asked for longer ago than the provider can redeliver.
func (h *Healer) forget() {
	for d, a := range h.asked {
		if h.Now().Sub(a.last) > h.Limits.Lookback {
			delete(h.asked, d)
		}
	}
}
