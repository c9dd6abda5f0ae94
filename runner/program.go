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

// copyProgram copies the program out of the action's checkout into dst and
// compares the digest of what it wrote. It follows no link out of the tree.
// Its error matches [ErrProgram] when the program is not the pinned one.
func copyProgram(ctx context.Context, job *Job, dst *os.File) error {
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
	digest, err := pour(ctx, dst, src, job.Limits.ProgramBytes)
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

// copyChunk is how much is copied between two looks at the context.
const copyChunk = 1 << 20

func pour(ctx context.Context, dst io.Writer, src io.Reader, most int64) (check.Digest, error) {
	hash := sha256.New()
	both := io.MultiWriter(dst, hash)
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
