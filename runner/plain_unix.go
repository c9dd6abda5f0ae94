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

// makePlainFiles makes the working directory with the contract's files, and
// the links to the trees beside it.
func makePlainFiles(dir *runDir, job *Job, request requester) (*plainOutputs, error) {
	work := dir.work()
	if err := os.Mkdir(work, privateMode); err != nil {
		return nil, fmt.Errorf("make working directory: %w", hostpath.Strip(err))
	}
	for text, target := range map[string]string{
		plainCandidate: job.Candidate.Root(),
		plainAction:    job.Action.Root(),
	} {
		if err := os.Symlink(target, filepath.Join(work, text)); err != nil {
			return nil, fmt.Errorf("link tree: %w", hostpath.Strip(err))
		}
	}
	text, err := request()
	if err != nil {
		return nil, err
	}
	return makeOutputs(work, text)
}
