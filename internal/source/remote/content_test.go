package remote_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/gitfetch"
	"github.com/fencepost/fencepost/internal/forgesim"
	"github.com/fencepost/fencepost/internal/source"
	"github.com/fencepost/fencepost/internal/source/remote"
)

func TestContainsTellsHowCommitsStand(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	alone := b.config
	alone.Ancestries = nil
	first := b.head()
	second := b.push(forgesim.Push{})
	aside := b.push(forgesim.Push{Branch: "side", Onto: first.String()})
	for _, tc := range []struct {
		name        string
		head, other fencepost.CommitID
		want        source.Ancestry
	}{
		{"same", second, second, source.Same},
		{"ahead", second, first, source.Ahead},
		{"behind", first, second, source.Behind},
		{"apart", second, aside, source.Apart},
		{"gone", second, commit(t, strings.Repeat("ab", 20)), source.Unknown},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := b.make(alone).Contains(t.Context(), tc.head, tc.other)
			if err != nil || got != tc.want {
				t.Errorf("by commits: %v, %v, want %v", got, err, tc.want)
			}
			// Git can't tell, so that GitHub is asked.
			defer b.forge.Inject(forgesim.Fault{On: forgesim.GitFetch, Times: -1, Effect: forgesim.Fail{Code: 502}}).End()
			got, err = b.remote.Contains(t.Context(), tc.head, tc.other)
			if tc.want == source.Unknown {
				wantReason(t, err, fencepost.ReasonAcquisition)
			} else if err != nil || got != tc.want {
				t.Errorf("by comparison: %v, %v, want %v", got, err, tc.want)
			}
		})
	}
}

// told is an Ancestry that answers always the same.
type told struct {
	how source.Ancestry
	err error
}

func (a told) Ancestry(context.Context, fencepost.CommitID, fencepost.CommitID) (source.Ancestry, error) {
	return a.how, a.err
}

func TestTheFirstWhoCanTellDecides(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	other := b.head()
	b.push(forgesim.Push{})
	head := b.push(forgesim.Push{})
	b.config.Budgets.Objects = 1 // so that Git's commits can't tell
	broken := told{0, &fencepost.Error{Op: "x", Reason: fencepost.ReasonRateLimited, Err: errors.New("x")}}
	for _, tc := range []struct {
		name string
		of   []remote.Ancestry
		want source.Ancestry
		why  fencepost.Reason
	}{
		{"the first", []remote.Ancestry{told{source.Ahead, nil}, told{source.Apart, nil}}, source.Ahead, ""},
		{"the second, as the first does not know", []remote.Ancestry{told{source.Unknown, nil}, told{source.Behind, nil}}, source.Behind, ""},
		{"the second, as the first failed", []remote.Ancestry{broken, told{source.Apart, nil}}, source.Apart, ""},
		{"nobody knows", []remote.Ancestry{told{source.Unknown, nil}, told{source.Unknown, nil}}, source.Unknown, ""},
		{"one failed, nobody knows", []remote.Ancestry{broken, told{source.Unknown, nil}}, 0, fencepost.ReasonRateLimited},
		{"an error without a reason", []remote.Ancestry{told{0, errors.New("x")}}, 0, fencepost.ReasonProvider},
		{"an answer that is none", []remote.Ancestry{told{42, nil}}, source.Unknown, ""},
		{"same, which it can't be", []remote.Ancestry{told{source.Same, nil}}, source.Unknown, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := b.config
			c.Ancestries = tc.of
			got, err := b.make(c).Contains(t.Context(), head, other)
			wantReason(t, err, tc.why)
			if got != tc.want {
				t.Errorf("%v, want %v", got, tc.want)
			}
		})
	}
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := b.remote.Contains(canceled, head, other)
	wantReason(t, err, fencepost.ReasonUnavailable)
}

func place(t *testing.T) source.Place {
	t.Helper()
	w, err := gitfetch.OpenWorkspace(t.TempDir())
	must(t, err)
	t.Cleanup(func() { must(t, w.Close()) })
	return source.Place{Workspace: w}
}

func TestFetchGetsTheTreeOfTheHead(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	head := b.observe().Head
	b.push(forgesim.Push{}) // the branch goes on
	into := place(t)
	into.Select = func(path string) bool { return strings.HasPrefix(path, "docs/") }
	got, err := b.remote.Fetch(t.Context(), head, into)
	must(t, err)
	if got.Commit() != head {
		t.Errorf("fetched %v, want %v", got.Commit(), head)
	}
	if content, err := os.ReadFile(filepath.Join(got.Root(), "docs", "a.md")); err != nil || string(content) != "a\n" {
		t.Errorf("docs/a.md holds %q, %v", content, err)
	}
	if _, err := os.Lstat(filepath.Join(got.Root(), "src")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("what the sink does not want is there: %v", err)
	}
	must(t, got.Remove())
}

func TestWhatEndsAFetch(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name   string
		change func(*bench)
		want   fencepost.Reason
	}{
		{"a commit that is not there", func(b *bench) {}, fencepost.ReasonCommitGone},
		{"renamed", func(b *bench) { must(b.t, b.repo.Rename("manual")) }, fencepost.ReasonIdentity},
		{"transferred", func(b *bench) { must(b.t, b.repo.Transfer("elsewhere")) }, fencepost.ReasonIdentity},
		{"deleted", func(b *bench) { b.repo.Delete() }, fencepost.ReasonCommitGone},
		{"suspended", func(b *bench) { b.inst.Suspend(true) }, fencepost.ReasonCredential},
		{"down", func(b *bench) { b.forge.SetDown(true) }, fencepost.ReasonAcquisition},
		{"over a budget", func(b *bench) {
			b.config.Budgets.WireBytes = 400
			b.remote = b.make(b.config)
		}, fencepost.ReasonAcquisition},
		{"a rule of the tree", func(b *bench) {
			b.push(forgesim.Push{Change: forgesim.Change{Files: map[string]string{"aux.md": "x"}}})
		}, fencepost.ReasonContent},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			head := b.observe().Head
			tc.change(b)
			switch tc.want {
			case fencepost.ReasonContent:
				head = b.head()
			case fencepost.ReasonCommitGone:
				head = commit(t, strings.Repeat("ab", 20))
			}
			before := len(b.forge.Journal())
			into := place(t)
			got, err := b.remote.Fetch(t.Context(), head, into)
			wantReason(t, err, tc.want)
			if got != nil {
				t.Error("with an error there is a checkout")
			}
			b.wantNobodyElseAsked(before)
			if budget, ok := errors.AsType[*gitfetch.BudgetError](err); ok != (tc.name == "over a budget") || ok && budget.Budget != gitfetch.BudgetWire {
				t.Errorf("the error %v names the wrong budget", err)
			}
		})
	}
}

func TestFetchNeedsAHeadAndAPlace(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	_, err := b.remote.Fetch(t.Context(), b.head(), source.Place{})
	wantReason(t, err, fencepost.ReasonUnavailable)
	_, err = b.remote.Fetch(t.Context(), fencepost.CommitID{}, place(t))
	wantReason(t, err, fencepost.ReasonUnavailable)
}
