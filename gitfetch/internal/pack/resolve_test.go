package pack

import (
	"errors"
	"fmt"
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

// An announced source says when it was read to its end.
type announced struct {
	pieces
	ended chan struct{}
}

func (a *announced) Next() ([]byte, error) {
	p, err := a.pieces.Next()
	if errors.Is(err, io.EOF) {
		close(a.ended)
	}
	return p, err
}

// TestStoppingEndsWhatWaitsToBeResolved has a thousand deltas that make a MiB
// each, all of them received when it is time to stop.
func TestStoppingEndsWhatWaitsToBeResolved(t *testing.T) {
	t.Parallel()
	const deltas, size, result = 1000, 1 << 16, 1 << 20
	var b packtest.Builder
	base := strings.Repeat("x", size)
	id := b.Object(object.Blob, []byte(base))
	instructions := make([][]byte, result/size-1)
	for i := range instructions {
		instructions[i] = packtest.Copy(0, size)
	}
	received := int64(size)
	for i := range deltas {
		own := fmt.Sprintf("%04d", i)
		text := packtest.Delta(size, result-size+int64(len(own)), append(instructions, packtest.Insert(own))...)
		b.Ref(id, text)
		received += int64(len(text))
	}
	l := limits()
	l.Objects, l.BlobBytes, l.InflatedBytes = deltas+1, 2<<20, 2<<30
	why := errors.New("lease lost")
	source := &announced{pieces{b.Bytes(), 1 << 16, io.EOF}, make(chan struct{})}
	inflated := int64(0)
	_, err := Read(source, Options{
		Limits: l, Create: func() (File, error) { return newMemFile(), nil }, Inflated: &inflated,
		// The first one who asks waits until nothing more is to come.
		Stop: func() error { <-source.ended; return why },
	})
	if !errors.Is(err, why) || inflated != received {
		t.Errorf("err = %v with %d bytes inflated; want %v with the %d that were received", err, inflated, why, received)
	}
}
