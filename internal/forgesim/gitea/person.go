package gitea

import "strings"

// A Role is what a user may do with a repository.
type Role string

// The roles.
const (
	Reader Role = "read"
	Writer Role = "write"
	Admin  Role = "admin"
)

// firstUser is the lowest id of a user that was named and not made with a
// repository.
const firstUser = 7000

// Grant gives a user a role in the repository, and returns the user's id.
func (r *Repository) Grant(login string, role Role) int64 {
	f := r.forge
	f.mu.Lock()
	defer f.mu.Unlock()
	if r.roles == nil {
		r.roles = map[string]Role{}
	}
	r.roles[strings.ToLower(login)] = role
	return f.account(login).ID
}

// account is the user of a name, made when it is first named. Called with mu
// held.
func (f *Forge) account(login string) account {
	key := strings.ToLower(login)
	if a, ok := f.people[key]; ok {
		return a
	}
	if f.people == nil {
		f.people = map[string]account{}
	}
	a := account{ID: firstUser + int64(len(f.people)), Login: login}
	f.people[key] = a
	return a
}

// may reports whether a user has a role or a higher one. Called with mu held.
func (r *Repository) may(login string, least Role) bool {
	rank := map[Role]int{Reader: 1, Writer: 2, Admin: 3}
	return rank[r.roles[strings.ToLower(login)]] >= rank[least]
}
