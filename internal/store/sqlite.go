package store

import (
	"database/sql"
	"errors"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strconv"

	"modernc.org/sqlite"
)

// walLimit is how much of the write-ahead log stays on disk after a
// checkpoint, in bytes.
const walLimit = 64 << 20

// openSQLite makes both pools. Each pragma is part of the DSN: set on a
// *sql.DB it would hold for one connection alone.
func (d *DB) openSQLite() error {
	path, err := filepath.Abs(d.opts.Path)
	if err != nil {
		return opened("%w", &Fault{Class: ErrUnavailable})
	}
	if err := d.ensureFile(path); err != nil {
		return err
	}
	writer, err := sqlite.NewConnector(d.sqliteDSN(path, false))
	if err != nil {
		return opened("%w", fault(err))
	}
	reader, err := sqlite.NewConnector(d.sqliteDSN(path, true))
	if err != nil {
		return opened("%w", fault(err))
	}
	d.writer, d.reader = sql.OpenDB(writer), sql.OpenDB(reader)
	d.writer.SetMaxOpenConns(1)
	d.reader.SetMaxOpenConns(d.opts.Connections)
	d.reader.SetMaxIdleConns(d.opts.Connections)
	return nil
}

// ensureFile makes the file with the mode that SQLite gives to its companions,
// too. A file that is there is not touched: closing it would drop the locks
// that other connections of this process hold on it.
func (d *DB) ensureFile(path string) error {
	if d.opts.Existing {
		if _, err := os.Stat(path); err != nil {
			return opened("%w", &Fault{Class: ErrUnavailable, Code: "there is no such file"})
		}
		return nil
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err == nil {
		err = f.Close()
	}
	if err != nil {
		return opened("%w", &Fault{Class: ErrUnavailable, Code: "its file can't be made"})
	}
	return nil
}

// surveyor is a pool that changes nothing of the file, not even what a
// connection writes into it by itself; unless it has to undo what a process
// left half done, if readOnly is false.
func (d *DB) surveyor(readOnly bool) (*sql.DB, error) {
	path, err := filepath.Abs(d.opts.Path)
	if err != nil {
		return nil, opened("%w", &Fault{Class: ErrUnavailable})
	}
	q := url.Values{}
	q.Set("_busy_timeout", d.busyTimeout())
	q.Set("_query_only", "on")
	if readOnly {
		q.Set("mode", "ro")
	}
	connector, err := sqlite.NewConnector(sqliteURL(path, q))
	if err != nil {
		return nil, opened("%w", fault(err))
	}
	return sql.OpenDB(connector), nil
}

// busyTimeout is how long a lock of another process is waited for, in
// milliseconds: half of the time, as there is more to do.
func (d *DB) busyTimeout() string { return strconv.FormatInt(d.opts.Wait.Milliseconds()/2, 10) }

func sqliteURL(path string, q url.Values) string {
	file := url.URL{Path: filepath.ToSlash(path)}
	return "file:" + file.EscapedPath() + "?" + q.Encode()
}

// sqliteDSN is the connection string of one of the pools.
func (d *DB) sqliteDSN(path string, readOnly bool) string {
	q := url.Values{}
	q.Set("_busy_timeout", d.busyTimeout())
	for _, pragma := range []string{
		"journal_mode(wal)", "synchronous(full)", "foreign_keys(on)", "trusted_schema(off)",
		// Apple's fsync doesn't reach the disk without these.
		"fullfsync(on)", "checkpoint_fullfsync(on)",
		"journal_size_limit(" + strconv.Itoa(walLimit) + ")",
	} {
		q.Add("_pragma", pragma)
	}
	q.Set("_txlock", "immediate")
	if readOnly {
		q.Set("_txlock", "deferred")
		q.Set("_query_only", "on")
	}
	return sqliteURL(path, q)
}
