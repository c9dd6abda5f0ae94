package gitlab

import (
	"context"
	"errors"
	"fmt"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/gitfetch"
	"github.com/fencepost/fencepost/internal/forge"
	"github.com/fencepost/fencepost/internal/gate"
)

// mends are what puts a setting right.
var mends = map[string]string{
	"project.repository_object_format":              "move the project to one of the object format SHA-1: others are not read yet",
	"project.merge_method":                          "set the merge method to \"Merge commit\": a train of the others has no merge commit to judge",
	"project.squash_option":                         "set \"Squash commits when merging\" to \"Do not allow\", or to \"Allow\"",
	"project.merge_pipelines_enabled":               "turn merged results pipelines on",
	"project.merge_trains_enabled":                  "turn merge trains on",
	"project.merge_train_enforcement":               "enforce merge trains for all users, owners among them; it takes GitLab 19.3, and a token of a maintainer to be shown",
	"project.merge_trains_skip_train_allowed":       "turn \"allow skipping the merge train\" off",
	"project.only_allow_merge_if_pipeline_succeeds": "turn \"pipelines must succeed\" on",
	"project.allow_merge_on_skipped_pipeline":       "turn \"skipped pipelines are considered successful\" off",
	"branch.protected":                              "protect the base branch",
	"branch.push":                                   "set \"allowed to push and merge\" of the base branch to \"No one\", in every rule that covers it: whoever can push passes by the train",
	"branch.allow_force_push":                       "turn force pushes to the base branch off",
	"job.source":                                    "let a pipeline execution policy bring the job, not the project's own CI file; it takes GitLab 18.9",
	"policy.commit":                                 "add the policy project's commit to policy.commits, once you have read it",
	"policy.url":                                    "compare policy.path and issuer with the job's job_config.url",
	"policy.file":                                   "see that policy.project is the security policy project's id, that the commit has a " + policyPath + ", and that the token may read it",
	"policy.enabled":                                "write enabled: true or false at each policy, and true at the gate's",
	"policy.pipeline_config_strategy":               "set pipeline_config_strategy of each policy that is on to inject_policy",
	"policy.include":                                "let each include name a project, a file, and as its ref a full commit id",
	"policy.suffix":                                 "set suffix to on_conflict or never, or leave it out",
	"policy.skip_ci":                                "set skip_ci to {allowed: false}, or leave it out",
	"policy.variables_override":                     "set variables_override to {allowed: false}, without exceptions, or leave it out",
	"job.name":                                      "compare policy.job with the job's name; if that ends in :policy-…, the project has a job of the same name: rename it",
	"job.allow_failure":                             "take allow_failure out of the job",
	"pipeline.project":                              "start the pipeline of a fork's request in the gate's project: a member of it has to",
	"pipeline.id":                                   "see that no downstream pipeline runs the job",
	"pipeline.sha":                                  "see that no downstream pipeline runs the job",
	"pipeline.ref":                                  "let the job run in merge train pipelines alone, by its rules",
	"request":                                       "send the number of the request that the job runs for",
	"request.target_project":                        "send the number of the request that the job runs for",
	"request.target_branch":                         "let the job run for requests against the gate's base alone, by its rules",
	"request.squash":                                "untick \"squash commits\" of the request",
	"car.pipeline.sha":                              "start the train's pipeline anew",
	"car.pipeline.ref":                              "start the train's pipeline anew",
	"car.pipeline.source":                           "start the train's pipeline anew",
}

// Examine implements [gate.Examiner].
func (l *Lane) Examine(ctx context.Context) []gate.Finding {
	e := examination{lane: l}
	if e.project(ctx) {
		e.branch(ctx)
		e.git(ctx)
	}
	e.policy(ctx)
	return e.findings
}

// An examination collects findings.
type examination struct {
	lane     *Lane
	name     string
	findings []gate.Finding
}

func (e *examination) find(name, want, seen, mend string) {
	e.findings = append(e.findings, gate.Finding{Fact: gate.Fact{Name: name, Expected: want, Observed: seen}, Mend: mend})
}

func (e *examination) settings(all []setting, of string) {
	for _, s := range all {
		e.find(s.name+of, s.want, s.seen, mends[s.name])
	}
}

func (e *examination) project(ctx context.Context) bool {
	want := e.lane.config.Repository
	ids := fmt.Sprintf("%d in namespace %d", want.ID, want.OwnerID)
	got, err := e.lane.project(ctx)
	if err != nil {
		mend := "see that api can be reached from here, and that the token is valid, has the scope read_api, and is of a maintainer of the project"
		if fencepost.ReasonOf(err) == fencepost.ReasonIdentity {
			mend = "the project was transferred: put the new namespace's id into repository.owner_id if it is meant"
		}
		e.find("project", ids, told(err), mend)
		return false
	}
	e.name = got.Path
	e.find("project", ids, ids, "")
	e.find("project.path", want.Name, got.Path, "the project was renamed: put the new path into repository.name")
	e.findings[len(e.findings)-1].Advice = true
	e.settings(ofProject(got), "")
	return true
}

func (e *examination) branch(ctx context.Context) {
	all, err := e.lane.protections(ctx)
	if err != nil {
		e.find("branch.protected", "true", told(err), "use a token of a maintainer of the project")
		return
	}
	e.settings(ofBranch(all), "")
}

// git looks whether the token reads objects as well.
func (e *examination) git(ctx context.Context) {
	l := e.lane
	s := l.source(e.name)
	refs, err := gitfetch.LsRefs(ctx, gitfetch.Request{
		URL: s.URL, Credential: s.Credential, AllowHTTP: s.AllowHTTP, AllowPrivate: s.AllowPrivate, Budgets: l.config.Budgets,
	}, l.config.BaseRef)
	seen := "readable"
	switch {
	case err != nil:
		seen = told(err)
	case len(refs) == 0:
		seen = "without the base branch"
	}
	e.find("git", "readable", seen, "see that git is the instance's URL, that base names a branch, and that the token has the scope read_repository")
}

// policy looks at the policies of every allowed commit.
func (e *examination) policy(ctx context.Context) {
	for _, commit := range e.lane.config.Policy.Commits {
		of := " at " + commit.String()[:12]
		settings, err := e.lane.policyAt(ctx, commit)
		if err != nil {
			e.find("policy.file"+of, "present", told(err), mends["policy.file"])
			continue
		}
		e.settings(settings, of)
	}
}

// told is an error in words that may be shown: the client's own.
func told(err error) string {
	if e, ok := errors.AsType[*forge.StatusError](err); ok {
		return string(fencepost.ReasonOf(err)) + ": " + e.Error()
	}
	if e, ok := errors.AsType[*fencepost.Error](err); ok && e.Err != nil {
		return string(e.Reason) + ": " + e.Err.Error()
	}
	return string(fencepost.ReasonOf(err))
}
