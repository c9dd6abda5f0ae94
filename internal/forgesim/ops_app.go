package forgesim

import (
	"encoding/json"
	"net/http"
	"strings"
)

// appOperations are the calls on the App, on installations and on the service.
func appOperations() []route {
	return []route{
		{operation: "GET /app", app: true, serve: getApp},
		{operation: "GET /app/installations", app: true, serve: listInstallations},
		{operation: "GET /app/installations/{installation_id}", app: true, serve: getInstallation},
		{operation: "POST /app/installations/{installation_id}/access_tokens", app: true, serve: createToken},
		{operation: "GET " + repositoryPrefix + "/installation", app: true, serve: getRepositoryInstallation},
		{operation: "GET /installation/repositories", serve: listReachable},
		{operation: "DELETE /installation/token", serve: revokeToken},
		{operation: "GET /rate_limit", anyone: true, free: true, serve: getRateLimit},
		{operation: "GET /meta", anyone: true, serve: getMeta},
	}
}

func getApp(f *Forge, c *call) answer {
	count := 0
	for _, i := range f.installations {
		if i.app == c.who.app {
			count++
		}
	}
	return found(merged(rendering{f}.app(c.who.app), object{"installations_count": count}))
}

func listInstallations(f *Forge, c *call) answer {
	var mine []*Installation
	for _, i := range f.installations {
		if i.app == c.who.app {
			mine = append(mine, i)
		}
	}
	page, header := pageOf(c, mine)
	shown := []object{}
	for _, i := range page {
		shown = append(shown, rendering{f}.installation(i))
	}
	return found(shown).withHeader(header)
}

// ownInstallation finds the installation of the path among those of the App.
func ownInstallation(f *Forge, c *call) *Installation {
	id := c.number("installation_id")
	for _, i := range f.installations {
		if i.id == id && i.app == c.who.app {
			return i
		}
	}
	return nil
}

func getInstallation(f *Forge, c *call) answer {
	if i := ownInstallation(f, c); i != nil {
		return found(rendering{f}.installation(i))
	}
	return notFound()
}

func getRepositoryInstallation(f *Forge, c *call) answer {
	if i := f.installationFor(c.who.app, c.repo); i != nil {
		return found(rendering{f}.installation(i))
	}
	return notFound()
}

// A tokenRequest is the body that asks for an installation token.
type tokenRequest struct {
	Repositories  []string    `json:"repositories"`
	RepositoryIDs []int64     `json:"repository_ids"`
	Permissions   Permissions `json:"permissions"`
}

func createToken(f *Forge, c *call) answer {
	i := ownInstallation(f, c)
	if i == nil {
		return notFound()
	}
	if i.suspended {
		return failure(http.StatusForbidden, "This installation is suspended")
	}
	var in tokenRequest
	if len(c.body) > 0 {
		if err := json.Unmarshal(c.body, &in); err != nil {
			return failure(http.StatusBadRequest, "Problems parsing JSON")
		}
	}
	repositories, ok := f.chosen(i, in)
	if !ok {
		return invalid("A repository of the request does not exist or is not accessible to the installation")
	}
	permissions := i.permissions
	if in.Permissions != nil {
		for name, level := range in.Permissions {
			if !i.permissions.allows(name, level) {
				return invalid("The permissions requested are not granted to this installation")
			}
		}
		permissions = in.Permissions
	}
	// Metadata can be read by whoever can read anything.
	permissions = withPermission(permissions, "metadata", "read")
	t := f.issueToken(i, permissions, repositories)
	out := object{
		"token": t.text, "expires_at": stamp(t.expires), "permissions": permissions, "repository_selection": "selected",
	}
	if repositories != nil {
		shown := []object{}
		for _, id := range repositories {
			shown = append(shown, rendering{f}.repository(f.repository(id)))
		}
		out["repositories"] = shown
	}
	return reply(http.StatusCreated, out)
}

// chosen are the repositories that a token is asked for; nil: all. It says
// whether the installation reaches each.
func (f *Forge) chosen(i *Installation, in tokenRequest) ([]int64, bool) {
	if in.Repositories == nil && in.RepositoryIDs == nil {
		return nil, true
	}
	ids := []int64{}
	for _, id := range in.RepositoryIDs {
		r := f.repository(id)
		if r == nil || r.deleted || r.owner != i.account || !i.repositories[id] {
			return nil, false
		}
		ids = append(ids, id)
	}
	for _, name := range in.Repositories {
		r := f.named(i.account.login, name)
		if r == nil || !i.repositories[r.id] || strings.Contains(name, "/") {
			return nil, false
		}
		ids = append(ids, r.id)
	}
	return ids, true
}

// withPermission is p with one permission more, where it is not in p.
func withPermission(p Permissions, name, level string) Permissions {
	all := Permissions{name: level}
	for k, v := range p {
		all[k] = v
	}
	return all
}

func listReachable(f *Forge, c *call) answer {
	if c.who.token == nil {
		return failure(http.StatusUnauthorized, "Requires authentication")
	}
	var reachable []*Repository
	for _, r := range f.repositories {
		if !r.deleted && c.who.token.reaches(r) {
			reachable = append(reachable, r)
		}
	}
	page, header := pageOf(c, reachable)
	shown := []object{}
	for _, r := range page {
		shown = append(shown, rendering{f}.repository(r))
	}
	return found(object{
		"total_count": len(reachable), "repositories": shown, "repository_selection": "selected",
	}).withHeader(header)
}

func revokeToken(f *Forge, c *call) answer {
	if c.who.token == nil {
		return failure(http.StatusUnauthorized, "Requires authentication")
	}
	delete(f.tokens, c.who.token.text)
	return answer{status: http.StatusNoContent, header: http.Header{}}
}

func getRateLimit(f *Forge, c *call) answer {
	a := f.allowanceOf(c.who)
	core := object{"limit": a.limit, "used": a.used, "remaining": a.remaining(), "reset": a.reset.Unix()}
	search := object{"limit": 30, "used": 0, "remaining": 30, "reset": a.reset.Unix()}
	out := object{"resources": object{"core": core, "search": search}}
	if c.version == version2022 {
		out["rate"] = core
	}
	return found(out)
}

func getMeta(*Forge, *call) answer {
	return found(object{
		"verifiable_password_authentication": false, "hooks": []string{"127.0.0.0/8", "::1/128"},
		"api": []string{"127.0.0.0/8"}, "git": []string{"127.0.0.0/8"}, "web": []string{"127.0.0.0/8"},
	})
}
