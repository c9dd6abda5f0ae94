package fencepost

import (
	"encoding/hex"
	"fmt"
)

// An ObjectID is the SHA-1 name of a Git object. The zero ObjectID names
// nothing. Which kind of object it names is said by [CommitID], [TreeID] and
// [BlobID].
//
// SHA-256 repositories are refused by name, not carried (DESIGN §6).
type ObjectID [20]byte

// ParseObjectID reads exactly 40 lower-case hexadecimal digits that are not
// all zero. Its error matches [ErrMalformed].
func ParseObjectID(s string) (ObjectID, error) {
	var id ObjectID
	if len(s) != hex.EncodedLen(len(id)) {
		return ObjectID{}, fmt.Errorf("object id of %d characters, want 40: %w", len(s), ErrMalformed)
	}
	if !isLowerHex(s) {
		return ObjectID{}, fmt.Errorf("object id is not lower-case hexadecimal: %w", ErrMalformed)
	}
	if _, err := hex.Decode(id[:], []byte(s)); err != nil {
		return ObjectID{}, fmt.Errorf("object id: %w", ErrMalformed)
	}
	if id.IsZero() {
		return ObjectID{}, fmt.Errorf("object id is all zero: %w", ErrMalformed)
	}
	return id, nil
}

// IsZero reports whether id names nothing.
func (id ObjectID) IsZero() bool { return id == ObjectID{} }

// String returns 40 lower-case hexadecimal digits.
func (id ObjectID) String() string { return hex.EncodeToString(id[:]) }

// MarshalText implements [encoding.TextMarshaler].
func (id ObjectID) MarshalText() ([]byte, error) { return []byte(id.String()), nil }

// UnmarshalText implements [encoding.TextUnmarshaler] by [ParseObjectID].
func (id *ObjectID) UnmarshalText(text []byte) error {
	parsed, err := ParseObjectID(string(text))
	if err != nil {
		return err
	}
	*id = parsed
	return nil
}

// A CommitID names a Git commit.
type CommitID struct{ ObjectID }

// ParseCommitID is [ParseObjectID] for a commit.
func ParseCommitID(s string) (CommitID, error) {
	id, err := ParseObjectID(s)
	if err != nil {
		return CommitID{}, fmt.Errorf("commit: %w", err)
	}
	return CommitID{id}, nil
}

// A TreeID names a Git tree.
type TreeID struct{ ObjectID }

// ParseTreeID is [ParseObjectID] for a tree.
func ParseTreeID(s string) (TreeID, error) {
	id, err := ParseObjectID(s)
	if err != nil {
		return TreeID{}, fmt.Errorf("tree: %w", err)
	}
	return TreeID{id}, nil
}

// A BlobID names a Git blob.
type BlobID struct{ ObjectID }

func isLowerHex(s string) bool {
	for i := range len(s) {
		if c := s[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}
