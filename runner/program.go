package runner

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/fencepost/fencepost/runner/check"
	"github.com/fencepost/fencepost/runner/internal/hostpath"
)

// programMode lets everyone read and execute the copy, and nobody write it.
const programMode = 0o555

// copyProgram copies the program out of the action's checkout to the file dst,
// which must not exist, and compares the digest of what it wrote. It follows no
// link out of the tree. Its error matches
// [ErrProgram] when the program is not the pinned one.
func copyProgram(ctx context.Context, job *Job, dst string) error {
	tree, err := os.OpenRoot(job.Action.Root())
	if err != nil {
		return fmt.Errorf("open action: %w", hostpath.Strip(err))
	}
	defer tree.Close()
	src, err := openRegular(tree, filepath.FromSlash(job.Program))
	if err != nil {
		return err
	}
	defer src.Close()
	digest, err := copyAndHash(ctx, src, dst, job.Limits.ProgramBytes)
	if err != nil {
		return err
	}
	if digest != job.ProgramSHA256 {
		return fmt.Errorf("digest differs: %w", ErrProgram)
	}
	return nil
}

func openRegular(tree *os.Root, name string) (*os.File, error) {
	// Looked at before it is opened: opening a pipe would wait for a writer.
	info, err := tree.Lstat(name)
	if err != nil {
		return nil, fmt.Errorf("find program: %w: %w", hostpath.Strip(err), ErrProgram)
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("program is not a regular file: %w", ErrProgram)
	}
	f, err := tree.Open(name)
	if err != nil {
		return nil, fmt.Errorf("open program: %w: %w", hostpath.Strip(err), ErrProgram)
	}
	return f, nil
}

func copyAndHash(ctx context.Context, src io.Reader, dst string, most int64) (check.Digest, error) {
	// A process that another goroutine forks meanwhile would hold our
	// descriptor for writing until it executes, and the program could not be
	// executed for as long ("text file busy").
	release := holdForks()
	defer release()
	out, err := os.OpenFile(dst, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o700)
	if err != nil {
		return check.Digest{}, fmt.Errorf("make copy of program: %w", hostpath.Strip(err))
	}
	digest, err := pour(ctx, out, src, most)
	if err == nil {
		err = hostpath.Strip(out.Chmod(programMode))
	}
	if e := out.Close(); err == nil {
		err = hostpath.Strip(e)
	}
	return digest, err
}

// copyChunk is how much is copied between two looks at the context.
const copyChunk = 1 << 20

func pour(ctx context.Context, out io.Writer, src io.Reader, most int64) (check.Digest, error) {
	hash := sha256.New()
	both := io.MultiWriter(out, hash)
	for left := most; ; {
		n, err := io.CopyN(both, src, min(left+1, copyChunk))
		left -= n
		switch {
		case left < 0:
			return check.Digest{}, fmt.Errorf("program of more than %d bytes: %w", most, ErrProgram)
		case errors.Is(err, io.EOF):
			return check.Digest(hash.Sum(nil)), nil
		case err != nil:
			return check.Digest{}, fmt.Errorf("copy program: %w", hostpath.Strip(err))
		case ctx.Err() != nil:
			return check.Digest{}, context.Cause(ctx)
		}
	}
}

// unaltered checks that the copy is still what it was: the file that before
// describes, with the pinned digest.
func unaltered(path string, before os.FileInfo, want check.Digest) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("program is gone: %w", ErrTampered)
	}
	defer f.Close()
	after, err := f.Stat()
	if err != nil || !os.SameFile(before, after) || after.Size() != before.Size() {
		return fmt.Errorf("program was replaced: %w", ErrTampered)
	}
	hash := sha256.New()
	if _, err := io.Copy(hash, io.LimitReader(f, before.Size()+1)); err != nil {
		return fmt.Errorf("read program again: %w", hostpath.Strip(err))
	}
	if check.Digest(hash.Sum(nil)) != want {
		return fmt.Errorf("program was altered: %w", ErrTampered)
	}
	return nil
}
