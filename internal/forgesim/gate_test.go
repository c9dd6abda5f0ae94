package forgesim_test

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fencepost/fencepost/internal/forgesim"
)

const ours = int64(12345)

// contracts/github.md §7, "How a required check is judged".
func TestHowARequiredCheckIsJudged(t *testing.T) {
	t.Parallel()
	const check = "fencepost/docs"
	expected, behind := "check "+check+" is expected", "the head does not contain the base's tip"
	type commits struct{ head, merge string }
	run := func(conclusion string) func(*bench, commits) {
		return func(b *bench, c commits) { b.run(c.head, conclusion, nil) }
	}
	for _, test := range []struct {
		name    string
		ruleset forgesim.Ruleset
		do      func(*bench, commits)
		want    []string
	}{
		{"no rule", forgesim.Ruleset{}, func(*bench, commits) {}, nil},
		{"no run", forgesim.RequireCheck(check, ours), func(*bench, commits) {}, []string{expected}},
		{"success", forgesim.RequireCheck(check, ours), run("success"), nil},
		{"neutral passes", forgesim.RequireCheck(check, ours), run("neutral"), nil},
		{"skipped passes", forgesim.RequireCheck(check, ours), run("skipped"), nil},
		{"failure", forgesim.RequireCheck(check, ours), run("failure"), []string{"check " + check + " is completed failure"}},
		{"action_required blocks", forgesim.RequireCheck(check, ours), run("action_required"), []string{"check " + check + " is completed action_required"}},
		{"not completed", forgesim.RequireCheck(check, ours), run(""), []string{"check " + check + " is queued"}},
		{"the newest counts", forgesim.RequireCheck(check, ours), func(b *bench, c commits) {
			b.run(c.head, "success", nil)
			b.run(c.head, "failure", nil)
		}, []string{"check " + check + " is completed failure"}},
		{"a run on another commit", forgesim.RequireCheck(check, ours), func(b *bench, c commits) {
			b.run(b.repo.Ref("refs/heads/main"), "success", nil)
		}, []string{expected}},
		{"another App", forgesim.RequireCheck(check, ours), func(b *bench, c commits) {
			b.run(c.head, "success", b.otherApp())
		}, []string{expected}},
		{"any App where none is named", forgesim.RequireCheck(check, 0), func(b *bench, c commits) {
			b.run(c.head, "success", b.otherApp())
		}, nil},
		{"a status where no App is named", forgesim.RequireCheck(check, 0), func(b *bench, c commits) {
			b.post(c.head, check, "success", 0)
		}, nil},
		{"a person's status where an App is named", forgesim.RequireCheck(check, ours), func(b *bench, c commits) {
			b.post(c.head, check, "success", 0)
		}, []string{expected}},
		{"run and status are both demanded", forgesim.RequireCheck(check, ours), func(b *bench, c commits) {
			b.run(c.head, "success", nil)
			b.post(c.head, check, "failure", ours)
		}, []string{"status " + check + " is failure"}},
		{"a status on the test merge makes it count instead of the head", forgesim.RequireCheck(check, ours), func(b *bench, c commits) {
			b.run(c.head, "success", nil)
			b.post(c.merge, "anything", "success", 0)
		}, []string{expected}},
		{"a run on the test merge overrides a failure on the head", forgesim.RequireCheck(check, 0), func(b *bench, c commits) {
			b.run(c.head, "failure", nil)
			b.run(c.merge, "success", b.otherApp())
		}, nil},
		{"strict", forgesim.RequireCheck(check, ours), func(b *bench, c commits) {
			b.run(c.head, "success", nil)
			_, err := b.repo.Push(b.t.Context(), forgesim.Push{Change: files("base")})
			must(b.t, err)
		}, []string{behind}},
		{"evaluated only", func() forgesim.Ruleset {
			rs := forgesim.RequireCheck(check, ours)
			rs.Enforcement = forgesim.Evaluate
			return rs
		}(), func(*bench, commits) {}, nil},
		{"classic protection too", forgesim.Ruleset{}, func(b *bench, c commits) {
			b.repo.Protect("main", forgesim.Protection{Checks: []forgesim.RequiredContext{{Context: check}}})
		}, []string{expected}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			pr := b.open("change")
			merge := b.pollPull(pr)["merge_commit_sha"].(string)
			b.repo.AddRuleset(test.ruleset)
			test.do(b, commits{pr.Head(), merge})
			state, err := pr.MergeState(t.Context())
			must(t, err)
			if diff := cmp.Diff(test.want, state.Reasons); diff != "" || state.Allowed != (test.want == nil) {
				t.Errorf("allowed %v; reasons (-want +got):\n%s", state.Allowed, diff)
			}
			err = pr.Merge(t.Context())
			if state.Allowed && (err != nil || pr.State() != "merged") {
				t.Errorf("merge: %v, state %s", err, pr.State())
			}
			if !state.Allowed && !errors.Is(err, forgesim.ErrBlocked) {
				t.Errorf("merge: %v, want ErrBlocked", err)
			}
		})
	}
}

func (b *bench) run(sha, conclusion string, app *forgesim.App) {
	b.t.Helper()
	_, err := b.repo.CreateCheckRun(b.t.Context(), forgesim.NewCheckRun{
		App: app, Name: "fencepost/docs", HeadSHA: sha, Conclusion: conclusion,
	})
	must(b.t, err)
}

func (b *bench) post(sha, context, state string, app int64) {
	b.t.Helper()
	must(b.t, b.repo.PostStatus(b.t.Context(), forgesim.Status{SHA: sha, Context: context, State: state, AppID: app}))
}

func (b *bench) otherApp() *forgesim.App {
	b.t.Helper()
	app, err := b.forge.AddApp(forgesim.AppConfig{ID: 7, Slug: "other", Key: appKey()})
	must(b.t, err)
	return app
}

func TestAMergedRequest(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	pr := b.open("change")
	test := b.pollPull(pr)["merge_commit_sha"]
	b.forge.TakeOutbox()
	must(t, pr.Merge(t.Context()))
	o := b.get("/repos/acme/docs/pulls/1").object(t)
	main := b.repo.Ref("refs/heads/main")
	if o["merged"] != true || o["state"] != "closed" || o["merge_commit_sha"] != main || main == test {
		t.Errorf("merged %v, %v, at %v; want the new tip %s, not the test merge", o["merged"], o["state"], o["merge_commit_sha"], main)
	}
	if diff := cmp.Diff([]string{"pull_request closed", "push"}, b.actions()); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}

func TestMergeableStateIsOfTheGate(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.repo.AddRuleset(forgesim.RequireCheck("fencepost/docs", ours))
	pr := b.open("change")
	want := func(state string) {
		t.Helper()
		if got := b.pollPull(pr)["mergeable_state"]; got != state {
			t.Errorf("mergeable_state is %v, want %s", got, state)
		}
	}
	want("blocked")
	b.run(pr.Head(), "success", nil)
	want("clean")
	must(t, pr.SetDraft(t.Context(), true))
	want("draft")
	must(t, pr.SetDraft(t.Context(), false))
	_, err := b.repo.Push(t.Context(), forgesim.Push{Change: files("base")})
	must(t, err)
	want("behind")
}
