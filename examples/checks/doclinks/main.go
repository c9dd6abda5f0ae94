// Command doclinks is a check for Fencepost that blocks a change whose Markdown
// has relative links or anchors that lead nowhere.
//
// It needs no configuration: [links] says what it follows. It reads the
// candidate tree alone, and opens no connection.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/fencepost/fencepost/examples/checks/doclinks/links"
	"github.com/fencepost/fencepost/runner/check"
)

func main() { os.Exit(check.Main(context.Background(), judge)) }

// judge blocks also what could not be checked whole: an author learns more
// from a verdict that says so than from a run that failed.
func judge(ctx context.Context, req *check.Request) (check.Verdict, error) {
	candidate, err := req.OpenCandidate()
	if err != nil {
		return check.Verdict{}, err
	}
	defer candidate.Close()
	result, err := links.Check(ctx, candidate.FS(), links.Limits{})
	switch {
	case errors.Is(err, links.ErrTooLarge):
		return check.Block("Too much to check", fmt.Sprintf(
			"This check reads trees of up to %d files and directories, with up to %d Markdown files of %d MiB in all.\n",
			links.DefaultEntries, links.DefaultFiles, links.DefaultTotalBytes>>20)), nil
	case errors.Is(err, context.DeadlineExceeded):
		return check.Block("Out of time before every link was followed", ""), nil
	case err != nil:
		return check.Verdict{}, err
	}
	report, err := result.Report(check.MaxReportBytes)
	if err != nil {
		return check.Verdict{}, err
	}
	verdict := check.Pass(result.Title(), result.Summary(check.MaxSummaryBytes))
	if result.Broken > 0 {
		verdict.Conclusion = check.ConclusionBlock
	}
	return verdict.WithReport(report), nil
}
