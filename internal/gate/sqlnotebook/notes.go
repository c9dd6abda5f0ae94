package sqlnotebook

import (
	"context"
	"errors"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/gate"
	"github.com/fencepost/fencepost/internal/store"
)

// noteRow is a note as its row has it. Version 0: there is none.
type noteRow struct {
	version, starts, failures, sent, number int64
	reason, written, head, base, job        string
}

const readNote = `select version, starts, failures, sent_ns, entered_number, reason, written, entered_head, entered_base, entered_job
	from gate_notes where key = ?`

func (r *noteRow) read(ctx context.Context, tx *store.Tx, key string) error {
	_, err := tx.One(ctx, readNote, []any{key},
		&r.version, &r.starts, &r.failures, &r.sent, &r.number, &r.reason, &r.written, &r.head, &r.base, &r.job)
	return err
}

func (r noteRow) note() (gate.Note, error) {
	n := gate.Note{
		Starts: int(r.starts), Failures: int(r.failures), Reason: fencepost.Reason(r.reason), Sent: fromNanos(r.sent), Written: r.written,
	}
	if r.head == "" {
		return n, nil
	}
	head, err := fencepost.ParseCommitID(r.head)
	if err != nil {
		return gate.Note{}, corrupt("a note's head")
	}
	n.Entered = gate.Subject{Number: r.number, Head: head, BaseRef: r.base}
	if n.Entered.Job, err = jobIn(r.job); err != nil {
		return gate.Note{}, corrupt("a note's job")
	}
	return n, nil
}

// jobIn and textOf are each other's inverse: JSON, and "" for no job.
func jobIn(text string) (j gate.Job, err error) {
	if text != "" {
		err = json.Unmarshal([]byte(text), &j, json.RejectUnknownMembers(true))
	}
	return j, err
}

func textOf(j gate.Job) (string, error) {
	if j == (gate.Job{}) {
		return "", nil
	}
	text, err := json.Marshal(j)
	return string(text), err
}

func rowOf(n gate.Note) (r noteRow, err error) {
	r = noteRow{
		starts: int64(n.Starts), failures: int64(n.Failures), sent: nanos(n.Sent), reason: string(n.Reason), written: n.Written,
	}
	if n.Entered != (gate.Subject{}) {
		r.number, r.head, r.base = n.Entered.Number, n.Entered.Head.String(), n.Entered.BaseRef
		r.job, err = textOf(n.Entered.Job)
	}
	return r, err
}

// nanos is how a time is stored: Unix nanoseconds, and 0 for the zero time.
func nanos(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixNano()
}

func fromNanos(ns int64) time.Time {
	if ns == 0 {
		return time.Time{}
	}
	return time.Unix(0, ns).UTC()
}

// Change implements [gate.Notes]. A change that changes nothing writes
// nothing.
func (n *Notebook) Change(ctx context.Context, d fencepost.DeliveryKey, change func(*gate.Note)) (gate.Note, error) {
	var result gate.Note
	err := n.write(ctx, "notebook.change", func(ctx context.Context, tx *store.Tx) error {
		var was noteRow
		if err := was.read(ctx, tx, d.Hex()); err != nil {
			return err
		}
		var err error
		if result, err = was.note(); err != nil {
			return err
		}
		change(&result)
		is, err := rowOf(result)
		if err != nil {
			return err
		}
		is.version = was.version
		if is == was {
			return nil
		}
		if was.version == 0 {
			return n.insertNote(ctx, tx, d, is)
		}
		return is.replace(ctx, tx, d.Hex())
	})
	if err != nil {
		return gate.Note{}, err
	}
	return result, nil
}

func (n *Notebook) insertNote(ctx context.Context, tx *store.Tx, d fencepost.DeliveryKey, r noteRow) error {
	bucket := int64(d[0]) % buckets
	var held int64
	if _, err := tx.One(ctx, "select count(*) from gate_notes where bucket = ?", []any{bucket}, &held); err != nil {
		return err
	}
	if held >= n.limits.notes {
		return &fencepost.Error{Op: "notebook.change", Reason: fencepost.ReasonFull, Err: errors.New("too many notes of undone deliveries")}
	}
	made, err := tx.Exec(ctx, `insert into gate_notes
			(key, bucket, version, starts, failures, sent_ns, entered_number, reason, written, entered_head, entered_base, entered_job)
			values (?, ?, 1, ?, ?, ?, ?, ?, ?, ?, ?, ?) on conflict (key) do nothing`,
		d.Hex(), bucket, r.starts, r.failures, r.sent, r.number, r.reason, r.written, r.head, r.base, r.job)
	return once(made, err)
}

// replace stores r in place of the row of its version.
func (r noteRow) replace(ctx context.Context, tx *store.Tx, key string) error {
	changed, err := tx.Exec(ctx, `update gate_notes set version = version + 1, starts = ?, failures = ?, sent_ns = ?, entered_number = ?,
			reason = ?, written = ?, entered_head = ?, entered_base = ?, entered_job = ? where key = ? and version = ?`,
		r.starts, r.failures, r.sent, r.number, r.reason, r.written, r.head, r.base, r.job, key, r.version)
	return once(changed, err)
}

// once turns a change of no row into being defeated by another's change, after
// which the transaction is tried again.
func once(rows int64, err error) error {
	if err == nil && rows != 1 {
		return &store.Fault{Class: store.ErrBusy}
	}
	return err
}

// Forget implements [gate.Notes].
func (n *Notebook) Forget(ctx context.Context, d fencepost.DeliveryKey) error {
	return n.write(ctx, "notebook.forget", func(ctx context.Context, tx *store.Tx) error {
		_, err := tx.Exec(ctx, "delete from gate_notes where key = ?", d.Hex())
		return err
	})
}
