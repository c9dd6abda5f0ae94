package gitlab

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/forge"
	"github.com/fencepost/fencepost/internal/forge/gitlab"
	"github.com/fencepost/fencepost/internal/source"
	"github.com/fencepost/fencepost/internal/source/remote"
)

// A Project is one project of an instance, by its id and the path that it is
// to have. It is safe for concurrent use.
type Project struct {
	client *gitlab.Client
	id     int64
	byID   string // address of the project by its id
	byPath string // address by its path
}

var (
	_ remote.Identity = (*Project)(nil)
	_ remote.Ancestry = (*Project)(nil)
)

// New names a project that a client is to ask about. It sends nothing. Its
// error matches [fencepost.ErrMalformed].
func New(c *gitlab.Client, id int64, path string) (*Project, error) {
	if id <= 0 || !gitlab.ValidPath(path) {
		return nil, fmt.Errorf("project: want an id above 0 and group/project: %w", fencepost.ErrMalformed)
	}
	return &Project{
		client: c, id: id, byID: "/projects/" + strconv.FormatInt(id, 10), byPath: "/projects/" + url.PathEscape(path),
	}, nil
}

// The fields that are looked at. Pointers tell what is absent from what is
// zero.
type projectAnswer struct {
	ID        *int64 `json:"id"`
	Namespace *struct {
		ID *int64 `json:"id"`
	} `json:"namespace"`
	Path         *string `json:"path_with_namespace"`
	Visibility   *string `json:"visibility"`
	ObjectFormat string  `json:"repository_object_format"`
}

// Identity implements [remote.Identity]. It asks by the id, by which a renamed
// project shows its new path. Where there is none of that id, the path tells a
// project that was deleted from one that was replaced.
func (p *Project) Identity(ctx context.Context) (remote.Facts, error) {
	const op = "get project"
	a, err := p.client.Get(ctx, op, p.byID, "")
	if err != nil {
		return remote.Facts{}, err
	}
	if !a.Found() {
		return p.underThePath(ctx)
	}
	return decodeFacts(op, a.Body)
}

// underThePath says what has the path of a project whose id is not there.
func (p *Project) underThePath(ctx context.Context) (remote.Facts, error) {
	const op = "get project by path"
	a, err := p.client.Get(ctx, op, p.byPath, "")
	if err != nil {
		return remote.Facts{}, err
	}
	if !a.Found() {
		return remote.Facts{}, forge.Fail(op, fencepost.ReasonCommitGone, errors.New("the project is gone, or the token does not reach it"))
	}
	facts, err := decodeFacts(op, a.Body)
	if err == nil && facts.ID == p.id {
		err = forge.Fail(op, fencepost.ReasonProvider, errors.New("the project is there by its path and not by its id"))
	}
	if err != nil {
		return remote.Facts{}, err
	}
	return facts, nil
}

func decodeFacts(op string, body []byte) (remote.Facts, error) {
	var got projectAnswer
	if err := forge.Decode(op, body, &got); err != nil {
		return remote.Facts{}, err
	}
	if got.ID == nil || got.Namespace == nil || got.Namespace.ID == nil || got.Path == nil || got.Visibility == nil {
		return remote.Facts{}, forge.Fail(op, fencepost.ReasonProvider, errors.New("the answer lacks a field"))
	}
	return remote.Facts{
		ID: *got.ID, OwnerID: *got.Namespace.ID, FullName: *got.Path, Private: *got.Visibility != "public", ObjectFormat: got.ObjectFormat,
	}, nil
}

// Ancestry implements [remote.Ancestry]: one of the two contains the other if
// and only if their merge base is the other. That they have none is told like
// that one of them is not there, and nothing is said then.
//
// GitLab Docs, "Repositories API", section "Merge Base"
func (p *Project) Ancestry(ctx context.Context, head, other fencepost.CommitID) (source.Ancestry, error) {
	const op = "get merge base"
	if head == other {
		return source.Same, nil
	}
	query := url.Values{"refs[]": {head.String(), other.String()}}
	a, err := p.client.Get(ctx, op, p.byID+"/repository/merge_base?"+query.Encode(), "")
	if answered, ok := errors.AsType[*forge.StatusError](err); ok && answered.Code == http.StatusBadRequest {
		return source.Unknown, nil
	}
	if err != nil {
		return 0, err
	}
	if !a.Found() {
		return source.Unknown, nil
	}
	var got struct {
		ID *string `json:"id"`
	}
	if err := forge.Decode(op, a.Body, &got); err != nil {
		return 0, err
	}
	if got.ID == nil {
		return 0, forge.Fail(op, fencepost.ReasonProvider, errors.New("the answer lacks a field"))
	}
	switch *got.ID {
	case other.String():
		return source.Ahead, nil
	case head.String():
		return source.Behind, nil
	}
	return source.Apart, nil
}
