package github

import (
	"errors"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/gate"
)

// EventHeader names the kind of an event. It is not signed: what it says
// counts only as far as the signed body agrees.
const EventHeader = "x-github-event"

// The fields of an event that a gate needs. Pointers tell what is absent from
// what is zero.
type event struct {
	Repository   *eventRepository `json:"repository"`
	Installation *eventID         `json:"installation"`
}

// The fields of a pull_request event beside those.
type pullEvent struct {
	Repository   *eventRepository  `json:"repository"`
	Installation *eventID          `json:"installation"`
	Action       *string           `json:"action"`
	Number       *int64            `json:"number"`
	After        *string           `json:"after"`
	Changes      *eventChanges     `json:"changes"`
	PullRequest  *eventPullRequest `json:"pull_request"`
}

type eventID struct {
	ID *int64 `json:"id"`
}

type eventRepository struct {
	ID    *int64   `json:"id"`
	Owner *eventID `json:"owner"`
}

type eventChanges struct {
	Base *struct{} `json:"base"`
}

type eventPullRequest struct {
	Number *int64 `json:"number"`
	// Head.repo may be null (deleted fork) and is not looked at: the head is
	// fetched from the base repository. contracts/github.md, trap 16
	Head *struct {
		SHA *string `json:"sha"`
	} `json:"head"`
	Base *struct {
		Ref  *string          `json:"ref"`
		Repo *eventRepository `json:"repo"`
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
	if err := l.identify(e); err != nil {
		return gate.Subject{}, err
	}
	// Pings, and everything that our own App causes: its check runs and
	// suites. Its token can't change a request.
	return gate.Subject{}, refuse(fencepost.ReasonEventNotHandled, "another event")
}

// identify holds against the policy whatever the event says of where it comes
// from. An event without a repository (a ping, the installation's own) names
// none and passes; it is no pull request then.
func (l *Lane) identify(e event) error {
	if i := e.Installation; i != nil {
		if i.ID == nil {
			return refuse(fencepost.ReasonMalformed, "installation without an id")
		}
		if *i.ID != l.client.app.Installation {
			return refuse(fencepost.ReasonUnauthorized, "another installation")
		}
	}
	if e.Repository == nil {
		return nil
	}
	return l.identifyRepository(*e.Repository)
}

// identifyRepository compares ids alone: a renamed repository is the same one,
// and an old name may be another's by now.
func (l *Lane) identifyRepository(r eventRepository) error {
	if r.ID == nil || r.Owner == nil || r.Owner.ID == nil {
		return refuse(fencepost.ReasonMalformed, "repository without id or owner")
	}
	if *r.ID != l.config.Repository.ID || *r.Owner.ID != l.config.Repository.OwnerID {
		return refuse(fencepost.ReasonUnauthorized, "another repository or owner")
	}
	return nil
}

// admitPull judges a pull_request event.
func (l *Lane) admitPull(body []byte) (gate.Subject, error) {
	e, err := l.decodePull.Decode(body)
	if err != nil {
		return gate.Subject{}, refuse(fencepost.ReasonMalformed, "not one valid JSON object")
	}
	if err := l.identify(event{e.Repository, e.Installation}); err != nil {
		return gate.Subject{}, err
	}
	return l.judgePull(e)
}

// judgePull judges the pull request of an event whose repository is ours.
func (l *Lane) judgePull(e pullEvent) (gate.Subject, error) {
	pr := e.PullRequest
	if e.Action == nil || e.Repository == nil || pr == nil || pr.Base == nil || pr.Base.Ref == nil || pr.Base.Repo == nil ||
		pr.Head == nil || pr.Head.SHA == nil || pr.Number == nil || e.Number == nil {
		return gate.Subject{}, refuse(fencepost.ReasonMalformed, "a needed field is missing")
	}
	if err := l.identifyRepository(*pr.Base.Repo); err != nil {
		return gate.Subject{}, err
	}
	head, err := fencepost.ParseCommitID(*pr.Head.SHA)
	if err != nil || *pr.Number < 1 {
		return gate.Subject{}, refuse(fencepost.ReasonMalformed, "head or number is not one")
	}
	if *e.Number != *pr.Number || (e.After != nil && *e.After != *pr.Head.SHA) {
		return gate.Subject{}, refuse(fencepost.ReasonUnauthorized, "two fields contradict each other")
	}
	if !handled(*e.Action, e.Changes) {
		return gate.Subject{}, refuse(fencepost.ReasonEventNotHandled, "another action")
	}
	if *pr.Base.Ref != l.branch {
		return gate.Subject{}, refuse(fencepost.ReasonEventNotHandled, "another base")
	}
	return gate.Subject{Number: *pr.Number, Head: head, BaseRef: l.config.BaseRef}, nil
}

// handled is the closed list of actions: those after which another head, base
// or readiness has to be judged. contracts/github.md, trap 15
func handled(action string, changes *eventChanges) bool {
	switch action {
	case "opened", "synchronize", "reopened", "ready_for_review":
		return true
	case "edited":
		return changes != nil && changes.Base != nil
	}
	return false
}

func refuse(why fencepost.Reason, text string) error {
	return &fencepost.Error{Op: "admit", Reason: why, Err: errors.New(text)}
}
