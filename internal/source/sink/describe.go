package sink

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path"

	"github.com/fencepost/fencepost/gitfetch"
	"github.com/fencepost/fencepost/internal/durable"
	"github.com/fencepost/fencepost/internal/source"
)

// describe writes a tree's manifest. It need not be durable: what a crash
// leaves of it has a wrong checksum, and is worth no more than one fetch. A
// checkout from which files were taken here is not what its manifest would say.
func (d *Directory) describe(o *openDirectory, c *gitfetch.Checkout, sel *selection, next kept) (err error) {
	if len(sel.left) > 0 {
		return nil
	}
	f, err := o.root.OpenFile(path.Join(treesName, next.id+manifestSuffix), os.O_WRONLY|os.O_CREATE|os.O_TRUNC, durable.FilePerm)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	err = c.WriteManifest(&appender{f: f})
	if errors.Is(err, gitfetch.ErrManifest) {
		// It has more than a manifest can hold.
		return f.Truncate(0)
	}
	return err
}

// An appender writes a file from its beginning on.
type appender struct {
	f   io.WriterAt
	off int64
}

// Write implements [io.Writer].
func (a *appender) Write(p []byte) (int, error) {
	n, err := a.f.WriteAt(p, a.off)
	a.off += int64(n)
	return n, err
}

// have returns the tree that is served with its manifest, nil where it has none
// that can be used.
func (d *Directory) have(o *openDirectory) (string, *gitfetch.Have, error) {
	id, err := o.current()
	if err != nil || id == "" {
		return "", nil, err
	}
	f, err := o.root.OpenFile(path.Join(treesName, id+manifestSuffix), os.O_RDONLY, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil, nil
	}
	if err != nil {
		return "", nil, err
	}
	m, err := gitfetch.ReadManifest(io.NewSectionReader(f, 0, gitfetch.MaxManifestBytes+1))
	if closed := f.Close(); closed != nil {
		return "", nil, closed
	}
	if errors.Is(err, gitfetch.ErrManifest) {
		return "", nil, nil
	}
	if err != nil {
		return "", nil, err
	}
	return id, &gitfetch.Have{Dir: d.treeDir(id), Manifest: m}, nil
}

// A lastHave is what the last [Directory.Place] found.
type lastHave struct {
	id   string
	have *gitfetch.Have
}

// keepHave keeps the manifest that was read for the fetch until the
// application that follows, which counts by it.
func (d *Directory) keepHave(l lastHave) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.last = l
}

func (d *Directory) takeHave() lastHave {
	d.mu.Lock()
	defer d.mu.Unlock()
	l := d.last
	d.last = lastHave{}
	return l
}

// counts says how a selection differs from what is served; without its manifest
// only what the selection is.
func (d *Directory) counts(served kept, sel *selection) source.Counts {
	c := source.Counts{Files: int64(len(sel.files)), Bytes: sel.bytes}
	last := d.takeHave()
	if served.id == "" {
		c.Added = c.Files
		return c
	}
	if last.have == nil || last.id != served.id {
		return c
	}
	before := map[string]gitfetch.File{}
	for f := range last.have.Manifest.Files() {
		before[f.Path] = f
	}
	for _, f := range sel.files {
		old, was := before[f.Path]
		switch {
		case !was:
			c.Added++
		case old.Blob != f.Blob || old.Mode != f.Mode:
			c.Changed++
		}
		delete(before, f.Path)
	}
	c.Removed = int64(len(before))
	return c
}
