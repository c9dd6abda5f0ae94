package pack

import (
	"bufio"
	"bytes"
	"errors"
	"testing"

	"github.com/fencepost/fencepost/gitfetch/internal/object"
	"github.com/fencepost/fencepost/gitfetch/internal/packtest"
)

const maxResult = 1 << 20

// applyTo applies a delta as the reader of a pack does, with the base in
// memory or read in pieces.
func applyTo(content, text []byte, resident bool) ([]byte, error) {
	b := &base{size: int64(len(content))}
	if resident {
		b.whole = append([]byte{}, content...)
	} else {
		b.readAt = func(p []byte, off int64) error {
			copy(p, content[off:])
			return nil
		}
	}
	s := newSpool(func() (File, error) { return newMemFile(), nil })
	out := newContent(s, object.NewHasher())
	d := delta{text: bufio.NewReaderSize(bytes.NewReader(text), textBuffer), left: int64(len(text))}
	err := d.apply(b, out, func(size int64) error {
		if size > maxResult {
			return &object.LimitError{Limit: LimitBlob, Max: maxResult}
		}
		out.begin(object.Blob, size)
		return nil
	})
	if err != nil {
		return nil, err
	}
	if err := out.flush(); err != nil {
		return nil, err
	}
	result := make([]byte, s.end())
	return result, s.readAt(result, 0)
}

// reference is a second way to apply a delta: short, in memory, for the
// tests to compare with. ok is false where the delta is not legal.
func reference(content, text []byte) (result []byte, ok bool) {
	if len(text) < 4 {
		return nil, false
	}
	size := func() (n uint64, ok bool) {
		for shift := 0; ; shift += 7 {
			if len(text) == 0 || shift > 63 {
				return 0, false
			}
			c := text[0]
			text = text[1:]
			if c == 0 && shift > 0 {
				return 0, false
			}
			if shift == 63 && c != 0 {
				return 0, false
			}
			n |= uint64(c&0x7f) << shift
			if c < 0x80 {
				return n, true
			}
		}
	}
	from, ok1 := size()
	to, ok2 := size()
	if !ok1 || !ok2 || from != uint64(len(content)) || to > maxResult {
		return nil, false
	}
	for len(text) > 0 {
		op := text[0]
		text = text[1:]
		if op < 0x80 {
			if op == 0 || int(op) > len(text) {
				return nil, false
			}
			result, text = append(result, text[:op]...), text[op:]
		} else {
			var args [7]uint64
			for i := range 7 {
				if op&(1<<i) != 0 {
					if len(text) == 0 {
						return nil, false
					}
					args[i], text = uint64(text[0]), text[1:]
				}
			}
			off := args[0] | args[1]<<8 | args[2]<<16 | args[3]<<24
			n := args[4] | args[5]<<8 | args[6]<<16
			if n == 0 {
				n = 0x10000
			}
			if off+n > uint64(len(content)) {
				return nil, false
			}
			result = append(result, content[off:off+n]...)
		}
		if uint64(len(result)) > to {
			return nil, false
		}
	}
	return result, uint64(len(result)) == to
}

func TestDelta(t *testing.T) {
	t.Parallel()
	base := []byte("the quick brown fox")
	big := bytes.Repeat([]byte("0123456789abcdef"), 0x10000/16+3)
	n := int64(len(base))
	delta := packtest.Delta
	tests := []struct {
		name string
		base []byte
		text []byte
		want string // "" for a refusal
	}{
		{"a copy and an insertion", base, delta(n, 9, packtest.Copy(4, 5), packtest.Insert(" ant")), "quick ant"},
		{"the longest insertion", base, delta(n, 127, packtest.Insert(string(big[:127]))), string(big[:127])},
		{"a copy of size zero is one of 65536", big, delta(int64(len(big)), 0x10000, packtest.Copy(1, 0x10000)), string(big[1:0x10001])},
		{"a copy of the whole base", base, delta(n, n, packtest.Copy(0, n)), string(base)},
		{"a copy up to the last byte", base, delta(n, 1, packtest.Copy(n-1, 1), nil), "x"},
		{"a copy beyond the base", base, delta(n, 2, packtest.Copy(n-1, 2)), ""},
		{"a copy from beyond the base", base, delta(n, 1, packtest.Copy(n+1, 1)), ""},
		{"a copy from far beyond the base", base, delta(n, 1, packtest.Copy(0xffffffff, 1)), ""},
		{"a copy beyond the result", base, delta(n, 3, packtest.Copy(0, 4)), ""},
		{"an insertion beyond the result", base, delta(n, 3, packtest.Insert("four")), ""},
		{"an insertion cut short", base, delta(n, 9, []byte{9, 'x'}), ""},
		{"a copy cut short", base, delta(n, 9, []byte{0x91, 1}), ""},
		{"the reserved instruction", base, delta(n, 1, []byte{0}, packtest.Insert("x")), ""},
		{"a result not filled", base, delta(n, 9, packtest.Insert("four")), ""},
		{"more after the result is filled", base, delta(n, 4, packtest.Insert("four"), packtest.Insert("x")), ""},
		{"another base size", base, delta(n+1, 1, packtest.Insert("x")), ""},
		{"no instructions", base, delta(n, 1), ""},
		{"nothing", base, nil, ""},
		{"three bytes", []byte{}, []byte{0, 1, 1}, ""},
		{"a base size without an end", base, []byte{0x93, 0x80, 0x80, 0x80}, ""},
		{"a base size with a zero group at its end", base, append([]byte{0x93, 0}, delta(0, 1, packtest.Insert("x"))[1:]...), ""},
		{"a result size over 63 bits", base, append([]byte{19}, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1, 1), ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			for _, resident := range []bool{true, false} {
				got, err := applyTo(tt.base, tt.text, resident)
				if tt.want == "" {
					if !errors.Is(err, ErrMalformed) {
						t.Errorf("got %q, %v; want %v", got, err, ErrMalformed)
					}
				} else if err != nil || string(got) != tt.want {
					t.Errorf("got %.80q, %v; want %.80q", got, err, tt.want)
				}
			}
			if _, ok := reference(tt.base, tt.text); ok != (tt.want != "") {
				t.Errorf("the reference says %v", ok)
			}
		})
	}
}

func TestADeltaResultIsAskedForBeforeItIsMade(t *testing.T) {
	t.Parallel()
	text := packtest.Delta(3, 1<<40, packtest.Copy(0, 3))
	_, err := applyTo([]byte("abc"), text, true)
	if limit, ok := errors.AsType[*object.LimitError](err); !ok || limit.Limit != LimitBlob {
		t.Errorf("err = %v, want the limit %s", err, LimitBlob)
	}
}

// FuzzDelta compares with the reference, both ways of reading the base.
func FuzzDelta(f *testing.F) {
	base := []byte("the quick brown fox")
	n := int64(len(base))
	f.Add(base, packtest.Delta(n, 9, packtest.Copy(4, 5), packtest.Insert(" ant")))
	f.Add(base, packtest.Delta(n, n, packtest.Copy(0, n)))
	f.Add(base, packtest.Delta(n, 1, packtest.Copy(0xffffff, 1)))
	f.Add(bytes.Repeat([]byte("x"), 0x10001), packtest.Delta(0x10001, 0x10000, packtest.Copy(1, 0x10000)))
	f.Add([]byte{}, []byte{0, 0x80, 0x80, 1})
	f.Fuzz(func(t *testing.T, base, text []byte) {
		want, ok := reference(base, text)
		for _, resident := range []bool{true, false} {
			got, err := applyTo(base, text, resident)
			if (err == nil) != ok || !bytes.Equal(got, want) && ok {
				t.Fatalf("%q on %q: %q, %v; the reference says %q, %v", text, base, got, err, want, ok)
			}
			var limit *object.LimitError
			if err != nil && !errors.Is(err, ErrMalformed) && !errors.As(err, &limit) {
				t.Fatalf("error of no known kind: %v", err)
			}
		}
	})
}
