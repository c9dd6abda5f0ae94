package receipt

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
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

// List returns the deliveries that f chooses, newest first, and the places
// that could not be read. It needs no [Journal] and disturbs no writer.
func List(ctx context.Context, fsys durable.FS, f Filter) ([]Summary, []Damage, error) {
	byID := map[fencepost.DeliveryID]*Summary{}
	damages, err := scan(ctx, fsys, func(e Event) {
		s, ok := byID[e.Delivery]
		if !ok {
			s = &Summary{Delivery: e.Delivery, Received: e.At}
			byID[e.Delivery] = s
		}
		s.add(e)
	})
	if err != nil {
		return nil, damages, fmt.Errorf("list deliveries: %w", err)
	}
	var chosen []Summary
	for _, s := range byID {
		if f.chooses(s) {
			chosen = append(chosen, *s)
		}
	}
	slices.SortFunc(chosen, func(a, b Summary) int {
		return cmp.Or(b.Received.Compare(a.Received), cmp.Compare(a.Delivery, b.Delivery))
	})
	limit := f.Limit
	if limit <= 0 {
		limit = DefaultLimit
	}
	return chosen[:min(limit, len(chosen))], damages, nil
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
	damages, err := scan(ctx, fsys, func(e Event) {
		if e.Delivery == id {
			r.Events = append(r.Events, e)
		}
	})
	if err != nil {
		return Receipt{}, damages, fmt.Errorf("show %s: %w", id, err)
	}
	if len(r.Events) == 0 {
		return Receipt{}, damages, fmt.Errorf("show %s: %w", id, ErrNotFound)
	}
	slices.SortStableFunc(r.Events, func(a, b Event) int { return a.At.Compare(b.At) })
	return r, damages, nil
}

// scan reads every segment, oldest first.
func scan(ctx context.Context, fsys durable.FS, each func(Event)) ([]Damage, error) {
	segments, err := list(fsys)
	if err != nil {
		return nil, err
	}
	var damages []Damage
	for _, s := range segments {
		if err := context.Cause(ctx); err != nil {
			return damages, err
		}
		data, err := durable.ReadFile(fsys, s.name, MaxSegmentBytes)
		if errors.Is(err, fs.ErrNotExist) {
			continue // removed since it was listed
		}
		if err != nil {
			return damages, err
		}
		damages = append(damages, scanSegment(s.name, data, each)...)
	}
	return damages, nil
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
