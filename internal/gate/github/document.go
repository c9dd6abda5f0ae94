package github

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/gate"
)

// DocumentSchema names the form of what is staged for GitHub.
const DocumentSchema = "fencepost.publication.github/v1"

// maxOutput bounds what is shown of a run, in bytes; GitHub's own limit is
// 65,535 characters.
const maxOutput = 32 << 10

// A document is what is staged: all that finding and creating the Check Run
// need, so that every attempt, also after a restart under another
// configuration, is about the same run.
type document struct {
	Schema     string             `json:"schema"`
	Gate       string             `json:"gate"`
	Delivery   string             `json:"delivery"`
	Evaluation string             `json:"evaluation"`
	Repository documentRepository `json:"repository"`
	App        documentApp        `json:"app"`
	Number     int64              `json:"number"`
	BaseRef    string             `json:"base_ref"`
	HeadSHA    string             `json:"head_sha"`
	Check      string             `json:"check"`
	Conclusion string             `json:"conclusion"`
	Reason     string             `json:"reason"`
	Title      string             `json:"title"`
	Summary    string             `json:"summary"`
	Artifact   string             `json:"artifact"`
	Revision   string             `json:"gate_revision"`
	Received   string             `json:"received_at"`
	Started    string             `json:"started_at"`
	Completed  string             `json:"completed_at"`
	// Shown is the text of the Check Run: Summary and where it comes from.
	Shown string `json:"shown"`
}

type documentRepository struct {
	ID      int64 `json:"id,string"`
	OwnerID int64 `json:"owner_id,string"`
	// Name is what the repository was configured as; requests go to the name
	// that it has when they are sent.
	Name string `json:"name"`
}

type documentApp struct {
	ID           int64 `json:"id,string"`
	Installation int64 `json:"installation,string"`
}

// Compose implements [gate.Documents]. Times are cut to seconds, which is what
// GitHub keeps of them.
func (l *Lane) Compose(v gate.Verdict) ([]byte, error) {
	c := l.config
	d := document{
		Schema: DocumentSchema, Gate: string(v.Gate), Delivery: string(v.Delivery), Evaluation: v.Evaluation.String(),
		Repository: documentRepository{ID: c.Repository.ID, OwnerID: c.Repository.OwnerID, Name: c.Repository.Name},
		App:        documentApp{ID: l.client.app.ID, Installation: l.client.app.Installation},
		Number:     v.Subject.Number, BaseRef: v.Subject.BaseRef, HeadSHA: v.Subject.Head.String(), Check: c.Check,
		Conclusion: v.Conclusion.String(), Reason: string(v.Reason), Title: v.Title, Summary: v.Summary,
		Artifact: v.Artifact, Received: stamp(v.Received), Started: stamp(v.Started), Completed: stamp(v.Completed),
		Shown: shown(v),
	}
	if !v.Revision.IsZero() {
		d.Revision = v.Revision.String()
	}
	if err := d.check(); err != nil {
		return nil, fmt.Errorf("compose: %w", err)
	}
	return d.encode()
}

// encode writes the one encoding of d, RFC 8785. Ids are decimal texts: that
// RFC's numbers are exact to 2^53 only.
func (d document) encode() ([]byte, error) {
	b, err := json.Marshal(d)
	if err != nil {
		return nil, fmt.Errorf("encode publication: %w", err)
	}
	v := jsontext.Value(b)
	if err := v.Canonicalize(); err != nil {
		return nil, fmt.Errorf("encode publication: %w", err)
	}
	return v, nil
}

// shown is the summary with its origin under it.
func shown(v gate.Verdict) string {
	s := v.Summary
	if s != "" {
		s += "\n\n"
	}
	s += fmt.Sprintf("Evaluation `%s` of delivery `%s`.", v.Evaluation, v.Delivery)
	if v.Artifact != "" {
		s += fmt.Sprintf(" Evidence: `%s`.", v.Artifact)
	}
	if v.Reason != fencepost.ReasonNone {
		s += fmt.Sprintf(" Reason: `%s`.", v.Reason)
	}
	return s
}

// maxNumber is the largest request number that JSON numbers hold exactly.
const maxNumber = 1 << 53

const stampLayout = time.RFC3339

func stamp(t time.Time) string { return t.UTC().Truncate(time.Second).Format(stampLayout) }

// parseDocument reads what Compose wrote, and nothing else: a text that would
// be written otherwise is refused, so that no two readers of it can disagree.
func parseDocument(data []byte) (document, error) {
	var d document
	if len(data) > fencepost.MaxPublicationBytes {
		return d, fmt.Errorf("publication of %d bytes: %w", len(data), fencepost.ErrTooLarge)
	}
	if err := json.Unmarshal(data, &d, json.RejectUnknownMembers(true)); err != nil {
		return document{}, fmt.Errorf("publication is not its JSON: %w", fencepost.ErrMalformed)
	}
	again, err := d.encode()
	if err != nil || !bytes.Equal(again, data) {
		return document{}, fmt.Errorf("publication is not in its one form: %w", fencepost.ErrMalformed)
	}
	return d, d.check()
}

// check reports fields that no verdict has.
func (d document) check() error {
	bad := func(field string) error { return fmt.Errorf("publication: %s: %w", field, fencepost.ErrMalformed) }
	started, errStarted := time.Parse(stampLayout, d.Started)
	completed, errCompleted := time.Parse(stampLayout, d.Completed)
	_, errReceived := time.Parse(stampLayout, d.Received)
	pass := d.Conclusion == gate.Pass.String()
	switch _, errEvaluation := fencepost.ParseEvaluationID(d.Evaluation); {
	case d.Schema != DocumentSchema:
		return bad("schema")
	case d.Gate == "", d.Check == "", d.Number < 1, d.Number > maxNumber, d.BaseRef == "", d.Repository.ID <= 0, d.App.ID <= 0:
		return bad("a needed field is empty")
	case errEvaluation != nil:
		return bad("evaluation")
	case !pass && d.Conclusion != gate.Fail.String():
		return bad("conclusion")
	case pass && (d.Reason != "" || d.Artifact == "" || d.Revision == ""):
		// DESIGN §8: no pass without evidence; invariant 9: none without a gate.
		return bad("a pass with a reason, or without evidence or revision")
	case errStarted != nil || errCompleted != nil || errReceived != nil || completed.Before(started):
		return bad("times")
	case d.Title == "" || len(d.Shown) > maxOutput:
		return bad("output")
	}
	if _, err := fencepost.ParseCommitID(d.HeadSHA); err != nil {
		return bad("head_sha")
	}
	return nil
}

// Inspect implements [gate.Documents].
func (l *Lane) Inspect(data []byte) (gate.Verdict, error) {
	d, err := parseDocument(data)
	if err != nil {
		return gate.Verdict{}, err
	}
	return d.verdict()
}

func (d document) verdict() (gate.Verdict, error) {
	evaluation, err := fencepost.ParseEvaluationID(d.Evaluation)
	if err != nil {
		return gate.Verdict{}, err
	}
	head, err := fencepost.ParseCommitID(d.HeadSHA)
	if err != nil {
		return gate.Verdict{}, err
	}
	revision, err := parseRevision(d.Revision)
	if err != nil {
		return gate.Verdict{}, err
	}
	v := gate.Verdict{
		Gate: gate.Name(d.Gate), Delivery: fencepost.DeliveryID(d.Delivery), Evaluation: evaluation,
		Subject: gate.Subject{Number: d.Number, Head: head, BaseRef: d.BaseRef}, Conclusion: gate.Fail,
		Reason: fencepost.Reason(d.Reason), Title: d.Title, Summary: d.Summary, Artifact: d.Artifact, Revision: revision,
	}
	if d.Conclusion == gate.Pass.String() {
		v.Conclusion = gate.Pass
	}
	// check has parsed them before.
	v.Received, _ = time.Parse(stampLayout, d.Received)
	v.Started, _ = time.Parse(stampLayout, d.Started)
	v.Completed, _ = time.Parse(stampLayout, d.Completed)
	return v, nil
}

// parseRevision reads what [fencepost.GateRevision.String] wrote; empty is the
// zero revision.
func parseRevision(s string) (fencepost.GateRevision, error) {
	var g fencepost.GateRevision
	if s == "" {
		return g, nil
	}
	if n, err := hex.Decode(g[:], []byte(s)); err != nil || n != len(g) || g.String() != s {
		return fencepost.GateRevision{}, fmt.Errorf("publication: gate_revision: %w", fencepost.ErrMalformed)
	}
	return g, nil
}
