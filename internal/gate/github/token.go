package github

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fencepost/fencepost"
)

// gatePermissions are the least that a gate needs; statuses, to see foreign
// statuses of our name. contracts/github.md §4
var gatePermissions = permissions("checks=write contents=read metadata=read pull_requests=read statuses=read")

// A permissions value is a set of name=level, sorted, separated by blanks.
type permissions string

func (p permissions) asMap() map[string]string {
	m := map[string]string{}
	for pair := range strings.FieldsSeq(string(p)) {
		name, level, _ := strings.Cut(pair, "=")
		m[name] = level
	}
	return m
}

// A grant is what one installation token is for: exactly one repository.
type grant struct {
	repository int64
	allow      permissions
}

// A wallet keeps the installation tokens of one client, by grant.
type wallet struct {
	client *Client

	mu sync.Mutex
	// Guarded by mu:
	purses map[grant]*purse
}

// A purse holds the token of one grant; its lock is held while one is made, so
// that many callers share one request.
type purse struct {
	mu sync.Mutex
	// Guarded by mu:
	token   fencepost.Secret
	expires time.Time
}

func (w *wallet) purse(g grant) *purse {
	w.mu.Lock()
	defer w.mu.Unlock()
	p, ok := w.purses[g]
	if !ok {
		p = &purse{}
		w.purses[g] = p
	}
	return p
}

// token returns a token that is good for the margin at least.
func (w *wallet) token(ctx context.Context, g grant) (fencepost.Secret, error) {
	p := w.purse(g)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.token.Len() > 0 && w.client.signer.time().Add(w.client.limits.TokenMargin).Before(p.expires) {
		return p.token, nil
	}
	token, expires, err := w.client.mint(ctx, g)
	if err != nil {
		return fencepost.Secret{}, err
	}
	// The old token may be in use by a request that has begun: it is left to
	// the collector, not zeroed.
	p.token, p.expires = token, expires
	return token, nil
}

// forget drops a token that GitHub refused, unless it was replaced already.
func (w *wallet) forget(g grant, refused fencepost.Secret) {
	p := w.purse(g)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.token.Equal(refused) {
		p.token, p.expires = fencepost.Secret{}, time.Time{}
	}
}

type tokenRequest struct {
	RepositoryIDs []int64           `json:"repository_ids"`
	Permissions   map[string]string `json:"permissions"`
}

type tokenAnswer struct {
	Token        string            `json:"token"`
	ExpiresAt    time.Time         `json:"expires_at"`
	Permissions  map[string]string `json:"permissions"`
	Selection    string            `json:"repository_selection"`
	Repositories []struct {
		ID int64 `json:"id"`
	} `json:"repositories"`
}

// mint asks for a token that reaches one repository with the least
// permissions, and believes the answer only if that is what it got.
func (c *Client) mint(ctx context.Context, g grant) (fencepost.Secret, time.Time, error) {
	const op = "make installation token"
	body, err := json.Marshal(tokenRequest{RepositoryIDs: []int64{g.repository}, Permissions: g.allow.asMap()})
	if err != nil {
		return fencepost.Secret{}, time.Time{}, fmt.Errorf("%s: %w", op, err)
	}
	var got tokenAnswer
	_, err = c.do(ctx, call{
		op: op, method: http.MethodPost, as: asApp, body: body, again: true, secret: true,
		path: fmt.Sprintf("/app/installations/%d/access_tokens", c.app.Installation),
	}, &got)
	if err != nil {
		return fencepost.Secret{}, time.Time{}, err
	}
	if err := got.check(g, c.signer.time()); err != nil {
		return fencepost.Secret{}, time.Time{}, credentialError(op, err)
	}
	return fencepost.NewSecret([]byte(got.Token)), got.ExpiresAt, nil
}

// check holds an answer against what was asked for. Tokens are opaque: their
// length and alphabet say nothing.
func (t tokenAnswer) check(g grant, now time.Time) error {
	switch {
	case t.Token == "":
		return fmt.Errorf("the answer has no token")
	case !t.ExpiresAt.After(now):
		return fmt.Errorf("the token has expired already; compare the clocks")
	case t.Selection != "selected" || len(t.Repositories) != 1 || t.Repositories[0].ID != g.repository:
		return fmt.Errorf("the token reaches other repositories than %d", g.repository)
	case !maps.Equal(t.Permissions, g.allow.asMap()):
		return fmt.Errorf("the token's permissions differ from those asked for at: %s", differing(t.Permissions, g.allow.asMap()))
	}
	return nil
}

// differing names the permissions that are not alike; names from GitHub are
// cut to what a permission's name can be.
func differing(got, want map[string]string) string {
	var names []string
	for name, level := range want {
		if got[name] != level {
			names = append(names, name)
		}
	}
	extra := 0
	for name := range got {
		if _, ok := want[name]; !ok {
			extra++
		}
	}
	if extra > 0 {
		names = append(names, fmt.Sprintf("%d not asked for", extra))
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}
