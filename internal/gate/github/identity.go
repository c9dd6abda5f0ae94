package github

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/fencepost/fencepost"
)

type repositoryAnswer struct {
	ID       int64  `json:"id"`
	FullName string `json:"full_name"`
	Owner    struct {
		ID int64 `json:"id"`
	} `json:"owner"`
}

// repository proves that the configured repository is there, by its id and its
// owner's, and returns the name that it has now. It runs anew in every refresh,
// since an old name can be taken by somebody else.
func (l *Lane) repository(ctx context.Context) (name string, err error) {
	tried, _ := l.lastName()
	defer func() { l.answered(name) }()
	name, err = l.lookAt(ctx, tried)
	if err != nil && tried != l.config.Repository.Name && statusOf(err) == http.StatusNotFound {
		name, err = l.lookAt(ctx, l.config.Repository.Name)
	}
	if statusOf(err) == http.StatusNotFound {
		return "", l.whyHidden(ctx)
	}
	if err != nil {
		return "", err
	}
	return name, nil
}

// answered takes over a proven name; "": none was.
func (l *Lane) answered(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.proof = name != ""; l.proof {
		l.name = name
	}
}

// lastName is the last name that was proven, or the configured one, and
// whether it was proven at the last look.
func (l *Lane) lastName() (name string, right bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.name, l.proof
}

// lookAt asks for the repository under one name. A redirect is taken as a
// hint: one request to its target, if that lies below the API, and the ids
// decide.
func (l *Lane) lookAt(ctx context.Context, name string) (string, error) {
	const op = "get repository"
	var r repositoryAnswer
	_, err := l.client.do(ctx, l.call(op, name, "", nil), &r)
	if moved, ok := errors.AsType[*movedError](err); ok {
		target, inside := below(l.client.base, moved.location)
		if !inside {
			return "", providerError(op, "redirected out of the API")
		}
		r = repositoryAnswer{}
		_, err = l.client.do(ctx, call{op: op, method: http.MethodGet, next: target, as: asInstallation, grant: l.grant}, &r)
	}
	if err != nil {
		return "", err
	}
	want := l.config.Repository
	if r.ID != want.ID || r.Owner.ID != want.OwnerID {
		return "", &fencepost.Error{Op: op, Reason: fencepost.ReasonIdentity, Err: fmt.Errorf(
			"%s is repository %d of owner %d, not %d of %d", want.Name, r.ID, r.Owner.ID, want.ID, want.OwnerID)}
	}
	owner, repo, ok := strings.Cut(r.FullName, "/")
	if !ok || !isName(owner) || !isName(repo) {
		return "", providerError(op, "the repository's name is not owner/name")
	}
	return r.FullName, nil
}

// whyHidden tells a repository that the App may not see from one that GitHub
// hides for now: 404 means both. An installation that is suspended is still
// there. contracts/github.md, trap 20
func (l *Lane) whyHidden(ctx context.Context) error {
	const op = "get installation of repository"
	var installed struct {
		SuspendedAt *string `json:"suspended_at"`
	}
	_, err := l.client.do(ctx, call{
		op: op, method: http.MethodGet, as: asApp, fresh: true,
		path: "/repos/" + l.config.Repository.Name + "/installation",
	}, &installed)
	switch {
	case err == nil && installed.SuspendedAt != nil:
		return credentialError("get repository", errors.New("the App's installation is suspended"))
	case err == nil:
		return providerError("get repository", "answered 404 though the App is installed on it")
	case statusOf(err) == http.StatusNotFound:
		return credentialError("get repository", errors.New("the App is not installed on it, or it is gone"))
	}
	return err
}
