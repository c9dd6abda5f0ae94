package gitlab

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/fencepost/fencepost/internal/forgesim"
)

// A Kind is what CI_MERGE_REQUEST_EVENT_TYPE says of a pipeline.
type Kind string

// The kinds.
const (
	Detached     Kind = "detached"
	MergedResult Kind = "merged_result"
	MergeTrain   Kind = "merge_train"
)

// PolicyPath is where a policy project has its policies.
const PolicyPath = ".gitlab/security-policies/policy.yml"

// A Policy is the pipeline execution policy that a job comes from.
type Policy struct {
	// Project is the policy project, Path the file's; default [PolicyPath].
	Project *Project
	Path    string
	// Commit is the one of the file; default the tip of the default branch when
	// the pipeline is made.
	Commit string
	// Source is what job_source says; default "pipeline_execution_policy".
	Source string
}

// A JobSpec is a job that a project's pipelines have.
type JobSpec struct {
	Name, Stage  string
	AllowFailure bool
	// Policy is where it comes from; nil: the project's own CI file.
	Policy *Policy
	// Audience is that of FENCEPOST_ID_TOKEN; empty: the job has none.
	Audience string
	// Timeout is the job's, and its token's life; zero: the token lives for
	// five minutes.
	Timeout time.Duration
	// Kinds are those of the pipelines that have it; none: merge trains alone.
	Kinds []Kind
}

// SetJobs says which jobs the project's pipelines have from now on.
func (p *Project) SetJobs(jobs ...JobSpec) {
	p.forge.mu.Lock()
	defer p.forge.mu.Unlock()
	p.jobs = slices.Clone(jobs)
}

// OnJob says what runs jobs, each in a goroutine of its own: nil is exit status
// 0, and any error another one. The context ends when the job is cancelled or
// the forge is closed. Without it jobs wait for [Job.Finish].
func (f *Forge) OnJob(run func(context.Context, *Job) error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.onJob = run
}

// A Pipeline is one of a merge request.
type Pipeline struct {
	project *Project
	request *MergeRequest
	kind    Kind
	id, iid int64
	ref     string
	sha     string
	user    string
	made    time.Time

	// Guarded by Forge.mu:
	jobs     []*Job // all runs, oldest first
	canceled bool
	unready  int // reads for which it is not there yet
}

// A Job is one run of a job.
type Job struct {
	pipeline *Pipeline
	id       int64
	spec     JobSpec
	policy   string // commit of the policy
	user     string
	started  time.Time
	secret   string // CI_JOB_TOKEN
	cancel   context.CancelFunc

	// Guarded by Forge.mu:
	status   string // running, success, failed, canceled
	ended    bool
	finished time.Time
	tokens   map[string]string // ID tokens by audience
	unready  int
}

// newPipeline makes a pipeline and starts its jobs; nil where it would have
// none. Called with mu held.
func (p *Project) newPipeline(m *MergeRequest, kind Kind, ref, sha, user string) (*Pipeline, error) {
	f := p.forge
	if f.closed {
		return nil, errClosed
	}
	var specs []JobSpec
	for _, s := range p.jobs {
		if slices.Contains(s.Kinds, kind) || len(s.Kinds) == 0 && kind == MergeTrain {
			specs = append(specs, s)
		}
	}
	if len(specs) == 0 {
		return nil, nil
	}
	f.ids.pipeline++
	pipe := &Pipeline{
		project: p, request: m, kind: kind, id: f.ids.pipeline, iid: int64(len(p.pipelines) + 1), ref: ref, sha: sha,
		user: f.account(user).Login, made: f.config.Now(), unready: f.lag,
	}
	p.pipelines = append(p.pipelines, pipe)
	for _, s := range specs {
		pipe.start(s, pipe.user)
	}
	return pipe, nil
}

// start starts a run of a job. Called with mu held.
func (pipe *Pipeline) start(s JobSpec, user string) *Job {
	f := pipe.project.forge
	f.ids.job++
	if s.Stage == "" {
		s.Stage = "test"
	}
	j := &Job{
		pipeline: pipe, id: f.ids.job, spec: s, user: user, started: f.config.Now(), status: "running", tokens: map[string]string{},
		secret: fmt.Sprintf("glcbt-%016x", f.rng.Uint64()), unready: f.lag,
	}
	if s.Policy != nil {
		policy := *s.Policy
		if policy.Path == "" {
			policy.Path = PolicyPath
		}
		if policy.Source == "" {
			policy.Source = "pipeline_execution_policy"
		}
		if policy.Commit == "" {
			policy.Commit = policy.Project.under.Ref("refs/heads/" + policy.Project.under.DefaultBranch())
		}
		j.spec.Policy, j.policy = &policy, policy.Commit
	}
	f.tokens[j.secret] = &token{user: user, level: Developer, scopes: []string{"read_repository"}, job: j}
	pipe.jobs = append(pipe.jobs, j)
	ctx, cancel := context.WithCancel(f.ctx)
	j.cancel = cancel
	if run := f.onJob; run != nil {
		f.jobs.Go(func() {
			defer cancel()
			// What a cancelled job ends with says nothing, and the forge has
			// ended it already.
			if err := j.Finish(f.ctx, run(ctx, j)); err != nil && !errors.Is(err, forgesim.ErrState) {
				panic(err) // git of our own failed
			}
		})
	}
	return j
}

// cancel cancels the jobs that run. Called with mu held.
func (pipe *Pipeline) cancel() {
	for _, j := range pipe.jobs {
		if !j.ended {
			j.end("canceled")
		}
	}
	pipe.canceled = true
}

// end is called with mu held.
func (j *Job) end(status string) {
	j.status, j.ended, j.finished = status, true, j.pipeline.project.forge.config.Now()
	j.cancel()
}

// Finish ends the job: nil is exit status 0. What follows for a train follows
// at once. Its error matches [forgesim.ErrState] where the job has ended, or
// was cancelled.
func (j *Job) Finish(ctx context.Context, result error) error {
	f := j.pipeline.project.forge
	f.mu.Lock()
	defer f.mu.Unlock()
	if j.ended || f.closed {
		return fmt.Errorf("gitlab: job %d is %s: %w", j.id, j.status, forgesim.ErrState)
	}
	status := "success"
	if result != nil {
		status = "failed"
	}
	j.end(status)
	m := j.pipeline.request
	return m.project.refreshTrain(context.WithoutCancel(ctx), m.target)
}

// Retry runs the job again, as another user may: a new job of the same
// pipeline. Its error matches [ErrRefused] for a train whose pipeline has
// ended. contracts/gitlab.md §7, traps 14
func (j *Job) Retry(user string) (*Job, error) {
	pipe := j.pipeline
	f := pipe.project.forge
	f.mu.Lock()
	defer f.mu.Unlock()
	if !j.ended || pipe.canceled || pipe.kind == MergeTrain && pipe.status() != "running" {
		return nil, fmt.Errorf("gitlab: retry job %d: %w", j.id, ErrRefused)
	}
	return pipe.start(j.spec, f.account(user).Login), nil
}

// status is made of the newest run of each job. Called with mu held.
func (pipe *Pipeline) status() string {
	newest := map[string]*Job{}
	for _, j := range pipe.jobs {
		newest[j.spec.Name] = j
	}
	failed := false
	for _, j := range newest {
		if !j.ended {
			return "running"
		}
		failed = failed || j.status == "failed" && !j.spec.AllowFailure
	}
	switch {
	case pipe.canceled:
		return "canceled"
	case failed:
		return "failed"
	}
	return "success"
}

// ID returns the pipeline's id, SHA its commit, Ref its ref.
func (pipe *Pipeline) ID() int64 { return pipe.id }

// SHA returns the pipeline's commit.
func (pipe *Pipeline) SHA() string { return pipe.sha }

// Ref returns the pipeline's ref.
func (pipe *Pipeline) Ref() string { return pipe.ref }

// Status returns "running", "success", "failed" or "canceled".
func (pipe *Pipeline) Status() string {
	pipe.project.forge.mu.Lock()
	defer pipe.project.forge.mu.Unlock()
	return pipe.status()
}

// Job returns the newest run of a job, or nil.
func (pipe *Pipeline) Job(name string) *Job {
	pipe.project.forge.mu.Lock()
	defer pipe.project.forge.mu.Unlock()
	for _, j := range slices.Backward(pipe.jobs) {
		if j.spec.Name == name {
			return j
		}
	}
	return nil
}

// ID returns the job's id.
func (j *Job) ID() int64 { return j.id }

// Name returns the job's name.
func (j *Job) Name() string { return j.spec.Name }

// Pipeline returns the job's pipeline.
func (j *Job) Pipeline() *Pipeline { return j.pipeline }

// Request returns the merge request of the job's pipeline.
func (j *Job) Request() *MergeRequest { return j.pipeline.request }

// Status returns "running", "success", "failed" or "canceled".
func (j *Job) Status() string {
	j.pipeline.project.forge.mu.Lock()
	defer j.pipeline.project.forge.mu.Unlock()
	return j.status
}

// Environment is what the runner gives to the job, as NAME=value.
func (j *Job) Environment() ([]string, error) {
	f, pipe := j.pipeline.project.forge, j.pipeline
	f.mu.Lock()
	defer f.mu.Unlock()
	m := pipe.request
	vars := []string{
		"CI=true", "GITLAB_CI=true", "CI_SERVER_URL=" + f.base, "CI_API_V4_URL=" + f.base + APIPrefix,
		"CI_JOB_ID=" + strconv.FormatInt(j.id, 10), "CI_JOB_NAME=" + j.spec.Name, "CI_JOB_STAGE=" + j.spec.Stage, "CI_JOB_TOKEN=" + j.secret,
		"CI_PIPELINE_ID=" + strconv.FormatInt(pipe.id, 10), "CI_PIPELINE_SOURCE=merge_request_event",
		"CI_PROJECT_ID=" + strconv.FormatInt(pipe.project.id, 10), "CI_PROJECT_PATH=" + pipe.project.path(),
		"CI_COMMIT_SHA=" + pipe.sha, "CI_MERGE_REQUEST_IID=" + strconv.FormatInt(m.iid, 10),
		"CI_MERGE_REQUEST_PROJECT_ID=" + strconv.FormatInt(m.project.id, 10), "CI_MERGE_REQUEST_EVENT_TYPE=" + string(pipe.kind),
		"CI_MERGE_REQUEST_TARGET_BRANCH_NAME=" + m.target, "CI_MERGE_REQUEST_SOURCE_BRANCH_NAME=" + m.source,
	}
	if j.spec.Audience == "" {
		return vars, nil
	}
	text, err := j.token(j.spec.Audience)
	return append(vars, "FENCEPOST_ID_TOKEN="+text), err
}

// render is the pipeline as the API shows it. Called with mu held.
func (pipe *Pipeline) render() object {
	status := pipe.status()
	return object{
		"id": pipe.id, "iid": pipe.iid, "project_id": pipe.project.id, "status": status, "source": "merge_request_event",
		"ref": pipe.ref, "sha": pipe.sha, "before_sha": zeroID, "tag": false, "yaml_errors": nil,
		"user": pipe.project.forge.user(pipe.user), "created_at": stamp(pipe.made), "updated_at": stamp(pipe.made),
		"started_at": stamp(pipe.made), "finished_at": nil, "committed_at": nil, "duration": nil, "queued_duration": 1, "coverage": nil,
		"detailed_status": object{"icon": "status_" + status, "text": status, "label": status, "group": status},
		"web_url":         fmt.Sprintf("%s/-/pipelines/%d", pipe.project.web(), pipe.id),
	}
}

// render is the job as the API shows it. Called with mu held.
func (j *Job) render() object {
	pipe := j.pipeline
	var finished, why any
	if j.ended {
		finished = stamp(j.finished)
	}
	if j.status == "failed" {
		why = "script_failure"
	}
	return object{
		"id": j.id, "name": j.spec.Name, "status": j.status, "stage": j.spec.Stage, "ref": pipe.ref, "tag": false, "coverage": nil,
		"allow_failure": j.spec.AllowFailure, "failure_reason": why, "created_at": stamp(j.started), "started_at": stamp(j.started),
		"finished_at": finished, "erased_at": nil, "duration": nil, "queued_duration": 0.5,
		"user": pipe.project.forge.user(j.user), "commit": object{"id": pipe.sha, "short_id": pipe.sha[:8], "title": "Merge"},
		"pipeline": object{
			"id": pipe.id, "iid": pipe.iid, "project_id": pipe.project.id, "ref": pipe.ref, "sha": pipe.sha, "status": pipe.status(),
			"source": "merge_request_event",
		},
		"runner":  object{"id": runnerID, "description": "runner", "active": true, "is_shared": false, "runner_type": "group_type"},
		"project": object{"ci_job_token_scope_enabled": false},
		"web_url": fmt.Sprintf("%s/-/jobs/%d", pipe.project.web(), j.id), "artifacts": []object{}, "tag_list": []string{},
	}
}

// pipeline finds a pipeline, job a job. Called with mu held.
func (p *Project) pipeline(id int64) *Pipeline {
	for _, pipe := range p.pipelines {
		if pipe.id == id {
			return pipe
		}
	}
	return nil
}

// job is called with mu held.
func (p *Project) job(id int64) *Job {
	for _, pipe := range p.pipelines {
		for _, j := range pipe.jobs {
			if j.id == id {
				return j
			}
		}
	}
	return nil
}
