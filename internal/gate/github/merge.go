package github

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

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

// settled looks at the request until it, the tip of its base and its test merge
// belong together, or the limit is reached. Only asking for the request makes
// GitHub refresh the test merge, and "mergeable": null means that it has begun
// to. contracts/github.md §8, traps 2 and 3
func (l *Lane) settled(ctx context.Context, name string, s gate.Subject) (reading, error) {
	const op = "find test merge"
	limits := l.client.limits
	wait := limits.VisiblePause
	for waited := time.Duration(0); ; waited, wait = waited+wait, min(2*wait, maxVisiblePause) {
		r, err := l.look(ctx, name, s)
		if err == nil || !isUnsettled(err) {
			return r, err
		}
		if waited >= limits.NotYetVisible {
			return reading{}, &fencepost.Error{Op: op, Reason: fencepost.ReasonProvider, Err: err}
		}
		if err := pause(ctx, wait); err != nil {
			return reading{}, transportError(call{op: op, method: http.MethodGet}, err)
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

// A naming is which commits a request and its base name.
type naming struct {
	// ended is why the request is not what the event said any more, or none.
	ended fencepost.Reason
	tip   fencepost.CommitID
	// candidate is zero where the merge has conflicts.
	candidate fencepost.CommitID
}

// named asks for the request and for the tip of its base at once. That the two
// are of one moment is not believed: [Lane.readMerge] holds the test merge
// against the tip.
func (l *Lane) named(ctx context.Context, name string, s gate.Subject) (naming, error) {
	aside, cancel := context.WithCancel(ctx)
	defer cancel()
	var tip fencepost.CommitID
	var base errgroup.Group
	base.Go(func() (err error) {
		tip, err = l.tip(aside, name)
		return err
	})
	pr, err := l.pull(ctx, name, s.Number)
	why := pr.ended(s, l.branch)
	if err != nil || why != fencepost.ReasonNone {
		cancel()
		_ = base.Wait() // the tip says nothing of a request that has ended
		return naming{ended: why}, err
	}
	if err := base.Wait(); err != nil {
		return naming{}, err
	}
	switch {
	case pr.Mergeable == nil:
		return naming{}, unsettledError("GitHub has not tried the merge yet")
	case !*pr.Mergeable:
		return naming{tip: tip}, nil
	case pr.MergeCommitSHA == nil:
		return naming{}, providerError("get pull request", "mergeable, but without merge_commit_sha")
	}
	candidate, err := fencepost.ParseCommitID(*pr.MergeCommitSHA)
	if err != nil {
		return naming{}, providerError("get pull request", "merge_commit_sha is not an object id")
	}
	return naming{tip: tip, candidate: candidate}, nil
}

// readMerge reads the base's and the test merge's commit, and holds them
// against each other.
func (l *Lane) readMerge(ctx context.Context, name string, s gate.Subject, n naming) (merge, error) {
	var m merge
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() (err error) {
		m.base, _, err = l.commit(ctx, name, n.tip)
		return err
	})
	if n.candidate.IsZero() {
		m.state = fencepost.ReasonNotMergeable
	} else {
		g.Go(func() (err error) {
			m.candidate, m.parents, err = l.commit(ctx, name, n.candidate)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return merge{}, err
	}
	if m.state == fencepost.ReasonNone && !sameSet(m.parents, m.base.ID, s.Head) {
		return merge{}, unsettledError("the test merge is of another base or head")
	}
	return m, nil
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
	if commit, parents, ok := l.commits.get(id); ok {
		return commit, parents, nil
	}
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
	commit := gate.Commit{ID: id, Tree: tree}
	l.commits.put(commit, parents)
	return commit, parents, nil
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
