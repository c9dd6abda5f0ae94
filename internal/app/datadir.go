package app

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/fencepost/fencepost/internal/durable"
)

// Errors about a data directory.
var (
	// ErrNotOurs: the directory holds something else.
	ErrNotOurs = errors.New("not a data directory of Fencepost")
	// ErrVersion: it is of another version.
	ErrVersion = errors.New("data directory of another version")
	// ErrExposed: others than its owner can reach it, or its owner is
	// somebody else.
	ErrExposed = errors.New("data directory is exposed")
)

const (
	markerName = "FENCEPOST"
	markerText = "fencepost data directory, version 1\n"
	// markerLimit bounds what is read of a marker.
	markerLimit = 256
)

// directories are what a data directory holds.
var directories = [...]string{"inbox", "notebook", "artifacts", "results", "receipts", "alerts", "fetch", "run", "keys"}

// prepare makes dir a data directory if it is missing or empty, says so, and
// refuses one that holds something else, is of another version, or can be
// reached by others.
func prepare(dir string, log *slog.Logger) error {
	entries, err := os.ReadDir(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if err := os.MkdirAll(dir, durable.DirPerm); err != nil {
			return fmt.Errorf("make data_dir: %w", err)
		}
	case errors.Is(err, syscall.ENOTDIR):
		return fmt.Errorf("%s is no directory: %w; name an empty or missing directory as data_dir", dir, ErrNotOurs)
	case err != nil:
		return fmt.Errorf("read data_dir: %w", err)
	}
	if err := checkExposure(dir); err != nil {
		return err
	}
	fsys := durable.OS(dir)
	text, err := durable.ReadFile(fsys, markerName, markerLimit)
	switch {
	case err == nil && string(text) == markerText:
	case err == nil && strings.HasPrefix(string(text), "fencepost data directory"):
		return fmt.Errorf("%s says %q, want %q: %w; start this version with another data_dir",
			filepath.Join(dir, markerName), strings.TrimSpace(string(text)), strings.TrimSpace(markerText), ErrVersion)
	case err == nil || errors.Is(err, durable.ErrTooLarge):
		return fmt.Errorf("%s: %w; name an empty or missing directory as data_dir", filepath.Join(dir, markerName), ErrNotOurs)
	case !errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("read data_dir: %w", err)
	case !onlyTemporary(entries):
		return fmt.Errorf("%s is not empty and has no file %s: %w; name an empty or missing directory as data_dir", dir, markerName, ErrNotOurs)
	default:
		if err := durable.WriteFile(fsys, markerName, []byte(markerText)); err != nil {
			return fmt.Errorf("make data_dir: %w", err)
		}
		log.Info("made a new data directory")
	}
	for _, name := range directories {
		if err := durable.MkdirAll(fsys, name); err != nil {
			return fmt.Errorf("make %s in data_dir: %w", name, err)
		}
	}
	return nil
}

// onlyTemporary reports whether nothing but a marker that a crash cut off
// stands there.
func onlyTemporary(entries []fs.DirEntry) bool {
	for _, e := range entries {
		if e.Name() != markerName+durable.TempSuffix {
			return false
		}
	}
	return true
}

// Ledger is where the ledger of a data directory lies.
func Ledger(dataDir string) string { return filepath.Join(dataDir, "ledger") }
