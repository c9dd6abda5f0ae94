package gitea

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"sync"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/gitfetch"
	"github.com/fencepost/fencepost/internal/forge/gitea"
	"github.com/fencepost/fencepost/internal/gate"
	"github.com/fencepost/fencepost/internal/strictjson"
)

// A Kind is the product that an instance runs.
type Kind string

// The kinds. They name what lets an administrator past a rule differently.
const (
	Gitea   Kind = "gitea"
	Forgejo Kind = "forgejo"
)

// A Repository is the one repository of a gate, as it is configured.
type Repository struct {
	// ID and OwnerID never change; they alone identify.
	ID, OwnerID int64
	// Name is owner/name. It is where to ask; that it is the right repository
	// is proven by the ids each time.
	Name string
}

// A Reviewer is the dedicated account whose word opens the gate.
type Reviewer struct {
	ID    int64
	Login string
}

// A LaneConfig is one gate.
type LaneConfig struct {
	// Gate is the gate's key.
	Gate gate.Name
	// Kind is what the instance runs.
	Kind Kind
	// Repository is what the gate guards.
	Repository Repository
	// BaseRef is the full name of the branch to merge into: refs/heads/main.
	BaseRef string
	// Check is the context of the commit status, 1 to 100 characters, none of
	// them special in a glob.
	Check string
	// Reviewer is who Reviews is authenticated as.
	Reviewer Reviewer
	// Reviews asks and writes as the reviewer, with write:repository. Rules
	// asks as one who may read the branch's rule. Neither is closed by the
	// lane.
	Reviews, Rules *gitea.Client
	// Git is the base URL of repositories.
	Git *url.URL
	// AllowHTTP permits a plain HTTP Git URL; meant for loopback.
	AllowHTTP bool
	// AllowPrivate lets Git's host name lead to private addresses.
	AllowPrivate bool
	// Budgets bound the fetch of commits that proves what the head contains;
	// zero fields are gitfetch's defaults.
	Budgets gitfetch.Budgets
	// JSON bounds the bodies of events; zero fields are DESIGN §4's.
	JSON strictjson.Limits
}

// A Lane is one gate at Gitea or Forgejo. It is safe for concurrent use.
type Lane struct {
	config LaneConfig
	branch string // BaseRef without refs/heads/
	api    string // for the revision

	// What was learnt once: which heads are proven to contain which base tips,
	// the trees of commits that were hashed, and whose requests are the
	// reviewer's own. What was not proven is asked again, since it was the
	// server's word.
	contained memo[pair, struct{}]
	trees     memo[fencepost.CommitID, fencepost.TreeID]
	authored  memo[int64, bool]

	decodeEvent *strictjson.Decoder[event]
	decodePull  *strictjson.Decoder[pullEvent]

	mu sync.Mutex
	// Guarded by mu: the name that the repository last answered to, and whether
	// it did at the last look.
	name  string
	proof bool
}

var (
	_ gate.Lane      = (*Lane)(nil)
	_ gate.Watcher   = (*Lane)(nil)
	_ gate.Retracter = (*Lane)(nil)
	_ gate.Examiner  = (*Lane)(nil)
)

// maxCheckName is our own bound on the name of a check, in bytes.
const maxCheckName = 100

// New makes the lane of one gate. It sends nothing. Its error matches
// [fencepost.ErrMalformed] or [fencepost.ErrZeroValue].
func New(c LaneConfig) (*Lane, error) {
	if c.Reviews == nil || c.Rules == nil || c.Gate == "" {
		return nil, fmt.Errorf("gate without clients or name: %w", fencepost.ErrZeroValue)
	}
	if err := c.validate(); err != nil {
		return nil, fmt.Errorf("gate %s: %w", c.Gate, err)
	}
	return &Lane{
		config: c, branch: strings.TrimPrefix(c.BaseRef, "refs/heads/"), api: c.Reviews.API(), name: c.Repository.Name,
		decodeEvent: strictjson.NewDecoder[event](c.JSON),
		decodePull:  strictjson.NewDecoder[pullEvent](c.JSON),
	}, nil
}

func (c LaneConfig) validate() error {
	owner, name, ok := strings.Cut(c.Repository.Name, "/")
	branch, isBranch := strings.CutPrefix(c.BaseRef, "refs/heads/")
	switch {
	case c.Kind != Gitea && c.Kind != Forgejo:
		return fmt.Errorf("kind must be gitea or forgejo: %w", fencepost.ErrMalformed)
	case c.Repository.ID <= 0 || c.Repository.OwnerID <= 0:
		return fmt.Errorf("repository: id and owner_id must be above 0: %w", fencepost.ErrMalformed)
	case !ok || !gitea.ValidName(owner) || !gitea.ValidName(name):
		return fmt.Errorf("repository: name must be owner/name: %w", fencepost.ErrMalformed)
	case !isBranch || branch == "" || strings.ContainsAny(branch, "*?[\\^~: \x7f") || strings.Contains(branch, ".."):
		return fmt.Errorf("base must be refs/heads/ and a branch: %w", fencepost.ErrMalformed)
	case c.Check == "" || len(c.Check) > maxCheckName || strings.TrimSpace(c.Check) != c.Check || strings.ContainsFunc(c.Check, notLiteral):
		return fmt.Errorf("check must be 1 to %d characters, none special in a glob: %w", maxCheckName, fencepost.ErrMalformed)
	case c.Reviewer.ID <= 0 || !gitea.ValidName(c.Reviewer.Login):
		return fmt.Errorf("reviewer: id must be above 0 and login a user's name: %w", fencepost.ErrMalformed)
	case c.Git == nil || c.Git.Host == "" || c.Git.User != nil || c.Git.RawQuery != "" || c.Git.Fragment != "":
		return fmt.Errorf("git: want an absolute URL without user, query or fragment: %w", fencepost.ErrMalformed)
	case c.Git.Scheme != "https" && (c.Git.Scheme != "http" || !c.AllowHTTP):
		return fmt.Errorf("git: want https (or allow_http: true for plain HTTP on loopback): %w", fencepost.ErrMalformed)
	}
	return nil
}

// notLiteral reports whether a rule's glob would read r as anything but
// itself.
func notLiteral(r rune) bool {
	return r < 0x20 || r == 0x7f || r == 0xfffd || strings.ContainsRune(`*?[]{}!\`, r)
}

// Source implements [gate.Refresher]: the base repository, also for requests
// from forks, whose head is in it as refs/pull/N/head.
func (l *Lane) Source(s gate.Snapshot) (gate.Source, error) {
	owner, repo, ok := strings.Cut(s.Repository, "/")
	if !ok || !gitea.ValidName(owner) || !gitea.ValidName(repo) {
		return gate.Source{}, fmt.Errorf("source of a snapshot without a repository: %w", fencepost.ErrZeroValue)
	}
	return l.source(s.Repository), nil
}

func (l *Lane) source(name string) gate.Source {
	return gate.Source{
		URL:       strings.TrimSuffix(l.config.Git.String(), "/") + "/" + name + ".git",
		AllowHTTP: l.config.AllowHTTP, AllowPrivate: l.config.AllowPrivate,
		Credential: func(ctx context.Context) (string, fencepost.Secret, error) {
			return l.config.Reviews.GitCredential(ctx)
		},
	}
}
