package remote

import (
	"errors"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/gitfetch"
)

var (
	errNoBranch = errors.New("the branch is not there")
	errNoSecret = errors.New("the credential is empty")
	errSecret   = errors.New("the credential could not be had")
	errQuiet    = errors.New("held back: the server asked us to wait")
)

// Bounds of the time that a Git server can ask us to leave it alone: beyond
// the upper one a source would be blind for longer than its alert takes.
const (
	usualQuiet = time.Minute // where it does not say how long
	maxQuiet   = 10 * time.Minute
)

func fail(op string, why fencepost.Reason, err error) error {
	return &fencepost.Error{Op: op, Reason: why, Err: err}
}

// A repositoryError is a failure that what the repository has become may
// explain better.
type repositoryError struct{ error }

// Unwrap returns the failure.
func (e *repositoryError) Unwrap() error { return e.error }

func ofRepository(err error) bool {
	_, ok := errors.AsType[*repositoryError](err)
	return ok
}

// closed gives an error one of the reasons that [source.Remote] lists.
func closed(op string, err error) error {
	switch why := fencepost.ReasonOf(err); why {
	case fencepost.ReasonIdentity, fencepost.ReasonCommitGone, fencepost.ReasonCredential, fencepost.ReasonRateLimited,
		fencepost.ReasonProvider, fencepost.ReasonAcquisition, fencepost.ReasonContent:
		return fail(op, why, err)
	}
	if _, ok := errors.AsType[*fencepost.Error](err); ok && fencepost.ReasonOf(err) == fencepost.ReasonUnavailable {
		return fail(op, fencepost.ReasonUnavailable, err)
	}
	return fail(op, fencepost.ReasonProvider, err)
}

// ofCredential gives the failure to get a credential its reason. The text of
// one without a reason may say where a secret is kept, so it goes no further.
func ofCredential(op string, err error) error {
	switch why := fencepost.ReasonOf(err); why {
	case fencepost.ReasonIdentity, fencepost.ReasonCommitGone, fencepost.ReasonCredential, fencepost.ReasonRateLimited,
		fencepost.ReasonProvider:
		return fail(op, why, err)
	}
	return fail(op, fencepost.ReasonCredential, errSecret)
}

// judge gives a failure of Git its reason, and notes a wish to be left alone.
func (r *Remote) judge(op string, err error) error {
	switch {
	case errors.Is(err, gitfetch.ErrRateLimited):
		status, _ := errors.AsType[*gitfetch.StatusError](err)
		r.beQuiet(status.RetryAfter)
		return fail(op, fencepost.ReasonRateLimited, err)
	case errors.Is(err, gitfetch.ErrNotOurRef):
		return fail(op, fencepost.ReasonCommitGone, err)
	case errors.Is(err, gitfetch.ErrNotFound):
		// If the API shows the repository, it is the credential that is too
		// narrow to read it.
		return &repositoryError{fail(op, fencepost.ReasonCredential, err)}
	case errors.Is(err, gitfetch.ErrCredential), errors.Is(err, gitfetch.ErrRedirect):
		return &repositoryError{closed(op, err)}
	}
	return closed(op, err)
}

func (r *Remote) quietUntil() time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.quiet
}

func (r *Remote) beQuiet(d time.Duration) {
	if d <= 0 {
		d = usualQuiet
	}
	until := r.config.Now().Add(min(d, maxQuiet))
	r.mu.Lock()
	defer r.mu.Unlock()
	if until.After(r.quiet) {
		r.quiet = until
	}
}
