package pack

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/gitfetch/internal/object"
	"github.com/fencepost/fencepost/gitfetch/internal/packtest"
	"pgregory.net/rapid"
)

// A memFile is a spool in memory.
type memFile struct {
	data   []byte
	closed bool
}

func newMemFile() *memFile { return &memFile{} }

func (m *memFile) ReadAt(p []byte, off int64) (int, error) {
	n := copy(p, m.data[min(off, int64(len(m.data))):])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

func (m *memFile) WriteAt(p []byte, off int64) (int, error) {
	if off != int64(len(m.data)) {
		return 0, fmt.Errorf("write at %d of %d", off, len(m.data))
	}
	m.data = append(m.data, p...)
	return len(p), nil
}

func (m *memFile) Close() error {
	m.closed = true
	return nil
}

// A pieces source gives out n bytes at a time, then err.
type pieces struct {
	rest []byte
	n    int
	err  error
}

func (p *pieces) Next() ([]byte, error) {
	if len(p.rest) == 0 {
		return nil, p.err
	}
	n := min(p.n, len(p.rest))
	next := p.rest[:n]
	p.rest = p.rest[n:]
	return next, nil
}

func limits() Limits {
	return Limits{Objects: 1000, InflatedBytes: 1 << 20, DeltaDepth: 10, CommitBytes: 1 << 16, TreeBytes: 1 << 16, BlobBytes: 1 << 18}
}

func readPack(p []byte, size int, l Limits) (*Store, error) {
	return Read(&pieces{p, size, io.EOF}, Options{Limits: l, Create: func() (File, error) { return newMemFile(), nil }})
}

func wantObject(t *testing.T, s *Store, kind object.Kind, content string) {
	t.Helper()
	i, ok := s.Lookup(packtest.ID(kind, []byte(content)))
	if !ok {
		t.Errorf("no %s %.40q", kind, content)
		return
	}
	got, err := s.Content(i, nil)
	if err != nil || string(got) != content || s.Kind(i) != kind || s.Size(i) != int64(len(content)) || s.ID(i) != packtest.ID(kind, []byte(content)) {
		t.Errorf("%s %.40q: got %s %.40q, %v", kind, content, s.Kind(i), got, err)
	}
}

func TestReadTakesEveryKindOfEntry(t *testing.T) {
	t.Parallel()
	var b packtest.Builder
	blob := "the quick brown fox"
	n := int64(len(blob))
	late := "late base, named before it comes"
	b.Ref(packtest.ID(object.Blob, []byte(late)), packtest.Delta(int64(len(late)), 4, packtest.Copy(0, 4)))
	onLate := b.Offset()
	b.Ref(packtest.ID(object.Blob, []byte("late")), packtest.Delta(4, 5, packtest.Copy(0, 4), packtest.Insert("r")))
	b.Ofs(onLate, packtest.Delta(5, 6, packtest.Copy(0, 5), packtest.Insert("!")))
	at := b.Offset()
	b.Object(object.Blob, []byte(blob))
	b.Object(object.Blob, nil)
	b.Object(object.Commit, []byte("a commit"))
	b.Object(object.Tag, []byte("a tag"))
	b.Object(object.Tree, []byte("a tree"))
	b.Ofs(at, packtest.Delta(n, 9, packtest.Copy(4, 5), packtest.Insert(" ant")))
	b.Ref(packtest.ID(object.Tree, []byte("a tree")), packtest.Delta(6, 4, packtest.Copy(2, 4)))
	b.Object(object.Blob, []byte(late))
	p := b.Bytes()
	for _, size := range []int{1, 7, len(p)} {
		s, err := readPack(p, size, limits())
		if err != nil {
			t.Fatal(err)
		}
		for _, content := range []string{blob, "", "quick ant", late, "late", "later", "later!"} {
			wantObject(t, s, object.Blob, content)
		}
		wantObject(t, s, object.Commit, "a commit")
		wantObject(t, s, object.Tag, "a tag")
		wantObject(t, s, object.Tree, "a tree")
		wantObject(t, s, object.Tree, "tree")
		if c := s.Counts(); s.Len() != 11 || c.Objects != 11 || c.Deltas != 5 || c.PackBytes != int64(len(p)) {
			t.Errorf("%d objects, counts %+v", s.Len(), c)
		}
	}
}

func TestReadRefuses(t *testing.T) {
	t.Parallel()
	blob := []byte("the quick brown fox")
	n := int64(len(blob))
	id := packtest.ID(object.Blob, blob)
	one := func(build func(b *packtest.Builder)) []byte {
		var b packtest.Builder
		build(&b)
		return b.Bytes()
	}
	whole := one(func(b *packtest.Builder) { b.Object(object.Blob, blob) })
	raw := func(parts ...[]byte) []byte { return one(func(b *packtest.Builder) { b.Raw(parts...) }) }
	zip := packtest.Deflate
	flip := func(p []byte, at int) []byte {
		q := bytes.Clone(p)
		q[at] ^= 1
		return q
	}
	preset := zip(blob)
	preset[1] = preset[1]&^0x1f | 0x20
	preset[1] += byte(31 - (uint(preset[0])<<8|uint(preset[1]))%31)
	tests := []struct {
		name string
		pack []byte
		want error
	}{
		{"nothing", nil, io.ErrUnexpectedEOF},
		{"another signature", packtest.Seal([]byte("PACX\x00\x00\x00\x02\x00\x00\x00\x00")), ErrMalformed},
		{"version 3", func() []byte { var b packtest.Builder; return b.BytesWith(3, 0) }(), ErrMalformed},
		{"version 0", func() []byte { var b packtest.Builder; return b.BytesWith(0, 0) }(), ErrMalformed},
		{"fewer entries than counted", func() []byte { var b packtest.Builder; b.Object(object.Blob, blob); return b.BytesWith(2, 2) }(), ErrMalformed},
		{"more entries than counted", func() []byte {
			var b packtest.Builder
			b.Object(object.Blob, blob)
			b.Object(object.Blob, nil)
			return b.BytesWith(2, 1)
		}(), ErrChecksum},
		{"a wrong trailer", flip(whole, len(whole)-1), ErrChecksum},
		{"a trailer cut short", whole[:len(whole)-1], io.ErrUnexpectedEOF},
		{"a byte after the trailer", append(bytes.Clone(whole), 0), ErrMalformed},
		{"cut inside an entry", whole[:20], io.ErrUnexpectedEOF},
		{"type 0", raw(packtest.Header(0, n), zip(blob)), ErrMalformed},
		{"type 5", raw(packtest.Header(5, n), zip(blob)), ErrMalformed},
		{"a size without an end", raw([]byte{0xbf, 0x81, 0x81, 0x81, 0x81, 0x81, 0x81, 0x81, 0x81, 0x81, 0x81}), ErrMalformed},
		{"a size with a zero group at its end", raw([]byte{0xb0 | 3, 0x81, 0}, zip(blob)), ErrMalformed},
		{"a stream that is longer than the size", raw(packtest.Header(3, n-1), zip(blob)), ErrMalformed},
		{"a stream that is shorter than the size", raw(packtest.Header(3, n+1), zip(blob)), ErrMalformed},
		{"a stream for a size of zero", raw(packtest.Header(3, 0), zip([]byte("x"))), ErrMalformed},
		{"no zlib", raw(packtest.Header(3, n), []byte("not zlib at all, not at all")), ErrMalformed},
		{"a preset dictionary", raw(packtest.Header(3, n), preset), ErrMalformed},
		{"a wrong Adler-32", raw(packtest.Header(3, n), flip(zip(blob), len(zip(blob))-1)), ErrMalformed},
		{"the same object twice", one(func(b *packtest.Builder) { b.Object(object.Blob, blob); b.Object(object.Blob, blob) }), ErrDuplicate},
		{"the same object whole and as a delta", one(func(b *packtest.Builder) {
			at := b.Offset()
			b.Object(object.Blob, blob)
			b.Ofs(at, packtest.Delta(n, n, packtest.Copy(0, n)))
		}), ErrDuplicate},
		{"an offset delta on itself", one(func(b *packtest.Builder) { b.Entry(packtest.OfsDelta, 4, packtest.Distance(0), []byte("xxxx")) }), ErrMalformed},
		{"an offset delta before the first entry", one(func(b *packtest.Builder) {
			b.Object(object.Blob, blob)
			b.Ofs(0, packtest.Delta(n, 1, packtest.Copy(0, 1)))
		}), ErrMalformed},
		{"an offset delta into the middle of an entry", one(func(b *packtest.Builder) {
			at := b.Offset()
			b.Object(object.Blob, blob)
			b.Ofs(at+1, packtest.Delta(n, 1, packtest.Copy(0, 1)))
		}), ErrMalformed},
		{"an offset that overflows", raw(packtest.Header(6, 4), bytes.Repeat([]byte{0xff}, 12)), ErrMalformed},
		{"a delta without its base", one(func(b *packtest.Builder) {
			b.Object(object.Blob, blob)
			b.Ref(fencepost.ObjectID{1}, packtest.Delta(n, 1, packtest.Copy(0, 1)))
		}), ErrUnresolved},
		{"an offset delta on a delta without its base", one(func(b *packtest.Builder) {
			at := b.Offset()
			b.Ref(fencepost.ObjectID{1}, packtest.Delta(n, 1, packtest.Copy(0, 1)))
			b.Ofs(at, packtest.Delta(1, 1, packtest.Copy(0, 1)))
		}), ErrUnresolved},
		{"a delta on its own result", one(func(b *packtest.Builder) { b.Ref(id, packtest.Delta(n, n, packtest.Copy(0, n))) }), ErrUnresolved},
		{"a late delta that is not legal", one(func(b *packtest.Builder) {
			b.Ref(id, packtest.Delta(n+1, 1, packtest.Copy(0, 1)))
			b.Object(object.Blob, blob)
		}), ErrMalformed},
		{"a delta with bytes after its end", one(func(b *packtest.Builder) {
			at := b.Offset()
			b.Object(object.Blob, blob)
			d := packtest.Delta(n, 1, packtest.Copy(0, 1))
			b.Entry(packtest.OfsDelta, int64(len(d)), packtest.Distance(b.Offset()-at), append(d, 0))
		}), ErrMalformed},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			for _, size := range []int{1, 1 << 20} {
				if _, err := readPack(tt.pack, size, limits()); !errors.Is(err, tt.want) {
					t.Errorf("in pieces of %d: err = %v, want %v", size, err, tt.want)
				}
			}
		})
	}
}

func TestReadStopsAtEachLimit(t *testing.T) {
	t.Parallel()
	big := []byte(strings.Repeat("x", 5000))
	tests := []struct {
		limit string
		set   func(l *Limits)
		build func(b *packtest.Builder)
		whole bool // fine within the usual limits
	}{
		{LimitObjects, func(l *Limits) { l.Objects = 1 }, func(b *packtest.Builder) { b.Object(object.Blob, nil); b.Object(object.Blob, big) }, true},
		{LimitInflated, func(l *Limits) { l.InflatedBytes = 5001 }, func(b *packtest.Builder) { b.Object(object.Blob, big); b.Object(object.Blob, big[:2]) }, true},
		{LimitInflated, func(l *Limits) { l.InflatedBytes = 9000 }, func(b *packtest.Builder) {
			at := b.Offset()
			b.Object(object.Blob, big)
			b.Ofs(at, packtest.Delta(5000, 4000, packtest.Copy(0, 4000))) // with its text over the limit
		}, true},
		{LimitBlob, func(l *Limits) { l.BlobBytes = 4999 }, func(b *packtest.Builder) { b.Object(object.Blob, big) }, true},
		{LimitTree, func(l *Limits) { l.TreeBytes = 4999 }, func(b *packtest.Builder) { b.Object(object.Tree, big) }, true},
		{LimitCommit, func(l *Limits) { l.CommitBytes = 4999 }, func(b *packtest.Builder) { b.Object(object.Commit, big) }, true},
		{LimitCommit, func(l *Limits) { l.CommitBytes = 4999 }, func(b *packtest.Builder) { b.Object(object.Tag, big) }, true},
		{LimitBlob, func(l *Limits) { l.BlobBytes = 4999 }, func(b *packtest.Builder) {
			at := b.Offset()
			b.Object(object.Blob, big[:4000])
			b.Ofs(at, packtest.Delta(4000, 5000, packtest.Copy(0, 4000), packtest.Copy(0, 1000)))
		}, true},
		{LimitTree, func(l *Limits) { l.TreeBytes = 4999 }, func(b *packtest.Builder) {
			b.Ref(packtest.ID(object.Tree, big[:4000]), packtest.Delta(4000, 5000, packtest.Copy(0, 4000), packtest.Copy(0, 1000)))
			b.Object(object.Tree, big[:4000])
		}, true},
		{LimitBlob, func(l *Limits) { l.BlobBytes, l.TreeBytes, l.CommitBytes = 40, 40, 40 }, func(b *packtest.Builder) { b.Ref(fencepost.ObjectID{1}, big[:41]) }, false},
		{LimitDeltaDepth, func(l *Limits) { l.DeltaDepth = 2 }, func(b *packtest.Builder) {
			at := b.Offset()
			b.Object(object.Blob, big[:10])
			for n := int64(10); n < 13; n++ {
				next := b.Offset()
				b.Ofs(at, packtest.Delta(n, n+1, packtest.Copy(0, n), packtest.Insert("x")))
				at = next
			}
		}, true},
		{LimitDeltaDepth, func(l *Limits) { l.DeltaDepth = 2 }, func(b *packtest.Builder) {
			for n := int64(12); n >= 10; n-- {
				b.Ref(packtest.ID(object.Blob, big[:n]), packtest.Delta(n, n+1, packtest.Copy(0, n), packtest.Insert("x")))
			}
			b.Object(object.Blob, big[:10])
		}, true},
		{LimitBlob, func(*Limits) {}, func(b *packtest.Builder) { b.Raw(packtest.Header(3, 1<<62), packtest.Deflate(nil)) }, false},
	}
	for i, tt := range tests {
		t.Run(fmt.Sprintf("%d %s", i, tt.limit), func(t *testing.T) {
			t.Parallel()
			var b packtest.Builder
			tt.build(&b)
			l := limits()
			tt.set(&l)
			_, err := readPack(b.Bytes(), 100, l)
			if limit, ok := errors.AsType[*object.LimitError](err); !ok || limit.Limit != tt.limit {
				t.Errorf("err = %v, want the limit %s", err, tt.limit)
			}
			if _, err := readPack(b.Bytes(), 100, limits()); (err == nil) != tt.whole {
				t.Errorf("within the usual limits: %v", err)
			}
		})
	}
}

// TestAnUntrustedCountTakesNoMemory would end the process if room were taken
// for as many entries as a pack announces.
func TestAnUntrustedCountTakesNoMemory(t *testing.T) {
	t.Parallel()
	l := limits()
	l.Objects = 1 << 40
	var b packtest.Builder
	b.Object(object.Blob, nil)
	if _, err := readPack(b.BytesWith(2, 0xffffffff), 1<<20, l); !errors.Is(err, ErrMalformed) {
		t.Errorf("err = %v, want %v", err, ErrMalformed)
	}
}

func TestErrorsOfTheSourceAndTheSpoolComeBack(t *testing.T) {
	t.Parallel()
	broken, full := errors.New("connection reset"), errors.New("disk full")
	var b packtest.Builder
	b.Object(object.Blob, []byte(strings.Repeat("x", 3000)))
	p := b.Bytes()
	for cut := range len(p) {
		_, err := Read(&pieces{p[:cut], 3, broken}, Options{Limits: limits(), Create: func() (File, error) { return newMemFile(), nil }})
		if !errors.Is(err, broken) || errors.Is(err, ErrMalformed) {
			t.Errorf("after %d bytes: err = %v, want only %v", cut, err, broken)
		}
	}
	l := limits()
	l.BlobBytes, l.InflatedBytes = 1<<30, 1<<30
	b.Object(object.Blob, bytes.Repeat([]byte("y"), 2*spoolWhole))
	_, err := Read(&pieces{b.Bytes(), 1000, io.EOF}, Options{Limits: l, Create: func() (File, error) { return nil, full }})
	if !errors.Is(err, full) {
		t.Errorf("err = %v, want %v", err, full)
	}
}

func TestASmallPackNeedsNoFile(t *testing.T) {
	t.Parallel()
	l := limits()
	l.BlobBytes, l.InflatedBytes = 1<<30, 1<<30
	for _, tt := range []struct {
		blobs int // of 64 KiB each
		files int
	}{{spoolWhole>>16 - 1, 0}, {spoolWhole>>16 + 1, 1}} {
		var b packtest.Builder
		for i := range tt.blobs {
			b.Object(object.Blob, bytes.Repeat([]byte{byte(i)}, 64<<10))
		}
		files := 0
		s, err := Read(&pieces{b.Bytes(), 1000, io.EOF}, Options{Limits: l, Create: func() (File, error) {
			files++
			return newMemFile(), nil
		}})
		if err != nil {
			t.Fatal(err)
		}
		if files != tt.files {
			t.Errorf("%d files for %d blobs, want %d", files, tt.blobs, tt.files)
		}
		for i := range tt.blobs {
			got, err := s.Content(Index(i), nil)
			if err != nil || !bytes.Equal(got, bytes.Repeat([]byte{byte(i)}, 64<<10)) {
				t.Errorf("blob %d of %d came back as %d other bytes, %v", i, tt.blobs, len(got), err)
			}
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestTheSpoolFileIsClosed(t *testing.T) {
	t.Parallel()
	l := limits()
	l.BlobBytes, l.InflatedBytes = 1<<30, 1<<30
	for _, damage := range []int{0, 1} {
		var b packtest.Builder
		b.Object(object.Blob, bytes.Repeat([]byte("y"), 3*spoolWhole))
		p := b.Bytes()
		p[len(p)-1] ^= byte(damage)
		file := newMemFile()
		s, err := Read(&pieces{p, 1000, io.EOF}, Options{Limits: l, Create: func() (File, error) { return file, nil }})
		if (err != nil) != (damage != 0) {
			t.Fatal(err)
		}
		if s != nil {
			err = s.Close()
		}
		if damage == 0 && err != nil || !file.closed || len(file.data) == 0 {
			t.Errorf("damage %d: closed %v, %d bytes, %v", damage, file.closed, len(file.data), err)
		}
	}
}

// TestAnyPackComesOutAsItWentIn builds packs of whole objects and deltas on
// earlier and later objects at random.
func TestAnyPackComesOutAsItWentIn(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		l := limits()
		l.DeltaDepth = 1000
		var contents []string
		seen := make(map[string]bool)
		var b packtest.Builder
		var at []int64
		var later [][]byte // whole objects that deltas before them are on
		for range rapid.IntRange(1, 20).Draw(t, "entries") {
			content := rapid.StringN(0, 200, 2000).Draw(t, "content")
			if seen[content] {
				continue
			}
			offset := b.Offset()
			how := rapid.IntRange(0, 3).Draw(t, "how")
			switch {
			case how == 0 || len(contents) == 0 || content == "": // no legal delta makes nothing
				b.Object(object.Blob, []byte(content))
			case how == 3:
				base := "base of " + content
				later = append(later, []byte(base))
				b.Ref(packtest.ID(object.Blob, []byte(base)), makeDelta([]byte(base), []byte(content)))
			default:
				on := rapid.IntRange(0, len(contents)-1).Draw(t, "on")
				delta := makeDelta([]byte(contents[on]), []byte(content))
				if how == 1 {
					b.Ofs(at[on], delta)
				} else {
					b.Ref(packtest.ID(object.Blob, []byte(contents[on])), delta)
				}
			}
			seen[content] = true
			contents, at = append(contents, content), append(at, offset)
		}
		for _, base := range later {
			if !seen[string(base)] {
				seen[string(base)] = true
				b.Object(object.Blob, base)
				contents = append(contents, string(base))
			}
		}
		s, err := readPack(b.Bytes(), rapid.IntRange(1, 500).Draw(t, "piece"), l)
		if err != nil {
			t.Fatal(err)
		}
		for _, content := range contents {
			i, ok := s.Lookup(packtest.ID(object.Blob, []byte(content)))
			if !ok {
				t.Fatalf("%q is missing", content)
			}
			if got, err := s.Content(i, nil); err != nil || string(got) != content {
				t.Fatalf("%q came out as %q, %v", content, got, err)
			}
		}
	})
}

// makeDelta makes a delta of the common start and end and what is between.
func makeDelta(base, result []byte) []byte {
	start := 0
	for start < min(len(base), len(result)) && base[start] == result[start] {
		start++
	}
	end := 0
	for end < min(len(base), len(result))-start && base[len(base)-1-end] == result[len(result)-1-end] {
		end++
	}
	var ops [][]byte
	if start > 0 {
		ops = append(ops, packtest.Copy(0, int64(start)))
	}
	for between := result[start : len(result)-end]; len(between) > 0; {
		n := min(len(between), maxInsert)
		ops = append(ops, packtest.Insert(string(between[:n])))
		between = between[n:]
	}
	if end > 0 {
		ops = append(ops, packtest.Copy(int64(len(base)-end), int64(end)))
	}
	return packtest.Delta(int64(len(base)), int64(len(result)), ops...)
}

// FuzzRead: every pack is refused with a known error, or all of its objects
// have the content that their ids name, within the limits.
func FuzzRead(f *testing.F) {
	blob := []byte("the quick brown fox")
	n := int64(len(blob))
	seeds := []func(b *packtest.Builder){
		func(*packtest.Builder) {},
		func(b *packtest.Builder) { b.Object(object.Blob, blob) },
		func(b *packtest.Builder) {
			at := b.Offset()
			b.Object(object.Blob, blob)
			b.Ofs(at, packtest.Delta(n, 9, packtest.Copy(4, 5), packtest.Insert(" ant")))
			b.Ref(packtest.ID(object.Blob, []byte("quick ant")), packtest.Delta(9, 5, packtest.Copy(0, 5)))
		},
		func(b *packtest.Builder) {
			b.Ref(packtest.ID(object.Blob, blob), packtest.Delta(n, 5, packtest.Copy(4, 5)))
			b.Object(object.Blob, blob)
		},
		func(b *packtest.Builder) { b.Raw(packtest.Header(3, 1<<40), packtest.Deflate(blob)) },
		func(b *packtest.Builder) {
			tree := b.Object(object.Tree, nil)
			b.Object(object.Commit, packtest.Commit(tree))
		},
	}
	for _, build := range seeds {
		var b packtest.Builder
		build(&b)
		p := b.Bytes()
		f.Add(p[:len(p)-20], uint8(5))
	}
	f.Fuzz(func(t *testing.T, p []byte, size uint8) {
		// The trailer is put right, or nothing would get past it.
		p = packtest.Seal(bytes.Clone(p))
		if len(p) > 32 && binary.BigEndian.Uint32(p[4:]) == 2 {
			binary.BigEndian.PutUint32(p[8:], binary.BigEndian.Uint32(p[8:])%16)
			p = packtest.Seal(p[:len(p)-20])
		}
		s, err := readPack(p, int(size)+1, limits())
		if err != nil {
			var limit *object.LimitError
			for _, known := range []error{ErrMalformed, ErrChecksum, ErrUnresolved, ErrDuplicate} {
				if errors.Is(err, known) {
					return
				}
			}
			if !errors.As(err, &limit) {
				t.Fatalf("error of no known kind: %v", err)
			}
			return
		}
		var sum int64
		for i := range Index(s.Len()) {
			content, err := s.Content(i, nil)
			if err != nil {
				t.Fatal(err)
			}
			sum += int64(len(content))
			if got := packtest.ID(s.Kind(i), content); got != s.ID(i) {
				t.Fatalf("object %d is %s, and says %s", i, got, s.ID(i))
			}
			if at, ok := s.Lookup(s.ID(i)); !ok || at != i {
				t.Fatalf("object %d is found at %d, %v", i, at, ok)
			}
		}
		if sum > limits().InflatedBytes {
			t.Fatalf("%d bytes", sum)
		}
	})
}
