package gitlab

import (
	"context"
	"errors"
	"net/url"
	"strconv"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/forge"
	"github.com/fencepost/fencepost/internal/forge/gitlab"
	"github.com/fencepost/fencepost/internal/gate"
)

var (
	errOther = errors.New("the answer is about something else")
	errLacks = errors.New("the answer lacks a field")
)

// A projectAnswer is a project, as far as it is looked at. A pointer is nil
// where the server doesn't send the field: it is older, or shows it to
// maintainers alone. contracts/gitlab.md, trap 27
type projectAnswer struct {
	ID        int64  `json:"id"`
	Path      string `json:"path_with_namespace"`
	Namespace struct {
		ID int64 `json:"id"`
	} `json:"namespace"`
	MergeMethod            *string `json:"merge_method"`
	SquashOption           *string `json:"squash_option"`
	OnlyIfPipelineSucceeds *bool   `json:"only_allow_merge_if_pipeline_succeeds"`
	AllowSkipped           *bool   `json:"allow_merge_on_skipped_pipeline"`
	MergePipelines         *bool   `json:"merge_pipelines_enabled"`
	MergeTrains            *bool   `json:"merge_trains_enabled"`
	SkipTrain              *bool   `json:"merge_trains_skip_train_allowed"`
	Enforcement            *string `json:"merge_train_enforcement"`
	ObjectFormat           *string `json:"repository_object_format"`
}

// A jobAnswer is a job.
type jobAnswer struct {
	ID           int64  `json:"id"`
	Name         string `json:"name"`
	Status       string `json:"status"`
	AllowFailure *bool  `json:"allow_failure"`
	// Pipeline is the one that the job is in.
	Pipeline *pipelineAnswer `json:"pipeline"`
}

// A pipelineAnswer is a pipeline, as jobs and cars show it.
type pipelineAnswer struct {
	ID        int64  `json:"id"`
	ProjectID int64  `json:"project_id"`
	Ref       string `json:"ref"`
	SHA       string `json:"sha"`
	Source    string `json:"source"`
}

// A requestAnswer is a merge request.
type requestAnswer struct {
	IID     int64  `json:"iid"`
	State   string `json:"state"`
	Draft   *bool  `json:"draft"`
	Target  string `json:"target_branch"`
	Project int64  `json:"target_project_id"`
	SHA     string `json:"sha"`
	Squash  *bool  `json:"squash"`
	// SquashOnMerge is what the project's setting makes of Squash.
	SquashOnMerge *bool `json:"squash_on_merge"`
}

// A carAnswer is a car of a merge train.
type carAnswer struct {
	ID      int64 `json:"id"`
	Request struct {
		IID       int64 `json:"iid"`
		ProjectID int64 `json:"project_id"`
	} `json:"merge_request"`
	// Pipeline is null while the merge is made.
	Pipeline *pipelineAnswer `json:"pipeline"`
	Status   string          `json:"status"`
}

// project asks whose project it is and how it is set up.
func (l *Lane) project(ctx context.Context) (projectAnswer, error) {
	const op = "get project"
	a, err := l.config.Client.Get(ctx, op, l.below(""), "")
	if err != nil {
		return projectAnswer{}, err
	}
	if !a.Found() {
		return projectAnswer{}, forge.Fail(op, fencepost.ReasonCredential, errors.New("the project is gone, or the token does not reach it"))
	}
	var got projectAnswer
	if err := forge.Decode(op, a.Body, &got); err != nil {
		return projectAnswer{}, err
	}
	want := l.config.Repository
	switch {
	case got.ID != want.ID || !gitlab.ValidPath(got.Path) || got.Namespace.ID == 0:
		return projectAnswer{}, forge.Fail(op, fencepost.ReasonProvider, errLacks)
	case got.Namespace.ID != want.OwnerID:
		return projectAnswer{}, forge.Fail(op, fencepost.ReasonIdentity, errors.New("the project is in another namespace"))
	}
	l.answered(got.Path)
	return got, nil
}

// answered takes over a name that was proven.
func (l *Lane) answered(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.name = name
}

// job asks for the job that asked; nil where it is not shown, or not yet.
func (l *Lane) job(ctx context.Context, j gate.Job) (*jobAnswer, error) {
	const op = "get job"
	a, err := l.config.Client.Get(ctx, op, l.below("/jobs/"+decimal(j.ID)), "")
	if err != nil || !a.Found() {
		return nil, err
	}
	var got jobAnswer
	if err := forge.Decode(op, a.Body, &got); err != nil {
		return nil, err
	}
	switch {
	case got.ID != j.ID:
		return nil, forge.Fail(op, fencepost.ReasonProvider, errOther)
	case got.Name == "" || got.Status == "" || got.AllowFailure == nil || got.Pipeline == nil:
		return nil, forge.Fail(op, fencepost.ReasonProvider, errLacks)
	}
	return &got, nil
}

// request asks for the merge request; nil where there is none of that number.
func (l *Lane) request(ctx context.Context, number int64) (*requestAnswer, error) {
	const op = "get merge request"
	a, err := l.config.Client.Get(ctx, op, l.below("/merge_requests/"+decimal(number)), "")
	if err != nil || !a.Found() {
		return nil, err
	}
	var got requestAnswer
	if err := forge.Decode(op, a.Body, &got); err != nil {
		return nil, err
	}
	switch {
	case got.IID != number:
		return nil, forge.Fail(op, fencepost.ReasonProvider, errOther)
	case got.State == "" || got.Draft == nil || got.Target == "" || got.Project == 0:
		return nil, forge.Fail(op, fencepost.ReasonProvider, errLacks)
	}
	return &got, nil
}

// cars lists those of the base branch's train that are not merged.
func (l *Lane) cars(ctx context.Context) ([]carAnswer, error) {
	query := url.Values{"scope": {"active"}, "sort": {"asc"}, "per_page": {strconv.Itoa(gitlab.PageSize)}}
	var all []carAnswer
	_, err := gitlab.Pages(ctx, l.config.Client, "list merge train",
		l.below("/merge_trains/"+url.PathEscape(l.branch)+"?"+query.Encode()), func(c carAnswer) { all = append(all, c) })
	return all, err
}

// tip asks where the base branch is.
func (l *Lane) tip(ctx context.Context) (fencepost.CommitID, error) {
	const op = "get base branch"
	a, err := l.config.Client.Get(ctx, op, l.below("/repository/branches/"+url.PathEscape(l.branch)), "")
	if err != nil {
		return fencepost.CommitID{}, err
	}
	if !a.Found() {
		return fencepost.CommitID{}, forge.Fail(op, fencepost.ReasonProvider, errors.New("the base branch is not there"))
	}
	var got struct {
		Name   string `json:"name"`
		Commit struct {
			ID string `json:"id"`
		} `json:"commit"`
	}
	if err := forge.Decode(op, a.Body, &got); err != nil {
		return fencepost.CommitID{}, err
	}
	tip, err := fencepost.ParseCommitID(got.Commit.ID)
	if err != nil || got.Name != l.branch {
		return fencepost.CommitID{}, forge.Fail(op, fencepost.ReasonProvider, errOther)
	}
	return tip, nil
}

// below is a path below the gate's project.
func (l *Lane) below(path string) string {
	return "/projects/" + decimal(l.config.Repository.ID) + path
}

func decimal(n int64) string { return strconv.FormatInt(n, 10) }
