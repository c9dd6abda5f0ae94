package trial

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/forgesim"
	"github.com/fencepost/fencepost/internal/forgesim/gitea"
	"github.com/fencepost/fencepost/internal/trial/world"
)

// A giteaTrial is one run of the story at Gitea or Forgejo.
type giteaTrial struct {
	*world.GiteaWorld
	config  Config
	start   time.Time
	summary Summary
	opened  int
	// passed is the request that the gate let through.
	passed *gitea.Pull
}

func runGitea(ctx context.Context, config Config) (_ Summary, err error) {
	t := &giteaTrial{config: config, start: config.Now(), summary: Summary{Forge: config.Forge}}
	defer func() {
		if t.GiteaWorld != nil {
			err = errors.Join(err, t.Close())
		}
	}()
	if err := tell(ctx, config, t.start, []chapter{
		{"forge", t.startForge},
		{"serve", t.startController},
		{"gate", t.gate},
		{"replay", t.replay},
		{"forged", t.forged},
		{"push", t.push},
		{"block", t.block},
		{"crash", t.crash},
		{"source", t.source},
	}); err != nil {
		return t.summary, err
	}
	t.summary.OK, t.summary.Took = true, config.Now().Sub(t.start)
	return t.summary, nil
}

// product names the forge for people.
func (t *giteaTrial) product() string {
	if t.Forgejo {
		return "Forgejo"
	}
	return "Gitea"
}

func (t *giteaTrial) startForge(ctx context.Context) ([]string, error) {
	c := world.GiteaConfig{
		Binary: t.config.Binary, Program: t.config.Program, Dir: t.config.Dir, Now: t.config.Now,
		Forgejo: t.config.Forge == ForgeForgejo, Source: t.config.Repo, Timings: timings, Handbook: firstEdition(),
	}
	if c.Source == "" {
		c.Files = smallRepository()
	}
	w, err := world.NewGitea(ctx, c)
	if err != nil {
		return nil, err
	}
	t.GiteaWorld = w
	return []string{
		fmt.Sprintf("a simulated %s at %s, with a real Git server", t.product(), w.Server.URL),
		fmt.Sprintf("%s, main at %s; the branch rule requires an approval by %s alone, and the status %s",
			w.Repository.FullName(), short(w.Repository.Ref("refs/heads/main")), world.Reviewer, world.CheckName),
	}, nil
}

func (t *giteaTrial) startController(ctx context.Context) ([]string, error) {
	took, err := t.Controller.Start(ctx)
	if err != nil {
		return nil, err
	}
	return []string{"fencepost serve is ready after " + round(took).String()}, nil
}

// open opens a request and waits for its result.
func (t *giteaTrial) open(ctx context.Context, head, title, text string) (*gitea.Pull, error) {
	p, err := t.Repository.OpenPull(ctx, forgesim.OpenPull{
		Head: head, Title: title, Change: forgesim.Change{Files: map[string]string{page: text}},
	}, nil)
	if err != nil {
		return nil, err
	}
	t.opened++
	return p, t.awaitResult(ctx, p)
}

// awaitResult waits until a status and a review stand on the request's head.
func (t *giteaTrial) awaitResult(ctx context.Context, p *gitea.Pull) error {
	_, err := world.Await(ctx, resultWithin, func() (struct{}, bool, error) {
		reviewed := slices.ContainsFunc(p.Reviews(), func(r gitea.Review) bool { return r.CommitID == p.Head() })
		return struct{}{}, reviewed && len(t.Repository.Statuses(p.Head())) > 0, nil
	})
	return err
}

// outcome tells of a result and holds it against what the forge's rule makes of
// it.
func (t *giteaTrial) outcome(ctx context.Context, p *gitea.Pull, want string) ([]string, error) {
	statuses, reviews := t.Repository.Statuses(p.Head()), p.Reviews()
	reviews = slices.DeleteFunc(reviews, func(r gitea.Review) bool { return r.CommitID != p.Head() })
	if len(statuses) != 1 || len(reviews) != 1 {
		return nil, fmt.Errorf("%w: %d statuses and %d reviews of %s, want one of each", ErrStory, len(statuses), len(reviews), short(p.Head()))
	}
	t.summary.CheckRuns++
	title, _, _ := strings.Cut(statuses[0].Description, " · ")
	lines := []string{fmt.Sprintf("#%d at %s: one status %s, one review %s: %s",
		p.Number(), short(p.Head()), statuses[0].State, reviews[0].State, title)}
	if want != "" && statuses[0].State != want {
		return lines, fmt.Errorf("%w: status %q, want %s", ErrStory, statuses[0].State, want)
	}
	locked, err := p.Locked(ctx)
	switch {
	case err != nil:
		return lines, err
	case (statuses[0].State == "success") != (locked == ""):
		return lines, fmt.Errorf("%w: status %q, but the forge's rule says %q", ErrStory, statuses[0].State, locked)
	case locked == "":
		return append(lines, "the forge's rule now lets it merge"), nil
	}
	return append(lines, "the forge's rule keeps it from merging: "+locked), nil
}

func (t *giteaTrial) gate(ctx context.Context) ([]string, error) {
	p, err := t.open(ctx, "good", "Add a page", "# A page\n\nBack to [the top](#a-page).\n")
	if err != nil {
		return nil, err
	}
	t.passed = p
	want := "success"
	if t.config.Repo != "" {
		want = "" // a repository of the reader's own may have broken links
	}
	return t.outcome(ctx, p, want)
}

func (t *giteaTrial) block(ctx context.Context) ([]string, error) {
	p, err := t.open(ctx, "bad", "Add a broken link", "# A page\n\nRead [the rest](fencepost-nowhere.md).\n")
	if err != nil {
		return nil, err
	}
	return t.outcome(ctx, p, "failure")
}

// push moves the head of the request that passed: the forge's rule locks it at
// once, and the new head gets a result of its own.
func (t *giteaTrial) push(ctx context.Context) ([]string, error) {
	head, err := t.passed.Push(ctx, forgesim.Change{Files: map[string]string{page: "# A page\n\nBack to [the start](#a-page).\n"}})
	if err != nil {
		return nil, err
	}
	locked, err := t.passed.Locked(ctx)
	if err != nil {
		return nil, err
	}
	lines := []string{fmt.Sprintf("a push to #%d, now at %s: %s", t.passed.Number(), short(head), locked)}
	if locked == "" {
		return lines, fmt.Errorf("%w: the approval of another head lets it merge", ErrStory)
	}
	t.opened++
	if err := t.awaitResult(ctx, t.passed); err != nil {
		return lines, err
	}
	more, err := t.outcome(ctx, t.passed, "")
	return append(lines, more...), err
}

// first is the first delivery of the story.
func (t *giteaTrial) first() (gitea.Delivery, error) {
	for _, d := range t.Forge.Deliveries() {
		if d.Event == "pull_request" {
			return d, nil
		}
	}
	return gitea.Delivery{}, fmt.Errorf("%w: the first delivery is not in the forge's history", ErrStory)
}

func (t *giteaTrial) replay(ctx context.Context) ([]string, error) {
	first, err := t.first()
	if err != nil {
		return nil, err
	}
	before := len(t.Forge.Deliveries())
	if err := t.Forge.Replay(first.UUID); err != nil {
		return nil, err
	}
	again, err := world.Await(ctx, resultWithin, func() (gitea.Delivery, bool, error) {
		all := t.Forge.Deliveries()
		for _, d := range all[min(before, len(all)):] {
			if bytes.Equal(d.Body, first.Body) && d.StatusCode != 0 {
				return d, true, nil
			}
		}
		return gitea.Delivery{}, false, nil
	})
	if err != nil {
		return nil, err
	}
	lines := []string{fmt.Sprintf("the same bytes again, under another delivery id: %d", again.StatusCode)}
	if again.StatusCode != http.StatusOK {
		return lines, fmt.Errorf("%w: want 200 replayed", ErrStory)
	}
	if n := len(t.Repository.Statuses(t.passed.Head())); n != 1 {
		return lines, fmt.Errorf("%w: %d statuses after the replay", ErrStory, n)
	}
	t.summary.Replays++
	return append(lines, "no new run, no new result"), nil
}

func (t *giteaTrial) forged(ctx context.Context) ([]string, error) {
	first, err := t.first()
	if err != nil {
		return nil, err
	}
	req, err := t.Forge.Request(ctx, first, t.HookURL)
	if err != nil {
		return nil, err
	}
	body := slices.Clone(first.Body)
	body[len(body)/2] ^= 1
	req.Body, req.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	resp, err := t.Client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	var text bytes.Buffer
	if _, err := text.ReadFrom(io.LimitReader(resp.Body, 1<<16)); err != nil {
		return nil, fmt.Errorf("read the answer: %w", err)
	}
	a, err := world.ReadAnswer(text.Bytes())
	if err != nil {
		return nil, err
	}
	lines := []string{fmt.Sprintf("one bit changed under the same signature: %d %s", resp.StatusCode, a)}
	if resp.StatusCode != http.StatusUnauthorized || a.Reason != fencepost.ReasonUnauthenticated {
		return lines, fmt.Errorf("%w: want 401 unauthenticated", ErrStory)
	}
	t.summary.ForgedRefused++
	return append(lines, "nothing was parsed, nothing was recorded"), nil
}

// crash kills the controller twice while it publishes one result: between its
// approval and its status, and after the forge took the status but before it
// answers.
func (t *giteaTrial) crash(ctx context.Context) ([]string, error) {
	killed := make(chan error, 2)
	var kills atomic.Int32
	t.Forge.Interfere(func(r *http.Request) *gitea.Answer {
		if r.Method != http.MethodPost || !strings.Contains(r.URL.Path, "/statuses/") {
			return nil
		}
		switch kills.Add(1) {
		case 1:
		case 2:
			t.Forge.Quietly(r)
		default:
			return nil
		}
		killed <- t.Controller.Kill()
		return &gitea.Answer{}
	})
	defer t.Forge.Interfere(nil)
	p, err := t.Repository.OpenPull(ctx, forgesim.OpenPull{
		Head: "crash", Title: "Change a page while the controller is being killed",
		Change: forgesim.Change{Files: map[string]string{page: "# Another page\n"}},
	}, nil)
	if err != nil {
		return nil, err
	}
	t.opened++
	var lines []string
	for _, what := range []string{
		"approved; killed -9 before the forge takes the status",
		"started again; killed -9 after the forge took the status, before its answer",
	} {
		select {
		case err = <-killed:
		case <-ctx.Done():
			err = context.Cause(ctx)
		case <-time.After(resultWithin):
			err = fmt.Errorf("%w: nothing was published within %s", ErrStory, resultWithin)
		}
		if err != nil {
			return lines, err
		}
		t.summary.Kills++
		lines = append(lines, what)
		if _, err := t.Controller.Start(ctx); err != nil {
			return lines, err
		}
	}
	// The result is whole already; what is awaited is that the third process
	// finds it and ends the delivery.
	if _, err := world.Await(ctx, resultWithin, func() (struct{}, bool, error) {
		open, err := t.undone(ctx)
		return struct{}{}, open == 0, err
	}); err != nil {
		return lines, err
	}
	lines = append(lines, "started again; both were found under the evaluation's id, and nothing was sent again")
	more, err := t.outcome(ctx, p, "")
	t.summary.Deliveries = t.opened
	return append(lines, more...), err
}

// undone is how many recorded deliveries have not ended, as the controller's
// metrics say.
func (t *giteaTrial) undone(ctx context.Context) (int, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, t.OpsURL+"/metrics", http.NoBody)
	if err != nil {
		return 0, err
	}
	resp, err := t.Client.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	var text bytes.Buffer
	if _, err := text.ReadFrom(io.LimitReader(resp.Body, 1<<22)); err != nil {
		return 0, err
	}
	for line := range strings.Lines(text.String()) {
		var n int
		if _, err := fmt.Sscanf(line, "fencepost_inbox_entries %d", &n); err == nil {
			return n, nil
		}
	}
	return 0, fmt.Errorf("%w: the metrics do not say how many deliveries wait", ErrStory)
}
