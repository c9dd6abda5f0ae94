package github

import (
	"context"
	"net/url"
	"time"

	"github.com/fencepost/fencepost"
)

type checkRun struct {
	ID          int64      `json:"id"`
	Name        string     `json:"name"`
	HeadSHA     string     `json:"head_sha"`
	ExternalID  *string    `json:"external_id"`
	Status      string     `json:"status"`
	Conclusion  *string    `json:"conclusion"`
	StartedAt   *time.Time `json:"started_at"`
	CompletedAt *time.Time `json:"completed_at"`
	Output      struct {
		Title   *string `json:"title"`
		Summary *string `json:"summary"`
	} `json:"output"`
	App *struct {
		ID int64 `json:"id"`
	} `json:"app"`
}

type checkRunsAnswer struct {
	CheckRuns []checkRun `json:"check_runs"`
}

// listRuns is the list of the runs of one name on a commit. The default filter
// would hide the older ones. contracts/github.md §6
func (l *Lane) listRuns(name, check string, id fencepost.CommitID) call {
	query := url.Values{"check_name": {check}, "filter": {"all"}, "per_page": {"100"}}
	return l.call("list check runs", name, "/commits/"+id.String()+"/check-runs", query)
}

// runs calls each with every run of a list, once: pages move on while they are
// read, so that a run can stand on two of them.
func (l *Lane) runs(ctx context.Context, k call, each func(checkRun) error) error {
	seen := map[int64]bool{}
	return pages(ctx, l.client, k, func(page checkRunsAnswer) error {
		for _, run := range page.CheckRuns {
			if seen[run.ID] {
				continue
			}
			seen[run.ID] = true
			if err := each(run); err != nil {
				return err
			}
		}
		return nil
	})
}

// by reports whether an App made the run.
func (r checkRun) by(app int64) bool { return r.App != nil && r.App.ID == app }
