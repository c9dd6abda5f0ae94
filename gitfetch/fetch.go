package gitfetch

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"time"

	"github.com/fencepost/fencepost/gitfetch/internal/pack"
	"github.com/fencepost/fencepost/internal/clock"
)

// Fetch makes a checkout of one commit in the new directory req.Dir. It is
// there whole when Fetch returns, or not at all; while it is being made, a
// hidden directory stands beside it, which [Sweep] knows how to remove should
// the process be killed. Errors are described at [ErrRequest] and what
// follows it. To make many checkouts, open a [Workspace].
//
// DESIGN §6.
func Fetch(ctx context.Context, req Request) (*Checkout, error) {
	const op = "gitfetch.fetch"
	t, err := req.checkFetch()
	if err == nil && req.Dir == "" {
		err = fmt.Errorf("%w: dir: must be set", ErrRequest)
	}
	if err != nil {
		return nil, sealed(op, err)
	}
	dir, err := filepath.Abs(req.Dir)
	if err != nil {
		return nil, sealed(op, host("directory", err))
	}
	if _, err := os.Lstat(dir); err == nil {
		return nil, sealed(op, ErrExists)
	} else if !errors.Is(err, fs.ErrNotExist) {
		return nil, sealed(op, host("look at directory", err))
	}
	c, err := fetchBeside(ctx, t, filepath.Dir(dir), filepath.Base(dir))
	return c, sealed(op, err)
}

// fetchBeside makes the checkout in a workspace of its own in base, from
// where it moves to its place.
func fetchBeside(ctx context.Context, t *target, base, name string) (*Checkout, error) {
	// What can't be swept here is none of this fetch's doing; whoever wants
	// to know asks Sweep.
	_, _ = Sweep(base)
	w, err := own(base)
	if err != nil {
		return nil, err
	}
	c, err := w.fetch(ctx, t, name)
	left := w.Close()
	if left != nil && c != nil {
		left, c = errors.Join(left, c.Remove()), nil
	}
	return c, errors.Join(err, left)
}

// fetch makes a checkout at final, a slash-separated name in w.base. With an
// error there is none.
func (w *Workspace) fetch(ctx context.Context, t *target, final string) (*Checkout, error) {
	c, err := w.make(ctx, t, final)
	if err != nil && c != nil {
		return nil, errors.Join(err, c.Remove())
	}
	return c, err
}

// make does everything from the first request to the finished directory.
func (w *Workspace) make(ctx context.Context, t *target, final string) (c *Checkout, err error) {
	if t.Transport != nil {
		leave, err := t.Transport.enter()
		if err != nil {
			return nil, err
		}
		defer leave()
	}
	ctx, dog, cancel := watch(ctx, t.Budgets)
	defer cancel()
	root, err := os.OpenRoot(w.base)
	if err != nil {
		return nil, host("open workspace", err)
	}
	defer func() { err = errors.Join(err, host("close workspace", root.Close())) }()
	// The conversation ends before its dials are waited for.
	talking, hangUp := context.WithCancel(ctx)
	client, stop := newClient(talking, t, dog)
	defer stop()
	defer hangUp()
	f := &fetcher{w: w, t: t, dog: dog, client: client, root: root, final: final, lap: stopwatch(t.Now)}
	return f.fetch(ctx)
}

// stopwatch returns a function that returns the time since its last call.
func stopwatch(now func() time.Time) func() time.Duration {
	if now == nil {
		now = clock.System().Now
	}
	last := now()
	return func() time.Duration {
		before := last
		last = now()
		return last.Sub(before)
	}
}

// reporter returns what tells the request's Progress about objects.
func (c *client) reporter() func(done, total int64) {
	if c.t.Progress == nil {
		return nil
	}
	const every = 256
	return func(done, total int64) {
		if done%every == 0 || done == total {
			c.t.Progress(Progress{Objects: done, TotalObjects: total, WireBytes: c.wire})
		}
	}
}

// A spoolFile holds the contents of a pack while it is taken apart. It has
// no name where the system allows that, so that nothing finds it and nothing
// is left of it.
type spoolFile struct {
	f      *os.File
	remove func() error // nil where it has no name any more
}

func makeSpool(root *os.Root, dir string) (pack.File, error) {
	name := path.Join(dir, "spool-"+randomName())
	f, err := root.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, host("make spool", err)
	}
	s := &spoolFile{f: f}
	if err := root.Remove(name); err != nil {
		s.remove = func() error { return root.Remove(name) }
	}
	return s, nil
}

// ReadAt implements [io.ReaderAt].
func (s *spoolFile) ReadAt(p []byte, off int64) (int, error) {
	n, err := s.f.ReadAt(p, off)
	return n, host("read spool", err)
}

// WriteAt implements [io.WriterAt].
func (s *spoolFile) WriteAt(p []byte, off int64) (int, error) {
	n, err := s.f.WriteAt(p, off)
	return n, host("write spool", err)
}

// Close frees the file's bytes.
func (s *spoolFile) Close() error {
	err := host("close spool", s.f.Close())
	if s.remove != nil {
		err = errors.Join(err, cleanupError(s.remove()))
	}
	return err
}
