package runner

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"github.com/fencepost/fencepost/runner/internal/cgroup"
	"github.com/fencepost/fencepost/runner/internal/hostpath"
	"github.com/fencepost/fencepost/runner/internal/procs"
)

// What a later process needs to end the runs of this one: where their control
// groups are made, a line for each place, written once; and a list of the
// stages that live. A group's
// name begins with that of the process directory, so it is known from before
// it is made. Nothing is synced: no process outlives a loss of power.
const (
	groupsFile = "groups"
	stagesFile = "stages"
)

func (w *workspace) recordGroups(parents []string) error {
	text := strings.Join(parents, "\n") + "\n"
	if err := os.WriteFile(filepath.Join(w.dir, groupsFile), []byte(text), 0o600); err != nil {
		return fmt.Errorf("record control groups: %w", hostpath.Strip(err))
	}
	return nil
}

// A stageList is a file of lines of equal length, one for each stage that
// lives: process id, start time, boot id. Lines are written in place, since
// making and removing a file for each run would wait for the file system's
// journal.
type stageList struct {
	file *os.File

	mu   sync.Mutex
	free []int64 // guarded by mu: offsets of blank lines
	end  int64   // guarded by mu
}

// stageLine is the length of a line: three fields of at most 20, 20 and 36
// characters.
const stageLine = 80

func (w *workspace) openStages() (*stageList, error) {
	f, err := os.OpenFile(filepath.Join(w.dir, stagesFile), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, fmt.Errorf("make list of stages: %w", hostpath.Strip(err))
	}
	return &stageList{file: f}, nil
}

// A slot is one line that is taken.
type slot struct {
	list   *stageList
	offset int64
}

func (l *stageList) enter(id procs.Identity) (*slot, error) {
	l.mu.Lock()
	offset := l.end
	if n := len(l.free); n > 0 {
		offset, l.free = l.free[n-1], l.free[:n-1]
	} else {
		l.end += stageLine
	}
	l.mu.Unlock()
	s := &slot{list: l, offset: offset}
	return s, s.write(fmt.Sprintf("%d %d %s", id.PID, id.Start, id.Boot))
}

// leave blanks the line.
func (s *slot) leave() error {
	if err := s.write(""); err != nil {
		return err
	}
	s.list.mu.Lock()
	defer s.list.mu.Unlock()
	s.list.free = append(s.list.free, s.offset)
	return nil
}

func (s *slot) write(text string) error {
	line := fmt.Appendf(nil, "%-*s\n", stageLine-1, text)
	if _, err := s.list.file.WriteAt(line, s.offset); err != nil {
		return fmt.Errorf("write list of stages: %w", hostpath.Strip(err))
	}
	return nil
}

// endLeftovers ends what is alive of the runs of a process that is dead. In
// namespaces nothing should be: the kernel has killed the stages together with
// the process, and the rest with the stages.
func endLeftovers(dir string) (runs, killed int, err error) {
	stages, err := readStages(filepath.Join(dir, stagesFile))
	if err != nil {
		return 0, 0, err
	}
	for _, id := range stages {
		// One outside namespaces is at work: it kills what descends from it.
		was, err := procs.End(id, DrainLimit, DrainLimit)
		if err != nil {
			return len(stages), killed, fmt.Errorf("%w: %w", ErrLeftover, err)
		}
		if was {
			killed++
		}
	}
	if err := endGroups(dir); err != nil {
		return len(stages), killed, fmt.Errorf("%w: %w", ErrLeftover, err)
	}
	return len(stages), killed, nil
}

func endGroups(dir string) error {
	b, err := readRecord(filepath.Join(dir, groupsFile))
	if err != nil {
		return err
	}
	// A torn line was left by a process that died before it made a group, and
	// names no directory, or none with groups of that name.
	groups, err := cgroup.Named(strings.Split(string(b), "\n"), groupPrefix(dir))
	if err != nil {
		return err
	}
	if err := cgroup.Kill(groups, DrainLimit); err != nil {
		return err
	}
	return cgroup.RemoveDirs(groups, DrainLimit)
}

// readStages reads the lines that are whole; a torn or blank one names no
// process.
func readStages(path string) ([]procs.Identity, error) {
	b, err := readRecord(path)
	if err != nil {
		return nil, err
	}
	var out []procs.Identity
	for line := range bytes.Lines(b) {
		fields := strings.Fields(string(line))
		if len(fields) != 3 || len(line) != stageLine {
			continue
		}
		pid, err1 := strconv.Atoi(fields[0])
		start, err2 := strconv.ParseUint(fields[1], 10, 64)
		if err1 == nil && err2 == nil {
			out = append(out, procs.Identity{PID: pid, Start: start, Boot: fields[2]})
		}
	}
	return out, nil
}

// maxRecord bounds what is read of a record: 13,000 stages.
const maxRecord = 1 << 20

// readRecord returns nothing for a file that is not there: its writer died
// before it got that far.
func readRecord(path string) ([]byte, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read record of runs: %w", hostpath.Strip(err))
	}
	defer f.Close()
	var b bytes.Buffer
	if _, err := b.ReadFrom(io.LimitReader(f, maxRecord)); err != nil {
		return nil, fmt.Errorf("read record of runs: %w", hostpath.Strip(err))
	}
	return b.Bytes(), nil
}
