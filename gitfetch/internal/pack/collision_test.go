package pack

import (
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/fencepost/fencepost/gitfetch/internal/object"
	"github.com/fencepost/fencepost/gitfetch/internal/packtest"
)

// TestACollisionIsSeenInEveryObject however it comes: whole or as a delta, in
// memory or through the spool, in its turn or late.
func TestACollisionIsSeenInEveryObject(t *testing.T) {
	t.Parallel()
	const mark = "the two of it"
	base, large := strings.Repeat("x", 100), strings.Repeat("x", resident+1)
	n, m := int64(len(base)), int64(len(large))
	marked := func(size int64) []byte {
		return packtest.Delta(size, size+int64(len(mark)), packtest.Copy(0, size), packtest.Insert(mark))
	}
	id := func(content string) [20]byte { return packtest.ID(object.Blob, []byte(content)) }
	tests := map[string]func(b *packtest.Builder){
		"a blob":        func(b *packtest.Builder) { b.Object(object.Blob, []byte(mark)) },
		"a large blob":  func(b *packtest.Builder) { b.Object(object.Blob, []byte(large+mark)) },
		"a tree":        func(b *packtest.Builder) { b.Object(object.Tree, []byte(mark)) },
		"a commit":      func(b *packtest.Builder) { b.Object(object.Commit, []byte(mark)) },
		"a tag":         func(b *packtest.Builder) { b.Object(object.Tag, []byte(mark)) },
		"a delta":       func(b *packtest.Builder) { b.Object(object.Blob, []byte(base)); b.Ref(id(base), marked(n)) },
		"a late delta":  func(b *packtest.Builder) { b.Ref(id(base), marked(n)); b.Object(object.Blob, []byte(base)) },
		"a large delta": func(b *packtest.Builder) { b.Object(object.Blob, []byte(large)); b.Ref(id(large), marked(m)) },
		"a base, late": func(b *packtest.Builder) {
			b.Ref(id(mark), packtest.Delta(13, 1, packtest.Copy(0, 1)))
			b.Object(object.Blob, []byte(mark))
		},
		"after good one": func(b *packtest.Builder) { b.Object(object.Blob, []byte(base)); b.Object(object.Blob, []byte(mark)) },
	}
	l := limits()
	l.BlobBytes, l.InflatedBytes = 4<<20, 16<<20
	for name, build := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var b packtest.Builder
			build(&b)
			opts := Options{Limits: l, Create: func() (File, error) { return newMemFile(), nil }}
			s, err := Read(&pieces{b.Bytes(), 1 << 16, io.EOF}, opts)
			if err != nil {
				t.Fatalf("with a hash that sees nothing: %v", err)
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
			opts.Hasher = func() *object.Hasher { return object.HasherOf(packtest.NewColliding(mark)) }
			if _, err := Read(&pieces{b.Bytes(), 1 << 16, io.EOF}, opts); !errors.Is(err, object.ErrCollision) {
				t.Errorf("err = %v, want %v", err, object.ErrCollision)
			}
		})
	}
	if r := newResolver(new(Store), Options{}, new(budget)); !r.hasher.Looks() || !r.out.hasher.Looks() || object.NewRehasher().Looks() {
		t.Error("what is received is not looked at")
	}
}
