//go:build unix

package runner

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/fencepost/fencepost/runner/check"
	"github.com/fencepost/fencepost/runner/internal/hostpath"
)

// plainOutputs are the contract's files in a directory of the host.
type plainOutputs struct {
	work  string
	files map[string]*os.File
}

// makeOutputs makes the files and keeps them open.
func makeOutputs(work string, request []byte) (*plainOutputs, error) {
	out := &plainOutputs{work: work, files: map[string]*os.File{}}
	for _, f := range []struct {
		name  string
		bytes []byte
		mode  os.FileMode
	}{
		{check.RequestFile, request, 0o444},
		{check.ReportFile, nil, 0o600},
		{check.ResultFile, nil, 0o600},
	} {
		if err := out.make(f.name, f.bytes, f.mode); err != nil {
			return nil, errors.Join(fmt.Errorf("make %s: %w", f.name, err), out.close())
		}
	}
	return out, nil
}

func (o *plainOutputs) make(name string, b []byte, mode os.FileMode) error {
	path := filepath.Join(o.work, name)
	w, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return hostpath.Strip(err)
	}
	_, err = w.Write(b)
	if err = errors.Join(err, w.Close()); err != nil {
		return hostpath.Strip(err)
	}
	r, err := os.Open(path)
	if err != nil {
		return hostpath.Strip(err)
	}
	o.files[name] = r
	return nil
}

func (o *plainOutputs) open(name string) *os.File { return o.files[name] }

func (o *plainOutputs) replaced(name string) bool {
	held, err := o.files[name].Stat()
	if err != nil {
		return true
	}
	named, err := os.Lstat(filepath.Join(o.work, name))
	return err != nil || !os.SameFile(held, named)
}

func (o *plainOutputs) close() error {
	var errs []error
	for _, f := range o.files {
		errs = append(errs, f.Close())
	}
	return errors.Join(errs...)
}
