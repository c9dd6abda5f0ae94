package gitlab_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/forgesim"
	forge "github.com/fencepost/fencepost/internal/forgesim/gitlab"
	"github.com/fencepost/fencepost/internal/gate"
)

func TestRefreshProvesTheFirstCar(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	tip := b.docs.Ref("refs/heads/main")
	car, s := b.join("change")
	got := b.wantState(s, fencepost.ReasonNone, "")
	if got.Repository != "acme/handbooks/docs" || got.Candidate.ID != s.Head || got.Base.ID.String() != tip ||
		got.Head.ID.String() != requestHead(b, "change") || got.Revision.IsZero() ||
		got.Candidate.Tree.IsZero() || got.Base.Tree.IsZero() || got.Head.Tree.IsZero() {
		t.Errorf("snapshot %+v", got)
	}
	if again := b.refresh(s); again.Revision != got.Revision {
		t.Errorf("unchanged, but revision %s and %s", got.Revision, again.Revision)
	}
	source, err := b.lane.Source(got)
	must(t, err)
	if source.URL != b.server.Git+"/acme/handbooks/docs.git" {
		t.Errorf("source %q", source.URL)
	}
	if _, err := b.lane.Source(gate.Snapshot{}); err == nil {
		t.Error("a source of no snapshot")
	}
	must(t, car.Leave(t.Context()))
	b.wantState(s, fencepost.ReasonSuperseded, "")
}

func requestHead(b *bench, branch string) string { return b.docs.Ref("refs/heads/" + branch) }

// TestASecondCarStandsBehindTheFirst: the base is the commit of the car before,
// and the revision stays when that is merged, and is the tip of the branch.
func TestASecondCarStandsBehindTheFirst(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	first, one := b.join("one")
	second, two := b.join("two")
	third, three := b.join("three")
	before := b.wantState(two, fencepost.ReasonNone, "")
	if before.Base.ID != one.Head {
		t.Errorf("base %s, want the first car's %s", before.Base.ID, one.Head)
	}
	if got := b.wantState(three, fencepost.ReasonNone, ""); got.Base.ID != two.Head {
		t.Errorf("base %s, want the second car's %s", got.Base.ID, two.Head)
	}
	must(t, first.Pipeline().Job(jobName).Finish(t.Context(), nil))
	if got := b.docs.Ref("refs/heads/main"); got != one.Head.String() {
		t.Fatalf("main is %s, want the first car's commit", got)
	}
	after := b.wantState(two, fencepost.ReasonNone, "")
	if after.Revision != before.Revision {
		t.Errorf("revision %s before and %s after the car before was merged", before.Revision, after.Revision)
	}
	b.wantState(one, fencepost.ReasonClosed, "")

	// The second fails and leaves; the third is built anew.
	pipeline := third.Pipeline().ID()
	must(t, second.Pipeline().Job(jobName).Finish(t.Context(), errors.New("red")))
	if third.Pipeline().ID() == pipeline {
		t.Fatal("the third car has its old pipeline")
	}
	b.wantState(three, fencepost.ReasonSuperseded, "")
	b.wantState(b.subject(third.Pipeline().Job(jobName)), fencepost.ReasonNone, "")
}

func TestWhatMovesOnIsSuperseded(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for i, c := range []struct {
		name string
		do   func(b *bench, car *forge.Car) error
		want fencepost.Reason
	}{
		{"a push to the base", func(b *bench, _ *forge.Car) error {
			_, err := b.docs.Push(b.t.Context(), forgesim.Push{Branch: "main", Change: forgesim.Change{Files: map[string]string{"a.md": "a\n"}}})
			return err
		}, fencepost.ReasonSuperseded},
		{"a push to the source", func(b *bench, car *forge.Car) error {
			_, err := car.Pipeline().Job(jobName).Request().Push(b.t.Context(), forgesim.Change{Files: map[string]string{"b.md": "b\n"}})
			return err
		}, fencepost.ReasonSuperseded},
		{"closed", func(b *bench, car *forge.Car) error {
			return car.Pipeline().Job(jobName).Request().Close(b.t.Context())
		}, fencepost.ReasonClosed},
		{"another target", func(b *bench, car *forge.Car) error {
			if _, err := b.docs.Push(b.t.Context(), forgesim.Push{Branch: "next", Change: forgesim.Change{Files: map[string]string{"n.md": "n\n"}}}); err != nil {
				return err
			}
			return car.Pipeline().Job(jobName).Request().SetTarget(b.t.Context(), "next")
		}, fencepost.ReasonGateUnproven},
		{"the job has ended", func(b *bench, car *forge.Car) error {
			return car.Pipeline().Job(jobName).Finish(b.t.Context(), errors.New("red"))
		}, fencepost.ReasonSuperseded},
	} {
		car, s := b.join(fmt.Sprint("change-", i))
		before := b.wantState(s, fencepost.ReasonNone, "")
		must(t, c.do(b, car))
		got := b.refresh(s)
		if got.State != c.want || got.Revision == before.Revision {
			t.Errorf("%s: state %q with revision %s, want %q and another one; unmet: %v", c.name, got.State, got.Revision, c.want, unmetOf(got))
		}
		if car.Status() != "" {
			must(t, car.Leave(t.Context()))
		}
	}
}

// TestEverySettingIsNeeded changes one setting at a time.
func TestEverySettingIsNeeded(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	_, s := b.join("change")
	b.wantState(s, fencepost.ReasonNone, "")
	good := forge.GateSettings()
	for _, c := range []struct {
		unmet  string
		change func(*forge.Settings)
	}{
		{"project.merge_method", func(s *forge.Settings) { s.MergeMethod = "ff" }},
		{"project.merge_method", func(s *forge.Settings) { s.MergeMethod = "rebase_merge" }},
		{"project.squash_option", func(s *forge.Settings) { s.SquashOption = "always" }},
		{"project.merge_pipelines_enabled", func(s *forge.Settings) { s.MergePipelines = false }},
		{"project.merge_trains_enabled", func(s *forge.Settings) { s.MergeTrains = false }},
		{"project.merge_train_enforcement", func(s *forge.Settings) { s.Enforcement = "allow_bypass" }},
		{"project.merge_train_enforcement", func(s *forge.Settings) { s.Enforcement = "enforce_with_owner_override" }},
		{"project.merge_trains_skip_train_allowed", func(s *forge.Settings) { s.SkipTrainAllowed = true }},
		{"project.only_allow_merge_if_pipeline_succeeds", func(s *forge.Settings) { s.OnlyIfPipelineSucceeds = false }},
		{"project.allow_merge_on_skipped_pipeline", func(s *forge.Settings) { s.AllowSkippedPipeline = true }},
		{"project.repository_object_format", func(s *forge.Settings) { s.ObjectFormat = "sha256" }},
	} {
		b.docs.Set(c.change)
		b.wantState(s, fencepost.ReasonGateUnproven, c.unmet)
		b.docs.Set(func(s *forge.Settings) { *s = good })
	}
	// What is hidden is not proven.
	for _, field := range []string{
		"repository_object_format", "merge_method", "squash_option", "merge_pipelines_enabled", "merge_trains_enabled", "merge_train_enforcement",
		"merge_trains_skip_train_allowed", "only_allow_merge_if_pipeline_succeeds", "allow_merge_on_skipped_pipeline",
	} {
		b.docs.Hide(field)
		b.wantState(s, fencepost.ReasonGateUnproven, "project."+field)
	}
	b.docs.Hide()
	for _, c := range []struct {
		unmet    string
		branches []forge.ProtectedBranch
	}{
		{"branch.protected branch.push branch.allow_force_push", nil},
		{"branch.protected branch.push branch.allow_force_push", []forge.ProtectedBranch{{Name: "maintenance"}, {Name: "mai*t"}}},
		{"branch.push", []forge.ProtectedBranch{{Name: "main", Push: forge.Maintainer}}},
		{"branch.push", []forge.ProtectedBranch{{Name: "main"}, {Name: "m*", Push: forge.Developer}}},
		{"branch.allow_force_push", []forge.ProtectedBranch{{Name: "*", ForcePush: true}}},
	} {
		b.docs.Protect(c.branches...)
		b.wantState(s, fencepost.ReasonGateUnproven, c.unmet)
	}
	b.docs.Protect(forge.ProtectedBranch{Name: "m*n"})
	b.wantState(s, fencepost.ReasonNone, "")
}

// TestEveryClaimAndJobFieldIsNeeded changes one thing at a time of what the
// token says, or of what the API says of the job, the request and the car.
func TestEveryClaimAndJobFieldIsNeeded(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	_, good := b.join("change")
	for _, c := range []struct {
		name, unmet string
		change      func(*gate.Subject)
	}{
		{"the project's own job", "job.source", func(s *gate.Subject) { s.Job.Source = "merge_request_event" }},
		{"no source", "job.source", func(s *gate.Subject) { s.Job.Source = "" }},
		{"another policy commit", "policy.commit policy.url policy.file", func(s *gate.Subject) { s.Job.PolicyCommit = pinned }},
		{"no policy", "policy.commit policy.url policy.file", func(s *gate.Subject) { s.Job.PolicyCommit, s.Job.PolicyURL = "", "" }},
		{"another policy project", "policy.url", func(s *gate.Subject) { s.Job.PolicyURL = strings.Replace(s.Job.PolicyURL, "/acme/", "/evil/", 1) }},
		{"another policy file", "policy.url", func(s *gate.Subject) { s.Job.PolicyURL += "l" }},
		{"another request", "pipeline.ref request", func(s *gate.Subject) { s.Number = 77 }},
		{"another commit", "pipeline.sha car.pipeline.sha", func(s *gate.Subject) { s.Head = commit(t, pinned) }},
	} {
		s := good
		c.change(&s)
		got := b.refresh(s)
		if names := strings.Join(unmetNames(got), " "); got.State != fencepost.ReasonGateUnproven || names != c.unmet {
			t.Errorf("%s: %q with %v, want %q", c.name, got.State, unmetOf(got), c.unmet)
		}
	}
	for _, c := range []struct {
		name, path, unmet string
		change            func(map[string]any)
	}{
		{"another job of the policy", "/jobs/", "job.name", func(v map[string]any) { v["name"] = "fencepost:policy-31-0" }},
		{"a job that may fail", "/jobs/", "job.allow_failure", func(v map[string]any) { v["allow_failure"] = true }},
		{"a pipeline in a fork", "/jobs/", "pipeline.project", func(v map[string]any) { v["pipeline"].(map[string]any)["project_id"] = 21 }},
		{"a downstream pipeline", "/jobs/", "pipeline.id", func(v map[string]any) { v["pipeline"].(map[string]any)["id"] = 9 }},
		{"a merged result", "/jobs/", "pipeline.ref", func(v map[string]any) { v["pipeline"].(map[string]any)["ref"] = "refs/merge-requests/1/merge" }},
		{"the source's head", "/jobs/", "pipeline.ref", func(v map[string]any) { v["pipeline"].(map[string]any)["ref"] = "refs/merge-requests/1/head" }},
		{"another branch", "/merge_requests/1", "request.target_branch", func(v map[string]any) { v["target_branch"] = "next" }},
		{"another project", "/merge_requests/1", "request.target_project", func(v map[string]any) { v["target_project_id"] = 21 }},
		{"a squash", "/merge_requests/1", "request.squash", func(v map[string]any) { v["squash"] = true }},
		{"a squash by the project", "/merge_requests/1", "request.squash", func(v map[string]any) { v["squash_on_merge"] = true }},
	} {
		b.answer(c.path, c.change)
		got := b.refresh(good)
		if names := strings.Join(unmetNames(got), " "); got.State != fencepost.ReasonGateUnproven || names != c.unmet {
			t.Errorf("%s: %q with %v, want %q", c.name, got.State, unmetOf(got), c.unmet)
		}
	}
	for _, c := range []struct {
		name, path string
		change     func(map[string]any)
		want       fencepost.Reason
	}{
		{"a draft", "/merge_requests/1", func(v map[string]any) { v["draft"] = true }, fencepost.ReasonDraft},
		{"merged", "/merge_requests/1", func(v map[string]any) { v["state"] = "merged" }, fencepost.ReasonClosed},
		{"being merged", "/merge_requests/1", func(v map[string]any) { v["state"] = "locked" }, fencepost.ReasonClosed},
		{"another head", "/merge_requests/1", func(v map[string]any) { v["sha"] = pinned }, fencepost.ReasonSuperseded},
		{"a canceled job", "/jobs/", func(v map[string]any) { v["status"] = "canceled" }, fencepost.ReasonSuperseded},
		{"a new tip", "/repository/branches/main", func(v map[string]any) { v["commit"].(map[string]any)["id"] = pinned }, fencepost.ReasonSuperseded},
	} {
		b.answer(c.path, c.change)
		if got := b.refresh(good); got.State != c.want {
			t.Errorf("%s: %q with %v, want %q", c.name, got.State, unmetOf(got), c.want)
		}
	}
	b.forge.Interfere(nil)
	b.wantState(good, fencepost.ReasonNone, "")
}

// answer changes what the API says of a path from now on.
func (b *bench) answer(path string, change func(map[string]any)) {
	b.t.Helper()
	b.forge.Interfere(func(r *http.Request) *forge.Answer {
		if !strings.Contains(r.URL.Path, "/api/v4") || !strings.Contains(r.URL.Path, path) || r.Header.Get("X-Inner") != "" {
			return nil
		}
		inner := r.Clone(r.Context())
		inner.Header.Set("X-Inner", "1")
		w := httptest.NewRecorder()
		b.forge.ServeHTTP(w, inner)
		return &forge.Answer{Status: w.Code, Header: w.Header(), Body: edited(b.t, w.Body.Bytes(), change)}
	})
}

// TestWhatCanNotBeLearntIsAnError: each with the reason that says how to go on.
func TestWhatCanNotBeLearntIsAnError(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	_, s := b.join("change")
	refresh := func() error {
		_, err := b.lane.Refresh(t.Context(), s)
		return err
	}
	for _, path := range []string{
		"/projects/20", "/jobs/", "/merge_requests/1", "/merge_trains/", "/protected_branches", "/repository/files/", "/repository/branches/", "/info/refs",
	} {
		b.lane = b.newLane()
		b.forge.Interfere(func(r *http.Request) *forge.Answer {
			if strings.HasSuffix(r.URL.Path, path) || strings.Contains(r.URL.Path, path) && path != "/projects/20" {
				return forge.Broken()
			}
			return nil
		})
		err := refresh()
		if r := fencepost.ReasonOf(err); err == nil || r != fencepost.ReasonProvider && r != fencepost.ReasonAcquisition {
			t.Errorf("%s answered 500: %v (%s)", path, err, r)
		}
	}
	b.forge.Interfere(nil)
	must(t, refresh())

	b.lane = b.newLane()
	b.forge.Interfere(func(*http.Request) *forge.Answer { return b.forge.TooMany(time.Minute) })
	limited := func() {
		t.Helper()
		err := refresh()
		wantReason(t, err, fencepost.ReasonRateLimited)
		if wait, ok := errors.AsType[*gate.WaitError](err); !ok || !wait.Until.Equal(b.time().Add(time.Minute)) {
			t.Errorf("%v, want to be told to ask again in a minute", err)
		}
	}
	limited()
	b.forge.Interfere(nil)
	limited()
	b.now.Add(61)
	must(t, refresh())

	b.forge.SetDown(true)
	wantReason(t, refresh(), fencepost.ReasonProvider)
	b.forge.SetDown(false)
	good := b.token
	b.token = "glpat-of-nobody"
	wantReason(t, refresh(), fencepost.ReasonCredential)
	b.token = good
	must(t, b.docs.Transfer("others"))
	wantReason(t, refresh(), fencepost.ReasonIdentity)
	b.docs.Delete()
	wantReason(t, refresh(), fencepost.ReasonCredential)
}

// TestWhatIsNotShownYetIsAskedForAgain: a job, and a car's pipeline.
func TestWhatIsNotShownYetIsAskedForAgain(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.forge.SetLag(1)
	_, s := b.join("change")
	_, err := b.lane.Refresh(t.Context(), s)
	if !errors.Is(err, gate.ErrNotYet) || fencepost.ReasonOf(err) != fencepost.ReasonProvider {
		t.Fatalf("error %v, want one that says that it is not there yet", err)
	}
	b.wantState(s, fencepost.ReasonNone, "")
}

// TestARequestOfAForkCountsWhereItsPipelineRunsHere: also once the fork is gone,
// and the project has another name.
func TestARequestOfAForkCountsWhereItsPipelineRunsHere(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	fork, err := b.docs.Fork(t.Context(), "sample-user")
	must(t, err)
	m, err := b.docs.OpenRequest(t.Context(), forge.Open{From: fork, Source: "change", Change: forgesim.Change{Files: map[string]string{"f.md": "f\n"}}})
	must(t, err)
	car, err := m.JoinTrain(t.Context())
	must(t, err)
	s := b.subject(car.Pipeline().Job(jobName))
	before := b.wantState(s, fencepost.ReasonNone, "")
	fork.Delete()
	must(t, b.docs.Rename("manual"))
	after := b.wantState(s, fencepost.ReasonNone, "")
	if after.Revision != before.Revision || after.Repository != "acme/handbooks/manual" {
		t.Errorf("%q with revision %s, before %s", after.Repository, after.Revision, before.Revision)
	}
}

// TestCalls counts what one evaluation asks, as docs/gates-gitlab.md says.
func TestCalls(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	_, first := b.join("one")
	_, second := b.join("two")
	count := func(s gate.Subject) (api, git int) {
		t.Helper()
		before := len(b.forge.Journal())
		b.wantState(s, fencepost.ReasonNone, "")
		seen := map[string]int{}
		for _, r := range b.forge.Journal()[before:] {
			if strings.HasPrefix(r.Path, forge.APIPrefix) {
				api++
			} else {
				git++
			}
			if seen[r.Method+r.Path]++; seen[r.Method+r.Path] > 1 {
				t.Errorf("%s is asked for twice", r.Path)
			}
		}
		return api, git
	}
	for _, c := range []struct {
		what     string
		s        gate.Subject
		api, git int
	}{
		{"the first car, with a policy that is not known yet", first, 7, 2},
		{"the first car again", first, 6, 0},
		{"a later car", second, 5, 2},
		{"a later car again", second, 5, 0},
	} {
		if api, git := count(c.s); api != c.api || git != c.git {
			t.Errorf("%s: %d calls to the API and %d to Git, want %d and %d", c.what, api, git, c.api, c.git)
		}
	}
}
