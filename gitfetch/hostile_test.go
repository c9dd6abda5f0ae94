package gitfetch_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/gitfetch"
	"github.com/fencepost/fencepost/gitfetch/internal/object"
	"github.com/fencepost/fencepost/gitfetch/internal/packtest"
	"github.com/fencepost/fencepost/gitfetch/internal/pktline"
)

const (
	typeAdvertisement = "application/x-git-upload-pack-advertisement"
	typeResult        = "application/x-git-upload-pack-result"
)

// A host is a server that says what the test wants.
type host struct {
	advertisement []byte
	result        []byte
	// write, where set, writes the result in its own way.
	write func(w http.ResponseWriter, r *http.Request)
	head  func(h http.Header) // changes the headers of every answer
}

func (h *host) start(t *testing.T) string {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", typeAdvertisement)
		body := h.advertisement
		if r.Method == http.MethodPost {
			w.Header().Set("Content-Type", typeResult)
			body = h.result
			// Only with the request read does the server see the client go.
			if _, err := io.Copy(io.Discard, r.Body); err != nil {
				return
			}
		}
		if h.head != nil {
			h.head(w.Header())
		}
		if r.Method == http.MethodPost && h.write != nil {
			h.write(w, r)
			return
		}
		// The client may be gone by now.
		_, _ = w.Write(body)
	}))
	t.Cleanup(server.Close)
	return server.URL + "/r.git"
}

// advertisement is what a modern git http-backend sends.
func advertisement() []byte {
	p := pktline.AppendText(nil, "version 2")
	for _, c := range []string{"agent=git/2.39.5", "ls-refs=unborn", "fetch=shallow wait-for-done filter", "server-option", "object-format=sha1", "object-info", "bundle-uri"} {
		p = pktline.AppendText(p, c)
	}
	return pktline.AppendFlush(p)
}

// opening is a fetch answer up to the pack.
func opening(commit fencepost.ObjectID) []byte {
	p := pktline.AppendText(nil, "shallow-info")
	p = pktline.AppendText(p, "shallow "+commit.String())
	return pktline.AppendText(pktline.AppendDelim(p), "packfile")
}

func band(dst []byte, n byte, data []byte) []byte {
	for len(data) > 1000 {
		dst = pktline.AppendData(dst, append([]byte{n}, data[:1000]...))
		data = data[1000:]
	}
	return pktline.AppendData(dst, append([]byte{n}, data...))
}

func answerWith(commit fencepost.ObjectID, pack []byte) []byte {
	return pktline.AppendFlush(band(opening(commit), 1, pack))
}

// A forge builds the pack of a commit by hand, what is needed first: files,
// their directories, the commit.
type forge struct {
	b    packtest.Builder
	sent map[fencepost.ObjectID]made
}

// A made object is one of the pack's entries. Its content is there where the
// object names others.
type made struct {
	entry   int
	kind    object.Kind
	content []byte
}

func (f *forge) add(kind object.Kind, content []byte) fencepost.ObjectID {
	id := packtest.ID(kind, content)
	if _, twice := f.sent[id]; !twice {
		f.b.Object(kind, content)
		f.note(id, kind, content)
	}
	return id
}

// note keeps which object the last entry is.
func (f *forge) note(id fencepost.ObjectID, kind object.Kind, content []byte) {
	if f.sent == nil {
		f.sent = make(map[fencepost.ObjectID]made)
	}
	if kind == object.Blob {
		content = nil
	}
	f.sent[id] = made{f.b.Len() - 1, kind, content}
}

// inGitOrder returns the pack as Git's server sends one: the commit, its root,
// and then what each directory holds in the order of its entries. So files are
// written before the pack is whole. What nothing names comes last.
func (f *forge) inGitOrder(commit fencepost.ObjectID) []byte {
	placed := make([]bool, f.b.Len())
	var order []int
	var visit func(id fencepost.ObjectID)
	visit = func(id fencepost.ObjectID) {
		m, ok := f.sent[id]
		if !ok || placed[m.entry] {
			return
		}
		placed[m.entry] = true
		order = append(order, m.entry)
		switch m.kind {
		case object.Commit:
			if text, ok := bytes.CutPrefix(m.content, []byte("tree ")); ok && len(text) >= 40 {
				if tree, err := fencepost.ParseCommitID(string(text[:40])); err == nil {
					visit(tree.ObjectID)
				}
			}
		case object.Tree:
			for entries := object.NewTreeReader(m.content); ; {
				e, more, err := entries.Next()
				if err != nil || !more {
					return
				}
				visit(e.ID)
			}
		}
	}
	visit(commit)
	for i := range placed {
		if !placed[i] {
			order = append(order, i)
		}
	}
	return f.b.InOrder(order)
}

func (f *forge) blob(content string) fencepost.ObjectID { return f.add(object.Blob, []byte(content)) }

func (f *forge) tree(entries ...packtest.Entry) fencepost.ObjectID {
	return f.add(object.Tree, packtest.Tree(entries...))
}

func (f *forge) commit(tree fencepost.ObjectID) fencepost.ObjectID {
	return f.add(object.Commit, packtest.Commit(tree))
}

func file(name string, id fencepost.ObjectID) packtest.Entry {
	return packtest.Entry{Mode: "100644", Name: name, ID: id}
}

func dir(name string, id fencepost.ObjectID) packtest.Entry {
	return packtest.Entry{Mode: "40000", Name: name, ID: id}
}

// fetchFrom fetches a commit from a host and requires that nothing is left
// of it when it fails.
func fetchFrom(t *testing.T, h *host, commit fencepost.ObjectID, change func(*gitfetch.Request)) (*gitfetch.Checkout, error) {
	t.Helper()
	parent := t.TempDir()
	req := gitfetch.Request{URL: h.start(t), Commit: fencepost.CommitID{ObjectID: commit}, AllowHTTP: true, Dir: filepath.Join(parent, "out")}
	if change != nil {
		change(&req)
	}
	c, err := gitfetch.Fetch(t.Context(), req)
	left, readErr := os.ReadDir(parent)
	if readErr != nil {
		t.Fatal(readErr)
	}
	if err != nil && (len(left) != 0 || c != nil) {
		t.Errorf("a failed fetch left %v behind, and returned %v", left, c)
	}
	if err == nil {
		if err := c.Verify(t.Context()); err != nil {
			t.Errorf("verify: %v", err)
		}
	}
	return c, err
}

// good returns a small commit and its pack.
func good() (fencepost.ObjectID, []byte) {
	var f forge
	return goodTree(&f), f.b.Bytes()
}

func goodTree(f *forge) fencepost.ObjectID {
	return f.commit(f.tree(file("README", f.blob("hello\n")), dir("d", f.tree(file("x", f.blob("x"))))))
}

func TestOnlyTheClosureOfTheCommitIsTaken(t *testing.T) {
	t.Parallel()
	var absent fencepost.ObjectID
	for i := range absent {
		absent[i] = 0xab
	}
	tests := []struct {
		name  string
		build func(f *forge) (commit fencepost.ObjectID)
		want  error
	}{
		{"whole", func(f *forge) fencepost.ObjectID { return f.commit(f.tree(file("a", f.blob("a")))) }, nil},
		{"one blob under many names", func(f *forge) fencepost.ObjectID {
			b := f.blob("a")
			sub := f.tree(file("a", b), file("b", b))
			return f.commit(f.tree(dir("x", sub), dir("y", sub), file("z", b)))
		}, nil},
		{"with empty directories", func(f *forge) fencepost.ObjectID {
			return f.commit(f.tree(dir("a", f.tree()), dir("b", f.tree(dir("c", f.tree())))))
		}, nil},
		{"without the commit", func(f *forge) fencepost.ObjectID {
			f.tree(file("a", f.blob("a")))
			return absent
		}, gitfetch.ErrMissingObject},
		{"without the tree", func(f *forge) fencepost.ObjectID { return f.commit(absent) }, gitfetch.ErrMissingObject},
		{"without a subtree", func(f *forge) fencepost.ObjectID { return f.commit(f.tree(dir("d", absent))) }, gitfetch.ErrMissingObject},
		{"without a blob", func(f *forge) fencepost.ObjectID { return f.commit(f.tree(file("a", absent))) }, gitfetch.ErrMissingObject},
		{"with a blob too many", func(f *forge) fencepost.ObjectID {
			f.blob("extra")
			return f.commit(f.tree())
		}, gitfetch.ErrExtraObject},
		{"with a tree too many", func(f *forge) fencepost.ObjectID {
			f.tree(file("a", f.blob("a")))
			return f.commit(f.tree())
		}, gitfetch.ErrExtraObject},
		{"with a commit too many", func(f *forge) fencepost.ObjectID {
			t := f.tree()
			f.add(object.Commit, append(packtest.Commit(t), "another"...))
			return f.commit(t)
		}, gitfetch.ErrExtraObject},
		{"with a tag too many", func(f *forge) fencepost.ObjectID {
			c := f.commit(f.tree())
			f.add(object.Tag, []byte("object "+c.String()+"\ntype commit\ntag v1\n\n"))
			return c
		}, gitfetch.ErrExtraObject},
		{"a tag for a commit", func(f *forge) fencepost.ObjectID {
			return f.add(object.Tag, []byte("object "+f.commit(f.tree()).String()+"\ntype commit\ntag v1\n\n"))
		}, gitfetch.ErrNotCommit},
		{"a blob for a tree", func(f *forge) fencepost.ObjectID { return f.commit(f.tree(dir("d", f.blob("b")))) }, gitfetch.ErrObject},
		{"a tree for a blob", func(f *forge) fencepost.ObjectID { return f.commit(f.tree(file("f", f.tree()))) }, gitfetch.ErrObject},
		{"a commit for a blob", func(f *forge) fencepost.ObjectID {
			return f.commit(f.tree(file("f", f.add(object.Commit, append(packtest.Commit(f.tree()), 'x')))))
		}, gitfetch.ErrObject},
		{"a blob for the root", func(f *forge) fencepost.ObjectID { return f.commit(f.blob("b")) }, gitfetch.ErrObject},
		{"a commit without a tree", func(f *forge) fencepost.ObjectID { return f.add(object.Commit, []byte("author A\n\n")) }, gitfetch.ErrObject},
		{"a tree out of order", func(f *forge) fencepost.ObjectID {
			b := f.blob("b")
			return f.commit(f.tree(file("b", b), file("a", b)))
		}, gitfetch.ErrObject},
		{"a mode out of the five", func(f *forge) fencepost.ObjectID {
			return f.commit(f.tree(packtest.Entry{Mode: "100664", Name: "a", ID: f.blob("b")}))
		}, gitfetch.ErrObject},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var f forge
			commit := tt.build(&f)
			_, err := fetchFrom(t, &host{advertisement: advertisement(), result: answerWith(commit, f.b.Bytes())}, commit, nil)
			if !errors.Is(err, tt.want) {
				t.Errorf("err = %v, want %v", err, tt.want)
			}
			if err != nil && fencepost.ReasonOf(err) != fencepost.ReasonAcquisition {
				t.Errorf("reason %s", fencepost.ReasonOf(err))
			}
		})
	}
}

// TestHostileTrees has what no Git would make. The rest of the names is in
// the table that the package pathrule tests.
func TestHostileTrees(t *testing.T) {
	t.Parallel()
	link := func(name string, id fencepost.ObjectID) packtest.Entry {
		return packtest.Entry{Mode: "120000", Name: name, ID: id}
	}
	tests := []struct {
		name  string
		build func(f *forge) fencepost.ObjectID
		rule  string
	}{
		{"a slash in a name", func(f *forge) fencepost.ObjectID { return f.tree(file("a/b", f.blob("x"))) }, "slash"},
		{"a way up", func(f *forge) fencepost.ObjectID { return f.tree(dir("..", f.tree(file("x", f.blob("x"))))) }, "dots"},
		{"an absolute name", func(f *forge) fencepost.ObjectID { return f.tree(file("/etc/passwd", f.blob("x"))) }, "slash"},
		{"a .git", func(f *forge) fencepost.ObjectID {
			return f.tree(dir(".GiT", f.tree(dir("hooks", f.tree(file("post-checkout", f.blob("x")))))))
		}, "dotgit"},
		{"a file and a directory of one name, not side by side", func(f *forge) fencepost.ObjectID {
			return f.tree(file("foo", f.blob("x")), file("foo.bar", f.blob("x")), dir("foo", f.tree(file("y", f.blob("y")))))
		}, "duplicate"},
		{"a link and a directory of one name", func(f *forge) fencepost.ObjectID {
			return f.tree(link("a", f.blob("/tmp")), file("a.x", f.blob("x")), dir("a", f.tree(file("y", f.blob("y")))))
		}, "duplicate"},
		{"a link and a directory that only case tells apart", func(f *forge) fencepost.ObjectID {
			return f.tree(link("A", f.blob("/tmp")), dir("a", f.tree(file("y", f.blob("y")))))
		}, "collision"},
		{"an empty link", func(f *forge) fencepost.ObjectID { return f.tree(link("l", f.blob(""))) }, "link-target"},
		{"a link with a NUL", func(f *forge) fencepost.ObjectID { return f.tree(link("l", f.blob("a\x00b"))) }, "link-target"},
		{"a directory named .gitmodules", func(f *forge) fencepost.ObjectID { return f.tree(dir(".gitmodules", f.tree())) }, "gitmodules"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var f forge
			commit := f.commit(tt.build(&f))
			_, err := fetchFrom(t, &host{advertisement: advertisement(), result: answerWith(commit, f.b.Bytes())}, commit, func(r *gitfetch.Request) {
				r.Policy.Symlinks = gitfetch.SymlinksInside
			})
			wantPathError(t, err, tt.rule)
		})
	}
}

func TestALocalFailureIsUnavailableAndShowsNoPath(t *testing.T) {
	t.Parallel()
	commit, pack := good()
	h := &host{advertisement: advertisement(), result: answerWith(commit, pack)}
	w, err := gitfetch.OpenWorkspace(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	req := gitfetch.Request{URL: h.start(t), Commit: fencepost.CommitID{ObjectID: commit}, AllowHTTP: true}
	c, err := w.Fetch(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	own := filepath.Dir(c.Root())
	if err := os.RemoveAll(own); err != nil {
		t.Fatal(err)
	}
	_, err = w.Fetch(t.Context(), req)
	if !errors.Is(err, fs.ErrNotExist) || fencepost.ReasonOf(err) != fencepost.ReasonUnavailable || strings.Contains(err.Error(), own) {
		t.Errorf("err = %v with reason %s, want %v", err, fencepost.ReasonOf(err), fs.ErrNotExist)
	}
	if err := w.Close(); err != nil {
		t.Error(err)
	}
	if _, err := w.Fetch(t.Context(), req); !errors.Is(err, gitfetch.ErrRequest) {
		t.Errorf("after Close: err = %v, want %v", err, gitfetch.ErrRequest)
	}
}

func TestAFetchThatIsCancelledWhileItWritesLeavesNothing(t *testing.T) {
	t.Parallel()
	var f forge
	var entries []packtest.Entry
	for i := range 2000 {
		entries = append(entries, dir(fmt.Sprintf("d%04d", i), f.tree(file("f", f.blob(fmt.Sprint(i))))))
	}
	commit := f.commit(f.tree(entries...))
	h := &host{advertisement: advertisement(), result: answerWith(commit, f.b.Bytes())}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	parent := t.TempDir()
	var files int64
	_, err := gitfetch.Fetch(ctx, gitfetch.Request{
		URL: h.start(t), Commit: fencepost.CommitID{ObjectID: commit}, AllowHTTP: true, Dir: filepath.Join(parent, "out"),
		Progress: func(p gitfetch.Progress) {
			if files = p.Files; files > 0 {
				cancel()
			}
		},
	})
	if !errors.Is(err, context.Canceled) || fencepost.ReasonOf(err) != fencepost.ReasonUnavailable || files == 2000 {
		t.Errorf("err = %v (%s) after %d files", err, fencepost.ReasonOf(err), files)
	}
	if left, err := os.ReadDir(parent); err != nil || len(left) != 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// inTurn answers with one after the other, and then with the last.
func inTurn(answers ...[]byte) func(http.ResponseWriter, *http.Request) {
	var mu sync.Mutex
	return func(w http.ResponseWriter, _ *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		_, _ = w.Write(answers[0])
		if len(answers) > 1 {
			answers = answers[1:]
		}
	}
}
