package sink

import (
	"context"
	"fmt"
	"math"
	"os"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/source"
	"github.com/fencepost/fencepost/internal/store"
)

// Bounds of one statement.
const (
	batchRows  = 64
	batchBytes = 4 << 20
)

// A rowWriter makes a table what a checkout has, in one transaction that may
// be tried again.
type rowWriter struct {
	table table
	files *rowFiles
	root  *os.Root
	a     source.Application
}

// write does all of it. When it returns nil, nothing is left but to commit.
func (w *rowWriter) write(ctx context.Context, tx *store.Tx) (source.Applied, error) {
	same, err := w.raise(ctx, tx)
	if err != nil {
		return source.Applied{}, err
	}
	put, gone, counts, err := w.diff(ctx, tx)
	if err != nil {
		return source.Applied{}, err
	}
	if err := w.put(ctx, tx, put); err != nil {
		return source.Applied{}, err
	}
	for len(gone) > 0 {
		batch := gone[:min(len(gone), batchRows)]
		gone = gone[len(batch):]
		args := make([]any, len(batch))
		for i := range batch {
			args[i] = batch[i]
		}
		if _, err := tx.Exec(ctx, w.table.softDelete(len(batch)), args...); err != nil {
			return source.Applied{}, err
		}
	}
	if err := guarded(ctx, w.a.Guard); err != nil {
		return source.Applied{}, err
	}
	moved := counts.Added + counts.Changed + counts.Removed
	return source.Applied{Counts: counts, Unchanged: same && moved == 0}, nil
}

// raise compares the fence with the highest one that the table has seen, and
// puts its own there, in one statement: another application waits for this
// one's end, and compares with what it left. It reports whether the content
// was applied under this revision before.
func (w *rowWriter) raise(ctx context.Context, tx *store.Tx) (same bool, err error) {
	fence := w.a.Hold.Fence
	if fence > math.MaxInt64 {
		return false, fmt.Errorf("fence %d is too high for the table", fence)
	}
	n, err := tx.Exec(ctx, "update "+w.table.fence+" set fence = ? where id = 1 and source = ? and fence <= ?",
		int64(fence), w.table.source, int64(fence))
	if err != nil {
		return false, err
	}
	var owner, revision, content string
	var seen int64
	found, err := tx.One(ctx, "select source, fence, revision, content from "+w.table.fence+" where id = 1", nil, &owner, &seen, &revision, &content)
	switch {
	case err != nil:
		return false, err
	case !found:
		return false, fmt.Errorf("no row of state: %w", errShape)
	case owner != w.table.source:
		return false, errForeign
	case n != 1:
		return false, fmt.Errorf("fence %d: %w", fence, &source.BehindError{Seen: uint64(seen)})
	}
	same = revision == w.a.Revision.String() && content == w.files.content
	_, err = tx.Exec(ctx, "update "+w.table.fence+" set revision = ?, commit_id = ?, tree_id = ?, content = ?, applied_at = {now} where id = 1",
		w.a.Revision.String(), w.a.Checkout.Commit().String(), w.a.Checkout.Tree().String(), w.files.content)
	return same, err
}

// A rowState is what the table says of one path.
type rowState struct {
	mode, digest string
	bytes        int64
	live         bool
}

// diff says which rows to put and which paths to mark as gone.
func (w *rowWriter) diff(ctx context.Context, tx *store.Tx) (put []rowFile, gone []string, c source.Counts, err error) {
	before := map[string]rowState{}
	query := "select path, mode, digest, bytes, deleted_at is null from " + w.table.name
	err = tx.Each(ctx, query, nil, func(scan func(...any) error) error {
		var path string
		var s rowState
		if err := scan(&path, &s.mode, &s.digest, &s.bytes, &s.live); err != nil {
			return err
		}
		before[path] = s
		return nil
	})
	if err != nil {
		return nil, nil, c, err
	}
	c.Files, c.Bytes = int64(len(w.files.files)), w.files.bytes
	for _, f := range w.files.files {
		old, was := before[f.path]
		delete(before, f.path)
		want := rowState{f.Mode.String(), f.digest, f.Size, true}
		switch {
		case was && old == want:
			continue
		case was && old.live:
			c.Changed++
		default:
			c.Added++
		}
		put = append(put, f)
	}
	for path, old := range before {
		// What was refused keeps the row that it had, which says of which
		// commit it is.
		if old.live && !w.files.left[path] {
			gone = append(gone, path)
		}
	}
	c.Removed = int64(len(gone))
	return put, gone, c, nil
}

// put writes rows, some at a time.
func (w *rowWriter) put(ctx context.Context, tx *store.Tx, rows []rowFile) error {
	reader := contentReader{root: w.root, buf: make([]byte, 64<<10)}
	commit := w.a.Checkout.Commit().String()
	args := make([]any, 0, batchRows*6)
	count, size := 0, int64(0)
	flush := func() error {
		if count == 0 {
			return nil
		}
		_, err := tx.Exec(ctx, w.table.upsert(count), args...)
		args, count, size = args[:0], 0, 0
		return err
	}
	for _, f := range rows {
		var content any
		if !w.table.bare {
			if size > 0 && size+f.Size > batchBytes {
				if err := flush(); err != nil {
					return err
				}
			}
			b, err := reader.bytes(f.File, f.digest)
			if err != nil {
				return &source.SinkError{Reason: fencepost.ReasonUnavailable, Detail: DetailCheckout, Err: hostless(err)}
			}
			content, size = b, size+f.Size
			if w.table.text {
				content = string(b)
			}
		}
		args = append(args, w.table.values(f, content, commit)...)
		if count++; count == batchRows {
			if err := flush(); err != nil {
				return err
			}
		}
	}
	return flush()
}

// stored reports whether this very application is the last that was stored.
func (w *rowWriter) stored(ctx context.Context, db *store.DB) (is bool, err error) {
	err = db.Read(ctx, "read back", func(ctx context.Context, tx *store.Tx) error {
		var owner, revision, commit, content string
		var fence int64
		found, err := tx.One(ctx, "select source, fence, revision, commit_id, content from "+w.table.fence+" where id = 1", nil,
			&owner, &fence, &revision, &commit, &content)
		is = found && owner == w.table.source && uint64(fence) == w.a.Hold.Fence && revision == w.a.Revision.String() &&
			commit == w.a.Checkout.Commit().String() && content == w.files.content
		return err
	})
	return is, err
}
