package gitea

import (
	"errors"
	"slices"
	"strings"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/gate"
)

// EventHeader names the kind of an event, the same for both products. It is not
// signed: what it says counts only as far as the signed body agrees.
const EventHeader = "x-gitea-event"

// The fields of an event that a gate needs. Pointers tell what is absent from
// what is zero.
type event struct {
	Repository *eventRepository `json:"repository"`
}

// The fields of a pull_request event beside those.
type pullEvent struct {
	Repository  *eventRepository  `json:"repository"`
	Action      *string           `json:"action"`
	Number      *int64            `json:"number"`
	After       *string           `json:"after"`
	Changes     *eventChanges     `json:"changes"`
	PullRequest *eventPullRequest `json:"pull_request"`
}

type eventRepository struct {
	ID    *int64 `json:"id"`
	Owner *struct {
		ID *int64 `json:"id"`
	} `json:"owner"`
}

type eventChanges struct {
	Ref   *eventFrom `json:"ref"`
	Title *eventFrom `json:"title"`
}

type eventFrom struct {
	From *string `json:"from"`
}

type eventPullRequest struct {
	Number *int64 `json:"number"`
	Draft  *bool  `json:"draft"`
	// Head.repo may be null (deleted fork) and is not looked at: the head is
	// fetched from the base repository. contracts/gitea.md, trap 25
	Head *struct {
		SHA *string `json:"sha"`
	} `json:"head"`
	Base *struct {
		Ref    *string `json:"ref"`
		RepoID *int64  `json:"repo_id"`
	} `json:"base"`
}

// Admit implements [gate.Admitter]. Whose event it is is settled first, then
// what it says, and last whether that is on the closed list. DESIGN §4
func (l *Lane) Admit(h fencepost.Headers, body []byte) (gate.Subject, error) {
	kind, ok := h.Only(EventHeader)
	if !ok {
		return gate.Subject{}, refuse(fencepost.ReasonMalformed, "no event header, or several")
	}
	if kind == "pull_request" {
		return l.admitPull(body)
	}
	e, err := l.decodeEvent.Decode(body)
	if err != nil {
		return gate.Subject{}, refuse(fencepost.ReasonMalformed, "not one valid JSON object")
	}
	if e.Repository != nil {
		if err := l.identify(*e.Repository); err != nil {
			return gate.Subject{}, err
		}
	}
	// Our own reviews among them, which are events of their own kinds.
	return gate.Subject{}, refuse(fencepost.ReasonEventNotHandled, "another event")
}

// identify compares ids alone: a renamed repository is the same one, and an old
// name may be another's by now.
func (l *Lane) identify(r eventRepository) error {
	if r.ID == nil || r.Owner == nil || r.Owner.ID == nil {
		return refuse(fencepost.ReasonMalformed, "repository without id or owner")
	}
	if *r.ID != l.config.Repository.ID || *r.Owner.ID != l.config.Repository.OwnerID {
		return refuse(fencepost.ReasonUnauthorized, "another repository or owner")
	}
	return nil
}

func (l *Lane) admitPull(body []byte) (gate.Subject, error) {
	e, err := l.decodePull.Decode(body)
	if err != nil {
		return gate.Subject{}, refuse(fencepost.ReasonMalformed, "not one valid JSON object")
	}
	pr := e.PullRequest
	if e.Repository == nil {
		return gate.Subject{}, refuse(fencepost.ReasonMalformed, "a needed field is missing")
	}
	if err := l.identify(*e.Repository); err != nil {
		return gate.Subject{}, err
	}
	if e.Action == nil || e.Number == nil || pr == nil || pr.Number == nil || pr.Base == nil || pr.Base.Ref == nil ||
		pr.Base.RepoID == nil || pr.Head == nil || pr.Head.SHA == nil {
		return gate.Subject{}, refuse(fencepost.ReasonMalformed, "a needed field is missing")
	}
	head, err := fencepost.ParseCommitID(*pr.Head.SHA)
	if err != nil || *pr.Number < 1 {
		return gate.Subject{}, refuse(fencepost.ReasonMalformed, "head or number is not one")
	}
	if *e.Number != *pr.Number || *pr.Base.RepoID != *e.Repository.ID || (e.After != nil && *e.After != *pr.Head.SHA) {
		return gate.Subject{}, refuse(fencepost.ReasonUnauthorized, "two fields contradict each other")
	}
	if !handled(*e.Action, e.Changes, pr.Draft) {
		return gate.Subject{}, refuse(fencepost.ReasonEventNotHandled, "another action")
	}
	if *pr.Base.Ref != l.branch {
		return gate.Subject{}, refuse(fencepost.ReasonEventNotHandled, "another base")
	}
	return gate.Subject{Number: *pr.Number, Head: head, BaseRef: l.config.BaseRef}, nil
}

// handled is the closed list of actions: those after which another head, base
// or readiness has to be judged. A request leaves being a draft by its title.
// contracts/gitea.md, trap 8
func handled(action string, changes *eventChanges, draft *bool) bool {
	switch action {
	case "opened", "synchronized", "reopened":
		return true
	case "edited":
		if changes == nil {
			return false
		}
		ready := draft != nil && !*draft && changes.Title != nil && changes.Title.From != nil && unfinished(*changes.Title.From)
		return changes.Ref != nil || ready
	}
	return false
}

// draftPrefixes are what the title of a draft begins with, unless an instance
// is set up otherwise: there, the look at open requests finds what is ready.
func draftPrefixes() []string { return []string{"wip:", "[wip]", "draft:", "[draft]"} }

func unfinished(title string) bool {
	title = strings.ToLower(strings.TrimSpace(title))
	return slices.ContainsFunc(draftPrefixes(), func(p string) bool { return strings.HasPrefix(title, p) })
}

func refuse(why fencepost.Reason, text string) error {
	return &fencepost.Error{Op: "admit", Reason: why, Err: errors.New(text)}
}
