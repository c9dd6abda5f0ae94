//go:build !unix

package config

import (
	"errors"
	"io/fs"
	"os"
)

func openSecret(path string) (*os.File, error) { return os.Open(path) }

// guardFile refuses: where file modes say nothing about who may read, only
// env: references can be used.
func guardFile(fs.FileInfo, string, guard) error {
	return errors.New("file modes don't protect secrets on this system; use env:NAME")
}
