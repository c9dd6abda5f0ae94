package runner_test

import (
	"testing"

	"github.com/fencepost/fencepost/runner/check"
)

func TestRunConcludesAsTheProgramDoes(t *testing.T) {
	t.Parallel()
	r := open(t)
	for script, want := range map[string]check.Conclusion{"pass": check.ConclusionPass, "block": check.ConclusionBlock} {
		rec := r.Run(t.Context(), newJob(t, script))
		wantConcluded(t, rec, want)
		t.Logf("%+v", rec)
	}
}
