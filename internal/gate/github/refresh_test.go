package github_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/forgesim"
	"github.com/fencepost/fencepost/internal/gate"
	"github.com/fencepost/fencepost/internal/gate/github"
)

func TestRefreshProvesAnOpenGate(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	_, s := b.open(forgesim.OpenPull{})
	got := b.refresh(s)
	if got.State != fencepost.ReasonNone || got.Revision.IsZero() || got.Repository != "acme/docs" {
		t.Fatalf("snapshot %+v", got)
	}
	if got.Head.ID != s.Head || got.Base.ID.String() != b.repo.Ref("refs/heads/main") ||
		got.Candidate.ID.IsZero() || got.Candidate.Tree.IsZero() {
		t.Errorf("commits %+v", got)
	}
	for _, f := range got.Facts {
		if !f.Met() {
			t.Errorf("fact %s: expected %q, observed %q", f.Name, f.Expected, f.Observed)
		}
	}
	if again := b.refresh(s); !cmp.Equal(got, again) {
		t.Errorf("a second refresh differs:\n%s", cmp.Diff(got, again))
	}
}

func TestRefreshSaysWhyAGateCantBeJudged(t *testing.T) {
	t.Parallel()
	other := forgesim.AppConfig{ID: 777, Slug: "other", Key: nil}
	for _, tc := range []struct {
		name string
		do   func(t *testing.T, b *bench, pr *forgesim.PullRequest)
		want fencepost.Reason
		// ended: no gate is left that a result could be for.
		ended bool
	}{
		{"closed", func(t *testing.T, _ *bench, pr *forgesim.PullRequest) { must(t, pr.Close(t.Context())) },
			fencepost.ReasonClosed, true},
		{"draft", func(t *testing.T, _ *bench, pr *forgesim.PullRequest) { must(t, pr.SetDraft(t.Context(), true)) },
			fencepost.ReasonDraft, true},
		{"head moved", func(t *testing.T, _ *bench, pr *forgesim.PullRequest) {
			_, err := pr.Push(t.Context(), forgesim.Change{Files: map[string]string{"b.md": "x"}})
			must(t, err)
		}, fencepost.ReasonSuperseded, true},
		{"base changed", func(t *testing.T, b *bench, pr *forgesim.PullRequest) {
			_, err := b.repo.Push(t.Context(), forgesim.Push{Branch: "next", Change: forgesim.Change{Files: map[string]string{"n": "n"}}})
			must(t, err)
			must(t, pr.SetBase(t.Context(), "next"))
		}, fencepost.ReasonSuperseded, true},
		{"conflict", func(t *testing.T, b *bench, _ *forgesim.PullRequest) {
			_, err := b.repo.Push(t.Context(), forgesim.Push{Branch: "main", Change: forgesim.Change{Files: map[string]string{"a.md": "other\n"}}})
			must(t, err)
		}, fencepost.ReasonNotMergeable, false},
		{"no rule", func(_ *testing.T, b *bench, _ *forgesim.PullRequest) { b.repo.RemoveRuleset(b.rules) },
			fencepost.ReasonGateUnproven, false},
		{"rule not strict", func(_ *testing.T, b *bench, _ *forgesim.PullRequest) {
			rs := forgesim.RequireCheck(check, b.forge.App().ID())
			rs.Rules[0].Strict = false
			b.repo.ReplaceRuleset(b.rules, rs)
		}, fencepost.ReasonGateUnproven, false},
		{"rule met by any App", func(_ *testing.T, b *bench, _ *forgesim.PullRequest) {
			b.repo.ReplaceRuleset(b.rules, forgesim.RequireCheck(check, 0))
		}, fencepost.ReasonGateUnproven, false},
		{"rule met by another App", func(_ *testing.T, b *bench, _ *forgesim.PullRequest) {
			b.repo.ReplaceRuleset(b.rules, forgesim.RequireCheck(check, 4))
		}, fencepost.ReasonGateUnproven, false},
		{"rule only evaluated", func(_ *testing.T, b *bench, _ *forgesim.PullRequest) {
			rs := forgesim.RequireCheck(check, b.forge.App().ID())
			rs.Enforcement = forgesim.Evaluate
			b.repo.ReplaceRuleset(b.rules, rs)
		}, fencepost.ReasonGateUnproven, false},
		{"merge queue", func(_ *testing.T, b *bench, _ *forgesim.PullRequest) {
			b.repo.AddRuleset(forgesim.Ruleset{Rules: []forgesim.Rule{{Type: "merge_queue", Parameters: map[string]any{
				"check_response_timeout_minutes": 60, "grouping_strategy": "ALLGREEN", "max_entries_to_build": 5,
				"max_entries_to_merge": 5, "merge_method": "MERGE", "min_entries_to_merge": 1, "min_entries_to_merge_wait_minutes": 5,
			}}}})
		}, fencepost.ReasonGateUnproven, false},
		{"another App's run on the head", func(t *testing.T, b *bench, pr *forgesim.PullRequest) {
			app, err := b.forge.AddApp(other)
			must(t, err)
			_, err = b.repo.CreateCheckRun(t.Context(), forgesim.NewCheckRun{App: app, Name: check, HeadSHA: pr.Head(), Conclusion: "success"})
			must(t, err)
		}, fencepost.ReasonForeignStatus, false},
		{"a status of our name on the head", func(t *testing.T, b *bench, pr *forgesim.PullRequest) {
			must(t, b.repo.PostStatus(t.Context(), forgesim.Status{SHA: pr.Head(), Context: "Fencepost/Docs", State: "success"}))
		}, fencepost.ReasonForeignStatus, false},
		{"a run on the test merge", func(t *testing.T, b *bench, pr *forgesim.PullRequest) {
			candidate := b.refresh(subjectOf(t, pr)).Candidate.ID.String()
			_, err := b.repo.CreateCheckRun(t.Context(), forgesim.NewCheckRun{Name: check, HeadSHA: candidate, Conclusion: "success"})
			must(t, err)
		}, fencepost.ReasonForeignStatus, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			pr, s := b.open(forgesim.OpenPull{})
			before := b.refresh(s)
			tc.do(t, b, pr)
			got := b.refresh(s)
			if got.State != tc.want || got.Revision.IsZero() != tc.ended {
				t.Fatalf("state %q, revision %v; want %q, ended %v", got.State, got.Revision, tc.want, tc.ended)
			}
			if got.Revision == before.Revision {
				t.Error("the revision is the open gate's")
			}
		})
	}
}

func TestRefreshTakesOthersForWhatTheyAre(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	pr, s := b.open(forgesim.OpenPull{})
	before := b.refresh(s)
	// Our own runs are other evaluations; other names are other people's.
	_, err := b.repo.CreateCheckRun(t.Context(), forgesim.NewCheckRun{Name: check, HeadSHA: pr.Head(), ExternalID: "evl_other", Conclusion: "failure"})
	must(t, err)
	must(t, b.repo.PostStatus(t.Context(), forgesim.Status{SHA: pr.Head(), Context: "ci/build", State: "failure"}))
	if got := b.refresh(s); got.State != fencepost.ReasonNone || got.Revision != before.Revision {
		t.Errorf("state %q, revision changed %v", got.State, got.Revision != before.Revision)
	}
}

func TestARevisionIsOfBaseRuleAndHead(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	_, s := b.open(forgesim.OpenPull{})
	before := b.refresh(s)
	_, err := b.repo.Push(t.Context(), forgesim.Push{Branch: "main", Change: forgesim.Change{Files: map[string]string{"other.md": "x\n"}}})
	must(t, err)
	moved := b.refresh(s)
	if moved.State != fencepost.ReasonNone || moved.Revision == before.Revision || !moved.Moved(before) {
		t.Errorf("base moved: state %q, same revision %v", moved.State, moved.Revision == before.Revision)
	}
	b.repo.AddRuleset(forgesim.RequireCheck(check, b.forge.App().ID()))
	ruled := b.refresh(s)
	if ruled.Revision == moved.Revision || ruled.Moved(moved) {
		t.Errorf("another rule: same revision %v, moved %v", ruled.Revision == moved.Revision, ruled.Moved(moved))
	}
}

func TestRefreshOfAForkThatIsGone(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	fork, err := b.repo.Fork(t.Context(), "someone")
	must(t, err)
	_, s := b.open(forgesim.OpenPull{From: fork, Head: "fix", Change: forgesim.Change{Files: map[string]string{"f.md": "f\n"}}})
	fork.Delete()
	if got := b.refresh(s); got.State != fencepost.ReasonNone || got.Candidate.ID.IsZero() {
		t.Errorf("snapshot %+v", got)
	}
}

func TestRefreshFollowsARenameByIDOnly(t *testing.T) {
	t.Parallel()
	t.Run("renamed", func(t *testing.T) {
		t.Parallel()
		b := newBench(t)
		_, s := b.open(forgesim.OpenPull{})
		before := b.refresh(s)
		must(t, b.repo.Rename("handbook"))
		got := b.refresh(s)
		if got.Repository != "acme/handbook" || got.Revision != before.Revision {
			t.Errorf("repository %q, same revision %v", got.Repository, got.Revision == before.Revision)
		}
		source, err := b.lane.Source(got)
		must(t, err)
		if source.URL != "http://forge.invalid/acme/handbook.git" {
			t.Errorf("source %q", source.URL)
		}
	})
	t.Run("old name taken", func(t *testing.T) {
		t.Parallel()
		b := newBench(t)
		_, s := b.open(forgesim.OpenPull{})
		must(t, b.repo.Rename("handbook"))
		taken, err := b.forge.ImportRepository(t.Context(), forgesim.Import{Owner: "acme", Name: "docs", Files: map[string]string{"x": "x"}, Public: true})
		must(t, err)
		_, err = b.forge.App().Install(taken)
		must(t, err)
		_, err = b.lane.Refresh(t.Context(), s)
		if r := fencepost.ReasonOf(err); r != fencepost.ReasonIdentity && r != fencepost.ReasonProvider {
			t.Fatalf("error %v", err)
		}
	})
	t.Run("old name taken after it was proven", func(t *testing.T) {
		t.Parallel()
		b := newBench(t)
		_, s := b.open(forgesim.OpenPull{})
		b.refresh(s)
		must(t, b.repo.Rename("handbook"))
		taken, err := b.forge.ImportRepository(t.Context(), forgesim.Import{Owner: "acme", Name: "docs", Files: map[string]string{"x": "x"}, Public: true})
		must(t, err)
		_, err = b.forge.App().Install(taken)
		must(t, err)
		got, err := b.lane.Refresh(t.Context(), s)
		if r := fencepost.ReasonOf(err); r != fencepost.ReasonIdentity && r != fencepost.ReasonProvider {
			t.Fatalf("snapshot %+v, error %v", got, err)
		}
	})
	t.Run("transferred", func(t *testing.T) {
		t.Parallel()
		b := newBench(t)
		_, s := b.open(forgesim.OpenPull{})
		must(t, b.repo.Transfer("rival"))
		_, err := b.lane.Refresh(t.Context(), s)
		if err == nil {
			t.Fatal("a repository of another owner was taken")
		}
	})
}

func TestRefreshWaitsForTheTestMergeWithinItsBound(t *testing.T) {
	t.Parallel()
	slow := func(polls int) func(*forgesim.Config, *github.Limits) {
		return func(c *forgesim.Config, _ *github.Limits) { c.MergePolls = polls }
	}
	b := newBench(t, slow(3))
	_, s := b.open(forgesim.OpenPull{})
	if got := b.refresh(s); got.State != fencepost.ReasonNone {
		t.Fatalf("state %q", got.State)
	}
	never := newBench(t, slow(1000))
	_, s = never.open(forgesim.OpenPull{})
	_, err := never.lane.Refresh(t.Context(), s)
	wantReason(t, err, fencepost.ReasonProvider)
}

func TestAStaleTestMergeIsNotTaken(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	_, s := b.open(forgesim.OpenPull{})
	before := b.refresh(s)
	_, err := b.repo.Push(t.Context(), forgesim.Push{Branch: "main", Change: forgesim.Change{Files: map[string]string{"other.md": "x\n"}}})
	must(t, err)
	stale := b.forge.Inject(forgesim.Fault{On: "GET /repos/{owner}/{repo}/pulls/{pull_number}", Times: 2, Effect: forgesim.Stale{}})
	got := b.refresh(s)
	if stale.Met() != 2 || got.Candidate == before.Candidate || got.Base == before.Base {
		t.Errorf("%d stale answers, candidate %v, base %v", stale.Met(), got.Candidate, got.Base)
	}
}

func TestRefreshSurvivesAProviderThatStumbles(t *testing.T) {
	t.Parallel()
	const pulls = "GET /repos/{owner}/{repo}/pulls/{pull_number}"
	for _, tc := range []struct {
		name   string
		faults []forgesim.Fault
		want   fencepost.Reason
	}{
		{"two 502s", []forgesim.Fault{{On: pulls, Times: 2, Effect: forgesim.Fail{Code: 502}}}, fencepost.ReasonNone},
		{"a cut connection", []forgesim.Fault{{On: pulls, Effect: forgesim.DropRequest{}}}, fencepost.ReasonNone},
		{"half an answer", []forgesim.Fault{{On: pulls, Effect: forgesim.Truncate{}}}, fencepost.ReasonNone},
		{"an answer that ends too soon", []forgesim.Fault{{On: pulls, Effect: forgesim.Garble{}}}, fencepost.ReasonNone},
		{"a token that ends in mid-flow", []forgesim.Fault{{On: pulls, Effect: forgesim.ExpireToken{}}}, fencepost.ReasonNone},
		{"a stale answer", []forgesim.Fault{{On: pulls, Times: 2, Effect: forgesim.Stale{}}}, fencepost.ReasonNone},
		{"down", []forgesim.Fault{{On: pulls, Times: -1, Effect: forgesim.Fail{Code: 502}}}, fencepost.ReasonProvider},
		{"primary limit", []forgesim.Fault{{On: pulls, Effect: forgesim.PrimaryLimit{In: time.Hour}}}, fencepost.ReasonRateLimited},
		{"secondary limit", []forgesim.Fault{{On: pulls, Effect: forgesim.SecondaryLimit{RetryAfter: time.Minute}}}, fencepost.ReasonRateLimited},
		{"secondary limit as 429 without a header", []forgesim.Fault{{On: pulls, Effect: forgesim.SecondaryLimit{Code: 429}}}, fencepost.ReasonRateLimited},
		{"403 that names no limit", []forgesim.Fault{{On: pulls, Effect: forgesim.Fail{Code: 403}}}, fencepost.ReasonCredential},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			_, s := b.open(forgesim.OpenPull{})
			for _, f := range tc.faults {
				b.forge.Inject(f)
			}
			got, err := b.lane.Refresh(t.Context(), s)
			wantReason(t, err, tc.want)
			if tc.want == fencepost.ReasonNone && got.State != fencepost.ReasonNone {
				t.Errorf("state %q", got.State)
			}
			wait, asked := errors.AsType[*gate.WaitError](err)
			limited := tc.want == fencepost.ReasonRateLimited || tc.want == fencepost.ReasonCredential
			if asked != limited || (limited && time.Until(wait.Until) < 30*time.Second) {
				t.Errorf("wait %v, want one: %v", wait, limited)
			}
		})
	}
}

func TestWhileLimitedNothingLeaves(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	_, s := b.open(forgesim.OpenPull{})
	b.refresh(s)
	b.forge.Inject(forgesim.Fault{Effect: forgesim.SecondaryLimit{RetryAfter: time.Hour}})
	_, err := b.lane.Refresh(t.Context(), s)
	wantReason(t, err, fencepost.ReasonRateLimited)
	before := len(b.forge.Journal())
	_, err = b.lane.Refresh(t.Context(), s)
	wantReason(t, err, fencepost.ReasonRateLimited)
	if after := len(b.forge.Journal()); after != before {
		t.Errorf("%d requests left", after-before)
	}
}

func TestALimitThatIsShortIsWaitedOut(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(_ *forgesim.Config, l *github.Limits) { l.MaxRateLimitWait = 10 * time.Second })
	_, s := b.open(forgesim.OpenPull{})
	b.forge.Inject(forgesim.Fault{On: "GET /repos/{owner}/{repo}", Effect: forgesim.SecondaryLimit{RetryAfter: time.Second}})
	if got := b.refresh(s); got.State != fencepost.ReasonNone {
		t.Errorf("state %q", got.State)
	}
}

func TestRefreshTellsHiddenFromGone(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	_, s := b.open(forgesim.OpenPull{})
	b.refresh(s)
	b.inst.Remove(b.repo)
	_, err := b.lane.Refresh(t.Context(), s)
	wantReason(t, err, fencepost.ReasonCredential)
}

func TestRefreshWithoutNeededPermissions(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	_, s := b.open(forgesim.OpenPull{})
	less := forgesim.GatePermissions()
	delete(less, "statuses")
	b.inst.SetPermissions(less)
	_, err := b.lane.Refresh(t.Context(), s)
	if r := fencepost.ReasonOf(err); r != fencepost.ReasonCredential && r != fencepost.ReasonProvider {
		t.Fatalf("error %v", err)
	}
}

func TestASecondRefreshCostsFewCountedRequests(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	_, s := b.open(forgesim.OpenPull{})
	b.refresh(s)
	var full, unchanged int
	before := len(b.forge.Journal())
	b.refresh(s)
	for _, e := range b.forge.Journal()[before:] {
		if e.Status == 304 {
			unchanged++
		} else {
			full++
		}
	}
	if full > 1 || unchanged == 0 {
		t.Errorf("%d whole answers, %d unchanged", full, unchanged)
	}
}

// An answer that was cut off under an ETag that holds must not be asked about
// again: "not modified" would make it true for ever.
func TestAGarbledAnswerIsNotKept(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(_ *forgesim.Config, l *github.Limits) { l.ReadAttempts = 1 })
	_, s := b.open(forgesim.OpenPull{})
	b.forge.Inject(forgesim.Fault{On: "GET /repos/{owner}/{repo}/pulls/{pull_number}", Effect: forgesim.Garble{}})
	_, err := b.lane.Refresh(t.Context(), s)
	wantReason(t, err, fencepost.ReasonProvider)
	b.refresh(s)
}

func TestRefreshEndsWithItsContext(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(_ *forgesim.Config, l *github.Limits) {
		l.NotYetVisible = time.Minute
		l.VisiblePause = time.Second
	})
	_, s := b.open(forgesim.OpenPull{})
	ctx, cancel := context.WithCancelCause(t.Context())
	cause := errors.New("enough")
	b.forge.Inject(forgesim.Fault{
		On:     "GET /repos/{owner}/{repo}/pulls/{pull_number}",
		Effect: forgesim.After{Do: func(context.Context) error { cancel(cause); return nil }},
	})
	_, err := b.lane.Refresh(ctx, s)
	wantReason(t, err, fencepost.ReasonProvider)
}
