package gitlab_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost/internal/forgesim"
	"github.com/fencepost/fencepost/internal/forgesim/gitlab"
)

func TestEachCarIsBuiltOnTheOneBefore(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	base := b.main()
	one, two := b.open("one", "1"), b.open("two", "2")
	first, second := b.join(one), b.join(two)
	if got := b.parents(first.Commit()); !slices.Equal(got, []string{base, one.Head()}) {
		t.Errorf("the first car's parents are %v", got)
	}
	if got := b.parents(second.Commit()); !slices.Equal(got, []string{first.Commit(), two.Head()}) {
		t.Errorf("the second car's parents are %v", got)
	}
	if b.docs.Ref("refs/merge-requests/1/train") != first.Commit() || b.docs.Ref("refs/merge-requests/2/head") != two.Head() {
		t.Error("the refs are others")
	}
	// The second waits for the first, and neither is built again.
	pipe := second.Pipeline()
	b.finish(second, nil)
	if two.State() != "opened" {
		t.Error("the second car was merged before the first")
	}
	b.finish(first, nil)
	if one.State() != "merged" || two.State() != "merged" || b.main() != second.Commit() || second.Pipeline() != pipe {
		t.Errorf("merged are %s and %s, main is %s", one.State(), two.State(), b.main())
	}
	if one.MergeCommit() != first.Commit() || b.docs.Ref("refs/merge-requests/1/train") != "" {
		t.Error("the train commit is not what was merged, or its ref is still there")
	}
	cars := b.get("/merge_trains?scope=complete&sort=asc").([]any)
	if len(cars) != 2 || cars[0].(map[string]any)["status"] != "merged" || cars[0].(map[string]any)["merged_at"] == nil {
		t.Errorf("complete are %v", cars)
	}
	if cars := b.get("/merge_trains?scope=active").([]any); len(cars) != 0 {
		t.Errorf("active are %v", cars)
	}
}

func TestAFailedCarLeavesAndThoseBehindAreBuiltAnew(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	base := b.main()
	one, two := b.open("one", "1"), b.open("two", "2")
	first, second := b.join(one), b.join(two)
	old := second.Pipeline()
	b.finish(first, errRed)
	if first.Left() != "the pipeline failed" || one.State() != "opened" || b.docs.Ref("refs/merge-requests/1/train") != "" {
		t.Errorf("the first car left for %q, the request is %s", first.Left(), one.State())
	}
	if code, _, _ := b.do("GET", fmt.Sprintf("/api/v4/projects/%d/merge_trains/merge_requests/1", b.docs.ID()), b.token); code != 404 {
		t.Errorf("a car that left: %d", code)
	}
	fresh := second.Pipeline()
	if old.Status() != "canceled" || old.Job("fencepost").Status() != "canceled" || fresh == old || fresh.ID() == old.ID() {
		t.Error("the second car's pipeline is the old one")
	}
	if got := b.parents(fresh.SHA()); !slices.Equal(got, []string{base, two.Head()}) {
		t.Errorf("the second car's parents are %v", got)
	}
	if err := old.Job("fencepost").Finish(t.Context(), nil); !errors.Is(err, forgesim.ErrState) {
		t.Errorf("a cancelled job ends: %v", err)
	}
	if _, err := first.Pipeline().Job("fencepost").Retry("mona"); !errors.Is(err, gitlab.ErrRefused) {
		t.Errorf("a failed train pipeline is retried: %v", err)
	}
	b.finish(second, nil)
	if two.State() != "merged" || b.main() != fresh.SHA() {
		t.Error("the second was not merged")
	}
}

func TestAPushRebuildsTheTrain(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	m := b.open("one", "1")
	car := b.join(m)
	old := car.Pipeline()
	tip, err := b.docs.Push(t.Context(), forgesim.Push{Change: texts("other")})
	must(t, err)
	if got := b.parents(car.Commit()); car.Pipeline() == old || old.Status() != "canceled" || !slices.Equal(got, []string{tip, m.Head()}) {
		t.Errorf("after a push to the target the parents are %v", got)
	}
	must(t, skip(m.Push(t.Context(), texts("2"))))
	if car.Left() != "the source branch moved" || b.docs.Ref("refs/merge-requests/1/train") != "" {
		t.Errorf("after a push to the source the car is there; %q", car.Left())
	}
}

func TestConflicts(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.docs.SetJobs(gitlab.JobSpec{Name: "fencepost", Audience: audience, Kinds: []gitlab.Kind{gitlab.MergedResult, gitlab.MergeTrain, gitlab.Detached}})
	clean := b.open("clean", "a")
	if p := clean.HeadPipeline(); p.Ref() != "refs/merge-requests/1/merge" || p.SHA() == clean.Head() ||
		!slices.Equal(b.parents(p.SHA()), []string{b.main(), clean.Head()}) {
		t.Errorf("a merged result is of %s", p.Ref())
	}
	must(t, clean.HeadPipeline().Job("fencepost").Finish(t.Context(), nil))
	b.join(clean)
	must(t, skip(b.docs.Push(t.Context(), forgesim.Push{Branch: "clash", Onto: b.main(), Change: forgesim.Change{Files: map[string]string{"a": "another\n"}}})))
	// The two merge with main, but not with each other.
	second := b.open("clash")
	must(t, second.HeadPipeline().Job("fencepost").Finish(t.Context(), nil))
	car := b.join(second)
	if car.Left() != "a conflict" {
		t.Errorf("a car that conflicts with the one before left for %q", car.Left())
	}
	must(t, skip(b.docs.Push(t.Context(), forgesim.Push{Change: forgesim.Change{Files: map[string]string{"a": "a third\n"}}})))
	must(t, skip(second.Push(t.Context(), texts("b"))))
	// contracts/gitlab.md, traps 4
	if p := second.HeadPipeline(); p.Ref() != "refs/merge-requests/2/head" || p.SHA() != second.Head() {
		t.Errorf("a conflict's pipeline is of %s", p.Ref())
	}
	claims := second.HeadPipeline().Job("fencepost").Claims(audience)
	if claims["sha"] != second.Head() || claims["job_source"] != "merge_request_event" || claims["job_config"] != nil || claims["ci_config_ref_uri"] == nil {
		t.Errorf("a job of the project's own says %v", claims)
	}
	if code, _, _ := b.do("GET", fmt.Sprintf("/api/v4/projects/%d/merge_requests/2/merge_ref", b.docs.ID()), b.token); code != 400 {
		t.Errorf("the merge ref of a conflict: %d", code)
	}
	if o := b.get("/merge_requests/2").(map[string]any); o["has_conflicts"] != true || o["detailed_merge_status"] != "conflict" {
		t.Errorf("the request says %v", o["detailed_merge_status"])
	}
}

func TestForksRunAtHomeButTrainsHere(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	fork, err := b.docs.Fork(t.Context(), "mallory")
	must(t, err)
	fork.SetJobs(gitlab.JobSpec{Name: "fencepost", Audience: audience, Kinds: []gitlab.Kind{gitlab.Detached}})
	m, err := b.docs.OpenRequest(t.Context(), gitlab.Open{Source: "theirs", From: fork, Change: texts("a")})
	must(t, err)
	claims := m.HeadPipeline().Job("fencepost").Claims(audience)
	if claims["job_project_id"] != fmt.Sprint(fork.ID()) || claims["project_id"] != fmt.Sprint(fork.ID()) {
		t.Errorf("a fork's pipeline says %v", claims)
	}
	must(t, m.HeadPipeline().Job("fencepost").Finish(t.Context(), nil))
	claims = b.join(m).Pipeline().Job("fencepost").Claims(audience)
	// contracts/gitlab.md, traps 1
	if claims["job_project_id"] != fmt.Sprint(b.docs.ID()) || claims["project_id"] != fmt.Sprint(fork.ID()) || claims["namespace_path"] != "mallory" {
		t.Errorf("a train's pipeline says %v", claims)
	}
	fork.Delete()
	if o := b.get("/merge_requests/1").(map[string]any); o["source_project_id"] != nil {
		t.Errorf("a deleted fork is %v", o["source_project_id"])
	}
}

func TestWhoMayPassByTheTrain(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		enforcement string
		level       gitlab.Level
		skip, may   bool
		skipAllowed bool
	}{
		{"allow_bypass", gitlab.Maintainer, false, true, false},
		{"allow_bypass", gitlab.Maintainer, true, false, false},
		{"allow_bypass", gitlab.Maintainer, true, true, true},
		{"allow_bypass", gitlab.Reporter, false, false, false},
		{"enforce_for_all_users", gitlab.Owner, false, false, false},
		{"enforce_with_owner_override", gitlab.Maintainer, false, false, false},
		{"enforce_with_owner_override", gitlab.Owner, false, true, false},
	} {
		t.Run(fmt.Sprintf("%s %d skip %t of %t", tc.enforcement, tc.level, tc.skip, tc.skipAllowed), func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			b.docs.Set(func(s *gitlab.Settings) { s.Enforcement, s.SkipTrainAllowed = tc.enforcement, tc.skipAllowed })
			waiting := b.join(b.open("waiting", "w"))
			old := waiting.Pipeline()
			m := b.open("now", "n")
			path := fmt.Sprintf("/api/v4/projects/%d/merge_requests/2/merge", b.docs.ID())
			code, _, body := b.do("PUT", path, b.forge.NewToken("mona", tc.level, "api"), fmt.Sprintf(`{"skip_merge_train":%t}`, tc.skip))
			if want := map[bool]int{true: 200, false: 405}[tc.may]; code != want {
				t.Fatalf("answered %d %s, want %d", code, body, want)
			}
			if merged := m.State() == "merged"; merged != tc.may || tc.may && b.main() != m.MergeCommit() {
				t.Errorf("the request is %s", m.State())
			}
			if rebuilt := waiting.Pipeline() != old; rebuilt != tc.may {
				t.Errorf("the train was built anew: %t", rebuilt)
			}
		})
	}
}

func TestAJobIsRetriedWhileItsPipelineRuns(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	policy := &gitlab.Policy{Project: b.policies}
	b.docs.SetJobs(
		gitlab.JobSpec{Name: "fencepost", Policy: policy, Audience: audience}, gitlab.JobSpec{Name: "tests", AllowFailure: true},
	)
	m := b.open("one", "1")
	car := b.join(m)
	b.finish(car, errRed)
	first := car.Pipeline().Job("fencepost")
	second, err := first.Retry("mona")
	must(t, err)
	if second.ID() == first.ID() || second.Pipeline() != first.Pipeline() {
		t.Error("the retry is no new job of the same pipeline")
	}
	if second.Claims(audience)["user_login"] != "mona" || second.Claims(audience)["jti"] == first.Claims(audience)["jti"] {
		t.Error("the retry has the identity of the first run")
	}
	must(t, car.Pipeline().Job("tests").Finish(t.Context(), errRed))
	must(t, second.Finish(t.Context(), nil))
	if m.State() != "merged" {
		t.Errorf("a failure that is allowed keeps it %s", m.State())
	}
}

func TestJobsRunByThemselves(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	cancelled := make(chan struct{}, 1)
	ran := make(chan []string, 4)
	b.forge.OnJob(func(ctx context.Context, j *gitlab.Job) error {
		env, err := j.Environment()
		ran <- env
		if j.Request().IID() == 2 {
			return errors.Join(err, errRed)
		}
		if j.Request().IID() == 3 {
			<-ctx.Done()
			cancelled <- struct{}{}
			return nil
		}
		return err
	})
	wait := func(what string, until func() bool) {
		t.Helper()
		for deadline := time.Now().Add(20 * time.Second); !until(); time.Sleep(5 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("%s within 20 s", what)
			}
		}
	}
	good := b.open("good", "1")
	b.join(good)
	wait("no merge", func() bool { return good.State() == "merged" })
	env := <-ran
	for _, want := range []string{"CI_MERGE_REQUEST_IID=1", "CI_MERGE_REQUEST_EVENT_TYPE=merge_train", "CI_SERVER_URL=http://gitlab.invalid", "CI_JOB_NAME=fencepost"} {
		if !slices.Contains(env, want) {
			t.Errorf("the environment lacks %s", want)
		}
	}
	if !slices.ContainsFunc(env, func(v string) bool { return strings.HasPrefix(v, "FENCEPOST_ID_TOKEN=ey") }) {
		t.Error("the environment has no token")
	}
	bad := b.join(b.open("bad", "2"))
	wait("no leaving", func() bool { return bad.Left() != "" })
	hanging := b.join(b.open("hanging", "3"))
	must(t, hanging.Leave(t.Context()))
	<-cancelled
	if hanging.Status() != "" || hanging.Pipeline().Status() != "canceled" {
		t.Errorf("the car is %s, its pipeline %s", hanging.Status(), hanging.Pipeline().Status())
	}
}

func TestNewThingsAreThereLate(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.forge.SetLag(1)
	car := b.join(b.open("one", "1"))
	pipe := car.Pipeline()
	for _, path := range []string{fmt.Sprintf("/jobs/%d", pipe.Job("fencepost").ID()), fmt.Sprintf("/pipelines/%d", pipe.ID())} {
		at := fmt.Sprintf("/api/v4/projects/%d%s", b.docs.ID(), path)
		if code, _, _ := b.do("GET", at, b.token); code != 404 {
			t.Errorf("%s at once: %d", path, code)
		}
		b.get(path)
	}
	for _, want := range []bool{true, false} {
		if o := b.get("/merge_trains/merge_requests/1").(map[string]any); (o["pipeline"] == nil) != want {
			t.Errorf("the car's pipeline is %v", o["pipeline"])
		}
		if o := b.get("/merge_requests/1").(map[string]any); (o["diff_refs"] == nil) != want {
			t.Errorf("the diff_refs are %v", o["diff_refs"])
		}
	}
}

func TestFilesOfThePolicy(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	commit := b.policies.Ref("refs/heads/main")
	must(t, skip(b.policies.Push(t.Context(), forgesim.Push{Change: forgesim.Change{Files: map[string]string{gitlab.PolicyPath: "moved\n"}}})))
	at := fmt.Sprintf("/api/v4/projects/%d/repository/files/.gitlab%%2Fsecurity-policies%%2Fpolicy.yml", b.policies.ID())
	code, header, body := b.do("GET", at+"/raw?ref="+commit, b.token)
	if code != 200 || body != "pipeline_execution_policy: []\n\n" || header.Get("X-Gitlab-Commit-Id") != commit {
		t.Errorf("raw: %d %q", code, body)
	}
	code, _, body = b.do("GET", at+"?ref="+commit, b.token)
	var o map[string]any
	must(t, json.Unmarshal([]byte(body), &o))
	hold(t, "file", o, map[string]string{"file_name": "string", "file_path": "string", "size": "int", "encoding": "string", "content": "string",
		"content_sha256": "string", "ref": "string", "blob_id": "string", "commit_id": "string", "last_commit_id": "string"})
	if code != 200 || o["content"] != "cGlwZWxpbmVfZXhlY3V0aW9uX3BvbGljeTogW10KCg==" || o["size"] != 31.0 {
		t.Errorf("file: %d %v", code, o)
	}
	for path, want := range map[string]int{at: 400, at + "?ref=nothing": 404, strings.Replace(at, "policy.yml", "other.yml", 1) + "?ref=main": 404} {
		if code, _, _ := b.do("GET", path, b.token); code != want {
			t.Errorf("%s: %d, want %d", path, code, want)
		}
	}
}
