package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"os"
	"strings"
	"time"

	"github.com/fencepost/fencepost/internal/app"
	"github.com/fencepost/fencepost/internal/config"
	"github.com/fencepost/fencepost/internal/store"
	"github.com/fencepost/fencepost/ledger"
	"github.com/fencepost/fencepost/ledger/fileledger"
	"github.com/fencepost/fencepost/ledger/sqlledger"
)

// ledgerWait bounds work on a whole ledger in a database.
const ledgerWait = 6 * time.Hour

// A place is where a ledger is or goes.
type place struct {
	// kind is files, database or sqlite.
	kind string
	// text is how it was named.
	text string
	file fileledger.Config
	sql  sqlledger.Config
	// fullWithin is how long before it would be full a ledger is near full.
	fullWithin time.Duration
}

const placeUsage = "files, database, files:DIR or sqlite:FILE"

// configured is where a configuration has its ledger.
func configured(c *config.Config) string {
	if c.Database.IsPostgres() {
		return "database"
	}
	return "files"
}

// configuredPlace reads a configuration, and where it has its ledger.
func (m Main) configuredPlace(file string) (*config.Config, place, error) {
	c, err := config.LoadWithoutSecrets(file)
	if err != nil {
		return nil, place{}, err
	}
	p, err := m.place(c, configured(c))
	return c, p, err
}

// place reads what a flag says.
func (m Main) place(c *config.Config, text string) (place, error) {
	kind, arg, named := strings.Cut(text, ":")
	p := place{kind: kind, text: text, file: app.LedgerConfig(c, m.Now), fullWithin: c.Alerts.LedgerFullWithin}
	// Upkeep is the controller's.
	p.file.Maintain = -1
	p.sql = sqlledger.Config{
		Lease: c.Ledger.Lease, Capacity: int(c.Ledger.Capacity), Window: c.Replay, Now: m.Now, Wait: ledgerWait,
	}
	switch {
	case text == "files":
	case text == "database":
		if !c.Database.IsPostgres() {
			return place{}, usagef("%s names no database; add `database: postgres://…` first", c.File)
		}
		o, err := app.StateOptions(c, m.LookupEnv, m.Now)
		if err != nil {
			return place{}, err
		}
		p.sql.URL = o.URL
	case kind == "files" && named && arg != "":
		p.file.Dir = arg
	case kind == "sqlite" && named && arg != "":
		p.sql.Path = arg
	default:
		return place{}, usagef("%q is no place of a ledger: want %s", text, placeUsage)
	}
	return p, nil
}

// exists refuses a place where nobody has made a ledger.
func (p place) exists() error {
	path := p.sql.Path
	if p.kind == "files" {
		path = p.file.Dir
	}
	if path == "" {
		return nil
	}
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("no ledger at %s; `fencepost serve` makes one", path)
	}
	return nil
}

// hold takes the ledger that is there, for itself.
func (p place) hold(ctx context.Context) (ledger.Source, func() error, error) {
	if err := p.exists(); err != nil {
		return nil, nil, err
	}
	if p.kind == "files" {
		h, err := fileledger.Hold(ctx, p.file.Dir)
		if err != nil {
			return nil, nil, err
		}
		if h.IsCopy() {
			return nil, nil, errors.Join(fmt.Errorf("%w; bring it back with `fencepost ledger restore`", fileledger.ErrCopy), h.Close())
		}
		return h, h.Close, nil
	}
	h, err := sqlledger.Hold(ctx, p.sql)
	if err != nil {
		return nil, nil, err
	}
	return h, h.Close, nil
}

// receive prepares the place for a ledger that comes.
func (p place) receive(ctx context.Context) (ledger.Target, func() error, error) {
	if p.kind == "files" {
		in, err := fileledger.Receive(ctx, p.file)
		if err != nil {
			return nil, nil, err
		}
		return in, in.Close, nil
	}
	in, err := sqlledger.Receive(ctx, p.sql)
	if err != nil {
		return nil, nil, err
	}
	return in, in.Close, nil
}

// A keeper is a ledger that is open beside whoever else has it open.
type keeper interface {
	Rows(ctx context.Context) iter.Seq2[ledger.Row, error]
	Snapshot(ctx context.Context) (rows iter.Seq2[ledger.Row, error], head func() (ledger.Head, error))
	Trust(ctx context.Context) (ledger.Trust, error)
	Retire(ctx context.Context, mark ledger.TrustMark) (int, error)
}

// with opens the ledger that is there. Exactly one of the two is not nil.
func (p place) with(ctx context.Context, do func(*fileledger.Ledger, *sqlledger.Ledger) error) error {
	if err := p.exists(); err != nil {
		return err
	}
	if p.kind == "files" {
		l, err := fileledger.Open(ctx, p.file)
		if err != nil {
			return fmt.Errorf("open ledger: %w", err)
		}
		return errors.Join(do(l, nil), l.Close())
	}
	db, err := p.database(ctx)
	if err != nil {
		return err
	}
	l, err := sqlledger.OpenOn(ctx, db, p.sql)
	if err != nil {
		return errors.Join(fmt.Errorf("open ledger: %w", err), db.Close())
	}
	return errors.Join(do(nil, l), l.Close(), db.Close())
}

// keep is with for what both can.
func (p place) keep(ctx context.Context, do func(keeper) error) error {
	return p.with(ctx, func(f *fileledger.Ledger, s *sqlledger.Ledger) error {
		if f != nil {
			return do(f)
		}
		return do(s)
	})
}

// database opens the database of a place, which must have our tables.
func (p place) database(ctx context.Context) (*store.DB, error) {
	db, err := store.Open(ctx, store.Options{Path: p.sql.Path, URL: p.sql.URL, Now: p.sql.Now, Wait: p.sql.Wait, Existing: true})
	if err != nil {
		return nil, fmt.Errorf("open ledger: %w", err)
	}
	return db, nil
}
