package gitfetch

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/gitfetch/internal/object"
	"github.com/fencepost/fencepost/gitfetch/internal/pathrule"
)

// A Request says what to fetch, from where, within which bounds, and what
// to do with what not every tree should have. The zero value of every
// optional field is the safest one.
type Request struct {
	// URL is the repository: https, or http with AllowHTTP. It holds no
	// user, password, query or fragment.
	URL string
	// Commit is the one commit to fetch.
	Commit fencepost.CommitID
	// Dir is the directory that [Fetch] makes; it must not exist, its parent
	// must. [Workspace.Fetch] chooses its own and takes none.
	Dir string

	// Credential, where set, gives what is sent to the origin of URL, and
	// to no other: not to a redirect's target, not to another port.
	Credential Credential
	// AllowHTTP takes a URL of scheme http, which anybody on the way can
	// read and change. It is meant for loopback.
	AllowHTTP bool
	// AllowPrivate lets a host name lead to loopback, private and shared
	// address ranges. An address or "localhost" that stands in URL or
	// RedirectOrigins is allowed as it is spelt out; link-local addresses
	// are never reached by a name.
	AllowPrivate bool
	// RedirectOrigins are further origins that the first request may be
	// redirected to, such as "https://git.example.org:8443". See
	// [Budgets.Redirects].
	RedirectOrigins []string
	// RootCAs are the authorities that vouch for the server; nil means those
	// of the machine.
	RootCAs *x509.CertPool

	Policy  Policy
	Budgets Budgets
	// Sync says whether the checkout must survive a crash of the machine.
	Sync Sync

	// Select, where set, says which files and links are wanted, by their
	// slash-separated paths. What it leaves out is verified as name and entry
	// of the tree and held to the policy, and is not written; nor is a
	// directory in which nothing is wanted. Where the server can filter, its
	// content is not even sent. It is called from one goroutine, at least once
	// for each path, and must give the same answer each time.
	Select func(path string) bool
	// Have, where set, is an earlier checkout of the same repository, from
	// which files are reused and on top of which the server sends only what
	// differs. Whatever is wrong with it costs no more than a fetch without it:
	// see [Stats.Fallback].
	Have *Have
	// Transport, where set, is used in place of connections of this fetch's
	// own. See [NewTransport].
	Transport *Transport

	// Progress, where set, is called now and then while the fetch goes on,
	// never concurrently. It must be quick.
	Progress func(Progress)
	// Now is read for the durations in [Stats] alone; nil means this machine's
	// clock.
	Now func() time.Time
}

// A Have is an earlier checkout that is still there.
type Have struct {
	// Dir is where its tree stands now; it may have been renamed since.
	Dir string
	// Manifest says what was in it.
	Manifest *Manifest
}

// A Credential gives the user name and secret of HTTP Basic authentication.
// It is called at most once in each fetch, when the first request is made.
// Its error is matched by the fetch's, which also matches [ErrCredential].
type Credential func(ctx context.Context) (user string, secret fencepost.Secret, err error)

// A Policy says what a tree may hold beside directories and files with
// unremarkable names. The zero Policy is the strictest.
type Policy struct {
	Symlinks Symlinks
	Gitlinks Gitlinks
	Names    Names
}

// Symlinks says what becomes of symbolic links.
type Symlinks uint8

// The ways to treat symbolic links. Zero means [SymlinksRefuse].
const (
	// SymlinksRefuse refuses a tree with a link in it.
	SymlinksRefuse Symlinks = iota + 1
	// SymlinksAsData makes each link a file that holds the link's text.
	SymlinksAsData
	// SymlinksInside makes links, if each provably leads to a place inside
	// the tree, or to nothing there.
	SymlinksInside
)

// Gitlinks says what becomes of gitlinks, the tree's side of submodules.
type Gitlinks uint8

// The ways to treat gitlinks. Zero means [GitlinksRefuse].
const (
	// GitlinksRefuse refuses a tree with a gitlink in it.
	GitlinksRefuse Gitlinks = iota + 1
	// GitlinksSkip leaves them out and names them in the result.
	GitlinksSkip
)

// Names says which names a tree may hold.
type Names uint8

// The sets of names. Zero means [NamesPortable].
const (
	// NamesPortable allows what every common file system can hold.
	NamesPortable Names = iota + 1
	// NamesPOSIX also allows what only other file systems mind, such as case
	// collisions. It is refused on Windows.
	NamesPOSIX
)

// Sync says what of a checkout is on stable storage when the fetch returns.
type Sync uint8

// The levels of syncing. Zero means [SyncNone].
const (
	// SyncNone promises nothing after a crash of the machine: for scratch.
	SyncNone Sync = iota + 1
	// SyncAll puts files, directories and the checkout's own name on stable
	// storage. A file that is reused from [Have] was put there when it was
	// first made, if that was under SyncAll too, and is not again.
	SyncAll
)

// words is the spelling of an enumeration in configuration, from 1 on.
type words []string

func symlinkWords() words { return words{"refuse", "as_data", "inside"} }
func gitlinkWords() words { return words{"refuse", "skip"} }
func nameWords() words    { return words{"portable", "posix"} }

func (w words) text(n uint8) string {
	if n == 0 {
		n = 1
	}
	if int(n) > len(w) {
		return "unknown"
	}
	return w[n-1]
}

func (w words) parse(what string, text []byte) (uint8, error) {
	if i := slices.Index(w, string(text)); i >= 0 {
		return uint8(i + 1), nil
	}
	return 0, fmt.Errorf("%s must be one of %s: %w", what, strings.Join(w, ", "), fencepost.ErrMalformed)
}

func (w words) check(what string, n uint8) error {
	if int(n) > len(w) {
		return fmt.Errorf("%w: %s: no such policy", ErrRequest, what)
	}
	return nil
}

// String returns "refuse", "as_data" or "inside".
func (s Symlinks) String() string { return symlinkWords().text(uint8(s)) }

// MarshalText implements [encoding.TextMarshaler] by [Symlinks.String].
func (s Symlinks) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads what String returns, and nothing else. Its error
// matches [fencepost.ErrMalformed].
func (s *Symlinks) UnmarshalText(text []byte) error {
	n, err := symlinkWords().parse("symlinks", text)
	if err == nil {
		*s = Symlinks(n)
	}
	return err
}

// String returns "refuse" or "skip".
func (g Gitlinks) String() string { return gitlinkWords().text(uint8(g)) }

// MarshalText implements [encoding.TextMarshaler] by [Gitlinks.String].
func (g Gitlinks) MarshalText() ([]byte, error) { return []byte(g.String()), nil }

// UnmarshalText reads what String returns, and nothing else. Its error
// matches [fencepost.ErrMalformed].
func (g *Gitlinks) UnmarshalText(text []byte) error {
	n, err := gitlinkWords().parse("gitlinks", text)
	if err == nil {
		*g = Gitlinks(n)
	}
	return err
}

// String returns "portable" or "posix".
func (n Names) String() string { return nameWords().text(uint8(n)) }

// MarshalText implements [encoding.TextMarshaler] by [Names.String].
func (n Names) MarshalText() ([]byte, error) { return []byte(n.String()), nil }

// UnmarshalText reads what String returns, and nothing else. Its error
// matches [fencepost.ErrMalformed].
func (n *Names) UnmarshalText(text []byte) error {
	v, err := nameWords().parse("names", text)
	if err == nil {
		*n = Names(v)
	}
	return err
}

func (n Names) rules() pathrule.Names {
	if n == NamesPOSIX {
		return pathrule.POSIX
	}
	return pathrule.Portable
}

func (p Policy) orDefaults() (Policy, error) {
	err := errors.Join(
		symlinkWords().check("symlinks", uint8(p.Symlinks)),
		gitlinkWords().check("gitlinks", uint8(p.Gitlinks)),
		nameWords().check("names", uint8(p.Names)),
	)
	if p.Names == NamesPOSIX && runtime.GOOS == "windows" {
		err = errors.Join(err, fmt.Errorf("%w: names: posix is not possible on Windows", ErrRequest))
	}
	p.Symlinks, p.Gitlinks, p.Names = max(p.Symlinks, 1), max(p.Gitlinks, 1), max(p.Names, 1)
	return p, err
}

// An origin is what a credential is bound to: scheme, host and port, in the
// one form in which they compare.
type origin struct{ scheme, host, port string }

func originOf(u *url.URL) origin {
	o := origin{strings.ToLower(u.Scheme), strings.ToLower(u.Hostname()), u.Port()}
	if o.port == "" {
		o.port = "443"
		if o.scheme == "http" {
			o.port = "80"
		}
	}
	return o
}

// A target is a checked request: where it goes, and with filled fields.
type target struct {
	Request
	base    *url.URL // the repository, without a slash at its end
	origin  origin
	further []origin
	hasher  func() *object.Hasher // nil, but in a test of collisions
}

// check returns req with everything parsed and filled. Its error matches
// [ErrRequest] and reports all faults at once.
func (req Request) check() (*target, error) {
	t := &target{Request: req}
	var errs [4]error
	t.base, errs[0] = parseURL("url", req.URL, req.AllowHTTP)
	if t.base != nil {
		t.base.Path = strings.TrimRight(t.base.Path, "/")
		t.base.RawPath = strings.TrimRight(t.base.RawPath, "/")
		t.origin = originOf(t.base)
	}
	for _, o := range req.RedirectOrigins {
		u, err := parseURL("redirect origin", o, req.AllowHTTP)
		if err == nil && strings.Trim(u.Path, "/") != "" {
			err = fmt.Errorf("%w: redirect origin: must have no path", ErrRequest)
		}
		if err != nil {
			errs[1] = errors.Join(errs[1], err)
			continue
		}
		t.further = append(t.further, originOf(u))
	}
	t.Policy, errs[2] = req.Policy.orDefaults()
	t.Budgets, errs[3] = req.Budgets.orDefaults()
	if req.Sync > SyncAll {
		errs[3] = errors.Join(errs[3], fmt.Errorf("%w: sync: no such level", ErrRequest))
	}
	return t, errors.Join(errs[:]...)
}

// checkFetch is check for a request of a commit.
func (req Request) checkFetch() (*target, error) {
	t, err := req.check()
	if req.Commit.IsZero() {
		err = errors.Join(err, fmt.Errorf("%w: commit: must be set", ErrRequest))
	}
	return t, err
}

// parseURL reads an http or https URL that holds nothing but scheme, host,
// port and path. Its error does not show the text, which may hold a secret.
func parseURL(what, text string, allowHTTP bool) (*url.URL, error) {
	bad := func(why string) (*url.URL, error) {
		return nil, fmt.Errorf("%w: %s: %s", ErrRequest, what, why)
	}
	for i := range len(text) {
		if text[i] <= ' ' || text[i] == 0x7f {
			return bad("holds a space or control character")
		}
	}
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return bad("is not a URL")
	case u.Scheme == "http" && !allowHTTP:
		return bad("plain http is refused unless it is allowed")
	case u.Scheme != "https" && u.Scheme != "http":
		return bad("scheme must be https")
	case u.Opaque != "" || u.Hostname() == "":
		return bad("has no host")
	case u.User != nil:
		return bad("must not hold a user or password")
	case u.RawQuery != "" || u.ForceQuery || u.Fragment != "" || strings.Contains(text, "#"):
		return bad("must have no query or fragment")
	}
	if port, err := strconv.ParseUint(originOf(u).port, 10, 16); err != nil || port == 0 {
		return bad("has no usable port")
	}
	return u, nil
}

// Progress says how far a fetch is.
type Progress struct {
	// Objects received of TotalObjects; the latter is 0 until it is known.
	Objects, TotalObjects int64
	// WireBytes received.
	WireBytes int64
	// Files written of TotalFiles; the latter is 0 until it is known.
	Files, TotalFiles int64
}
