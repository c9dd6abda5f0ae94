package sink

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/source"
)

func TestReadersSeeTheNewTreeWhole(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	if _, err := os.Lstat(b.path); !errors.Is(err, os.ErrNotExist) {
		t.Fatalf("a probe made something that readers see: %v", err)
	}
	first := files{"a.md": "one", "dir/b.sh*": "#!", "dir/to-b@": "b.sh", "dir/deep/c": ""}
	got := b.apply(b.repo.commit(t, first), 1)
	b.serves(first)
	if got.Unchanged || got.Counts.Files != 4 || got.Counts.Bytes != int64(len("one")+len("#!")+len("b.sh")) {
		t.Errorf("applied = %+v", got)
	}
	second := files{"a.md": "two", "e": "new"}
	b.apply(b.repo.commit(t, second), 2)
	b.serves(second)
	if dirs, others := b.trees(); len(dirs) != 2 || len(others) < 2 {
		t.Errorf("trees = %v, others = %v", dirs, others)
	}
}

func TestReadersMayEnterWhateverTheUmaskIs(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		mode              os.FileMode
		pass, dir         os.FileMode
		file, program, at os.FileMode
	}{
		"everybody": {0o755, 0o711, 0o755, 0o444, 0o555, 0},
		"group":     {0o750, 0o710, 0o750, 0o440, 0o550, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, func(o *DirectoryOptions) { o.DirMode = c.mode })
			o, err := b.sink.enter()
			must(t, err)
			o.chmod = true // as under a umask of 0077, which belongs to the whole process
			a := b.application(b.sink, b.repo.commit(t, files{"x/f": "", "x/p*": ""}), 1)
			must(t, os.Chmod(filepath.Join(a.Checkout.Root(), "x/f"), 0o400))
			must(t, os.Chmod(filepath.Join(a.Checkout.Root(), "x/p"), 0o500))
			_, err = b.sink.Apply(t.Context(), a)
			must(t, err)
			holding := filepath.Join(filepath.Dir(b.path), ".served.fencepost")
			for path, want := range map[string]os.FileMode{
				holding: c.pass, filepath.Join(holding, "trees"): c.pass, b.path: c.dir,
				filepath.Join(b.path, "x"): c.dir, filepath.Join(b.path, "x/f"): c.file, filepath.Join(b.path, "x/p"): c.program,
				filepath.Join(holding, "state.json"): 0o600, filepath.Join(holding, "lock"): 0o600,
			} {
				info, err := os.Stat(path)
				must(t, err)
				if info.Mode().Perm() != want {
					t.Errorf("%s has mode %04o, want %04o", filepath.Base(path), info.Mode().Perm(), want)
				}
			}
		})
	}
}

// TestATreeIsMadeOnTopOfTheOneBefore holds that what did not change is shared
// with the tree that is served, and that the counts say what changed.
func TestATreeIsMadeOnTopOfTheOneBefore(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	b.apply(b.repo.commit(t, files{"same/a": "1", "same/p*": "2", "changed": "3", "gone": "4"}), 1)
	info, err := os.Stat(filepath.Join(b.path, "same/a"))
	must(t, err)
	a := b.application(b.sink, b.repo.commit(t, files{"same/a": "1", "same/p*": "2", "changed": "5", "new/x": "6"}), 2)
	if s := a.Checkout.Stats(); !s.Incremental || s.LinkedFiles != 2 {
		t.Errorf("the fetch was not made on top of what is served: %+v", s)
	}
	got, err := b.sink.Apply(t.Context(), a)
	must(t, err)
	if c := got.Counts; c.Files != 4 || c.Added != 1 || c.Changed != 1 || c.Removed != 1 {
		t.Errorf("counts = %+v", c)
	}
	after, err := os.Stat(filepath.Join(b.path, "same/a"))
	must(t, err)
	if !os.SameFile(info, after) {
		t.Error("an unchanged file was written anew")
	}
	b.serves(files{"same/a": "1", "same/p*": "2", "changed": "5", "new/x": "6"})
	// A damaged manifest costs a whole fetch and nothing else.
	id := filepath.Base(filepath.Dir(mustLink(t, b.path) + "/x"))
	write(t, filepath.Join(filepath.Dir(b.path), ".served.fencepost/trees", id+".manifest"), "fpman")
	a = b.application(b.sink, b.repo.commit(t, files{"same/a": "1"}), 3)
	if a.Checkout.Stats().Incremental {
		t.Error("a damaged manifest was used")
	}
	_, err = b.sink.Apply(t.Context(), a)
	must(t, err)
	b.serves(files{"same/a": "1"})
}

func mustLink(t testing.TB, path string) string {
	t.Helper()
	text, err := os.Readlink(path)
	must(t, err)
	return text
}

func TestContentIsSelectedAndMounted(t *testing.T) {
	t.Parallel()
	tree := files{"README": "r", "site/index.html": "i", "site/a/b.md": "b", "site/a/draft.md": "d", "site/only/draft.md": "x", "src/x.go": "x"}
	for name, c := range map[string]struct {
		content Content
		want    files
		detail  string
	}{
		"all":                              {Content{}, tree, ""},
		"include":                          {Content{Include: []string{"*", "src/**"}}, files{"README": "r", "src/x.go": "x"}, ""},
		"exclude":                          {Content{Exclude: []string{"**/draft.md", "src/**"}}, files{"README": "r", "site/index.html": "i", "site/a/b.md": "b"}, ""},
		"mount":                            {Content{Mount: "site", Exclude: []string{"**/draft.md"}}, files{"index.html": "i", "a/b.md": "b"}, ""},
		"mount within":                     {Content{Mount: "site/a", Require: []string{"site/a/*.md"}}, files{"b.md": "b", "draft.md": "d"}, ""},
		"require":                          {Content{Require: []string{"README", "site/**/b.md"}}, tree, ""},
		"require one that matches nothing": {Content{Require: []string{"README", "*.txt"}}, nil, DetailRequire},
		"require one that is left out":     {Content{Mount: "site", Require: []string{"README"}}, nil, DetailRequire},
		"nothing included":                 {Content{Include: []string{"*.txt"}}, nil, DetailEmpty},
		"a mount that is not there":        {Content{Mount: "sit"}, nil, DetailEmpty},
		"a mount that is a file":           {Content{Mount: "README"}, nil, DetailEmpty},
		"all excluded that was included":   {Content{Include: []string{"README"}, Exclude: []string{"**"}}, nil, DetailEmpty},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, func(o *DirectoryOptions) { o.Content = c.content })
			a := b.application(b.sink, b.repo.commit(t, tree), 1)
			_, err := b.sink.Apply(t.Context(), a)
			if c.detail == "" {
				must(t, err)
				b.serves(c.want)
				return
			}
			wantSinkError(t, err, fencepost.ReasonContent, c.detail)
			if _, err := os.Lstat(b.path); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("something is served: %v", err)
			}
			if _, err := os.Stat(a.Checkout.Root()); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("the checkout is still there: %v", err)
			}
		})
	}
}

// TestWhatTheFetchDidNotLeaveOutGoes holds the selection where the fetch was
// made without it.
func TestWhatTheFetchDidNotLeaveOutGoes(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(o *DirectoryOptions) {
		o.Content = Content{Include: []string{"docs/**"}, Exclude: []string{"docs/x/**"}}
	})
	place, err := b.sink.Place(t.Context())
	must(t, err)
	place.Select = nil
	c, err := fetch(t.Context(), b.repo.url, b.repo.commit(t, files{"a/b/c": "1", "a/d": "2", "docs/e": "3", "docs/x/y/z": "4"}), place)
	must(t, err)
	_, err = b.sink.Apply(t.Context(), source.Application{Hold: source.Hold{Fence: 1}, Revision: testRevision(), Checkout: c, Guard: granted})
	must(t, err)
	b.serves(files{"docs/e": "3"})
	entries, err := os.ReadDir(b.path)
	must(t, err)
	if len(entries) != 1 {
		t.Errorf("%v is served, want docs alone", entries)
	}
}

func TestALowerFenceChangesNothing(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	old, fresh := b.repo.commit(t, files{"a": "old"}), b.repo.commit(t, files{"a": "new"})
	late := b.application(b.sink, old, 4)
	b.apply(fresh, 5)
	other := b.another(nil)
	_, err := other.Apply(t.Context(), late)
	if !errors.Is(err, source.ErrLost) {
		t.Fatalf("a late application: %v, want ErrLost", err)
	}
	b.serves(files{"a": "new"})
	if dirs, _ := b.trees(); len(dirs) != 1 {
		t.Errorf("trees = %v, want one", dirs)
	}
	if _, err := b.sink.Apply(t.Context(), b.application(b.sink, old, 0)); !errors.Is(err, source.ErrLost) {
		t.Errorf("no fence at all: %v, want ErrLost", err)
	}
}

// TestAFenceCountsAlsoWhenItsApplicationFailed holds that the fence is recorded
// before anything else is done.
func TestAFenceCountsAlsoWhenItsApplicationFailed(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(o *DirectoryOptions) { o.Content.Require = []string{"must"} })
	good := b.repo.commit(t, files{"must": "1"})
	_, err := b.sink.Apply(t.Context(), b.application(b.sink, b.repo.commit(t, files{"a": ""}), 9))
	wantSinkError(t, err, fencepost.ReasonContent, DetailRequire)
	if _, err := b.sink.Apply(t.Context(), b.application(b.sink, good, 8)); !errors.Is(err, source.ErrLost) {
		t.Errorf("the older one: %v, want ErrLost", err)
	}
	b.apply(good, 9)
}

// TestARemovedStateIsFoundAgain holds that the fence of what is served stays
// known without state.json.
func TestARemovedStateIsFoundAgain(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	commit := b.repo.commit(t, files{"a": "1"})
	b.apply(commit, 6)
	must(t, os.Remove(filepath.Join(filepath.Dir(b.path), ".served.fencepost", "state.json")))
	if _, err := b.sink.Apply(t.Context(), b.application(b.sink, commit, 5)); !errors.Is(err, source.ErrLost) {
		t.Errorf("a lower fence: %v, want ErrLost", err)
	}
	b.apply(b.repo.commit(t, files{"a": "2"}), 7)
}

func TestWithoutTheHoldNothingIsSwitched(t *testing.T) {
	t.Parallel()
	refusal := errors.New("not yours")
	for name, c := range map[string]struct {
		guard func(cancel func()) error
		want  error
	}{
		"lost":      {func(func()) error { return source.ErrLost }, source.ErrLost},
		"not known": {func(func()) error { return refusal }, source.ErrLost},
		"no time":   {func(cancel func()) error { cancel(); return context.Canceled }, source.ErrSink},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, nil)
			b.apply(b.repo.commit(t, files{"a": "old"}), 1)
			a := b.application(b.sink, b.repo.commit(t, files{"a": "new"}), 2)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			a.Guard = func(context.Context) error { return c.guard(cancel) }
			if _, err := b.sink.Apply(ctx, a); !errors.Is(err, c.want) {
				t.Fatalf("err = %v, want %v", err, c.want)
			}
			b.serves(files{"a": "old"})
			if dirs, _ := b.trees(); len(dirs) != 1 {
				t.Errorf("trees = %v, want one", dirs)
			}
		})
	}
}

func TestTheSameContentIsUnchanged(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(o *DirectoryOptions) { o.Content.Include = []string{"docs/**"} })
	b.apply(b.repo.commit(t, files{"docs/a": "1", "x": "1"}), 1)
	before, err := os.Readlink(b.path)
	must(t, err)
	// Of another commit, which changed only what is not wanted.
	commit := b.repo.commit(t, files{"docs/a": "1", "x": "2"})
	if got := b.apply(commit, 2); !got.Unchanged {
		t.Errorf("applied = %+v, want unchanged", got)
	}
	after, err := os.Readlink(b.path)
	must(t, err)
	if before != after {
		t.Errorf("the link leads to %s, was %s", after, before)
	}
	o, err := b.sink.enter()
	must(t, err)
	l, err := o.list()
	must(t, err)
	if len(l.trees) != 1 || l.trees[0].Commit != commit.String() || l.trees[0].Fence != 2 {
		t.Errorf("trees = %+v, want one of the new commit and fence", l.trees)
	}
	// Under another revision it is a new tree.
	a := b.application(b.sink, commit, 3)
	a.Revision = fencepost.SourceRevision{8}
	applied, err := b.sink.Apply(t.Context(), a)
	must(t, err)
	if applied.Unchanged {
		t.Error("unchanged under another revision")
	}
}

// TestWhatSomebodyAlteredIsReplaced holds that "unchanged" is said of the bytes
// that are served, not of the record.
func TestWhatSomebodyAlteredIsReplaced(t *testing.T) {
	t.Parallel()
	tree := files{"d/a": "12345", "d/p*": "x", "d/l@": "a"}
	for name, alter := range map[string]func(dir string) error{
		"content": func(dir string) error {
			os.Remove(dir + "/d/a")
			return os.WriteFile(dir+"/d/a", []byte("54321"), 0o444)
		},
		"size":         func(dir string) error { os.Remove(dir + "/d/a"); return os.WriteFile(dir+"/d/a", []byte("1"), 0o444) },
		"missing":      func(dir string) error { return os.Remove(dir + "/d/a") },
		"further":      func(dir string) error { return os.WriteFile(dir+"/d/b", nil, 0o444) },
		"no program":   func(dir string) error { return os.Chmod(dir+"/d/p", 0o444) },
		"writable":     func(dir string) error { return os.Chmod(dir+"/d/a", 0o644) },
		"another link": func(dir string) error { os.Remove(dir + "/d/l"); return os.Symlink("p", dir+"/d/l") },
		"a kind":       func(dir string) error { os.Remove(dir + "/d/a"); return os.Mkdir(dir+"/d/a", 0o755) },
		"all gone":     func(dir string) error { real, _ := filepath.EvalSymlinks(dir); return os.RemoveAll(real) },
		"link gone":    os.Remove,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, nil)
			commit := b.repo.commit(t, tree)
			b.apply(commit, 1)
			must(t, alter(b.path))
			if got := b.apply(commit, 1); got.Unchanged {
				t.Error("said to be unchanged")
			}
			b.serves(tree)
		})
	}
}

func TestOldTreesGoWhenNobodyReadsThem(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(o *DirectoryOptions) { o.Keep, o.Grace = 2, time.Minute })
	commit := func(n int) fencepost.CommitID { return b.repo.commit(t, files{"a": strings.Repeat("x", n)}) }
	for n := range 4 {
		b.apply(commit(n+1), uint64(n+1))
		b.clock.advance(time.Second)
	}
	if dirs, _ := b.trees(); len(dirs) != 4 {
		t.Errorf("%d trees within the grace, want 4", len(dirs))
	}
	b.clock.advance(time.Minute)
	b.apply(commit(5), 5)
	// The one before was replaced right now, the one before that a minute ago.
	if dirs, _ := b.trees(); len(dirs) != 2 {
		t.Errorf("%d trees after the grace, want 2", len(dirs))
	}
	b.serves(files{"a": "xxxxx"})
	// A clock that somebody set back keeps nothing for ever.
	b.clock.advance(-24 * time.Hour)
	b.apply(commit(6), 6)
	if dirs, _ := b.trees(); len(dirs) != 2 {
		t.Errorf("%d trees after the clock was set back, want 2", len(dirs))
	}
}

func TestTooManyYoungTreesAreFull(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(o *DirectoryOptions) { o.Keep, o.Most, o.Grace = 1, 2, time.Minute })
	b.apply(b.repo.commit(t, files{"a": "1"}), 1)
	b.apply(b.repo.commit(t, files{"a": "2"}), 2)
	third := b.repo.commit(t, files{"a": "3"})
	_, err := b.sink.Apply(t.Context(), b.application(b.sink, third, 3))
	wantSinkError(t, err, fencepost.ReasonFull, DetailTrees)
	b.serves(files{"a": "2"})
	b.clock.advance(time.Minute)
	b.apply(third, 3)
	b.serves(files{"a": "3"})
}

func TestRoomIsAskedForBeforeTheFetch(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	b.sink.opts.Reserve = 1 << 62
	_, err := b.sink.Place(t.Context())
	wantSinkError(t, err, fencepost.ReasonFull, DetailRoom)
}

func TestLeftoversGoByTheLockAlone(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	b.apply(b.repo.commit(t, files{"a": "1"}), 1)
	holding := filepath.Join(filepath.Dir(b.path), ".served.fencepost")
	junk := []string{"trees/0123456789abcdef-00112233/deep/file", "trees/0123456789abcdef-00112244.json", "trees/x.json.tmp", "state.json.tmp", "trial-1/x"}
	for _, name := range junk {
		full := filepath.Join(holding, name)
		must(t, os.MkdirAll(filepath.Dir(full), 0o755))
		must(t, os.WriteFile(full, []byte("{}"), 0o600))
	}
	must(t, os.Symlink("nowhere", filepath.Join(holding, "link.tmp")))
	must(t, os.Chmod(filepath.Join(holding, "trees/0123456789abcdef-00112233/deep"), 0o000))
	o, err := b.sink.enter()
	must(t, err)
	unlock, err := o.lock(t.Context())
	must(t, err)
	other := b.another(nil) // probes, while the lock is held
	if _, err := os.Stat(filepath.Join(holding, junk[0])); err != nil {
		t.Errorf("a leftover went although the lock is held: %v", err)
	}
	must(t, unlock())
	must(t, other.Probe(t.Context()))
	for _, name := range append(junk, "link.tmp") {
		if _, err := os.Lstat(filepath.Join(holding, name)); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s is still there: %v", name, err)
		}
	}
	b.serves(files{"a": "1"})
}

func TestAnApplicationWaitsForTheLockNoLongerThanItMay(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	a := b.application(b.sink, b.repo.commit(t, files{"a": "1"}), 1)
	o, err := b.sink.enter()
	must(t, err)
	unlock, err := o.lock(t.Context())
	must(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	_, err = b.sink.Apply(ctx, a)
	wantSinkError(t, err, fencepost.ReasonTimeout, DetailLock)
	must(t, unlock())
}

func TestOptionsAreChecked(t *testing.T) {
	t.Parallel()
	for name, edit := range map[string]func(*DirectoryOptions){
		"source": func(o *DirectoryOptions) { o.Source = fencepost.SourceID{} }, "clock": func(o *DirectoryOptions) { o.Now = nil },
		"relative": func(o *DirectoryOptions) { o.Path = "x" }, "unclean": func(o *DirectoryOptions) { o.Path = "/a/../x" },
		"root": func(o *DirectoryOptions) { o.Path = "/" }, "keep": func(o *DirectoryOptions) { o.Keep = -1 },
		"most": func(o *DirectoryOptions) { o.Keep, o.Most = 3, 3 }, "mode": func(o *DirectoryOptions) { o.DirMode = 0o777 },
		"pattern": func(o *DirectoryOptions) { o.Content.Include = []string{"a", "/b"} }, "mount": func(o *DirectoryOptions) { o.Content.Mount = "../x" },
		"patterns": func(o *DirectoryOptions) { o.Content.Require = make([]string, MaxPatterns+1) },
	} {
		o := options("/srv/x", newClock())
		edit(&o)
		if _, err := NewDirectory(o); !errors.Is(err, ErrOptions) {
			t.Errorf("%s: %v, want ErrOptions", name, err)
		}
	}
}

func TestAClosedSinkDoesNothing(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	must(t, b.sink.Close())
	_, err := b.sink.Place(t.Context())
	wantSinkError(t, err, fencepost.ReasonUnavailable, DetailPlace)
}

// TestNothingStaysOpenBetweenRuns counts for thousands of sources.
func TestNothingStaysOpenBetweenRuns(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	isOpen := func() bool {
		b.sink.mu.Lock()
		defer b.sink.mu.Unlock()
		return b.sink.open != nil
	}
	if isOpen() {
		t.Error("open after a probe")
	}
	commit := b.repo.commit(t, files{"a": "1"})
	late := b.application(b.sink, commit, 1)
	a := b.application(b.sink, commit, 2)
	_, err := b.sink.Apply(t.Context(), a)
	must(t, err)
	if !isOpen() {
		t.Error("closed although a checkout waits to be applied")
	}
	if _, err := b.sink.Apply(t.Context(), late); !errors.Is(err, source.ErrLost) {
		t.Errorf("the late one: %v, want ErrLost", err)
	}
	if isOpen() {
		t.Error("open after the last application")
	}
	left, err := filepath.Glob(filepath.Join(filepath.Dir(b.path), ".served.fencepost", ".gitfetch-*"))
	must(t, err)
	if len(left) > 0 {
		t.Errorf("workspaces are left: %d", len(left))
	}
	b.serves(files{"a": "1"})
}
