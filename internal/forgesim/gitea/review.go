package gitea

import (
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// maxBody bounds a request's body.
const maxBody = 1 << 20

// A Review is one that was made of a request.
type Review struct {
	ID        int64
	User      string
	State     string
	Body      string
	CommitID  string
	Official  bool
	Stale     bool
	Dismissed bool
	At        time.Time

	// settled is unset by a push, until the forge has looked whether the review
	// is stale now.
	settled bool
}

// Reviews returns the reviews of the request, oldest first.
func (p *Pull) Reviews() []Review {
	p.repo.forge.mu.Lock()
	defer p.repo.forge.mu.Unlock()
	all := make([]Review, len(p.reviews))
	for i, r := range p.reviews {
		all[i] = *r
	}
	return all
}

// Review makes a review as a user would on the page.
func (p *Pull) Review(login, state, body string) Review {
	f := p.repo.forge
	f.mu.Lock()
	defer f.mu.Unlock()
	return *p.add(login, state, body, p.under.Head())
}

// Dismiss dismisses a review, as an administrator can.
func (p *Pull) Dismiss(id int64) {
	f := p.repo.forge
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, r := range p.reviews {
		if r.ID == id {
			r.Dismissed = true
		}
	}
}

// Settle does what the forge does in the background after a push, seconds
// later: reviews of another head become stale, and approvals are dismissed where
// the rule says so.
func (p *Pull) Settle() {
	f := p.repo.forge
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, r := range p.reviews {
		if r.settled || r.CommitID == p.under.Head() {
			continue
		}
		r.settled, r.Stale = true, true
		if r.State == "APPROVED" && p.repo.protects(p.under.Base()) && p.repo.rule.DismissStale {
			r.Dismissed = true
		}
	}
}

// add is called with mu held. contracts/gitea.md §6
func (p *Pull) add(login, state, body, commit string) *Review {
	f := p.repo.forge
	counts := state == "APPROVED" || state == "REQUEST_CHANGES"
	if counts {
		for _, r := range p.reviews {
			if !strings.EqualFold(r.User, login) {
				continue
			}
			if r.State == state && r.CommitID == commit && r.Official {
				r.Dismissed = true // seen when the same is posted twice
			}
			r.Official = false
		}
	}
	f.reviewed++
	r := &Review{
		ID: f.reviewed, User: login, State: state, Body: body, CommitID: commit, At: f.config.Now(), settled: true,
		Official: counts && p.repo.listed(p.under.Base(), login), Stale: commit != p.under.Head(),
	}
	p.reviews = append(p.reviews, r)
	return r
}

// render is called with mu held.
func (r *Review) render(p *Pull) object {
	f := p.repo.forge
	at := f.base + "/" + p.repo.FullName() + "/pulls/" + strconv.Itoa(p.under.Number())
	return object{
		"id": r.ID, "user": f.user(f.account(r.User)), "team": nil, "state": r.State, "body": r.Body, "commit_id": r.CommitID,
		"stale": r.Stale, "official": r.Official, "dismissed": r.Dismissed, "comments_count": 0,
		"submitted_at": r.At.UTC().Format(time.RFC3339), "updated_at": r.At.UTC().Format(time.RFC3339),
		"html_url": at + "#issuecomment-" + strconv.FormatInt(r.ID, 10), "pull_request_url": at,
	}
}

func listReviews(w http.ResponseWriter, r *http.Request, p *Pull, _ *token) {
	p.repo.forge.mu.Lock()
	all := []object{}
	for _, review := range p.reviews {
		all = append(all, review.render(p))
	}
	p.repo.forge.mu.Unlock()
	page(w, r, all)
}

func getReview(w http.ResponseWriter, r *http.Request, p *Pull, _ *token) {
	f := p.repo.forge
	f.mu.Lock()
	var shown object
	for _, review := range p.reviews {
		if strconv.FormatInt(review.ID, 10) == r.PathValue("review") {
			shown = review.render(p)
		}
	}
	f.mu.Unlock()
	if shown == nil {
		f.failure(w, http.StatusNotFound, "The target couldn't be found.")
		return
	}
	reply(w, http.StatusOK, shown)
}

// postReview makes a review. An event that is no known word makes one that
// nobody else sees, and answers 200 like the others: trap 19.
func postReview(w http.ResponseWriter, r *http.Request, p *Pull, by *token) {
	f := p.repo.forge
	var body struct {
		Event    string `json:"event"`
		Body     string `json:"body"`
		CommitID string `json:"commit_id"`
	}
	if !f.read(w, r, &body) {
		return
	}
	f.mu.Lock()
	refuse := ""
	state := body.Event
	switch {
	case strings.EqualFold(by.user, p.author.Login) && state != "COMMENT":
		refuse = "can't approve or reject your own pull is not allowed"
	case p.under.State() != "open" && !f.config.Forgejo:
		refuse = "can't review a closed pull request"
	case state == "REQUEST_CHANGES" && strings.TrimSpace(body.Body) == "":
		refuse = "review event REQUEST_CHANGES need comment or body"
	}
	if !slices.Contains([]string{"APPROVED", "REQUEST_CHANGES", "COMMENT"}, state) {
		state = "PENDING"
	}
	if body.CommitID == "" {
		body.CommitID = p.under.Head()
	}
	var shown object
	if refuse == "" {
		shown = p.add(by.user, state, body.Body, body.CommitID).render(p)
	}
	f.mu.Unlock()
	if refuse != "" {
		f.failure(w, http.StatusUnprocessableEntity, refuse)
		return
	}
	reply(w, http.StatusOK, shown)
}

// read reads a body, or answers that it is none.
func (f *Forge) read(w http.ResponseWriter, r *http.Request, into any) bool {
	err := json.NewDecoder(io.LimitReader(r.Body, maxBody)).Decode(into)
	if err != nil {
		f.failure(w, http.StatusUnprocessableEntity, "body is not JSON")
		return false
	}
	return true
}
