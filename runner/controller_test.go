//go:build unix

package runner_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/fencepost/fencepost/runner"
)

// A controller is this test binary as a process of its own that runs one
// program, so that it can be killed, or be somebody else.

// Names of the environment that make a process a controller: its role, the
// directory it works in, and the script of its program.
const (
	controllerEnv = "FENCEPOST_TEST_CONTROLLER"
	directoryEnv  = "FENCEPOST_TEST_DIRECTORY"
	scriptEnv     = "FENCEPOST_TEST_SCRIPT"
)

// A told is what a controller says on its standard output.
type told struct {
	// Refused are the protections that Open missed in mode required.
	Refused []runner.Protection
	// Error is any other failure of Open.
	Error string
	// Conclusion, Reason and Cause are the outcome.
	Conclusion, Reason, Cause string
	Report                    json.RawMessage
	Protections               []runner.ProtectionState
	Cleanup                   string
}

// openers are the roles that open a runner in a way of the system's own.
var openers = map[string]func(context.Context, runner.Config) (*runner.Runner, error){}

// controller plays the role: required, best_effort, or another that the
// system's own file knows.
func controller(role string) int {
	t := told{}
	if err := t.play(role, os.Getenv(directoryEnv), os.Getenv(scriptEnv)); err != nil {
		t.Error = err.Error()
	}
	if err := json.NewEncoder(os.Stdout).Encode(t); err != nil {
		return 1
	}
	return 0
}

func (t *told) play(role, dir, script string) error {
	cfg := runner.Config{Entry: entry, Scratch: filepath.Join(dir, "scratch"), Now: time.Now}
	open, ok := openers[role]
	if !ok {
		open = runner.Open
	}
	if role == "best_effort" {
		cfg.Sandbox = runner.BestEffort
	}
	ctx := context.Background()
	r, err := open(ctx, cfg)
	if refused, ok := errors.AsType[*runner.SandboxError](err); ok {
		for _, m := range refused.Missing {
			t.Refused = append(t.Refused, m.Protection)
		}
		return nil
	}
	if err != nil {
		return err
	}
	job, err := makeJob(dir, strings.Fields(script)...)
	if err != nil {
		return err
	}
	rec := r.Run(ctx, job)
	t.Protections = rec.Protections
	t.Cleanup = fmt.Sprint(rec.Cleanup)
	switch o := rec.Outcome.(type) {
	case runner.Concluded:
		t.Conclusion, t.Report = string(o.Result.Conclusion), o.Report
	case runner.Failed:
		t.Reason, t.Cause = string(o.Reason), o.Err.Error()
	}
	return r.Close()
}
