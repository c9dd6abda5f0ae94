package sink

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"sync"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/gitfetch"
	"github.com/fencepost/fencepost/internal/source"
	"github.com/fencepost/fencepost/internal/store"
)

// Defaults and bounds of [RowsOptions].
const (
	DefaultMaxRow  = 1 << 20
	MaxRowLimit    = 64 << 20
	DefaultDBWait  = time.Minute
	maxPathBytes   = 1024
	maxRefusals    = 100
	rowConnections = 2
)

// RowsOptions say which table the rows are in and what may be one.
type RowsOptions struct {
	// Source is the source that the table belongs to; no other may write it.
	// Required.
	Source fencepost.SourceID
	// Path is the file of a SQLite database, absolute, on a local disk; it is
	// made if it is missing, its directory is not. Either it or URL is
	// required.
	Path string
	// DataDir is the data directory, in which Path must not lie; absolute.
	// Empty where there is none.
	DataDir string
	// URL gives the connection string of a PostgreSQL database; it is asked
	// each time that a connection is opened. The bytes are zeroed after use.
	URL func(ctx context.Context) (fencepost.Secret, error)
	// Table is the table's name: 1 to 48 characters a-z, 0-9 and _, a letter
	// first. Its state is in another of that name with _fence behind. Required.
	Table string
	// Content says which files become rows. A row's path is that of the file
	// below Content.Mount.
	Content Content
	// MaxRow is the largest file that becomes a row, in bytes: 1 to
	// [MaxRowLimit], default [DefaultMaxRow]. Larger ones are refused.
	MaxRow int64
	// Text takes only files that are UTF-8 without a zero byte, so that content
	// is a column of text; others are refused.
	Text bool
	// NoContent leaves the content out: then a row is as large as its path,
	// whatever the file is, and neither MaxRow nor Text refuses anything.
	NoContent bool
	// Workspace is where checkouts are made. Required.
	Workspace *gitfetch.Workspace
	// Wait bounds one transaction; 100 ms to 5 min, default [DefaultDBWait].
	Wait time.Duration
	// Now is a clock that never goes back. Required.
	Now func() time.Time
}

var tablePattern = regexp.MustCompile(`^[a-z][a-z0-9_]{0,47}$`)

func (o RowsOptions) check() (RowsOptions, *rules, error) {
	o.MaxRow = orDefault(o.MaxRow, DefaultMaxRow)
	o.Wait = orDefault(o.Wait, DefaultDBWait)
	rules, err := o.Content.compile()
	errs := []error{err}
	want := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format+": %w", append(args, ErrOptions)...))
		}
	}
	want(!o.Source.IsZero(), "source must be set")
	want(o.Now != nil && o.Workspace != nil, "clock and workspace must be set")
	want((o.Path == "") != (o.URL == nil), "either a path or a URL must be set")
	want(o.Path == "" || filepath.IsAbs(o.Path), "path must be absolute")
	want(o.DataDir == "" || filepath.IsAbs(o.DataDir), "data directory must be absolute")
	want(tablePattern.MatchString(o.Table), "table must be 1 to 48 characters a-z, 0-9 and _, a letter first")
	want(o.MaxRow >= 1 && o.MaxRow <= MaxRowLimit, "largest row must be 1 to %d bytes, is %d", MaxRowLimit, o.MaxRow)
	want(o.Wait >= 100*time.Millisecond && o.Wait <= 5*time.Minute, "wait must be 100ms to 5m, is %v", o.Wait)
	return o, rules, errors.Join(errs...)
}

// Rows is a sink that keeps a table with a row for each file. It is safe for
// concurrent use, also by other processes and machines. Close it.
//
// Readers see the rows of one commit: all changes of an application, and the
// fence that it came with, are one transaction.
type Rows struct {
	opts  RowsOptions
	rules *rules
	table table

	mu sync.Mutex
	// Guarded by mu: nil until something is done, after Close, and after the
	// database could not be reached.
	db     *store.DB
	closed bool
	// ready: the tables of db were found fit.
	ready bool
}

// NewRows checks the options and does nothing else. Its error matches
// [ErrOptions].
func NewRows(o RowsOptions) (*Rows, error) {
	o, rules, err := o.check()
	if err != nil {
		return nil, fmt.Errorf("rows sink: %w", err)
	}
	return &Rows{opts: o, rules: rules, table: newTable(o)}, nil
}

var _ source.Sink = (*Rows)(nil)

// opened opens the database, once.
func (r *Rows) opened(ctx context.Context) (*store.DB, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil, errClosed
	}
	if r.db != nil {
		return r.db, nil
	}
	o := store.Options{
		Path: r.opts.Path, Foreign: true, Wait: r.opts.Wait, Connections: rowConnections, Now: r.opts.Now,
	}
	if r.opts.URL != nil {
		url, err := r.opts.URL(ctx)
		if err != nil {
			return nil, &source.SinkError{Reason: fencepost.ReasonCredential, Detail: DetailDatabase, Err: err}
		}
		o.URL = string(url.Reveal())
		url.Zero()
	}
	db, err := store.Open(ctx, o)
	if err != nil {
		return nil, err
	}
	r.db = db
	return db, nil
}

// drop closes a database that can't be used, so that the next attempt opens it
// anew, with the credential of then.
func (r *Rows) drop(db *store.DB) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.db != db {
		return nil
	}
	r.db, r.ready = nil, false
	return db.Close()
}

// Close closes the database.
func (r *Rows) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	if r.db == nil {
		return nil
	}
	db := r.db
	r.db, r.ready = nil, false
	return db.Close()
}

// Place implements [source.Sink].
func (r *Rows) Place(context.Context) (source.Place, error) {
	return source.Place{Workspace: r.opts.Workspace, Select: r.rules.selector()}, nil
}

// Probe implements [source.Sink]: it makes the tables where they are missing,
// and requires that they are as [Rows] needs them. Its error matches
// [ErrPlace], or is a [source.SinkError] if the database can't be reached now.
func (r *Rows) Probe(ctx context.Context) error {
	if err := r.probePath(); err != nil {
		return err
	}
	db, err := r.opened(ctx)
	if err == nil {
		err = r.prepare(ctx, db)
	}
	return r.failed(ctx, db, err)
}

// probePath looks at the place of a SQLite file.
func (r *Rows) probePath() error {
	if r.opts.Path == "" {
		return nil
	}
	parent := filepath.Dir(r.opts.Path)
	info, err := os.Stat(parent)
	switch {
	case err != nil:
		return unfit(hostless(err), "the directory that the sink's database is in can't be used",
			"make it, owned by the user of this process (install -d -o USER DIR)")
	case !info.IsDir():
		return unfit(nil, "what the sink's database is in is no directory", "name a file in a directory")
	}
	if info, err := os.Stat(r.opts.Path); err == nil && !info.Mode().IsRegular() {
		return unfit(nil, "what stands at the sink's database is no file", "name another path")
	}
	if r.opts.DataDir == "" {
		return nil
	}
	inside, err := within(parent, r.opts.DataDir)
	if err != nil {
		return unfit(hostless(err), "it can't be told whether the sink's database is in data_dir", "let the user of this process into both")
	}
	if inside {
		return unfit(nil, "the sink's database is in data_dir", "name a file outside of it")
	}
	return nil
}

// prepare makes sure, once for each opening, that the tables are fit.
func (r *Rows) prepare(ctx context.Context, db *store.DB) error {
	r.mu.Lock()
	ready := r.ready && r.db == db
	r.mu.Unlock()
	if ready {
		return nil
	}
	if err := r.table.ensure(ctx, db); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ready = r.db == db
	return nil
}

// failed gives an error of the database its reason. A database that does not
// answer is let go of.
func (r *Rows) failed(ctx context.Context, db *store.DB, err error) error {
	if err == nil || errors.Is(err, ErrPlace) {
		return err
	}
	if db != nil && (errors.Is(err, store.ErrUnavailable) || errors.Is(err, store.ErrPoisoned)) {
		err = errors.Join(err, r.drop(db))
	}
	if _, ok := errors.AsType[*source.SinkError](err); ok || errors.Is(err, source.ErrLost) || ctx.Err() != nil {
		return sinkError(ctx, DetailDatabase, err)
	}
	return &source.SinkError{Reason: fencepost.ReasonOf(err), Detail: DetailDatabase, Err: err}
}

// Apply implements [source.Sink].
func (r *Rows) Apply(ctx context.Context, a source.Application) (applied source.Applied, err error) {
	if err := checked(a); err != nil {
		return source.Applied{}, err
	}
	defer func() { applied, err = released(a.Checkout, applied, err) }()
	files, err := r.read(ctx, a.Checkout)
	if err != nil {
		return source.Applied{}, sinkError(ctx, DetailCheckout, err)
	}
	db, err := r.opened(ctx)
	if err == nil {
		err = r.prepare(ctx, db)
	}
	if err == nil {
		applied, err = r.store(ctx, db, a, files)
	}
	return applied, r.failed(ctx, db, err)
}

// store makes the table what was read, in one transaction.
func (r *Rows) store(ctx context.Context, db *store.DB, a source.Application, files *rowFiles) (applied source.Applied, err error) {
	root, err := os.OpenRoot(a.Checkout.Root())
	if err != nil {
		return source.Applied{}, hostless(err)
	}
	defer func() { err = errors.Join(err, hostless(root.Close())) }()
	w := &rowWriter{table: r.table, files: files, root: root, a: a}
	err = db.Write(ctx, "write rows", func(ctx context.Context, tx *store.Tx) error {
		applied = source.Applied{}
		var err error
		applied, err = w.write(ctx, tx)
		return err
	})
	if errors.Is(err, store.ErrUnknownOutcome) {
		// Read back, never guessed: the row says which application was last.
		stored, look := w.stored(ctx, db)
		if look == nil && stored {
			err = nil
		} else {
			err = errors.Join(err, look)
		}
	}
	if err != nil {
		return source.Applied{}, err
	}
	applied.Refused = files.refused
	return applied, nil
}

// released removes a checkout that a sink is done with.
func released(c *gitfetch.Checkout, applied source.Applied, err error) (source.Applied, error) {
	gone := leftover(c.Remove())
	switch {
	case gone == nil:
	case err == nil:
		applied.Leftover = errors.Join(applied.Leftover, gone)
	default:
		err = errors.Join(err, gone)
	}
	return applied, err
}
