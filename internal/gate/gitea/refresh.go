package gitea

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/gitfetch"
	"github.com/fencepost/fencepost/internal/forge"
	"github.com/fencepost/fencepost/internal/forge/gitea"
	"github.com/fencepost/fencepost/internal/gate"
)

var (
	errOther  = errors.New("the answer is about something else")
	errLacks  = errors.New("the answer lacks a field")
	errUntold = errors.New("it can't be told within the budgets")
)

// A reading is everything that one refresh learnt of an open request.
type reading struct {
	repository string
	subject    gate.Subject
	// ended is why the request is not what the event said any more, or none.
	ended fencepost.Reason
	// authored is set when the request is the reviewer's own.
	authored   bool
	base, head gate.Commit
	// contained is set when the head is proven to contain the base.
	contained bool
	rule      rule
	// foreign are statuses of our context by others, and approvals by our
	// reviewer that no evaluation made, both on the head.
	foreign []string
}

// Refresh implements [gate.Refresher]. Order: whose repository, and beside
// that, where its name was right the last time, the request, the base branch
// and what stands on the head; then what those name.
func (l *Lane) Refresh(ctx context.Context, s gate.Subject) (gate.Snapshot, error) {
	r, err := l.proven(ctx, s)
	if err != nil {
		return gate.Snapshot{}, err
	}
	if r.ended != fencepost.ReasonNone {
		return gate.Snapshot{State: r.ended, Repository: r.repository}, nil
	}
	return l.snapshot(r), nil
}

// proven reads the request under the repository's name. One that was right the
// last time is proven beside the reading; what was read under a name that the
// repository does not have any more is dropped, whatever it says.
func (l *Lane) proven(ctx context.Context, s gate.Subject) (reading, error) {
	tried, right := l.lastName()
	if !right {
		name, err := l.identity(ctx)
		if err != nil {
			return reading{}, err
		}
		return l.look(ctx, name, s)
	}
	var name string
	var unproven error
	var r reading
	var failed error
	var both sync.WaitGroup
	both.Go(func() { name, unproven = l.identity(ctx) })
	both.Go(func() { r, failed = l.look(ctx, tried, s) })
	both.Wait()
	switch {
	case unproven != nil:
		return reading{}, unproven
	case name != tried:
		return l.look(ctx, name, s)
	}
	return r, failed
}

// identity proves that the configured repository is there, by its id and its
// owner's, and returns the name that it has now.
func (l *Lane) identity(ctx context.Context) (name string, err error) {
	const op = "get repository"
	defer func() { l.answered(name) }()
	a, err := l.config.Reviews.Get(ctx, op, "/repositories/"+strconv.FormatInt(l.config.Repository.ID, 10), "")
	if err != nil {
		return "", err
	}
	if a.Status == http.StatusNotFound {
		return "", forge.Fail(op, fencepost.ReasonCredential, errors.New("the repository is gone, or the reviewer does not reach it"))
	}
	var got struct {
		ID    *int64 `json:"id"`
		Owner *struct {
			ID *int64 `json:"id"`
		} `json:"owner"`
		FullName string `json:"full_name"`
	}
	if err := forge.Decode(op, a.Body, &got); err != nil {
		return "", err
	}
	want := l.config.Repository
	owner, repo, ok := strings.Cut(got.FullName, "/")
	switch {
	case got.ID == nil || got.Owner == nil || got.Owner.ID == nil || !ok || !gitea.ValidName(owner) || !gitea.ValidName(repo):
		return "", forge.Fail(op, fencepost.ReasonProvider, errLacks)
	case *got.ID != want.ID || *got.Owner.ID != want.OwnerID:
		return "", forge.Fail(op, fencepost.ReasonIdentity, errors.New("the repository has another owner"))
	}
	return got.FullName, nil
}

// answered takes over a proven name; "": none was.
func (l *Lane) answered(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.proof = name != ""; l.proof {
		l.name = name
	}
}

// lastName is the last name that was proven, or the configured one, and whether
// it was proven at the last look.
func (l *Lane) lastName() (name string, right bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.name, l.proof
}

// look reads a request and what belongs to it once.
func (l *Lane) look(ctx context.Context, name string, s gate.Subject) (reading, error) {
	r := reading{repository: name, subject: s}
	var tip fencepost.CommitID
	var effective string
	var statuses, reviews []string
	first, firstCtx := errgroup.WithContext(ctx)
	first.Go(func() (err error) {
		r.ended, r.authored, err = l.readPull(firstCtx, name, s)
		return err
	})
	first.Go(func() (err error) {
		tip, effective, err = l.readBase(firstCtx, name)
		return err
	})
	first.Go(func() (err error) {
		statuses, err = l.foreignStatuses(firstCtx, name, s.Head)
		return err
	})
	first.Go(func() (err error) {
		reviews, err = l.foreignReviews(firstCtx, name, s)
		return err
	})
	if err := first.Wait(); err != nil || r.ended != fencepost.ReasonNone {
		return r, err
	}
	r.foreign = append(statuses, reviews...)
	rest, restCtx := errgroup.WithContext(ctx)
	rest.Go(func() (err error) {
		r.rule, err = l.readRule(restCtx, name, effective)
		return err
	})
	rest.Go(func() (err error) {
		r.head, err = l.commit(restCtx, name, s.Head)
		return err
	})
	rest.Go(func() (err error) {
		r.base, err = l.commit(restCtx, name, tip)
		return err
	})
	rest.Go(func() (err error) {
		r.contained, err = l.contains(restCtx, name, s.Head, tip)
		return err
	})
	return r, rest.Wait()
}

// readPull tells whether the request has left the state that the event named, and
// whether it is the reviewer's own: then nothing of it can be reviewed. Trap 22
func (l *Lane) readPull(ctx context.Context, name string, s gate.Subject) (ended fencepost.Reason, authored bool, err error) {
	const op = "get pull request"
	a, err := l.config.Reviews.Get(ctx, op, "/repos/"+name+"/pulls/"+strconv.FormatInt(s.Number, 10), "")
	if err != nil {
		return "", false, err
	}
	if a.Status == http.StatusNotFound {
		return "", false, forge.Fail(op, fencepost.ReasonProvider, errors.New("the request is not there, or the reviewer may not read requests"))
	}
	var got struct {
		Number int64   `json:"number"`
		State  *string `json:"state"`
		Draft  *bool   `json:"draft"`
		User   *struct {
			ID int64 `json:"id"`
		} `json:"user"`
		Head struct {
			SHA string `json:"sha"`
		} `json:"head"`
		Base struct {
			Ref    string `json:"ref"`
			RepoID int64  `json:"repo_id"`
		} `json:"base"`
	}
	if err := forge.Decode(op, a.Body, &got); err != nil {
		return "", false, err
	}
	if got.State == nil || got.Draft == nil || got.User == nil {
		return "", false, forge.Fail(op, fencepost.ReasonProvider, errLacks)
	}
	if got.Number != s.Number || got.Base.RepoID != l.config.Repository.ID || (*got.State != "open" && *got.State != "closed") {
		return "", false, forge.Fail(op, fencepost.ReasonProvider, errOther)
	}
	if _, err := fencepost.ParseCommitID(got.Head.SHA); err != nil {
		return "", false, forge.Fail(op, fencepost.ReasonProvider, errors.New("head.sha is not an object id"))
	}
	authored = got.User.ID == l.config.Reviewer.ID
	l.authored.add(s.Number, authored)
	switch {
	case *got.State != "open":
		return fencepost.ReasonClosed, authored, nil
	case got.Head.SHA != s.Head.String(), got.Base.Ref != l.branch:
		return fencepost.ReasonSuperseded, authored, nil
	case *got.Draft:
		return fencepost.ReasonDraft, authored, nil
	}
	return fencepost.ReasonNone, authored, nil
}

// readBase asks for the base branch as the one who may see which rule is in
// effect.
func (l *Lane) readBase(ctx context.Context, name string) (tip fencepost.CommitID, effective string, err error) {
	const op = "get base branch"
	a, err := l.config.Rules.Get(ctx, op, "/repos/"+name+"/branches/"+url.PathEscape(l.branch), "")
	if err != nil {
		return fencepost.CommitID{}, "", err
	}
	if a.Status == http.StatusNotFound {
		return fencepost.CommitID{}, "", forge.Fail(op, fencepost.ReasonProvider, errors.New("the base branch is not there"))
	}
	var got struct {
		Name   string `json:"name"`
		Commit struct {
			ID string `json:"id"`
		} `json:"commit"`
		Protected bool   `json:"protected"`
		Effective string `json:"effective_branch_protection_name"`
	}
	if err := forge.Decode(op, a.Body, &got); err != nil {
		return fencepost.CommitID{}, "", err
	}
	tip, err = fencepost.ParseCommitID(got.Commit.ID)
	if err != nil || got.Name != l.branch {
		return fencepost.CommitID{}, "", forge.Fail(op, fencepost.ReasonProvider, errOther)
	}
	if !got.Protected {
		return tip, "", nil
	}
	return tip, got.Effective, nil
}

// commit reads a commit's tree from the commit itself, which hashes to its id:
// what the API calls the tree's id is the commit's. What was read once can't
// change.
func (l *Lane) commit(ctx context.Context, name string, id fencepost.CommitID) (gate.Commit, error) {
	const op = "get commit"
	if tree, ok := l.trees.known(id); ok {
		return gate.Commit{ID: id, Tree: tree}, nil
	}
	s := l.source(name)
	found, err := gitfetch.Commits(ctx, gitfetch.Request{
		URL: s.URL, Credential: s.Credential, AllowHTTP: s.AllowHTTP, AllowPrivate: s.AllowPrivate, Budgets: l.config.Budgets,
	}, id, 1)
	switch {
	case errors.Is(err, gitfetch.ErrNotOurRef):
		return gate.Commit{}, notYet(op)
	case err != nil:
		return gate.Commit{}, err
	}
	l.trees.add(id, found[id].Tree)
	return gate.Commit{ID: id, Tree: found[id].Tree}, nil
}

// state is the first thing that keeps the gate from being judged.
func (r reading) state() fencepost.Reason {
	switch {
	case !r.rule.proven(), r.authored:
		return fencepost.ReasonGateUnproven
	case len(r.foreign) > 0:
		return fencepost.ReasonForeignStatus
	case !r.contained:
		return fencepost.ReasonNotMergeable
	}
	return fencepost.ReasonNone
}

func (l *Lane) snapshot(r reading) gate.Snapshot {
	s := gate.Snapshot{
		State: r.state(), Revision: l.revision(r), Repository: r.repository, Base: r.base, Head: r.head, Facts: l.facts(r),
	}
	if r.contained {
		s.Candidate = r.head
	}
	return s
}

// revision digests what a verdict depends on.
func (l *Lane) revision(r reading) fencepost.GateRevision {
	c := l.config
	e := fencepost.NewEncoder("fencepost.gate-revision/v1").
		Text(string(c.Kind)).Text(l.api).
		Int(c.Repository.ID).Int(c.Repository.OwnerID).
		Int(c.Reviewer.ID).Text(c.Reviewer.Login).
		Int(r.subject.Number).Text(c.BaseRef).
		Bytes(r.base.ID.ObjectID[:]).Bytes(r.base.Tree.ObjectID[:]).
		Bytes(r.head.ID.ObjectID[:]).Bytes(r.head.Tree.ObjectID[:]).
		Bool(r.authored).Bool(r.contained).Text(c.Check).Text(r.rule.name).List(len(r.rule.settings))
	for _, s := range r.rule.settings {
		e.Text(s.name).Text(s.seen)
	}
	e.List(len(r.foreign))
	for _, f := range r.foreign {
		e.Text(f)
	}
	return e.Text(string(r.state())).Sum()
}

// facts is the same in words.
func (l *Lane) facts(r reading) []gate.Fact {
	c := l.config
	facts := []gate.Fact{
		same("repository.id", strconv.FormatInt(c.Repository.ID, 10)),
		same("repository.owner_id", strconv.FormatInt(c.Repository.OwnerID, 10)),
		same("request.state", "open"),
		same("request.draft", "false"),
		same("request.head", r.subject.Head.String()),
		same("request.base", c.BaseRef),
		author(r.authored),
		{Name: "head.contains_base", Expected: "true", Observed: strconv.FormatBool(r.contained)},
	}
	facts = append(facts, r.rule.facts()...)
	return append(facts, gate.Fact{Name: "foreign.on_head", Expected: "0", Observed: strconv.Itoa(len(r.foreign))})
}

// author is who opened the request.
func author(reviewer bool) gate.Fact {
	f := same("request.author", "not the reviewer")
	if reviewer {
		f.Observed = "the reviewer"
		f.Mend = "nobody can review a request of their own: open it from another account than the gate's reviewer"
	}
	return f
}

// same is a fact that, were it otherwise, would have ended the refresh.
func same(name, value string) gate.Fact {
	return gate.Fact{Name: name, Expected: value, Observed: value}
}
