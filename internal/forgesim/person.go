package forgesim

import (
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"maps"
	"time"
)

// personalLife is how long a person's token lives.
const personalLife = 366 * 24 * time.Hour

// PersonalToken makes a person's fine-grained token that reads one repository,
// as long as its owner stays the same; nil permissions: metadata and contents.
// It is refused where it would grant a write: what such tokens write is not
// simulated.
func (r *Repository) PersonalToken(login string, permissions Permissions) (string, error) {
	f := r.forge
	f.mu.Lock()
	defer f.mu.Unlock()
	if permissions == nil {
		permissions = Permissions{"contents": "read"}
	}
	for name, level := range permissions {
		if level != "read" {
			return "", fmt.Errorf("%w: personal token with %s=%s", ErrConfig, name, level)
		}
	}
	random := make([]byte, 60)
	rand.Read(random) // never fails: crypto/rand
	text := "github_pat_" + base64.RawURLEncoding.EncodeToString(random)
	f.tokens[text] = &token{
		text: text, person: f.actor(login), owner: r.owner, repositories: []int64{r.id},
		permissions: withPermission(maps.Clone(permissions), "metadata", "read"), expires: f.now().Add(personalLife),
	}
	return text, nil
}

// RevokeToken makes one token invalid, whosever it is.
func (f *Forge) RevokeToken(text string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.tokens, text)
}
