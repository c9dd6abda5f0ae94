package sink

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/durable"
	"github.com/fencepost/fencepost/internal/source"
	"github.com/fencepost/fencepost/internal/strictjson"
)

// Names in a holding place. See the package comment.
const (
	holdingPrefix  = "."
	holdingSuffix  = ".fencepost"
	lockName       = "lock"
	stateName      = "state.json"
	linkTemp       = "link.tmp"
	trialPrefix    = "trial-"
	treesName      = "trees"
	recordSuffix   = ".json"
	manifestSuffix = ".manifest"

	stateSchema  = "fencepost.sink-state/v1"
	recordSchema = "fencepost.sink-tree/v1"

	// maxStateBytes and maxRecordBytes bound what is read of both files; each
	// is well below.
	maxStateBytes  = 4 << 10
	maxRecordBytes = 4 << 10

	timeLayout = "2006-01-02T15:04:05.000Z"
)

// A state is what a place remembers whatever is served: state.json.
type state struct {
	Schema string `json:"schema"`
	// Source is the source that the place belongs to.
	Source string `json:"source"`
	// Fence is the highest one that an application came with.
	Fence uint64 `json:"fence"`
	// Done is what a program took last; in a program's state alone.
	Done *doneState `json:"done,omitzero"`
}

// A record says what a tree is: trees/<id>.json. It is written when all of the
// tree is durable.
type record struct {
	Schema   string `json:"schema"`
	Fence    uint64 `json:"fence"`
	Commit   string `json:"commit"`
	Tree     string `json:"tree"`
	Revision string `json:"revision"`
	// Content is the digest of paths, modes, sizes and blobs.
	Content string `json:"content"`
	Files   int64  `json:"files"`
	Bytes   int64  `json:"bytes"`
	// At is when it was written: right before the tree was served, UTC.
	At string `json:"at"`
}

// A kept is a tree among the others, with what its record says.
type kept struct {
	record
	id string
	at time.Time
}

// A holding is the place beside a link, and the link. Its methods that change
// something are called with the lock held.
type holding struct {
	// fsys is the directory that the link is in.
	fsys durable.Linker
	// name is the link's, dir the holding place's.
	name, dir string
	source    fencepost.SourceID
	// root is dir, in which a failed sync of state, records or link is final.
	root *durable.Root
	// tree syncs what is below dir.
	tree durable.Tree
	// remove removes a tree, by its name in fsys.
	remove func(name string) error
}

// openHolding opens a place that is there.
func openHolding(fsys durable.Linker, name string, id fencepost.SourceID, remove func(string) error) (*holding, error) {
	h := &holding{fsys: fsys, name: name, dir: holdingPrefix + name + holdingSuffix, source: id, remove: remove}
	var err error
	// Before anything is written: see [durable.Tree].
	if h.tree, err = fsys.OpenTree(h.dir); err != nil {
		return nil, err
	}
	if h.root, err = durable.OpenRoot(durable.Sub(fsys, h.dir)); err != nil {
		return nil, errors.Join(err, h.tree.Close())
	}
	return h, nil
}

func (h *holding) close() error { return errors.Join(h.root.Close(), h.tree.Close()) }

// lock waits for the place's lock. Whoever holds it may change the place; the
// kernel frees it when the process ends.
func (h *holding) lock(ctx context.Context) (unlock func() error, err error) {
	return lockFile(ctx, h.root, lockName)
}

func lockFile(ctx context.Context, fsys durable.FS, name string) (unlock func() error, err error) {
	f, err := fsys.OpenFile(name, os.O_RDWR|os.O_CREATE, durable.FilePerm)
	if err != nil {
		return nil, err
	}
	if err := f.Lock(ctx, durable.Exclusive); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f.Close, nil
}

// tryLock is lock without waiting; unlock is nil if somebody else has it.
func (h *holding) tryLock() (unlock func() error, err error) {
	f, err := h.root.OpenFile(lockName, os.O_RDWR|os.O_CREATE, durable.FilePerm)
	if err != nil {
		return nil, err
	}
	taken, err := f.TryLock(durable.Exclusive)
	if err != nil || !taken {
		return nil, errors.Join(err, f.Close())
	}
	return f.Close, nil
}

// errForeign: the place belongs to another source.
var errForeign = errors.New("the place belongs to another source")

// errState: the place's own files are not what Fencepost writes.
var errState = errors.New("not as Fencepost writes it")

// readState returns the place's state, the zero state if there is none yet.
func readState(fsys durable.FS, id fencepost.SourceID) (state, error) {
	b, err := durable.ReadFile(fsys, stateName, maxStateBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return state{}, nil
	}
	if err != nil {
		return state{}, err
	}
	var s state
	if err := strictjson.DecodeClosed(b, strictjson.Limits{}, &s); err != nil {
		return state{}, fmt.Errorf("%s: %w: %w", stateName, err, errState)
	}
	if s.Schema != stateSchema {
		return state{}, fmt.Errorf("%s: schema is not %s: %w", stateName, stateSchema, errState)
	}
	if s.Source != id.String() {
		return state{}, errForeign
	}
	return s, nil
}

// raiseFence makes sure, durably, that no application with a lower fence will
// do anything. It matches [source.ErrLost] if a higher one was seen.
func raiseFence(fsys durable.FS, id fencepost.SourceID, fence, atLeast uint64) (state, error) {
	s, err := readState(fsys, id)
	if err != nil {
		return state{}, err
	}
	seen := max(s.Fence, atLeast)
	switch {
	case fence == 0 || fence < seen:
		return state{}, fmt.Errorf("fence %d: %w", fence, &source.BehindError{Seen: seen})
	case fence == s.Fence:
		return s, nil
	}
	s.Schema, s.Source, s.Fence = stateSchema, id.String(), fence
	return s, writeState(fsys, s)
}

func writeState(fsys durable.FS, s state) error {
	b, err := json.Marshal(s)
	if err != nil {
		return err
	}
	return durable.WriteFile(fsys, stateName, b)
}

// A listing is what is in trees/.
type listing struct {
	// trees are those that are whole, the oldest first.
	trees []kept
	// junk are names in trees/ that belong to no record.
	junk []string
}

func (l listing) find(id string) (kept, bool) {
	i := slices.IndexFunc(l.trees, func(t kept) bool { return t.id == id })
	if i < 0 {
		return kept{}, false
	}
	return l.trees[i], true
}

// fence is the highest one of all trees: a state file that somebody removed
// loses none that led to a tree.
func (l listing) fence() uint64 {
	var highest uint64
	for _, t := range l.trees {
		highest = max(highest, t.Fence)
	}
	return highest
}

// list reads trees/. A record that can't be read makes its tree junk: it is
// made anew.
func (h *holding) list() (listing, error) {
	infos, err := h.root.ReadDir(treesName)
	if err != nil {
		return listing{}, err
	}
	var l listing
	dirs := map[string]bool{}
	for _, info := range infos {
		if info.Dir && isTreeID(info.Name) {
			dirs[info.Name] = true
		}
	}
	known := map[string]bool{}
	for _, info := range infos {
		id, ok := strings.CutSuffix(info.Name, recordSuffix)
		if !ok || !dirs[id] {
			continue
		}
		t, err := h.readRecord(id)
		if errors.Is(err, errState) {
			continue
		}
		if err != nil {
			return listing{}, err
		}
		l.trees = append(l.trees, t)
		known[id], known[id+recordSuffix], known[id+manifestSuffix] = true, true, true
	}
	for _, info := range infos {
		if !known[info.Name] {
			l.junk = append(l.junk, info.Name)
		}
	}
	slices.SortStableFunc(l.trees, func(a, b kept) int {
		return cmp.Or(cmp.Compare(a.Fence, b.Fence), a.at.Compare(b.at))
	})
	return l, nil
}

func (h *holding) readRecord(id string) (kept, error) {
	b, err := durable.ReadFile(h.root, path.Join(treesName, id+recordSuffix), maxRecordBytes)
	if err != nil {
		return kept{}, err
	}
	t := kept{id: id}
	if err := strictjson.DecodeClosed(b, strictjson.Limits{}, &t.record); err != nil {
		return kept{}, fmt.Errorf("record: %w: %w", err, errState)
	}
	if t.at, err = time.Parse(timeLayout, t.At); err != nil || t.Schema != recordSchema {
		return kept{}, fmt.Errorf("record: schema or time: %w", errState)
	}
	return t, nil
}

func (h *holding) writeRecord(t kept) error {
	t.Schema, t.At = recordSchema, t.at.UTC().Format(timeLayout)
	b, err := json.Marshal(t.record)
	if err != nil {
		return err
	}
	return durable.WriteFile(h.root, path.Join(treesName, t.id+recordSuffix), b)
}

// treeIDBytes are the random bytes at the end of a tree's id.
const treeIDBytes = 4

// newTreeID names a tree by its content, and tells it from others of the same.
func newTreeID(content source.Digest, random io.Reader) (string, error) {
	var b [treeIDBytes]byte
	if _, err := io.ReadFull(random, b[:]); err != nil {
		return "", fmt.Errorf("draw id of tree: %w", err)
	}
	return hexOf(content)[:16] + "-" + hex.EncodeToString(b[:]), nil
}

func isTreeID(s string) bool {
	content, random, ok := strings.Cut(s, "-")
	return ok && len(content) == 16 && len(random) == 2*treeIDBytes && isHex(content) && isHex(random)
}

func isHex(s string) bool {
	return strings.IndexFunc(s, func(c rune) bool { return (c < '0' || c > '9') && (c < 'a' || c > 'f') }) < 0
}

// errNotOurs: something else stands at the link's path.
var errNotOurs = errors.New("something else than our link stands there")

// current returns the id of the tree that is served, empty if there is none.
func (h *holding) current() (string, error) {
	text, err := h.fsys.Readlink(h.name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", nil
	case errors.Is(err, durable.ErrNotLink):
		return "", errNotOurs
	case err != nil:
		return "", err
	}
	rest, ok := strings.CutPrefix(text, h.dir+"/"+treesName+"/")
	id, _, _ := strings.Cut(rest, "/")
	if !ok || !isTreeID(id) {
		return "", errNotOurs
	}
	return id, nil
}

// adopt moves a checkout, by its name in fsys, to its place among the trees,
// makes all of it durable, and then writes its record. What describe writes of
// it before is durable, too.
func (h *holding) adopt(from string, t kept, describe func() error) error {
	if err := describe(); err != nil {
		return err
	}
	if err := h.fsys.Rename(from, path.Join(h.dir, treesName, t.id)); err != nil {
		return fmt.Errorf("move checkout: %w", err)
	}
	// Before this ends well nothing says that the tree is whole, so whoever
	// finds it after a crash removes it.
	if err := h.tree.Sync(); err != nil {
		return fmt.Errorf("sync tree: %w: %w", errSync, err)
	}
	return h.writeRecord(t)
}

// errSync: the tree's bytes did not reach the disk; another attempt writes
// other bytes.
var errSync = errors.New("the file system could not be synced")

// publish makes a tree the one that is served, if guard still allows it.
func (h *holding) publish(id, mount string, guard func() error) error {
	temp := path.Join(h.dir, linkTemp)
	if err := h.fsys.Remove(temp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := h.root.Err(); err != nil {
		return err
	}
	target := path.Join(h.dir, treesName, id, mount)
	if err := h.fsys.Symlink(target, temp); err != nil {
		return err
	}
	// A rename would put the link in the place of a file, too.
	if _, err := h.current(); err != nil {
		return err
	}
	if err := guard(); err != nil {
		return err
	}
	if err := h.fsys.Rename(temp, h.name); err != nil {
		return err
	}
	return h.syncLink()
}

// syncLink makes what the link leads to durable. A failure is final.
func (h *holding) syncLink() error {
	if err := h.root.Check(); err != nil {
		return err
	}
	err := h.fsys.SyncDir(".")
	if err != nil && !errors.Is(err, durable.ErrSyncNotTried) {
		return h.root.Poison("sync link", err)
	}
	return err
}

// A retention says which trees stay.
type retention struct {
	// keep counts trees, the one that is served included.
	keep int
	// grace is how long one stays that is not served any more.
	grace time.Duration
	now   time.Time
}

// split sorts trees into those that stay and those that may go, given which is
// served. Readers may be in the middle of one that was served a moment ago.
func (r retention) split(l listing, current string) (stay, gone []kept) {
	at := slices.IndexFunc(l.trees, func(t kept) bool { return t.id == current })
	for i, t := range l.trees {
		switch {
		case i == at || at < 0:
			// Without a link that leads to one of them nothing is known.
			stay = append(stay, t)
		case i > at:
			// It was never served: a crash or a lost hold came between.
			gone = append(gone, t)
		case at-i < r.keep, r.young(l.trees[i+1].at):
			stay = append(stay, t)
		default:
			gone = append(gone, t)
		}
	}
	return stay, gone
}

// young says whether what another tree replaced at some time must stay. A time
// in the future is no time: somebody set a clock.
func (r retention) young(replaced time.Time) bool {
	age := r.now.Sub(replaced)
	return age >= 0 && age < r.grace
}

// tidy removes what a killed process left, and the trees that may go. It goes
// on where one can't be removed.
func (h *holding) tidy(l listing, gone []kept, current string) error {
	junk, err := h.disown(gone)
	errs := []error{err}
	for _, name := range append(junk, l.junk...) {
		if treeOf(name) != current {
			errs = append(errs, h.remove(path.Join(h.dir, treesName, name)))
		}
	}
	infos, err := h.root.ReadDir(".")
	errs = append(errs, err)
	for _, info := range infos {
		if info.Name == linkTemp || strings.HasSuffix(info.Name, durable.TempSuffix) || strings.HasPrefix(info.Name, trialPrefix) {
			errs = append(errs, h.remove(path.Join(h.dir, info.Name)))
		}
	}
	return errors.Join(errs...)
}

// treeOf is the id of the tree that a name in trees/ is about.
func treeOf(name string) string {
	for _, suffix := range []string{durable.TempSuffix, recordSuffix, manifestSuffix} {
		name = strings.TrimSuffix(name, suffix)
	}
	return name
}

// disown removes the records of trees, durably: no crash may bring one back
// when its tree is gone in part. It returns the names that are junk now.
func (h *holding) disown(gone []kept) (junk []string, err error) {
	for _, t := range gone {
		base := path.Join(treesName, t.id)
		err := h.root.Remove(base + recordSuffix)
		if err == nil || errors.Is(err, fs.ErrNotExist) {
			err = h.root.Remove(base + manifestSuffix)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		junk = append(junk, t.id)
	}
	if len(junk) == 0 {
		return nil, nil
	}
	return junk, h.root.SyncDir(treesName)
}

// discard removes a tree that was adopted and is not served.
func (h *holding) discard(t kept) error {
	_, err := h.disown([]kept{t})
	at := path.Join(h.dir, treesName, t.id)
	return errors.Join(err, h.remove(at), h.remove(at+manifestSuffix))
}
