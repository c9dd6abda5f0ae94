package gitea

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"

	"golang.org/x/sync/errgroup"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/forge"
	"github.com/fencepost/fencepost/internal/gate"
)

// A publication is two writes, and a crash, a lost answer or a moved head can
// come between them. Neither alone opens a gate: the rule asks for both. A pass
// is reviewed first, read back, and only then said of the commit; a block is
// said of the commit first. A repeat writes only what is missing.

// Find implements [gate.Publisher]: it is shown when both review and status
// are.
func (l *Lane) Find(ctx context.Context, data []byte) (gate.Published, bool, error) {
	const op = "find review and status"
	d, head, err := l.mine(op, data)
	if err != nil {
		return gate.Published{}, false, err
	}
	name, err := l.identity(ctx)
	if err != nil {
		return gate.Published{}, false, err
	}
	s, err := l.show(ctx, name, d, head)
	switch {
	case err != nil:
		return gate.Published{}, false, err
	case s.whole():
		if err := l.counts(ctx, op, name, d, s); err != nil {
			return gate.Published{}, false, err
		}
		return s.published(), true, nil
	case s.overtaken:
		return gate.Published{}, false, forge.Fail(op, fencepost.ReasonSuperseded, gate.ErrOvertaken)
	}
	return gate.Published{}, false, nil
}

// Create implements [gate.Publisher]. It writes under the name that the last
// reading of the gate proved, a moment ago; the request, which is read again
// before a pass is said of the commit, names the repository by its id.
func (l *Lane) Create(ctx context.Context, data []byte) (gate.Published, error) {
	const op = "publish"
	d, head, err := l.mine(op, data)
	if err != nil {
		return gate.Published{}, err
	}
	name, right := l.lastName()
	if !right {
		if name, err = l.identity(ctx); err != nil {
			return gate.Published{}, err
		}
	}
	s, err := l.show(ctx, name, d, head)
	switch {
	case err != nil:
		return gate.Published{}, err
	case s.whole():
		return s.published(), l.counts(ctx, op, name, d, s)
	case s.overtaken:
		return gate.Published{}, forge.Fail(op, fencepost.ReasonSuperseded, gate.ErrOvertaken)
	}
	if d.Passes() {
		err = l.pass(ctx, name, d, &s)
	} else {
		err = l.block(ctx, name, d, &s)
	}
	if err != nil {
		return gate.Published{}, err
	}
	return s.published(), nil
}

// pass approves, makes sure that the approval counts and is for the head of
// now, and only then says of the commit that it passed.
func (l *Lane) pass(ctx context.Context, name string, d document, s *shownResult) error {
	if err := l.postReview(ctx, name, d, s); err != nil {
		return err
	}
	if err := l.readBack(ctx, name, d, s.review.ID); err != nil {
		return err
	}
	return l.postStatus(ctx, name, d, s)
}

// block says of the commit that it failed, and requests changes where that can
// be done.
func (l *Lane) block(ctx context.Context, name string, d document, s *shownResult) error {
	err := l.postStatus(ctx, name, d, s)
	if err == nil {
		err = l.unreviewed(ctx, name, d, s)
	}
	if err != nil || s.alone {
		return err
	}
	return l.postReview(ctx, name, d, s)
}

// errWeightless: what was to open the gate does not.
var errWeightless = errors.New("the approval does not count: it was dismissed, or the reviewer is not on the list, or has reviewed otherwise since")

// counts reports an approval that is shown with its status and opens nothing,
// though its head is still to be merged and no later result of ours has taken
// its place. Trap 20
func (l *Lane) counts(ctx context.Context, op, name string, d document, s shownResult) error {
	if !d.Passes() || s.overtaken || s.review.counts() {
		return nil
	}
	v, err := d.Verdict()
	if err != nil {
		return err
	}
	// After a push, say, the server dismisses approvals by itself.
	if ended, _, err := l.readPull(ctx, name, v.Subject); err != nil || ended != fencepost.ReasonNone {
		return err
	}
	return forge.Fail(op, fencepost.ReasonGateUnproven, errWeightless)
}

// postReview posts the review, unless it is shown.
func (l *Lane) postReview(ctx context.Context, name string, d document, s *shownResult) error {
	const op = "post review"
	if s.review != nil {
		return nil
	}
	r, err := l.sendReview(ctx, op, name, d, d.review(), d.Shown)
	if err != nil {
		return err
	}
	if field := d.differs(r); field != "" {
		return conflict(op, "the new review's "+field+" is not what was staged")
	}
	s.review = &r
	return nil
}

func (l *Lane) sendReview(ctx context.Context, op, name string, d document, event, body string) (review, error) {
	a, err := l.config.Reviews.Post(ctx, op, reviewsOf(name, d.Number), map[string]any{
		"event": event, "body": body, "commit_id": d.HeadSHA,
	})
	if err != nil {
		return review{}, written(err)
	}
	var r review
	if err := forge.Decode(op, a.Body, &r); err != nil {
		return review{}, unknown(err)
	}
	return r, nil
}

// postStatus posts the status, unless it is shown.
func (l *Lane) postStatus(ctx context.Context, name string, d document, s *shownResult) error {
	const op = "post status"
	if s.status != nil {
		return nil
	}
	a, err := l.config.Reviews.Post(ctx, op, "/repos/"+name+"/statuses/"+d.HeadSHA, map[string]any{
		"state": d.status(), "context": d.Check, "description": d.description(),
	})
	if err != nil {
		return written(err)
	}
	var got status
	if err := forge.Decode(op, a.Body, &got); err != nil {
		return unknown(err)
	}
	if field := d.statusDiffers(got); field != "" {
		return conflict(op, "the new status's "+field+" is not what was staged")
	}
	s.status = &got
	return nil
}

// readBack reads the approval and the head again, since an approval is not
// bound to its commit: for a head that moved it would count as well. Then it is
// taken back. Traps 1 and 18
func (l *Lane) readBack(ctx context.Context, name string, d document, id int64) error {
	const op = "read review back"
	var r review
	var ended fencepost.Reason
	g, reads := errgroup.WithContext(ctx)
	g.Go(func() error {
		a, err := l.config.Reviews.Get(reads, op, reviewsOf(name, d.Number)+"/"+strconv.FormatInt(id, 10), "")
		if err != nil {
			return err
		}
		if a.Status == http.StatusNotFound {
			return conflict(op, "the review is gone")
		}
		return forge.Decode(op, a.Body, &r)
	})
	g.Go(func() error {
		v, err := d.Verdict()
		if err == nil {
			ended, _, err = l.readPull(reads, name, v.Subject)
		}
		return err
	})
	if err := g.Wait(); err != nil {
		// Not known whether the head moved: the approval stays without its
		// status, and the next attempt looks again.
		return unknown(err)
	}
	if ended == fencepost.ReasonSuperseded {
		return l.takeBack(ctx, name, d)
	}
	switch field := d.differs(r); {
	case field != "":
		return conflict(op, "the review's "+field+" is not what was staged")
	case ended != fencepost.ReasonNone:
		return forge.Fail(op, ended, errors.New("the request has ended"))
	case !r.counts():
		return forge.Fail(op, fencepost.ReasonGateUnproven, errWeightless)
	}
	return nil
}

// Retract implements [gate.Retracter]: an approval whose status never followed
// is taken back, unless the request is closed, where nothing can be reviewed
// and nothing merged.
func (l *Lane) Retract(ctx context.Context, data []byte) error {
	const op = "retract"
	d, head, err := l.mine(op, data)
	if err != nil {
		return err
	}
	name, err := l.identity(ctx)
	if err != nil {
		return err
	}
	s, err := l.show(ctx, name, d, head)
	if err != nil || s.overtaken || s.review == nil || !d.Passes() {
		return err
	}
	v, err := d.Verdict()
	if err != nil {
		return err
	}
	switch ended, _, err := l.readPull(ctx, name, v.Subject); {
	case err != nil:
		return err
	case ended == fencepost.ReasonClosed:
		return nil
	}
	if err := l.takeBack(ctx, name, d); !errors.Is(err, gate.ErrOvertaken) {
		return err
	}
	return nil
}

// takeBack requests changes, by which the approval before it stops to count.
func (l *Lane) takeBack(ctx context.Context, name string, d document) error {
	const op = "take approval back"
	r, err := l.sendReview(ctx, op, name, d, rejected, d.takenBack())
	if err != nil {
		return err
	}
	if !r.by(d.Reviewer.ID) || r.State != rejected {
		return unknown(forge.Fail(op, fencepost.ReasonProvider, errOther))
	}
	return forge.Fail(op, fencepost.ReasonSuperseded, gate.ErrOvertaken)
}

// written turns the error of a write into what a publication knows it by.
func written(err error) error {
	if errors.Is(err, forge.ErrUnanswered) {
		return unknown(err)
	}
	return err
}

// unknown marks an error after which only a look-up can tell.
func unknown(err error) error {
	return forge.Fail("publish", fencepost.ReasonOf(err), fmt.Errorf("%w: %w", gate.ErrUnknown, err))
}

// mine reads a document and refuses one of another repository or reviewer than
// the gate's: after a change of configuration there is nobody to publish it as.
func (l *Lane) mine(op string, data []byte) (document, fencepost.CommitID, error) {
	d, err := parseDocument(data)
	if err != nil {
		return document{}, fencepost.CommitID{}, forge.Fail(op, fencepost.ReasonCorrupt, err)
	}
	if d.Repository.ID != l.config.Repository.ID || d.Reviewer.ID != l.config.Reviewer.ID || d.Gate != string(l.config.Gate) {
		return document{}, fencepost.CommitID{}, forge.Fail(op, fencepost.ReasonIdentity, fmt.Errorf(
			"staged by gate %s for repository %d as user %d", d.Gate, d.Repository.ID, d.Reviewer.ID))
	}
	head, err := fencepost.ParseCommitID(d.HeadSHA)
	return d, head, err
}
