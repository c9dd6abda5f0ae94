package sink

import (
	"encoding/hex"
	"errors"
	"fmt"
	"path"
	"strings"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/gitfetch"
	"github.com/fencepost/fencepost/internal/glob"
	"github.com/fencepost/fencepost/internal/source"
)

// MaxPatterns bounds each list of patterns.
const MaxPatterns = 64

// ErrOptions: options are not within their rules.
var ErrOptions = errors.New("bad sink options")

// Words of [source.SinkError.Detail].
const (
	// DetailRequire: a required pattern matches nothing.
	DetailRequire = "require"
	// DetailEmpty: nothing is left to be served.
	DetailEmpty = "empty"
	// DetailRoom: there is less room than must be left.
	DetailRoom = "room"
	// DetailTrees: as many trees are kept as may be, and all are too young to
	// go.
	DetailTrees = "trees"
	// DetailPlace: the sink's place is not as Fencepost made it.
	DetailPlace = "place"
	// DetailState: the sink's own state can't be read.
	DetailState = "state"
	// DetailCheckout: the checkout is not where the sink wanted it, or not
	// what it was when it was fetched.
	DetailCheckout = "checkout"
	// DetailSync: a sync failed.
	DetailSync = "sync"
	// DetailLock: somebody else is at the sink.
	DetailLock = "lock"
	// DetailDatabase: the database did not do what it was asked to.
	DetailDatabase = "database"
	// DetailProgram: the program blocked, or did not end as it must.
	DetailProgram = "program"
	// DetailReport: the program's report could not be kept.
	DetailReport = "report"
)

// A Content says what of a tree a sink takes. Patterns are those of package
// glob, on paths from the top of the repository, whatever Mount is. The zero
// Content is all of it.
type Content struct {
	// Include are the paths that are wanted; none means all. At most
	// [MaxPatterns], as in the other lists.
	Include []string
	// Exclude are those that are not, though they are included.
	Exclude []string
	// Require must each match at least one path of what is left, or else the
	// run fails and changes nothing.
	Require []string
	// Mount is a directory of the repository, such as "site/public": what is
	// in it is served, as if it were the top; the rest is not wanted. Empty
	// means all.
	Mount string
}

// rules are a checked Content.
type rules struct {
	include, exclude []glob.Pattern
	require          []glob.Pattern
	mount            string // empty, or with a slash at its end
}

func (c Content) compile() (*rules, error) {
	r := &rules{}
	var errs []error
	for _, l := range []struct {
		name string
		text []string
		into *[]glob.Pattern
	}{{"include", c.Include, &r.include}, {"exclude", c.Exclude, &r.exclude}, {"require", c.Require, &r.require}} {
		if len(l.text) > MaxPatterns {
			errs = append(errs, fmt.Errorf("%s: %d patterns, at most %d: %w", l.name, len(l.text), MaxPatterns, ErrOptions))
			continue
		}
		for i, text := range l.text {
			p, err := glob.Parse(text)
			if err != nil {
				errs = append(errs, fmt.Errorf("%s[%d]: %w: %w", l.name, i, err, ErrOptions))
			}
			*l.into = append(*l.into, p)
		}
	}
	if m := c.Mount; m != "" {
		if m == "." || m != path.Clean(m) || strings.HasPrefix(m, "/") || m == ".." || strings.HasPrefix(m, "../") || strings.ContainsAny(m, "\\\x00") {
			errs = append(errs, fmt.Errorf("mount: want a directory of the repository, such as site/public: %w", ErrOptions))
		}
		r.mount = m + "/"
	}
	return r, errors.Join(errs...)
}

// wants reports whether a path is to be served.
func (r *rules) wants(name string) bool {
	return strings.HasPrefix(name, r.mount) && name != r.mount &&
		(len(r.include) == 0 || matchAny(r.include, name)) && !matchAny(r.exclude, name)
}

// all reports whether every path is wanted.
func (r *rules) all() bool { return r.mount == "" && len(r.include) == 0 && len(r.exclude) == 0 }

// selector is what to select by; nil for everything.
func (r *rules) selector() func(string) bool {
	if r.all() {
		return nil
	}
	return r.wants
}

func matchAny(patterns []glob.Pattern, name string) bool {
	for i := range patterns {
		if patterns[i].Match(name) {
			return true
		}
	}
	return false
}

// A selection is what a sink takes of one checkout, in the order of paths.
type selection struct {
	files []gitfetch.File
	bytes int64
	// left are files that the checkout has and the sink doesn't want.
	left []gitfetch.File
}

// choose holds a checkout against the rules. Its error is what the run ends
// with.
func (r *rules) choose(c *gitfetch.Checkout) (*selection, error) {
	s := &selection{}
	for f := range c.Files() {
		if !r.wants(f.Path) {
			s.left = append(s.left, f)
			continue
		}
		s.files = append(s.files, f)
		s.bytes += f.Size
	}
	return s, r.holds(s.files)
}

// holds requires that files are some, and all that is required among them.
func (r *rules) holds(files []gitfetch.File) error {
	missing := len(r.require)
	found := make([]bool, missing)
	for _, f := range files {
		for i, p := range r.require {
			if !found[i] && p.Match(f.Path) {
				found[i] = true
				missing--
			}
		}
		if missing == 0 {
			break
		}
	}
	switch {
	case missing > 0:
		return refused(DetailRequire, fmt.Errorf("%d required patterns match nothing", missing))
	case len(files) == 0:
		return refused(DetailEmpty, errors.New("nothing is included"))
	}
	return nil
}

// digest names the content: which paths there are, each with its mode, size
// and blob.
func (s *selection) digest() source.Digest {
	e := fencepost.NewEncoder("fencepost.sink-content/v1").List(len(s.files))
	for _, f := range s.files {
		e.Text(f.Path).Uint(uint64(f.Mode)).Int(f.Size).Bytes(f.Blob.ObjectID[:])
	}
	return e.Sum()
}

func refused(detail string, err error) error {
	return &source.SinkError{Reason: fencepost.ReasonContent, Detail: detail, Err: err}
}

func hexOf(d source.Digest) string { return hex.EncodeToString(d[:]) }
