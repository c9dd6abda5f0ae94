package gitlab

import (
	"fmt"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/gate"
	"github.com/fencepost/fencepost/webhook"
)

// A hint is the body of a job's request. It is not signed: which merge request
// it is, the pipeline's ref and the train prove. contracts/gitlab.md, trap 3
type hint struct {
	MergeRequest int64 `json:"merge_request"`
}

// requestPipeline is what pipelines of merge requests say that started them.
const requestPipeline = "merge_request_event"

// Admit implements [gate.Admitter]. Whose job it is is settled first; what it is
// not proven to be later is told to the job, which waits.
func (l *Lane) Admit(h fencepost.Headers, body []byte) (gate.Subject, error) {
	c, err := webhook.JobClaimsOf(h)
	if err != nil {
		return gate.Subject{}, refuse(fencepost.ReasonMalformed, "the token lacks a claim, or has one of another type")
	}
	ask, err := l.decodeHint.Decode(body)
	if err != nil || ask.MergeRequest < 1 || ask.MergeRequest > maxNumber {
		return gate.Subject{}, refuse(fencepost.ReasonMalformed, `not {"merge_request": <number>}`)
	}
	switch {
	case c.ProjectID == 0:
		// Trap 1: all that older servers say is the source project, which may
		// be a fork.
		return gate.Subject{}, refuse(fencepost.ReasonUnauthorized, "no job_project_id: GitLab before 18.3")
	case c.ProjectID != l.config.Repository.ID:
		return gate.Subject{}, refuse(fencepost.ReasonUnauthorized, "a job of another project")
	case c.PipelineSource != requestPipeline:
		return gate.Subject{}, refuse(fencepost.ReasonEventNotHandled, "not a pipeline of a merge request")
	}
	head, err := fencepost.ParseCommitID(c.SHA)
	if err != nil {
		return gate.Subject{}, refuse(fencepost.ReasonMalformed, "sha is no SHA-1: the project is of another object format")
	}
	s := gate.Subject{Number: ask.MergeRequest, Head: head, BaseRef: l.config.BaseRef, Job: gate.Job{
		ID: c.JobID, Pipeline: c.PipelineID, Source: c.Source, PolicyURL: c.ConfigURL, PolicyCommit: c.ConfigSHA,
	}}
	if !s.Job.Valid() {
		return gate.Subject{}, refuse(fencepost.ReasonMalformed, fmt.Sprintf("a claim is longer than %d bytes", gate.MaxJobText))
	}
	return s, nil
}

// maxNumber is the largest number of a request that JSON holds exactly.
const maxNumber = 1 << 53
