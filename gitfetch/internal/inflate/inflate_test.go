package inflate

import (
	"bytes"
	"compress/flate"
	"compress/zlib"
	"errors"
	"fmt"
	"hash/adler32"
	"io"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
)

// A pieces is a Source that gives out bytes in pieces of a size.
type pieces struct {
	rest, piece []byte
	size        int
}

func (p *pieces) Rest() []byte { return p.piece }
func (p *pieces) Take(n int)   { p.piece = p.piece[n:] }
func (p *pieces) Fill() error {
	if len(p.rest) == 0 {
		return io.EOF
	}
	n := min(p.size, len(p.rest))
	// A piece of its own, so that reading beyond it would be seen.
	p.piece, p.rest = bytes.Clone(p.rest[:n]), p.rest[n:]
	return nil
}

func (p *pieces) left() int { return len(p.rest) + len(p.piece) }

// both decompresses in both ways, which must agree.
func both(d *Decoder, stream []byte, size, piece int) ([]byte, int, error) {
	src := &pieces{rest: stream, size: piece}
	whole, err := d.Whole(src, make([]byte, size+Slack), size)
	again := &pieces{rest: stream, size: piece}
	var streamed []byte
	streamErr := d.Stream(again, int64(size), func(p []byte) error {
		streamed = append(streamed, p...)
		return nil
	})
	switch {
	case (err == nil) != (streamErr == nil):
		return nil, 0, fmt.Errorf("whole: %w, streamed: %w", err, streamErr)
	case err == nil && !bytes.Equal(whole, streamed):
		return nil, 0, errors.New("whole and streamed differ")
	case err == nil && src.left() != again.left():
		return nil, 0, errors.New("whole and streamed end elsewhere")
	}
	return whole, src.left(), err
}

func deflate(t testing.TB, content []byte, level int) []byte {
	t.Helper()
	var b bytes.Buffer
	w, err := zlib.NewWriterLevel(&b, level)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(content); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func contents() map[string][]byte {
	rnd := rand.New(rand.NewPCG(1, 1))
	random := make([]byte, 70_000)
	few := make([]byte, 60_000)
	skewed := make([]byte, 100_000)
	for i := range random {
		random[i] = byte(rnd.Uint32())
	}
	for i := range few {
		few[i] = "abcd"[rnd.IntN(4)]
	}
	for i := range skewed {
		// Frequencies that fall by half make the longest codes.
		for skewed[i] < 200 && rnd.IntN(2) == 0 {
			skewed[i]++
		}
	}
	var text strings.Builder
	for text.Len() < 200_000 {
		fmt.Fprintf(&text, "line %d of something like source, word %x\n", rnd.IntN(50), rnd.Uint32())
	}
	return map[string][]byte{
		"nothing": {}, "byte": {7}, "random": random, "few letters": few, "skewed": skewed, "text": []byte(text.String()),
		"zeros": make([]byte, 300_000), "pairs": bytes.Repeat([]byte("ab"), 100_000), "sevens": bytes.Repeat([]byte("abcdefg"), 30_000),
		"nines": bytes.Repeat([]byte("abcdefghi"), 30_000), "far": append(bytes.Clone(random[:32768]), random[:32768]...),
	}
}

func TestAgreesWithZlib(t *testing.T) {
	t.Parallel()
	for name, content := range contents() {
		for _, level := range []int{zlib.NoCompression, zlib.BestSpeed, zlib.DefaultCompression, zlib.BestCompression, zlib.HuffmanOnly} {
			t.Run(fmt.Sprintf("%s/level %d", name, level), func(t *testing.T) {
				t.Parallel()
				var d Decoder
				stream := append(deflate(t, content, level), "what follows"...)
				// Every place where a small piece can end comes soon.
				short := content[:min(len(content), 20_000)]
				shortStream := append(deflate(t, short, level), "what follows"...)
				for _, piece := range []int{1, 17, 23, 8191, 1 << 20} {
					content, stream := content, stream
					if piece < 100 {
						content, stream = short, shortStream
					}
					got, left, err := both(&d, stream, len(content), piece)
					if err != nil || !bytes.Equal(got, content) || left != len("what follows") {
						t.Fatalf("pieces of %d: %v, %d bytes of %d, %d left", piece, err, len(got), len(content), left)
					}
				}
				for _, other := range []int{len(content) - 1, len(content) + 1} {
					want := ErrShort
					if other < len(content) {
						want = ErrLong
					}
					if other < 0 {
						continue
					}
					if _, _, err := both(&d, stream, other, 1000); !errors.Is(err, want) {
						t.Errorf("declared %d of %d: %v, want %v", other, len(content), err, want)
					}
				}
			})
		}
	}
}

func TestCutShortAtEveryByte(t *testing.T) {
	t.Parallel()
	var d Decoder
	content := contents()["text"][:3000]
	for _, level := range []int{0, 6, zlib.HuffmanOnly} {
		stream := deflate(t, content, level)
		for n := range stream {
			if _, _, err := both(&d, stream[:n], len(content), 100); !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Fatalf("level %d, %d of %d bytes: %v", level, n, len(stream), err)
			}
		}
	}
}

func TestErrorsOfTheSourceComeBack(t *testing.T) {
	t.Parallel()
	var d Decoder
	broken := errors.New("broken")
	src := &failing{pieces{rest: deflate(t, contents()["text"], 6)[:5000], size: 1000}, broken}
	if _, err := d.Whole(src, make([]byte, 200_100+Slack), 200_100); !errors.Is(err, broken) {
		t.Errorf("err = %v, want %v", err, broken)
	}
}

type failing struct {
	pieces
	err error
}

func (f *failing) Fill() error {
	if len(f.rest) == 0 {
		return f.err
	}
	return f.pieces.Fill()
}

// peer is what compress/zlib makes of a stream.
func peer(stream []byte, size int) ([]byte, int, error) {
	in := bytes.NewReader(stream)
	z, err := zlib.NewReader(in)
	if err != nil {
		return nil, 0, err
	}
	got, err := io.ReadAll(io.LimitReader(z, int64(size)+1))
	if err == nil && len(got) != size {
		err = fmt.Errorf("%d bytes", len(got))
	}
	return got, in.Len(), err
}

// agree holds what both make of a stream against each other.
func agree(t *testing.T, d *Decoder, stream []byte, size, piece int) {
	t.Helper()
	want, wantLeft, wantErr := peer(stream, size)
	got, left, err := both(d, stream, size, piece)
	if (err == nil) != (wantErr == nil) {
		t.Fatalf("%x of %d in pieces of %d: %v, compress/zlib: %v", stream, size, piece, err, wantErr)
	}
	if err == nil && (!bytes.Equal(got, want) || left != wantLeft) {
		t.Fatalf("%x: other bytes, or another end: %d and %d", stream, left, wantLeft)
	}
	if err != nil && !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrLong) && !errors.Is(err, ErrShort) && !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Fatalf("%x: error of no kind: %v", stream, err)
	}
}

func TestFlippedBits(t *testing.T) {
	t.Parallel()
	var d Decoder
	content := contents()["text"][:400]
	for _, level := range []int{0, 1, 9, zlib.HuffmanOnly} {
		stream := deflate(t, content, level)
		for bit := range 8 * len(stream) {
			flipped := bytes.Clone(stream)
			flipped[bit/8] ^= 1 << (bit % 8)
			agree(t, &d, flipped, len(content), 97)
		}
	}
}

// framed makes a zlib stream of raw deflate bytes, with the checksum of what
// they come to, so that it is not the checksum that everything fails by.
func framed(raw []byte, size int) []byte {
	got, _ := io.ReadAll(io.LimitReader(flate.NewReader(bytes.NewReader(raw)), int64(size)))
	sum := adler32.Checksum(got)
	return append(append([]byte{0x78, 0x9c}, raw...), byte(sum>>24), byte(sum>>16), byte(sum>>8), byte(sum))
}

func FuzzInflate(f *testing.F) {
	for _, level := range []int{0, 1, 6, zlib.HuffmanOnly} {
		for _, content := range contents() {
			content = content[:min(len(content), 600)]
			stream := deflate(f, content, level)
			f.Add(stream[2:len(stream)-4], uint32(len(content)), uint16(50), true)
			f.Add(stream, uint32(len(content)), uint16(50), false)
		}
	}
	f.Fuzz(func(t *testing.T, in []byte, size uint32, piece uint16, frame bool) {
		var d Decoder
		n := int(size % (256 << 10))
		if frame {
			in = framed(in, n)
		}
		agree(t, &d, in, n, int(piece%2000)+1)
	})
}

func BenchmarkInflate(b *testing.B) {
	content := contents()["text"]
	if name := os.Getenv("INFLATE_FILE"); name != "" {
		var err error
		if content, err = os.ReadFile(name); err != nil {
			b.Fatal(err)
		}
	}
	for _, size := range []int{3000, 12_000, len(content)} {
		stream := deflate(b, content[:min(size, len(content))], 6)
		size = min(size, len(content))
		b.Run(fmt.Sprintf("%d/ours", size), func(b *testing.B) {
			var d Decoder
			buf := make([]byte, size+Slack)
			b.SetBytes(int64(size))
			for b.Loop() {
				if _, err := d.Whole(&pieces{piece: stream}, buf, size); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(fmt.Sprintf("%d/standard", size), func(b *testing.B) {
			z, err := zlib.NewReader(bytes.NewReader(stream))
			if err != nil {
				b.Fatal(err)
			}
			buf := make([]byte, size)
			b.SetBytes(int64(size))
			for b.Loop() {
				if err := z.(zlib.Resetter).Reset(bytes.NewReader(stream), nil); err != nil {
					b.Fatal(err)
				}
				if _, err := io.ReadFull(z, buf); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
