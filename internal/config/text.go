package config

import (
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"net"
	"net/url"
	"path"
	"regexp"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/fencepost/fencepost"
)

// The forms of the scalar types.
var (
	namePattern     = regexp.MustCompile(`^[a-z0-9](-?[a-z0-9]){0,62}$`)
	sizePattern     = regexp.MustCompile(`^[0-9]+(B|KiB|MiB|GiB|TiB)$`)
	idPattern       = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)
	projectPattern  = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]*(/[A-Za-z0-9._-]+)+$`)
	branchPattern   = regexp.MustCompile(`^refs/heads/[^\s~^:?*\[\\]+$`)
	checkPattern    = regexp.MustCompile(`^[!-~]([ -~]{0,98}[!-~])?$`)
	jobPattern      = regexp.MustCompile(`^[!-~]([ -~]{0,253}[!-~])?$`)
	audiencePattern = regexp.MustCompile(`^[!-~]{1,255}$`)
	programPattern  = regexp.MustCompile(`^[^/\\].*$`)
	absolutePattern = regexp.MustCompile(`^/`)
	pathPattern     = regexp.MustCompile(`^.+$`)
	commitPattern   = regexp.MustCompile(`^[0-9a-f]{40}$`)
	digestPattern   = regexp.MustCompile(`^[0-9a-f]{64}$`)
	addressPattern  = regexp.MustCompile(`^.*:[0-9]{1,5}$`)
	locationPattern = regexp.MustCompile(`^https?://[^@?#\s]+$`)
)

// A ByteSize is a number of bytes. In the file it is written with a binary
// unit, such as 64KiB or 25MiB.
type ByteSize int64

// Units of [ByteSize].
const (
	KiB ByteSize = 1 << 10
	MiB ByteSize = 1 << 20
	GiB ByteSize = 1 << 30
	TiB ByteSize = 1 << 40
)

func (*ByteSize) describe() leaf {
	return leaf{"a size with a unit, such as 512B, 64KiB, 25MiB or 1GiB", sizePattern}
}

// UnmarshalText reads a whole number and a unit.
func (s *ByteSize) UnmarshalText(text []byte) error {
	digits := strings.TrimRight(string(text), "BKMGTi")
	n, err := strconv.ParseInt(digits, 10, 64)
	var unit ByteSize
	switch string(text)[len(digits):] {
	case "B":
		unit = 1
	case "KiB":
		unit = KiB
	case "MiB":
		unit = MiB
	case "GiB":
		unit = GiB
	case "TiB":
		unit = TiB
	}
	if err != nil || unit == 0 || n < 0 || digits[0] == '+' || n > math.MaxInt64/int64(unit) {
		return errors.New("must be " + s.describe().what)
	}
	*s = ByteSize(n) * unit
	return nil
}

// String is the size in the largest unit that it is a whole multiple of.
func (s ByteSize) String() string {
	units := []struct {
		size ByteSize
		name string
	}{{TiB, "TiB"}, {GiB, "GiB"}, {MiB, "MiB"}, {KiB, "KiB"}}
	for _, u := range units {
		if s != 0 && s%u.size == 0 {
			return fmt.Sprintf("%d%s", s/u.size, u.name)
		}
	}
	return fmt.Sprintf("%dB", int64(s))
}

// name is the key of a route or a trust set: it stands in URLs, logs and
// metric labels.
type name string

func (*name) describe() leaf {
	return leaf{"a name of 1 to 63 characters a-z, 0-9 and single - between them", namePattern}
}

func (n *name) UnmarshalText(text []byte) error { return setText(n, n.describe(), 63, text) }

// anchorID names one key of a trust set.
type anchorID string

func (*anchorID) describe() leaf {
	return leaf{"an id of 1 to 64 characters a-z, A-Z, 0-9, . _ and -", idPattern}
}

func (a *anchorID) UnmarshalText(text []byte) error { return setText(a, a.describe(), 64, text) }

// projectPath is a project with its namespace, which may be groups within
// groups, as the provider spells them.
type projectPath string

func (*projectPath) describe() leaf {
	return leaf{"owner/name, or with gitlab the path with all groups, exactly as the provider spells it", projectPattern}
}

func (p *projectPath) UnmarshalText(text []byte) error {
	if err := setText(p, p.describe(), 1024, text); err != nil {
		return err
	}
	if !legalSegments(string(text)) {
		*p = ""
		return errors.New("must be " + p.describe().what + ", without .git at the end")
	}
	return nil
}

// nested reports whether there is more than an owner and a name.
func (p projectPath) nested() bool { return strings.Count(string(p), "/") > 1 }

// legalSegments reports whether no part is too long, and what follows the first
// slash can be names.
func legalSegments(path string) bool {
	owner, rest, _ := strings.Cut(path, "/")
	if len(owner) > 100 {
		return false
	}
	for segment := range strings.SplitSeq(rest, "/") {
		if segment == "." || segment == ".." || len(segment) > 100 || strings.HasSuffix(segment, ".git") {
			return false
		}
	}
	return true
}

// jobName names a job of a pipeline.
type jobName string

func (*jobName) describe() leaf {
	return leaf{"a job's name of 1 to 255 printable ASCII characters, no space at its ends", jobPattern}
}

func (j *jobName) UnmarshalText(text []byte) error { return setText(j, j.describe(), 255, text) }

// audience is whom a token is made for.
type audience string

func (*audience) describe() leaf {
	return leaf{"1 to 255 printable ASCII characters without spaces, such as https://fencepost.example.org", audiencePattern}
}

func (a *audience) UnmarshalText(text []byte) error { return setText(a, a.describe(), 255, text) }

// branchRef is a full branch ref.
type branchRef string

func (*branchRef) describe() leaf {
	return leaf{"a full branch ref, such as refs/heads/main", branchPattern}
}

// UnmarshalText applies git-check-ref-format.
func (b *branchRef) UnmarshalText(text []byte) error {
	if err := setText(b, b.describe(), 255, text); err != nil {
		return err
	}
	for part := range strings.SplitSeq(strings.TrimPrefix(string(text), "refs/heads/"), "/") {
		if part == "" || strings.HasPrefix(part, ".") || strings.HasSuffix(part, ".lock") ||
			strings.HasSuffix(part, ".") || strings.Contains(part, "..") || strings.Contains(part, "@{") ||
			strings.ContainsFunc(part, unicode.IsControl) {
			*b = ""
			return errors.New("must be " + b.describe().what + ", and legal by git-check-ref-format")
		}
	}
	return nil
}

// checkName is the context that a provider's rule requires.
type checkName string

func (*checkName) describe() leaf {
	return leaf{"a check name of 1 to 100 printable ASCII characters, no space at its ends", checkPattern}
}

func (c *checkName) UnmarshalText(text []byte) error { return setText(c, c.describe(), 100, text) }

// programPath is a path inside the action's repository.
type programPath string

func (*programPath) describe() leaf {
	return leaf{"a path inside the action's repository, such as bin/check", programPattern}
}

func (p *programPath) UnmarshalText(text []byte) error {
	s := string(text)
	if err := setText(p, p.describe(), 1024, text); err != nil {
		return err
	}
	if path.Clean(s) != s || s == "." || strings.HasPrefix(s, "..") || strings.Contains(s, `\`) {
		*p = ""
		return errors.New("must be " + p.describe().what + ", without . or .. parts or \\")
	}
	return nil
}

// systemDir is an absolute directory of this machine.
type systemDir string

func (*systemDir) describe() leaf {
	return leaf{"an absolute path, such as /usr", absolutePattern}
}

func (s *systemDir) UnmarshalText(text []byte) error {
	if err := setText(s, s.describe(), 1024, text); err != nil {
		return err
	}
	if path.Clean(string(text)) != string(text) || string(text) == "/" {
		*s = ""
		return errors.New("must be " + s.describe().what + ", not / itself, and without . or .. parts")
	}
	return nil
}

// filePath is a path on this machine, absolute or relative to the
// configuration file.
type filePath string

func (*filePath) describe() leaf {
	return leaf{"a path, absolute or relative to this file", pathPattern}
}

func (p *filePath) UnmarshalText(text []byte) error { return setText(p, p.describe(), 1024, text) }

// commitID is a full commit id.
type commitID struct{ id fencepost.CommitID }

func (*commitID) describe() leaf {
	return leaf{"a full commit id of 40 lower-case hexadecimal digits, not all zero", commitPattern}
}

func (c *commitID) UnmarshalText(text []byte) error {
	id, err := fencepost.ParseCommitID(string(text))
	if err != nil {
		return errors.New("must be " + c.describe().what)
	}
	c.id = id
	return nil
}

// programDigest is the SHA-256 of a program's bytes.
type programDigest [32]byte

func (*programDigest) describe() leaf {
	return leaf{"64 lower-case hexadecimal digits, as `sha256sum` prints them", digestPattern}
}

func (p *programDigest) UnmarshalText(text []byte) error {
	sum, err := hex.DecodeString(string(text))
	if err != nil || len(sum) != len(p) || strings.ToLower(string(text)) != string(text) {
		return errors.New("must be " + p.describe().what)
	}
	copy(p[:], sum)
	return nil
}

// address is where a listener stands.
type address string

func (*address) describe() leaf {
	return leaf{"an address with a port, such as 127.0.0.1:8080 or :8080", addressPattern}
}

func (a *address) UnmarshalText(text []byte) error {
	host, port, err := net.SplitHostPort(string(text))
	n, portErr := strconv.ParseUint(port, 10, 16)
	legal := host == "" || host == "localhost" || net.ParseIP(host) != nil
	if err != nil || portErr != nil || strconv.FormatUint(n, 10) != port || !legal {
		return errors.New("must be " + a.describe().what)
	}
	*a = address(text)
	return nil
}

// location is an absolute http or https URL without userinfo, query or
// fragment. Whether http is allowed is decided where allow_http is known.
type location struct{ url *url.URL }

func (*location) describe() leaf {
	return leaf{"an https URL without user, query and fragment, such as https://api.github.com", locationPattern}
}

func (l *location) UnmarshalText(text []byte) error {
	s := string(text)
	u, err := url.Parse(s)
	if err != nil || len(s) > 2048 || (u.Scheme != "https" && u.Scheme != "http") || u.Hostname() == "" ||
		u.User != nil || u.Opaque != "" || strings.ContainsAny(s, "?#@\\") ||
		strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r == unicode.ReplacementChar || r >= 0x7f }) {
		return errors.New("must be " + l.describe().what)
	}
	if port := u.Port(); port != "" {
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
			return errors.New("must have a port of 1 to 65535")
		}
	}
	if clean := path.Clean("/" + u.Path); u.RawPath != "" || (u.Path != "" && clean != strings.TrimSuffix(u.Path, "/") && u.Path != "/") {
		return errors.New("must have a plain path, without %, . or .. parts or double slashes")
	}
	u.Path = strings.TrimSuffix(u.Path, "/")
	u.Host = strings.ToLower(u.Host)
	l.url = u
	return nil
}

// setText sets p to text if it is valid UTF-8, not longer than most bytes,
// and matches the leaf's pattern. The error never repeats the text.
func setText[T ~string](p *T, l leaf, most int, text []byte) error {
	if !l.pattern.Match(text) || len(text) > most || !utf8.Valid(text) {
		return errors.New("must be " + l.what)
	}
	*p = T(text)
	return nil
}
