package gate

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/runner"
)

// EvidenceSchema names the form of the evidence of an evaluation.
const EvidenceSchema = "fencepost.evidence/v1"

// An evidence is what an evaluation saw: enough to judge it afterwards. It
// holds no credential, header, body or path of the host.
type evidence struct {
	Schema     string     `json:"schema"`
	Gate       string     `json:"gate"`
	Delivery   string     `json:"delivery"`
	Evaluation string     `json:"evaluation"`
	Fence      uint64     `json:"fence"`
	Request    int64      `json:"request_number"`
	Head       string     `json:"head"`
	BaseRef    string     `json:"base_ref"`
	Received   time.Time  `json:"received_at"`
	Started    time.Time  `json:"started_at"`
	Completed  time.Time  `json:"completed_at"`
	Conclusion string     `json:"conclusion"`
	Reason     string     `json:"reason,omitempty"`
	Plan       planFacts  `json:"plan"`
	First      *seen      `json:"first_refresh,omitempty"`
	Second     *seen      `json:"second_refresh,omitempty"`
	Fetched    *fetched   `json:"fetched,omitempty"`
	Run        *runFacts  `json:"run,omitempty"`
	Assessment assessment `json:"assessment,omitempty"`
}

type planFacts struct {
	Action  string `json:"action"`
	Commit  string `json:"commit"`
	Program string `json:"program"`
	SHA256  string `json:"sha256"`
}

// A seen is one refresh.
type seen struct {
	State      string  `json:"state,omitempty"`
	Revision   string  `json:"revision,omitempty"`
	Repository string  `json:"repository"`
	Base       *Commit `json:"base,omitempty"`
	Head       *Commit `json:"head,omitempty"`
	Candidate  *Commit `json:"candidate,omitempty"`
	Facts      []Fact  `json:"facts,omitempty"`
}

// A fetched is the candidate as it was proven from its objects.
type fetched struct {
	Tree    fencepost.TreeID     `json:"tree"`
	Parents []fencepost.CommitID `json:"parents"`
}

// A runFacts is what is known of the run. The texts are the exact bytes of the
// contract's files, so that their digests can be checked.
type runFacts struct {
	Outcome     string                   `json:"outcome"`
	Started     time.Time                `json:"started_at"`
	TookNS      int64                    `json:"took_ns"`
	Exit        *int                     `json:"exit,omitempty"`
	Protections []runner.ProtectionState `json:"protections"`
	Request     exact                    `json:"request"`
	Report      exact                    `json:"report"`
	Result      exact                    `json:"result"`
}

// An exact is a file: its digest, and its text where it is one.
type exact struct {
	SHA256 string `json:"sha256,omitempty"`
	Text   string `json:"text,omitempty"`
}

func exactly(b []byte) exact {
	if b == nil {
		return exact{}
	}
	sum := sha256.Sum256(b)
	e := exact{SHA256: hex.EncodeToString(sum[:])}
	if utf8.Valid(b) {
		e.Text = string(b)
	}
	return e
}

// storeEvidence keeps what led to a verdict and returns the reference.
func (e *evaluation) storeEvidence(ctx context.Context, v Verdict) (string, error) {
	data, err := json.Marshal(e.evidence(v), json.Deterministic(true))
	if err != nil {
		return "", errorf("encode evidence", fencepost.ReasonEvidence, "%w", err)
	}
	return e.pool.Store.Put(ctx, data)
}

func (e *evaluation) evidence(v Verdict) evidence {
	plan := e.gate.Plan
	ev := evidence{
		Schema: EvidenceSchema, Gate: string(v.Gate), Delivery: string(v.Delivery), Evaluation: v.Evaluation.String(),
		Fence: e.tenure.current().Fence().Uint64(), Request: v.Subject.Number, Head: v.Subject.Head.String(),
		BaseRef: v.Subject.BaseRef, Received: v.Received.UTC(), Started: v.Started.UTC(), Completed: v.Completed.UTC(),
		Conclusion: v.Conclusion.String(), Reason: string(v.Reason),
		Plan:  planFacts{Action: plan.Action.URL, Commit: plan.Commit.String(), Program: plan.Program, SHA256: plan.SHA256.String()},
		First: seenIn(e.first), Second: seenIn(e.second),
	}
	if !e.checked.candidateTree.IsZero() {
		ev.Fetched = &fetched{Tree: e.checked.candidateTree, Parents: e.checked.candidateParents}
	}
	if e.run != nil {
		ev.Run = factsOf(*e.run)
	}
	if plan.ExternalVerification {
		ev.Assessment = e.assess()
	}
	return ev
}

func seenIn(s Snapshot) *seen {
	if s.Repository == "" {
		return nil
	}
	out := &seen{State: string(s.State), Repository: s.Repository, Facts: s.Facts}
	if !s.Revision.IsZero() {
		out.Revision = s.Revision.String()
	}
	for _, c := range []struct {
		from Commit
		to   **Commit
	}{{s.Base, &out.Base}, {s.Head, &out.Head}, {s.Candidate, &out.Candidate}} {
		if !c.from.ID.IsZero() {
			*c.to = &c.from
		}
	}
	return out
}

func factsOf(r runner.Record) *runFacts {
	f := &runFacts{
		Started: r.Started.UTC(), TookNS: r.Duration.Nanoseconds(), Protections: r.Protections, Request: exactly(r.Request),
	}
	if r.Exit != nil {
		f.Exit = &r.Exit.Status
	}
	switch o := r.Outcome.(type) {
	case runner.Concluded:
		f.Outcome = string(o.Result.Conclusion)
		f.Report, f.Result = exactly(o.Report), exactly(o.ResultBytes)
	case runner.Failed:
		f.Outcome = string(o.Reason)
	}
	return f
}
