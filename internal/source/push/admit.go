package push

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/source"
)

// A Push is what an admitted delivery says. ID and Body are made for the
// fields of those names of a [source.DeliveryRow].
type Push struct {
	// Commit is the head that it announces.
	Commit fencepost.CommitID
	// ID is the digest of the provider's delivery id, which is only ever
	// compared, since but GitLab's is not signed; zero if there was none.
	ID source.Digest
	// Body is the SHA-256 of the exact body; of GitLab's, a digest of that with
	// the signed id, without which the same change made again has the same
	// bytes.
	Body source.Digest
}

// An Admitter admits the pushes of one source. It is safe for concurrent use.
type Admitter struct {
	policy  Policy
	dialect dialect
	owner   string
	name    string

	decoders *Decoders
}

// A dialect is in what the providers differ.
type dialect struct {
	// event and delivery are headers. Neither is signed: what the first says
	// counts only as far as the signed body agrees.
	event, delivery string
	// saysDeleted: every push says whether it deleted the ref.
	saysDeleted bool
	// namesPusher: the pusher is an account, the same as the sender.
	namesPusher bool
	// nested: groups are within groups, so that names may hold slashes.
	nested bool
	// gitlab: all else differs too.
	gitlab bool
}

// GitHub admits pushes of github.com and GitHub Enterprise Server. Its error
// is of [Policy.Validate].
func GitHub(p Policy) (*Admitter, error) {
	return newAdmitter(p, dialect{event: "x-github-event", delivery: "x-github-delivery", saysDeleted: true})
}

// GitHubHeaders and GiteaHeaders are the headers, beside those of the
// signature, that deliveries have: those with one of them twice are ambiguous.
func GitHubHeaders() []string { return []string{"x-github-event", "x-github-delivery"} }

// GiteaHeaders are those of Gitea and Forgejo.
func GiteaHeaders() []string { return []string{"x-gitea-event", "x-gitea-delivery"} }

// Gitea admits pushes of Gitea and Forgejo, which send the same headers and
// fields. Its error is of [Policy.Validate].
func Gitea(p Policy) (*Admitter, error) {
	return newAdmitter(p, dialect{event: "x-gitea-event", delivery: "x-gitea-delivery", namesPusher: true})
}

func newAdmitter(p Policy, d dialect) (*Admitter, error) {
	if err := p.Validate(); err != nil {
		return nil, fmt.Errorf("push policy: %w", err)
	}
	p.Senders = slices.Clone(p.Senders)
	if p.Decoders == nil {
		p.Decoders = NewDecoders(p.JSON)
	}
	owner, name, _ := strings.Cut(p.FullName, "/")
	if !d.nested && strings.Contains(name, "/") {
		return nil, fmt.Errorf("push policy: repository: name must be owner/name: %w", fencepost.ErrMalformed)
	}
	return &Admitter{policy: p, dialect: d, owner: owner, name: name, decoders: p.Decoders}, nil
}

// The fields that are looked at. Pointers tell what is absent from what is
// zero.
type event struct {
	Repository   *repository `json:"repository"`
	Installation *named      `json:"installation"`
}

type pushEvent struct {
	Repository   *repository `json:"repository"`
	Installation *named      `json:"installation"`
	Ref          *string     `json:"ref"`
	After        *string     `json:"after"`
	Deleted      *bool       `json:"deleted"`
	HeadCommit   *struct {
		ID *string `json:"id"`
	} `json:"head_commit"`
	Pusher *named  `json:"pusher"`
	Sender *sender `json:"sender"`
}

type named struct {
	ID *int64 `json:"id"`
}

type repository struct {
	ID       *int64  `json:"id"`
	Name     *string `json:"name"`
	FullName *string `json:"full_name"`
	Owner    *struct {
		ID    *int64  `json:"id"`
		Login *string `json:"login"`
	} `json:"owner"`
	// Gitea's and Forgejo's.
	ObjectFormat *string `json:"object_format_name"`
}

type sender struct {
	ID    *int64  `json:"id"`
	Login *string `json:"login"`
}

// Admit judges one authenticated delivery. Its error is a [fencepost.Error]
// with [fencepost.ReasonEventNotHandled], [fencepost.ReasonMalformed] or
// [fencepost.ReasonUnauthorized], and holds nothing of the delivery.
//
// A delivery that announces no change, such as Gitea's test delivery, whose
// before and after are one, is admitted: it names the head, and the head has
// been applied or has to be.
func (a *Admitter) Admit(h fencepost.Headers, body []byte) (Push, error) {
	if a.dialect.gitlab {
		return a.admitGitLab(h, body)
	}
	kind, ok := h.Only(a.dialect.event)
	if !ok {
		return Push{}, refuse(fencepost.ReasonMalformed, "no event header, or several")
	}
	if kind != "push" {
		return Push{}, a.judgeOther(body)
	}
	id, err := a.deliveryID(h)
	if err != nil {
		return Push{}, err
	}
	e, err := a.decoders.push.Decode(body)
	if err != nil {
		return Push{}, refuse(fencepost.ReasonMalformed, "not one valid JSON object")
	}
	commit, err := a.judgePush(e)
	if err != nil {
		return Push{}, err
	}
	return Push{Commit: commit, ID: id, Body: sha256.Sum256(body)}, nil
}

// deliveryID digests the delivery's id, whatever it looks like: it is compared
// and nothing else.
func (a *Admitter) deliveryID(h fencepost.Headers) (source.Digest, error) {
	values := h.Values(a.dialect.delivery)
	switch {
	case len(values) > 1:
		return source.Digest{}, refuse(fencepost.ReasonMalformed, "several delivery headers")
	case len(values) == 0 || values[0] == "":
		return source.Digest{}, nil
	}
	return deliveryDigest(values[0]), nil
}

func deliveryDigest(id string) source.Digest {
	return fencepost.NewEncoder("fencepost.delivery-id/v1").Text(id).Sum()
}

// judgeOther judges an event that is no push. Ids alone tell whose it is: an
// event that tells of a new name is the repository's own.
func (a *Admitter) judgeOther(body []byte) error {
	e, err := a.decoders.event.Decode(body)
	if err != nil {
		return refuse(fencepost.ReasonMalformed, "not one valid JSON object")
	}
	if err := a.identifyInstallation(e.Installation); err != nil {
		return err
	}
	// A ping, and what concerns an installation, names no repository.
	if e.Repository != nil {
		if err := a.identifyByID(*e.Repository); err != nil {
			return err
		}
	}
	return refuse(fencepost.ReasonEventNotHandled, "another event")
}

// judgePush returns the commit that a push announces.
func (a *Admitter) judgePush(e pushEvent) (fencepost.CommitID, error) {
	if err := a.identify(e); err != nil {
		return fencepost.CommitID{}, err
	}
	if e.Ref == nil || (a.dialect.saysDeleted && e.Deleted == nil) {
		return fencepost.CommitID{}, missing()
	}
	if *e.Ref != a.policy.Ref {
		return fencepost.CommitID{}, refuse(fencepost.ReasonEventNotHandled, "another ref")
	}
	if e.Deleted != nil && *e.Deleted {
		return fencepost.CommitID{}, unauthorized("the ref was deleted")
	}
	commit, err := head(e)
	if err != nil {
		return fencepost.CommitID{}, err
	}
	return commit, a.authorize(e)
}

// identify holds what a push says of its repository against the policy.
func (a *Admitter) identify(e pushEvent) error {
	if err := a.identifyInstallation(e.Installation); err != nil {
		return err
	}
	r := e.Repository
	if r == nil || r.FullName == nil || r.Name == nil {
		return missing()
	}
	if err := a.identifyByID(*r); err != nil {
		return err
	}
	switch {
	case *r.FullName != a.policy.FullName, *r.Name != a.name:
		return unauthorized("another name of the repository")
	case r.Owner.Login != nil && *r.Owner.Login != a.owner:
		return unauthorized("the owner's name contradicts the repository's")
	case r.ObjectFormat != nil && *r.ObjectFormat != "" && *r.ObjectFormat != "sha1":
		return unauthorized("another object format")
	}
	return nil
}

func (a *Admitter) identifyByID(r repository) error {
	if r.ID == nil || r.Owner == nil || r.Owner.ID == nil {
		return missing()
	}
	if *r.ID != a.policy.RepositoryID || *r.Owner.ID != a.policy.OwnerID {
		return unauthorized("another repository or owner")
	}
	return nil
}

func (a *Admitter) identifyInstallation(i *named) error {
	switch {
	case i == nil || a.policy.Installation == 0:
		return nil
	case i.ID == nil:
		return missing()
	case *i.ID != a.policy.Installation:
		return unauthorized("another installation")
	}
	return nil
}

// head returns the commit that both fields for it name.
func head(e pushEvent) (fencepost.CommitID, error) {
	if e.After == nil || e.HeadCommit == nil || e.HeadCommit.ID == nil {
		return fencepost.CommitID{}, missing()
	}
	commit, err := fencepost.ParseCommitID(*e.After)
	if err != nil {
		return fencepost.CommitID{}, refuse(fencepost.ReasonMalformed, "after is not a full commit id")
	}
	if *e.HeadCommit.ID != *e.After {
		return fencepost.CommitID{}, unauthorized("head_commit contradicts after")
	}
	return commit, nil
}

// authorize judges who pushed.
func (a *Admitter) authorize(e pushEvent) error {
	if a.dialect.namesPusher && e.Pusher != nil && e.Sender != nil &&
		e.Pusher.ID != nil && e.Sender.ID != nil && *e.Pusher.ID != *e.Sender.ID {
		return unauthorized("pusher and sender are two")
	}
	if a.policy.AnyWriter {
		return nil
	}
	switch {
	case e.Sender == nil:
		return unauthorized("nobody is named as the sender")
	case e.Sender.ID == nil || e.Sender.Login == nil:
		return missing()
	case !slices.Contains(a.policy.Senders, Sender{ID: *e.Sender.ID, Login: *e.Sender.Login}):
		return unauthorized("the sender is not on the list")
	}
	return nil
}

func missing() error { return refuse(fencepost.ReasonMalformed, "a needed field is missing") }

func unauthorized(text string) error { return refuse(fencepost.ReasonUnauthorized, text) }

func refuse(why fencepost.Reason, text string) error {
	return &fencepost.Error{Op: "admit push", Reason: why, Err: errors.New(text)}
}
