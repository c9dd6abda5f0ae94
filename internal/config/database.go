package config

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net/url"
	"regexp"
	"strings"
	"unicode"

	"github.com/fencepost/fencepost"
)

// A Database says where a database is: a SQLite file, or a PostgreSQL URL,
// written out or referred to. The zero Database is none. It never prints a
// URL, which may hold a password, under any verb.
type Database struct {
	// file is the path of a SQLite database.
	file string
	// ref refers to a PostgreSQL URL, url is one that was written out: behind a
	// pointer, since printers stop at one to text, and comparisons don't.
	ref SecretRef
	url *string
}

// IsZero reports whether d is none.
func (d Database) IsZero() bool { return d.file == "" && !d.IsPostgres() }

// IsPostgres reports whether d is a PostgreSQL URL.
func (d Database) IsPostgres() bool { return !d.ref.IsZero() || d.url != nil }

// File is the absolute path of the SQLite database; empty for none.
func (d Database) File() string { return d.file }

// URL reads the PostgreSQL URL, a referred one anew at each call. The caller
// owns the result and zeroes it. Its error matches [ErrSecret], names the
// reference and the mend, and holds nothing of the URL.
func (d Database) URL(env Lookup) (fencepost.Secret, error) {
	if d.ref.IsZero() {
		return fencepost.NewSecret([]byte(d.literal())), nil
	}
	secret, err := d.ref.Resolve(env)
	if err != nil {
		return fencepost.Secret{}, err
	}
	if err := checkPostgresURL(string(secret.Reveal())); err != nil {
		secret.Zero()
		return fencepost.Secret{}, &secretError{text: d.ref.String() + ": " + err.Error(), causes: []error{ErrSecret}}
	}
	return secret, nil
}

// literal is the URL that was written out; empty for none.
func (d Database) literal() string {
	if d.url == nil {
		return ""
	}
	return *d.url
}

// String is the path, the reference, or "[redacted]" for a URL. It is for the
// operator who wrote it: a path doesn't belong in logs.
func (d Database) String() string {
	switch {
	case d.url != nil:
		return fencepost.Secret{}.String()
	case !d.ref.IsZero():
		return d.ref.String()
	}
	return d.file
}

// GoString is [Database.String].
func (d Database) GoString() string { return d.String() }

// MarshalText is [Database.String].
func (d Database) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

var (
	databasePattern = regexp.MustCompile(`^.+$`)
	postgresPattern = regexp.MustCompile(`^(postgres(ql)?://.+|(file|env|cred):.+)?$`)
)

// databaseText is a database as it is written: a PostgreSQL URL, a reference
// to one, or the path of a SQLite file.
type databaseText struct{ Database }

func (*databaseText) describe() leaf {
	return leaf{"the path of a SQLite file, a PostgreSQL URL, or a reference to one (file:PATH, env:NAME or cred:NAME)", databasePattern}
}

// UnmarshalText decides by the beginning of the text alone.
func (d *databaseText) UnmarshalText(text []byte) error {
	s := string(text)
	switch scheme, _, _ := strings.Cut(s, ":"); {
	case scheme == "postgres" || scheme == "postgresql":
		if err := checkPostgresURL(s); err != nil {
			return err
		}
		d.url = &s
		return nil
	case strings.Contains(s, "://"), s == "", len(s) > 1024, strings.ContainsAny(s, "\x00\n\r?"):
		return errors.New("must be " + d.describe().what)
	case s != scheme && (scheme == string(secretFile) || scheme == string(secretEnv) || scheme == string(secretCred)):
		return d.ref.UnmarshalText(text)
	}
	d.file = s
	return nil
}

// postgresText is a [databaseText] that can't be a file; empty is none.
type postgresText struct{ Database }

func (*postgresText) describe() leaf {
	return leaf{"empty, a PostgreSQL URL, or a reference to one (file:PATH, env:NAME or cred:NAME)", postgresPattern}
}

func (p *postgresText) UnmarshalText(text []byte) error {
	if len(text) == 0 {
		return nil
	}
	var d databaseText
	if err := d.UnmarshalText(text); err != nil || d.file != "" {
		return errors.New("must be " + p.describe().what)
	}
	p.Database = d.Database
	return nil
}

// checkPostgresURL holds a URL against what is needed of it. Its error never
// repeats the text.
func checkPostgresURL(text string) error {
	u, err := url.Parse(text)
	if err != nil || (u.Scheme != "postgres" && u.Scheme != "postgresql") || u.Opaque != "" || u.Fragment != "" || len(text) > 4096 ||
		strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r == unicode.ReplacementChar || r == 0x7f }) {
		return errors.New("must be a PostgreSQL URL, such as postgres://user@host/name, with % and two digits for special characters")
	}
	if u.Hostname() == "" && u.Query().Get("host") == "" {
		return errors.New("must be a PostgreSQL URL that names a host, such as postgres://user@host/name")
	}
	if strings.Trim(u.Path, "/") == "" && u.Query().Get("dbname") == "" {
		return errors.New("must be a PostgreSQL URL that names a database, such as postgres://user@host/name")
	}
	return nil
}

// hasPassword reports whether a URL that was written out holds a password.
func (d Database) hasPassword() bool {
	u, err := url.Parse(d.literal())
	if err != nil || d.url == nil {
		return false
	}
	_, has := u.User.Password()
	return has || u.Query().Has("password")
}

// resolved is d with its path made absolute.
func (d Database) resolved(dir string) Database {
	if d.file != "" {
		d.file = absoluteIn(dir, d.file)
	}
	return d
}

// identity tells databases apart as far as their texts can: two that are
// alike are one database. It holds nothing that could be a secret.
func (d Database) identity() string {
	switch {
	case d.url != nil:
		return postgresIdentity(d.literal())
	case !d.ref.IsZero():
		return d.ref.String()
	}
	return d.file
}

// postgresIdentity is a digest of where a URL leads: host, port, database and
// what chooses the schema. Users don't matter: they see one database.
func postgresIdentity(text string) string {
	u, err := url.Parse(text)
	if err != nil {
		return ""
	}
	q := u.Query()
	port := u.Port()
	if port == "" {
		port = "5432"
	}
	sum := sha256.Sum256([]byte(strings.Join([]string{
		strings.ToLower(u.Hostname()), port, strings.Trim(u.Path, "/"),
		q.Get("host"), q.Get("port"), q.Get("dbname"), q.Get("search_path"), q.Get("options"),
	}, "\x00")))
	return "postgres:" + hex.EncodeToString(sum[:])
}

// A databaseUse is one database that the document names, to be tried.
type databaseUse struct {
	path string
	db   Database
	// table is the one that is written; empty for the state of Fencepost.
	table string
}

// store notes a database to be tried, and ties it to the file's directory.
func (v *validator) store(path string, d Database, table string) Database {
	if d.IsZero() {
		return d
	}
	d = d.resolved(v.abs)
	if !d.ref.IsZero() {
		d.ref.dir = v.dir
	}
	if d.hasPassword() {
		v.warn(path, "holds a password, which this file shows to whoever may read it; put the URL into a file of mode 0600, and write file:PATH")
	}
	v.databases = append(v.databases, databaseUse{path, d, table})
	return d
}

// tryDatabases resolves each URL once, and holds them apart as far as their
// texts tell: one that the references could not.
func (v *validator) tryDatabases(env Lookup) {
	own, tables := "", map[string]string{}
	resolved := map[SecretRef]string{}
	for _, use := range v.databases {
		is := use.db.identity()
		if ref := use.db.ref; !ref.IsZero() {
			known, ok := resolved[ref]
			if !ok {
				url, err := use.db.URL(env)
				if err != nil {
					v.refuse(use.path, "%s", err)
					continue
				}
				known = postgresIdentity(string(url.Reveal()))
				url.Zero()
				resolved[ref] = known
			}
			is = known
		}
		switch {
		case use.table == "":
			own = is
		case is == own:
			v.refuse(use.path, "is the database that Fencepost keeps its own state in; give the rows another")
		default:
			section := strings.TrimSuffix(use.path, ".database")
			if !v.faulty(section + ".table") {
				v.distinct(tables, section, ".table", is+"\x00"+use.table, section,
					"is the table of %s too, in the same database; give each source its own")
			}
		}
	}
}
