package sink

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/gitfetch"
	"github.com/fencepost/fencepost/internal/durable"
	"github.com/fencepost/fencepost/internal/source"
)

// Defaults of [DirectoryOptions].
const (
	DefaultKeep    = 3
	DefaultGrace   = time.Minute
	DefaultMost    = 64
	DefaultReserve = 256 << 20
	DefaultDirMode = fs.FileMode(0o755)
)

// DirectoryOptions say where a directory is and how it is kept.
type DirectoryOptions struct {
	// Source is the source that the directory belongs to; no other may write
	// it. Required.
	Source fencepost.SourceID
	// Path is the symbolic link that readers use: absolute. Required.
	Path string
	// DataDir is the data directory, in which it must not lie; absolute.
	// Empty where there is none.
	DataDir string
	// Content says what is served.
	Content Content
	// Keep is how many trees stay, the one that is served included: 1 or more,
	// default [DefaultKeep].
	Keep int
	// Grace is how long a tree stays at least after another took its place, so
	// that who reads in it can end; default [DefaultGrace]. Negative means none.
	Grace time.Duration
	// Most is how many trees there may be: with so many too young to go, no
	// further one is taken. More than Keep; default [DefaultMost].
	Most int
	// Reserve is how many bytes must be free before a checkout is made there;
	// default [DefaultReserve].
	Reserve int64
	// DirMode is the mode of directories of a tree: [DefaultDirMode], or 0750
	// where readers are of its group only. Files have the same readers. The
	// umask takes nothing away.
	DirMode fs.FileMode
	// AllowVolatile takes a file system that keeps nothing over a restart, as
	// in tests and trials.
	AllowVolatile bool
	// Now is a clock that never goes back. Required.
	Now func() time.Time
	// Random draws names; nil means the system's.
	Random io.Reader
}

// check fills in defaults. Its error matches [ErrOptions] and names all faults.
func (o DirectoryOptions) check() (DirectoryOptions, *rules, error) {
	o.Keep = orDefault(o.Keep, DefaultKeep)
	o.Grace = orDefault(o.Grace, DefaultGrace)
	o.Most = orDefault(o.Most, DefaultMost)
	o.Reserve = orDefault(o.Reserve, DefaultReserve)
	o.DirMode = orDefault(o.DirMode, DefaultDirMode)
	if o.Random == nil {
		o.Random = rand.Reader
	}
	rules, err := o.Content.compile()
	errs := []error{err}
	want := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format+": %w", append(args, ErrOptions)...))
		}
	}
	want(!o.Source.IsZero(), "source must be set")
	want(o.Now != nil, "clock must be set")
	want(filepath.IsAbs(o.Path) && filepath.Clean(o.Path) == o.Path && filepath.Dir(o.Path) != o.Path, "path must be absolute and clean")
	want(o.DataDir == "" || filepath.IsAbs(o.DataDir), "data directory must be absolute")
	want(o.Keep >= 1, "keep must be 1 or more, is %d", o.Keep)
	want(o.Most > o.Keep, "most must be more than keep, is %d", o.Most)
	want(o.Reserve >= 0, "reserve must not be negative")
	want(o.DirMode&0o700 == 0o700 && o.DirMode&^0o755 == 0, "mode of directories must be 0700 to 0755, is %04o", o.DirMode)
	return o, rules, errors.Join(errs...)
}

func orDefault[T comparable](v, d T) T {
	var zero T
	if v == zero {
		return d
	}
	return v
}

// A Directory is a sink whose readers see a directory of files: the tree of
// one commit, whole. It is safe for concurrent use, also by other processes
// with the same path. Close it.
type Directory struct {
	opts   DirectoryOptions
	rules  *rules
	parent string
	fsys   func(dir string) durable.Linker

	mu sync.Mutex
	// Guarded by mu; nil while nothing is done: thousands of sources must not
	// hold files open.
	open   *openDirectory
	closed bool
	// last is guarded by mu.
	last lastHave
}

// An openDirectory is what a [Directory] holds open.
type openDirectory struct {
	*holding
	work *gitfetch.Workspace
	// users are calls under way, and checkouts that were asked for and not
	// applied yet: their workspace must stay. Guarded by the Directory's mu. A
	// fetch that fails leaves one behind, and no more than files open.
	users int
	// chmod: the umask gives files other readers than they should have.
	chmod bool
}

// NewDirectory checks the options and does nothing else. Its error matches
// [ErrOptions].
func NewDirectory(o DirectoryOptions) (*Directory, error) {
	o, rules, err := o.check()
	if err != nil {
		return nil, fmt.Errorf("directory sink: %w", err)
	}
	return &Directory{opts: o, rules: rules, parent: filepath.Dir(o.Path), fsys: durable.OSLinks}, nil
}

var _ source.Sink = (*Directory)(nil)

// errClosed: the sink was closed.
var errClosed = errors.New("sink is closed")

// enter opens what is needed, unless it is open; what is missing is made.
func (d *Directory) enter() (*openDirectory, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil, errClosed
	}
	if d.open == nil {
		o, err := d.openPlace()
		if err != nil {
			return nil, err
		}
		d.open = o
	}
	d.open.users++
	return d.open, nil
}

// leave closes what nobody uses any more. Its error matches
// [source.ErrLeftover].
func (d *Directory) leave(o *openDirectory, users int) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	o.users -= users
	if o.users > 0 || d.open != o {
		return nil
	}
	d.open = nil
	return leftover(errors.Join(o.work.Close(), o.close()))
}

func (d *Directory) openPlace() (*openDirectory, error) {
	fsys, name := d.fsys(d.parent), filepath.Base(d.opts.Path)
	dir := holdingPrefix + name + holdingSuffix
	if err := makePlace(fsys, d.parent, dir, d.opts.DirMode); err != nil {
		return nil, err
	}
	h, err := openHolding(fsys, name, d.opts.Source, func(name string) error { return removeAll(d.parent, name) })
	if err != nil {
		return nil, err
	}
	work, err := gitfetch.OpenWorkspace(filepath.Join(d.parent, dir))
	if err != nil {
		return nil, errors.Join(err, h.close())
	}
	chmod, err := umaskDiffers(filepath.Join(d.parent, dir), d.opts.DirMode, d.opts.Random)
	if err != nil {
		return nil, errors.Join(err, work.Close(), h.close())
	}
	return &openDirectory{holding: h, work: work, chmod: chmod}, nil
}

// Close removes the process's own checkouts and lets go of the place. What is
// served stays. Its error matches [source.ErrLeftover].
func (d *Directory) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closed = true
	if d.open == nil {
		return nil
	}
	err := errors.Join(d.open.work.Close(), d.open.close())
	d.open = nil
	return leftover(err)
}

// Place implements [source.Sink]. It is where the tree will be moved from, so
// on the same file system.
func (d *Directory) Place(ctx context.Context) (source.Place, error) {
	o, err := d.enter()
	if err != nil {
		return source.Place{}, sinkError(ctx, DetailPlace, err)
	}
	err = d.room(o.holding)
	var last lastHave
	if err == nil {
		last.id, last.have, err = d.have(o)
	}
	if err != nil {
		return source.Place{}, sinkError(ctx, DetailPlace, errors.Join(err, d.leave(o, 1)))
	}
	d.keepHave(last)
	return source.Place{Workspace: o.work, Select: d.rules.selector(), Have: last.have}, nil
}

// room asks for the reserve.
func (d *Directory) room(h *holding) error {
	v, err := h.fsys.Volume()
	if err != nil {
		return err
	}
	if v.Free < d.opts.Reserve {
		return &source.SinkError{
			Reason: fencepost.ReasonFull, Detail: DetailRoom,
			Err: fmt.Errorf("%d bytes are free, want %d", v.Free, d.opts.Reserve),
		}
	}
	return nil
}

// Apply implements [source.Sink]: see the package comment.
func (d *Directory) Apply(ctx context.Context, a source.Application) (applied source.Applied, err error) {
	if err := checked(a); err != nil {
		return source.Applied{}, err
	}
	// Nothing is there any more if it was adopted.
	defer func() { applied, err = released(a.Checkout, applied, err) }()
	o, err := d.enter()
	if err != nil {
		return source.Applied{}, sinkError(ctx, DetailPlace, err)
	}
	// This call, and the place that the checkout was made in.
	defer func() { applied.Leftover = errors.Join(applied.Leftover, d.leave(o, 2)) }()
	unlock, err := o.lock(ctx)
	if err != nil {
		return source.Applied{}, sinkError(ctx, DetailLock, err)
	}
	defer func() { applied.Leftover = errors.Join(applied.Leftover, leftover(unlock())) }()
	applied, err = d.apply(ctx, o, a)
	return applied, sinkError(ctx, DetailPlace, err)
}

// apply is Apply with the lock held.
func (d *Directory) apply(ctx context.Context, o *openDirectory, a source.Application) (source.Applied, error) {
	l, err := o.list()
	if err != nil {
		return source.Applied{}, err
	}
	if _, err := raiseFence(o.root, d.opts.Source, a.Hold.Fence, l.fence()); err != nil {
		return source.Applied{}, err
	}
	current, err := o.current()
	if err != nil {
		return source.Applied{}, err
	}
	swept := leftover(o.tidy(l, nil, current))
	sel, err := d.rules.choose(a.Checkout)
	if err != nil {
		return source.Applied{}, err
	}
	next, err := d.next(a, sel)
	if err != nil {
		return source.Applied{}, err
	}
	served, _ := l.find(current)
	applied := source.Applied{Counts: d.counts(served, sel), Leftover: swept}
	same, err := d.serves(ctx, served, next, a.Checkout.Root(), sel)
	if err != nil {
		return source.Applied{}, err
	}
	if same {
		applied.Unchanged = true
		return applied, d.renew(o, served, next)
	}
	if err := d.replace(ctx, o, a, l, current, sel, next); err != nil {
		return source.Applied{}, err
	}
	return d.retire(o, next, applied), nil
}

// next is the tree that a checkout becomes.
func (d *Directory) next(a source.Application, sel *selection) (kept, error) {
	content := sel.digest()
	id, err := newTreeID(content, d.opts.Random)
	if err != nil {
		return kept{}, err
	}
	return kept{id: id, at: d.opts.Now(), record: record{
		Fence: a.Hold.Fence, Commit: a.Checkout.Commit().String(), Tree: a.Checkout.Tree().String(),
		Revision: a.Revision.String(), Content: hexOf(content), Files: int64(len(sel.files)), Bytes: sel.bytes,
	}}, nil
}

// serves reports whether what is served is just what the checkout has, by its
// record and by every byte.
func (d *Directory) serves(ctx context.Context, served, next kept, checkout string, sel *selection) (bool, error) {
	if served.id == "" || served.Content != next.Content || served.Revision != next.Revision {
		return false, nil
	}
	return identical(ctx, d.treeDir(served.id), checkout, sel)
}

func (d *Directory) treeDir(id string) string {
	return filepath.Join(d.parent, holdingPrefix+filepath.Base(d.opts.Path)+holdingSuffix, treesName, id)
}

// renew records that a tree that is served is that of another commit, too. An
// earlier attempt may have been cut off before the link was durable.
func (d *Directory) renew(o *openDirectory, served, next kept) error {
	served.Fence, served.Commit, served.Tree = next.Fence, next.Commit, next.Tree
	return errors.Join(o.writeRecord(served), o.syncLink())
}

// replace makes a checkout the tree that is served.
func (d *Directory) replace(
	ctx context.Context, o *openDirectory, a source.Application, l listing, current string, sel *selection, next kept,
) error {
	if err := d.room(o.holding); err != nil {
		return err
	}
	if err := d.tooMany(l, current); err != nil {
		return err
	}
	from, err := filepath.Rel(d.parent, a.Checkout.Root())
	if err != nil || !strings.HasPrefix(filepath.ToSlash(from), o.dir+"/") {
		return &source.SinkError{Reason: fencepost.ReasonUnavailable, Detail: DetailCheckout, Err: errors.New("the checkout is not where the sink wanted it")}
	}
	if err := arrange(ctx, a.Checkout.Root(), sel, d.opts.DirMode, o.chmod); err != nil {
		return err
	}
	err = o.adopt(filepath.ToSlash(from), next, func() error { return d.describe(o, a.Checkout, sel, next) })
	if err == nil {
		err = o.publish(next.id, d.rules.mount, func() error { return guarded(ctx, a.Guard) })
	}
	if err == nil {
		return nil
	}
	if now, look := o.current(); look != nil || now != next.id {
		err = errors.Join(err, leftover(o.discard(next)))
	}
	return err
}

// tooMany refuses a further tree while there are too many that must stay.
func (d *Directory) tooMany(l listing, current string) error {
	stay, _ := d.retention().split(l, current)
	if len(stay) < d.opts.Most {
		return nil
	}
	return &source.SinkError{
		Reason: fencepost.ReasonFull, Detail: DetailTrees,
		Err: fmt.Errorf("%d trees are too young to be removed", len(stay)),
	}
}

func (d *Directory) retention() retention {
	return retention{keep: d.opts.Keep, grace: d.opts.Grace, now: d.opts.Now()}
}

// retire removes the trees that may go now.
func (d *Directory) retire(o *openDirectory, next kept, applied source.Applied) source.Applied {
	l, err := o.list()
	if err == nil {
		_, gone := d.retention().split(l, next.id)
		err = o.tidy(l, gone, next.id)
	}
	applied.Leftover = errors.Join(applied.Leftover, leftover(err))
	return applied
}
