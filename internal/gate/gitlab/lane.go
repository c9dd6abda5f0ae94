package gitlab

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/gitfetch"
	"github.com/fencepost/fencepost/internal/forge/gitlab"
	"github.com/fencepost/fencepost/internal/gate"
	"github.com/fencepost/fencepost/internal/gate/shelf"
	"github.com/fencepost/fencepost/internal/strictjson"
)

// A Repository is the one project of a gate, as it is configured.
type Repository struct {
	// ID and OwnerID, which is that of its namespace, never change; they alone
	// identify.
	ID, OwnerID int64
	// Name is the path with its namespace. It is where Git asks.
	Name string
}

// A Policy is whose job a gate believes.
type Policy struct {
	// Project is the id of the security policy project, Path its path with its
	// namespace.
	Project int64
	Path    string
	// Commits are those of the policy project whose policies are allowed; 1 to
	// [MaxCommits].
	Commits []fencepost.CommitID
	// Job is the name of the policy's job; 1 to 255 bytes.
	Job string
}

// MaxCommits bounds the allowed commits of a policy.
const MaxCommits = 16

// Results is where senders fetch their results.
type Results interface {
	// Put keeps a document durably; another one that stands for the delivery is
	// an error with [fencepost.ReasonPublishConflict].
	Put(ctx context.Context, d fencepost.DeliveryID, document []byte) error
	// Get returns what stands for a delivery.
	Get(ctx context.Context, d fencepost.DeliveryID) (e shelf.Entry, ok bool, err error)
	// End keeps durably that a delivery ended without a result, where nothing
	// stands for it.
	End(ctx context.Context, d fencepost.DeliveryID, why fencepost.Reason) error
}

// A LaneConfig is one gate.
type LaneConfig struct {
	// Gate is the gate's key.
	Gate gate.Name
	// Repository is what the gate guards.
	Repository Repository
	// BaseRef is the full name of the branch to merge into: refs/heads/main.
	BaseRef string
	// Check is the name by which the result is shown.
	Check string
	// Instance is the instance's own URL, which its tokens have as issuer.
	Instance *url.URL
	// Policy is whose job is believed.
	Policy Policy
	// Client asks with a token of the scope read_api, and read_repository for
	// Git, of somebody who is shown the project's settings: a maintainer. It is
	// not closed by the lane.
	Client *gitlab.Client
	// Results is where results are put.
	Results Results
	// Git is the base URL of repositories.
	Git *url.URL
	// AllowHTTP permits a plain HTTP Git URL; meant for loopback.
	AllowHTTP bool
	// AllowPrivate lets Git's host name lead to private addresses.
	AllowPrivate bool
	// Budgets bound the fetch of the three commits; zero fields are gitfetch's
	// defaults.
	Budgets gitfetch.Budgets
	// JSON bounds the body of a job's request; zero fields are DESIGN §4's.
	JSON strictjson.Limits
}

// A Lane is one gate at GitLab. It is safe for concurrent use.
type Lane struct {
	config   LaneConfig
	branch   string // BaseRef without refs/heads/
	api      string // for the revision
	merges   merges
	policies policies

	decodeHint *strictjson.Decoder[hint]

	mu sync.Mutex
	// Guarded by mu: the name that the project last answered to.
	name string
}

var (
	_ gate.Lane     = (*Lane)(nil)
	_ gate.Watcher  = (*Lane)(nil)
	_ gate.Awaited  = (*Lane)(nil)
	_ gate.Examiner = (*Lane)(nil)
)

const (
	// maxCheckName is our own bound on the name of a check, in bytes.
	maxCheckName = 100
	// maxJobName is GitLab's, in bytes.
	maxJobName = 255
)

// New makes the lane of one gate. It sends nothing. Its error matches
// [fencepost.ErrMalformed] or [fencepost.ErrZeroValue].
func New(c LaneConfig) (*Lane, error) {
	if c.Client == nil || c.Results == nil || c.Gate == "" {
		return nil, fmt.Errorf("gate without client, results or name: %w", fencepost.ErrZeroValue)
	}
	if err := c.validate(); err != nil {
		return nil, fmt.Errorf("gate %s: %w", c.Gate, err)
	}
	c.Policy.Commits = slices.Clone(c.Policy.Commits)
	return &Lane{
		config: c, branch: strings.TrimPrefix(c.BaseRef, "refs/heads/"), api: c.Client.API(), name: c.Repository.Name,
		decodeHint: strictjson.NewClosedDecoder[hint](c.JSON),
	}, nil
}

func (c LaneConfig) validate() error {
	branch, isBranch := strings.CutPrefix(c.BaseRef, "refs/heads/")
	p := c.Policy
	switch {
	case c.Repository.ID <= 0 || c.Repository.OwnerID <= 0:
		return fmt.Errorf("repository: id and owner_id must be above 0: %w", fencepost.ErrMalformed)
	case !gitlab.ValidPath(c.Repository.Name):
		return fmt.Errorf("repository: name must be the project's path with its groups: %w", fencepost.ErrMalformed)
	case !isBranch || branch == "" || strings.ContainsAny(branch, "*?[\\^~: \x7f") || strings.Contains(branch, ".."):
		return fmt.Errorf("base must be refs/heads/ and a branch: %w", fencepost.ErrMalformed)
	case c.Check == "" || len(c.Check) > maxCheckName || strings.TrimSpace(c.Check) != c.Check:
		return fmt.Errorf("check must be 1 to %d characters: %w", maxCheckName, fencepost.ErrMalformed)
	case p.Project <= 0 || !gitlab.ValidPath(p.Path):
		return fmt.Errorf("policy: project must be above 0 and path the project's with its groups: %w", fencepost.ErrMalformed)
	case p.Job == "" || len(p.Job) > maxJobName:
		return fmt.Errorf("policy: job must be 1 to %d bytes: %w", maxJobName, fencepost.ErrMalformed)
	case len(p.Commits) < 1 || len(p.Commits) > MaxCommits || slices.ContainsFunc(p.Commits, fencepost.CommitID.IsZero):
		return fmt.Errorf("policy: want 1 to %d commits: %w", MaxCommits, fencepost.ErrMalformed)
	case c.Instance == nil || !plain(c.Instance):
		return fmt.Errorf("instance: want an absolute URL without user, query or fragment: %w", fencepost.ErrMalformed)
	case c.Git == nil || !plain(c.Git):
		return fmt.Errorf("git: want an absolute URL without user, query or fragment: %w", fencepost.ErrMalformed)
	case c.Git.Scheme != "https" && (c.Git.Scheme != "http" || !c.AllowHTTP):
		return fmt.Errorf("git: want https (or allow_http: true for plain HTTP on loopback): %w", fencepost.ErrMalformed)
	}
	return nil
}

func plain(u *url.URL) bool {
	return u.Host != "" && u.User == nil && u.RawQuery == "" && u.Fragment == ""
}

// Source implements [gate.Refresher]: the gate's project, also for requests from
// forks, whose head is in it as refs/merge-requests/N/head.
func (l *Lane) Source(s gate.Snapshot) (gate.Source, error) {
	if !gitlab.ValidPath(s.Repository) {
		return gate.Source{}, fmt.Errorf("source of a snapshot without a repository: %w", fencepost.ErrZeroValue)
	}
	return l.source(s.Repository), nil
}

func (l *Lane) source(name string) gate.Source {
	return gate.Source{
		URL:       strings.TrimSuffix(l.config.Git.String(), "/") + "/" + name + ".git",
		AllowHTTP: l.config.AllowHTTP, AllowPrivate: l.config.AllowPrivate,
		Credential: func(ctx context.Context) (string, fencepost.Secret, error) {
			return l.config.Client.GitCredential(ctx)
		},
	}
}

func refuse(why fencepost.Reason, text string) error {
	return &fencepost.Error{Op: "admit", Reason: why, Err: errors.New(text)}
}
