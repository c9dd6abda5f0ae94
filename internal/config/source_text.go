package config

import (
	"errors"
	"path"
	"regexp"
	"strings"
	"unicode"

	"github.com/fencepost/fencepost"
)

// The forms of the scalar types that only sources have.
var (
	uuidPattern    = regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$`)
	accountPattern = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9._-]{0,99}(\[bot\])?$`)
	tablePattern   = regexp.MustCompile(`^[a-z][a-z0-9_]{0,47}$`)
	mountPattern   = regexp.MustCompile(`^[^/\\]+(/[^/\\]+)*$`)
)

// sourceID is a source's UUID.
type sourceID struct{ id fencepost.SourceID }

func (*sourceID) describe() leaf {
	return leaf{"a UUID in lower case, not all zero", uuidPattern}
}

func (s *sourceID) UnmarshalText(text []byte) error {
	id, err := fencepost.ParseSourceID(string(text))
	if err != nil {
		return errors.New("must be " + s.describe().what)
	}
	s.id = id
	return nil
}

// accountName is what a provider calls an account.
type accountName string

func (*accountName) describe() leaf {
	return leaf{"an account name, exactly as the provider spells it", accountPattern}
}

func (a *accountName) UnmarshalText(text []byte) error { return setText(a, a.describe(), 105, text) }

// tableName is a table's: plain enough to need no quotes in any database.
type tableName string

func (*tableName) describe() leaf {
	return leaf{"a table name of 1 to 48 characters a-z, 0-9 and _, a letter first", tablePattern}
}

// UnmarshalText refuses the names that databases and Fencepost have their own
// use for.
func (n *tableName) UnmarshalText(text []byte) error {
	if err := setText(n, n.describe(), 48, text); err != nil {
		return err
	}
	for _, taken := range []string{"sqlite_", "pg_", "fencepost_", "river_", "goose_"} {
		if strings.HasPrefix(string(*n), taken) {
			*n = ""
			return errors.New("must not begin with " + taken + ", which is not for tables of your own")
		}
	}
	return nil
}

// mountPath is a directory of a repository.
type mountPath string

func (*mountPath) describe() leaf {
	return leaf{"a directory of the repository, such as site/public", mountPattern}
}

func (m *mountPath) UnmarshalText(text []byte) error {
	s := string(text)
	if err := setText(m, m.describe(), 1024, text); err != nil {
		return err
	}
	if path.Clean(s) != s || s == "." || s == ".." || strings.HasPrefix(s, "../") || strings.ContainsFunc(s, unicode.IsControl) {
		*m = ""
		return errors.New("must be " + m.describe().what + ", without . or .. parts")
	}
	return nil
}
