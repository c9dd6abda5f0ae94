package forgesim

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

// ErrBlocked: the gate does not let the request merge.
var ErrBlocked = errors.New("merge blocked")

// A MergeState says whether the gate would let a request merge now.
type MergeState struct {
	// Allowed reports whether it would.
	Allowed bool
	// Judged is the commit whose checks decided: the head, or the test merge
	// where that has any.
	Judged string
	// Reasons say what is in the way, one for each obstacle.
	Reasons []string
}

// MergeState judges the request by the rules of its base branch, as GitHub
// does at the moment of merging: success, neutral and skipped pass; checks on
// the test merge, where there are any, count instead of the head's; a Check Run
// and a commit status of one name are both demanded; strict demands that the
// head contains the base's tip.
func (p *PullRequest) MergeState(ctx context.Context) (MergeState, error) {
	p.forge.mu.Lock()
	defer p.forge.mu.Unlock()
	return p.mergeState(ctx)
}

// mergeState is called with mu held.
func (p *PullRequest) mergeState(ctx context.Context) (MergeState, error) {
	r := p.base
	s := MergeState{Judged: p.judged()}
	if p.state != "open" {
		s.Reasons = append(s.Reasons, "the request is closed")
	}
	if p.draft {
		s.Reasons = append(s.Reasons, "the request is a draft")
	}
	tip := r.refs["refs/heads/"+p.baseBranch]
	if _, err := p.base.mergeTree(ctx, tip, p.headSHA); errors.Is(err, ErrConflict) {
		s.Reasons = append(s.Reasons, "head and base conflict")
	} else if err != nil {
		return MergeState{}, fmt.Errorf("merge state of pull request %d: %w", p.number, err)
	}
	contexts, strict := r.demands(p.baseBranch)
	if strict {
		contained, err := r.contains(ctx, p.headSHA, tip)
		if err != nil {
			return MergeState{}, fmt.Errorf("merge state of pull request %d: %w", p.number, err)
		}
		if !contained {
			s.Reasons = append(s.Reasons, "the head does not contain the base's tip")
		}
	}
	for _, c := range contexts {
		if obstacle := r.judge(s.Judged, c); obstacle != "" {
			s.Reasons = append(s.Reasons, obstacle)
		}
	}
	s.Allowed = len(s.Reasons) == 0
	return s, nil
}

// judged is the commit whose checks decide: the test merge where it has any,
// else the head. Called with mu held.
func (p *PullRequest) judged() string {
	if t := p.test; t.known && t.mergeable && t.head == p.headSHA && p.base.judgedAt(t.sha) {
		return t.sha
	}
	return p.headSHA
}

// judgedAt reports whether a commit has any check. Called with mu held.
func (r *Repository) judgedAt(sha string) bool {
	for _, run := range r.runs {
		if run.HeadSHA == sha {
			return true
		}
	}
	for _, st := range r.statuses {
		if st.SHA == sha {
			return true
		}
	}
	return false
}

// judge returns what is in the way of a demanded context, or "". Called with
// mu held.
func (r *Repository) judge(sha string, c RequiredContext) string {
	found := false
	newest := map[int64]*checkRun{}
	for _, run := range r.runs {
		if run.HeadSHA == sha && run.Name == c.Context && (c.Integration == 0 || c.Integration == run.app.id) {
			newest[run.app.id] = run
		}
	}
	for _, run := range newest {
		found = true
		if !passes(run.Conclusion) {
			return fmt.Sprintf("check %s is %s", c.Context, strings.TrimSpace(run.Status+" "+run.Conclusion))
		}
	}
	var last *status
	for _, st := range r.statuses {
		if st.SHA == sha && st.Context == c.Context && (c.Integration == 0 || st.app != nil && c.Integration == st.app.id) {
			last = st
		}
	}
	if last != nil {
		found = true
		if last.State != "success" {
			return fmt.Sprintf("status %s is %s", c.Context, last.State)
		}
	}
	if !found {
		return fmt.Sprintf("check %s is expected", c.Context)
	}
	return ""
}

// passes reports whether a conclusion satisfies a required check.
func passes(conclusion string) bool {
	switch conclusion {
	case "success", "neutral", "skipped":
		return true
	}
	return false
}

// contains reports whether head has base among its ancestors. Called with mu
// held.
func (r *Repository) contains(ctx context.Context, head, base string) (bool, error) {
	args := []string{"merge-base", "--is-ancestor", base, head}
	_, err := r.forge.git.run(ctx, gitCall{dir: r.dir, args: args})
	if exitedWith(err, 1) {
		return false, nil
	}
	return err == nil, err
}

// Merge merges the request where the gate lets it, with a merge commit, and
// sends closed and push. Else its error matches [ErrBlocked].
func (p *PullRequest) Merge(ctx context.Context) error {
	p.forge.mu.Lock()
	defer p.forge.mu.Unlock()
	state, err := p.mergeState(ctx)
	if err != nil {
		return err
	}
	if !state.Allowed {
		return fmt.Errorf("pull request %d: %w: %s", p.number, ErrBlocked, strings.Join(state.Reasons, "; "))
	}
	ref := "refs/heads/" + p.baseBranch
	tip := p.base.refs[ref]
	tree, err := p.base.mergeTree(ctx, tip, p.headSHA)
	if err != nil {
		return fmt.Errorf("merge pull request %d: %w", p.number, err)
	}
	message := fmt.Sprintf("Merge pull request #%d from %s/%s", p.number, p.head.owner.login, p.headBranch)
	sha, err := p.base.commitTree(ctx, tree, message, tip, p.headSHA)
	if err != nil {
		return fmt.Errorf("merge pull request %d: %w", p.number, err)
	}
	p.merged, p.mergedBy, p.mergeSHA = p.forge.now(), p.author, sha
	if err := p.setState(ctx, p.author, "closed", "closed"); err != nil {
		return err
	}
	_, err = p.base.push(ctx, Push{Branch: p.baseBranch, To: sha, Actor: p.author.login})
	return err
}
