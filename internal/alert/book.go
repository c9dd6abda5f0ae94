package alert

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/durable"
)

// ErrInUse: another process has the book open.
var ErrInUse = errors.New("alerts are in use by another process")

// Status is whether an alert's cause is still there. The zero Status is none.
type Status uint8

// The statuses.
const (
	// Open: the cause is there, as far as is known.
	Open Status = iota + 1
	// Resolved: it is gone.
	Resolved
)

// String returns "open" or "resolved".
func (s Status) String() string {
	switch s {
	case Open:
		return "open"
	case Resolved:
		return "resolved"
	}
	return "none"
}

// An Alert is one row. Code and Subject name it; there is at most one open
// row of one name.
type Alert struct {
	Code    Code
	Subject Subject
	Status  Status
	// Since is when it was raised, UTC, to the millisecond.
	Since time.Time
	// Until is when it was resolved; zero while it is open.
	Until time.Time
	// Count is how often it was raised since; 1 or more.
	Count int64
}

// Age is how long the alert has been open, or was.
func (a Alert) Age(now time.Time) time.Duration {
	if a.Status == Resolved {
		now = a.Until
	}
	return max(0, now.Sub(a.Since))
}

// A Meter counts alerts. It is safe for concurrent use.
type Meter interface {
	// AlertRaised counts an alert that was not open before.
	AlertRaised(code string)
	// AlertsOpen says how many of a code are open.
	AlertsOpen(code string, n int)
}

// Limits bound a [Book].
type Limits struct {
	// MaxOpen is the most open alerts with a subject of their own; further
	// ones of a code share one row of the subject "overflow". 10 or more,
	// default 1000. The book keeps as many resolved ones.
	MaxOpen int
	// Keep is how long a resolved alert is kept; default 168 h.
	Keep time.Duration
	// Housekeeping is the pause between two rounds of dropping what is past
	// Keep and of writing counts; default 1 min.
	Housekeeping time.Duration
}

// DefaultLimits holds the defaults.
var DefaultLimits = Limits{MaxOpen: 1000, Keep: 168 * time.Hour, Housekeeping: time.Minute}

// Options are what a [Book] needs.
type Options struct {
	// FS is a directory of the book's own, which exists; a [durable.Root], so
	// that a failed sync is final.
	FS durable.FS
	// Now is the wall clock.
	Now func() time.Time
	// Log takes a line at each change.
	Log *slog.Logger
	// Meter may be nil.
	Meter Meter
	// Limits; a zero field is its default.
	Limits Limits
}

// A Book is the durable list of alerts. It is safe for concurrent use.
type Book struct {
	fsys   durable.FS
	lock   durable.File
	now    func() time.Time
	log    *slog.Logger
	meter  Meter
	limits Limits
	// changed has room for one token, which is there when rows changed
	// since it was last taken.
	changed chan struct{}

	// writing is held around a change and its write, so that files are
	// written in the order of the changes.
	writing sync.Mutex

	mu sync.Mutex
	// open and resolved are guarded by mu. resolved is in the order of Until.
	open     map[name]Alert
	resolved []Alert
	// unsaved is guarded by mu: rows that the file doesn't have yet.
	unsaved bool
}

// A name is what an open alert is found by.
type name struct {
	code    Code
	subject Subject
}

// OpenBook opens the book in o.FS, and makes it where there is none. Its
// error matches [ErrInUse], [ErrCorrupt] or one of package durable.
func OpenBook(o Options) (*Book, error) {
	b := &Book{
		fsys: o.FS, now: o.Now, log: o.Log, meter: o.Meter,
		limits: Limits{
			MaxOpen:      cmp.Or(o.Limits.MaxOpen, DefaultLimits.MaxOpen),
			Keep:         cmp.Or(o.Limits.Keep, DefaultLimits.Keep),
			Housekeeping: cmp.Or(o.Limits.Housekeeping, DefaultLimits.Housekeeping),
		},
		changed: make(chan struct{}, 1),
		open:    map[name]Alert{},
	}
	lock, err := o.FS.OpenFile("lock", os.O_RDWR|os.O_CREATE, durable.FilePerm)
	if err != nil {
		return nil, fmt.Errorf("open alerts: %w", err)
	}
	taken, err := lock.TryLock(durable.Exclusive)
	if err == nil && !taken {
		err = ErrInUse
	}
	if err == nil {
		err = b.load()
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open alerts: %w", err), lock.Close())
	}
	b.lock = lock
	b.measure()
	return b, nil
}

// Close writes what is not written yet, and lets another process open the
// book.
func (b *Book) Close() error {
	return errors.Join(b.flush(), b.lock.Close())
}

// Run keeps house until ctx ends: it drops resolved alerts past their time,
// and writes counts.
func (b *Book) Run(ctx context.Context) error {
	tick := time.NewTicker(b.limits.Housekeeping)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return b.flush()
		case <-tick.C:
			b.prune()
			if err := b.flush(); err != nil {
				b.log.Error("alerts could not be written", "reason", fencepost.ReasonOf(err))
			}
		}
	}
}

// Raise opens an alert, or counts one more of it if it is open. When it
// returns nil for an alert that was not open, the row is on stable storage.
// Also where that fails the alert is in memory, in the log and in the metric,
// and is written by a later change.
func (b *Book) Raise(code Code, subject Subject) error {
	if !code.Valid() || !subjectForm.MatchString(string(subject)) {
		return fmt.Errorf("raise alert: %w", fencepost.ErrMalformed)
	}
	b.writing.Lock()
	defer b.writing.Unlock()
	a, isNew := b.add(code, subject)
	if !isNew {
		return nil
	}
	b.log.Error("alert raised", "reason", string(a.Code), "subject", string(a.Subject), "status", a.Status.String(), "count", a.Count)
	if b.meter != nil {
		b.meter.AlertRaised(string(code))
	}
	b.measure()
	b.signal()
	if err := b.write(); err != nil {
		return fmt.Errorf("raise alert %s: %w", code, err)
	}
	return nil
}

func (b *Book) add(code Code, subject Subject) (a Alert, isNew bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	key := name{code, subject}
	if _, is := b.open[key]; !is && len(b.open) >= b.limits.MaxOpen {
		key.subject = overflow
	}
	a, is := b.open[key]
	if !is {
		a = Alert{Code: code, Subject: key.subject, Status: Open, Since: b.now().UTC().Truncate(time.Millisecond)}
	}
	a.Count++
	b.open[key] = a
	b.unsaved = true
	return a, !is
}

// Resolve ends an open alert; there need be none.
func (b *Book) Resolve(code Code, subject Subject) error {
	return b.settle(func(a Alert) bool { return a.Code == code && a.Subject == subject })
}

// Settle ends every open alert of a code whose subject is not among those
// that still have the cause: for those who look at everything anew, such as
// at a start.
func (b *Book) Settle(code Code, still ...Subject) error {
	return b.settle(func(a Alert) bool {
		return a.Code == code && a.Subject != overflow && !slices.Contains(still, a.Subject)
	})
}

func (b *Book) settle(gone func(Alert) bool) error {
	b.writing.Lock()
	defer b.writing.Unlock()
	ended := b.remove(gone)
	if len(ended) == 0 {
		return nil
	}
	for _, a := range ended {
		b.log.Info("alert resolved", "reason", string(a.Code), "subject", string(a.Subject), "status", a.Status.String(),
			"count", a.Count, "duration_ms", a.Age(a.Until).Milliseconds())
	}
	b.measure()
	b.signal()
	if err := b.write(); err != nil {
		return fmt.Errorf("resolve alert: %w", err)
	}
	return nil
}

func (b *Book) remove(gone func(Alert) bool) (ended []Alert) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.now().UTC().Truncate(time.Millisecond)
	end := func(key name, a Alert) {
		delete(b.open, key)
		a.Status, a.Until = Resolved, later(now, a.Since)
		ended = append(ended, a)
	}
	for key, a := range b.open {
		if gone(a) {
			end(key, a)
		}
	}
	// What the overflow stands for can't be told apart; with room again, a
	// cause that is still there gets a row of its own at its next raise.
	if len(ended) > 0 && b.ownRows() < b.limits.MaxOpen {
		for key, a := range b.open {
			if a.Subject == overflow {
				end(key, a)
			}
		}
	}
	slices.SortFunc(ended, byName)
	b.resolved = append(b.resolved, ended...)
	b.resolved = b.resolved[max(0, len(b.resolved)-b.limits.MaxOpen):]
	b.unsaved = b.unsaved || len(ended) > 0
	return ended
}

// ownRows is how many open alerts have a subject of their own.
func (b *Book) ownRows() int {
	n := 0
	for key := range b.open {
		if key.subject != overflow {
			n++
		}
	}
	return n
}

func later(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}

func byName(a, b Alert) int {
	return cmp.Or(cmp.Compare(a.Code, b.Code), cmp.Compare(a.Subject, b.Subject))
}

// Alerts lists the open alerts, the oldest first, and then the resolved ones,
// the last resolved first.
func (b *Book) Alerts() []Alert {
	b.mu.Lock()
	defer b.mu.Unlock()
	list := make([]Alert, 0, len(b.open)+len(b.resolved))
	for _, a := range b.open {
		list = append(list, a)
	}
	slices.SortFunc(list, func(a, b Alert) int { return cmp.Or(a.Since.Compare(b.Since), byName(a, b)) })
	for _, a := range slices.Backward(b.resolved) {
		list = append(list, a)
	}
	return list
}

// Changed receives when an alert was raised or resolved since it last
// received. It is for one receiver.
func (b *Book) Changed() <-chan struct{} { return b.changed }

func (b *Book) signal() {
	select {
	case b.changed <- struct{}{}:
	default: // a token is there already, and stands for this change too
	}
}

func (b *Book) measure() {
	if b.meter == nil {
		return
	}
	b.mu.Lock()
	counts := map[Code]int{}
	for key := range b.open {
		counts[key.code]++
	}
	b.mu.Unlock()
	for _, c := range Codes() {
		b.meter.AlertsOpen(string(c), counts[c])
	}
}

func (b *Book) prune() {
	b.mu.Lock()
	defer b.mu.Unlock()
	before := len(b.resolved)
	oldest := b.now().Add(-b.limits.Keep)
	b.resolved = slices.DeleteFunc(b.resolved, func(a Alert) bool { return a.Until.Before(oldest) })
	b.unsaved = b.unsaved || len(b.resolved) != before
}

// flush writes what the file doesn't have yet.
func (b *Book) flush() error {
	b.writing.Lock()
	defer b.writing.Unlock()
	return b.write()
}
