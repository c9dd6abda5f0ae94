package gitea

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"github.com/fencepost/fencepost/internal/forgesim"
)

// Locked says why the request can't be merged by somebody who may write; ""
// if it can. It judges as contracts/gitea.md §6 says: an approval counts
// whatever commit it was made for, a status only for the head of now.
func (p *Pull) Locked(ctx context.Context) (string, error) {
	f := p.repo.forge
	head, base := p.under.Head(), p.under.Base()
	tip := p.repo.Ref("refs/heads/" + base)
	var got struct {
		Behind int `json:"behind_by"`
	}
	if err := f.inside(ctx, p.repo, "/compare/"+tip+"..."+head, &got); err != nil {
		return "", err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if p.under.State() != "open" {
		return "the request is closed", nil
	}
	rule := p.repo.rule
	if !p.repo.protects(base) {
		return "", nil
	}
	approvals, rejected := int64(0), false
	for _, r := range p.reviews {
		switch {
		case !r.Official || r.Dismissed:
		case r.State == "APPROVED" && (!r.Stale || !rule.IgnoreStale):
			approvals++
		case r.State == "REQUEST_CHANGES":
			rejected = true
		}
	}
	states := p.repo.newest(head)
	switch {
	case approvals < rule.Approvals:
		return "Does not have enough approvals", nil
	case rejected && rule.BlockOnRejected:
		return "There are requested changes", nil
	case got.Behind > 0 && rule.BlockOnOutdated:
		return "The head branch is behind the base branch", nil
	}
	if rule.StatusCheck {
		for _, context := range rule.Contexts {
			if states[strings.ToLower(context)] != "success" {
				return "Not all required status checks successful", nil
			}
		}
	}
	return "", nil
}

// mergePull merges, as anybody who may write can, if nothing locks the request.
func mergePull(w http.ResponseWriter, r *http.Request, p *Pull, by *token) {
	f := p.repo.forge
	f.mu.Lock()
	may := p.repo.may(by.user, Writer)
	f.mu.Unlock()
	locked, err := p.Locked(r.Context())
	switch {
	case err != nil:
		f.failure(w, http.StatusInternalServerError, "")
	case !may:
		f.failure(w, http.StatusForbidden, "user should have a permission to write to a repo")
	case locked != "":
		f.failure(w, http.StatusMethodNotAllowed, locked)
	default:
		if err := p.merge(r.Context()); err != nil {
			f.failure(w, http.StatusConflict, err.Error())
			return
		}
		w.WriteHeader(http.StatusOK)
	}
}

// merge moves the base branch to the head, which contains it.
func (p *Pull) merge(ctx context.Context) error {
	f := p.repo.forge
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, err := p.repo.under.Push(ctx, forgesim.Push{Branch: p.under.Base(), To: p.under.Head()}); err != nil {
		return fmt.Errorf("gitea: %w", err)
	}
	if err := p.under.Close(ctx); err != nil {
		return fmt.Errorf("gitea: %w", err)
	}
	p.merged = p.under.Head()
	p.tell("closed", nil)
	return f.tell()
}
