//go:build unix

package runner

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"syscall"

	"github.com/fencepost/fencepost/runner/check"
	"github.com/fencepost/fencepost/runner/internal/hostpath"
)

// programMode lets everyone read and execute the copy, and nobody write it.
const programMode = 0o555

// A plainProgram is the sealed copy of a program in a directory of the host.
type plainProgram struct {
	path string
	info os.FileInfo
	want check.Digest
}

// loadPlain copies the program to path, which must not exist.
func loadPlain(ctx context.Context, job *Job, path string) (*plainProgram, error) {
	// As long as the file is open for writing, a process that another
	// goroutine forks would hold it open too until it executes, and the
	// program could not be executed for as long ("text file busy").
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o700)
	if err != nil {
		return nil, fmt.Errorf("make copy of program: %w", hostpath.Strip(err))
	}
	p := &plainProgram{path: path, want: job.ProgramSHA256}
	err = copyProgram(ctx, job, f)
	if err == nil {
		err = hostpath.Strip(f.Chmod(programMode))
	}
	if err == nil {
		p.info, err = f.Stat()
	}
	if e := f.Close(); err == nil {
		err = hostpath.Strip(e)
	}
	if err != nil {
		return nil, err
	}
	return p, nil
}

// unaltered checks that the copy is still the file that it was, with the
// pinned digest.
func (p *plainProgram) unaltered() error {
	f, err := os.Open(p.path)
	if err != nil {
		return fmt.Errorf("program is gone: %w", ErrTampered)
	}
	defer f.Close()
	after, err := f.Stat()
	if err != nil || !os.SameFile(p.info, after) || after.Size() != p.info.Size() {
		return fmt.Errorf("program was replaced: %w", ErrTampered)
	}
	hash := sha256.New()
	if _, err := io.Copy(hash, io.LimitReader(f, after.Size()+1)); err != nil {
		return fmt.Errorf("read program again: %w", hostpath.Strip(err))
	}
	if check.Digest(hash.Sum(nil)) != p.want {
		return fmt.Errorf("program was altered: %w", ErrTampered)
	}
	return nil
}
