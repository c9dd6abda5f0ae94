package forgesim_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fencepost/fencepost/internal/forgesim"
)

// parents asks for a commit's parents.
func (b *bench) parents(sha string) []string {
	b.t.Helper()
	var ids []string
	for _, p := range b.get("/repos/acme/docs/git/commits/" + sha).object(b.t)["parents"].([]any) {
		ids = append(ids, p.(map[string]any)["sha"].(string))
	}
	return ids
}

func TestTheTestMergeIsMadeByAskingForIt(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	pr := b.open("change")
	main := b.repo.Ref("refs/heads/main")
	if got := b.repo.Ref("refs/pull/1/merge"); got != "" {
		t.Errorf("a merge %s is there before it was asked for", got)
	}
	first := b.get("/repos/acme/docs/pulls/1").object(t)
	if first["mergeable"] != nil || first["mergeable_state"] != "unknown" || first["merge_commit_sha"] != nil {
		t.Errorf("first answer is %v %v %v, want null, unknown, null", first["mergeable"], first["mergeable_state"], first["merge_commit_sha"])
	}
	second := b.get("/repos/acme/docs/pulls/1").object(t)
	merge, _ := second["merge_commit_sha"].(string)
	if second["mergeable"] != true || merge != b.repo.Ref("refs/pull/1/merge") {
		t.Fatalf("second answer is %v with %q, want the ref's %q", second["mergeable"], merge, b.repo.Ref("refs/pull/1/merge"))
	}
	if diff := cmp.Diff([]string{main, pr.Head()}, b.parents(merge)); diff != "" {
		t.Errorf("parents (-want +got):\n%s", diff)
	}
	if again := b.get("/repos/acme/docs/pulls/1").object(t)["merge_commit_sha"]; again != merge {
		t.Errorf("an unmoved request was merged anew: %v, then %v", merge, again)
	}
}

func TestTheTestMergeGoesStaleSilently(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	pr := b.open("change")
	stale := b.pollPull(pr)["merge_commit_sha"].(string)
	for _, move := range []struct {
		name string
		do   func() error
	}{
		{"base", func() error { _, err := b.repo.Push(t.Context(), forgesim.Push{Change: files("base")}); return err }},
		{"head", func() error { _, err := pr.Push(t.Context(), files("more")); return err }},
		{"head by force", func() error { _, err := pr.ForcePush(t.Context(), files("other")); return err }},
	} {
		must(t, move.do())
		// Lists do not refresh; neither does git.
		b.get("/repos/acme/docs/pulls")
		if got := b.get("/repos/acme/docs/git/ref/pull/1/merge").object(t)["object"].(map[string]any)["sha"]; got != stale {
			t.Errorf("%s moved: the ref is %v without a call for the request, want the stale %s", move.name, got, stale)
		}
		pending := b.get("/repos/acme/docs/pulls/1").object(t)
		if pending["mergeable"] != nil || pending["merge_commit_sha"] != stale {
			t.Errorf("%s moved: the first answer has %v and %v, want null and the stale merge", move.name, pending["mergeable"], pending["merge_commit_sha"])
		}
		fresh := b.pollPull(pr)["merge_commit_sha"].(string)
		if diff := cmp.Diff([]string{b.repo.Ref("refs/heads/main"), pr.Head()}, b.parents(fresh)); diff != "" {
			t.Errorf("%s moved: parents (-want +got):\n%s", move.name, diff)
		}
		stale = fresh
	}
}

func TestConflictsAreNotMergeable(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	pr, err := b.repo.OpenPullRequest(t.Context(), forgesim.OpenPull{
		Head: "change", Change: forgesim.Change{Files: map[string]string{"README.md": "one\n"}},
	})
	must(t, err)
	_, err = b.repo.Push(t.Context(), forgesim.Push{Change: forgesim.Change{Files: map[string]string{"README.md": "two\n"}}})
	must(t, err)
	o := b.pollPull(pr)
	if o["mergeable"] != false || o["mergeable_state"] != "dirty" || o["merge_commit_sha"] != nil {
		t.Errorf("answer is %v %v %v, want false, dirty, null", o["mergeable"], o["mergeable_state"], o["merge_commit_sha"])
	}
}

func TestForksBringTheirHeads(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	fork, err := b.repo.Fork(t.Context(), "contributor")
	must(t, err)
	pr, err := b.repo.OpenPullRequest(t.Context(), forgesim.OpenPull{From: fork, Head: "change", Change: files("new")})
	must(t, err)
	o := b.pollPull(pr)
	if got := o["head"].(map[string]any)["repo"].(map[string]any)["full_name"]; got != "contributor/docs" {
		t.Errorf("head.repo is %v, want the fork", got)
	}
	if got := b.repo.Ref("refs/pull/1/head"); got != pr.Head() {
		t.Errorf("refs/pull/1/head is %s, want %s", got, pr.Head())
	}
	after, err := pr.Push(t.Context(), files("newer"))
	must(t, err)
	if got := b.repo.Ref("refs/pull/1/head"); got != after {
		t.Errorf("after a push refs/pull/1/head is %s, want %s", got, after)
	}
	_, err = b.repo.Push(t.Context(), forgesim.Push{Change: files("base")})
	must(t, err)
	if _, err := pr.ForcePush(t.Context(), files("forced")); err != nil {
		t.Errorf("force push from the fork: %v", err)
	}
	fork.Delete()
	o = b.pollPull(pr)
	if repo := o["head"].(map[string]any)["repo"]; repo != nil {
		t.Errorf("head.repo of a deleted fork is %v, want null", repo)
	}
	b.get("/repos/acme/docs/git/commits/" + pr.Head())
	run := b.want(201, "POST", "/repos/acme/docs/check-runs", createRun("c", pr.Head(), "e")).object(t)
	if n := len(run["pull_requests"].([]any)); n != 0 {
		t.Errorf("a run on a fork's head names %d requests, want none", n)
	}
}

// actions lists the pull_request actions and other events made so far.
func (b *bench) actions() []string {
	var all []string
	for _, d := range b.forge.TakeOutbox() {
		all = append(all, strings.TrimSuffix(d.Event+" "+d.Action, " "))
	}
	return all
}

func TestWhatHappensIsTold(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	ctx := t.Context()
	pr := b.open("change")
	push := func(p forgesim.Push) error { _, err := b.repo.Push(ctx, p); return err }
	for _, step := range []struct {
		name string
		do   func() error
		want []string
	}{
		{"open", func() error { return nil }, []string{"push", "pull_request opened"}},
		{"push to the head", func() error { _, err := pr.Push(ctx, files("a")); return err }, []string{"push", "pull_request synchronize"}},
		{"push to the base", func() error { return push(forgesim.Push{Change: files("b")}) }, []string{"push"}},
		{"push that changes nothing", func() error { return push(forgesim.Push{Branch: "main", To: b.repo.Ref("refs/heads/main")}) }, nil},
		{"edit the title", func() error { return pr.SetTitle(ctx, "x") }, []string{"pull_request edited"}},
		{"convert to draft", func() error { return pr.SetDraft(ctx, true) }, []string{"pull_request converted_to_draft"}},
		{"ready for review", func() error { return pr.SetDraft(ctx, false) }, []string{"pull_request ready_for_review"}},
		{"close", func() error { return pr.Close(ctx) }, []string{"pull_request closed"}},
		{"push to a closed head", func() error { return push(forgesim.Push{Branch: "change", Change: files("c")}) }, []string{"push"}},
		{"reopen", func() error { return pr.Reopen(ctx) }, []string{"pull_request reopened"}},
		{"new branch", func() error { return push(forgesim.Push{Branch: "release", Change: files("d")}) }, []string{"push"}},
		{"change the base", func() error { return pr.SetBase(ctx, "release") }, []string{"pull_request edited"}},
		{"delete the head", func() error { return b.repo.DeleteBranch(ctx, "change") }, []string{"push", "pull_request closed"}},
	} {
		must(t, step.do())
		if got := b.actions(); !slices.Equal(got, step.want) {
			t.Errorf("%s: events %q, want %q", step.name, got, step.want)
		}
	}
}

func TestChangesThatTheStateExcludes(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	ctx := t.Context()
	pr := b.open("change")
	for _, test := range []struct {
		name string
		err  error
		want error
	}{
		{"reopen an open one", pr.Reopen(ctx), forgesim.ErrState},
		{"make a ready one ready", pr.SetDraft(ctx, false), forgesim.ErrState},
		{"base on nothing", pr.SetBase(ctx, "nothing"), forgesim.ErrNotFound},
		{"delete a branch that is not there", b.repo.DeleteBranch(ctx, "nothing"), forgesim.ErrNotFound},
		{"rename to a taken name", func() error {
			_, err := b.forge.ImportRepository(ctx, forgesim.Import{Owner: "acme", Name: "docs"})
			return err
		}(), forgesim.ErrExists},
		{"repositories of two owners", func() error {
			other, err := b.forge.ImportRepository(ctx, forgesim.Import{Owner: "other", Name: "docs"})
			must(t, err)
			_, err = b.forge.App().Install(b.repo, other)
			return err
		}(), forgesim.ErrOwners},
	} {
		if !errors.Is(test.err, test.want) {
			t.Errorf("%s: error %v, want %v", test.name, test.err, test.want)
		}
	}
}

func TestListsOfPullRequestsAreFiltered(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	one, two := b.open("one"), b.open("two")
	must(t, one.Close(t.Context()))
	for query, want := range map[string][]int{
		"": {2}, "?state=open": {2}, "?state=closed": {1}, "?state=all": {2, 1}, "?state=all&direction=asc": {1, 2},
		"?state=all&head=acme:one": {1}, "?state=all&base=other": nil,
	} {
		var got []int
		for _, pr := range b.get("/repos/acme/docs/pulls" + query).list(t) {
			got = append(got, int(pr["number"].(float64)))
		}
		if !slices.Equal(got, want) {
			t.Errorf("%q lists %v, want %v", query, got, want)
		}
	}
	if two.State() != "open" || one.State() != "closed" {
		t.Errorf("states %s %s, want closed open", one.State(), two.State())
	}
}

func TestImportsKeepEveryByte(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	odd := map[string]string{
		".gitattributes": "* text=auto eol=crlf ident\n", "crlf.txt": "a\r\nb\r\n", "id.txt": "$Id$\n", "empty": "",
		"quote\"and\\back.md": "x", "tab\there.md": "y", "umlaut-ü/deep/er.md": "z",
	}
	repo, err := b.forge.ImportRepository(t.Context(), forgesim.Import{Owner: "acme", Name: "odd", Files: odd})
	must(t, err)
	for path, want := range odd {
		out := git(t, repo.GitDir(), "cat-file", "-p", "main:"+path)
		if out != strings.TrimSpace(want) {
			t.Errorf("%q holds %q, want %q", path, out, want)
		}
	}
	if got := len(strings.Split(git(t, repo.GitDir(), "ls-tree", "-r", "-z", "--name-only", "main"), "\x00")) - 1; got != len(odd) {
		t.Errorf("the tree holds %d files, want %d", got, len(odd))
	}
}
