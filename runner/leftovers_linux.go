package runner

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/fencepost/fencepost/runner/internal/cgroup"
	"github.com/fencepost/fencepost/runner/internal/hostpath"
	"github.com/fencepost/fencepost/runner/internal/procs"
)

// A runState is what a later process needs to end a run: it stands in the
// run's directory from before its first process. It is not synced: no process
// outlives a loss of power.
type runState struct {
	// Stage is the process whose end is the run's; zero until it started.
	Stage procs.Identity `json:"stage"`
	// Groups are the directories of its control groups.
	Groups []string `json:"groups"`
}

func (d *runDir) record(s runState) error {
	b, err := json.Marshal(s)
	if err != nil {
		return fmt.Errorf("record run: %w", err)
	}
	path := filepath.Join(d.path, stateFile)
	if err := os.WriteFile(path, b, 0o600); err != nil {
		return fmt.Errorf("record run: %w", hostpath.Strip(err))
	}
	return nil
}

// endLeftover ends what is alive of a run whose controller is dead. In a
// namespace nothing should be: the kernel has killed the stage together with
// the controller, and the rest with the stage.
func endLeftover(dir string) (killed int, err error) {
	s, err := readState(filepath.Join(dir, stateFile))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		// Torn: the controller died while it wrote, before any process.
		return 0, nil
	}
	was, err := procs.Kill(s.Stage, DrainLimit)
	if err != nil {
		return 0, fmt.Errorf("%w: %w", ErrLeftover, err)
	}
	if was {
		killed++
	}
	if err := cgroup.Kill(s.Groups, DrainLimit); err != nil {
		return killed, fmt.Errorf("%w: %w", ErrLeftover, err)
	}
	if err := cgroup.RemoveDirs(s.Groups, DrainLimit); err != nil {
		return killed, fmt.Errorf("%w: %w", ErrLeftover, err)
	}
	return killed, nil
}

// maxState bounds a state file.
const maxState = 16 << 10

func readState(path string) (runState, error) {
	f, err := os.Open(path)
	if err != nil {
		return runState{}, hostpath.Strip(err)
	}
	defer f.Close()
	var b bytes.Buffer
	if _, err := b.ReadFrom(io.LimitReader(f, maxState)); err != nil {
		return runState{}, hostpath.Strip(err)
	}
	var s runState
	if err := json.Unmarshal(b.Bytes(), &s); err != nil {
		return runState{}, fmt.Errorf("decode run state: %w", err)
	}
	return s, nil
}

// groupPatience is how long the kernel may take to let go of a group whose
// last process is gone.
const groupPatience = 500 * time.Millisecond
