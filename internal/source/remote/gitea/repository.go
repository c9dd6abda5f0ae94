package gitea

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/forge"
	"github.com/fencepost/fencepost/internal/forge/gitea"
	"github.com/fencepost/fencepost/internal/source"
	"github.com/fencepost/fencepost/internal/source/remote"
)

// A Repository is one repository of an instance, by its id and the name that
// it is to have. It is safe for concurrent use.
type Repository struct {
	client *gitea.Client
	byID   string // path of the repository by its id
	byName string // path by its name

	mu sync.Mutex
	// Guarded by mu: the last answer that a server made conditional.
	etag string
	held remote.Facts
}

var (
	_ remote.Identity = (*Repository)(nil)
	_ remote.Ancestry = (*Repository)(nil)
)

// New names a repository that a client is to ask about. It sends nothing. Its
// error matches [fencepost.ErrMalformed].
func New(c *gitea.Client, id int64, fullName string) (*Repository, error) {
	owner, name, ok := strings.Cut(fullName, "/")
	if id <= 0 || !ok || !gitea.ValidName(owner) || !gitea.ValidName(name) {
		return nil, fmt.Errorf("repository: want an id above 0 and owner/name: %w", fencepost.ErrMalformed)
	}
	return &Repository{
		client: c, byID: "/repositories/" + strconv.FormatInt(id, 10), byName: "/repos/" + fullName,
	}, nil
}

// The fields that are looked at. Pointers tell what is absent from what is
// zero.
type repositoryAnswer struct {
	ID    *int64 `json:"id"`
	Owner *struct {
		ID *int64 `json:"id"`
	} `json:"owner"`
	FullName     *string `json:"full_name"`
	Private      *bool   `json:"private"`
	ObjectFormat string  `json:"object_format_name"`
}

// Identity implements [remote.Identity]. It asks by the id, by which a renamed
// repository shows its new name. Where there is none of that id, the name
// tells a repository that was deleted from one that was replaced.
func (r *Repository) Identity(ctx context.Context) (remote.Facts, error) {
	const op = "get repository"
	etag, held := r.last()
	a, err := r.client.Get(ctx, op, r.byID, etag)
	if err != nil {
		return remote.Facts{}, err
	}
	switch a.Status {
	case http.StatusNotModified:
		return held, nil
	case http.StatusNotFound:
		return r.underTheName(ctx)
	}
	facts, err := decodeFacts(op, a.Body)
	if err != nil {
		return remote.Facts{}, err
	}
	r.keep(a.ETag, facts)
	return facts, nil
}

// underTheName says what has the name of a repository whose id is not there.
func (r *Repository) underTheName(ctx context.Context) (remote.Facts, error) {
	const op = "get repository by name"
	a, err := r.client.Get(ctx, op, r.byName, "")
	if err != nil {
		return remote.Facts{}, err
	}
	if a.Status == http.StatusNotFound {
		return remote.Facts{}, forge.Fail(op, fencepost.ReasonCommitGone, errors.New("the repository is gone, or the token does not reach it"))
	}
	facts, err := decodeFacts(op, a.Body)
	if err == nil && r.byID == "/repositories/"+strconv.FormatInt(facts.ID, 10) {
		err = forge.Fail(op, fencepost.ReasonProvider, errors.New("the repository is there by its name and not by its id"))
	}
	if err != nil {
		return remote.Facts{}, err
	}
	return facts, nil
}

func (r *Repository) last() (string, remote.Facts) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.etag, r.held
}

func (r *Repository) keep(etag string, facts remote.Facts) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.etag, r.held = etag, facts
}

func decodeFacts(op string, body []byte) (remote.Facts, error) {
	var got repositoryAnswer
	if err := forge.Decode(op, body, &got); err != nil {
		return remote.Facts{}, err
	}
	if got.ID == nil || got.Owner == nil || got.Owner.ID == nil || got.FullName == nil || got.Private == nil {
		return remote.Facts{}, forge.Fail(op, fencepost.ReasonProvider, errors.New("the answer lacks a field"))
	}
	return remote.Facts{
		ID: *got.ID, OwnerID: *got.Owner.ID, FullName: *got.FullName, Private: *got.Private, ObjectFormat: got.ObjectFormat,
	}, nil
}

// Ancestry implements [remote.Ancestry]. The API lists the commits that the one
// has and the other lacks; the one contains the other if one of them is a child
// of it. What some versions list in addition, what only the other has, can be
// none. contracts/gitea.md §8
func (r *Repository) Ancestry(ctx context.Context, head, other fencepost.CommitID) (source.Ancestry, error) {
	if head == other {
		return source.Same, nil
	}
	for _, try := range []struct {
		descendant, ancestor fencepost.CommitID
		then                 source.Ancestry
	}{{head, other, source.Ahead}, {other, head, source.Behind}} {
		contains, known, err := r.contains(ctx, try.descendant, try.ancestor)
		switch {
		case err != nil:
			return 0, err
		case !known:
			return source.Unknown, nil
		case contains:
			return try.then, nil
		}
	}
	return source.Apart, nil
}

// contains reports whether one commit contains another. It is not known where
// one of them is not there, or the list is not whole.
func (r *Repository) contains(ctx context.Context, descendant, ancestor fencepost.CommitID) (contains, known bool, err error) {
	const op = "compare commits"
	a, err := r.client.Get(ctx, op, r.byName+"/compare/"+ancestor.String()+"..."+descendant.String()+"?files=false&verification=false", "")
	if err != nil || a.Status == http.StatusNotFound {
		return false, false, err
	}
	var got struct {
		Total   *int64 `json:"total_commits"`
		Commits []struct {
			Parents []struct {
				SHA string `json:"sha"`
			} `json:"parents"`
		} `json:"commits"`
	}
	if err := forge.Decode(op, a.Body, &got); err != nil {
		return false, false, err
	}
	if got.Total == nil {
		return false, false, forge.Fail(op, fencepost.ReasonProvider, errors.New("the answer lacks a field"))
	}
	for _, c := range got.Commits {
		for _, p := range c.Parents {
			if p.SHA == ancestor.String() {
				return true, true, nil
			}
		}
	}
	return false, *got.Total == int64(len(got.Commits)), nil
}
