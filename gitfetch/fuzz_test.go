package gitfetch

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/gitfetch/internal/object"
	"github.com/fencepost/fencepost/gitfetch/internal/pack"
	"github.com/fencepost/fencepost/gitfetch/internal/packtest"
	"github.com/fencepost/fencepost/gitfetch/internal/pathrule"
	"github.com/fencepost/fencepost/gitfetch/internal/pktline"
)

// wanted is the commit that the fuzzed answers are for.
func wanted() fencepost.CommitID {
	return fencepost.CommitID{ObjectID: fencepost.ObjectID(bytes.Repeat([]byte{0xab}, 20))}
}

// answerOf is an answer with that body, under small budgets.
func answerOf(t testing.TB, body []byte) *answer {
	dog := &watchdog{timer: time.NewTimer(time.Hour), limit: time.Hour}
	t.Cleanup(dog.stop)
	target := &target{}
	target.Budgets = Budgets{WireBytes: 1 << 16, MetadataBytes: 1 << 12, MetadataLines: 64}
	a := &answer{c: &client{t: target, watch: dog}, body: io.NopCloser(bytes.NewReader(body))}
	a.pkt = pktline.NewReader(a)
	return a
}

// wantKnown requires that an error about an answer is one that callers can
// match.
func wantKnown(t *testing.T, err error) {
	t.Helper()
	err = translate(err)
	var remote *RemoteError
	var budget *BudgetError
	for _, known := range []error{ErrProtocol, ErrRejected, ErrNotV2} {
		if errors.Is(err, known) {
			return
		}
	}
	if !errors.As(err, &remote) && !errors.As(err, &budget) {
		t.Fatalf("error of no known kind: %v", err)
	}
	if remote != nil && (len(remote.Text) > errorText || strings.ContainsAny(remote.Text, "\x00\x1b\r\n\x7f")) {
		t.Fatalf("text %q", remote.Text)
	}
}

func FuzzFetchAnswer(f *testing.F) {
	open := pktline.AppendText(nil, "shallow-info")
	open = pktline.AppendText(open, "shallow "+wanted().String())
	open = pktline.AppendText(pktline.AppendDelim(open), "packfile")
	packed := pktline.AppendData(open, []byte("\x01PACK"))
	for _, seed := range [][]byte{
		nil, []byte("0000"), open, pktline.AppendFlush(packed), append(packed, "0005\x010009\x02text0006\x01x0000"...), append(packed, "0009\x03died"...),
		append(packed, "0004"...), append(packed, "0001"...), pktline.AppendText(nil, "ERR upload-pack: not our ref"), pktline.AppendText(nil, "packfile"),
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		source, err := openPack(answerOf(t, body), wanted())
		if err != nil {
			wantKnown(t, err)
			return
		}
		if !bytes.HasPrefix(body, []byte("0011shallow-info\n")) && !bytes.HasPrefix(body, []byte("0010shallow-info")) {
			t.Fatalf("opened %q", body)
		}
		total := 0
		for {
			piece, err := source.Next()
			if err == io.EOF {
				break
			}
			if err != nil {
				wantKnown(t, err)
				break
			}
			if total += len(piece); len(piece) == 0 || total > len(body) {
				t.Fatalf("piece of %d bytes, %d in all, out of %d", len(piece), total, len(body))
			}
		}
	})
}

func FuzzAdvertisement(f *testing.F) {
	good := pktline.AppendText(nil, "version 2")
	good = pktline.AppendText(good, "agent=git/2.39.5")
	good = pktline.AppendFlush(pktline.AppendText(good, "fetch=shallow filter"))
	preamble := pktline.AppendFlush(pktline.AppendText(nil, "# service=git-upload-pack"))
	for _, seed := range [][]byte{nil, good, append(preamble, good...), append(good, '0'), []byte("0000"), pktline.AppendText(nil, "version 1"), pktline.AppendText(nil, "ERR no")} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		caps, err := readAdvertisement(answerOf(t, body))
		if err != nil {
			wantKnown(t, err)
			return
		}
		if len(caps) > 4 || !bytes.Contains(body, []byte("version 2")) {
			t.Fatalf("%q was read as %v", body, caps)
		}
		// Whatever the server says, what is sent is ours.
		for _, p := range bytes.Split(caps.beginCommand("fetch"), []byte("\n")) {
			line := string(p[min(4, len(p)):])
			switch line {
			case "command=fetch", "agent=" + agent, "object-format=sha1", "":
			default:
				t.Fatalf("%q makes us send %q", body, line)
			}
		}
	})
}

func FuzzRefs(f *testing.F) {
	id := wanted().String()
	for _, seed := range []string{
		"", id + " refs/heads/main", id + " HEAD symref-target:refs/heads/main", id + " refs/tags/v1 peeled:" + id, "unborn HEAD symref-target:refs/heads/main",
		id + " refs/heads/../x", strings.Repeat("0", 40) + " refs/heads/main", id + "  refs/heads/main",
	} {
		f.Add(pktline.AppendFlush(pktline.AppendText(nil, seed)))
	}
	names := []string{"refs/heads/main", "HEAD", "refs/tags/v1"}
	f.Fuzz(func(t *testing.T, body []byte) {
		refs, err := readRefs(answerOf(t, body), names)
		if err != nil {
			wantKnown(t, err)
			return
		}
		seen := make(map[string]bool)
		for _, r := range refs {
			if !legalRef(r.Name) || r.ID.IsZero() || seen[r.Name] || r.Symref != "" && !legalRef(r.Symref) {
				t.Fatalf("%+v", r)
			}
			seen[r.Name] = true
		}
	})
}

// FuzzPlan: whatever the bytes of a tree are, a plan of it names only what
// may be written, each name once.
func FuzzPlan(f *testing.F) {
	blob := packtest.ID(object.Blob, []byte("x"))
	sub := packtest.Tree(packtest.Entry{Mode: "100644", Name: "f", ID: blob})
	subID := packtest.ID(object.Tree, sub)
	for _, seed := range [][]packtest.Entry{
		nil,
		{{Mode: "100644", Name: "a", ID: blob}, {Mode: "40000", Name: "d", ID: subID}, {Mode: "120000", Name: "l", ID: blob}},
		{{Mode: "120000", Name: "a", ID: blob}, {Mode: "100644", Name: "a.b", ID: blob}, {Mode: "40000", Name: "a", ID: subID}},
		{{Mode: "100644", Name: "A", ID: blob}, {Mode: "100644", Name: "a", ID: blob}},
		{{Mode: "160000", Name: "s", ID: blob}},
	} {
		f.Add(packtest.Tree(seed...))
	}
	f.Fuzz(func(t *testing.T, tree []byte) {
		var b packtest.Builder
		b.Object(object.Blob, []byte("x"))
		b.Object(object.Tree, sub)
		if packtest.ID(object.Tree, tree) != subID {
			b.Object(object.Tree, tree)
		}
		commit := b.Object(object.Commit, packtest.Commit(packtest.ID(object.Tree, tree)))
		req := Request{URL: "https://git.example/r", Commit: fencepost.CommitID{ObjectID: commit}, Policy: Policy{Symlinks: SymlinksInside, Gitlinks: GitlinksSkip}}
		target, err := req.checkFetch()
		if err != nil {
			t.Fatal(err)
		}
		store, err := pack.Read(&onePiece{b.Bytes()}, pack.Options{Limits: pack.Limits{
			Objects: 10, InflatedBytes: 1 << 20, DeltaDepth: 1, CommitBytes: 1 << 16, TreeBytes: 1 << 16, BlobBytes: 1 << 16,
		}})
		if err != nil {
			return // a tree over the limits
		}
		p, err := makePlan(t.Context(), target, store, nil)
		if err != nil {
			var budget *BudgetError
			err = translate(err)
			for _, known := range []error{ErrObject, ErrMissingObject, ErrExtraObject, ErrContent} {
				if errors.Is(err, known) {
					return
				}
			}
			if !errors.As(err, &budget) {
				t.Fatalf("error of no known kind: %v", err)
			}
			return
		}
		wantWritable(t, p)
	})
}

func wantWritable(t *testing.T, p *plan) {
	t.Helper()
	seen := make(map[string]bool)
	last := ""
	for i := range p.nodes[1:] {
		n := &p.nodes[i+1]
		path := pathOf(p.nodes, int32(i+1))
		key := path
		if n.mode == object.Dir {
			key += "/"
		}
		folded := pathrule.Fold(path)
		if seen[folded] || key <= last || strings.ContainsAny(n.name, "/\\:\x00") || n.name == "." || n.name == ".." || strings.EqualFold(n.name, ".git") {
			t.Fatalf("%q after %q", path, last)
		}
		seen[folded], last = true, key
		if n.parent < 0 || n.parent > int32(i) || p.nodes[n.parent].mode != object.Dir {
			t.Fatalf("%q in %d", path, n.parent)
		}
	}
}

type onePiece struct{ rest []byte }

func (s *onePiece) Next() ([]byte, error) {
	if s.rest == nil {
		return nil, io.EOF
	}
	p := s.rest
	s.rest = nil
	return p, nil
}
