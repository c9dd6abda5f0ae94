package early_test

import (
	"bytes"
	"os/exec"
	"strings"
	"testing"
)

// What the stage imports decides how early it comes: a package of ours or of a
// third party too many, and the most of the gain is gone.
func TestStageNeedsLittle(t *testing.T) {
	t.Parallel()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	allowed := map[string]bool{
		"github.com/fencepost/fencepost/runner/early":             true,
		"github.com/fencepost/fencepost/runner/internal/hostpath": true,
		"github.com/fencepost/fencepost/runner/internal/landlock": true,
		"github.com/fencepost/fencepost/runner/internal/procs":    true,
		"github.com/fencepost/fencepost/runner/internal/seccomp":  true,
		"github.com/fencepost/fencepost/runner/internal/stage":    true,
		"golang.org/x/sys/unix":                                   true,
		// Late by name, and so are all that import it.
		"path/filepath": false,
	}
	for line := range bytes.Lines(out) {
		p := strings.TrimSpace(string(line))
		ok, named := allowed[p]
		third := strings.Contains(strings.Split(p, "/")[0], ".")
		if named && !ok || third && !ok {
			t.Errorf("the stage needs %s", p)
		}
	}
}
