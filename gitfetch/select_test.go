package gitfetch_test

import (
	"errors"
	"fmt"
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
	"github.com/google/go-cmp/cmp"
)

func under(dirs ...string) func(string) bool {
	return func(path string) bool {
		for _, d := range dirs {
			if path == d || strings.HasPrefix(path, d+"/") {
				return true
			}
		}
		return false
	}
}

func TestOnlyWhatIsSelectedIsWritten(t *testing.T) {
	t.Parallel()
	s := gitserver.New(t)
	for _, filter := range []bool{true, false} {
		repo := filtering(t, s, filter)
		base := append(many(60),
			gitserver.Entry{Path: "docs/a/deep/page", Content: "page"},
			gitserver.Entry{Path: "docs/run", Mode: "100755", Content: "run"},
			gitserver.Entry{Path: "docs/in", Mode: "120000", Content: "a/deep/page"},
			gitserver.Entry{Path: "docs/out", Mode: "120000", Content: "../d01/s1/f1"},
			gitserver.Entry{Path: "docs/module", Mode: "160000", Content: strings.Repeat("ab", 20)},
			gitserver.Entry{Path: "docs/same", Content: "twice"},
			gitserver.Entry{Path: "other/same", Content: "twice"},
			gitserver.Entry{Path: "large", Content: strings.Repeat("0123456789abcdef", 1<<14)},
		)
		commit := repo.Commit(t, "main", base)
		tests := []struct {
			name   string
			choose func(string) bool
			want   []string
		}{
			{"a directory", under("docs"), []string{
				"docs drwx------ ", "docs/a drwx------ ", "docs/a/deep drwx------ ", "docs/a/deep/page -r--r--r-- page",
				"docs/in Lrwxrwxrwx a/deep/page", "docs/out Lrwxrwxrwx ../d01/s1/f1", "docs/run -r-xr-xr-x run", "docs/same -r--r--r-- twice",
			}},
			{"a file", under("docs/a/deep/page"), []string{"docs drwx------ ", "docs/a drwx------ ", "docs/a/deep drwx------ ", "docs/a/deep/page -r--r--r-- page"}},
			{"nothing", under(), nil},
		}
		for _, tt := range tests {
			t.Run(fmt.Sprint(tt.name, ", filter ", filter), func(t *testing.T) {
				t.Parallel()
				req := request(repo, commit)
				req.Policy = gitfetch.Policy{Symlinks: gitfetch.SymlinksInside, Gitlinks: gitfetch.GitlinksSkip}
				req.Select = tt.choose
				c := fetch(t, req)
				if diff := cmp.Diff(tt.want, onDisk(t, c.Root())); diff != "" {
					t.Errorf("on disk (-want +got):\n%s", diff)
				}
				st := c.Stats()
				var files int64
				for f := range c.Files() {
					if files++; !tt.choose(f.Path) {
						t.Errorf("%s is among the files", f.Path)
					}
				}
				if st.Files != files || st.LeftOut != int64(len(base))-1-files || st.Filtered != filter || st.Incremental || st.Fallback != "" {
					t.Errorf("%+v with %d files", st, files)
				}
				if _, ok := c.Lookup("large"); ok {
					t.Error("what was left out is found")
				}
				if limit := int64(20_000); filter && st.WireBytes > limit {
					t.Errorf("%d bytes came, want at most %d", st.WireBytes, limit)
				}
				if c.Tree().String() != repo.Git(t, "rev-parse", commit.String()+"^{tree}") || len(c.Skipped()) != 1 {
					t.Errorf("tree %s, skipped %v", c.Tree(), c.Skipped())
				}
				if err := os.WriteFile(filepath.Join(c.Root(), "large"), nil, 0o444); err != nil {
					t.Fatal(err)
				}
				if err := c.Verify(t.Context()); !errors.Is(err, gitfetch.ErrAltered) {
					t.Errorf("with a file that was left out: %v", err)
				}
			})
		}
	}
}

// TestWhatIsLeftOutIsStillJudged: its name, and its kind.
func TestWhatIsLeftOutIsStillJudged(t *testing.T) {
	t.Parallel()
	s := gitserver.New(t)
	repo := filtering(t, s, true)
	for i, bad := range []gitserver.Entry{{Path: "x/link", Mode: "120000", Content: "y"}, {Path: "x/aux", Content: ""}, {Path: "x/module", Mode: "160000", Content: strings.Repeat("ab", 20)}} {
		req := request(repo, repo.Commit(t, fmt.Sprint("b", i), append(sample(), bad)))
		req.Select = under("a")
		_, err := workspace(t).Fetch(t.Context(), req)
		path, ok := errors.AsType[*gitfetch.PathError](err)
		if !ok || path.Path != bad.Path {
			t.Errorf("%s: %v", bad.Path, err)
		}
	}
}

// TestSelectionsOnTopOfEarlierOnes goes from every selection to every other.
func TestSelectionsOnTopOfEarlierOnes(t *testing.T) {
	t.Parallel()
	s := gitserver.New(t)
	for _, filter := range []bool{true, false} {
		repo := filtering(t, s, filter)
		base := many(60)
		first := repo.Commit(t, "main", base)
		second := repo.Commit(t, "main", change(base, set("d01/s1/f1", "", "other\n"), set("d02/s2/f2", "", strings.Repeat(fmt.Sprintln("line", 2*7919), 40)+"more"), rename("d03", "d01/d03")), first)
		repo.Git(t, "repack", "-adq")
		selections := map[string]func(string) bool{"all": nil, "d01": under("d01"), "d02": under("d02"), "d01 and d02": under("d01", "d02"), "nothing": under()}
		for from, before := range selections {
			for to, after := range selections {
				t.Run(fmt.Sprintf("%s to %s, filter %v", from, to, filter), func(t *testing.T) {
					t.Parallel()
					req := request(repo, first)
					req.Select = before
					had := fetch(t, req)
					req.Commit, req.Select = second, after
					want := fetch(t, req)
					req.Have = have(t, had)
					got := fetch(t, req)
					if diff := cmp.Diff(onDisk(t, want.Root()), onDisk(t, got.Root())); diff != "" {
						t.Errorf("(-plain +incremental):\n%s", diff)
					}
					st := got.Stats()
					fallback := gitfetch.Fallback("")
					if before != nil && !filter {
						fallback = gitfetch.FallbackFilter
					}
					if st.Fallback != fallback || st.Incremental != (fallback == "") || st.LeftOut != want.Stats().LeftOut {
						t.Errorf("%+v, want fallback %q", st, fallback)
					}
					if err := manifest(t, got).Verify(t.Context(), got.Root()); err != nil {
						t.Errorf("by its manifest: %v", err)
					}
				})
			}
		}
	}
}

// TestAServerThatGivesOutNoBlobsCostsAPlainFetch, as one does that lies about
// what it leaves out.
func TestAServerThatGivesOutNoBlobsCostsAPlainFetch(t *testing.T) {
	t.Parallel()
	var f forge
	blob := f.blob("hello\n")
	commit := f.commit(f.tree(file("README", blob), dir("d", f.tree(file("x", f.blob("x"))))))
	whole := answerWith(commit, f.b.Bytes())
	var trees packtest.Builder
	sub := packtest.Tree(file("x", packtest.ID(object.Blob, []byte("x"))))
	root := packtest.Tree(file("README", blob), dir("d", packtest.ID(object.Tree, sub)))
	trees.Object(object.Tree, sub)
	trees.Object(object.Tree, root)
	trees.Object(object.Commit, packtest.Commit(packtest.ID(object.Tree, root)))
	blobs := func(contents ...string) []byte {
		var b packtest.Builder
		for _, c := range contents {
			b.Object(object.Blob, []byte(c))
		}
		return pktline.AppendFlush(band(pktline.AppendText(nil, "packfile"), 1, b.Bytes()))
	}
	tests := []struct {
		name     string
		blobs    []byte
		fallback gitfetch.Fallback
	}{
		{"what was asked for", blobs("hello\n"), ""},
		{"an error", pktline.AppendText(nil, "ERR upload-pack: not our ref "+blob.String()), gitfetch.FallbackAnswer},
		{"nothing", nil, gitfetch.FallbackAnswer},
		{"an empty pack", blobs(), gitfetch.FallbackAnswer},
		{"another blob", blobs("evil\n"), gitfetch.FallbackAnswer},
		{"one more", blobs("hello\n", "more"), gitfetch.FallbackAnswer},
		{"one twice", blobs("hello\n", "hello\n"), gitfetch.FallbackAnswer},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			h := &host{advertisement: advertisement(), write: inTurn(answerWith(commit, trees.Bytes()), tt.blobs, whole)}
			c := fetch(t, gitfetch.Request{URL: h.start(t), Commit: fencepost.CommitID{ObjectID: commit}, AllowHTTP: true, Select: under("README")})
			if diff := cmp.Diff([]string{"README -r--r--r-- hello\n"}, onDisk(t, c.Root())); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			st := c.Stats()
			if st.Fallback != tt.fallback || st.Filtered != (tt.fallback == "") || st.LeftOut != 1 {
				t.Errorf("%+v, want fallback %q", st, tt.fallback)
			}
		})
	}
}
