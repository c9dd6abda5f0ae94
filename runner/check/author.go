package check

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/fencepost/fencepost"
)

// FinishMargin is how long before the request's deadline the context of a
// check ends, so that it can still say what it found.
const FinishMargin = time.Second

// A Verdict is what a check decided. The zero Verdict is none, and is refused.
type Verdict struct {
	// Conclusion is pass or block.
	Conclusion Conclusion
	// Title is one line of 1 to [MaxTitleChars] characters.
	Title string
	// Summary is Markdown of at most [MaxSummaryBytes] bytes; see [Clip].
	Summary string
	// Report becomes report.json: any value that encodes to JSON within
	// [MaxReportBytes]. Nil becomes null.
	Report any
}

// Pass lets the candidate through.
func Pass(title, summary string) Verdict {
	return Verdict{Conclusion: ConclusionPass, Title: title, Summary: summary}
}

// Block stops the candidate.
func Block(title, summary string) Verdict {
	return Verdict{Conclusion: ConclusionBlock, Title: title, Summary: summary}
}

// WithReport returns v with report as its details.
func (v Verdict) WithReport(report any) Verdict {
	v.Report = report
	return v
}

// A Func judges one request. Its context ends [FinishMargin] before the
// deadline. An error means that it could not decide: the run is then failed.
type Func func(ctx context.Context, req *Request) (Verdict, error)

// Main runs judge over the request in the working directory and returns the
// exit status: 0 for a pass, 1 for a block, 2 when no verdict could be given.
// It writes why to standard error, which the controller discards: it is for an
// author who runs the program by hand.
func Main(ctx context.Context, judge Func) int {
	conclusion, err := Run(ctx, ".", judge)
	if err != nil {
		fmt.Fprintf(os.Stderr, "check: %v\n", err)
	}
	return conclusion.ExitStatus()
}

// Run is [Main] for the directory dir: it reads request.json, calls judge,
// writes report.json and last result.json with the digests of both. On any
// error, a panic of judge among them, it returns no conclusion and writes no
// result.
func Run(ctx context.Context, dir string, judge Func) (Conclusion, error) {
	raw, err := readRequest(filepath.Join(dir, RequestFile))
	if err != nil {
		return "", err
	}
	req, err := DecodeRequest(raw)
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithDeadline(ctx, time.Time(req.Deadline).Add(-FinishMargin))
	defer cancel()
	verdict, err := guard(ctx, judge, &req)
	if err != nil {
		return "", err
	}
	report, err := json.Marshal(verdict.Report, json.Deterministic(true))
	if err != nil {
		return "", fmt.Errorf("encode report: %w", err)
	}
	if err := ValidReport(report); err != nil {
		return "", err
	}
	result := Result{
		Schema: ResultSchema, Run: req.Run,
		RequestSHA256: DigestOf(raw), ReportSHA256: DigestOf(report),
		Conclusion: verdict.Conclusion, Title: verdict.Title, Summary: verdict.Summary,
	}
	encoded, err := result.Encode()
	if err != nil {
		return "", err
	}
	if err := writeInto(filepath.Join(dir, ReportFile), report); err != nil {
		return "", err
	}
	if err := writeInto(filepath.Join(dir, ResultFile), encoded); err != nil {
		return "", err
	}
	return verdict.Conclusion, nil
}

// ErrPanicked: the check's own function panicked.
var ErrPanicked = errors.New("check panicked")

func guard(ctx context.Context, judge Func, req *Request) (v Verdict, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: %v", ErrPanicked, p)
		}
	}()
	return judge(ctx, req)
}

func readRequest(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("open request: %w", err)
	}
	defer f.Close()
	var b bytes.Buffer
	if _, err := b.ReadFrom(io.LimitReader(f, MaxRequestBytes+1)); err != nil {
		return nil, fmt.Errorf("read request: %w", err)
	}
	if b.Len() > MaxRequestBytes {
		return nil, fmt.Errorf("request of more than %d bytes: %w", MaxRequestBytes, fencepost.ErrTooLarge)
	}
	return b.Bytes(), nil
}

// writeInto fills the file that is there, since the controller reads only the
// one that it made. It makes one where there is none, for use by hand.
func writeInto(path string, b []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return fmt.Errorf("open %s: %w", filepath.Base(path), err)
	}
	if _, err := f.Write(b); err != nil {
		return fmt.Errorf("write %s: %w", filepath.Base(path), errors.Join(err, f.Close()))
	}
	if err := f.Close(); err != nil {
		return fmt.Errorf("write %s: %w", filepath.Base(path), err)
	}
	return nil
}
