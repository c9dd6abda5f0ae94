package frame_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/fencepost/fencepost/internal/durable"
	"github.com/fencepost/fencepost/internal/durable/crashfs"
	"github.com/fencepost/fencepost/internal/durable/frame"
)

var testLog = frame.Log{UUID: [16]byte{1, 2, 3}, Shard: 7}

var firstHeader = frame.Header{Log: testLog, Segment: 1, First: 1}

// batch is frames that were synced together.
type batch []string

// segment builds a segment of size bytes with the batches in it. Each frame
// promises what was synced before its batch.
func segment(h frame.Header, size int, batches ...batch) ([]byte, []frame.Position) {
	b := make([]byte, frame.SegmentHeaderSize, size)
	copy(b, h.Encode())
	pos := h.Start()
	ends := []frame.Position{pos}
	for _, frames := range batches {
		synced := pos.Offset
		for _, payload := range frames {
			b, pos = h.Seed().Append(b, pos, frame.Frame{
				Type: 1, Flags: 2, Synced: synced, Payload: []byte(payload),
			})
			ends = append(ends, pos)
		}
	}
	return append(b, make([]byte, size-len(b))...), ends
}

// scan reads all frames and judges what follows.
func scan(b []byte, h frame.Header, seal *frame.Seal) (payloads []string, at frame.Position, v frame.Verdict, err error) {
	r := frame.NewReader(bytes.NewReader(b), "000001.seg", int64(len(b)), h, 1<<20)
	if seal != nil {
		r.Seal(*seal)
	}
	for {
		f, err := r.Next()
		if err == io.EOF || errors.Is(err, frame.ErrBad) {
			v, err = r.Judge(nil)
			return payloads, r.Position(), v, err
		}
		if err != nil {
			return payloads, r.Position(), 0, err
		}
		payloads = append(payloads, string(f.Payload))
	}
}

func TestReaderReturnsWhatWasAppended(t *testing.T) {
	t.Parallel()
	b, ends := segment(firstHeader, 8192, batch{"one", ""}, batch{"a payload of 24 bytes ..."})
	r := frame.NewReader(bytes.NewReader(b), "s", int64(len(b)), firstHeader, 100)
	var got []frame.Frame
	for {
		f, err := r.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		f.Payload = bytes.Clone(f.Payload)
		got = append(got, f)
	}
	want := []frame.Frame{
		{Type: 1, Flags: 2, Synced: 4096, Payload: []byte("one"), Offset: 4096, LSN: 1},
		{Type: 1, Flags: 2, Synced: 4096, Payload: []byte{}, Offset: 4144, LSN: 2},
		{Type: 1, Flags: 2, Synced: 4184, Payload: []byte("a payload of 24 bytes ..."), Offset: 4184, LSN: 3},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("frames (-want +got):\n%s", diff)
	}
	if r.Position() != ends[3] {
		t.Errorf("position %+v, want %+v", r.Position(), ends[3])
	}
	if r.Promised() != 4184 {
		t.Errorf("Promised() = %d, want 4184", r.Promised())
	}
}

func TestReaderFollowsALogThatGrows(t *testing.T) {
	t.Parallel()
	b, ends := segment(firstHeader, 8192, batch{"one"})
	r := frame.NewReader(bytes.NewReader(b), "s", int64(len(b)), firstHeader, 100)
	if _, err := r.Next(); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := r.Next(); err != io.EOF {
			t.Fatalf("Next at the end = %v, want EOF", err)
		}
	}
	more, _ := firstHeader.Seed().Append(nil, ends[1], frame.Frame{Type: 1, Synced: 4096, Payload: []byte("two")})
	copy(b[ends[1].Offset:], more)
	f, err := r.Next()
	if err != nil || string(f.Payload) != "two" {
		t.Fatalf("Next = %q, %v; want the new frame", f.Payload, err)
	}
}

func TestVerdicts(t *testing.T) {
	t.Parallel()
	const size = 8192
	whole, ends := segment(firstHeader, size, batch{"one", "two"}, batch{"three"}, batch{"four", "five"})
	seal := func(i int) *frame.Seal {
		return &frame.Seal{Segment: 1, End: ends[i].Offset, CRC: ends[i].CRC}
	}
	flip := func(b []byte, at int64) { b[at] ^= 4 }
	zero := func(b []byte, from, to int64) { clear(b[from:to]) }
	tests := []struct {
		name   string
		damage func(b []byte)
		seal   *frame.Seal
		frames int
		want   frame.Verdict
	}{
		{"whole", func([]byte) {}, nil, 5, frame.Clean},
		{"last batch lost", func(b []byte) { zero(b, ends[3].Offset, size) }, nil, 3, frame.Clean},
		{"last frame torn", func(b []byte) { zero(b, ends[5].Offset-9, size) }, nil, 4, frame.Torn},
		{"last frame's header torn", func(b []byte) { zero(b, ends[4].Offset+8, size) }, nil, 4, frame.Torn},
		{"first of the last batch lost, second kept", func(b []byte) { zero(b, ends[3].Offset, ends[4].Offset) }, nil, 3, frame.Torn},
		{"frame of a synced batch flipped", func(b []byte) { flip(b, ends[2].Offset+frame.HeaderSize) }, nil, 2, frame.Corrupt},
		{"frame of a synced batch zeroed", func(b []byte) { zero(b, ends[1].Offset, ends[2].Offset) }, nil, 1, frame.Corrupt},
		{"first synced frame's length flipped", func(b []byte) { flip(b, frame.SegmentHeaderSize) }, nil, 0, frame.Corrupt},
		{"all of it zeroed, and there is a next segment", func(b []byte) { zero(b, frame.SegmentHeaderSize, size) }, seal(5), 0, frame.Corrupt},
		{"sealed", func([]byte) {}, seal(5), 5, frame.Clean},
		{"sealed before its last frames", func([]byte) {}, seal(3), 3, frame.Clean},
		{"sealed before a torn frame", func(b []byte) { flip(b, ends[4].Offset) }, seal(4), 4, frame.Clean},
		{"sealed, last frame damaged", func(b []byte) { flip(b, ends[5].Offset-1) }, seal(5), 4, frame.Corrupt},
		{"seal of other frames", func([]byte) {}, &frame.Seal{Segment: 1, End: ends[3].Offset, CRC: 1}, 3, frame.Corrupt},
		{"seal inside of a frame", func([]byte) {}, &frame.Seal{Segment: 1, End: ends[3].Offset - 8, CRC: ends[3].CRC}, 3, frame.Corrupt},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			b := bytes.Clone(whole)
			tt.damage(b)
			payloads, at, got, err := scan(b, firstHeader, tt.seal)
			if got != tt.want || len(payloads) != tt.frames {
				t.Fatalf("verdict %v after %d frames (%v), want %v after %d", got, len(payloads), err, tt.want, tt.frames)
			}
			damage, ok := errors.AsType[*frame.CorruptError](err)
			if ok != (tt.want == frame.Corrupt) {
				t.Fatalf("error %v with verdict %v", err, got)
			}
			if ok && (damage.File != "000001.seg" || damage.Offset != at.Offset || !errors.Is(err, frame.ErrCorrupt)) {
				t.Errorf("damage %+v, want file 000001.seg and offset %d", damage, at.Offset)
			}
		})
	}
}

// TestEverySingleBitIsNoticed flips each bit of a log whose every frame is
// promised, and expects corruption at the place; then the same in the frames
// that are not, and expects a torn tail.
func TestEverySingleBitIsNoticed(t *testing.T) {
	t.Parallel()
	b, ends := segment(firstHeader, 6000, batch{"one", "twotwotwo"}, batch{"three"})
	for bit := frame.SegmentHeaderSize * 8; bit < int(ends[3].Offset)*8; bit++ {
		b[bit/8] ^= 1 << (bit % 8)
		payloads, at, verdict, err := scan(b, firstHeader, nil)
		hit := 0
		for int64(bit/8) >= ends[hit+1].Offset {
			hit++
		}
		want := frame.Corrupt
		if hit == 2 {
			want = frame.Torn
		}
		if verdict != want || len(payloads) != hit || at != ends[hit] {
			t.Fatalf("bit %d: %v after %d frames at %d (%v), want %v after %d", bit, verdict, len(payloads), at.Offset, err, want, hit)
		}
		b[bit/8] ^= 1 << (bit % 8)
	}
}

func TestEverySingleBitOfASegmentHeaderIsNoticed(t *testing.T) {
	t.Parallel()
	h := firstHeader.Next(frame.Position{Offset: 5000, LSN: 9, CRC: 77})
	b := make([]byte, frame.SegmentHeaderSize)
	copy(b, h.Encode())
	got, err := frame.DecodeHeader(b)
	if err != nil || got != h {
		t.Fatalf("DecodeHeader = %+v, %v; want %+v", got, err, h)
	}
	for bit := range len(b) * 8 {
		b[bit/8] ^= 1 << (bit % 8)
		if got, err := frame.DecodeHeader(b); !errors.Is(err, frame.ErrBad) {
			t.Fatalf("bit %d: %+v, %v; want ErrBad", bit, got, err)
		}
		b[bit/8] ^= 1 << (bit % 8)
	}
	if _, err := frame.DecodeHeader(b[:100]); !errors.Is(err, frame.ErrBad) {
		t.Errorf("short header: %v, want ErrBad", err)
	}
}

func TestFramesOfOtherLogsAndSegmentsAreNone(t *testing.T) {
	t.Parallel()
	b, _ := segment(firstHeader, 8192, batch{"one"})
	for name, h := range map[string]frame.Header{
		"uuid":    {Log: frame.Log{UUID: [16]byte{9}, Shard: 7}, Segment: 1, First: 1},
		"shard":   {Log: frame.Log{UUID: testLog.UUID, Shard: 8}, Segment: 1, First: 1},
		"segment": {Log: testLog, Segment: 2, First: 1},
		"lsn":     {Log: testLog, Segment: 1, First: 2},
	} {
		if payloads, _, verdict, err := scan(b, h, nil); len(payloads) != 0 || verdict != frame.Torn {
			t.Errorf("other %s: %d frames, %v, %v; want none and torn", name, len(payloads), verdict, err)
		}
	}
}

func TestPayloadOverTheBoundIsNoFrame(t *testing.T) {
	t.Parallel()
	b, _ := segment(firstHeader, 8192, batch{"12345678"})
	r := frame.NewReader(bytes.NewReader(b), "s", int64(len(b)), firstHeader, 7)
	if _, err := r.Next(); !errors.Is(err, frame.ErrBad) {
		t.Errorf("Next = %v, want ErrBad", err)
	}
}

func TestSourceErrorsAreNotVerdicts(t *testing.T) {
	t.Parallel()
	eio := errors.New("input/output error")
	r := frame.NewReader(failing{eio}, "s", 8192, firstHeader, 100)
	if _, err := r.Next(); !errors.Is(err, eio) {
		t.Errorf("Next = %v, want the source's error", err)
	}
	if v, err := r.Judge(nil); v != 0 || !errors.Is(err, eio) {
		t.Errorf("Judge = %v, %v; want no verdict and the source's error", v, err)
	}
}

type failing struct{ err error }

func (f failing) ReadAt([]byte, int64) (int, error) { return 0, f.err }

func TestJudgeReportsFramesBehindTheGap(t *testing.T) {
	t.Parallel()
	b, ends := segment(firstHeader, 8192, batch{"one"}, batch{"two"}, batch{"three"})
	clear(b[ends[1].Offset:ends[2].Offset])
	r := frame.NewReader(bytes.NewReader(b), "s", int64(len(b)), firstHeader, 100)
	if _, err := r.Next(); err != nil {
		t.Fatal(err)
	}
	var found []string
	if v, err := r.Judge(func(f frame.Frame) { found = append(found, string(f.Payload)) }); v != frame.Corrupt {
		t.Fatalf("Judge = %v, %v; want corrupt", v, err)
	}
	if diff := cmp.Diff([]string{"three"}, found); diff != "" {
		t.Errorf("found (-want +got):\n%s", diff)
	}
}

func TestInstallSurvivesACrashAtEveryCall(t *testing.T) {
	t.Parallel()
	run := func(d *crashfs.Disk) error {
		p := d.Process()
		f, err := p.OpenFile("n.tmp", os.O_RDWR|os.O_CREATE, durable.FilePerm)
		if err != nil {
			return err
		}
		if err := durable.ZeroFill(f, 8192); err != nil {
			return err
		}
		return frame.Install(p, f, "n.tmp", "n.seg", firstHeader)
	}
	dry := crashfs.New(crashfs.Options{})
	if err := run(dry); err != nil {
		t.Fatal(err)
	}
	for n := 1; n <= dry.Calls(); n++ {
		for _, when := range []crashfs.When{crashfs.Before, crashfs.Inside, crashfs.After} {
			d := crashfs.New(crashfs.Options{})
			d.Plan(crashfs.CrashAt(n, when, 100))
			if err := run(d); !errors.Is(err, crashfs.ErrCrashed) {
				t.Fatalf("call %d: %v, want ErrCrashed", n, err)
			}
			for seed := range uint64(20) {
				p := d.After(crashfs.Random(seed)).Process()
				f, err := p.OpenFile("n.seg", os.O_RDONLY, 0)
				if errors.Is(err, os.ErrNotExist) {
					continue
				}
				if err != nil {
					t.Fatal(err)
				}
				if _, err := frame.ReadHeader(f, "n.seg", testLog, 1); err != nil {
					t.Errorf("call %d, seed %d: a named segment without its header: %v", n, seed, err)
				}
			}
		}
	}
}

func TestReadHeaderRefusesAnotherSegment(t *testing.T) {
	t.Parallel()
	p := crashfs.New(crashfs.Options{}).Process()
	f, err := p.OpenFile("2.seg", os.O_RDWR|os.O_CREATE, durable.FilePerm)
	if err != nil {
		t.Fatal(err)
	}
	b, _ := segment(firstHeader, 8192)
	if _, err := f.WriteAt(b, 0); err != nil {
		t.Fatal(err)
	}
	_, err = frame.ReadHeader(f, "2.seg", testLog, 2)
	if damage, ok := errors.AsType[*frame.CorruptError](err); !ok || damage.File != "2.seg" || damage.Offset != 0 {
		t.Errorf("ReadHeader = %v, want corruption of 2.seg at 0", err)
	}
	if h, err := frame.ReadHeader(f, "2.seg", testLog, 1); err != nil || h != firstHeader {
		t.Errorf("ReadHeader = %+v, %v; want %+v", h, err, firstHeader)
	}
}

// TestAnyDamageIsNoticed damages a random log at random and checks what
// recovery may say: never a frame that was not written, never fewer frames
// than were promised without calling it corruption.
func TestAnyDamageIsNoticed(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		batches := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) batch {
			return rapid.SliceOfN(rapid.StringN(0, 40, 40), 1, 4).Draw(t, "batch")
		}), 1, 8).Draw(t, "batches")
		const size = 16384
		b, ends := segment(firstHeader, size, batches...)
		var written []string
		promised := 0 // frames in all batches but the last
		for i, frames := range batches {
			written = append(written, frames...)
			if i < len(batches)-1 {
				promised += len(frames)
			}
		}
		from := rapid.IntRange(frame.SegmentHeaderSize, size-1).Draw(t, "from")
		damage := rapid.SliceOfN(rapid.Byte(), 1, 600).Draw(t, "damage")
		copy(b[from:], damage)
		payloads, at, verdict, err := scan(b, firstHeader, nil)
		for i, p := range payloads {
			if i >= len(written) || p != written[i] {
				t.Fatalf("frame %d is %q, which was not written", i, p)
			}
		}
		if at != ends[len(payloads)] {
			t.Fatalf("position %+v after %d frames, want %+v", at, len(payloads), ends[len(payloads)])
		}
		lastTouched := int64(from) < ends[len(ends)-1].Offset && int64(from+len(damage)) > ends[promised].Offset
		switch {
		case len(payloads) < promised && verdict != frame.Corrupt && !lastTouched:
			t.Fatalf("%v (%v) with %d of %d promised frames", verdict, err, len(payloads), promised)
		case len(payloads) >= promised && verdict == frame.Corrupt:
			t.Fatalf("corrupt with %d frames, %d promised: %v", len(payloads), promised, err)
		}
	})
}

func FuzzReader(f *testing.F) {
	whole, ends := segment(firstHeader, 5000, batch{"one", "two"}, batch{"three"})
	f.Add(whole[frame.SegmentHeaderSize:], int64(0))
	f.Add(whole[frame.SegmentHeaderSize:ends[2].Offset-3], int64(0))
	f.Add(whole[frame.SegmentHeaderSize:], ends[2].Offset)
	f.Add([]byte{}, int64(5000))
	f.Add(bytes.Repeat([]byte{0xff}, 200), int64(0))
	f.Fuzz(func(t *testing.T, data []byte, sealAt int64) {
		b := append(make([]byte, frame.SegmentHeaderSize), data...)
		r := frame.NewReader(bytes.NewReader(b), "s", int64(len(b)), firstHeader, 1<<16)
		if sealAt > 0 {
			r.Seal(frame.Seal{Segment: 1, End: sealAt})
		}
		again, pos := make([]byte, frame.SegmentHeaderSize), firstHeader.Start()
		for {
			fr, err := r.Next()
			if err == io.EOF || errors.Is(err, frame.ErrBad) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			again, pos = firstHeader.Seed().Append(again, pos, fr)
			if pos != r.Position() {
				t.Fatalf("position %+v, encoded again %+v", r.Position(), pos)
			}
		}
		if !bytes.Equal(again[frame.SegmentHeaderSize:], b[frame.SegmentHeaderSize:len(again)]) {
			t.Fatal("frames encode to other bytes than they were read from")
		}
		v, err := r.Judge(nil)
		if (v == frame.Corrupt) != errors.Is(err, frame.ErrCorrupt) || (v != frame.Corrupt && err != nil) {
			t.Fatalf("Judge = %v, %v", v, err)
		}
		if v == frame.Clean && sealAt == 0 && len(bytes.TrimRight(b[pos.Offset:], "\x00")) > 0 {
			t.Fatalf("clean at %d with bytes behind it", pos.Offset)
		}
	})
}

func FuzzDecodeHeader(f *testing.F) {
	f.Add(firstHeader.Encode())
	f.Add(firstHeader.Next(frame.Position{Offset: 5000, LSN: 9, CRC: 77}).Encode())
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, data []byte) {
		b := make([]byte, frame.SegmentHeaderSize)
		copy(b, data)
		h, err := frame.DecodeHeader(b)
		if err != nil {
			if !errors.Is(err, frame.ErrBad) || h != (frame.Header{}) {
				t.Fatalf("DecodeHeader = %+v, %v", h, err)
			}
			return
		}
		if again := h.Encode(); !bytes.Equal(again, b[:len(again)]) {
			t.Fatal("header encodes to other bytes than it was read from")
		}
	})
}

func BenchmarkAppend(b *testing.B) {
	for _, n := range []int{200, 8 << 10} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			payload := bytes.Repeat([]byte("x"), n)
			seed, pos := firstHeader.Seed(), firstHeader.Start()
			b.SetBytes(int64(n))
			var h [frame.HeaderSize]byte
			for b.Loop() {
				pos = seed.Header(&h, pos, frame.Frame{Type: 1, Synced: 4096}, payload)
			}
		})
	}
}
