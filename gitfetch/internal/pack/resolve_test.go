package pack

import (
	"io"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/fencepost/fencepost/gitfetch/internal/object"
	"github.com/fencepost/fencepost/gitfetch/internal/packtest"
)

// TestAWaitingDeltaNeedsNoMemoryThatItsTextHolds has a text and a result that
// are each as large as memory is given out for: together they are more than
// the pool's bound.
func TestAWaitingDeltaNeedsNoMemoryThatItsTextHolds(t *testing.T) {
	t.Parallel()
	late := strings.Repeat("b", 8200)
	inserted := strings.Repeat("i", maxInsert)
	const inserts = 8190
	instructions := [][]byte{packtest.Copy(0, int64(len(late)))}
	for range inserts {
		instructions = append(instructions, packtest.Insert(inserted))
	}
	want := late + strings.Repeat(inserted, inserts)
	text := packtest.Delta(int64(len(late)), int64(len(want)), instructions...)
	for _, size := range []int{len(text), len(want)} {
		p := newPool()
		if c := p.get(size); size > resident || 2*len(c.mem) <= poolBytes {
			t.Fatalf("%d bytes are not such a size", size)
		}
	}
	var b packtest.Builder
	b.Ref(packtest.ID(object.Blob, []byte(late)), text)
	b.Object(object.Blob, []byte(late))
	l := limits()
	l.BlobBytes, l.InflatedBytes = 2<<20, 8<<20
	synctest.Test(t, func(t *testing.T) { // which says so if all wait for ever
		s, err := Read(&pieces{b.Bytes(), 1 << 16, io.EOF}, Options{Limits: l, Create: func() (File, error) { return newMemFile(), nil }})
		if err != nil {
			t.Fatal(err)
		}
		wantObject(t, s, object.Blob, want)
	})
}
