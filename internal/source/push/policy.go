package push

import (
	"fmt"
	"strings"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/strictjson"
)

// A Policy is what a push must agree with. DESIGN §9
type Policy struct {
	// RepositoryID and OwnerID are the provider's, which never change; above 0.
	RepositoryID, OwnerID int64
	// FullName is the exact owner/name; of GitLab, where groups are within
	// groups, all of the path.
	FullName string
	// Ref is the exact full name of the branch: refs/heads/main.
	Ref string
	// Senders may push. Empty: AnyWriter must be set.
	Senders []Sender
	// AnyWriter takes a push by whoever may write to the repository.
	AnyWriter bool
	// Installation is the id of the App's installation that deliveries of
	// GitHub come by; zero where the source has no App.
	Installation int64
	// JSON bounds the body; zero fields are DESIGN §4's.
	JSON strictjson.Limits
	// Decoders, where set, are those that many sources share, with limits of
	// their own; nil means new ones with JSON.
	Decoders *Decoders
}

// Decoders read pushes strictly. They are larger than all else that a source
// needs to admit one. They are safe for concurrent use.
type Decoders struct {
	event       *strictjson.Decoder[event]
	push        *strictjson.Decoder[pushEvent]
	gitlabEvent *strictjson.Decoder[gitlabEventBody]
	gitlabPush  *strictjson.Decoder[gitlabPushBody]
}

// NewDecoders makes decoders with the given limits; zero fields are DESIGN
// §4's.
func NewDecoders(l strictjson.Limits) *Decoders {
	return &Decoders{
		event: strictjson.NewDecoder[event](l), push: strictjson.NewDecoder[pushEvent](l),
		gitlabEvent: strictjson.NewDecoder[gitlabEventBody](l), gitlabPush: strictjson.NewDecoder[gitlabPushBody](l),
	}
}

// A Sender is a person by both of the provider's names, which must both agree.
type Sender struct {
	// ID never changes; above 0.
	ID int64
	// Login is the exact account name.
	Login string
}

// Validate reports the first fault; its error matches [fencepost.ErrMalformed]
// and names the field.
func (p Policy) Validate() error {
	bad := func(what string) error { return fmt.Errorf("%s: %w", what, fencepost.ErrMalformed) }
	owner, name, ok := strings.Cut(p.FullName, "/")
	branch, isBranch := strings.CutPrefix(p.Ref, "refs/heads/")
	switch {
	case p.RepositoryID <= 0 || p.OwnerID <= 0:
		return bad("repository: id and owner_id must be above 0")
	case !ok || owner == "" || name == "":
		return bad("repository: name must be owner/name")
	case !isBranch || branch == "":
		return bad("ref must be refs/heads/ and a branch")
	case p.AnyWriter == (len(p.Senders) > 0):
		return bad("senders must be a list of accounts, or any_writer")
	case p.Installation < 0:
		return bad("installation must not be below 0")
	}
	for i, s := range p.Senders {
		if s.ID <= 0 || s.Login == "" {
			return bad(fmt.Sprintf("senders[%d]: id and login must be set", i))
		}
	}
	return nil
}
