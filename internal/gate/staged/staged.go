// Package staged is what the documents of all lanes have in common: the fields
// of a verdict, and the one encoding in which a document is frozen.
//
// A lane's document is a struct of its own with [Fields] inlined, so that all
// that finding and creating a result need is in the staged bytes, and every
// attempt, also after a restart under another configuration, is about the same
// result.
package staged

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

const (
	// maxShown bounds what is shown of a run, in bytes; GitHub's own limit, the
	// tightest, is 65,535 characters.
	maxShown = 32 << 10
	// maxNumber is the largest request number that JSON numbers hold exactly.
	maxNumber = 1 << 53

	stampLayout = time.RFC3339
)

// Fields are a verdict's. Times are cut to seconds, which is what providers
// keep of them.
type Fields struct {
	Gate       string `json:"gate"`
	Delivery   string `json:"delivery"`
	Evaluation string `json:"evaluation"`
	Number     int64  `json:"number"`
	BaseRef    string `json:"base_ref"`
	HeadSHA    string `json:"head_sha"`
	// Job is left out where no job asked.
	Job        gate.Job `json:"job,omitzero"`
	Check      string   `json:"check"`
	Conclusion string   `json:"conclusion"`
	Reason     string   `json:"reason"`
	Title      string   `json:"title"`
	Summary    string   `json:"summary"`
	Artifact   string   `json:"artifact"`
	Revision   string   `json:"gate_revision"`
	Received   string   `json:"received_at"`
	Started    string   `json:"started_at"`
	Completed  string   `json:"completed_at"`
	// Shown is the text that people see: Summary and where it comes from.
	Shown string `json:"shown"`
}

// A Repository names the gate's repository in a document. Ids are decimal
// texts: JSON numbers are exact to 2^53 only.
type Repository struct {
	ID      int64 `json:"id,string"`
	OwnerID int64 `json:"owner_id,string"`
	// Name is what the repository was configured as; requests go to the name
	// that it has when they are sent.
	Name string `json:"name"`
}

// Of takes a verdict's fields, to be shown as the check of that name.
func Of(v gate.Verdict, check string) Fields {
	f := Fields{
		Gate: string(v.Gate), Delivery: string(v.Delivery), Evaluation: v.Evaluation.String(),
		Number: v.Subject.Number, BaseRef: v.Subject.BaseRef, HeadSHA: v.Subject.Head.String(), Job: v.Subject.Job, Check: check,
		Conclusion: v.Conclusion.String(), Reason: string(v.Reason), Title: v.Title, Summary: v.Summary,
		Artifact: v.Artifact, Received: Stamp(v.Received), Started: Stamp(v.Started), Completed: Stamp(v.Completed),
		Shown: shown(v),
	}
	if !v.Revision.IsZero() {
		f.Revision = v.Revision.String()
	}
	return f
}

// shown is the summary with its origin under it, which is its last line.
func shown(v gate.Verdict) string {
	s := v.Summary
	if s != "" {
		s += "\n\n"
	}
	s += Origin(v.Evaluation.String(), string(v.Delivery))
	if v.Artifact != "" {
		s += fmt.Sprintf(" Evidence: `%s`.", v.Artifact)
	}
	if v.Reason != fencepost.ReasonNone {
		s += fmt.Sprintf(" Reason: `%s`.", v.Reason)
	}
	return s
}

// OriginBegins is what [Origin] begins with; the evaluation follows, up to the
// next backquote.
const OriginBegins = "Evaluation `"

// Origin says of a shown text where it comes from, by which it is found.
func Origin(evaluation, delivery string) string {
	return fmt.Sprintf(OriginBegins+"%s` of delivery `%s`.", evaluation, delivery)
}

// Stamp writes a time in its one form, in seconds.
func Stamp(t time.Time) string { return t.UTC().Truncate(time.Second).Format(stampLayout) }

// Encode writes the one encoding of a document, RFC 8785.
func Encode(document any) ([]byte, error) {
	b, err := json.Marshal(document)
	if err != nil {
		return nil, fmt.Errorf("encode publication: %w", err)
	}
	v := jsontext.Value(b)
	if err := v.Canonicalize(); err != nil {
		return nil, fmt.Errorf("encode publication: %w", err)
	}
	return v, nil
}

// Decode reads what [Encode] wrote of a *T, and nothing else: a text that would
// be written otherwise is refused, so that no two readers of it can disagree.
// Its error matches [fencepost.ErrMalformed] or [fencepost.ErrTooLarge].
func Decode[T any](data []byte) (T, error) {
	var zero, d T
	if len(data) > fencepost.MaxPublicationBytes {
		return zero, fmt.Errorf("publication of %d bytes: %w", len(data), fencepost.ErrTooLarge)
	}
	if err := json.Unmarshal(data, &d, json.RejectUnknownMembers(true)); err != nil {
		return zero, fmt.Errorf("publication is not its JSON: %w", fencepost.ErrMalformed)
	}
	again, err := Encode(d)
	if err != nil || !bytes.Equal(again, data) {
		return zero, fmt.Errorf("publication is not in its one form: %w", fencepost.ErrMalformed)
	}
	return d, nil
}

// Malformed is the error of a document's field.
func Malformed(field string) error {
	return fmt.Errorf("publication: %s: %w", field, fencepost.ErrMalformed)
}

// Validate reports what no verdict has; its error is of [Malformed].
func (f Fields) Validate() error {
	started, errStarted := time.Parse(stampLayout, f.Started)
	completed, errCompleted := time.Parse(stampLayout, f.Completed)
	_, errReceived := time.Parse(stampLayout, f.Received)
	pass := f.Passes()
	switch _, errEvaluation := fencepost.ParseEvaluationID(f.Evaluation); {
	case f.Gate == "", f.Check == "", f.Number < 1, f.Number > maxNumber, f.BaseRef == "":
		return Malformed("a needed field is empty")
	case f.Job != (gate.Job{}) && !f.Job.Valid():
		return Malformed("job")
	case errEvaluation != nil:
		return Malformed("evaluation")
	case !pass && f.Conclusion != gate.Fail.String():
		return Malformed("conclusion")
	case pass && (f.Reason != "" || f.Artifact == "" || f.Revision == ""):
		// DESIGN §8: no pass without evidence; invariant 9: none without a gate.
		return Malformed("a pass with a reason, or without evidence or revision")
	case errStarted != nil || errCompleted != nil || errReceived != nil || completed.Before(started):
		return Malformed("times")
	case f.Title == "" || len(f.Shown) > maxShown:
		return Malformed("output")
	}
	if _, err := fencepost.ParseCommitID(f.HeadSHA); err != nil {
		return Malformed("head_sha")
	}
	return nil
}

// Passes reports whether the verdict lets through.
func (f Fields) Passes() bool { return f.Conclusion == gate.Pass.String() }

// Verdict is what the fields were made of, with its times in seconds.
func (f Fields) Verdict() (gate.Verdict, error) {
	evaluation, err := fencepost.ParseEvaluationID(f.Evaluation)
	if err != nil {
		return gate.Verdict{}, err
	}
	head, err := fencepost.ParseCommitID(f.HeadSHA)
	if err != nil {
		return gate.Verdict{}, err
	}
	revision, err := parseRevision(f.Revision)
	if err != nil {
		return gate.Verdict{}, err
	}
	v := gate.Verdict{
		Gate: gate.Name(f.Gate), Delivery: fencepost.DeliveryID(f.Delivery), Evaluation: evaluation,
		Subject: gate.Subject{Number: f.Number, Head: head, BaseRef: f.BaseRef, Job: f.Job}, Conclusion: gate.Fail,
		Reason: fencepost.Reason(f.Reason), Title: f.Title, Summary: f.Summary, Artifact: f.Artifact, Revision: revision,
	}
	if f.Passes() {
		v.Conclusion = gate.Pass
	}
	// Validate has parsed them before.
	v.Received, _ = time.Parse(stampLayout, f.Received)
	v.Started, _ = time.Parse(stampLayout, f.Started)
	v.Completed, _ = time.Parse(stampLayout, f.Completed)
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
		return fencepost.GateRevision{}, Malformed("gate_revision")
	}
	return g, nil
}
