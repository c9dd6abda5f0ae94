package gitea

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/forge"
	"github.com/fencepost/fencepost/internal/gate"
	"github.com/fencepost/fencepost/internal/gate/staged"
)

// A review as the server lists it.
type review struct {
	ID   int64 `json:"id"`
	User *struct {
		ID    int64  `json:"id"`
		Login string `json:"login"`
	} `json:"user"`
	State     string `json:"state"`
	Body      string `json:"body"`
	CommitID  string `json:"commit_id"`
	Official  bool   `json:"official"`
	Dismissed bool   `json:"dismissed"`
}

// by reports whether a user made it.
func (r review) by(id int64) bool { return r.User != nil && r.User.ID == id }

// counts reports whether the server gives it weight at a merge.
func (r review) counts() bool { return r.Official && !r.Dismissed }

// origin is what the last line of the body names, which we wrote; what stands
// above it is the program's and can't stand for it. "": none. A gate is named
// since two of one reviewer could not be told apart.
func (r review) origin() (evaluation, gate string) {
	body := strings.TrimRight(r.Body, "\r\n ")
	last := body[strings.LastIndexByte(body, '\n')+1:]
	rest, ok := strings.CutPrefix(last, staged.OriginBegins)
	evaluation, rest, closed := strings.Cut(rest, "`")
	if !ok || !closed {
		return "", ""
	}
	if _, name, named := strings.Cut(rest, gateBegins); named {
		gate, _, _ = strings.Cut(name, "`")
	}
	return evaluation, gate
}

// evaluation is the one that the review names as its origin.
func (r review) evaluation() string {
	evaluation, _ := r.origin()
	return evaluation
}

// of reports whether an evaluation of the gate made the review. One that names
// no gate was made before they did.
func (r review) of(gate string) bool {
	evaluation, named := r.origin()
	return evaluation != "" && (named == gate || named == "")
}

// takesBack reports whether the review is the one that takes the approval of d
// back: its whole body is, for a program's may begin with the same words.
func (d document) takesBack(r review) bool {
	return r.State == rejected && sameText(r.Body, d.takenBack())
}

// sameText compares bodies, at whose ends a server may cut blanks.
func sameText(a, b string) bool { return strings.TrimSpace(a) == strings.TrimSpace(b) }

// A status as the server lists it: what is sent as "state" is listed as
// "status". contracts/gitea.md, trap 23
type status struct {
	ID          int64  `json:"id"`
	State       string `json:"status"`
	Context     string `json:"context"`
	Description string `json:"description"`
	Creator     *struct {
		ID int64 `json:"id"`
	} `json:"creator"`
}

func (s status) by(id int64) bool { return s.Creator != nil && s.Creator.ID == id }

// evaluation is the id at the end of the description; "": none.
func (s status) evaluation() string {
	_, id, ok := cutLast(s.Description, between)
	if !ok {
		return ""
	}
	return id
}

func cutLast(s, sep string) (before, after string, found bool) {
	i := strings.LastIndex(s, sep)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+len(sep):], true
}

// pageSize is the most that the servers give by default.
const pageSize = 50

// pages reads a list to its end: until a page is empty, or all that the server
// counts were seen.
func pages[T any](ctx context.Context, l *Lane, op, path string, query url.Values, each func(T)) error {
	seen := 0
	if query == nil {
		query = url.Values{}
	}
	query.Set("limit", strconv.Itoa(pageSize))
	for page := 1; page <= l.config.Reviews.MaxPages(); page++ {
		query.Set("page", strconv.Itoa(page))
		a, err := l.config.Reviews.Get(ctx, op, path+"?"+query.Encode(), "")
		if err != nil {
			return err
		}
		if a.Status == http.StatusNotFound {
			return forge.Fail(op, fencepost.ReasonProvider, errors.New("the list is not there"))
		}
		var items []T
		if err := forge.Decode(op, a.Body, &items); err != nil {
			return err
		}
		for _, item := range items {
			each(item)
		}
		// The server may give fewer than were asked for, so that a short page
		// is the last one only where it says how many there are.
		seen += len(items)
		if len(items) == 0 || a.Total >= 0 && seen >= a.Total {
			return nil
		}
	}
	return forge.Fail(op, fencepost.ReasonProvider, forge.ErrTooManyPages)
}

func reviewsOf(name string, number int64) string {
	return "/repos/" + name + "/pulls/" + strconv.FormatInt(number, 10) + "/reviews"
}

// foreignStatuses lists statuses of our context on a commit that somebody else
// made: anybody with write access can, and the newest one counts.
func (l *Lane) foreignStatuses(ctx context.Context, name string, id fencepost.CommitID) ([]string, error) {
	var found []string
	err := pages(ctx, l, "list statuses", "/repos/"+name+"/commits/"+id.String()+"/statuses", nil, func(s status) {
		if strings.EqualFold(s.Context, l.config.Check) && !s.by(l.config.Reviewer.ID) {
			found = append(found, "status "+strconv.FormatInt(s.ID, 10))
		}
	})
	slices.Sort(found)
	return found, err
}

// foreignReviews lists approvals that count, bear our reviewer's name, and were
// made by no evaluation: by a person who is logged in as the reviewer. Trap 20
func (l *Lane) foreignReviews(ctx context.Context, name string, s gate.Subject) ([]string, error) {
	var found []string
	err := pages(ctx, l, "list reviews", reviewsOf(name, s.Number), nil, func(r review) {
		if r.by(l.config.Reviewer.ID) && r.State == approved && r.counts() && r.evaluation() == "" {
			found = append(found, "review "+strconv.FormatInt(r.ID, 10))
		}
	})
	slices.Sort(found)
	return found, err
}

// A shownResult is what the server shows of one document.
type shownResult struct {
	review *review
	status *status
	// alone is set for a block of a request of the reviewer's own, which can't
	// be reviewed: there its status is all.
	alone bool
	// overtaken is set when the approval was taken back, or a later evaluation
	// of the same gate has reviewed the same request since.
	overtaken bool
}

// whole reports whether nothing is missing.
func (s shownResult) whole() bool { return s.status != nil && (s.alone || s.review != nil) }

func (s shownResult) published() gate.Published {
	if s.review == nil {
		return gate.Published{ID: fmt.Sprintf("status %d", s.status.ID)}
	}
	return gate.Published{ID: fmt.Sprintf("review %d, status %d", s.review.ID, s.status.ID)}
}

// show looks up what the server shows of a document: of all reviews and
// statuses that the reviewer made, those that name the evaluation. What differs
// from the document, or is there twice, is a conflict. Trap 21. They are known
// by their ids: one that was made between two pages moves the rest, so that the
// same may come on both.
func (l *Lane) show(ctx context.Context, name string, d document, head fencepost.CommitID) (shownResult, error) {
	const op = "find review and status"
	reviews, statuses := map[int64]review{}, map[int64]status{}
	newest := int64(0)
	err := pages(ctx, l, op, reviewsOf(name, d.Number), nil, func(r review) {
		if r.by(d.Reviewer.ID) && (r.State == approved || r.State == rejected) {
			if r.evaluation() == d.Evaluation {
				reviews[r.ID] = r
			}
			// Another gate's or a person's takes the weight off ours, too, and
			// is no later result of ours: that is found when it is read back.
			if r.of(d.Gate) {
				newest = max(newest, r.ID)
			}
		}
	})
	if err == nil {
		err = pages(ctx, l, op, "/repos/"+name+"/commits/"+head.String()+"/statuses", nil, func(s status) {
			if s.by(d.Reviewer.ID) && s.Context == d.Check && s.evaluation() == d.Evaluation {
				statuses[s.ID] = s
			}
		})
	}
	if err != nil {
		return shownResult{}, err
	}
	var found shownResult
	for id, r := range reviews {
		if d.takesBack(r) {
			found.overtaken = true
			delete(reviews, id)
		}
	}
	switch {
	case len(reviews) > 1:
		return shownResult{}, conflict(op, fmt.Sprintf("%d reviews name this evaluation", len(reviews)))
	case len(statuses) > 1:
		return shownResult{}, conflict(op, fmt.Sprintf("%d statuses name this evaluation", len(statuses)))
	}
	// At most one of each is left.
	for id, r := range reviews {
		found.review = &r
		if field := d.differs(r); field != "" {
			return shownResult{}, conflict(op, "the review's "+field+" is not what was staged")
		}
		found.overtaken = found.overtaken || newest > id
	}
	for _, s := range statuses {
		found.status = &s
		if field := d.statusDiffers(s); field != "" {
			return shownResult{}, conflict(op, "the status's "+field+" is not what was staged")
		}
	}
	return found, l.unreviewed(ctx, name, d, &found)
}

// unreviewed finds out whether a block whose status is shown has no review
// because none can be had. The author of a request stays the same.
func (l *Lane) unreviewed(ctx context.Context, name string, d document, s *shownResult) error {
	if d.Passes() || s.status == nil || s.review != nil {
		return nil
	}
	var known bool
	if s.alone, known = l.authored.known(d.Number); known {
		return nil
	}
	v, err := d.Verdict()
	if err == nil {
		_, s.alone, err = l.readPull(ctx, name, v.Subject)
	}
	return err
}

// differs names the first thing in which a review is not what d stands for, or
// "".
func (d document) differs(r review) string {
	switch {
	case r.ID <= 0:
		return "id"
	case !r.by(d.Reviewer.ID):
		return "user"
	case r.State != d.review():
		return "state"
	case r.CommitID != d.HeadSHA:
		return "commit"
	case !sameText(r.Body, d.Shown):
		return "body"
	}
	return ""
}

// statusDiffers is the same for a status.
func (d document) statusDiffers(s status) string {
	switch {
	case s.ID <= 0:
		return "id"
	case !s.by(d.Reviewer.ID):
		return "creator"
	case s.Context != d.Check:
		return "context"
	case s.State != d.status():
		return "state"
	case s.Description != d.description():
		return "description"
	}
	return ""
}

func conflict(op, text string) error {
	return forge.Fail(op, fencepost.ReasonPublishConflict, errors.New(text))
}
