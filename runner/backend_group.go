//go:build unix && !linux

package runner

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fencepost/fencepost/runner/internal/hostpath"
)

// A groupBackend runs programs in a process group of their own, the one means
// that every Unix has. A descendant that leaves the group escapes it, so
// tree_kill is not among its protections.
type groupBackend struct{ workspace *workspace }

// openBackend refuses where a sandbox is required: this system has none.
func openBackend(_ context.Context, cfg Config, ws *workspace) (backend, error) {
	if cfg.Sandbox == Required {
		missing := make([]Missing, 0, len(Protections()))
		for _, p := range Protections() {
			missing = append(missing, Missing{p, ErrUnsupported})
		}
		return nil, &SandboxError{Missing: missing}
	}
	return groupBackend{ws}, nil
}

func (groupBackend) roots() roots { return roots{candidate: plainCandidate, action: plainAction} }

func (groupBackend) close() error { return nil }

func (b groupBackend) begin(Limits) (session, error) {
	dir, err := b.workspace.makeRun(b.workspace.runName())
	if err != nil {
		return nil, err
	}
	return &groupSession{dir: dir, end: make(chan ending, 1)}, nil
}

type groupSession struct {
	dir    *runDir
	loaded *plainProgram
	out    *plainOutputs
	cmd    *exec.Cmd
	end    chan ending
}

func (s *groupSession) load(ctx context.Context, job *Job) (err error) {
	s.loaded, err = loadPlain(ctx, job, s.dir.program())
	return err
}

func (s *groupSession) prepare(_ context.Context, job *Job, request requester) (err error) {
	s.out, err = makePlainFiles(s.dir, job, request)
	return err
}

func (s *groupSession) protections() []ProtectionState {
	on := map[Protection]string{}
	if os.Geteuid() != 0 {
		on[ProtectionUnprivilegedUser] = ""
	}
	return states(on)
}

func (s *groupSession) launch() error {
	cmd := &exec.Cmd{
		Path: s.dir.program(), Args: []string{s.dir.program()},
		Env: []string{}, Dir: s.dir.work(),
		SysProcAttr: &syscall.SysProcAttr{Setpgid: true},
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("%w: %w", ErrSpawn, hostpath.Strip(err))
	}
	s.cmd = cmd
	go s.wait()
	return nil
}

func (s *groupSession) wait() {
	defer close(s.end)
	err := s.cmd.Wait()
	if _, exited := errors.AsType[*exec.ExitError](err); err != nil && !exited {
		s.end <- ending{err: fmt.Errorf("wait for program: %w", err)}
		return
	}
	s.end <- ending{exit: programExit(s.cmd.ProcessState)}
}

func programExit(state *os.ProcessState) *ProgramExit {
	exit := &ProgramExit{Status: state.ExitCode(), User: state.UserTime(), System: state.SystemTime()}
	if ws, ok := state.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		exit.Signal = int(ws.Signal())
	}
	return exit
}

func (s *groupSession) ended() <-chan ending { return s.end }

// drain kills the group until the system knows no member of it.
func (s *groupSession) drain() error {
	if s.cmd == nil {
		return nil
	}
	for waited := time.Duration(0); waited < DrainLimit; waited += lockPause {
		err := unix.Kill(-s.cmd.Process.Pid, unix.SIGKILL)
		if errors.Is(err, unix.ESRCH) {
			for range s.end {
				// The waiter's word was not wanted; its end is.
				continue
			}
			return nil
		}
		<-time.After(lockPause)
	}
	return ErrDrain
}

func (s *groupSession) unaltered() error { return s.loaded.unaltered() }

func (s *groupSession) outputs() outputs { return s.out }

func (s *groupSession) memoryKills() int { return 0 }

func (s *groupSession) release() error {
	var errs []error
	if s.out != nil {
		errs = append(errs, s.out.close())
	}
	return errors.Join(append(errs, s.dir.remove())...)
}
