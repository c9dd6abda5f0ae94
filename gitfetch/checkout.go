package gitfetch

import (
	"errors"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"sync"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/gitfetch/internal/object"
)

// A Checkout is the tree of one commit as files in a directory, each of them
// proven to be what the commit names. It is made by [Fetch] and
// [Workspace.Fetch] alone; the zero Checkout is empty and verifies as
// removed. Its methods are safe for concurrent use, and hold nothing open.
//
// DESIGN §6.
type Checkout struct {
	repository string
	commit     fencepost.CommitID
	parents    []fencepost.CommitID
	content    []byte // of the commit
	nodes      []node
	policy     Policy
	stats      Stats

	synced bool
	device uint64
	stamps []stamp // of nodes, from when each file was made or reused

	base string // absolute directory of this host
	name string // slash-separated way from base to the checkout

	mu      sync.Mutex
	removed bool // guarded by mu
}

// Repository returns the URL that was asked for. It holds no credential.
func (c *Checkout) Repository() string { return c.repository }

// Commit returns the commit that was asked for, and is here.
func (c *Checkout) Commit() fencepost.CommitID { return c.commit }

// Tree returns the commit's tree.
func (c *Checkout) Tree() fencepost.TreeID {
	if len(c.nodes) == 0 {
		return fencepost.TreeID{}
	}
	return fencepost.TreeID{ObjectID: c.nodes[0].id}
}

// Parents returns the commit's parents in its own order, as read from the
// verified commit. They were not fetched. The slice is the caller's.
func (c *Checkout) Parents() []fencepost.CommitID { return slices.Clone(c.parents) }

// Root returns the absolute path of the directory.
func (c *Checkout) Root() string { return filepath.Join(c.base, filepath.FromSlash(c.name)) }

// Stats returns what the fetch cost.
func (c *Checkout) Stats() Stats { return c.stats }

// Stats tell what a fetch cost.
type Stats struct {
	// WireBytes is what came over the network, as charged to the budget.
	WireBytes int64
	// PackBytes is the pack's share of it.
	PackBytes int64
	// InflatedBytes is what the pack came to, as charged to the budget.
	InflatedBytes int64
	// Objects in the pack, Deltas among them.
	Objects, Deltas int64
	// Files and Directories made, the root included.
	Files, Directories int64
	// OutputBytes is what all files come to.
	OutputBytes int64
	// LeftOut counts the files and links that [Request.Select] left out.
	LeftOut int64
	// Filtered is true where the server was asked not to send their content.
	Filtered bool

	// Incremental is true where [Request.Have] was used.
	Incremental bool
	// Fallback says why a shortcut was not taken that was there to be taken: an
	// earlier checkout, or a filter. Empty where all were, or there was none.
	Fallback Fallback
	// LinkedFiles share their inode with the earlier checkout, which took no
	// bytes; CopiedFiles were copied from it, after their content was proven.
	LinkedFiles, LinkedBytes int64
	CopiedFiles, CopiedBytes int64
	// Receive is from the start to the end of the pack, with everything in
	// it inflated and hashed; Check is the walk through the tree; Write is
	// making the files.
	Receive, Check, Write time.Duration
}

// Fallback says why a fetch did without what would have made it shorter:
// [Request.Have], and what a server can leave out for [Request.Select].
type Fallback string

// The reasons to do without.
const (
	// FallbackDirectory: the directory is not there, or can't be read.
	FallbackDirectory Fallback = "directory"
	// FallbackAltered: a file that must be reused is not what it was.
	FallbackAltered Fallback = "altered"
	// FallbackAnswer: the server refused what was asked, or failed at it, or
	// what it sent does not add up with what is here to the commit's tree.
	FallbackAnswer Fallback = "answer"
	// FallbackFilter: the earlier checkout lacks what was left out of it, and
	// the server can't leave it out.
	FallbackFilter Fallback = "filter"
)

// A Mode is the kind of a file in a tree.
type Mode uint8

// The modes of files.
const (
	// ModeFile is 100644: on disk 0444, less the umask.
	ModeFile Mode = iota + 1
	// ModeProgram is 100755: on disk 0555, less the umask.
	ModeProgram
	// ModeLink is 120000: on disk a file with the link's text, or a link, as
	// the policy says.
	ModeLink
)

// String returns the mode as Git writes it.
func (m Mode) String() string {
	if m < ModeFile || m > ModeLink {
		return "unknown"
	}
	return object.Mode(m).String()
}

// A File is one file of a checkout.
type File struct {
	// Path is slash-separated and relative to the root. It is the
	// repository's text: quote it where people read it.
	Path string
	Mode Mode
	// Size in bytes.
	Size int64
	// Blob is the id of the content.
	Blob fencepost.BlobID
}

// A Gitlink is a path that was left out: another repository's commit.
type Gitlink struct {
	Path   string
	Commit fencepost.CommitID
}

// Files yields the files that are there in the order of their paths' bytes.
func (c *Checkout) Files() iter.Seq[File] {
	return func(yield func(File) bool) {
		for i := range c.nodes {
			if n := &c.nodes[i]; isFile(n.mode) && !n.out && !yield(c.file(int32(i))) {
				return
			}
		}
	}
}

// Lookup returns the file at exactly that path, if it is there.
func (c *Checkout) Lookup(name string) (File, bool) {
	i := sort.Search(len(c.nodes), func(i int) bool { return c.sortKey(int32(i)) >= name })
	if i == len(c.nodes) || !isFile(c.nodes[i].mode) || c.nodes[i].out || c.sortKey(int32(i)) != name {
		return File{}, false
	}
	return c.file(int32(i)), true
}

// Skipped returns the gitlinks that the policy left out, in the order of
// their paths.
func (c *Checkout) Skipped() []Gitlink {
	var skipped []Gitlink
	for i := range c.nodes {
		if n := &c.nodes[i]; n.mode == object.Gitlink {
			skipped = append(skipped, Gitlink{Path: pathOf(c.nodes, int32(i)), Commit: fencepost.CommitID{ObjectID: n.id}})
		}
	}
	return skipped
}

func (c *Checkout) file(i int32) File {
	n := &c.nodes[i]
	return File{Path: pathOf(c.nodes, i), Mode: Mode(n.mode), Size: n.size, Blob: fencepost.BlobID{ObjectID: n.id}}
}

// sortKey is what nodes are in the order of.
func (c *Checkout) sortKey(i int32) string {
	key := pathOf(c.nodes, i)
	if i > 0 && c.nodes[i].mode == object.Dir {
		key += "/"
	}
	return key
}

// stampOf returns by what a file is recognised, where that is known.
func (c *Checkout) stampOf(i int32) stamp {
	if int(i) >= len(c.stamps) {
		return stamp{}
	}
	return c.stamps[i]
}

func isFile(m object.Mode) bool {
	return m == object.File || m == object.Program || m == object.Link
}

// Remove removes the directory and all in it. A directory that is gone
// already is no error. An error matches [ErrCleanup] and is one to alert on;
// Remove may then be called again.
func (c *Checkout) Remove() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.removed || len(c.nodes) == 0 {
		return nil
	}
	if err := removeTree(c.base, c.name); err != nil {
		return err
	}
	c.removed = true
	return nil
}

func (c *Checkout) gone() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.removed || len(c.nodes) == 0
}

// removeTree removes name below the directory base. A directory in it that
// somebody has made unreadable is made ours again first.
func removeTree(base, name string) error {
	root, err := os.OpenRoot(base)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return cleanupError(err)
	}
	err = removeIn(root, name)
	return cleanupError(errors.Join(err, root.Close()))
}

func removeIn(root *os.Root, name string) error {
	err := root.RemoveAll(name)
	if errors.Is(err, fs.ErrPermission) {
		err = errors.Join(unlock(root, name), root.RemoveAll(name))
	}
	return err
}

// unlock gives the owner full access to every directory below name. It goes
// down through handles, so that no link leads it elsewhere.
func unlock(root *os.Root, name string) error {
	info, err := root.Lstat(name)
	if err != nil || !info.IsDir() {
		return err
	}
	if info.Mode().Perm()&dirPerm != dirPerm {
		if err := root.Chmod(name, dirPerm); err != nil {
			return err
		}
	}
	dir, err := root.OpenRoot(name)
	if err != nil {
		return err
	}
	entries, err := fs.ReadDir(dir.FS(), ".")
	for _, e := range entries {
		if e.IsDir() {
			err = errors.Join(err, unlock(dir, e.Name()))
		}
	}
	return errors.Join(err, dir.Close())
}

func cleanupError(err error) error {
	if err == nil {
		return nil
	}
	return &fencepost.Error{
		Op: "gitfetch.remove", Reason: fencepost.ReasonUnavailable,
		Err: errors.Join(ErrCleanup, host("remove", err)),
	}
}
