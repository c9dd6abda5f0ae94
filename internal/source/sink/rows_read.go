package sink

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"unicode/utf8"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/gitfetch"
	"github.com/fencepost/fencepost/internal/source"
)

// A rowFile is a file that becomes a row.
type rowFile struct {
	gitfetch.File
	// path is the row's; Path is the checkout's.
	path   string
	digest string // SHA-256 of the content, in hex
}

// rowFiles are what is read of a checkout.
type rowFiles struct {
	files []rowFile
	bytes int64
	// content names all of it: paths, modes, sizes and digests.
	content string
	// left are the paths of the files that were refused: their rows stay.
	left    map[string]bool
	refused []source.Refusal
}

// read reads every file once and says what becomes a row. It ends with a
// [source.SinkError] if that is nothing, or lacks what is required.
func (r *Rows) read(ctx context.Context, c *gitfetch.Checkout) (_ *rowFiles, err error) {
	sel, err := r.rules.choose(c)
	if err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(c.Root())
	if err != nil {
		return nil, hostless(err)
	}
	defer func() { err = errors.Join(hostless(err), hostless(root.Close())) }()
	out := &rowFiles{left: map[string]bool{}}
	taken := make([]gitfetch.File, 0, len(sel.files))
	e := fencepost.NewEncoder("fencepost.sink-rows/v1")
	reader := contentReader{root: root, buf: make([]byte, 64<<10)}
	for i, f := range sel.files {
		if i%everyFiles == 0 && ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		row := rowFile{File: f, path: strings.TrimPrefix(f.Path, r.rules.mount)}
		why, err := r.judge(&reader, &row)
		if err != nil {
			return nil, err
		}
		if why != fencepost.ReasonNone {
			out.refuse(i, row.path, why)
			continue
		}
		taken = append(taken, f)
		out.files = append(out.files, row)
		out.bytes += f.Size
		e.Text(row.path).Uint(uint64(f.Mode)).Int(f.Size).Text(row.digest)
	}
	content := source.Digest(e.Sum())
	out.content = hexOf(content)
	return out, r.rules.holds(taken)
}

func (o *rowFiles) refuse(i int, path string, why fencepost.Reason) {
	o.left[path] = true
	if len(o.refused) < maxRefusals {
		o.refused = append(o.refused, source.Refusal{Entry: int64(i) + 1, Reason: why})
	}
}

// judge reads one file and says why it can't be a row, if so.
func (r *Rows) judge(reader *contentReader, row *rowFile) (fencepost.Reason, error) {
	if len(row.path) > maxPathBytes || !utf8.ValidString(row.path) || strings.ContainsRune(row.path, 0) {
		return fencepost.ReasonContent, nil
	}
	if !r.opts.NoContent && row.Size > r.opts.MaxRow {
		return fencepost.ReasonTooLarge, nil
	}
	sum := sha256.New()
	check := &textCheck{}
	w := io.Writer(sum)
	if r.opts.Text && !r.opts.NoContent {
		w = io.MultiWriter(sum, check)
	}
	if err := reader.copy(w, row.File); err != nil {
		return "", err
	}
	if check.bad() {
		return fencepost.ReasonContent, nil
	}
	row.digest = hex.EncodeToString(sum.Sum(nil))
	return fencepost.ReasonNone, nil
}

// A contentReader reads files of a checkout, links as their text.
type contentReader struct {
	root *os.Root
	buf  []byte
}

// errCheckout: the checkout is not what it was when it was fetched.
var errCheckout = errors.New("the checkout was altered")

// copy writes the content of a file, which must have the size that it had.
func (c *contentReader) copy(w io.Writer, f gitfetch.File) (err error) {
	if f.Mode == gitfetch.ModeLink {
		info, err := c.root.Lstat(f.Path)
		if err != nil {
			return err
		}
		if info.Mode().Type() == fs.ModeSymlink {
			text, err := c.root.Readlink(f.Path)
			if err != nil {
				return err
			}
			_, err = io.WriteString(w, text)
			return err
		}
	}
	file, err := c.root.Open(f.Path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	n, err := io.CopyBuffer(w, onlyReader{io.LimitReader(file, f.Size+1)}, c.buf)
	if err != nil {
		return err
	}
	if n != f.Size {
		return fmt.Errorf("a file has %d bytes, want %d: %w", n, f.Size, errCheckout)
	}
	return nil
}

// onlyReader hides the methods for which io.Copy would not use the buffer.
type onlyReader struct{ io.Reader }

// bytes returns the content of a file whose size was found to be in bounds.
func (c *contentReader) bytes(f gitfetch.File, digest string) ([]byte, error) {
	b := make([]byte, 0, f.Size)
	w := &sliceWriter{b: b}
	if err := c.copy(w, f); err != nil {
		return nil, err
	}
	if sum := sha256.Sum256(w.b); hex.EncodeToString(sum[:]) != digest {
		return nil, fmt.Errorf("a file has other bytes than a moment ago: %w", errCheckout)
	}
	return w.b, nil
}

type sliceWriter struct{ b []byte }

func (s *sliceWriter) Write(p []byte) (int, error) {
	s.b = append(s.b, p...)
	return len(p), nil
}

// A textCheck finds out whether what is written to it is UTF-8 without a zero
// byte.
type textCheck struct {
	rest   [utf8.UTFMax]byte // of a character that may go on
	n      int
	broken bool
}

// Write implements [io.Writer]. It never fails.
func (t *textCheck) Write(p []byte) (int, error) {
	all := len(p)
	for t.n > 0 && len(p) > 0 && !t.broken {
		t.rest[t.n] = p[0]
		t.n++
		p = p[1:]
		if utf8.FullRune(t.rest[:t.n]) {
			t.take(t.rest[:t.n])
			t.n = 0
		}
	}
	if t.broken || len(p) == 0 {
		return all, nil
	}
	// At most the last three bytes can be the beginning of a character.
	end := len(p)
	for back := 1; back < utf8.UTFMax && back <= len(p); back++ {
		if b := p[len(p)-back]; utf8.RuneStart(b) {
			if !utf8.FullRune(p[len(p)-back:]) {
				end = len(p) - back
			}
			break
		}
	}
	t.take(p[:end])
	t.n = copy(t.rest[:], p[end:])
	return all, nil
}

func (t *textCheck) take(p []byte) {
	t.broken = t.broken || !utf8.Valid(p)
	for i := 0; i < len(p) && !t.broken; i++ {
		t.broken = p[i] == 0
	}
}

func (t *textCheck) bad() bool { return t.broken || t.n > 0 }
