package store

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
	"modernc.org/sqlite"

	"github.com/fencepost/fencepost"
)

// Errors that a [Fault] matches.
var (
	// ErrBusy: others' changes or locks were in the way; nothing was stored.
	ErrBusy = errors.New("others were in the way")
	// ErrConstraint: a constraint refused the change; nothing was stored.
	ErrConstraint = errors.New("refused by a constraint")
	// ErrDuplicate: there is another row of the same unique value; nothing was
	// stored. It comes with [ErrConstraint].
	ErrDuplicate = errors.New("there is such a row already")
	// ErrFull: there is no room; nothing was stored.
	ErrFull = errors.New("no room")
	// ErrCorrupt: the database says that it is damaged.
	ErrCorrupt = errors.New("the database is damaged, or its file is none; bring a backup back, as docs/operations.md says, or name another")
	// ErrDenied: the user of the database lacks a right, or the file can't be
	// written; nothing was stored.
	ErrDenied = errors.New("the database refuses this user; grant it all on the schema and its tables, or write access to the file")
	// ErrUnavailable: the database can't be reached, or does not work.
	ErrUnavailable = errors.New("the database does not work now")
	// ErrPoisoned: a sync failed; this process writes nothing more to the
	// database (DESIGN §2, invariant 8).
	ErrPoisoned = errors.New("a sync of the database failed")
	// ErrVolatile: the server answers commits before they are on stable
	// storage.
	ErrVolatile = errors.New("the connection string turns synchronous_commit down; leave it out")
	// ErrUnknownOutcome: whether the transaction was stored is not known. It
	// comes with one of the others.
	ErrUnknownOutcome = errors.New("it is not known whether it was stored")
)

// A Fault is what the database said, without its text. It matches its Class
// and, if Unknown, [ErrUnknownOutcome].
type Fault struct {
	// Class is one of this package's sentinels, or a context's error.
	Class error
	// Code is the SQLSTATE or SQLite's extended result code; may be empty.
	Code string
	// Constraint is the name of the constraint, or on SQLite what it is of;
	// may be empty.
	Constraint string
	// Unknown: the transaction may have been stored.
	Unknown bool
}

// Error names class, code and constraint.
func (f *Fault) Error() string {
	s := f.Class.Error()
	if f.Code != "" {
		s += " (" + f.Code
		if f.Constraint != "" {
			s += ", " + f.Constraint
		}
		s += ")"
	}
	if f.Unknown {
		s += "; " + ErrUnknownOutcome.Error()
	}
	return s
}

// Unwrap returns Class and what it implies, and [ErrUnknownOutcome] if that is
// so.
func (f *Fault) Unwrap() []error {
	all := []error{f.Class}
	if f.Class == ErrDuplicate {
		all = append(all, ErrConstraint)
	}
	if f.Unknown {
		all = append(all, ErrUnknownOutcome)
	}
	return all
}

// reasonOf is the public reason of a class.
func reasonOf(class error) fencepost.Reason {
	switch class {
	case ErrFull:
		return fencepost.ReasonFull
	case ErrCorrupt:
		return fencepost.ReasonCorrupt
	case ErrPoisoned:
		return fencepost.ReasonPoisoned
	}
	return fencepost.ReasonUnavailable
}

// Sanitize returns err without a driver's text: a [Fault] for what a database
// or the way to it said, and err itself for anything else. Code that uses
// [Tx.Raw] passes its errors through it.
func Sanitize(err error) error {
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[*Fault](err); ok {
		return err
	}
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
		return &Fault{Class: postgresClass(pg.Code), Code: pg.Code, Constraint: pg.ConstraintName}
	}
	if lite, ok := errors.AsType[*sqlite.Error](err); ok {
		f := &Fault{Class: sqliteClass(lite.Code()), Code: strconv.Itoa(lite.Code())}
		if errors.Is(f, ErrConstraint) {
			f.Constraint = sqliteConstraint(lite.Error())
		}
		return f
	}
	for _, class := range []error{context.Canceled, context.DeadlineExceeded} {
		if errors.Is(err, class) {
			return &Fault{Class: class}
		}
	}
	if unreachable(err) {
		return &Fault{Class: ErrUnavailable}
	}
	return err
}

// unreachable says whether err is of the way to the database.
func unreachable(err error) bool {
	for _, e := range []error{driver.ErrBadConn, sql.ErrConnDone, sql.ErrTxDone, io.EOF, io.ErrUnexpectedEOF, net.ErrClosed} {
		if errors.Is(err, e) {
			return true
		}
	}
	_, dial := errors.AsType[*pgconn.ConnectError](err)
	_, network := errors.AsType[net.Error](err)
	return dial || network
}

// fault is Sanitize for an error that came from a driver for certain.
func fault(err error) error {
	if err == nil {
		return nil
	}
	clean := Sanitize(err)
	if _, ok := errors.AsType[*Fault](clean); ok {
		return clean
	}
	return &Fault{Class: ErrUnavailable}
}

// reasoned gives a fault its reason, under what was being done.
func reasoned(op string, err error) error {
	f, ok := errors.AsType[*Fault](err)
	if !ok {
		return err
	}
	if _, ok := errors.AsType[*fencepost.Error](err); ok {
		return err
	}
	return &fencepost.Error{Op: op, Reason: reasonOf(f.Class), Err: err}
}

// postgresClass sorts SQLSTATEs. PostgreSQL documentation, appendix A.
func postgresClass(code string) error {
	switch code {
	case "40001", "40P01", "55P03":
		return ErrBusy
	case "23505":
		return ErrDuplicate
	case "53100":
		return ErrFull
	case "42501":
		return ErrDenied
	case "XX001", "XX002":
		return ErrCorrupt
	}
	if strings.HasPrefix(code, "23") {
		return ErrConstraint
	}
	return ErrUnavailable
}

// SQLite's result codes. sqlite.org/rescode.html
const (
	sqlitePerm       = 3
	sqliteReadOnly   = 8
	sqliteBusy       = 5
	sqliteLocked     = 6
	sqliteCorrupt    = 11
	sqliteFull       = 13
	sqliteCantOpen   = 14
	sqliteConstrains = 19
	sqliteNotADB     = 26
	sqliteRollback   = 8 | 3<<8
	sqliteRecovery   = 8 | 1<<8
	sqliteUnique     = 19 | 8<<8
	sqlitePrimaryKey = 19 | 6<<8
	sqliteFsync      = 10 | 4<<8
	sqliteDirFsync   = 10 | 5<<8
)

// interrupted are the codes for what a process that ended in a change left to be
// undone, which takes more than reading.
var interrupted = []string{strconv.Itoa(sqliteRollback), strconv.Itoa(sqliteRecovery), strconv.Itoa(sqliteCantOpen)}

// sqliteClass sorts result codes, of which the lowest byte is the primary one.
func sqliteClass(code int) error {
	switch code {
	case sqliteFsync, sqliteDirFsync:
		return ErrPoisoned
	case sqliteUnique, sqlitePrimaryKey:
		return ErrDuplicate
	}
	switch code & 0xff {
	case sqliteBusy, sqliteLocked:
		return ErrBusy
	case sqliteFull:
		return ErrFull
	case sqlitePerm, sqliteReadOnly:
		return ErrDenied
	case sqliteCorrupt, sqliteNotADB:
		return ErrCorrupt
	case sqliteConstrains:
		return ErrConstraint
	}
	return ErrUnavailable
}

// sqliteConstraint finds what a constraint is of, such as
// "source_runs.fence", in a driver's text. Nothing else of the text is kept,
// and nothing that is not a name of the schema.
func sqliteConstraint(text string) string {
	_, rest, ok := strings.Cut(text, " constraint failed: ")
	if !ok {
		return ""
	}
	name, _, _ := strings.Cut(rest, " ")
	name = strings.Trim(name, ",")
	for _, c := range name {
		if (c < 'a' || c > 'z') && c != '_' && c != '.' {
			return ""
		}
	}
	return name
}

func opened(format string, args ...any) error {
	return fmt.Errorf("open database: "+format, args...)
}
