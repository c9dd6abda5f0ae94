package remote

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/gitfetch"
	"github.com/fencepost/fencepost/internal/source"
)

// A Repository is what the policy says that the source's repository is.
type Repository struct {
	// ID and OwnerID are the provider's, above 0; they never change.
	ID, OwnerID int64
	// FullName is the exact owner/name, with all groups where a provider has
	// groups within groups. It is where to ask; that it is the right repository
	// is proven by the ids each time.
	FullName string
	// Visibility is what it must be; the zero Visibility means any.
	Visibility Visibility
}

// Visibility is the closed list of what a repository must be.
type Visibility string

// The visibilities. What a provider calls internal is private.
const (
	AnyVisibility Visibility = "any"
	Public        Visibility = "public"
	Private       Visibility = "private"
)

// Facts are what the provider says that the repository of a name is.
type Facts struct {
	// ID and OwnerID are as in [Repository], FullName the present owner/name.
	ID, OwnerID int64
	FullName    string
	Private     bool
	// ObjectFormat is "sha1" or "sha256"; empty where the provider has but the
	// former.
	ObjectFormat string
}

// An Identity asks the provider what the repository is now, with the source's
// own credential; while nothing changes by one conditional request, where the
// provider knows such. It is safe for concurrent use. Its errors have one of
// the reasons that [source.Remote] lists; one without is the provider's fault.
type Identity interface {
	Identity(ctx context.Context) (Facts, error)
}

// An Ancestry tells how head stands to other. [source.Unknown] is an answer,
// and ends nothing: the next Ancestry is asked. It is safe for concurrent use.
type Ancestry interface {
	Ancestry(ctx context.Context, head, other fencepost.CommitID) (source.Ancestry, error)
}

// A Config says what one source's remote is.
type Config struct {
	Repository Repository
	// Ref is the branch's full name: refs/heads/main.
	Ref string
	// Git is the base URL of repositories: https://github.com.
	Git *url.URL
	// AllowHTTP permits a plain HTTP Git URL; meant for loopback.
	AllowHTTP bool
	// AllowPrivate lets Git's host name lead to private addresses.
	AllowPrivate bool
	// RootCAs vouch for the Git server; nil means those of the machine.
	RootCAs *x509.CertPool
	// Credential gives what Git authenticates with. It is called before each
	// exchange, and must not give an empty secret. Required unless Anonymous is
	// set: a source without a credential does not read as nobody by accident.
	Credential gitfetch.Credential
	// Anonymous reads as nobody, where the policy spells that out.
	Anonymous bool
	// Identity is the provider's API. Required.
	Identity Identity
	// Ancestries are asked in order where Git's commits could not tell how two
	// stand: the provider's comparison. None is needed.
	Ancestries []Ancestry
	// RedirectOrigins are where the Git server may lead to, as often as
	// Budgets.Redirects says; the credential does not follow. Without any,
	// redirects are not followed, whatever the budgets say.
	RedirectOrigins []string
	// Policy, Budgets and Sync are those of checkouts.
	Policy  gitfetch.Policy
	Budgets gitfetch.Budgets
	Sync    gitfetch.Sync
	// Transport, where set, holds the connections that many sources share.
	Transport *gitfetch.Transport
	// Now is our clock.
	Now func() time.Time
}

// Validate reports the first fault; its error matches [fencepost.ErrMalformed]
// or [fencepost.ErrZeroValue].
func (c Config) Validate() error {
	bad := func(what string) error { return fmt.Errorf("%s: %w", what, fencepost.ErrMalformed) }
	parts := strings.Split(c.Repository.FullName, "/")
	switch {
	case c.Repository.ID <= 0 || c.Repository.OwnerID <= 0:
		return bad("repository: id and owner_id must be above 0")
	case len(parts) < 2 || slices.ContainsFunc(parts, func(p string) bool { return !isName(p) }):
		return bad("repository: name must be owner/name, or groups and a name")
	case !strings.HasPrefix(c.Ref, "refs/heads/") || len(c.Ref) == len("refs/heads/"):
		return bad("ref must be refs/heads/ and a branch")
	case c.Git == nil || c.Git.Host == "" || c.Git.User != nil || c.Git.RawQuery != "" || c.Git.Fragment != "":
		return bad("git: want an absolute URL without user, query or fragment")
	case c.Git.Scheme != "https" && (c.Git.Scheme != "http" || !c.AllowHTTP):
		return bad("git: want https (or allow_http: true for plain HTTP on loopback)")
	case (c.Credential == nil) != c.Anonymous || c.Identity == nil || c.Now == nil:
		return fmt.Errorf("credential, identity and clock: %w", fencepost.ErrZeroValue)
	}
	if err := c.Budgets.Validate(); err != nil {
		return fmt.Errorf("budgets: %w", err)
	}
	return nil
}

// isName reports whether s can be an owner or a repository. It keeps out what
// would lead a URL elsewhere.
func isName(s string) bool {
	return s != "" && s != "." && s != ".." && len(s) <= 255 && !strings.ContainsFunc(s, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("-_.", r)
	})
}

// A Remote is the repository of one source. It is safe for concurrent use.
type Remote struct {
	config Config
	url    string

	mu sync.Mutex
	// Guarded by mu: before that time Git is not asked, as it wished.
	quiet time.Time
}

var _ source.Remote = (*Remote)(nil)

// New makes a remote. It sends nothing. Its error is of [Config.Validate].
func New(c Config) (*Remote, error) {
	if err := c.Validate(); err != nil {
		return nil, fmt.Errorf("remote: %w", err)
	}
	c.Ancestries = slices.Clone(c.Ancestries)
	c.RedirectOrigins = slices.Clone(c.RedirectOrigins)
	if len(c.RedirectOrigins) == 0 {
		c.Budgets.Redirects = 0
	}
	return &Remote{config: c, url: strings.TrimRight(c.Git.String(), "/") + "/" + c.Repository.FullName + ".git"}, nil
}

// Observe implements [source.Remote]. The caller's context bounds it.
func (r *Remote) Observe(ctx context.Context) (source.Observation, error) {
	at := r.config.Now()
	head, err := r.head(ctx)
	if err != nil && !ofRepository(err) {
		return source.Observation{}, err
	}
	// After the head, so that what it was read of is proven. And where Git
	// refused, the API can tell why.
	if better := r.prove(ctx); better != nil {
		return source.Observation{}, better
	}
	if err != nil {
		return source.Observation{}, err
	}
	return source.Observation{Head: head, At: at}, nil
}

// Contains implements [source.Remote]: by commits that were fetched and hashed,
// and where they can't tell by the first Ancestry that can. If none can, a
// failure of one is worth another try, and Unknown an answer otherwise. That
// Git has the other commit no more is one that nobody else knows better.
func (r *Remote) Contains(ctx context.Context, head, other fencepost.CommitID) (source.Ancestry, error) {
	if head == other {
		return source.Same, nil
	}
	how, gone, failed := r.byCommits(ctx, head, other)
	if failed == nil && (gone || how != source.Unknown) {
		return how, nil
	}
	for _, a := range r.config.Ancestries {
		how, err := a.Ancestry(ctx, head, other)
		switch {
		case ctx.Err() != nil:
			return 0, fail("source.contains", fencepost.ReasonUnavailable, context.Cause(ctx))
		case err != nil:
			failed = errors.Join(failed, closed("source.contains", err))
		case how == source.Ahead || how == source.Behind || how == source.Apart:
			return how, nil
		}
	}
	if failed != nil {
		return 0, failed
	}
	return source.Unknown, nil
}

// Fetch implements [source.Remote]. The head is one that was observed, so the
// commit's id proves whose content it is.
func (r *Remote) Fetch(ctx context.Context, head fencepost.CommitID, into source.Place) (*gitfetch.Checkout, error) {
	const op = "source.fetch"
	if into.Workspace == nil || head.IsZero() {
		return nil, fail(op, fencepost.ReasonUnavailable, fencepost.ErrZeroValue)
	}
	req, err := r.request(ctx, op)
	if err == nil {
		req.Commit, req.Policy, req.Sync = head, r.config.Policy, r.config.Sync
		req.Select, req.Have = into.Select, into.Have
		var checkout *gitfetch.Checkout
		if checkout, err = into.Workspace.Fetch(ctx, req); err == nil {
			return checkout, nil
		}
		err = r.judge(op, err)
	}
	if !ofRepository(err) {
		return nil, err
	}
	better := r.prove(ctx)
	switch {
	case better == nil:
		return nil, err
	case errors.Is(err, gitfetch.ErrCleanup):
		return nil, errors.Join(better, gitfetch.ErrCleanup)
	}
	return nil, better
}

// byCommits tells by what hashes to its id. Gone says that the server does not
// have the other commit.
func (r *Remote) byCommits(ctx context.Context, head, other fencepost.CommitID) (how source.Ancestry, gone bool, err error) {
	const op = "source.relate"
	req, err := r.request(ctx, op)
	if err != nil {
		return 0, false, err
	}
	got, err := gitfetch.Relate(ctx, req, head, other)
	if err != nil {
		return 0, false, r.judge(op, err)
	}
	switch got.Relation {
	case gitfetch.RelationSame:
		return source.Same, false, nil
	case gitfetch.RelationAhead:
		return source.Ahead, false, nil
	case gitfetch.RelationBehind:
		return source.Behind, false, nil
	case gitfetch.RelationApart:
		return source.Apart, false, nil
	}
	return source.Unknown, got.Doubt == gitfetch.DoubtGone, nil
}

// head asks Git where the branch stands.
func (r *Remote) head(ctx context.Context) (fencepost.CommitID, error) {
	const op = "source.ls_refs"
	req, err := r.request(ctx, op)
	if err != nil {
		return fencepost.CommitID{}, err
	}
	refs, err := gitfetch.LsRefs(ctx, req, r.config.Ref)
	if err != nil {
		return fencepost.CommitID{}, r.judge(op, err)
	}
	if len(refs) == 0 {
		return fencepost.CommitID{}, &repositoryError{fail(op, fencepost.ReasonCommitGone, errNoBranch)}
	}
	return refs[0].Commit(), nil
}

// request begins a request of Git, with the credential that it will use: a
// failure to get one is not Git's.
func (r *Remote) request(ctx context.Context, op string) (gitfetch.Request, error) {
	if until := r.quietUntil(); r.config.Now().Before(until) {
		return gitfetch.Request{}, fail(op, fencepost.ReasonRateLimited, errQuiet)
	}
	req := gitfetch.Request{
		URL: r.url, AllowHTTP: r.config.AllowHTTP, AllowPrivate: r.config.AllowPrivate, RootCAs: r.config.RootCAs,
		RedirectOrigins: r.config.RedirectOrigins, Budgets: r.config.Budgets, Transport: r.config.Transport, Now: r.config.Now,
	}
	if r.config.Anonymous {
		return req, nil
	}
	user, secret, err := r.config.Credential(ctx)
	switch {
	case err != nil:
		return gitfetch.Request{}, &repositoryError{ofCredential(op, err)}
	case secret.Len() == 0:
		return gitfetch.Request{}, fail(op, fencepost.ReasonCredential, errNoSecret)
	}
	req.Credential = func(context.Context) (string, fencepost.Secret, error) { return user, secret, nil }
	return req, nil
}

// prove holds what the provider says of the repository against the policy.
func (r *Remote) prove(ctx context.Context) error {
	const op = "source.identity"
	got, err := r.config.Identity.Identity(ctx)
	if err != nil {
		return closed(op, err)
	}
	if difference := r.config.Repository.differs(got); difference != "" {
		return fail(op, fencepost.ReasonIdentity, errors.New(difference))
	}
	return nil
}

// differs says in which respect the facts are of another repository than the
// policy names; empty for none. What the provider says is not repeated.
func (want Repository) differs(got Facts) string {
	switch {
	case got.ID != want.ID:
		return "the name is another repository's"
	case got.OwnerID != want.OwnerID:
		return "the repository has another owner"
	case got.FullName != want.FullName:
		return "the repository has another name"
	case want.Visibility == Private && !got.Private || want.Visibility == Public && got.Private:
		return "the repository's visibility has changed"
	case got.ObjectFormat != "" && got.ObjectFormat != "sha1":
		return "the repository has another object format"
	}
	return ""
}
