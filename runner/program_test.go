package runner_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/fencepost/fencepost/runner/check"
)

// This file is the program that runs: the test binary under another name.

// isProgram reports whether this process was started by a runner as a program.
func isProgram() bool {
	return len(os.Args) == 1 && filepath.Base(os.Args[0]) == "program"
}

// program does what the candidate's script says.
func program() int {
	raw, err := os.ReadFile(check.RequestFile)
	if err != nil {
		return 90
	}
	req, err := check.DecodeRequest(raw)
	if err != nil {
		return 91
	}
	script, err := os.ReadFile(filepath.Join(req.Candidate.Root, "script"))
	if err != nil {
		return 92
	}
	words := strings.Fields(string(script))
	act, ok := acts[words[0]]
	if !ok {
		return 93
	}
	return act(&req, words[1:])
}

// acts are the scripts' first words.
var acts = map[string]func(req *check.Request, args []string) int{
	"pass":  func(*check.Request, []string) int { return conclude(check.Pass("All is well", "")) },
	"block": func(*check.Request, []string) int { return conclude(check.Block("Not well", "- because")) },
}

// conclude leaves the verdict as an honest check does.
func conclude(v check.Verdict) int {
	return check.Main(context.Background(), func(context.Context, *check.Request) (check.Verdict, error) { return v, nil })
}

// tell passes with a list of observations as the report.
func tell(seen ...string) int {
	return conclude(check.Pass("Observed", fmt.Sprint(len(seen))).WithReport(seen))
}
