// Package object hashes and parses Git objects: their ids, commits and
// trees, each in its one legal form.
package object

import (
	"crypto/sha1"
	"errors"
	"fmt"
	"hash"
	"strconv"

	"github.com/fencepost/fencepost"
	"github.com/pjbgf/sha1cd"
)

// Sentinels that errors of this package match.
var (
	// ErrMalformed: not the one legal form of such an object.
	ErrMalformed = errors.New("malformed object")
	// ErrCollision: the content carries a SHA-1 collision attack.
	ErrCollision = errors.New("SHA-1 collision")
)

// A LimitError says which bound was passed. Limit is the name of the bound,
// Max its value in the unit of that name.
type LimitError struct {
	Limit string
	Max   int64
}

// Error names the bound.
func (e *LimitError) Error() string {
	return fmt.Sprintf("over %s of %d", e.Limit, e.Max)
}

// A Kind is the type of an object, numbered as in a pack entry's header.
type Kind uint8

// The four types of objects. gitformat-pack, "Object types".
const (
	Commit Kind = iota + 1
	Tree
	Blob
	Tag
)

// String returns the type as it is hashed: "commit", "tree", "blob", "tag".
func (k Kind) String() string {
	switch k {
	case Commit:
		return "commit"
	case Tree:
		return "tree"
	case Blob:
		return "blob"
	case Tag:
		return "tag"
	}
	return "unknown"
}

// A Hasher computes object ids, and looks for collision attacks while it does
// if [NewHasher] made it. The zero Hasher is not usable. Not safe for
// concurrent use.
type Hasher struct {
	h   hash.Hash
	cd  sha1cd.CollisionResistantHash // nil: does not look
	sum [sha1cd.Size]byte
	pre [32]byte
}

// NewHasher returns a Hasher that must be [Hasher.Reset] before its use.
func NewHasher() *Hasher { return HasherOf(sha1cd.New().(sha1cd.CollisionResistantHash)) }

// HasherOf returns a Hasher that looks for attacks with h. What real ones do
// needs blocks that nobody has for an object of Git's, so tests give one.
func HasherOf(h sha1cd.CollisionResistantHash) *Hasher { return &Hasher{h: h, cd: h} }

// Looks reports whether it looks for attacks.
func (h *Hasher) Looks() bool { return h.cd != nil }

// NewRehasher returns a Hasher that looks for no attack, at less than half the
// cost. It is for bytes that are held against an id whose content went through
// one that does: both halves of every collision that can be recognised are,
// so the content is of no such pair.
func NewRehasher() *Hasher { return &Hasher{h: sha1.New()} }

// Reset begins the id of an object of that kind and size in bytes: the
// SHA-1 of the kind, a space, the size in decimal, a NUL and the content.
func (h *Hasher) Reset(kind Kind, size int64) {
	h.h.Reset()
	pre := append(h.pre[:0], kind.String()...)
	pre = append(pre, ' ')
	pre = strconv.AppendInt(pre, size, 10)
	pre = append(pre, 0)
	h.h.Write(pre)
}

// Write adds content. It never fails.
func (h *Hasher) Write(p []byte) (int, error) { return h.h.Write(p) }

// Sum returns the id of what was written since [Hasher.Reset]. Its error
// matches [ErrCollision].
func (h *Hasher) Sum() (fencepost.ObjectID, error) {
	if h.cd == nil {
		return fencepost.ObjectID(h.h.Sum(h.sum[:0])), nil
	}
	// Where a collision is found the digest is not the SHA-1 but another
	// value, so the flag must be read: the id alone would seem a mismatch.
	digest, hit := h.cd.CollisionResistantSum(h.sum[:0])
	if hit {
		return fencepost.ObjectID{}, ErrCollision
	}
	return fencepost.ObjectID(digest), nil
}

// ID returns the id of an object in memory. Its error matches
// [ErrCollision].
func (h *Hasher) ID(kind Kind, content []byte) (fencepost.ObjectID, error) {
	h.Reset(kind, int64(len(content)))
	h.h.Write(content)
	return h.Sum()
}
