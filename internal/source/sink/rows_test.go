package sink

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/gitfetch"
	"github.com/fencepost/fencepost/internal/source"
	"github.com/fencepost/fencepost/internal/store"
)

// A rowsBench is a rows sink over a repository, on one of the databases.
type rowsBench struct {
	*testing.T
	repo  *repo
	clock *clock
	opts  RowsOptions
	sink  *Rows
	db    *store.DB // to look with
}

// onEach runs a test on both databases.
func onEach(t *testing.T, edit func(*RowsOptions), test func(b *rowsBench)) {
	for name, place := range map[string]func(t *testing.T, o *RowsOptions) store.Options{
		"sqlite": func(t *testing.T, o *RowsOptions) store.Options {
			o.Path = filepath.Join(t.TempDir(), "rows.db")
			return store.Options{Path: o.Path, Now: o.Now, Foreign: true}
		},
		"postgres": func(t *testing.T, o *RowsOptions) store.Options {
			url := postgres.Database(t)
			o.URL = func(context.Context) (fencepost.Secret, error) { return fencepost.NewSecret([]byte(url)), nil }
			return store.Options{URL: url, Foreign: true, Connections: 2}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := &rowsBench{T: t, repo: newRepo(t), clock: newClock()}
			work, err := gitfetch.OpenWorkspace(t.TempDir())
			must(t, err)
			t.Cleanup(func() { must(t, work.Close()) })
			b.opts = RowsOptions{Source: testSource(), Table: "handbook", Workspace: work, Now: b.clock.Now}
			o := place(t, &b.opts)
			if edit != nil {
				edit(&b.opts)
			}
			b.db, err = store.Open(t.Context(), o)
			must(t, err)
			t.Cleanup(func() { must(t, b.db.Close()) })
			b.sink = b.another()
			test(b)
		})
	}
}

func (b *rowsBench) another() *Rows {
	b.Helper()
	r, err := NewRows(b.opts)
	must(b, err)
	b.Cleanup(func() { must(b, r.Close()) })
	return r
}

func (b *rowsBench) application(commit fencepost.CommitID, fence uint64) source.Application {
	b.Helper()
	place, err := b.sink.Place(b.Context())
	must(b, err)
	c, err := fetch(b.Context(), b.repo.url, commit, place)
	must(b, err)
	return source.Application{Hold: source.Hold{Fence: fence}, Revision: testRevision(), Checkout: c, Guard: granted}
}

func (b *rowsBench) apply(commit fencepost.CommitID, fence uint64) source.Applied {
	b.Helper()
	a := b.application(commit, fence)
	applied, err := b.sink.Apply(b.Context(), a)
	must(b, err)
	must(b, applied.Leftover)
	if _, err := os.Stat(a.Checkout.Root()); !errors.Is(err, os.ErrNotExist) {
		b.Errorf("the checkout is still there: %v", err)
	}
	return applied
}

// A seenRow is a row as a reader sees it.
type seenRow struct {
	Mode, Digest string
	Bytes        int64
	Content      string
	Commit       string
	Deleted      bool
}

func (b *rowsBench) rows() map[string]seenRow {
	b.Helper()
	all := map[string]seenRow{}
	must(b, b.db.Read(b.Context(), "look", func(ctx context.Context, tx *store.Tx) error {
		return tx.Each(ctx, "select path, mode, digest, bytes, content, commit_id, deleted_at is not null from handbook", nil,
			func(scan func(...any) error) error {
				var path string
				var r seenRow
				var content []byte
				err := scan(&path, &r.Mode, &r.Digest, &r.Bytes, &content, &r.Commit, &r.Deleted)
				r.Content = string(content)
				all[path] = r
				return err
			})
	}))
	return all
}

func (b *rowsBench) wantRows(want map[string]seenRow) {
	b.Helper()
	if diff := cmp.Diff(want, b.rows()); diff != "" {
		b.Fatalf("rows (-want +got):\n%s", diff)
	}
}

const (
	digestOfA = "ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb"
	digestOfB = "3e23e8160039594a33894f6564e1b1348bbd7a0088d42c4acb73eeaed59c009d"
)

func TestRowsAreWhatTheCommitHas(t *testing.T) {
	t.Parallel()
	onEach(t, nil, func(b *rowsBench) {
		first := b.repo.commit(b, files{"a": "a", "dir/run*": "b", "l@": "a"})
		got := b.apply(first, 1)
		if got.Unchanged || got.Counts != (source.Counts{Files: 3, Bytes: 3, Added: 3}) {
			b.Errorf("applied = %+v", got)
		}
		one := first.String()
		b.wantRows(map[string]seenRow{
			"a":       {"100644", digestOfA, 1, "a", one, false},
			"dir/run": {"100755", digestOfB, 1, "b", one, false},
			"l":       {"120000", digestOfA, 1, "a", one, false},
		})
		second := b.repo.commit(b, files{"a": "b", "dir/run*": "b", "new": "a"})
		if got = b.apply(second, 2); got.Counts != (source.Counts{Files: 3, Bytes: 3, Added: 1, Changed: 1, Removed: 1}) {
			b.Errorf("applied = %+v", got)
		}
		two := second.String()
		b.wantRows(map[string]seenRow{
			"a":       {"100644", digestOfB, 1, "b", two, false},
			"dir/run": {"100755", digestOfB, 1, "b", one, false},
			"l":       {"120000", digestOfA, 1, "a", one, true},
			"new":     {"100644", digestOfA, 1, "a", two, false},
		})
		// The same again, and of a commit that changes nothing: not a row moves.
		if got = b.apply(second, 2); !got.Unchanged {
			b.Errorf("the same: %+v", got)
		}
		if got = b.apply(b.repo.commit(b, files{"a": "b", "dir/run*": "b", "new": "a"}), 3); !got.Unchanged {
			b.Errorf("another commit of the same content: %+v", got)
		}
		// What was deleted comes back as what is new.
		third := b.repo.commit(b, files{"l": "a", "a": "b"})
		if got = b.apply(third, 4); got.Counts != (source.Counts{Files: 2, Bytes: 2, Added: 1, Removed: 2}) {
			b.Errorf("applied = %+v", got)
		}
		if r := b.rows()["l"]; r != (seenRow{"100644", digestOfA, 1, "a", third.String(), false}) {
			b.Errorf("l = %+v", r)
		}
	})
}

func TestRowsAreSelectedAndMounted(t *testing.T) {
	t.Parallel()
	onEach(t, func(o *RowsOptions) {
		o.Content = Content{Mount: "docs", Exclude: []string{"**/*.draft"}, Require: []string{"docs/index"}}
		o.NoContent = true
	}, func(b *rowsBench) {
		commit := b.repo.commit(b, files{"x": "a", "docs/index": "a", "docs/d/e": "b", "docs/f.draft": ""})
		b.apply(commit, 1)
		b.wantRows(map[string]seenRow{
			"index": {"100644", digestOfA, 1, "", commit.String(), false},
			"d/e":   {"100644", digestOfB, 1, "", commit.String(), false},
		})
		_, err := b.sink.Apply(b.Context(), b.application(b.repo.commit(b, files{"docs/other": ""}), 2))
		wantSinkError(b, err, fencepost.ReasonContent, DetailRequire)
		if len(b.rows()) != 2 {
			b.Error("a refused content changed rows")
		}
	})
}

func TestRowsThatARuleRefusesKeepWhatTheyWere(t *testing.T) {
	t.Parallel()
	onEach(t, func(o *RowsOptions) { o.MaxRow, o.Text = 4, true }, func(b *rowsBench) {
		first := b.repo.commit(b, files{"a": "a", "long": "1234", "text": "ä€", "zero": "x"})
		// ä€ has five bytes.
		got := b.apply(first, 1)
		if diff := cmp.Diff([]source.Refusal{{Entry: 3, Reason: fencepost.ReasonTooLarge}}, got.Refused); diff != "" {
			b.Errorf("refused (-want +got):\n%s", diff)
		}
		second := b.repo.commit(b, files{"a": "b", "long": "12345", "text": "\xff", "zero": "\x00", "more": "€"})
		got = b.apply(second, 2)
		want := []source.Refusal{{Entry: 2, Reason: fencepost.ReasonTooLarge}, {Entry: 4, Reason: fencepost.ReasonContent}, {Entry: 5, Reason: fencepost.ReasonContent}}
		if diff := cmp.Diff(want, got.Refused); diff != "" {
			b.Errorf("refused (-want +got):\n%s", diff)
		}
		rows := b.rows()
		if r := rows["long"]; r.Content != "1234" || r.Commit != first.String() || r.Deleted {
			b.Errorf("long = %+v, want what it was", r)
		}
		if r := rows["zero"]; r.Content != "x" || r.Deleted {
			b.Errorf("zero = %+v, want what it was", r)
		}
		if r := rows["more"]; r.Content != "€" || r.Commit != second.String() {
			b.Errorf("more = %+v", r)
		}
		if _, there := rows["text"]; there {
			b.Error("a refused file that never was a row has become one")
		}
		// Nothing but what is refused is nothing.
		_, err := b.sink.Apply(b.Context(), b.application(b.repo.commit(b, files{"long": "12345"}), 3))
		wantSinkError(b, err, fencepost.ReasonContent, DetailEmpty)
	})
}

func TestRefusalsAreBounded(t *testing.T) {
	t.Parallel()
	onEach(t, func(o *RowsOptions) { o.MaxRow = 1 }, func(b *rowsBench) {
		tree := files{"a": "a"}
		for i := range maxRefusals + 5 {
			tree[fmt.Sprintf("f%03d", i)] = "too long"
		}
		if got := b.apply(b.repo.commit(b, tree), 1); len(got.Refused) != maxRefusals {
			b.Errorf("%d refusals, want %d", len(got.Refused), maxRefusals)
		}
	})
}

func TestALowerFenceChangesNoRow(t *testing.T) {
	t.Parallel()
	onEach(t, nil, func(b *rowsBench) {
		old, fresh := b.repo.commit(b, files{"a": "a"}), b.repo.commit(b, files{"a": "b"})
		late := b.application(old, 4)
		b.apply(fresh, 5)
		other := b.another()
		if _, err := other.Apply(b.Context(), late); !errors.Is(err, source.ErrLost) {
			b.Fatalf("a late application: %v, want ErrLost", err)
		}
		if r := b.rows()["a"]; r.Content != "b" || r.Commit != fresh.String() {
			b.Errorf("a = %+v", r)
		}
	})
}

// TestOnlyOneOfTwoApplicationsWins lets two processes apply at once, the one
// with the lower fence held up in its guard, until the other waits for it or
// went by.
func TestOnlyOneOfTwoApplicationsWins(t *testing.T) {
	t.Parallel()
	onEach(t, nil, func(b *rowsBench) {
		must(b, b.sink.Probe(b.Context()))
		old, fresh := b.repo.commit(b, files{"a": "a", "only-old": "a"}), b.repo.commit(b, files{"a": "b"})
		first, second := b.application(old, 1), b.application(fresh, 2)
		other := b.another()
		var group sync.WaitGroup
		first.Guard = func(context.Context) error {
			group.Go(func() {
				_, err := other.Apply(b.Context(), second)
				if err != nil {
					b.Errorf("the newer one: %v", err)
				}
			})
			return nil
		}
		_, err := b.sink.Apply(b.Context(), first)
		group.Wait()
		if err != nil && !errors.Is(err, source.ErrLost) {
			b.Errorf("the older one: %v", err)
		}
		rows := b.rows()
		if r := rows["a"]; r.Content != "b" {
			b.Errorf("a = %+v, want the newer one", r)
		}
		if r, there := rows["only-old"]; there && !r.Deleted {
			b.Errorf("only-old = %+v", r)
		}
	})
}

func TestWithoutTheHoldNoRowChanges(t *testing.T) {
	t.Parallel()
	onEach(t, nil, func(b *rowsBench) {
		b.apply(b.repo.commit(b, files{"a": "a"}), 1)
		before := b.rows()
		a := b.application(b.repo.commit(b, files{"b": "b"}), 2)
		a.Guard = func(context.Context) error { return errors.New("not known") }
		if _, err := b.sink.Apply(b.Context(), a); !errors.Is(err, source.ErrLost) {
			b.Fatalf("err = %v, want ErrLost", err)
		}
		b.wantRows(before)
	})
}

// TestManyRowsGoInOneTransaction also crosses the bounds of statements.
func TestManyRowsGoInOneTransaction(t *testing.T) {
	t.Parallel()
	onEach(t, func(o *RowsOptions) { o.MaxRow = 3 << 20 }, func(b *rowsBench) {
		tree := files{}
		for i := range 3*batchRows + 7 {
			tree[fmt.Sprintf("f%d", i)] = fmt.Sprint(i)
		}
		for i := range 3 {
			tree[fmt.Sprintf("large%d", i)] = strings.Repeat(fmt.Sprint(i), 2<<20)
		}
		b.apply(b.repo.commit(b, tree), 1)
		rows := b.rows()
		if len(rows) != len(tree) {
			b.Fatalf("%d rows, want %d", len(rows), len(tree))
		}
		for path, content := range tree {
			if rows[path].Content != content {
				b.Fatalf("%s has %d bytes, want %d", path, len(rows[path].Content), len(content))
			}
		}
		if got := b.apply(b.repo.commit(b, files{"f0": "0"}), 2); got.Counts.Removed != int64(len(tree)-1) {
			b.Errorf("counts = %+v", got.Counts)
		}
	})
}

// TestADatabaseThatIsAwayIsUnavailable also holds that the next attempt asks
// for the credential again, and that no error shows it.
func TestADatabaseThatIsAwayIsUnavailable(t *testing.T) {
	t.Parallel()
	b := &rowsBench{T: t, repo: newRepo(t), clock: newClock()}
	work, err := gitfetch.OpenWorkspace(t.TempDir())
	must(t, err)
	t.Cleanup(func() { must(t, work.Close()) })
	right, asked := postgres.Database(t), 0
	b.opts = RowsOptions{
		Source: testSource(), Table: "handbook", Workspace: work, Now: b.clock.Now, Wait: 5 * time.Second,
		URL: func(context.Context) (fencepost.Secret, error) {
			if asked++; asked == 1 {
				return fencepost.NewSecret([]byte("postgres://u:canary-password@127.0.0.1:1/x?sslmode=disable")), nil
			}
			return fencepost.NewSecret([]byte(right)), nil
		},
	}
	b.sink = b.another()
	commit := b.repo.commit(t, files{"a": "a"})
	_, err = b.sink.Apply(t.Context(), b.application(commit, 1))
	wantSinkError(t, err, fencepost.ReasonUnavailable, DetailDatabase)
	if e, _ := errors.AsType[*source.SinkError](err); strings.Contains(fmt.Sprintf("%v %v", err, e.Err), "canary") {
		t.Errorf("an error shows the password: %v", e.Err)
	}
	b.apply(commit, 2)
	refusal := errors.New("revoked")
	b.opts.URL = func(context.Context) (fencepost.Secret, error) { return fencepost.Secret{}, refusal }
	_, err = b.another().Apply(t.Context(), b.application(commit, 3))
	wantSinkError(t, err, fencepost.ReasonCredential, DetailDatabase)
}

func TestAnAlteredCheckoutBecomesNoRows(t *testing.T) {
	t.Parallel()
	onEach(t, nil, func(b *rowsBench) {
		a := b.application(b.repo.commit(b, files{"a": "a"}), 1)
		file := filepath.Join(a.Checkout.Root(), "a")
		must(b, os.Remove(file))
		write(b, file, "longer")
		_, err := b.sink.Apply(b.Context(), a)
		wantSinkError(b, err, fencepost.ReasonUnavailable, DetailCheckout)
	})
}

func TestRowsOptionsAreChecked(t *testing.T) {
	t.Parallel()
	work, err := gitfetch.OpenWorkspace(t.TempDir())
	must(t, err)
	t.Cleanup(func() { must(t, work.Close()) })
	for name, edit := range map[string]func(*RowsOptions){
		"source": func(o *RowsOptions) { o.Source = fencepost.SourceID{} }, "clock": func(o *RowsOptions) { o.Now = nil },
		"workspace": func(o *RowsOptions) { o.Workspace = nil }, "neither": func(o *RowsOptions) { o.Path = "" },
		"both": func(o *RowsOptions) {
			o.URL = func(context.Context) (fencepost.Secret, error) { return fencepost.Secret{}, nil }
		},
		"relative": func(o *RowsOptions) { o.Path = "x.db" }, "table": func(o *RowsOptions) { o.Table = "a; drop table b" },
		"row": func(o *RowsOptions) { o.MaxRow = MaxRowLimit + 1 }, "wait": func(o *RowsOptions) { o.Wait = time.Hour },
		"pattern": func(o *RowsOptions) { o.Content.Exclude = []string{"a**"} },
	} {
		o := RowsOptions{Source: testSource(), Path: "/srv/x.db", Table: "t", Workspace: work, Now: time.Now}
		edit(&o)
		if _, err := NewRows(o); !errors.Is(err, ErrOptions) {
			t.Errorf("%s: %v, want ErrOptions", name, err)
		}
	}
}

// FuzzTextCheck holds the check in pieces against the check of the whole.
func FuzzTextCheck(f *testing.F) {
	for _, s := range []string{"", "text", "ä€𝄞", "\xff", "a\x00b", "\xe2\x82", "€\xe2"} {
		f.Add([]byte(s), 1)
		f.Add([]byte(s), 2)
	}
	f.Fuzz(func(t *testing.T, text []byte, size int) {
		if size < 1 {
			return
		}
		check := &textCheck{}
		for rest := text; len(rest) > 0; {
			n := min(size, len(rest))
			if m, err := check.Write(rest[:n]); err != nil || m != n {
				t.Fatalf("Write = %d, %v", m, err)
			}
			rest = rest[n:]
		}
		want := strings.ToValidUTF8(string(text), "") != string(text) || strings.Contains(string(text), "\x00")
		if check.bad() != want {
			t.Fatalf("%q in pieces of %d: bad = %v, want %v", text, size, check.bad(), want)
		}
	})
}
