package object

import (
	"bytes"

	"github.com/fencepost/fencepost"
)

// A Mode is the kind of a tree entry.
type Mode uint8

// The five modes that a tree entry may have. Git's own reader takes others
// and maps them to one of these; here they are refused, so that no two
// readers can differ.
const (
	File    Mode = iota + 1 // 100644
	Program                 // 100755
	Link                    // 120000
	Dir                     // 40000
	Gitlink                 // 160000
)

var modeText = [...]string{File: "100644", Program: "100755", Link: "120000", Dir: "40000", Gitlink: "160000"}

// String returns the mode as it stands in a tree.
func (m Mode) String() string {
	if m < File || m > Gitlink {
		return "unknown"
	}
	return modeText[m]
}

// Kind returns the type of object that an entry of that mode names. A
// gitlink names a commit of another repository.
func (m Mode) Kind() Kind {
	switch m {
	case Dir:
		return Tree
	case Gitlink:
		return Commit
	}
	return Blob
}

func parseMode(text []byte) (Mode, bool) {
	for m := File; m <= Gitlink; m++ {
		if string(text) == modeText[m] {
			return m, true
		}
	}
	return 0, false
}

// An Entry is one line of a tree. Name shares the tree's bytes.
type Entry struct {
	Mode Mode
	Name []byte
	ID   fencepost.ObjectID
}

// A TreeReader reads the entries of one tree and holds them to Git's
// canonical order. It does not judge names beyond their framing, and sees
// only neighbouring duplicates: a file and a directory of one name can stand
// apart. Not safe for concurrent use.
type TreeReader struct {
	rest []byte
	prev Entry
}

// NewTreeReader reads the content of one tree.
func NewTreeReader(content []byte) *TreeReader { return &TreeReader{rest: content} }

// Next returns the next entry, or ok = false after the last one. Its error
// matches [ErrMalformed].
func (r *TreeReader) Next() (e Entry, ok bool, err error) {
	if len(r.rest) == 0 {
		return Entry{}, false, nil
	}
	text, rest, found := bytes.Cut(r.rest, []byte(" "))
	if !found {
		return Entry{}, false, malformed("tree entry without a mode")
	}
	mode, known := parseMode(text)
	if !known {
		return Entry{}, false, malformed("tree entry with an illegal mode")
	}
	name, rest, found := bytes.Cut(rest, []byte{0})
	if !found || len(name) == 0 {
		return Entry{}, false, malformed("tree entry without a name")
	}
	e = Entry{Mode: mode, Name: name}
	if len(rest) < len(e.ID) {
		return Entry{}, false, malformed("tree entry without an id")
	}
	copy(e.ID[:], rest)
	if e.ID.IsZero() {
		return Entry{}, false, malformed("tree entry with the null id")
	}
	if r.prev.Mode != 0 && compareEntries(r.prev, e) >= 0 {
		return Entry{}, false, malformed("tree not in canonical order")
	}
	r.rest, r.prev = rest[len(e.ID):], e
	return e, true, nil
}

// compareEntries is Git's order of trees: by bytes, a directory as though
// its name ended in a slash.
func compareEntries(a, b Entry) int {
	n := min(len(a.Name), len(b.Name))
	if c := bytes.Compare(a.Name[:n], b.Name[:n]); c != 0 {
		return c
	}
	return nextByte(a, n) - nextByte(b, n)
}

func nextByte(e Entry, n int) int {
	switch {
	case n < len(e.Name):
		return int(e.Name[n])
	case e.Mode == Dir:
		return '/'
	}
	return 0
}

// AppendEntry appends the tree line of one entry.
func AppendEntry(dst []byte, mode Mode, name string, id fencepost.ObjectID) []byte {
	dst = append(dst, mode.String()...)
	dst = append(dst, ' ')
	dst = append(dst, name...)
	dst = append(dst, 0)
	return append(dst, id[:]...)
}
