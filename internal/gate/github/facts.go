package github

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/fencepost/fencepost"
)

// sourcePermissions are the least that a source needs. contracts/github.md §4
var sourcePermissions = permissions("contents=read metadata=read")

// RepositoryFacts are what GitHub says of a repository.
type RepositoryFacts struct {
	// ID and OwnerID never change while the repository stays with its owner.
	ID, OwnerID int64
	// FullName is its present owner/name.
	FullName string
	// Private: not everybody may read it.
	Private bool
}

// RepositoryFacts asks what the repository of that name is now. It does not
// judge whether r's ids are those. While nothing changes it is one conditional
// request, which GitHub does not count.
//
// Its error has the reason [fencepost.ReasonIdentity] if the name leads
// elsewhere, [fencepost.ReasonCommitGone] if there is no such repository
// within reach of a credential that is good, [fencepost.ReasonCredential] if
// it isn't, or one of the reasons of every call.
func (c *Client) RepositoryFacts(ctx context.Context, r Repository) (RepositoryFacts, error) {
	const op = "get repository"
	path, err := r.path()
	if err != nil {
		return RepositoryFacts{}, err
	}
	var got struct {
		repositoryAnswer
		Private bool `json:"private"`
	}
	held, unchanged := c.facts.get(path), false
	header, err := c.do(ctx, call{
		op: op, method: http.MethodGet, path: path, as: asInstallation, grant: r.grant(),
		fresh: true, etag: held.etag, unchanged: &unchanged,
	}, &got)
	status := statusOf(err)
	switch {
	case isMoved(err):
		return RepositoryFacts{}, movedAway(op)
	case status == http.StatusNotFound:
		return RepositoryFacts{}, c.whyHidden(ctx, path, providerError(op, "answered 404 though the App is installed on it"))
	case status == http.StatusUnprocessableEntity:
		// It answers the wish for a token that reads this repository.
		return RepositoryFacts{}, c.whyHidden(ctx, path, credentialError(op, errors.New("the App may not read metadata and contents")))
	case err != nil:
		return RepositoryFacts{}, err
	}
	if !unchanged {
		held.RepositoryFacts = RepositoryFacts{ID: got.ID, OwnerID: got.Owner.ID, FullName: got.FullName, Private: got.Private}
		c.facts.put(path, heldFacts{header.Get("Etag"), held.RepositoryFacts})
	}
	return held.RepositoryFacts, nil
}

// maxFacts bounds the repositories whose facts a client keeps; when there are
// more it begins anew.
const maxFacts = 1 << 16

// facts are those that GitHub gave last, by the path of the repository. The
// answers are not kept: of thousands of repositories they would be too many.
type facts struct {
	mu sync.Mutex
	// Guarded by mu:
	held map[string]heldFacts
}

type heldFacts struct {
	etag string
	RepositoryFacts
}

func (f *facts) get(path string) heldFacts {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.held[path]
}

func (f *facts) put(path string, h heldFacts) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.held == nil || len(f.held) >= maxFacts {
		f.held = map[string]heldFacts{}
	}
	f.held[path] = h
}

// whyHidden says why a credential does not show a repository: 404 means that
// it is gone, that it may not be seen, and that GitHub hides it for now. Seen
// is the error if the App reaches it. contracts/github.md, trap 20
func (c *Client) whyHidden(ctx context.Context, path string, seen error) error {
	const op = "get installation of repository"
	if c.token != nil {
		return goneError("the repository is gone, or the token does not reach it")
	}
	_, err := c.do(ctx, call{op: op, method: http.MethodGet, as: asApp, fresh: true, path: path + "/installation"}, nil)
	switch {
	case err == nil:
		return c.installationLives(ctx, seen)
	case isMoved(err):
		return movedAway(op)
	case statusOf(err) == http.StatusNotFound:
		return c.installationLives(ctx, goneError("the repository is gone, or the App's installation does not reach it"))
	}
	return err
}

// installationLives returns other if the installation itself is there and may
// act.
func (c *Client) installationLives(ctx context.Context, other error) error {
	const op = "get installation"
	var got struct {
		SuspendedAt *time.Time `json:"suspended_at"`
	}
	_, err := c.do(ctx, call{
		op: op, method: http.MethodGet, as: asApp, fresh: true,
		path: fmt.Sprintf("/app/installations/%d", c.app.Installation),
	}, &got)
	switch {
	case statusOf(err) == http.StatusNotFound:
		return credentialError(op, errors.New("the App is not installed any more"))
	case err != nil:
		return err
	case got.SuspendedAt != nil:
		return credentialError(op, errors.New("the App's installation is suspended"))
	}
	return other
}

// A Comparison is how one commit stands to another. The zero Comparison is
// none.
type Comparison uint8

// The comparisons.
const (
	// Identical: they are one.
	Identical Comparison = iota + 1
	// Ahead: the head contains the other.
	Ahead
	// Behind: the other contains the head.
	Behind
	// Diverged: neither contains the other.
	Diverged
	// NotComparable: GitHub shows one of them not at all, or they have no
	// commit in common.
	NotComparable
)

// Compare asks how head stands to other. GitHub's word is all there is for it.
func (c *Client) Compare(ctx context.Context, r Repository, head, other fencepost.CommitID) (Comparison, error) {
	const op = "compare commits"
	path, err := r.path()
	if err != nil {
		return 0, err
	}
	var got struct {
		Status string `json:"status"`
	}
	_, err = c.do(ctx, call{
		op: op, method: http.MethodGet, as: asInstallation, grant: r.grant(), fresh: true,
		path: path + "/compare/" + other.String() + "..." + head.String(),
		// What differs is of no interest, and can't be left out altogether.
		query: url.Values{"per_page": {"1"}},
	}, &got)
	switch {
	case statusOf(err) == http.StatusNotFound:
		return NotComparable, nil
	case isMoved(err):
		return 0, movedAway(op)
	case err != nil:
		return 0, err
	}
	switch got.Status {
	case "identical":
		return Identical, nil
	case "ahead":
		return Ahead, nil
	case "behind":
		return Behind, nil
	case "diverged":
		return Diverged, nil
	}
	return 0, providerError(op, "the answer names no known status")
}

// ownToken reads the token that stands in place of an App.
func (c *Client) ownToken(ctx context.Context) (fencepost.Secret, error) {
	token, err := c.token(ctx)
	switch {
	case err != nil:
		return fencepost.Secret{}, credentialError("read token", errors.New("the secret could not be resolved"))
	case token.Len() == 0:
		return fencepost.Secret{}, credentialError("read token", errors.New("the token is empty"))
	}
	return token, nil
}

// GitCredential returns the user and secret by which Git reads one repository.
// The secret may be shared, so it is not the caller's to zero.
func (c *Client) GitCredential(ctx context.Context, r Repository) (user string, secret fencepost.Secret, err error) {
	secret, err = c.bearer(ctx, call{as: asInstallation, grant: r.grant()})
	return gitUser, secret, err
}

// gitUser is what GitHub wants as the name beside a token.
const gitUser = "x-access-token"

func (r Repository) grant() grant { return grant{repository: r.ID, allow: sourcePermissions} }

// path is where a repository is asked for.
func (r Repository) path() (string, error) {
	owner, name, ok := strings.Cut(r.Name, "/")
	if !ok || !isName(owner) || !isName(name) || r.ID <= 0 {
		return "", fmt.Errorf("repository: want an id and owner/name: %w", fencepost.ErrMalformed)
	}
	return "/repos/" + r.Name, nil
}

func isMoved(err error) bool {
	_, moved := errors.AsType[*movedError](err)
	return moved
}

func movedAway(op string) error {
	return &fencepost.Error{Op: op, Reason: fencepost.ReasonIdentity, Err: errors.New("the name leads to another: renamed or transferred")}
}

func goneError(text string) error {
	return &fencepost.Error{Op: "get repository", Reason: fencepost.ReasonCommitGone, Err: errors.New(text)}
}
