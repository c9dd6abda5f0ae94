package webhook

import (
	"fmt"
	"strconv"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/strictjson"
)

// JobClaims are what a token says of its job. What a server did not state is
// the zero value, which is no value of any of them: servers differ in which
// they state, and who needs one must refuse a job without it.
type JobClaims struct {
	// Issuer, TokenID and the times are those that [GitLabJob] judges.
	Issuer, TokenID   string
	IssuedAt, Expires time.Time
	// RunnerID is the runner that has the job; RunnerEnvironment is
	// "gitlab-hosted" or "self-hosted".
	RunnerID          int64
	RunnerEnvironment string
	// ProjectID and ProjectPath are the project in which the job runs
	// (job_project_id, job_project_path; GitLab 18.3 and later).
	ProjectID   int64
	ProjectPath string
	// PipelineID and JobID are ids of the instance.
	PipelineID, JobID int64
	// PipelineSource is what started the pipeline.
	PipelineSource string
	// SHA is the commit of the pipeline, 40 or 64 lower-case hexadecimal
	// digits; in a merge train it is a merge commit made for it.
	SHA string
	// Ref and RefPath are the branch or tag, which in a pipeline of a merge
	// request is that of its source. Nothing may be decided by them.
	Ref, RefPath string
	// RefProtected is false also where the server doesn't say.
	RefProtected bool
	// Source is where the job's definition comes from (job_source; GitLab 18.9
	// and later).
	Source string
	// ConfigURL and ConfigSHA are the file and the commit that a policy's job
	// was made from (job_config; GitLab 18.9 and later).
	ConfigURL, ConfigSHA string
}

// jobClaimsText is the payload in GitLab's types: ids are strings, but the
// runner's is a number, and what is true or false is a string as well. What
// GitLab states as the source project (project_id) is nothing to decide by,
// and is not read.
type jobClaimsText struct {
	Issuer            string         `json:"iss"`
	TokenID           string         `json:"jti"`
	IssuedAt          int64          `json:"iat"`
	Expires           int64          `json:"exp"`
	RunnerID          int64          `json:"runner_id"`
	RunnerEnvironment string         `json:"runner_environment" strict:"optional"`
	ProjectID         decimalID      `json:"job_project_id" strict:"optional"`
	ProjectPath       string         `json:"job_project_path" strict:"optional"`
	PipelineID        decimalID      `json:"pipeline_id"`
	JobID             decimalID      `json:"job_id"`
	PipelineSource    string         `json:"pipeline_source"`
	SHA               string         `json:"sha"`
	Ref               string         `json:"ref"`
	RefPath           string         `json:"ref_path" strict:"optional"`
	RefProtected      stringBool     `json:"ref_protected" strict:"optional"`
	Source            string         `json:"job_source" strict:"optional"`
	Config            *jobConfigText `json:"job_config"`
}

type jobConfigText struct {
	URL string `json:"url"`
	SHA string `json:"sha"`
}

var jobClaimsDecoder = strictjson.NewDecoder[jobClaimsText](payloadLimits)

// JobClaimsOf reads the claims of the token in h. It verifies nothing: it is
// for a request that [GitLabJob] accepted. Its error matches
// [fencepost.ErrMalformed] where a claim is missing that every server states,
// or has not the type that GitLab gives it, and holds nothing of the token.
func JobClaimsOf(h fencepost.Headers) (JobClaims, error) {
	t := jobTokenOf(h, nil)
	if t.cause != 0 {
		return JobClaims{}, fmt.Errorf("webhook: read token: %s: %w", t.cause, fencepost.ErrMalformed)
	}
	raw, ok := decodeBase64URL(t.payload)
	if !ok {
		return JobClaims{}, fmt.Errorf("webhook: read token: payload is not base64url: %w", fencepost.ErrMalformed)
	}
	c, err := jobClaimsDecoder.Decode(raw)
	if err != nil {
		return JobClaims{}, fmt.Errorf("webhook: read token: %w: %w", err, fencepost.ErrMalformed)
	}
	if !isCommitDigits(c.SHA) {
		return JobClaims{}, fmt.Errorf("webhook: read token: sha is not a commit: %w", fencepost.ErrMalformed)
	}
	claims := JobClaims{
		Issuer: c.Issuer, TokenID: c.TokenID, IssuedAt: time.Unix(c.IssuedAt, 0).UTC(), Expires: time.Unix(c.Expires, 0).UTC(),
		RunnerID: c.RunnerID, RunnerEnvironment: c.RunnerEnvironment,
		ProjectID: int64(c.ProjectID), ProjectPath: c.ProjectPath,
		PipelineID: int64(c.PipelineID), JobID: int64(c.JobID), PipelineSource: c.PipelineSource,
		SHA: c.SHA, Ref: c.Ref, RefPath: c.RefPath, RefProtected: bool(c.RefProtected), Source: c.Source,
	}
	if c.Config != nil {
		claims.ConfigURL, claims.ConfigSHA = c.Config.URL, c.Config.SHA
	}
	return claims, nil
}

// A decimalID is an id that is written as a string of decimal digits.
type decimalID int64

// UnmarshalText accepts a number above zero in its one spelling.
func (id *decimalID) UnmarshalText(text []byte) error {
	n, err := strconv.ParseInt(string(text), 10, 64)
	if err != nil || n < 1 || strconv.FormatInt(n, 10) != string(text) {
		return fencepost.ErrMalformed
	}
	*id = decimalID(n)
	return nil
}

// A stringBool is true or false as a string; older servers state neither.
type stringBool bool

// UnmarshalText accepts "true", "false" and nothing.
func (b *stringBool) UnmarshalText(text []byte) error {
	switch string(text) {
	case "true":
		*b = true
	case "false", "":
		*b = false
	default:
		return fencepost.ErrMalformed
	}
	return nil
}

// isCommitDigits accepts an object id of either of Git's formats.
func isCommitDigits(s string) bool {
	if len(s) != 40 && len(s) != 64 {
		return false
	}
	for i := range len(s) {
		if c := s[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}
