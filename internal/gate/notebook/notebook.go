package notebook

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/durable"
	"github.com/fencepost/fencepost/internal/gate"
)

const (
	files = 64 // of each kind
	locks = 16
)

// Limits bound a [Notebook]. The zero value of a field is its default.
type Limits struct {
	// Notes and Heads are how many entries one of the 64 files of that kind
	// holds; default 256 each.
	Notes, Heads int
}

// A Notebook is one directory of notes. It is safe for concurrent use, also by
// several processes.
type Notebook struct {
	notes table[note]
	heads table[head]
	locks []durable.File
	now   func() time.Time
}

var (
	_ gate.Notes     = (*Notebook)(nil)
	_ gate.Standings = (*Notebook)(nil)
)

// A note is a [gate.Note] as it is stored.
type note struct {
	Starts   int       `json:"starts,omitzero"`
	Failures int       `json:"failures,omitzero"`
	Reason   string    `json:"reason,omitempty"`
	Sent     time.Time `json:"sent,omitzero"`
	Written  string    `json:"written,omitempty"`
	// What was entered for it, if anything.
	Number int64  `json:"number,omitzero"`
	Head   string `json:"head,omitempty"`
	Base   string `json:"base,omitempty"`
	// Job is what asked for it; only version 2 has it.
	Job gate.Job `json:"job,omitzero"`
}

// version is the first one of the format that can hold n.
func (n note) version() int {
	if n.Job != (gate.Job{}) {
		return 2
	}
	return 1
}

// A head is what is remembered of one gate and head.
type head struct {
	// Requests are the numbers of those that were entered with it, at most
	// maxRequests, the newest last.
	Requests []int64 `json:"requests"`
	// Received and Delivery are the newest standing; zero: none was advanced.
	Received time.Time `json:"received,omitzero"`
	Delivery string    `json:"delivery,omitempty"`
	// Looked is when it was last changed, for making room.
	Looked time.Time `json:"looked"`
}

// version is the first one of the format that can hold h.
func (head) version() int { return 1 }

// maxRequests bounds the requests that are remembered for one head.
const maxRequests = 16

// Open opens the notebook in fsys, an existing directory, and makes what is
// missing in it.
func Open(fsys durable.FS, limits Limits, now func() time.Time) (*Notebook, error) {
	for _, dir := range []string{"notes", "heads", "locks"} {
		if err := durable.MkdirAll(fsys, dir); err != nil {
			return nil, fmt.Errorf("open notebook: %w", err)
		}
	}
	n := &Notebook{
		notes: table[note]{fsys: fsys, dir: "notes", limit: orDefault(limits.Notes)},
		heads: table[head]{fsys: fsys, dir: "heads", limit: orDefault(limits.Heads)},
		now:   now,
	}
	for i := range locks {
		f, err := fsys.OpenFile(fmt.Sprintf("locks/%x", i), os.O_RDWR|os.O_CREATE, durable.FilePerm)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("open notebook: %w", err), n.Close())
		}
		n.locks = append(n.locks, f)
	}
	return n, nil
}

func orDefault(n int) int {
	if n <= 0 {
		return 256
	}
	return n
}

// Close frees the notebook. What was written stays.
func (n *Notebook) Close() error {
	var errs []error
	for _, f := range n.locks {
		errs = append(errs, f.Close())
	}
	return errors.Join(errs...)
}

// locked does something under the lock of a file.
func (n *Notebook) locked(ctx context.Context, file int, do func() error) error {
	lock := n.locks[file%locks]
	if err := lock.Lock(ctx, durable.Exclusive); err != nil {
		return err
	}
	return errors.Join(do(), lock.Unlock())
}

// Change implements [gate.Notes]. A change that changes nothing writes
// nothing.
func (n *Notebook) Change(ctx context.Context, d fencepost.DeliveryKey, change func(*gate.Note)) (gate.Note, error) {
	file, key := place(d)
	var result gate.Note
	err := n.locked(ctx, file, func() error {
		entries, err := n.notes.read(file)
		if err != nil {
			return err
		}
		was, ok := entries[key]
		if result, err = was.public(); err != nil {
			return err
		}
		change(&result)
		is := private(result)
		if is == was {
			return nil
		}
		if !ok && len(entries) >= n.notes.limit {
			return &fencepost.Error{Op: "notebook.change", Reason: fencepost.ReasonFull, Err: errors.New("too many notes of undone deliveries")}
		}
		entries[key] = is
		return n.notes.write(file, entries)
	})
	if err != nil {
		return gate.Note{}, failure("notebook.change", err)
	}
	return result, nil
}

// Forget implements [gate.Notes].
func (n *Notebook) Forget(ctx context.Context, d fencepost.DeliveryKey) error {
	file, key := place(d)
	err := n.locked(ctx, file, func() error {
		entries, err := n.notes.read(file)
		if err != nil {
			return err
		}
		if _, ok := entries[key]; !ok {
			return nil
		}
		delete(entries, key)
		return n.notes.write(file, entries)
	})
	return failure("notebook.forget", err)
}

func (n note) public() (gate.Note, error) {
	result := gate.Note{
		Starts: n.Starts, Failures: n.Failures, Reason: fencepost.Reason(n.Reason), Sent: n.Sent, Written: n.Written,
	}
	if n.Head == "" {
		return result, nil
	}
	head, err := fencepost.ParseCommitID(n.Head)
	if err != nil {
		return gate.Note{}, corrupt("notes", "a head")
	}
	result.Entered = gate.Subject{Number: n.Number, Head: head, BaseRef: n.Base, Job: n.Job}
	return result, nil
}

func private(n gate.Note) note {
	result := note{
		Starts: n.Starts, Failures: n.Failures, Reason: string(n.Reason), Sent: n.Sent.UTC().Round(0), Written: n.Written,
	}
	if n.Entered != (gate.Subject{}) {
		result.Number, result.Head, result.Base = n.Entered.Number, n.Entered.Head.String(), n.Entered.BaseRef
		result.Job = n.Entered.Job
	}
	return result
}

// Enter implements [gate.Standings].
func (n *Notebook) Enter(ctx context.Context, g gate.Name, s gate.Subject) (gate.Standing, error) {
	file, key := placeOf(g, s)
	// Files are replaced whole, so that reading needs no lock.
	entries, err := n.heads.read(file)
	if err != nil {
		return gate.Standing{}, failure("notebook.enter", err)
	}
	if h := entries[key]; slices.Contains(h.Requests, s.Number) {
		st, err := h.standing()
		return st, failure("notebook.enter", err)
	}
	st, err := n.change(ctx, g, s, func(*head) error { return nil })
	return st, failure("notebook.enter", err)
}

// Newest implements [gate.Standings].
func (n *Notebook) Newest(_ context.Context, g gate.Name, s gate.Subject) (gate.Standing, error) {
	file, key := placeOf(g, s)
	entries, err := n.heads.read(file)
	if err != nil {
		return gate.Standing{}, failure("notebook.newest", err)
	}
	st, err := entries[key].standing()
	return st, failure("notebook.newest", err)
}

// Advance implements [gate.Standings].
func (n *Notebook) Advance(ctx context.Context, g gate.Name, s gate.Subject, st gate.Standing) (gate.Standing, error) {
	newest, err := n.change(ctx, g, s, func(h *head) error {
		stands, err := h.standing()
		if err == nil && stands.Before(st) {
			h.Received, h.Delivery = st.Received.UTC().Round(0), st.Delivery.Hex()
		}
		return err
	})
	return newest, failure("notebook.advance", err)
}

// Leave implements [gate.Standings].
func (n *Notebook) Leave(ctx context.Context, g gate.Name, s gate.Subject) error {
	file, key := placeOf(g, s)
	err := n.locked(ctx, file, func() error {
		entries, err := n.heads.read(file)
		if err != nil {
			return err
		}
		h, ok := entries[key]
		if i := slices.Index(h.Requests, s.Number); ok && i >= 0 {
			h.Requests = slices.Delete(h.Requests, i, i+1)
			entries[key] = h
			return n.heads.write(file, entries)
		}
		return nil
	})
	return failure("notebook.leave", err)
}

// Known implements [gate.Standings].
func (n *Notebook) Known(_ context.Context, g gate.Name, s gate.Subject) (bool, error) {
	file, key := placeOf(g, s)
	entries, err := n.heads.read(file)
	if err != nil {
		return false, failure("notebook.known", err)
	}
	return slices.Contains(entries[key].Requests, s.Number), nil
}

// change enters the subject, applies edit to its head and returns the standing
// that holds then.
func (n *Notebook) change(ctx context.Context, g gate.Name, s gate.Subject, edit func(*head) error) (gate.Standing, error) {
	file, key := placeOf(g, s)
	var st gate.Standing
	err := n.locked(ctx, file, func() error {
		entries, err := n.heads.read(file)
		if err != nil {
			return err
		}
		h := entries[key]
		if !slices.Contains(h.Requests, s.Number) {
			h.Requests = append(h.Requests[max(0, len(h.Requests)-maxRequests+1):], s.Number)
		}
		if err := edit(&h); err != nil {
			return err
		}
		h.Looked = n.now().UTC().Round(0)
		entries[key] = h
		n.makeRoom(entries, key)
		if st, err = h.standing(); err != nil {
			return err
		}
		return n.heads.write(file, entries)
	})
	return st, err
}

// makeRoom drops the heads that were looked at longest ago, but not keep.
func (n *Notebook) makeRoom(entries map[string]head, keep string) {
	for len(entries) > n.heads.limit {
		oldest := ""
		for key, h := range entries {
			if key != keep && (oldest == "" || h.Looked.Before(entries[oldest].Looked)) {
				oldest = key
			}
		}
		delete(entries, oldest)
	}
}

func (h head) standing() (gate.Standing, error) {
	if h.Delivery == "" {
		return gate.Standing{}, nil
	}
	d, err := fencepost.ParseDeliveryKey(h.Delivery)
	if err != nil {
		return gate.Standing{}, corrupt("heads", "a delivery key")
	}
	return gate.Standing{Received: h.Received, Delivery: d}, nil
}

// place is where the note of a delivery stands.
func place(d fencepost.DeliveryKey) (file int, key string) { return int(d[0]) % files, d.Hex() }

// placeOf is where the head of a subject stands.
func placeOf(g gate.Name, s gate.Subject) (file int, key string) {
	sum := fencepost.NewEncoder("fencepost.notebook-head/v1").Text(string(g)).Bytes(s.Head.ObjectID[:]).Sum()
	return int(sum[0]) % files, fmt.Sprintf("%x", sum)
}
