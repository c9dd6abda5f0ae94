package github

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/gate"
	"github.com/fencepost/fencepost/internal/gate/staged"
)

// GitHub has no idempotency key for Check Runs and can't refuse a late sender
// of the same run: the look-up before the write, the publication lease under
// which both happen, and the record made before the write are what keeps them
// to one. contracts/github.md §6, trap 9

// A runRequest is the body of the one write. Every field is of the document.
type runRequest struct {
	Name        string    `json:"name"`
	HeadSHA     string    `json:"head_sha"`
	ExternalID  string    `json:"external_id"`
	Status      string    `json:"status"`
	Conclusion  string    `json:"conclusion"`
	StartedAt   string    `json:"started_at"`
	CompletedAt string    `json:"completed_at"`
	Output      runOutput `json:"output"`
}

type runOutput struct {
	Title   string `json:"title"`
	Summary string `json:"summary"`
}

// request is the run that a document stands for. It is always completed, and
// success or failure: anything else could let a gate pass. Trap 4
func (d document) request() runRequest {
	return runRequest{
		Name: d.Check, HeadSHA: d.HeadSHA, ExternalID: d.Evaluation, Status: "completed", Conclusion: d.Conclusion,
		StartedAt: d.Started, CompletedAt: d.Completed, Output: runOutput{Title: d.Title, Summary: d.Shown},
	}
}

// Find implements [gate.Publisher]. Of all runs of the check's name that our
// App made on the head, the one with the evaluation as external_id is it;
// other external ids are other evaluations.
func (l *Lane) Find(ctx context.Context, data []byte) (gate.Published, bool, error) {
	const op = "find check run"
	d, head, err := l.mine(op, data)
	if err != nil {
		return gate.Published{}, false, err
	}
	name, err := l.repository(ctx)
	if err != nil {
		return gate.Published{}, false, err
	}
	k := l.listRuns(name, d.Check, head)
	k.query.Set("app_id", strconv.FormatInt(d.App.ID, 10))
	k.fresh = true
	var found []checkRun
	err = l.runs(ctx, k, func(run checkRun) error {
		if run.by(d.App.ID) && run.ExternalID != nil && *run.ExternalID == d.Evaluation {
			found = append(found, run)
		}
		return nil
	})
	switch {
	case hidden(err):
		return gate.Published{}, false, l.notYet(ctx, op, name, head, err)
	case err != nil:
		return gate.Published{}, false, err
	case len(found) == 0:
		return gate.Published{}, false, nil
	case len(found) > 1:
		return gate.Published{}, false, conflict(op, fmt.Sprintf("%d runs bear this evaluation's id", len(found)))
	}
	if field := d.differs(found[0]); field != "" {
		return gate.Published{}, false, conflict(op, "the run's "+field+" is not what was staged")
	}
	return gate.Published{ID: strconv.FormatInt(found[0].ID, 10)}, true, nil
}

// Create implements [gate.Publisher]. It writes under the name that the last
// reading of the gate proved, a moment ago: the token reaches no other
// repository, whoever has the name now, and a name that leads elsewhere takes
// no write.
func (l *Lane) Create(ctx context.Context, data []byte) (gate.Published, error) {
	const op = "create check run"
	d, head, err := l.mine(op, data)
	if err != nil {
		return gate.Published{}, err
	}
	body, err := json.Marshal(d.request())
	if err != nil {
		return gate.Published{}, fmt.Errorf("%s: %w", op, err)
	}
	done, err := l.client.pace.begin(ctx)
	if err != nil {
		return gate.Published{}, transportError(call{op: op, method: http.MethodGet}, err)
	}
	defer done()
	run, name, err := l.post(ctx, op, body)
	switch {
	case hidden(err):
		return gate.Published{}, l.notYet(ctx, op, name, head, err)
	case err != nil:
		return gate.Published{}, err
	}
	if field := d.differs(run); field != "" {
		return gate.Published{}, conflict(op, "the new run's "+field+" is not what was staged")
	}
	return gate.Published{ID: strconv.FormatInt(run.ID, 10)}, nil
}

// post sends the write, and once more where the repository has another name by
// now: the first was not taken then. It returns the name that it was sent to.
func (l *Lane) post(ctx context.Context, op string, body []byte) (run checkRun, name string, err error) {
	write := func() error {
		k := l.call(op, name, "/check-runs", nil)
		k.method, k.body = http.MethodPost, body
		_, err := l.client.do(ctx, k, &run)
		return err
	}
	name, right := l.lastName()
	if !right {
		if name, err = l.repository(ctx); err != nil {
			return checkRun{}, "", err
		}
	}
	err = write()
	if !right {
		return run, name, err
	}
	if _, moved := errors.AsType[*movedError](err); !moved && statusOf(err) != http.StatusNotFound {
		return run, name, err
	}
	now, unproven := l.repository(ctx)
	switch {
	case unproven != nil:
		return checkRun{}, "", unproven
	case now == name:
		return checkRun{}, name, err
	}
	name = now
	err = write()
	return run, name, err
}

// mine reads a document and refuses one of another repository or App than the
// gate's: after a change of configuration there is nobody to publish it as.
func (l *Lane) mine(op string, data []byte) (document, fencepost.CommitID, error) {
	d, err := parseDocument(data)
	if err != nil {
		return document{}, fencepost.CommitID{}, &fencepost.Error{Op: op, Reason: fencepost.ReasonCorrupt, Err: err}
	}
	if d.Repository.ID != l.config.Repository.ID || d.App.ID != l.client.app.ID || d.Gate != string(l.config.Gate) {
		return document{}, fencepost.CommitID{}, &fencepost.Error{Op: op, Reason: fencepost.ReasonIdentity, Err: fmt.Errorf(
			"staged by gate %s for repository %d as App %d", d.Gate, d.Repository.ID, d.App.ID)}
	}
	head, err := fencepost.ParseCommitID(d.HeadSHA)
	return d, head, err
}

// differs names the first thing in which a run is not what d stands for, or
// "".
func (d document) differs(run checkRun) string {
	switch {
	case run.ID <= 0:
		return "id"
	case !run.by(d.App.ID):
		return "App"
	case run.Name != d.Check:
		return "name"
	case run.HeadSHA != d.HeadSHA:
		return "head"
	case run.ExternalID == nil || *run.ExternalID != d.Evaluation:
		return "external id"
	case run.Status != "completed":
		return "status"
	case run.Conclusion == nil || *run.Conclusion != d.Conclusion:
		return "conclusion"
	case !at(run.StartedAt, d.Started) || !at(run.CompletedAt, d.Completed):
		return "time"
	case run.Output.Title == nil || *run.Output.Title != d.Title:
		return "title"
	case run.Output.Summary == nil || *run.Output.Summary != d.Shown:
		return "summary"
	}
	return ""
}

func at(t *time.Time, want string) bool { return t != nil && staged.Stamp(*t) == want }

func conflict(op, text string) error {
	return &fencepost.Error{Op: op, Reason: fencepost.ReasonPublishConflict, Err: errors.New(text)}
}

// notYet is GitHub's "no commit found for SHA", which it answers for a commit
// that it will know a moment later as for one that is gone, and with the same
// status for whatever else it refuses. The reason says what it would be if the
// wait were over.
func (l *Lane) notYet(ctx context.Context, op, name string, head fencepost.CommitID, cause error) error {
	k := l.call("get commit", name, "/git/commits/"+head.String(), nil)
	k.fresh = true
	_, err := l.client.do(ctx, k, nil)
	why := fencepost.ReasonProvider
	switch code := statusOf(err); {
	case code == http.StatusNotFound || code == http.StatusConflict:
		why = fencepost.ReasonCommitGone
	case err != nil:
		return err
	}
	return &fencepost.Error{Op: op, Reason: why, Err: fmt.Errorf("%w: %w", gate.ErrNotYet, cause)}
}

// hidden reports whether an answer about a commit means that GitHub does not
// show it.
func hidden(err error) bool {
	code := statusOf(err)
	return code == http.StatusUnprocessableEntity || code == http.StatusNotFound
}
