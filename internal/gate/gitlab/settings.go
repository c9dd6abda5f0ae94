package gitlab

import (
	"slices"
	"strconv"
	"strings"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/gate"
)

// A setting is one thing that a gate needs, as it was seen. What was seen is in
// words of our own, or an id.
type setting struct{ name, want, seen string }

func (s setting) met() bool { return s.want == s.seen }

func allMet(settings []setting) bool {
	return !slices.ContainsFunc(settings, func(s setting) bool { return !s.met() })
}

// The words for what a server does not send.
const (
	absent = "absent"
	// tooOldForTrains: a server that can enforce a train says whether it does.
	tooOldForTrains = "absent: GitLab before 19.3 can't enforce trains, or the token's role is below maintainer"
	// tooOldForJobs: a server that says where a job comes from always does.
	tooOldForJobs = "absent: GitLab before 18.9 does not say where a job comes from"
	other         = "something else"
)

// ofProject holds a project against what a gate needs. contracts/gitlab.md §7
func ofProject(a projectAnswer) []setting {
	enforcement := word(a.Enforcement, "allow_bypass", "enforce_for_all_users", "enforce_with_owner_override")
	if a.Enforcement == nil {
		enforcement = tooOldForTrains
	}
	return []setting{
		{"project.repository_object_format", "sha1", word(a.ObjectFormat, "sha1", "sha256")},
		{"project.merge_method", "merge", word(a.MergeMethod, "merge", "rebase_merge", "ff")},
		{"project.squash_option", "not always", not("always", a.SquashOption)},
		{"project.merge_pipelines_enabled", "true", flag(a.MergePipelines)},
		{"project.merge_trains_enabled", "true", flag(a.MergeTrains)},
		{"project.merge_train_enforcement", "enforce_for_all_users", enforcement},
		{"project.merge_trains_skip_train_allowed", "false", flag(a.SkipTrain)},
		{"project.only_allow_merge_if_pipeline_succeeds", "true", flag(a.OnlyIfPipelineSucceeds)},
		{"project.allow_merge_on_skipped_pipeline", "false", flag(a.AllowSkipped)},
	}
}

// ofJob holds the job that asked against the policy's, and against its own
// token. contracts/gitlab.md §6
func (l *Lane) ofJob(s gate.Subject, a jobAnswer) []setting {
	p := a.Pipeline
	return []setting{
		same("job.name", l.config.Policy.Job, a.Name, "another job's"),
		{"job.allow_failure", "false", flag(a.AllowFailure)},
		{"pipeline.project", decimal(l.config.Repository.ID), decimal(p.ProjectID)},
		{"pipeline.id", decimal(s.Job.Pipeline), decimal(p.ID)},
		{"pipeline.sha", s.Head.String(), commitWord(p.SHA)},
		same("pipeline.ref", trainRef(s.Number), p.Ref, refWord(p.Ref)),
	}
}

// trainRef is the ref of a request's merge commit in a train. Pipelines of other
// refs gate nothing, and may be of the source alone. Trap 4
func trainRef(number int64) string { return "refs/merge-requests/" + decimal(number) + "/train" }

// ofToken holds what the token says of the policy against the configuration.
func (l *Lane) ofToken(j gate.Job) []setting {
	source := setting{"job.source", "pipeline_execution_policy", other}
	switch j.Source {
	case source.want:
		source.seen = source.want
	case "":
		source.seen = tooOldForJobs
	}
	commit, allowed := l.allowed(j)
	if !allowed {
		return []setting{source, {"policy.commit", "an allowed commit", commitWord(j.PolicyCommit)}, {"policy.url", "of an allowed commit", absentOr(j.PolicyURL, other)}}
	}
	return []setting{
		source,
		{"policy.commit", commit.String(), commit.String()},
		same("policy.url", l.policyURL(commit), j.PolicyURL, absentOr(j.PolicyURL, "another project's, or of another commit")),
	}
}

// allowed is the commit of the policy that the job comes from, if it is one of
// those that are.
func (l *Lane) allowed(j gate.Job) (fencepost.CommitID, bool) {
	id, err := fencepost.ParseCommitID(j.PolicyCommit)
	return id, err == nil && slices.Contains(l.config.Policy.Commits, id)
}

// ofRequest holds a merge request against the gate.
func (l *Lane) ofRequest(a requestAnswer) []setting {
	squash := "not true"
	if a.Squash != nil && *a.Squash || a.SquashOnMerge != nil && *a.SquashOnMerge {
		squash = "true"
	}
	return []setting{
		{"request.target_project", decimal(l.config.Repository.ID), decimal(a.Project)},
		same("request.target_branch", l.branch, a.Target, "another branch"),
		{"request.squash", "not true", squash},
	}
}

// ofCar holds a car against the token.
func ofCar(s gate.Subject, a carAnswer) []setting {
	p := a.Pipeline
	return []setting{
		{"car.pipeline.sha", s.Head.String(), commitWord(p.SHA)},
		same("car.pipeline.ref", trainRef(s.Number), p.Ref, refWord(p.Ref)),
		same("car.pipeline.source", requestPipeline, p.Source, absentOr(p.Source, other)),
	}
}

// same is met if a value that we know is what was seen, and else says so in
// words.
func same(name, want, seen, otherwise string) setting {
	if seen == want {
		return setting{name, want, want}
	}
	return setting{name, want, otherwise}
}

func flag(b *bool) string {
	if b == nil {
		return absent
	}
	return strconv.FormatBool(*b)
}

// word is s if it is one of the words that we know.
func word(s *string, known ...string) string {
	switch {
	case s == nil:
		return absent
	case slices.Contains(known, *s):
		return *s
	}
	return other
}

func not(bad string, s *string) string {
	switch {
	case s == nil:
		return absent
	case *s == bad:
		return bad
	}
	return "not " + bad
}

func absentOr(s, otherwise string) string {
	if s == "" {
		return absent
	}
	return otherwise
}

// commitWord is an id, if it is one.
func commitWord(s string) string {
	if id, err := fencepost.ParseCommitID(s); err == nil {
		return id.String()
	}
	return absentOr(s, "no commit")
}

// refWord says which kind of ref it is.
func refWord(ref string) string {
	for _, kind := range []string{"train", "merge", "head"} {
		if strings.HasPrefix(ref, "refs/merge-requests/") && strings.HasSuffix(ref, "/"+kind) {
			return "the " + kind + " ref of a request"
		}
	}
	return absentOr(ref, other)
}
