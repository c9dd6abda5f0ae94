//go:build unix

package runner

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/fencepost/fencepost/runner/internal/hostpath"
)

// plainCandidate and plainAction are links beside the working directory of a
// run outside a private root, so that its request names no path of the host
// either.
const (
	plainCandidate = "../candidate"
	plainAction    = "../action"
)

func (d *runDir) work() string { return filepath.Join(d.path, "work") }

// makePlainFiles makes the working directory with the contract's files, and
// the links to the trees beside it.
func makePlainFiles(s spec) (*plainOutputs, error) {
	work := s.dir.work()
	if err := os.Mkdir(work, privateMode); err != nil {
		return nil, fmt.Errorf("make working directory: %w", hostpath.Strip(err))
	}
	for text, target := range map[string]string{
		plainCandidate: s.job.Candidate.Root(),
		plainAction:    s.job.Action.Root(),
	} {
		if err := os.Symlink(target, filepath.Join(work, text)); err != nil {
			return nil, fmt.Errorf("link tree: %w", hostpath.Strip(err))
		}
	}
	return makeOutputs(work, s.request)
}
