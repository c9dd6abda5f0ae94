package sink

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"syscall"

	"github.com/fencepost/fencepost/internal/durable"
)

// ErrPlace: a sink's place is not fit. [PlaceError] says why, and the mend.
var ErrPlace = errors.New("the sink's place is not fit")

// A PlaceError says what is wrong with a sink's place, and the mend. It
// matches [ErrPlace], and its cause. Its text names no path of the host; who
// shows it knows which sink it is about.
type PlaceError struct {
	What, Mend string
	Err        error
}

// Error is one line: what, and the mend.
func (e *PlaceError) Error() string { return e.What + ": " + e.Mend }

// Unwrap returns [ErrPlace] and the cause.
func (e *PlaceError) Unwrap() []error {
	if e.Err == nil {
		return []error{ErrPlace}
	}
	return []error{ErrPlace, e.Err}
}

func unfit(err error, what, mend string) error { return &PlaceError{What: what, Mend: mend, Err: err} }

// Probe implements [source.Sink]: it makes the holding place where it is
// missing, tries in it all that an application does, and removes what killed
// processes left. Its error matches [ErrPlace] or [source.ErrLeftover].
func (d *Directory) Probe(context.Context) (err error) {
	if err := d.probeParent(); err != nil {
		return err
	}
	if err := d.probePath(); err != nil {
		return err
	}
	if _, err := durable.CheckVolume(d.fsys(d.parent), "the sink's directory", d.opts.AllowVolatile); err != nil {
		return unfit(err, "the file system of the sink's path can't keep what a sink promises", "use a directory on a local ext4, XFS, btrfs or ZFS that is not mounted read-only")
	}
	o, err := d.enter()
	if err != nil {
		return unopened(err)
	}
	defer func() { err = errors.Join(err, d.leave(o, 1)) }()
	if err := d.probeDevice(o); err != nil {
		return err
	}
	if _, err := readState(o.root, d.opts.Source); err != nil {
		return unopened(err)
	}
	return d.tryOut(o)
}

// tryOut tries the place and sweeps it, unless somebody is at it: what works
// for them is tried enough, and they tidy up. Without the lock, the trial
// would be swept away by another process's.
func (d *Directory) tryOut(o *openDirectory) (err error) {
	unlock, err := o.tryLock()
	if err != nil {
		return unopened(err)
	}
	if unlock == nil {
		return nil
	}
	defer func() { err = errors.Join(err, leftover(unlock())) }()
	if err := d.trial(o); err != nil {
		return unopened(err)
	}
	return d.sweep(o)
}

// probeParent looks at the directory that the link is in.
func (d *Directory) probeParent() error {
	info, err := os.Stat(d.parent)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return unfit(fs.ErrNotExist, "the directory that the sink's path is in does not exist",
			"make it, owned by the user of this process (install -d -o USER DIR)")
	case err != nil:
		return unfit(hostless(err), "the directory that the sink's path is in can't be looked at",
			"let the user of this process into it and all above it")
	case !info.IsDir():
		return unfit(nil, "what the sink's path is in is no directory", "name a path in a directory")
	}
	if d.opts.DataDir == "" {
		return nil
	}
	inside, err := within(d.parent, d.opts.DataDir)
	if err != nil {
		return unfit(hostless(err), "it can't be told whether the sink's path is in data_dir", "let the user of this process into both")
	}
	if inside {
		return unfit(nil, "the sink's path is in data_dir", "name a path outside of it; nothing is served from there")
	}
	return nil
}

// probePath looks at what stands at the link's path, if anything does.
func (d *Directory) probePath() error {
	h := holding{fsys: d.fsys(d.parent), name: filepath.Base(d.opts.Path)}
	h.dir = holdingPrefix + h.name + holdingSuffix
	_, err := h.current()
	switch {
	case errors.Is(err, errNotOurs):
		return unfit(err, "something that Fencepost did not make stands at the sink's path",
			"move it away (mv PATH PATH.before); a symbolic link takes its place")
	case err != nil:
		return unfit(err, "the sink's path can't be looked at", "let the user of this process into its directory")
	}
	return nil
}

// probeDevice requires that a rename leads from the holding place to the link.
func (d *Directory) probeDevice(o *openDirectory) error {
	for _, name := range []string{o.dir, path.Join(o.dir, treesName)} {
		same, err := sameDevice(d.parent, filepath.Join(d.parent, filepath.FromSlash(name)))
		if err != nil {
			return unopened(hostless(err))
		}
		if !same {
			return unfit(nil, "the holding place beside the sink's path is on another file system",
				"unmount what is mounted there; trees are moved to their place, never copied")
		}
	}
	return nil
}

// unopened turns the error of opening or trying a place into what to do.
func unopened(err error) error {
	switch {
	case errors.Is(err, fs.ErrPermission):
		return unfit(err, "the directory that the sink's path is in is not writable", "give it to the user of this process (chown USER DIR)")
	case errors.Is(err, durable.ErrReadOnly):
		return unfit(err, "the file system of the sink's path is read-only", "mount it read-write, and let a service's sandbox write there (ReadWritePaths=)")
	case errors.Is(err, durable.ErrNoSpace):
		return unfit(err, "there is no room at the sink's path", "make room")
	case errors.Is(err, errForeign):
		return unfit(err, "the holding place beside the sink's path belongs to another source",
			"give each source a path of its own; if the other source is no more, remove its link and holding place")
	case errors.Is(err, errState):
		return unfit(err, "the state in the holding place beside the sink's path is damaged",
			"move state.json away; the fence is found again in the records of the trees")
	case errors.Is(err, durable.ErrPoisoned):
		return unfit(err, "a sync failed at the sink's path", "look at the disk, restart the machine, then remove POISON and health from the holding place")
	case errors.Is(err, errNotOurs):
		return unfit(err, "something that Fencepost did not make stands where the holding place beside the sink's path is to be", "move it away")
	}
	what := "the sink's path can't be used"
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		what += " (" + errno.Error() + ")"
	}
	return unfit(err, what, "mend that, or name another path")
}

// trial makes in the holding place what an application makes: a directory with
// a file, a link to it, a rename of each.
func (d *Directory) trial(o *openDirectory) (err error) {
	name, err := trialName(d.opts.Random)
	if err != nil {
		return err
	}
	at := path.Join(o.dir, name)
	defer func() {
		err = errors.Join(err, leftover(o.remove(at)), leftover(o.remove(at+".moved")), leftover(o.remove(at+".link")))
	}()
	if err := o.fsys.Mkdir(at, durable.DirPerm); err != nil {
		return err
	}
	// Nothing is synced: thousands of sinks are tried at a start.
	f, err := o.root.OpenFile(path.Join(name, "file"), os.O_WRONLY|os.O_CREATE|os.O_EXCL, durable.FilePerm)
	if err != nil {
		return err
	}
	_, err = f.WriteAt([]byte("trial"), 0)
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	for _, step := range []func() error{
		func() error { return o.fsys.Rename(at, at+".moved") },
		func() error { return o.fsys.Symlink(name, at+".link") },
		func() error { return o.fsys.Rename(at+".link", at) },
	} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// sweep removes what killed processes left. The caller has the lock.
func (d *Directory) sweep(o *openDirectory) error {
	l, err := o.list()
	if err != nil {
		return unopened(err)
	}
	current, err := o.current()
	if err != nil {
		return unopened(err)
	}
	_, swept := o.work.Swept()
	return errors.Join(leftover(o.tidy(l, nil, current)), leftover(swept))
}
