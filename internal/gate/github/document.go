package github

import (
	"fmt"

	"github.com/fencepost/fencepost/internal/gate"
	"github.com/fencepost/fencepost/internal/gate/staged"
)

// DocumentSchema names the form of what is staged for GitHub.
const DocumentSchema = "fencepost.publication.github/v1"

// A document is what is staged: all that finding and creating the Check Run
// need.
type document struct {
	Schema string `json:"schema"`
	staged.Fields
	Repository staged.Repository `json:"repository"`
	App        documentApp       `json:"app"`
}

type documentApp struct {
	ID           int64 `json:"id,string"`
	Installation int64 `json:"installation,string"`
}

// Compose implements [gate.Documents].
func (l *Lane) Compose(v gate.Verdict) ([]byte, error) {
	c := l.config
	d := document{
		Schema: DocumentSchema, Fields: staged.Of(v, c.Check),
		Repository: staged.Repository{ID: c.Repository.ID, OwnerID: c.Repository.OwnerID, Name: c.Repository.Name},
		App:        documentApp{ID: l.client.app.ID, Installation: l.client.app.Installation},
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
	case d.Repository.ID <= 0, d.App.ID <= 0:
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
