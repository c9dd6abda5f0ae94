package runner

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/runner/check"
	"github.com/fencepost/fencepost/runner/internal/hostpath"
)

// judge holds what a program left against the contract (DESIGN §7). It runs
// after the process tree is gone, so nothing changes under it.
func judge(out outputs, run string, request []byte, exit ProgramExit) Outcome {
	for _, name := range []string{check.RequestFile, check.ReportFile, check.ResultFile} {
		if out.replaced(name) {
			return failed(fencepost.ReasonRuntimeTampered, fmt.Errorf("%s was replaced: %w", name, ErrTampered))
		}
	}
	if exit.Signal != 0 {
		return failed(fencepost.ReasonUnavailable, fmt.Errorf("signal %d: %w", exit.Signal, ErrSignalled))
	}
	resultBytes, fail := take(out.open(check.ResultFile), check.ResultFile, check.MaxResultBytes)
	if fail != nil {
		return *fail
	}
	if len(resultBytes) == 0 {
		return failed(fencepost.ReasonMissingOutput, fmt.Errorf("no result, exit status %d: %w", exit.Status, ErrOutput))
	}
	report, fail := take(out.open(check.ReportFile), check.ReportFile, check.MaxReportBytes)
	if fail != nil {
		return *fail
	}
	return conclude(run, request, resultBytes, report, exit)
}

// conclude is the part of judge that is a function of bytes.
func conclude(run string, request, resultBytes, report []byte, exit ProgramExit) Outcome {
	result, err := check.DecodeResult(resultBytes)
	if err != nil {
		return failed(shape(err), fmt.Errorf("%w: %w", ErrOutput, err))
	}
	if err := check.ValidReport(report); err != nil {
		return failed(shape(err), fmt.Errorf("%w: %w", ErrOutput, err))
	}
	var differs string
	switch {
	case result.Run != run:
		differs = "run"
	case result.RequestSHA256 != check.DigestOf(request):
		differs = "digest of request"
	case result.ReportSHA256 != check.DigestOf(report):
		differs = "digest of report"
	case exit.Status != result.Conclusion.ExitStatus():
		differs = "exit status"
	default:
		return Concluded{Result: result, ResultBytes: resultBytes, Report: report}
	}
	return failed(fencepost.ReasonMismatch, fmt.Errorf("%s does not agree with the result: %w", differs, ErrOutput))
}

// shape is the reason of a value that does not decode.
func shape(err error) fencepost.Reason {
	if errors.Is(err, fencepost.ErrTooLarge) {
		return fencepost.ReasonOversizedOutput
	}
	return fencepost.ReasonMalformedOutput
}

// take reads a whole output within its cap. The size is looked at before a
// byte is read: a file may be sparse and larger than any memory.
func take(f *os.File, name string, most int64) ([]byte, *Failed) {
	info, err := f.Stat()
	if err != nil {
		fail := failed(fencepost.ReasonUnavailable, fmt.Errorf("look at %s: %w", name, hostpath.Strip(err)))
		return nil, &fail
	}
	if info.Size() > most {
		fail := failed(fencepost.ReasonOversizedOutput, fmt.Errorf("%s of %d bytes, at most %d: %w", name, info.Size(), most, ErrOutput))
		return nil, &fail
	}
	b := make([]byte, info.Size())
	if _, err := io.ReadFull(io.NewSectionReader(f, 0, info.Size()), b); err != nil {
		fail := failed(fencepost.ReasonUnavailable, fmt.Errorf("read %s: %w", name, hostpath.Strip(err)))
		return nil, &fail
	}
	return b, nil
}

func failed(reason fencepost.Reason, err error) Failed { return Failed{Reason: reason, Err: err} }
