package object

import (
	"crypto/sha1"
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// TestTheKnownCollisionIsSeen takes the first 320 bytes of the two documents
// of the first published SHA-1 collision (shattered.io, 2017): different
// content, one SHA-1. In a Git object the same attack would need blocks made
// for that object's header, so here they are hashed without one.
func TestTheKnownCollisionIsSeen(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/shattered-*.head")
	if err != nil || len(files) != 2 {
		t.Fatalf("vectors: %v, %v", files, err)
	}
	var sums [2][sha1.Size]byte
	for i, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		sums[i] = sha1.Sum(content)
		h := NewHasher()
		h.h.Write(content)
		if id, err := h.Sum(); !errors.Is(err, ErrCollision) {
			t.Errorf("%s: %s, %v; want %v", file, id, err, ErrCollision)
		}
		// The flag does not stick to the hasher.
		if _, err := h.ID(Blob, []byte("hello\n")); err != nil {
			t.Errorf("the next object: %v", err)
		}
	}
	if sums[0] != sums[1] {
		t.Errorf("the vectors do not collide: %x, %x", sums[0], sums[1])
	}
}
