package check

import (
	"fmt"
	"unicode/utf8"

	"github.com/fencepost/fencepost"
)

// A Conclusion is what a check decided. The zero Conclusion is none.
type Conclusion string

// The conclusions.
const (
	// ConclusionPass lets the candidate through; the program exits with
	// [ExitPass].
	ConclusionPass Conclusion = "pass"
	// ConclusionBlock stops it; the program exits with [ExitBlock].
	ConclusionBlock Conclusion = "block"
)

// Exit statuses of a check. Every other status is a failed run.
const (
	ExitPass  = 0
	ExitBlock = 1
	// ExitFailed is what [Main] returns for a check that could not decide.
	ExitFailed = 2
)

// ExitStatus is the one that agrees with c; [ExitFailed] for none.
func (c Conclusion) ExitStatus() int {
	switch c {
	case ConclusionPass:
		return ExitPass
	case ConclusionBlock:
		return ExitBlock
	default:
		return ExitFailed
	}
}

// A Result is what a program decided about one request.
type Result struct {
	// Schema is [ResultSchema].
	Schema string `json:"schema"`
	// Run repeats the request's.
	Run string `json:"run"`
	// RequestSHA256 is the digest of request.json's bytes.
	RequestSHA256 Digest `json:"request_sha256"`
	// ReportSHA256 is the digest of report.json's bytes.
	ReportSHA256 Digest `json:"report_sha256"`
	// Conclusion is pass or block.
	Conclusion Conclusion `json:"conclusion"`
	// Title is one line of 1 to [MaxTitleChars] characters.
	Title string `json:"title"`
	// Summary is Markdown of at most [MaxSummaryBytes] bytes; it may be empty.
	Summary string `json:"summary"`
}

// Validate reports the first field that is not within the contract. Its error
// matches [fencepost.ErrMalformed], or [fencepost.ErrTooLarge] for a title or
// summary over its limit.
func (r *Result) Validate() error {
	if r.Schema != ResultSchema {
		return fmt.Errorf("result: schema is not %s: %w", ResultSchema, fencepost.ErrMalformed)
	}
	if err := validRun(r.Run); err != nil {
		return fmt.Errorf("result: %w", err)
	}
	if r.RequestSHA256.IsZero() || r.ReportSHA256.IsZero() {
		return fmt.Errorf("result: digest is not set: %w", fencepost.ErrMalformed)
	}
	if r.Conclusion != ConclusionPass && r.Conclusion != ConclusionBlock {
		return fmt.Errorf("result: conclusion is neither pass nor block: %w", fencepost.ErrMalformed)
	}
	if n := utf8.RuneCountInString(r.Title); n > MaxTitleChars {
		return fmt.Errorf("result: title of %d characters, at most %d: %w", n, MaxTitleChars, fencepost.ErrTooLarge)
	}
	if err := validLine("title", r.Title, MaxTitleChars*utf8.UTFMax); err != nil {
		return fmt.Errorf("result: %w", err)
	}
	if err := validText(r.Summary, MaxSummaryBytes); err != nil {
		return fmt.Errorf("result: summary: %w", err)
	}
	return nil
}
