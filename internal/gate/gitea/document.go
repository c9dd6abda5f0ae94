package gitea

import (
	"fmt"

	"github.com/fencepost/fencepost/internal/gate"
	"github.com/fencepost/fencepost/internal/gate/staged"
)

// DocumentSchema names the form of what is staged for Gitea and Forgejo.
const DocumentSchema = "fencepost.publication.gitea/v1"

// A document is what is staged: all that finding and creating review and status
// need.
type document struct {
	Schema string `json:"schema"`
	staged.Fields
	Repository staged.Repository `json:"repository"`
	Reviewer   documentReviewer  `json:"reviewer"`
}

type documentReviewer struct {
	ID    int64  `json:"id,string"`
	Login string `json:"login"`
}

// Compose implements [gate.Documents].
func (l *Lane) Compose(v gate.Verdict) ([]byte, error) {
	c := l.config
	d := document{
		Schema: DocumentSchema, Fields: staged.Of(v, c.Check),
		Repository: staged.Repository{ID: c.Repository.ID, OwnerID: c.Repository.OwnerID, Name: c.Repository.Name},
		Reviewer:   documentReviewer{ID: c.Reviewer.ID, Login: c.Reviewer.Login},
	}
	d.Shown += d.ofGate()
	if err := d.check(); err != nil {
		return nil, fmt.Errorf("compose: %w", err)
	}
	return staged.Encode(d)
}

// parseDocument reads what Compose wrote.
func parseDocument(data []byte) (document, error) {
	d, err := staged.Decode[document](data)
	if err != nil {
		return document{}, err
	}
	return d, d.check()
}

// check reports fields that no verdict has.
func (d document) check() error {
	switch {
	case d.Schema != DocumentSchema:
		return staged.Malformed("schema")
	case d.Repository.ID <= 0, d.Reviewer.ID <= 0, d.Reviewer.Login == "":
		return staged.Malformed("a needed field is empty")
	}
	return d.Validate()
}

// Inspect implements [gate.Documents].
func (l *Lane) Inspect(data []byte) (gate.Verdict, error) {
	d, err := parseDocument(data)
	if err != nil {
		return gate.Verdict{}, err
	}
	return d.Verdict()
}

// The words by which a review and a status say what the conclusion is.
const (
	approved  = "APPROVED"
	rejected  = "REQUEST_CHANGES"
	succeeded = "success"
	failed    = "failure"
)

// review is the state of the review that stands for d.
func (d document) review() string {
	if d.Passes() {
		return approved
	}
	return rejected
}

// status is the state of the status that stands for d.
func (d document) status() string {
	if d.Passes() {
		return succeeded
	}
	return failed
}

// description is the text of the status: the title, and the evaluation after
// it, by which it is found.
func (d document) description() string { return d.Title + between + d.Evaluation }

// between is what stands before the evaluation at the end of a status's text.
const between = " · "

// gateBegins is what stands before the gate's name in the line that says where a
// review comes from, ofGate the end of that line: gates of several installations
// may have one reviewer.
const gateBegins = " Gate: `"

func (d document) ofGate() string { return gateBegins + d.Gate + "`." }

// takenBack is the body of the review that takes an approval back.
func (d document) takenBack() string {
	return "Taken back: the head moved while the approval was being published.\n\n" + staged.Origin(d.Evaluation, d.Delivery) + d.ofGate()
}
