package app

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/fencepost/fencepost/internal/durable"
	"github.com/fencepost/fencepost/internal/inbox"
	"github.com/fencepost/fencepost/ledger"
	"github.com/fencepost/fencepost/ledger/fileledger"
)

// ErrLeftBehind: with a database, what the data directory holds of gates would
// be forgotten, and deliveries that it knows would be evaluated anew.
var ErrLeftBehind = errors.New("the data directory holds what is not in the database")

// leftBehind refuses a database beside a data directory that gates have worked
// in: its ledger has to be moved, and its inbox to be empty.
func (a *App) leftBehind(ctx context.Context) error {
	rows, err := a.rowsInFiles(ctx)
	if err != nil {
		return fmt.Errorf("look for a ledger in files: %w", err)
	}
	if rows > 0 {
		return fmt.Errorf("%w: a ledger of %d rows; stop every process and run `fencepost ledger migrate --from files --to database`", ErrLeftBehind, rows)
	}
	entries, err := a.entriesInFiles(ctx)
	if err != nil {
		return fmt.Errorf("look for an inbox in files: %w", err)
	}
	if entries > 0 {
		return fmt.Errorf("%w: %d deliveries that are not done; run `fencepost serve` without `database` until they are", ErrLeftBehind, entries)
	}
	return nil
}

// rowsInFiles counts the rows of a ledger in files that has not been moved.
func (a *App) rowsInFiles(ctx context.Context) (int, error) {
	if held, err := holds(Ledger(a.Config.DataDir)); err != nil || !held {
		return 0, err
	}
	c := LedgerConfig(a.Config, a.Now)
	c.Maintain = -1
	l, err := fileledger.Open(ctx, c)
	if errors.Is(err, ledger.ErrMoved) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	st, err := l.Stat(ctx)
	return st.Rows(), errors.Join(err, l.Close())
}

// entriesInFiles counts the deliveries of an inbox in files that are not done.
func (a *App) entriesInFiles(ctx context.Context) (int, error) {
	dir := filepath.Join(a.Config.DataDir, "inbox")
	if held, err := holds(dir); err != nil || !held {
		return 0, err
	}
	in, err := inbox.Open(ctx, durable.OS(dir), a.fileInboxConfig())
	if err != nil {
		return 0, err
	}
	return in.Stats().Entries, in.Close()
}

// holds reports whether there is anything in a directory, which may be missing.
func holds(dir string) (bool, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return len(entries) > 0, err
}
