package gitfetch

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"strings"
	"testing"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/gitfetch/internal/object"
	"github.com/fencepost/fencepost/gitfetch/internal/packtest"
	"github.com/fencepost/fencepost/gitfetch/internal/pktline"
)

// seedManifest is one of a file, a directory of that name with a file that was
// left out, and a gitlink.
func seedManifest(tb testing.TB, dir string) []byte {
	tb.Helper()
	blob := packtest.ID(object.Blob, []byte("x"))
	sub := packtest.ID(object.Tree, packtest.Tree(packtest.Entry{Mode: "100644", Name: "f", ID: blob}))
	root := packtest.Tree(
		packtest.Entry{Mode: "100755", Name: "a", ID: blob}, packtest.Entry{Mode: "40000", Name: dir, ID: sub}, packtest.Entry{Mode: "160000", Name: "s", ID: blob})
	content := packtest.Commit(packtest.ID(object.Tree, root))
	c := &Checkout{
		commit: fencepost.CommitID{ObjectID: packtest.ID(object.Commit, content)}, content: content,
		policy: Policy{Symlinks: SymlinksInside, Gitlinks: GitlinksSkip, Names: NamesPortable}, synced: true, device: 7,
		nodes: []node{
			{parent: -1, mode: object.Dir},
			{name: "a", mode: object.Program, id: blob, size: 1},
			{name: dir, mode: object.Dir, out: true},
			{name: "f", parent: 2, mode: object.File, id: blob, out: true},
			{name: "s", mode: object.Gitlink, id: blob},
		},
		stamps: []stamp{{}, {ino: 5, mtime: 9}, {}, {}, {}},
		base:   tb.TempDir(), name: ".",
	}
	var b bytes.Buffer
	if err := c.WriteManifest(&b); err != nil {
		tb.Fatal(err)
	}
	return b.Bytes()
}

// TestAManifestHoldsNoWayToAnotherDirectory: its names are opened before any
// rule of a tree's is asked, where a delta is on one of its files.
func TestAManifestHoldsNoWayToAnotherDirectory(t *testing.T) {
	t.Parallel()
	if _, err := ReadManifest(bytes.NewReader(seedManifest(t, "d"))); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"", ".", "..", "/", "../d", "d/..", "d\x00"} {
		if _, err := ReadManifest(bytes.NewReader(seedManifest(t, name))); !errors.Is(err, ErrManifest) {
			t.Errorf("%q: err = %v, want %v", name, err, ErrManifest)
		}
	}
}

// FuzzManifest: whatever the bytes behind a right checksum are, what is read is
// the tree of a commit, in the order of a walk.
func FuzzManifest(f *testing.F) {
	whole, up, here := seedManifest(f, "d"), seedManifest(f, ".."), seedManifest(f, ".")
	for _, seed := range [][]byte{nil, whole[:len(whole)-4], up[:len(up)-4], here[:len(here)-4], whole[:60], whole[:len(whole)-30], []byte(manifestMagic)} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		b := binary.LittleEndian.AppendUint32(bytes.Clone(body), crc32.Checksum(body, crc32.MakeTable(crc32.Castagnoli)))
		m, err := ReadManifest(bytes.NewReader(b))
		if err != nil {
			if !errors.Is(err, ErrManifest) {
				t.Fatalf("error of no known kind: %v", err)
			}
			return
		}
		if len(m.nodes) > len(body) || len(m.stamps) != len(m.nodes) || packtest.ID(object.Commit, m.content) != m.commit.ObjectID {
			t.Fatalf("%d nodes, %d stamps out of %d bytes", len(m.nodes), len(m.stamps), len(body))
		}
		for i := range m.nodes {
			n := &m.nodes[i]
			if i > 0 && (n.parent < 0 || int(n.parent) >= i || m.nodes[n.parent].mode != object.Dir || n.name == "" || n.name == "." || n.name == ".." || strings.ContainsAny(n.name, "/\x00")) {
				t.Fatalf("node %d in %d: %q", i, n.parent, n.name)
			}
			if n.mode == object.Dir && packtest.ID(object.Tree, m.tree(int32(i), nil)) != n.id {
				t.Fatalf("directory %d is not %s", i, n.id)
			}
			if at := m.find(n.mode, n.id); at != noNode && (m.nodes[at].out && n.mode != object.Dir || m.nodes[at].id != n.id) {
				t.Fatalf("%s is found at %d", n.id, at)
			}
		}
	})
}

// FuzzCut: answers about histories.
func FuzzCut(f *testing.F) {
	open := pktline.AppendText(pktline.AppendText(nil, "shallow-info"), "shallow "+wanted().String())
	for _, seed := range [][]byte{
		nil, open, pktline.AppendText(pktline.AppendDelim(open), "packfile"), pktline.AppendText(pktline.AppendDelim(pktline.AppendText(nil, "shallow-info")), "packfile"),
		pktline.AppendText(open, "unshallow "+wanted().String()), pktline.AppendText(open, "shallow x"), pktline.AppendText(nil, "packfile"), pktline.AppendText(nil, "ERR no"),
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		cut := make(map[fencepost.CommitID]bool)
		if _, err := openCut(answerOf(t, body), cut); err != nil {
			wantKnown(t, err)
			return
		}
		for id := range cut {
			if !bytes.Contains(body, []byte("shallow "+id.String())) {
				t.Fatalf("%s is cut in %q", id, body)
			}
		}
	})
}
