// Package pack receives one Git pack as a stream: it inflates, resolves and
// hashes every object once, in bounded memory, and keeps the contents in one
// spool file with a small table beside it, or hands them to a [Taker].
//
// A pack is "PACK", the version and the number of entries (32 bits each,
// big-endian), the entries, and the SHA-1 of all before it. An entry is a
// header of type and inflated size, for a delta its base, and one zlib
// stream whose compressed length is stored nowhere: where it ends is known
// when it is inflated.
//
// Nothing that the pack claims is believed before it is charged: counts and
// sizes are compared with the [Limits] before any memory is taken for them.
package pack

import (
	"errors"
	"fmt"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/gitfetch/internal/object"
)

// Sentinels that errors of this package match.
var (
	// ErrMalformed: not a pack in its one legal form.
	ErrMalformed = errors.New("malformed pack")
	// ErrChecksum: the trailer is not the SHA-1 of what came before.
	ErrChecksum = errors.New("pack checksum does not match")
	// ErrUnresolved: a delta whose base is not in the pack, or in a cycle.
	ErrUnresolved = errors.New("delta without its base")
	// ErrDuplicate: the same object twice.
	ErrDuplicate = errors.New("object twice in one pack")
)

// Names of the limits, as [object.LimitError] carries them.
const (
	LimitObjects    = "objects"
	LimitInflated   = "inflated_bytes"
	LimitDeltaDepth = "delta_depth"
	LimitCommit     = "commit_bytes"
	LimitTree       = "tree_bytes"
	LimitBlob       = "file_bytes"
)

// Limits bound what a pack may make this machine do. Each must be set: a
// zero allows nothing.
type Limits struct {
	// Objects is the most entries.
	Objects int64
	// InflatedBytes is the most that all inflated entries and the results of
	// all deltas come to.
	InflatedBytes int64
	// DeltaDepth is the longest chain of deltas over one whole object.
	DeltaDepth int64
	// CommitBytes is the largest commit or tag, TreeBytes tree, BlobBytes blob.
	CommitBytes, TreeBytes, BlobBytes int64
}

func (l *Limits) checkSize(kind object.Kind, size int64) error {
	limit, name := l.CommitBytes, LimitCommit
	switch kind {
	case object.Tree:
		limit, name = l.TreeBytes, LimitTree
	case object.Blob:
		limit, name = l.BlobBytes, LimitBlob
	}
	if size > limit {
		return &object.LimitError{Limit: name, Max: limit}
	}
	return nil
}

// largest bounds the text of a delta whose base, and so whose kind, is not
// known yet. A delta that is longer than the largest object has no purpose.
func (l *Limits) largest() int64 { return max(l.CommitBytes, l.TreeBytes, l.BlobBytes) }

// An Index names one object of a [Store].
type Index int32

type entry struct {
	id    fencepost.ObjectID
	kind  object.Kind // 0 while the delta is not resolved
	depth int32       // deltas between this and a whole object
	off   int64       // of the content in the spool, or of the delta's text; or isTaken
	size  int64
}

// isTaken stands for an offset where the content is not in the spool.
const isTaken = -1

// Counts tell what a pack held.
type Counts struct {
	Objects       int64
	Deltas        int64
	PackBytes     int64 // the whole pack, header and trailer included
	InflatedBytes int64 // as charged to [Limits.InflatedBytes]
}

// A Store holds the objects of one received pack. Its methods are safe for
// concurrent use until [Store.Close].
type Store struct {
	entries []entry
	byID    map[fencepost.ObjectID]Index
	spool   *spool
	taker   Taker // of what was taken
	counts  Counts
}

// Close frees the spool.
func (s *Store) Close() error { return s.spool.close() }

// Counts returns what the pack held.
func (s *Store) Counts() Counts { return s.counts }

// Len is the number of objects.
func (s *Store) Len() int { return len(s.entries) }

// Lookup finds an object by its id.
func (s *Store) Lookup(id fencepost.ObjectID) (Index, bool) {
	i, ok := s.byID[id]
	return i, ok
}

// ID returns the object's id.
func (s *Store) ID(i Index) fencepost.ObjectID { return s.entries[i].id }

// Kind returns the object's type.
func (s *Store) Kind(i Index) object.Kind { return s.entries[i].kind }

// Size returns the length of the object's content in bytes.
func (s *Store) Size(i Index) int64 { return s.entries[i].size }

// Taken reports whether a [Taker] has the content.
func (s *Store) Taken(i Index) bool { return s.entries[i].off == isTaken }

// ReadAt fills p with the object's content from offset off. Unlike
// [io.ReaderAt] it fills p whole or fails; asking beyond the content's end
// is a bug of the caller and panics.
func (s *Store) ReadAt(i Index, p []byte, off int64) error {
	e := &s.entries[i]
	if off < 0 || int64(len(p)) > e.size-off {
		panic("pack: read beyond an object")
	}
	if e.off == isTaken {
		return s.taker.ReadTaken(i, p, off)
	}
	return s.spool.readAt(p, e.off+off)
}

// Content returns the whole content, in dst's memory where it fits.
func (s *Store) Content(i Index, dst []byte) ([]byte, error) {
	size := s.entries[i].size
	if int64(cap(dst)) < size {
		dst = make([]byte, size)
	}
	dst = dst[:size]
	return dst, s.ReadAt(i, dst, 0)
}

func malformed(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrMalformed}, args...)...)
}
