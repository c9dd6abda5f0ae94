package pktline_test

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/fencepost/fencepost/gitfetch/internal/pktline"
)

func TestReaderReadsEachKind(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", pktline.MaxData)
	in := "0006a\n" + "00000001" + "0004" + "000Ahello\n" + "fff0" + long + "FFF0" + long
	want := []struct {
		kind pktline.Kind
		data string
		text string
	}{
		{pktline.Data, "a\n", "a"}, {pktline.Flush, "", ""}, {pktline.Delim, "", ""}, {pktline.Data, "", ""},
		{pktline.Data, "hello\n", "hello"}, {pktline.Data, long, long}, {pktline.Data, long, long},
	}
	for _, source := range []io.Reader{strings.NewReader(in), iotest.OneByteReader(strings.NewReader(in)), iotest.DataErrReader(strings.NewReader(in))} {
		r := pktline.NewReader(source)
		for i, w := range want {
			p, err := r.Next()
			if err != nil || p.Kind != w.kind || string(p.Data) != w.data || p.Text() != w.text {
				t.Fatalf("packet %d: %s of %d bytes, %v; want %s of %d", i, p.Kind, len(p.Data), err, w.kind, len(w.data))
			}
		}
		if err := r.End(); err != nil {
			t.Errorf("End: %v", err)
		}
		if _, err := r.Next(); err != io.EOF {
			t.Errorf("Next at the end: %v", err)
		}
	}
}

func TestTextStripsOneLineFeed(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{"a": "a", "a\n": "a", "a\n\n": "a\n", "\n": "", "": "", "a\r\n": "a\r"} {
		if got := (pktline.Packet{Data: []byte(in)}).Text(); got != want {
			t.Errorf("Text of %q = %q, want %q", in, got, want)
		}
	}
}

func TestReaderRefuses(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken pipe")
	tests := []struct {
		name string
		in   io.Reader
		want error
	}{
		{"response-end", strings.NewReader("0002"), pktline.ErrMalformed},
		{"length 3", strings.NewReader("0003"), pktline.ErrMalformed},
		{"a packet over the longest", strings.NewReader("fff1" + strings.Repeat("x", 70000)), pktline.ErrMalformed},
		{"the longest length there is", strings.NewReader("ffff" + strings.Repeat("x", 70000)), pktline.ErrMalformed},
		{"a length that is not hexadecimal", strings.NewReader("00g0"), pktline.ErrMalformed},
		{"a sign", strings.NewReader("+005a"), pktline.ErrMalformed},
		{"a space", strings.NewReader(" 005a"), pktline.ErrMalformed},
		{"half a header", strings.NewReader("00"), io.ErrUnexpectedEOF},
		{"half a packet", strings.NewReader("0008ab"), io.ErrUnexpectedEOF},
		{"nothing of a packet", strings.NewReader("0008"), io.ErrUnexpectedEOF},
		{"an error of the source", io.MultiReader(strings.NewReader("0008a"), iotest.ErrReader(broken)), broken},
		{"nothing", strings.NewReader(""), io.EOF},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if p, err := pktline.NewReader(tt.in).Next(); !errors.Is(err, tt.want) {
				t.Errorf("got %v, %v; want %v", p, err, tt.want)
			}
		})
	}
}

func TestEndSeesWhatFollows(t *testing.T) {
	t.Parallel()
	r := pktline.NewReader(strings.NewReader("0000x"))
	if _, err := r.Next(); err != nil {
		t.Fatal(err)
	}
	if err := r.End(); !errors.Is(err, pktline.ErrTrailing) {
		t.Errorf("End = %v, want %v", err, pktline.ErrTrailing)
	}
}

func TestAppend(t *testing.T) {
	t.Parallel()
	got := pktline.AppendFlush(pktline.AppendData(pktline.AppendDelim(pktline.AppendText(nil, "command=fetch")), []byte{1, 0xff}))
	if want := "0012command=fetch\n00010006\x01\xff0000"; string(got) != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// FuzzReader: what is read is what was written, no packet is longer than one
// may be, and the reader ends.
func FuzzReader(f *testing.F) {
	for _, seed := range []string{
		"", "0000", "0001", "0004", "0005\x01", "0006\x01x0000", "000eversion 2\n000bagent=x\n0000", "fff0", "001e# service=git-upload-pack\n0000",
		"0002", "0003", "FfF0x", "000g", "00000000x",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		r := pktline.NewReader(bytes.NewReader(in))
		var out []byte
		for {
			p, err := r.Next()
			if err != nil {
				if !errors.Is(err, io.EOF) && !errors.Is(err, pktline.ErrMalformed) {
					t.Fatalf("error of no known kind: %v", err)
				}
				break
			}
			if len(p.Data) > pktline.MaxData {
				t.Fatalf("packet of %d bytes", len(p.Data))
			}
			switch p.Kind {
			case pktline.Flush:
				out = pktline.AppendFlush(out)
			case pktline.Delim:
				out = pktline.AppendDelim(out)
			case pktline.Data:
				out = pktline.AppendData(out, p.Data)
			default:
				t.Fatalf("packet of kind %d", p.Kind)
			}
		}
		if !bytes.EqualFold(out, in[:len(out)]) {
			t.Fatalf("read %q, which writes %q", in, out)
		}
	})
}
