package push

import (
	"crypto/sha256"
	"slices"

	"github.com/fencepost/fencepost"
)

const (
	gitlabEvent = "x-gitlab-event"
	// gitlabID is signed, unlike the ids of other providers' deliveries.
	gitlabID = "webhook-id"
)

// GitLabHeaders are the headers, beside those of the signature, that
// deliveries have.
func GitLabHeaders() []string { return []string{gitlabEvent} }

// GitLab admits pushes of GitLab's project and group webhooks, signed by
// Standard Webhooks. They say nothing of the project's namespace but its path:
// its id is proven by the API before the fetch. Its error is of
// [Policy.Validate].
//
// A group's webhook tells of all its projects, and a sender that is answered
// anything but 200 or 201 is stopped: whoever answers it must count what is
// refused here as ignored.
func GitLab(p Policy) (*Admitter, error) {
	return newAdmitter(p, dialect{event: gitlabEvent, gitlab: true, nested: true})
}

// A gitlabEventBody is what every event of a project says. contracts/gitlab.md
// §4
type gitlabEventBody struct {
	ObjectKind *string        `json:"object_kind"`
	ProjectID  *int64         `json:"project_id"`
	Project    *gitlabProject `json:"project"`
}

type gitlabPushBody struct {
	ObjectKind   *string        `json:"object_kind"`
	EventName    *string        `json:"event_name"`
	Ref          *string        `json:"ref"`
	After        *string        `json:"after"`
	CheckoutSHA  *string        `json:"checkout_sha"`
	UserID       *int64         `json:"user_id"`
	UserUsername *string        `json:"user_username"`
	ProjectID    *int64         `json:"project_id"`
	Project      *gitlabProject `json:"project"`
}

type gitlabProject struct {
	ID   *int64  `json:"id"`
	Path *string `json:"path_with_namespace"`
}

// admitGitLab is [Admitter.Admit] for GitLab. What the delivery is, the signed
// body says; the header must not contradict it.
func (a *Admitter) admitGitLab(h fencepost.Headers, body []byte) (Push, error) {
	kind, ok := h.Only(gitlabEvent)
	if !ok {
		return Push{}, refuse(fencepost.ReasonMalformed, "no event header, or several")
	}
	id, ok := h.Only(gitlabID)
	if !ok || id == "" {
		return Push{}, refuse(fencepost.ReasonMalformed, "no message id, or several")
	}
	if kind != "Push Hook" {
		return Push{}, a.judgeOtherGitLab(body)
	}
	e, err := a.decoders.gitlabPush.Decode(body)
	if err != nil {
		return Push{}, refuse(fencepost.ReasonMalformed, "not one valid JSON object")
	}
	commit, err := a.judgeGitLab(e)
	if err != nil {
		return Push{}, err
	}
	// The bytes of a push don't tell it from the same change made again, and
	// the message id does.
	sum := sha256.Sum256(body)
	return Push{
		Commit: commit, ID: deliveryDigest(id),
		Body: fencepost.NewEncoder("fencepost.delivery-body/v1").Text(id).Bytes(sum[:]).Sum(),
	}, nil
}

// judgeOtherGitLab judges an event that is no push.
func (a *Admitter) judgeOtherGitLab(body []byte) error {
	e, err := a.decoders.gitlabEvent.Decode(body)
	if err != nil {
		return refuse(fencepost.ReasonMalformed, "not one valid JSON object")
	}
	if e.ObjectKind != nil && *e.ObjectKind == "push" {
		return unauthorized("the header contradicts the body")
	}
	// An event of a group names no project.
	if e.ProjectID != nil || e.Project != nil {
		if err := a.identifyGitLab(e.ProjectID, e.Project); err != nil {
			return err
		}
	}
	return refuse(fencepost.ReasonEventNotHandled, "another event")
}

// identifyGitLab holds a project's id against the policy. Pushes have it twice,
// other events in one of the two places.
func (a *Admitter) identifyGitLab(id *int64, p *gitlabProject) error {
	if p != nil && p.ID != nil {
		if id != nil && *id != *p.ID {
			return unauthorized("two ids of the project")
		}
		id = p.ID
	}
	switch {
	case id == nil:
		return missing()
	case *id != a.policy.RepositoryID:
		return unauthorized("another project")
	}
	return nil
}

// judgeGitLab returns the commit that a push announces.
func (a *Admitter) judgeGitLab(e gitlabPushBody) (fencepost.CommitID, error) {
	if err := a.identifyGitLab(e.ProjectID, e.Project); err != nil {
		return fencepost.CommitID{}, err
	}
	if e.ObjectKind == nil || e.EventName == nil || e.Project == nil || e.Project.Path == nil || e.Ref == nil || e.After == nil {
		return fencepost.CommitID{}, missing()
	}
	switch {
	case *e.ObjectKind != "push" || *e.EventName != "push":
		return fencepost.CommitID{}, unauthorized("the header contradicts the body")
	case *e.Project.Path != a.policy.FullName:
		return fencepost.CommitID{}, unauthorized("another path of the project")
	case *e.Ref != a.policy.Ref:
		return fencepost.CommitID{}, refuse(fencepost.ReasonEventNotHandled, "another ref")
	}
	commit, err := announced(*e.After)
	if err != nil {
		return fencepost.CommitID{}, err
	}
	if e.CheckoutSHA != nil && *e.CheckoutSHA != *e.After {
		return fencepost.CommitID{}, unauthorized("checkout_sha contradicts after")
	}
	if a.policy.AnyWriter {
		return commit, nil
	}
	switch {
	case e.UserID == nil || e.UserUsername == nil:
		return fencepost.CommitID{}, missing()
	case !slices.Contains(a.policy.Senders, Sender{ID: *e.UserID, Login: *e.UserUsername}):
		return fencepost.CommitID{}, unauthorized("the sender is not on the list")
	}
	return commit, nil
}

// How long ids are, of projects of either object format.
const sha1Digits, sha256Digits = 40, 64

// announced reads the commit that a branch is at after a push.
func announced(after string) (fencepost.CommitID, error) {
	for _, digits := range []int{sha1Digits, sha256Digits} {
		if len(after) == digits && allZero(after) {
			return fencepost.CommitID{}, unauthorized("the ref was deleted")
		}
	}
	if len(after) == sha256Digits {
		return fencepost.CommitID{}, unauthorized("another object format")
	}
	commit, err := fencepost.ParseCommitID(after)
	if err != nil {
		return fencepost.CommitID{}, refuse(fencepost.ReasonMalformed, "after is not a full commit id")
	}
	return commit, nil
}

func allZero(s string) bool {
	return !slices.ContainsFunc([]byte(s), func(c byte) bool { return c != '0' })
}
