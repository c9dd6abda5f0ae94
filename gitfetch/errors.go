package gitfetch

import (
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"strings"
	"time"
	"unicode"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/gitfetch/internal/object"
	"github.com/fencepost/fencepost/gitfetch/internal/pack"
	"github.com/fencepost/fencepost/gitfetch/internal/pktline"
)

// Sentinels that errors of this package match. Every error of fetching,
// verifying, sweeping and removing is also a [fencepost.Error], whose Reason
// is
//
//	content       the tree breaks a rule of the policy, or an object attacks SHA-1
//	credential    the server wants another credential, or it could not be had
//	rate_limited  the server asked us to wait
//	acquisition   everything else about the server and what it sent
//	tampered      a checkout was changed since
//	unavailable   this machine, the request, or the caller's own context ended
var (
	// ErrRequest: a field of the request is not usable. Nothing was sent.
	ErrRequest = errors.New("request not usable")
	// ErrExists: the directory to make is there already.
	ErrExists = errors.New("directory exists")

	// ErrConnection: no connection could be made, or it broke before the
	// answer was whole. What the system says of it can be matched too.
	ErrConnection = errors.New("connection failed")
	// ErrTLS: the server's certificate is not trusted, or the handshake came to
	// nothing. The errors of crypto/x509 and crypto/tls can be matched too.
	ErrTLS = errors.New("TLS refused")
	// ErrProtocol: an answer that HTTP/1.1 or protocol v2 does not allow, or
	// cut short.
	ErrProtocol = errors.New("answer is not legal protocol v2")
	// ErrNotV2: the server speaks another version, or is no Git server.
	ErrNotV2 = errors.New("server does not speak protocol v2")
	// ErrUnsupported: the server lacks what an exact shallow fetch needs.
	ErrUnsupported = errors.New("server can't do a shallow fetch")
	// ErrObjectFormat: the repository names its objects by SHA-256.
	ErrObjectFormat = errors.New("repository is not a SHA-1 repository")
	// ErrRejected: the server answered with nothing at all: it rejected the
	// request, or died.
	ErrRejected = errors.New("server rejected the request or died")
	// ErrNotOurRef: the server has no object of that id, or does not give it.
	ErrNotOurRef = errors.New("server does not have the commit")
	// ErrRedirect: a redirect that is not allowed.
	ErrRedirect = errors.New("redirect refused")
	// ErrAddress: the server's name leads to an address that is not allowed.
	ErrAddress = errors.New("address refused")
	// ErrCredential: the server refused the credential, or wants one.
	ErrCredential = errors.New("credential refused")
	// ErrNotFound: the server knows no such repository, or hides it.
	ErrNotFound = errors.New("repository not found")
	// ErrRateLimited: the server asked us to wait; see [StatusError].
	ErrRateLimited = errors.New("rate limited")

	// ErrPack: the pack is not well-formed, or not what it says it is.
	ErrPack = errors.New("pack refused")
	// ErrObject: an object is not well-formed.
	ErrObject = errors.New("object refused")
	// ErrCollision: an object carries a SHA-1 collision attack.
	ErrCollision = errors.New("SHA-1 collision attack")
	// ErrNotCommit: the id that was asked for names another kind of object.
	ErrNotCommit = errors.New("not a commit")
	// ErrMissingObject: the tree names an object that was not sent.
	ErrMissingObject = errors.New("object missing")
	// ErrExtraObject: something was sent that the tree does not name.
	ErrExtraObject = errors.New("object that was not asked for")
	// ErrContent: the tree breaks a rule of the policy; see [PathError].
	ErrContent = errors.New("tree refused")

	// ErrAltered: what is on disk is not what was fetched; see [AlteredError].
	ErrAltered = errors.New("checkout altered")
	// ErrRemoved: the checkout was removed.
	ErrRemoved = errors.New("checkout removed")
	// ErrCleanup: something that must not stay could not be removed. It
	// stands beside the error that came first, if there was one. DESIGN §6:
	// an alert, never a success.
	ErrCleanup = errors.New("left something behind")
)

// A PathError says which path of a tree breaks which rule. It matches
// [ErrContent].
type PathError struct {
	// Path is the repository's text: quote it.
	Path string
	// Rule is a code: of [NameRules], or "symlink", "gitlink", "link-target",
	// "link-escape", "link-loop", "duplicate", "collision".
	Rule string
}

// Error quotes the path and names the rule.
func (e *PathError) Error() string {
	return fmt.Sprintf("path %q breaks rule %s", e.Path, e.Rule)
}

// Is reports whether target is [ErrContent].
func (e *PathError) Is(target error) bool { return target == ErrContent }

// An AlteredError says where a checkout differs from its tree. It matches
// [ErrAltered].
type AlteredError struct {
	// Path is the first path found to differ, or "." for the root.
	Path string
	// What differs: "missing", "unexpected", "kind", "mode", "content",
	// "tree".
	What string
}

// Error quotes the path and says what differs.
func (e *AlteredError) Error() string {
	return fmt.Sprintf("checkout altered: %q: %s", e.Path, e.What)
}

// Is reports whether target is [ErrAltered].
func (e *AlteredError) Is(target error) bool { return target == ErrAltered }

// A RemoteError is the server's own report of a failure. It matches
// [ErrNotOurRef] where the server says so.
type RemoteError struct {
	// Text is what the server said, cleaned and cut. It is foreign text: it
	// may be shown to the person who asked for the fetch, and does not belong
	// into logs, which is why [RemoteError.Error] leaves it out.
	Text string

	notOurRef bool
}

// Error says that the server failed, without its words.
func (e *RemoteError) Error() string {
	if e.notOurRef {
		return ErrNotOurRef.Error()
	}
	return "server reported an error"
}

// Is reports whether target is [ErrNotOurRef] and the server said that.
func (e *RemoteError) Is(target error) bool { return target == ErrNotOurRef && e.notOurRef }

// A StatusError is an answer with another HTTP status than 200. It matches
// [ErrCredential] (401, 403), [ErrNotFound] (404, 410), [ErrRateLimited]
// (429, and 503 with a time to wait) and [ErrRedirect] (3xx).
type StatusError struct {
	Status int
	// RetryAfter is how long the server asked to wait, at most a day; 0 where
	// it did not.
	RetryAfter time.Duration
	// Text is the answer's plain text, cleaned and cut to 4 KiB. See
	// [RemoteError] for where it belongs.
	Text string
}

// Error names the status, without the server's words.
func (e *StatusError) Error() string {
	return fmt.Sprintf("server answered %d %s", e.Status, http.StatusText(e.Status))
}

// Is reports whether target is the sentinel of the status.
func (e *StatusError) Is(target error) bool {
	switch target {
	case ErrCredential:
		return e.Status == http.StatusUnauthorized || e.Status == http.StatusForbidden
	case ErrNotFound:
		return e.Status == http.StatusNotFound || e.Status == http.StatusGone
	case ErrRateLimited:
		return e.Status == http.StatusTooManyRequests || e.Status == http.StatusServiceUnavailable && e.RetryAfter > 0
	case ErrRedirect:
		return e.Status >= 300 && e.Status < 400
	}
	return false
}

// sealed gives an error of this package's interior its public shape: a
// [fencepost.Error] with a reason, and sentinels that callers can name.
func sealed(op string, err error) error {
	if err == nil {
		return nil
	}
	err = translate(err)
	return &fencepost.Error{Op: op, Reason: reasonOf(err), Err: err}
}

// translate puts this package's sentinels in front of those of its internal
// packages.
func translate(err error) error {
	if limit, ok := errors.AsType[*object.LimitError](err); ok {
		return &BudgetError{Budget: Budget(limit.Limit), Limit: limit.Max}
	}
	switch {
	case errors.Is(err, object.ErrCollision):
		return fmt.Errorf("%w: %w", ErrCollision, err)
	case errors.Is(err, pack.ErrMalformed), errors.Is(err, pack.ErrChecksum), errors.Is(err, pack.ErrUnresolved), errors.Is(err, pack.ErrDuplicate):
		return fmt.Errorf("%w: %w", ErrPack, err)
	case errors.Is(err, object.ErrMalformed):
		return fmt.Errorf("%w: %w", ErrObject, err)
	case errors.Is(err, pktline.ErrMalformed), errors.Is(err, pktline.ErrTrailing):
		return fmt.Errorf("%w: %w", ErrProtocol, err)
	}
	return err
}

func reasonOf(err error) fencepost.Reason {
	switch {
	case errors.Is(err, ErrContent), errors.Is(err, ErrCollision):
		return fencepost.ReasonContent
	case errors.Is(err, ErrAltered):
		return fencepost.ReasonTampered
	case errors.Is(err, ErrCredential):
		return fencepost.ReasonCredential
	case errors.Is(err, ErrRateLimited):
		return fencepost.ReasonRateLimited
	case errors.Is(err, errHost), errors.Is(err, ErrExists), errors.Is(err, ErrRequest), errors.Is(err, ErrRemoved):
		return fencepost.ReasonUnavailable
	}
	return fencepost.ReasonAcquisition
}

func isBudget(err error) bool {
	_, ok := errors.AsType[*BudgetError](err)
	return ok
}

// errHost marks failures of this machine.
var errHost = errors.New("local failure")

// A hostError is a failure of this machine, without the host's paths.
type hostError struct {
	op  string
	err error
}

func (e *hostError) Error() string        { return e.op + ": " + e.err.Error() }
func (e *hostError) Unwrap() error        { return e.err }
func (e *hostError) Is(target error) bool { return target == errHost }

// host marks err as a failure of this machine and takes the paths of the
// host out of it: they belong to nobody who reads the error. DESIGN §2.16.
func host(op string, err error) error {
	if err == nil {
		return nil
	}
	if pe, ok := errors.AsType[*fs.PathError](err); ok {
		err = pe.Err
	} else if le, ok := errors.AsType[*os.LinkError](err); ok {
		err = le.Err
	}
	return &hostError{op, err}
}

// clean makes foreign text safe to show: valid UTF-8, no control or format
// characters but single spaces for line ends, at most limit bytes.
func clean(text string, limit int) string {
	var b strings.Builder
	for _, r := range strings.ToValidUTF8(text, "?") {
		switch {
		case r == '\n', r == '\r', r == '\t':
			r = ' '
		case !unicode.IsPrint(r):
			r = '?'
		}
		if b.Len()+len(string(r)) > limit {
			break
		}
		b.WriteRune(r)
	}
	return strings.TrimSpace(b.String())
}
