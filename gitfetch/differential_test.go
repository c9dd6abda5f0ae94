package gitfetch_test

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/gitfetch"
	"github.com/fencepost/fencepost/gitfetch/internal/gitserver"
	"github.com/google/go-cmp/cmp"
)

const (
	// differential, where set, is how many trees are compared.
	differential      = "FENCEPOST_DIFFERENTIAL"
	shortDifferential = 18 // each kind once, and six modules
)

// TestEveryCheckoutIsGitsOrIsRefusedByName compares checkouts with what git
// checkout makes of the same commit where no attribute is acted upon: of
// trees that Git makes, of a dozen kinds, and of modules in this machine's
// module cache.
func TestEveryCheckoutIsGitsOrIsRefusedByName(t *testing.T) {
	t.Parallel()
	trees := shortDifferential
	if text := os.Getenv(differential); text != "" {
		var err error
		if trees, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
	}
	s := gitserver.New(t)
	modules := moduleDirs(t)
	seeded := func() *rand.Rand { return rand.New(rand.NewPCG(2026, 11)) }
	// With chance of its own: the trees do not depend on how many modules
	// there are.
	seeded().Shuffle(len(modules), func(i, j int) { modules[i], modules[j] = modules[j], modules[i] })
	rnd := seeded()
	kinds := treeKinds()
	tally := make(map[string]int)
	for i := range trees {
		repo := s.Repo(t, fmt.Sprintf("r%d.git", i))
		var commit fencepost.CommitID
		what := "module"
		if i%3 == 2 && len(modules) > 0 {
			commit = importDir(t, repo, modules[0])
			modules = modules[1:]
		} else {
			kind := kinds[(i-i/3)%len(kinds)]
			what = kind.name
			commit = kind.build(t, repo, rnd)
		}
		tally[compare(t, fmt.Sprintf("%d, %s", i, what), repo, commit)]++
		if err := os.RemoveAll(repo.Dir); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%d trees: %v", trees, tally)
	if tally["same"] < trees/2 || tally["same"] == trees {
		t.Errorf("%v: both ways to end must be met", tally)
	}
}

// compare returns how one tree ended: "same", or the rule it was refused by.
func compare(t *testing.T, what string, repo *gitserver.Repo, commit fencepost.CommitID) string {
	t.Helper()
	req := request(repo, commit)
	req.Policy = gitfetch.Policy{Symlinks: gitfetch.SymlinksInside, Gitlinks: gitfetch.GitlinksSkip}
	w, err := gitfetch.OpenWorkspace(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	}()
	c, err := w.Fetch(t.Context(), req)
	if err != nil {
		path, ok := errors.AsType[*gitfetch.PathError](err)
		if !ok || repo.Git(t, "-c", "core.quotePath=false", "ls-tree", "-rt", "--name-only", "-z", commit.String(), "--", ":(literal)"+path.Path) == "" {
			t.Errorf("%s: err = %v, want a rule and a path of the tree", what, err)
			return "error"
		}
		return path.Rule
	}
	work := t.TempDir()
	if err := os.WriteFile(filepath.Join(repo.Dir, "info", "attributes"), []byte("* -text -eol -ident -filter -working-tree-encoding\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if repo.Git(t, "ls-tree", commit.String()) != "" {
		repo.Git(t, "-c", "core.symlinks=true", "-c", "core.protectNTFS=false", "-c", "core.precomposeUnicode=false", "--work-tree="+work, "checkout", "-q", "-f", commit.String(), "--", ".")
	}
	if diff := cmp.Diff(digests(t, work), digests(t, c.Root())); diff != "" {
		t.Errorf("%s: (-git +ours):\n%s", what, diff)
		return "different"
	}
	if err := c.Verify(t.Context()); err != nil {
		t.Errorf("%s: %v", what, err)
	}
	return "same"
}

// digests lists the files and links below a directory: path, whether a
// program, content. Directories that hold none are left out: Git makes one for
// a submodule, and none for an empty tree.
func digests(t *testing.T, root string) []string {
	t.Helper()
	var got []string
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		if d.Type() == fs.ModeSymlink {
			text, err := os.Readlink(path)
			got = append(got, fmt.Sprintf("%q -> %q", rel, text))
			return err
		}
		content, err := os.ReadFile(path)
		got = append(got, fmt.Sprintf("%q %v %x", rel, info.Mode()&0o100 != 0, sha256.Sum256(content)))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// moduleDirs returns the modules that the build of this one has unpacked.
func moduleDirs(t *testing.T) []string {
	t.Helper()
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "all").Output()
	if err != nil {
		t.Fatal(err)
	}
	var dirs []string
	for dir := range strings.FieldsSeq(string(out)) {
		if strings.Contains(filepath.Base(dir), "@") {
			dirs = append(dirs, dir)
		}
	}
	return dirs
}

// importDir commits a directory as it stands.
func importDir(t *testing.T, repo *gitserver.Repo, dir string) fencepost.CommitID {
	t.Helper()
	index := "--work-tree=" + dir
	repo.Git(t, "-c", "core.autocrlf=false", index, "add", "-A", "-f", ".")
	tree := repo.Git(t, "write-tree")
	commit := repo.Git(t, "commit-tree", "-m", "m", tree)
	repo.Git(t, "update-ref", "refs/heads/main", commit)
	return repo.Head(t, "main")
}

// A treeKind makes repositories of one sort, each another one.
type treeKind struct {
	name  string
	build func(t *testing.T, repo *gitserver.Repo, rnd *rand.Rand) fencepost.CommitID
}

func treeKinds() []treeKind {
	// with is a commit of files of chance and some more.
	with := func(more func(rnd *rand.Rand) []gitserver.Entry) func(*testing.T, *gitserver.Repo, *rand.Rand) fencepost.CommitID {
		return func(t *testing.T, repo *gitserver.Repo, rnd *rand.Rand) fencepost.CommitID {
			return repo.Commit(t, "main", append(chanceFiles(rnd), more(rnd)...))
		}
	}
	type list = []gitserver.Entry
	const module = "1234567890123456789012345678901234567890"
	return []treeKind{
		{"files", with(func(*rand.Rand) list { return nil })},
		{"renames", func(t *testing.T, repo *gitserver.Repo, rnd *rand.Rand) fencepost.CommitID {
			files := chanceFiles(rnd)
			head := repo.Commit(t, "main", files)
			for i := range files {
				if rnd.IntN(2) == 0 {
					files[i].Path = fmt.Sprintf("moved/%d/%s", i, files[i].Path)
					files[i].Content += "and more\n"
				}
			}
			head = repo.Commit(t, "main", files, head)
			repo.Git(t, "repack", "-adfq", "--depth=50", "--window=50")
			return head
		}},
		{"a merge of several", func(t *testing.T, repo *gitserver.Repo, rnd *rand.Rand) fencepost.CommitID {
			base := repo.Commit(t, "main", chanceFiles(rnd))
			parents := []fencepost.CommitID{base}
			for i := range 1 + rnd.IntN(7) {
				parents = append(parents, repo.Commit(t, fmt.Sprint("side", i), chanceFiles(rnd), base))
			}
			return repo.Commit(t, "merge", chanceFiles(rnd), parents...)
		}},
		{"submodules", with(func(*rand.Rand) list {
			return list{{Path: ".gitmodules", Content: "[submodule \"s\"]\n\tpath = s\n\turl = ../s\n"}, {Path: "s", Mode: "160000", Content: module}, {Path: "deep/er/s", Mode: "160000", Content: module}}
		})},
		{"LFS pointers", with(func(*rand.Rand) list {
			return list{{Path: ".gitattributes", Content: "*.bin filter=lfs diff=lfs merge=lfs -text\n*.txt eol=crlf\n*.id ident\n*.u16 working-tree-encoding=UTF-16\n"},
				{Path: "big.bin", Content: "version https://git-lfs.github.com/spec/v1\noid sha256:" + strings.Repeat("0", 64) + "\nsize 12345\n"},
				{Path: "lf.txt", Content: "a\nb\n"}, {Path: "x.id", Content: "$Id$\n"}, {Path: "t.u16", Content: "text\n"}}
		})},
		{"Unicode forms", with(func(rnd *rand.Rand) list {
			l := list{{Path: "nfc/caf\u00e9", Content: "1"}, {Path: "nfd/cafe\u0301", Content: "2"}, {Path: "\u65e5\u672c\u8a9e/\U0001f984.txt", Content: "3"}, {Path: "\u0130stanbul/\u1e9e", Content: "4"}}
			if rnd.IntN(3) == 0 {
				l = append(l, gitserver.Entry{Path: "nfc/cafe\u0301", Content: "5"}) // folds to its sibling
			}
			return l
		})},
		{"links", with(func(rnd *rand.Rand) list {
			l := list{{Path: "l/to/README", Content: "r"}, {Path: "l/up", Mode: "120000", Content: "to/README"}, {Path: "l/to/dir", Mode: "120000", Content: ".."},
				{Path: "l/dangling", Mode: "120000", Content: "no/where"}, {Path: "l/chain", Mode: "120000", Content: "to/dir/to/README"}}
			if rnd.IntN(3) == 0 {
				l = append(l, gitserver.Entry{Path: "l/out", Mode: "120000", Content: []string{"/etc/passwd", "../../x", "../l/no/../../x"}[rnd.IntN(3)]})
			}
			return l
		})},
		{"empty trees and programs", func(t *testing.T, repo *gitserver.Repo, rnd *rand.Rand) fencepost.CommitID {
			head := repo.Commit(t, "main", append(chanceFiles(rnd), gitserver.Entry{Path: "bin/run", Mode: "100755", Content: "#!/bin/sh\n"}, gitserver.Entry{Path: "empty", Content: ""}))
			repo.Import(t, fmt.Sprintf("commit refs/heads/main\ncommitter A <a@example.org> 1800000000 +0000\ndata 1\nm\nfrom %s\nM 040000 4b825dc642cb6eb9a060e54bf8d69288fbee4904 void\n", head))
			return repo.Head(t, "main")
		}},
		{"a large file", with(func(rnd *rand.Rand) list {
			large := make([]byte, 1<<20+rnd.IntN(7<<20))
			for i := 0; i < len(large); i += 64 {
				large[i] = byte(rnd.Uint32())
			}
			return list{{Path: "large", Content: string(large)}}
		})},
		{"names for others", with(func(rnd *rand.Rand) list {
			odd := []string{"a:b", "aux.c", "trailing ", "dot.", "back\\slash", "what?", "Make\x01file", "git~1", "sub/.GIT/x", "com1"}
			fine := list{{Path: "with space/- -f/--help", Content: "1"}, {Path: "'quote'/$HOME/`id`", Content: "2"}, {Path: ".hidden/..double/...x", Content: "3"}, {Path: strings.Repeat("long", 60), Content: "4"}}
			if rnd.IntN(2) == 0 {
				fine = append(fine, gitserver.Entry{Path: odd[rnd.IntN(len(odd))], Content: "5"})
			}
			return fine
		})},
		{"deep", with(func(rnd *rand.Rand) list {
			return list{{Path: strings.Repeat("d/", 20+rnd.IntN(40)) + "f", Content: "deep"}}
		})},
		{"nothing", func(t *testing.T, repo *gitserver.Repo, _ *rand.Rand) fencepost.CommitID {
			return repo.Commit(t, "main", nil)
		}},
	}
}

// chanceFiles are some files of some directories, text and bytes.
func chanceFiles(rnd *rand.Rand) []gitserver.Entry {
	var files []gitserver.Entry
	var paths []string
	for i := range 5 + rnd.IntN(30) {
		path := fmt.Sprintf("d%d/e%d/f%d", rnd.IntN(4), rnd.IntN(4), i)
		if slices.Contains(paths, path) {
			continue
		}
		paths = append(paths, path)
		content := make([]byte, rnd.IntN(2000))
		for j := range content {
			content[j] = byte(rnd.Uint32())
		}
		text := strings.Repeat(fmt.Sprintln("line", rnd.IntN(50)), rnd.IntN(60))
		mode := ""
		if rnd.IntN(5) == 0 {
			mode = "100755"
		}
		files = append(files, gitserver.Entry{Path: path, Mode: mode, Content: text + string(content[:rnd.IntN(len(content)+1)])})
	}
	return files
}
