package receipt

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/durable"
)

// ErrNotFound: the journal knows nothing of the delivery.
var ErrNotFound = errors.New("no such delivery in the journal")

// A Damage is a place in a journal that could not be read.
type Damage struct {
	File   string `json:"file"`
	Offset int64  `json:"offset"`
	Err    error  `json:"-"`
}

// Error says where and what.
func (d Damage) Error() string { return fmt.Sprintf("%s, byte %d: %v", d.File, d.Offset, d.Err) }

// Unwrap returns the cause.
func (d Damage) Unwrap() error { return d.Err }

// A Receipt is everything the journal knows of one delivery, oldest first.
type Receipt struct {
	Delivery fencepost.DeliveryID `json:"delivery"`
	Events   []Event              `json:"events"`
}

// A Filter chooses deliveries. A zero field chooses all.
type Filter struct {
	// Gate and Route must be those of the delivery.
	Gate  string
	Route fencepost.RouteName
	// Since is the earliest receipt.
	Since time.Time
	// Limit is the most that is returned, the newest; default 50.
	Limit int
}

// DefaultLimit is the default of [Filter.Limit].
const DefaultLimit = 50

// A Summary is a delivery in one line.
type Summary struct {
	Delivery   fencepost.DeliveryID `json:"delivery"`
	Route      fencepost.RouteName  `json:"route,omitempty"`
	Gate       string               `json:"gate,omitempty"`
	Anchor     fencepost.AnchorID   `json:"anchor,omitempty"`
	Evaluation string               `json:"evaluation,omitempty"`
	// Received is when it first came; Last is the latest event's time.
	Received time.Time `json:"received"`
	Last     time.Time `json:"last"`
	// State is the latest event's kind, replays aside.
	State Kind `json:"state"`
	// Reason is the latest event's.
	Reason fencepost.Reason `json:"reason,omitempty"`
	// Conclusion is what was staged: "success", "failure", "none" or "".
	Conclusion string `json:"conclusion,omitempty"`
	// Subject says what it asked about, such as "#7 5e1c309".
	Subject string `json:"subject,omitempty"`
	// Evidence refers to the artifact that was stored last.
	Evidence string `json:"evidence,omitempty"`
	// Claims and Replays count.
	Claims  int `json:"claims"`
	Replays int `json:"replays"`
}

// Names of details that a [Summary] shows.
const (
	DetailSubject    = "subject"
	DetailConclusion = "conclusion"
	DetailEvidence   = "evidence"
)

// lateness bounds how much later than its own time an event is written: that
// of a receipt is when the request came, and its line is written when it is
// recorded.
const lateness = time.Minute

// List returns the deliveries that f chooses, newest first, and the places
// that could not be read. It needs no [Journal] and disturbs no writer. It
// reads no more segments than hold what it returns.
func List(ctx context.Context, fsys durable.FS, f Filter) ([]Summary, []Damage, error) {
	if f.Limit <= 0 {
		f.Limit = DefaultLimit
	}
	segments, err := list(fsys)
	if err != nil {
		return nil, nil, fmt.Errorf("list deliveries: %w", err)
	}
	needed, whole, err := f.needs(ctx, fsys, segments)
	if err != nil {
		return nil, nil, fmt.Errorf("list deliveries: %w", err)
	}
	byID := map[fencepost.DeliveryID]*Summary{}
	var damages []Damage
	for _, s := range needed {
		found, err := scan(ctx, fsys, s, func(e Event) {
			s, ok := byID[e.Delivery]
			if !ok {
				s = &Summary{Delivery: e.Delivery, Received: e.At}
				byID[e.Delivery] = s
			}
			s.add(e)
		})
		damages = append(damages, found...)
		if err != nil {
			return nil, damages, fmt.Errorf("list deliveries: %w", err)
		}
	}
	var chosen []Summary
	for id, s := range byID {
		if f.chooses(s) && (whole == nil || whole[id]) {
			chosen = append(chosen, *s)
		}
	}
	slices.SortFunc(chosen, func(a, b Summary) int {
		return cmp.Or(b.Received.Compare(a.Received), cmp.Compare(a.Delivery, b.Delivery))
	})
	return chosen[:min(f.Limit, len(chosen))], damages, nil
}

// needs finds the segments that hold the newest deliveries of the filter's
// choice, in the order of segments, which is kept, and which deliveries have
// nothing in any other; nil, if all segments are needed.
func (f Filter) needs(ctx context.Context, fsys durable.FS, segments []segment) (needed []segment, whole map[fencepost.DeliveryID]bool, err error) {
	byLast := slices.Clone(segments)
	if err := lastFirst(fsys, byLast); err != nil {
		return nil, nil, err
	}
	received := map[fencepost.DeliveryID]time.Time{}
	for i := range len(byLast) - 1 {
		// Damage is reported when the segment is read for its events.
		if _, err := scan(ctx, fsys, byLast[i], func(e Event) {
			if e.Kind == Received && f.chooses(&Summary{Gate: e.Gate, Route: e.Route, Received: e.At}) {
				received[e.Delivery] = e.At
			}
		}); err != nil {
			return nil, nil, err
		}
		// All that is in the others came before this.
		before := byLast[i+1].last.Add(lateness)
		if f.Since.After(before) || f.enough(received, before) {
			whole = make(map[fencepost.DeliveryID]bool, len(received))
			for id := range received {
				whole[id] = true
			}
			for _, s := range segments {
				if slices.ContainsFunc(byLast[:i+1], func(b segment) bool { return b.name == s.name }) {
					needed = append(needed, s)
				}
			}
			return needed, whole, nil
		}
	}
	return segments, nil, nil
}

// enough reports whether as many deliveries as are asked for were received
// after a time.
func (f Filter) enough(received map[fencepost.DeliveryID]time.Time, before time.Time) bool {
	n := 0
	for _, at := range received {
		if at.After(before) {
			n++
		}
	}
	return n >= f.Limit
}

// lastFirst orders segments by their last event, the latest first.
func lastFirst(fsys durable.FS, segments []segment) error {
	for i := range segments {
		if err := segments[i].readLast(fsys); err != nil {
			return err
		}
	}
	slices.SortStableFunc(segments, func(a, b segment) int { return b.last.Compare(a.last) })
	return nil
}

// readLast finds the time of the last event; that of its birth if there is
// none. Of a segment that is gone by now nothing is left to read.
func (s *segment) readLast(fsys durable.FS) (err error) {
	s.last = s.birth
	f, err := fsys.OpenFile(s.name, os.O_RDONLY, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	// A torn line after a whole one, and the end of the one before it.
	tail := make([]byte, min(s.size, 3*MaxEventBytes))
	n, err := f.ReadAt(tail, s.size-int64(len(tail)))
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	for line := range bytes.Lines(tail[:n]) {
		if e, err := parseLine(bytes.TrimSuffix(line, []byte{'\n'})); err == nil && e.At.After(s.last) {
			s.last = e.At
		}
	}
	return nil
}

func (f Filter) chooses(s *Summary) bool {
	return (f.Gate == "" || f.Gate == s.Gate) &&
		(f.Route == "" || f.Route == s.Route) &&
		!s.Received.Before(f.Since)
}

func (s *Summary) add(e Event) {
	s.Route = cmp.Or(s.Route, e.Route)
	s.Gate = cmp.Or(s.Gate, e.Gate)
	s.Anchor = cmp.Or(s.Anchor, e.Anchor)
	s.Evaluation = cmp.Or(s.Evaluation, e.Evaluation)
	s.Subject = cmp.Or(s.Subject, e.Detail(DetailSubject))
	s.Evidence = cmp.Or(e.Detail(DetailEvidence), s.Evidence)
	if e.At.Before(s.Received) {
		s.Received = e.At
	}
	switch e.Kind {
	case Replayed:
		s.Replays++
		return
	case Claimed:
		s.Claims++
	case Staged:
		s.Conclusion = cmp.Or(e.Detail(DetailConclusion), s.Conclusion)
	}
	// Segments of several writers are read one after the other, so a later
	// line may tell of an earlier time.
	if !e.At.Before(s.Last) {
		s.Last, s.State, s.Reason = e.At, e.Kind, e.Reason
	}
}

// Show returns the receipt of one delivery, and the places of the journal
// that could not be read. Its error matches [ErrNotFound].
func Show(ctx context.Context, fsys durable.FS, id fencepost.DeliveryID) (Receipt, []Damage, error) {
	r := Receipt{Delivery: id}
	segments, err := list(fsys)
	if err != nil {
		return Receipt{}, nil, fmt.Errorf("show %s: %w", id, err)
	}
	var damages []Damage
	for _, s := range segments {
		found, err := scan(ctx, fsys, s, func(e Event) {
			if e.Delivery == id {
				r.Events = append(r.Events, e)
			}
		})
		damages = append(damages, found...)
		if err != nil {
			return Receipt{}, damages, fmt.Errorf("show %s: %w", id, err)
		}
	}
	if len(r.Events) == 0 {
		return Receipt{}, damages, fmt.Errorf("show %s: %w", id, ErrNotFound)
	}
	slices.SortStableFunc(r.Events, func(a, b Event) int { return a.At.Compare(b.At) })
	return r, damages, nil
}

// scan reads one segment, unless it was removed since it was listed.
func scan(ctx context.Context, fsys durable.FS, s segment, each func(Event)) ([]Damage, error) {
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	data, err := durable.ReadFile(fsys, s.name, MaxSegmentBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return scanSegment(s.name, data, each), nil
}

func scanSegment(name string, data []byte, each func(Event)) []Damage {
	var damages []Damage
	offset := int64(0)
	for len(data) > 0 {
		end := bytes.IndexByte(data, '\n')
		if end < 0 {
			return damages // torn: the writer was stopped inside of it
		}
		e, err := parseLine(data[:end])
		if err != nil {
			damages = append(damages, Damage{File: name, Offset: offset, Err: err})
		} else {
			each(e)
		}
		data, offset = data[end+1:], offset+int64(end)+1
	}
	return damages
}
