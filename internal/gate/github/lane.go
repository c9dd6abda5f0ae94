package github

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"sync"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/gate"
	"github.com/fencepost/fencepost/internal/strictjson"
)

// A Repository is the one repository of a gate, as it is configured.
type Repository struct {
	// ID and OwnerID are GitHub's, which never change; they alone identify.
	ID, OwnerID int64
	// Name is owner/name. It is where to ask; that it is the right repository
	// is proven by the ids each time.
	Name string
}

// A LaneConfig is one gate at GitHub.
type LaneConfig struct {
	// Gate is the gate's key.
	Gate gate.Name
	// Repository is what the gate guards.
	Repository Repository
	// BaseRef is the full name of the branch to merge into: refs/heads/main.
	BaseRef string
	// Check is the name of the Check Run, 1 to 100 characters; the required
	// check of the branch's rule.
	Check string
	// Git is the base URL of repositories: https://github.com.
	Git *url.URL
	// AllowHTTP permits a plain HTTP Git URL; meant for loopback.
	AllowHTTP bool
	// AllowPrivate lets Git's host name lead to private addresses.
	AllowPrivate bool
	// JSON bounds the bodies of events; zero fields are DESIGN §4's.
	JSON strictjson.Limits
}

// A Lane is one gate at GitHub. It is safe for concurrent use.
type Lane struct {
	client *Client
	config LaneConfig
	branch string // BaseRef without refs/heads/
	grant  grant

	commits commits

	decodeEvent *strictjson.Decoder[event]
	decodePull  *strictjson.Decoder[pullEvent]

	mu sync.Mutex
	// Guarded by mu: the name that the repository last answered to, and whether
	// it did at the last look.
	name  string
	proof bool
}

var _ gate.Lane = (*Lane)(nil)

// NewLane makes the lane of one gate. It sends nothing. Its error matches
// [fencepost.ErrMalformed] or [fencepost.ErrZeroValue].
func NewLane(client *Client, c LaneConfig) (*Lane, error) {
	if client == nil || c.Gate == "" {
		return nil, fmt.Errorf("gate without client or name: %w", fencepost.ErrZeroValue)
	}
	if client.token != nil {
		return nil, fmt.Errorf("gate %s: a gate needs an App, not a token: %w", c.Gate, fencepost.ErrMalformed)
	}
	if err := c.validate(); err != nil {
		return nil, fmt.Errorf("gate %s: %w", c.Gate, err)
	}
	branch := strings.TrimPrefix(c.BaseRef, "refs/heads/")
	return &Lane{
		client: client, config: c, branch: branch, name: c.Repository.Name,
		grant:       grant{repository: c.Repository.ID, allow: gatePermissions},
		decodeEvent: strictjson.NewDecoder[event](c.JSON),
		decodePull:  strictjson.NewDecoder[pullEvent](c.JSON),
	}, nil
}

// maxCheckName is our own bound on the name of a check, in bytes.
const maxCheckName = 100

func (c LaneConfig) validate() error {
	owner, name, ok := strings.Cut(c.Repository.Name, "/")
	branch, isBranch := strings.CutPrefix(c.BaseRef, "refs/heads/")
	switch {
	case c.Repository.ID <= 0 || c.Repository.OwnerID <= 0:
		return fmt.Errorf("repository: id and owner_id must be above 0: %w", fencepost.ErrMalformed)
	case !ok || !isName(owner) || !isName(name):
		return fmt.Errorf("repository: name must be owner/name: %w", fencepost.ErrMalformed)
	case !isBranch || branch == "" || strings.ContainsAny(branch, "*?[\\^~: \x7f") || strings.Contains(branch, ".."):
		return fmt.Errorf("base must be refs/heads/ and a branch: %w", fencepost.ErrMalformed)
	case c.Check == "" || len(c.Check) > maxCheckName || strings.TrimSpace(c.Check) != c.Check || hasControl(c.Check):
		return fmt.Errorf("check must be 1 to %d characters: %w", maxCheckName, fencepost.ErrMalformed)
	case c.Git == nil || c.Git.Host == "" || c.Git.User != nil || c.Git.RawQuery != "" || c.Git.Fragment != "":
		return fmt.Errorf("git: want an absolute URL without user, query or fragment: %w", fencepost.ErrMalformed)
	case c.Git.Scheme != "https" && (c.Git.Scheme != "http" || !c.AllowHTTP):
		return fmt.Errorf("git: want https (or allow_http: true for plain HTTP on loopback): %w", fencepost.ErrMalformed)
	}
	return nil
}

// isName reports whether s can be an owner or a repository at GitHub.
func isName(s string) bool {
	if s == "" || s == "." || s == ".." || len(s) > 100 {
		return false
	}
	for _, r := range s {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '-', r == '_', r == '.':
		default:
			return false
		}
	}
	return true
}

func hasControl(s string) bool {
	return strings.ContainsFunc(s, func(r rune) bool { return r < 0x20 || r == 0x7f || r == 0xfffd })
}

// call is a read of the lane's repository under the name it has now.
func (l *Lane) call(op, name, path string, query url.Values) call {
	return call{
		op: op, method: "GET", path: "/repos/" + name + path, query: query,
		as: asInstallation, grant: l.grant,
	}
}

// Source implements [gate.Refresher]: the base repository, also for requests
// from forks, because the test merge and the head are there.
func (l *Lane) Source(s gate.Snapshot) (gate.Source, error) {
	owner, repo, ok := strings.Cut(s.Repository, "/")
	if !ok || !isName(owner) || !isName(repo) {
		return gate.Source{}, fmt.Errorf("source of a snapshot without a repository: %w", fencepost.ErrZeroValue)
	}
	return gate.Source{
		URL:       strings.TrimSuffix(l.config.Git.String(), "/") + "/" + s.Repository + ".git",
		AllowHTTP: l.config.AllowHTTP, AllowPrivate: l.config.AllowPrivate,
		Credential: func(ctx context.Context) (string, fencepost.Secret, error) {
			token, err := l.client.wallet.token(ctx, l.grant)
			return "x-access-token", token, err
		},
	}, nil
}
