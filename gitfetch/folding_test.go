package gitfetch_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/gitfetch"
)

// foldingDir, where set, names a directory on a file system that takes names
// for one that differ in letter case alone. A model of one is tested always;
// this is for real ones, in record runs.
const foldingDir = "FENCEPOST_FOLDING"

func folding(t *testing.T) string {
	t.Helper()
	base := os.Getenv(foldingDir)
	if base == "" {
		t.Skipf("a record run: %s names no directory", foldingDir)
	}
	dir, err := os.MkdirTemp(base, "folding-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	if err := os.WriteFile(filepath.Join(dir, "probe"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "PROBE")); err != nil {
		t.Fatalf("%s does not fold names: %v", base, err)
	}
	return dir
}

func TestOnAFileSystemThatFoldsNames(t *testing.T) {
	base := folding(t)
	for _, f := range corpus() {
		switch f.on {
		case "tree", "name", "link":
		default:
			continue
		}
		for _, a := range f.attacks {
			t.Run(a.name, func(t *testing.T) {
				outer, err := os.MkdirTemp(base, "outer-")
				if err != nil {
					t.Fatal(err)
				}
				a.runIn(t, outer)
			})
		}
	}
	// The lax policy lets through what this file system can't keep apart. It
	// must fail here, and change nothing.
	lax := func(r *gitfetch.Request) { inside(r); r.Policy.Names = gitfetch.NamesPOSIX }
	collisions := map[string]func(f *forge) fencepost.ObjectID{
		"two files": func(f *forge) fencepost.ObjectID { return f.tree(file("A", f.blob("1")), file("a", f.blob("2"))) },
		"two directories": func(f *forge) fencepost.ObjectID {
			return f.tree(dir("D", f.tree(file("x", f.blob("1")))), dir("d", f.tree(file("y", f.blob("2")))))
		},
		"a link and a directory": func(f *forge) fencepost.ObjectID {
			return f.tree(link("A", f.blob(".")), dir("a", f.tree(file("x", f.blob("1")))))
		},
		"a link and a file": func(f *forge) fencepost.ObjectID { return f.tree(link("A", f.blob("b")), file("a", f.blob("1"))) },
		"two links":         func(f *forge) fencepost.ObjectID { return f.tree(link("A", f.blob("b")), link("a", f.blob("c"))) },
	}
	for name, root := range collisions {
		t.Run(name, func(t *testing.T) {
			outer, err := os.MkdirTemp(base, "outer-")
			if err != nil {
				t.Fatal(err)
			}
			s := rooted(root, lax)(t)[0]
			before := snapshot(t, outer)
			req := gitfetch.Request{URL: s.url, Commit: fencepost.CommitID{ObjectID: s.commit}, AllowHTTP: true, Dir: filepath.Join(outer, "out")}
			s.change(&req)
			_, err = gitfetch.Fetch(t.Context(), req)
			if !errors.Is(err, fs.ErrExist) || fencepost.ReasonOf(err) != fencepost.ReasonUnavailable {
				t.Errorf("err = %v (%s), want %v", err, fencepost.ReasonOf(err), fs.ErrExist)
			}
			if after := snapshot(t, outer); len(after) != len(before) {
				t.Errorf("left behind: %q", after)
			}
		})
	}
}

// TestLinksStayInsideOnAFileSystemThatFoldsNames makes trees whose links
// meet other names only by letter case, and follows each with the system.
func TestLinksStayInsideOnAFileSystemThatFoldsNames(t *testing.T) {
	base := folding(t)
	made, refused := 0, 0
	for i, text := range []string{"UP", "UP/x", "../A/UP/x", "B/C/D", "b/../B", "../a/b/../B/C", "b/c/../../UP", "NO/../UP", "b/NO", "../A", "b/C/../.."} {
		s := rooted(func(f *forge) fencepost.ObjectID {
			return f.tree(dir("a", f.tree(
				dir("b", f.tree(dir("c", f.tree(file("d", f.blob(fmt.Sprint(i))))))), link("l", f.blob(text)), link("up", f.blob("..")))))
		}, inside)(t)[0]
		req := gitfetch.Request{URL: s.url, Commit: fencepost.CommitID{ObjectID: s.commit}, AllowHTTP: true, Dir: filepath.Join(base, fmt.Sprint("out", i))}
		s.change(&req)
		c, err := gitfetch.Fetch(t.Context(), req)
		if err != nil {
			wantPathError(t, err, "link-escape")
			refused++
			continue
		}
		made++
		to, err := filepath.EvalSymlinks(filepath.Join(c.Root(), "a", "l"))
		if root, _ := filepath.EvalSymlinks(c.Root()); err == nil && to != root && !strings.HasPrefix(to, root+string(filepath.Separator)) {
			t.Errorf("%q leads to %s, outside %s", text, to, root)
		} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%q: %v", text, err)
		}
		if err := errors.Join(c.Verify(t.Context()), c.Remove()); err != nil {
			t.Error(err)
		}
	}
	t.Logf("%d made and followed, %d refused", made, refused)
	if made < 4 || refused < 2 {
		t.Errorf("%d made, %d refused: the test shows nothing", made, refused)
	}
}
