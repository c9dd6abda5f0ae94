package check

import (
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/fencepost/fencepost"
)

// Schemas of the contract (DESIGN §7).
const (
	RequestSchema = "fencepost.request/v1"
	ResultSchema  = "fencepost.result/v1"
)

// Names of the contract's files in the program's working directory.
const (
	RequestFile = "request.json"
	ReportFile  = "report.json"
	ResultFile  = "result.json"
)

// Limits of the contract. Bytes are counted as they stand in the file or in
// the decoded string; characters are Unicode code points.
const (
	MaxRequestBytes   = 96 << 10
	MaxReportBytes    = 1 << 20
	MaxResultBytes    = 64 << 10
	MaxTitleChars     = 120
	MaxSummaryBytes   = 8 << 10
	MaxRunChars       = 128
	MaxNameBytes      = 512
	MaxRootBytes      = 4096
	MaxEvidence       = 64
	MaxEvidenceName   = 64
	MaxEvidenceValue  = 512
	maxIdentityBytes  = 64
	requestTimeLayout = "2006-01-02T15:04:05.000Z"
)

// A Request tells a program what it is asked to judge. The controller derives
// it from checkouts that it verified; the program can't change it.
type Request struct {
	// Schema is [RequestSchema].
	Schema string `json:"schema"`
	// Run names this run; the result repeats it.
	Run string `json:"run"`
	// Delivery is the opaque public name of the delivery that led to the run of
	// a gate. Empty, and not in the file, for a source.
	Delivery fencepost.DeliveryID `json:"delivery,omitzero" strict:"optional"`
	// Source is the source that the content is of. Nil, and not in the file,
	// for a gate. With it Base, Head and Candidate are one commit: the head of
	// the branch.
	Source *Source `json:"source,omitzero"`
	// Repository is the one that the candidate belongs to.
	Repository Repository `json:"repository"`
	// Base is the branch that the candidate would be merged into.
	Base Base `json:"base"`
	// Head is the tip of what would be merged.
	Head Revision `json:"head"`
	// Candidate is the tree to judge: the authoritative test merge.
	Candidate Candidate `json:"candidate"`
	// Action is the checkout that the program itself came from.
	Action Action `json:"action"`
	// IssuedAt is when the request was made, UTC, in milliseconds.
	IssuedAt Time `json:"issued_at"`
	// Deadline is when the program will be killed, UTC, in milliseconds.
	Deadline Time `json:"deadline"`
	// Evidence holds facts that the provider vouched for, at most
	// [MaxEvidence] in the order given. It may be empty, never null.
	Evidence []Evidence `json:"evidence"`
}

// A Source says for which source and in what order a run is (DESIGN §9).
type Source struct {
	// ID is the source's UUID in its lower-case form.
	ID string `json:"id"`
	// Revision is the digest of the source's policy: 64 lower-case hexadecimal
	// digits.
	Revision Digest `json:"revision"`
	// Fence orders the runs of the source, in decimal: a later run has a higher
	// one, for ever. A program that changes something elsewhere keeps the
	// highest that it has seen there, in the same step as the change, and
	// changes nothing for a lower one.
	Fence string `json:"fence"`
}

func (s *Source) validate() error {
	if _, err := fencepost.ParseSourceID(s.ID); err != nil {
		return fmt.Errorf("source.id: %w", err)
	}
	if s.Revision.IsZero() {
		return fmt.Errorf("source.revision is not set: %w", fencepost.ErrMalformed)
	}
	n, err := strconv.ParseUint(s.Fence, 10, 64)
	if err != nil || n == 0 || strconv.FormatUint(n, 10) != s.Fence {
		return fmt.Errorf("source.fence: want a positive decimal number: %w", fencepost.ErrMalformed)
	}
	return nil
}

// A Repository is named by what the provider never changes, and by what
// people call it.
type Repository struct {
	// Provider is "github", "gitlab", "gitea" or "forgejo".
	Provider string `json:"provider"`
	// ID is the provider's immutable id in decimal.
	ID string `json:"id"`
	// Name is "owner/name", for people.
	Name string `json:"name"`
}

// A Base is a branch and what it held.
type Base struct {
	// Ref is the full name, such as refs/heads/main.
	Ref    string             `json:"ref"`
	Commit fencepost.CommitID `json:"commit"`
	Tree   fencepost.TreeID   `json:"tree"`
}

// A Revision is a commit and the tree it names.
type Revision struct {
	Commit fencepost.CommitID `json:"commit"`
	Tree   fencepost.TreeID   `json:"tree"`
}

// A Candidate is the tree to judge and where it can be read.
type Candidate struct {
	Commit fencepost.CommitID `json:"commit"`
	Tree   fencepost.TreeID   `json:"tree"`
	// Root is the directory of the tree, absolute or relative to the working
	// directory.
	Root string `json:"root"`
}

// An Action is the checkout that holds the program.
type Action struct {
	Commit fencepost.CommitID `json:"commit"`
	// Root is the directory of the checkout, absolute or relative to the
	// working directory.
	Root string `json:"root"`
	// ProgramSHA256 is the digest of the running program.
	ProgramSHA256 Digest `json:"program_sha256"`
}

// An Evidence is one fact that the provider vouched for.
type Evidence struct {
	// Name is 1 to [MaxEvidenceName] of a-z, 0-9, '_', '.', '-'.
	Name string `json:"name"`
	// Value is at most [MaxEvidenceValue] bytes.
	Value string `json:"value"`
}

// OpenCandidate opens the tree to judge, so that no path and no link leads out
// of it. The caller closes it.
func (r *Request) OpenCandidate() (*os.Root, error) { return openTree(r.Candidate.Root) }

// OpenAction opens the checkout that the program came from. The caller closes
// it.
func (r *Request) OpenAction() (*os.Root, error) { return openTree(r.Action.Root) }

func openTree(dir string) (*os.Root, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("open tree: %w", err)
	}
	return root, nil
}

// Validate reports the first field that is not within the contract. Its error
// matches [fencepost.ErrMalformed] or [fencepost.ErrTooLarge].
func (r *Request) Validate() error {
	if r.Schema != RequestSchema {
		return fmt.Errorf("request: schema is not %s: %w", RequestSchema, fencepost.ErrMalformed)
	}
	if err := validRun(r.Run); err != nil {
		return fmt.Errorf("request: %w", err)
	}
	if err := r.validateOrigin(); err != nil {
		return fmt.Errorf("request: %w", err)
	}
	if err := r.Repository.validate(); err != nil {
		return fmt.Errorf("request: %w", err)
	}
	if err := validLine("base.ref", r.Base.Ref, MaxNameBytes); err != nil {
		return fmt.Errorf("request: %w", err)
	}
	if err := r.validateObjects(); err != nil {
		return fmt.Errorf("request: %w", err)
	}
	if err := r.validateTimes(); err != nil {
		return fmt.Errorf("request: %w", err)
	}
	return r.validateEvidence()
}

// validateOrigin requires a delivery or a source, and not both.
func (r *Request) validateOrigin() error {
	if r.Source == nil {
		_, err := fencepost.ParseDeliveryID(string(r.Delivery))
		return err
	}
	switch {
	case r.Delivery != "":
		return fmt.Errorf("delivery and source: %w", fencepost.ErrMalformed)
	case r.Base.Commit != r.Head.Commit || r.Head.Commit != r.Candidate.Commit:
		return fmt.Errorf("base, head and candidate of a source are not one commit: %w", fencepost.ErrMalformed)
	}
	return r.Source.validate()
}

func (r *Repository) validate() error {
	for _, f := range []struct {
		name, value string
		most        int
	}{
		{"repository.provider", r.Provider, maxIdentityBytes},
		{"repository.id", r.ID, maxIdentityBytes},
		{"repository.name", r.Name, MaxNameBytes},
	} {
		if err := validLine(f.name, f.value, f.most); err != nil {
			return err
		}
	}
	return nil
}

func (r *Request) validateObjects() error {
	for _, f := range []struct {
		name string
		id   fencepost.ObjectID
	}{
		{"base.commit", r.Base.Commit.ObjectID},
		{"base.tree", r.Base.Tree.ObjectID},
		{"head.commit", r.Head.Commit.ObjectID},
		{"head.tree", r.Head.Tree.ObjectID},
		{"candidate.commit", r.Candidate.Commit.ObjectID},
		{"candidate.tree", r.Candidate.Tree.ObjectID},
		{"action.commit", r.Action.Commit.ObjectID},
	} {
		if f.id.IsZero() {
			return fmt.Errorf("%s names no object: %w", f.name, fencepost.ErrMalformed)
		}
	}
	if r.Action.ProgramSHA256.IsZero() {
		return fmt.Errorf("action.program_sha256 is not set: %w", fencepost.ErrMalformed)
	}
	if err := validLine("candidate.root", r.Candidate.Root, MaxRootBytes); err != nil {
		return err
	}
	return validLine("action.root", r.Action.Root, MaxRootBytes)
}

func (r *Request) validateTimes() error {
	issued, deadline := time.Time(r.IssuedAt), time.Time(r.Deadline)
	if issued.IsZero() || !deadline.After(issued) {
		return fmt.Errorf("deadline is not after issued_at: %w", fencepost.ErrMalformed)
	}
	return nil
}

func (r *Request) validateEvidence() error {
	if r.Evidence == nil {
		return fmt.Errorf("request: evidence is null: %w", fencepost.ErrMalformed)
	}
	if len(r.Evidence) > MaxEvidence {
		return fmt.Errorf("request: %d items of evidence, at most %d: %w", len(r.Evidence), MaxEvidence, fencepost.ErrTooLarge)
	}
	for i, e := range r.Evidence {
		if !isName(e.Name) {
			return fmt.Errorf("request: evidence[%d].name: want 1 to %d of a-z, 0-9, _ . -: %w", i, MaxEvidenceName, fencepost.ErrMalformed)
		}
		if err := validText(e.Value, MaxEvidenceValue); err != nil {
			return fmt.Errorf("request: evidence[%d].value: %w", i, err)
		}
	}
	return nil
}
