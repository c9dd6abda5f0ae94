package github

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/gate"
)

type pullAnswer struct {
	Number         int64   `json:"number"`
	State          string  `json:"state"`
	Draft          bool    `json:"draft"`
	Mergeable      *bool   `json:"mergeable"`
	MergeCommitSHA *string `json:"merge_commit_sha"`
	Head           struct {
		SHA string `json:"sha"`
	} `json:"head"`
	Base struct {
		Ref  string `json:"ref"`
		Repo struct {
			ID int64 `json:"id"`
		} `json:"repo"`
	} `json:"base"`
}

type refAnswer struct {
	Ref    string `json:"ref"`
	Object struct {
		Type string `json:"type"`
		SHA  string `json:"sha"`
	} `json:"object"`
}

type commitAnswer struct {
	SHA  string `json:"sha"`
	Tree struct {
		SHA string `json:"sha"`
	} `json:"tree"`
	Parents []struct {
		SHA string `json:"sha"`
	} `json:"parents"`
}

// A merge is what one look at a request and its base found.
type merge struct {
	// state is why there is nothing to judge; none, or [fencepost.ReasonNotMergeable].
	state fencepost.Reason
	// ended is set when the request is not what the event said any more.
	ended           bool
	base, candidate gate.Commit
	// parents of the candidate, as the provider lists them.
	parents []fencepost.CommitID
}

// findMerge asks for the request, the tip of its base and its test merge until
// they belong together, or the limit is reached. Only asking for the request
// makes GitHub refresh the test merge, and "mergeable": null means that it has
// begun to. contracts/github.md §8, traps 2 and 3
func (l *Lane) findMerge(ctx context.Context, name string, s gate.Subject) (merge, error) {
	const op = "find test merge"
	limits := l.client.limits
	wait := limits.VisiblePause
	for waited := time.Duration(0); ; waited, wait = waited+wait, min(2*wait, maxVisiblePause) {
		m, err := l.lookForMerge(ctx, name, s)
		if err == nil || !isUnsettled(err) {
			return m, err
		}
		if waited >= limits.NotYetVisible {
			return merge{}, &fencepost.Error{Op: op, Reason: fencepost.ReasonProvider, Err: err}
		}
		if err := pause(ctx, wait); err != nil {
			return merge{}, transportError(call{op: op, method: http.MethodGet}, err)
		}
	}
}

// An unsettledError is a state that GitHub is about to leave.
type unsettledError string

// Error says what is awaited.
func (e unsettledError) Error() string { return string(e) }

func isUnsettled(err error) bool {
	_, ok := err.(unsettledError)
	return ok
}

func (l *Lane) lookForMerge(ctx context.Context, name string, s gate.Subject) (merge, error) {
	pr, err := l.pull(ctx, name, s.Number)
	if err != nil {
		return merge{}, err
	}
	if why := pr.ended(s, l.branch); why != fencepost.ReasonNone {
		return merge{state: why, ended: true}, nil
	}
	tip, err := l.tip(ctx, name)
	if err != nil {
		return merge{}, err
	}
	base, _, err := l.commit(ctx, name, tip)
	if err != nil {
		return merge{}, err
	}
	switch {
	case pr.Mergeable == nil:
		return merge{}, unsettledError("GitHub has not tried the merge yet")
	case !*pr.Mergeable:
		return merge{state: fencepost.ReasonNotMergeable, base: base}, nil
	case pr.MergeCommitSHA == nil:
		return merge{}, providerError("get pull request", "mergeable, but without merge_commit_sha")
	}
	id, err := fencepost.ParseCommitID(*pr.MergeCommitSHA)
	if err != nil {
		return merge{}, providerError("get pull request", "merge_commit_sha is not an object id")
	}
	candidate, parents, err := l.commit(ctx, name, id)
	if err != nil {
		return merge{}, err
	}
	if !sameSet(parents, base.ID, s.Head) {
		return merge{}, unsettledError("the test merge is of another base or head")
	}
	return merge{base: base, candidate: candidate, parents: parents}, nil
}

// sameSet reports whether got holds exactly a and b, in either order.
func sameSet(got []fencepost.CommitID, a, b fencepost.CommitID) bool {
	return a != b && len(got) == 2 && slices.Contains(got, a) && slices.Contains(got, b)
}

// ended tells whether the request has left the state that the event named.
func (p pullAnswer) ended(s gate.Subject, branch string) fencepost.Reason {
	switch {
	case p.State != "open":
		return fencepost.ReasonClosed
	case p.Head.SHA != s.Head.String(), p.Base.Ref != branch:
		return fencepost.ReasonSuperseded
	case p.Draft:
		return fencepost.ReasonDraft
	}
	return fencepost.ReasonNone
}

func (l *Lane) pull(ctx context.Context, name string, number int64) (pullAnswer, error) {
	const op = "get pull request"
	var pr pullAnswer
	if _, err := l.client.do(ctx, l.call(op, name, "/pulls/"+strconv.FormatInt(number, 10), nil), &pr); err != nil {
		return pullAnswer{}, err
	}
	if pr.Number != number || pr.Base.Repo.ID != l.config.Repository.ID || (pr.State != "open" && pr.State != "closed") {
		return pullAnswer{}, providerError(op, "the answer is about another request")
	}
	if _, err := fencepost.ParseCommitID(pr.Head.SHA); err != nil {
		return pullAnswer{}, providerError(op, "head.sha is not an object id")
	}
	return pr, nil
}

// tip reads the base branch's own ref: base.sha of a request is not promised
// to be its present tip, and matching-refs would match prefixes.
// contracts/github.md, trap 22
func (l *Lane) tip(ctx context.Context, name string) (fencepost.CommitID, error) {
	const op = "get base ref"
	var ref refAnswer
	if _, err := l.client.do(ctx, l.call(op, name, "/git/ref/heads/"+escapeSegments(l.branch), nil), &ref); err != nil {
		return fencepost.CommitID{}, err
	}
	id, err := fencepost.ParseCommitID(ref.Object.SHA)
	if err != nil || ref.Ref != l.config.BaseRef || ref.Object.Type != "commit" {
		return fencepost.CommitID{}, providerError(op, "the answer is not that branch's commit")
	}
	return id, nil
}

// commit reads a commit's tree and parents.
func (l *Lane) commit(ctx context.Context, name string, id fencepost.CommitID) (gate.Commit, []fencepost.CommitID, error) {
	const op = "get commit"
	var c commitAnswer
	_, err := l.client.do(ctx, l.call(op, name, "/git/commits/"+id.String(), nil), &c)
	if code := statusOf(err); code == http.StatusNotFound || code == http.StatusConflict {
		// The ref or request that named it was read a moment ago.
		return gate.Commit{}, nil, unsettledError("a commit is not visible yet")
	}
	if err != nil {
		return gate.Commit{}, nil, err
	}
	tree, err := fencepost.ParseTreeID(c.Tree.SHA)
	if err != nil || c.SHA != id.String() || len(c.Parents) > maxParents {
		return gate.Commit{}, nil, providerError(op, "the answer is not that commit")
	}
	parents := make([]fencepost.CommitID, len(c.Parents))
	for i, p := range c.Parents {
		if parents[i], err = fencepost.ParseCommitID(p.SHA); err != nil {
			return gate.Commit{}, nil, providerError(op, "a parent is not an object id")
		}
	}
	return gate.Commit{ID: id, Tree: tree}, parents, nil
}

// maxParents bounds the parents of a commit that is looked at.
const maxParents = 256

// escapeSegments escapes a branch name for a path and keeps its slashes.
func escapeSegments(branch string) string {
	parts := strings.Split(branch, "/")
	for i, p := range parts {
		parts[i] = url.PathEscape(p)
	}
	return strings.Join(parts, "/")
}
