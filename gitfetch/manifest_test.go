package gitfetch_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/gitfetch"
	"github.com/fencepost/fencepost/gitfetch/internal/gitserver"
	"github.com/fencepost/fencepost/gitfetch/internal/object"
	"github.com/fencepost/fencepost/gitfetch/internal/packtest"
	"github.com/fencepost/fencepost/gitfetch/internal/pktline"
)

// sealedManifest gives a manifest the checksum that it should have.
func sealedManifest(b []byte) []byte {
	body := b[:len(b)-4]
	return binary.LittleEndian.AppendUint32(bytes.Clone(body), crc32.Checksum(body, crc32.MakeTable(crc32.Castagnoli)))
}

// varied is a checkout with one of each in it.
func varied(t *testing.T) *gitfetch.Checkout {
	t.Helper()
	repo := gitserver.New(t).Repo(t, "r.git")
	req := request(repo, repo.Commit(t, "main", append(sample(),
		gitserver.Entry{Path: "l", Mode: "120000", Content: "a/b"},
		gitserver.Entry{Path: "m", Mode: "160000", Content: strings.Repeat("ab", 20)},
		gitserver.Entry{Path: "out/x", Content: "left out"},
	)))
	req.Policy = gitfetch.Policy{Symlinks: gitfetch.SymlinksInside, Gitlinks: gitfetch.GitlinksSkip}
	req.Select = func(path string) bool { return !strings.HasPrefix(path, "out/") }
	return fetch(t, req)
}

func TestAManifestIsReadAsItWasWritten(t *testing.T) {
	t.Parallel()
	c := varied(t)
	b := manifestBytes(t, c)
	m, err := gitfetch.ReadManifest(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	if m.Commit() != c.Commit() || m.Tree() != c.Tree() || m.LeftOut() != 1 {
		t.Errorf("%s, %s, %d left out", m.Commit(), m.Tree(), m.LeftOut())
	}
	if err := m.Verify(t.Context(), c.Root()); err != nil {
		t.Error(err)
	}
	moved := filepath.Join(t.TempDir(), "moved")
	if err := os.Rename(c.Root(), moved); err != nil {
		t.Fatal(err)
	}
	if err := m.Verify(t.Context(), moved); err != nil {
		t.Errorf("in another place: %v", err)
	}
	if err := m.Verify(t.Context(), c.Root()); !errors.Is(err, gitfetch.ErrAltered) {
		t.Errorf("where it was: %v", err)
	}
	if err := os.WriteFile(filepath.Join(moved, "evil"), nil, 0o444); err != nil {
		t.Fatal(err)
	}
	if err := m.Verify(t.Context(), moved); !errors.Is(err, gitfetch.ErrAltered) {
		t.Errorf("with one more file: %v", err)
	}
}

// TestNoManifestButTheOneOfItsCommitIsRead alters each byte, without and with
// a checksum that fits.
func TestNoManifestButTheOneOfItsCommitIsRead(t *testing.T) {
	t.Parallel()
	c := varied(t)
	whole := manifestBytes(t, c)
	for i := range whole {
		bad := bytes.Clone(whole)
		bad[i] ^= 1
		if _, err := gitfetch.ReadManifest(bytes.NewReader(bad)); !errors.Is(err, gitfetch.ErrManifest) {
			t.Fatalf("byte %d altered: %v", i, err)
		}
		if _, err := gitfetch.ReadManifest(bytes.NewReader(whole[:i])); !errors.Is(err, gitfetch.ErrManifest) {
			t.Fatalf("cut to %d bytes: %v", i, err)
		}
		if i > len(whole)-5 {
			continue
		}
		// What is left to alter is how a file is recognised, where the tree
		// stands in for nothing, and the policy: none of it makes another tree.
		m, err := gitfetch.ReadManifest(bytes.NewReader(sealedManifest(bad)))
		if err == nil && (m.Tree() != c.Tree() || m.Commit() != c.Commit()) || err != nil && !errors.Is(err, gitfetch.ErrManifest) {
			t.Fatalf("byte %d altered and sealed: %v", i, err)
		}
	}
	for name, bad := range map[string][]byte{
		"one more byte": sealedManifest(append(bytes.Clone(whole), 0)),
		"more nodes":    sealedManifest(append(append(bytes.Clone(whole[:44]), 0xff, 0xff, 0xff, 0x7f), whole[48:]...)),
		"a long commit": sealedManifest(append(append(bytes.Clone(whole[:40]), 0xff, 0xff, 0xff, 0xff), whole[44:]...)),
		"no nodes":      sealedManifest(append(append(bytes.Clone(whole[:44]), 0, 0, 0, 0), whole[48:]...)),
	} {
		if _, err := gitfetch.ReadManifest(bytes.NewReader(bad)); !errors.Is(err, gitfetch.ErrManifest) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := gitfetch.ReadManifest(io.LimitReader(zeros{}, gitfetch.MaxManifestBytes+10)); !errors.Is(err, gitfetch.ErrManifest) {
		t.Errorf("too long: %v", err)
	}
	if _, err := gitfetch.ReadManifest(broken{}); !errors.Is(err, io.ErrClosedPipe) || errors.Is(err, gitfetch.ErrManifest) {
		t.Errorf("a reader that fails: %v", err)
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }

type broken struct{}

func (broken) Read([]byte) (int, error)  { return 0, io.ErrClosedPipe }
func (broken) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }

func TestAManifestIsNotWrittenOfWhatIsNotThere(t *testing.T) {
	t.Parallel()
	c := varied(t)
	if err := c.WriteManifest(broken{}); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("a writer that fails: %v", err)
	}
	link := filepath.Join(c.Root(), "l")
	if err := errors.Join(os.Remove(link), os.Symlink("README", link)); err != nil {
		t.Fatal(err)
	}
	if err := c.WriteManifest(io.Discard); !errors.Is(err, gitfetch.ErrAltered) {
		t.Errorf("another link: %v", err)
	}
	if err := c.Remove(); err != nil {
		t.Fatal(err)
	}
	if err := c.WriteManifest(io.Discard); !errors.Is(err, gitfetch.ErrRemoved) {
		t.Errorf("nothing: %v", err)
	}
}

// TestAnswersOnTopOfAnEarlierCheckout are of a server that lies.
func TestAnswersOnTopOfAnEarlierCheckout(t *testing.T) {
	t.Parallel()
	var f forge
	readme, x := f.blob("hello, world\n"), f.blob("x")
	sub := f.tree(file("x", x))
	first := f.commit(f.tree(file("README", readme), dir("d", sub)))
	old := answerWith(first, f.b.Bytes())
	var g forge
	changed := g.blob("hello, moon\n")
	second := g.commit(g.tree(file("README", changed), dir("d", sub)))
	blob := func(b *packtest.Builder, s string) { b.Object(object.Blob, []byte(s)) }
	rootTree := packtest.Tree(file("README", changed), dir("d", sub))
	commitText := packtest.Commit(packtest.ID(object.Tree, rootTree))
	rest := func(b *packtest.Builder) {
		b.Object(object.Tree, rootTree)
		b.Object(object.Commit, commitText)
	}
	delta := packtest.Delta(13, 12, packtest.Copy(0, 7), packtest.Insert("moon\n"))
	var full forge
	full.commit(full.tree(file("README", full.blob("hello, moon\n")), dir("d", full.tree(file("x", full.blob("x"))))))
	whole := answerWith(second, full.b.Bytes())
	absent := fencepost.ObjectID{1}
	tests := []struct {
		name     string
		build    func(b *packtest.Builder)
		raw      []byte
		fallback gitfetch.Fallback
	}{
		{"what differs", func(b *packtest.Builder) { blob(b, "hello, moon\n"); rest(b) }, nil, ""},
		{"a delta on what is here", func(b *packtest.Builder) { b.Ref(readme, delta); rest(b) }, nil, ""},
		{"a delta on a tree that is here", func(b *packtest.Builder) {
			b.Ref(sub, packtest.Delta(29, 29, packtest.Copy(0, 29)))
			b.Ref(readme, delta)
			rest(b)
		}, nil, ""},
		{"all of it", nil, whole, ""},
		{"a delta on what is nowhere", func(b *packtest.Builder) { b.Ref(absent, delta); rest(b) }, nil, gitfetch.FallbackAnswer},
		{"a delta for another length", func(b *packtest.Builder) { b.Ref(x, delta); rest(b) }, nil, gitfetch.FallbackAnswer},
		{"a delta that makes something else", func(b *packtest.Builder) {
			b.Ref(readme, packtest.Delta(13, 12, packtest.Copy(0, 7), packtest.Insert("evil\n")))
			rest(b)
		}, nil, gitfetch.FallbackAnswer},
		{"a blob less", rest, nil, gitfetch.FallbackAnswer},
		{"a blob more", func(b *packtest.Builder) { blob(b, "hello, moon\n"); rest(b); blob(b, "more") }, nil, gitfetch.FallbackAnswer},
		{"the commit less", func(b *packtest.Builder) { blob(b, "hello, moon\n"); b.Object(object.Tree, rootTree) }, nil, gitfetch.FallbackAnswer},
		{"nothing", func(*packtest.Builder) {}, nil, gitfetch.FallbackAnswer},
		{"an empty answer", nil, []byte{}, gitfetch.FallbackAnswer},
		{"an error", nil, pktline.AppendText(nil, "ERR no such thing"), gitfetch.FallbackAnswer},
		{"an acknowledgment", nil, append(pktline.AppendText(pktline.AppendText(nil, "acknowledgments"), "NAK"), "0001"...), gitfetch.FallbackAnswer},
		{"a pack cut short", nil, whole[:len(whole)-30], gitfetch.FallbackAnswer},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			h := &host{advertisement: advertisement(), result: old}
			url := h.start(t)
			req := gitfetch.Request{URL: url, Commit: fencepost.CommitID{ObjectID: first}, AllowHTTP: true}
			req.Have = have(t, fetch(t, req))
			var b packtest.Builder
			answer := tt.raw
			if tt.build != nil {
				tt.build(&b)
				answer = answerWith(second, b.Bytes())
			}
			req.URL = (&host{advertisement: advertisement(), write: inTurn(answer, whole)}).start(t)
			req.Commit = fencepost.CommitID{ObjectID: second}
			c := fetch(t, req)
			if got, err := os.ReadFile(filepath.Join(c.Root(), "README")); err != nil || string(got) != "hello, moon\n" {
				t.Errorf("README: %q, %v", got, err)
			}
			if st := c.Stats(); st.Fallback != tt.fallback || st.Incremental != (tt.fallback == "") {
				t.Errorf("%+v, want fallback %q", st, tt.fallback)
			}
		})
	}
}
