package runner

import (
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/runner/check"
)

// An Outcome is what a run ended as: [Concluded] or [Failed].
//
//sumtype:decl
type Outcome interface{ isOutcome() }

// Concluded is a run whose exit status and result agree, and whose ids and
// digests match. It is the only outcome that can become a pass.
type Concluded struct {
	// Result is the decoded result; Result.Conclusion is pass or block.
	Result check.Result
	// ResultBytes and Report are the exact bytes of result.json and
	// report.json.
	ResultBytes, Report []byte
}

// Failed is a run without a conclusion.
type Failed struct {
	// Reason is one of timeout, missing_output, oversized_output,
	// malformed_output, mismatch, runtime_tampered, program_digest, lost and
	// unavailable. With lost nothing may be staged; unavailable may be tried
	// again (DESIGN §8).
	Reason fencepost.Reason
	// Err is the cause, for the log: it holds no path of the host and nothing
	// that the program wrote.
	Err error
}

func (Concluded) isOutcome() {}
func (Failed) isOutcome()    {}

// A Record is what can be told about one run.
type Record struct {
	Outcome Outcome
	// Request is the exact request.json; nil when the run ended before there
	// was one.
	Request []byte
	// Protections says which were on; nil when nothing was started.
	Protections []ProtectionState
	// Started is when the program was let go, UTC; zero when it never was.
	Started time.Time
	// Duration is from there to the end of the whole process tree.
	Duration time.Duration
	// Exit says how the program itself ended; nil when it did not by itself.
	Exit *ProgramExit
	// MemoryKills is how many of its processes the kernel killed for want of
	// memory, as far as a control group says.
	MemoryKills int
	// Cleanup is why something of the run could not be removed; nil when all
	// was. The next [Open] tries again: whoever gets this error raises the
	// alert cleanup_failed.
	Cleanup error
}

// A ProgramExit is the end of the program's first process.
type ProgramExit struct {
	// Status is the exit status; -1 when a signal ended it.
	Status int
	// Signal is the number of that signal, or 0.
	Signal int
	// User and System are processor time, MaxRSS the largest resident size in
	// bytes, of that process and the children that it waited for.
	User, System time.Duration
	MaxRSS       int64
}
