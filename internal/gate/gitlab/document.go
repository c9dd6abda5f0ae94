package gitlab

import (
	"fmt"

	"github.com/fencepost/fencepost/internal/gate"
	"github.com/fencepost/fencepost/internal/gate/staged"
)

// DocumentSchema names the form of what is staged for GitLab.
const DocumentSchema = "fencepost.publication.gitlab/v1"

// A document is what is staged, and what the job fetches.
type document struct {
	Schema string `json:"schema"`
	staged.Fields
	Repository staged.Repository `json:"repository"`
}

// Compose implements [gate.Documents].
func (l *Lane) Compose(v gate.Verdict) ([]byte, error) {
	c := l.config
	d := document{
		Schema: DocumentSchema, Fields: staged.Of(v, c.Check),
		Repository: staged.Repository{ID: c.Repository.ID, OwnerID: c.Repository.OwnerID, Name: c.Repository.Name},
	}
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
	case d.Repository.ID <= 0, d.Job == (gate.Job{}):
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
