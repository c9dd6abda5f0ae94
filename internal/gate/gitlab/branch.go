package gitlab

import (
	"context"
	"errors"
	"strconv"
	"strings"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/forge"
	"github.com/fencepost/fencepost/internal/forge/gitlab"
)

// A protection is a protected branch, or a pattern of them.
type protection struct {
	Name      string   `json:"name"`
	Push      []access `json:"push_access_levels"`
	ForcePush *bool    `json:"allow_force_push"`
}

// An access is who may do something. Level 0 is no one.
type access struct {
	Level     *int   `json:"access_level"`
	User      *int64 `json:"user_id"`
	Group     *int64 `json:"group_id"`
	DeployKey *int64 `json:"deploy_key_id"`
}

// nobody reports whether it lets no one.
func (a access) nobody() bool {
	return a.Level != nil && *a.Level == 0 && a.User == nil && a.Group == nil && a.DeployKey == nil
}

// protections asks for what protects the base branch: by name or by pattern,
// and where several do, the most permissive counts.
func (l *Lane) protections(ctx context.Context) ([]protection, error) {
	const op = "list protected branches"
	var all []protection
	found, err := gitlab.Pages(ctx, l.config.Client, op, l.below("/protected_branches?per_page="+strconv.Itoa(gitlab.PageSize)), func(p protection) {
		if covers(p.Name, l.branch) {
			all = append(all, p)
		}
	})
	if err == nil && !found {
		return nil, forge.Fail(op, fencepost.ReasonCredential, errors.New("the token may not read protected branches"))
	}
	return all, err
}

// ofBranch holds the protection of the base against what a gate needs: who can
// push to it passes by the train.
func ofBranch(all []protection) []setting {
	protected, push, force := "true", "nobody", "false"
	if len(all) == 0 {
		protected, push, force = "false", "every developer", "true"
	}
	for _, p := range all {
		if p.Push == nil {
			push = absent
		}
		for _, a := range p.Push {
			if !a.nobody() {
				push = "some"
			}
		}
		if seen := flag(p.ForcePush); seen != "false" {
			force = seen
		}
	}
	return []setting{{"branch.protected", "true", protected}, {"branch.push", "nobody", push}, {"branch.allow_force_push", "false", force}}
}

// covers reports whether a protection's name is the branch, or a pattern for it:
// a star stands for any characters.
func covers(name, branch string) bool {
	parts := strings.Split(name, "*")
	if len(parts) == 1 {
		return name == branch
	}
	rest, ok := strings.CutPrefix(branch, parts[0])
	if !ok {
		return false
	}
	last := parts[len(parts)-1]
	for _, part := range parts[1 : len(parts)-1] {
		_, after, found := strings.Cut(rest, part)
		if !found {
			return false
		}
		rest = after
	}
	return strings.HasSuffix(rest, last)
}
