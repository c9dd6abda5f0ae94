package trial

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/forgesim"
	"github.com/fencepost/fencepost/internal/forgesim/gitlab"
	"github.com/fencepost/fencepost/internal/trial/world"
)

// A gitlabTrial is one run of the story at GitLab.
type gitlabTrial struct {
	*world.GitLabWorld
	config  Config
	start   time.Time
	summary Summary
	// first is the run of the job whose gate let its request through.
	first world.JobRun
}

func runGitLab(ctx context.Context, config Config) (_ Summary, err error) {
	t := &gitlabTrial{config: config, start: config.Now(), summary: Summary{Forge: config.Forge}}
	defer func() {
		if t.GitLabWorld != nil {
			err = errors.Join(err, t.Close())
		}
	}()
	if err := tell(ctx, config, t.start, []chapter{
		{"forge", t.startForge},
		{"serve", t.startController},
		{"gate", t.gate},
		{"replay", t.replay},
		{"forged", t.forged},
		{"train", t.train},
		{"block", t.block},
		{"crash", t.crash},
		{"source", t.source},
	}); err != nil {
		return t.summary, err
	}
	t.summary.OK, t.summary.Took = true, config.Now().Sub(t.start)
	return t.summary, nil
}

func (t *gitlabTrial) startForge(ctx context.Context) ([]string, error) {
	c := world.GitLabConfig{
		Binary: t.config.Binary, Program: t.config.Program, Dir: t.config.Dir, Now: t.config.Now, Source: t.config.Repo,
		Timings: timings, Handbook: firstEdition(),
	}
	if c.Source == "" {
		c.Files = smallRepository()
	}
	w, err := world.NewGitLab(ctx, c)
	if err != nil {
		return nil, err
	}
	t.GitLabWorld = w
	return []string{
		fmt.Sprintf("a simulated GitLab at %s, with a runner and a real Git server", w.Server.URL),
		fmt.Sprintf("%s, main at %s; its merge train is enforced for all, and a policy of %s adds the job %s",
			w.Project.Path(), short(w.Project.Ref("refs/heads/main")), w.Policies.Path(), world.PolicyJob),
	}, nil
}

func (t *gitlabTrial) startController(ctx context.Context) ([]string, error) {
	took, err := t.Controller.Start(ctx)
	if err != nil {
		return nil, err
	}
	return []string{"fencepost serve is ready after " + round(took).String()}, nil
}

// join opens a request with one changed page, and puts it into the train.
func (t *gitlabTrial) join(ctx context.Context, branch, title, text string) (*gitlab.MergeRequest, *gitlab.Car, error) {
	m, err := t.Project.OpenRequest(ctx, gitlab.Open{
		Source: branch, Title: title, Change: forgesim.Change{Files: map[string]string{page: text}},
	})
	if err != nil {
		return nil, nil, err
	}
	car, err := m.JoinTrain(ctx)
	return m, car, err
}

// run waits until the nth job of a request has ended.
func (t *gitlabTrial) run(ctx context.Context, m *gitlab.MergeRequest, n int) (world.JobRun, error) {
	run, err := world.Await(ctx, resultWithin, func() (world.JobRun, bool, error) {
		run, ok := t.Runner.Run(m.IID(), n)
		return run, ok && run.Ended, nil
	})
	if err != nil {
		err = fmt.Errorf("job %d of !%d: %w", n+1, m.IID(), err)
	}
	return run, err
}

// outcome tells of a job that had a result, and holds its exit status and what
// became of the train against it.
func (t *gitlabTrial) outcome(ctx context.Context, m *gitlab.MergeRequest, car *gitlab.Car, run world.JobRun, want string) ([]string, error) {
	r := run.Report
	t.summary.CheckRuns++
	lines := []string{fmt.Sprintf("!%d at %s: the job exits with %d: %s: %s",
		m.IID(), short(run.Job.Pipeline().SHA()), run.Exit, r.Conclusion, r.Title)}
	if r.Outcome != "result" || want != "" && r.Conclusion != want || r.Passed() != (run.Exit == 0) {
		return lines, fmt.Errorf("%w: the job ended with %d, its report is %+v, it said %q; want %s", ErrStory, run.Exit, r, run.Said, want)
	}
	_, err := world.Await(ctx, resultWithin, func() (struct{}, bool, error) {
		return struct{}{}, m.State() == "merged" || car.Left() != "", nil
	})
	merged := m.State() == "merged"
	switch {
	case err != nil:
		return lines, err
	case merged != r.Passed() || merged && t.Project.Ref("refs/heads/main") != run.Job.Pipeline().SHA():
		return lines, fmt.Errorf("%w: the request is %s, main is at %s", ErrStory, m.State(), short(t.Project.Ref("refs/heads/main")))
	case merged:
		return append(lines, "the train merges it: main is just the commit that was judged"), nil
	}
	return append(lines, "its car leaves the train: "+car.Left()), nil
}

func (t *gitlabTrial) gate(ctx context.Context) ([]string, error) {
	m, car, err := t.join(ctx, "good", "Add a page", "# A page\n\nBack to [the top](#a-page).\n")
	if err != nil {
		return nil, err
	}
	if t.first, err = t.run(ctx, m, 0); err != nil {
		return nil, err
	}
	t.summary.Deliveries++
	return t.outcome(ctx, m, car, t.first, t.usual())
}

func (t *gitlabTrial) block(ctx context.Context) ([]string, error) {
	m, car, err := t.join(ctx, "bad", "Add a broken link", "# A page\n\nRead [the rest](fencepost-nowhere.md).\n")
	if err != nil {
		return nil, err
	}
	run, err := t.run(ctx, m, 0)
	if err != nil {
		return nil, err
	}
	t.summary.Deliveries++
	return t.outcome(ctx, m, car, run, "failure")
}

// send sends a token to the gate's route, with the hint of a request.
func (t *gitlabTrial) send(ctx context.Context, token string, request int64) (int, world.Answer, error) {
	hint := `{"merge_request":` + strconv.FormatInt(request, 10) + `}`
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, t.JobURL, strings.NewReader(hint))
	if err != nil {
		return 0, world.Answer{}, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer "+token)
	resp, err := t.Client.Do(req)
	if err != nil {
		return 0, world.Answer{}, err
	}
	defer resp.Body.Close()
	var text bytes.Buffer
	if _, err := text.ReadFrom(io.LimitReader(resp.Body, 1<<16)); err != nil {
		return 0, world.Answer{}, fmt.Errorf("read the answer: %w", err)
	}
	a, err := world.ReadAnswer(text.Bytes())
	return resp.StatusCode, a, err
}

func (t *gitlabTrial) replay(ctx context.Context) ([]string, error) {
	status, a, err := t.send(ctx, t.first.Token, t.first.Job.Request().IID())
	if err != nil {
		return nil, err
	}
	lines := []string{fmt.Sprintf("the same token again: %d %s", status, a)}
	if status != http.StatusOK || a.Outcome != "replayed" || a.Delivery != t.first.Report.Delivery {
		return lines, fmt.Errorf("%w: want 200 replayed, of %s", ErrStory, t.first.Report.Delivery)
	}
	t.summary.Replays++
	return append(lines, "no new run; the job would be told the same result"), nil
}

func (t *gitlabTrial) forged(ctx context.Context) ([]string, error) {
	// A bit of the payload: another job, pipeline or commit.
	token := []byte(t.first.Token)
	at := bytes.IndexByte(token, '.') + 40
	token[at] ^= 1
	status, a, err := t.send(ctx, string(token), t.first.Job.Request().IID())
	if err != nil {
		return nil, err
	}
	lines := []string{fmt.Sprintf("one bit of the token changed under the same signature: %d %s", status, a)}
	if status != http.StatusUnauthorized || a.Reason != fencepost.ReasonUnauthenticated {
		return lines, fmt.Errorf("%w: want 401 unauthenticated", ErrStory)
	}
	t.summary.ForgedRefused++
	return append(lines, "nothing was parsed, nothing was recorded"), nil
}

// train takes the car ahead out of the train while the request behind it is
// being judged: its job must not pass for a merge that is not made any more.
func (t *gitlabTrial) train(ctx context.Context) ([]string, error) {
	var once atomic.Bool
	joined, moved := make(chan *gitlab.Car, 1), make(chan error, 1)
	git := "/" + t.Project.Path() + ".git/git-upload-pack"
	t.Forge.Interfere(func(r *http.Request) *gitlab.Answer {
		if r.URL.Path == git && once.CompareAndSwap(false, true) {
			select {
			case ahead := <-joined:
				moved <- ahead.Leave(ctx)
			case <-ctx.Done():
				moved <- context.Cause(ctx)
			}
		}
		return nil
	})
	defer t.Forge.Interfere(nil)
	first, ahead, err := t.join(ctx, "ahead", "Add a page that is taken back", "# A page that is taken back\n")
	if err != nil {
		return nil, err
	}
	m, err := t.Project.OpenRequest(ctx, gitlab.Open{
		Source: "behind", Title: "Add another page behind it",
		Change: forgesim.Change{Files: map[string]string{"fencepost-behind.md": "# Another page\n"}},
	})
	if err != nil {
		return nil, err
	}
	car, err := m.JoinTrain(ctx)
	if err != nil {
		return nil, err
	}
	joined <- ahead
	select {
	case err = <-moved:
	case <-time.After(resultWithin):
		err = fmt.Errorf("%w: nothing was fetched within %s", ErrStory, resultWithin)
	}
	if err != nil {
		return nil, err
	}
	var lines []string
	for _, of := range []*gitlab.MergeRequest{first, m} {
		run, err := t.run(ctx, of, 0)
		if err != nil {
			return lines, err
		}
		t.summary.Deliveries++
		lines = append(lines, fmt.Sprintf("!%d left the train while it and !%d were judged: the job of !%d ends with %d: %s",
			first.IID(), m.IID(), of.IID(), run.Exit, run.Report.Reason))
		if run.Exit == 0 || run.Report.Outcome != "ended" || run.Report.Reason != fencepost.ReasonSuperseded {
			return lines, fmt.Errorf("%w: its report is %+v, it said %q; want superseded", ErrStory, run.Report, run.Said)
		}
	}
	fresh, err := t.run(ctx, m, 1)
	if err != nil {
		return lines, err
	}
	t.summary.Deliveries++
	more, err := t.outcome(ctx, m, car, fresh, t.usual())
	return append(append(lines, "the train makes a new commit, and its job asks anew"), more...), err
}

// usual is what a request without broken links comes to; "" for anything, since
// a repository of the reader's own may have some.
func (t *gitlabTrial) usual() string {
	if t.config.Repo != "" {
		return ""
	}
	return "success"
}

// crash kills the controller twice over one job: when the run is over and
// nothing of it is recorded, and when it hands the result out.
func (t *gitlabTrial) crash(ctx context.Context) ([]string, error) {
	killed := make(chan error, 2)
	var looks, handed atomic.Int32
	m, err := t.Project.OpenRequest(ctx, gitlab.Open{
		Source: "crash", Title: "Change a page while the controller is being killed",
		Change: forgesim.Change{Files: map[string]string{page: "# One more page\n"}},
	})
	if err != nil {
		return nil, err
	}
	request := fmt.Sprintf("/api/v4/projects/%d/merge_requests/%d", t.Project.ID(), m.IID())
	t.Forge.Interfere(func(r *http.Request) *gitlab.Answer {
		// The second look at the request is the one after the run.
		if r.URL.Path != request || looks.Add(1) != 2 {
			return nil
		}
		killed <- t.Controller.Kill()
		return &gitlab.Answer{}
	})
	defer t.Forge.Interfere(nil)
	t.Runner.Lose(func(_ *http.Request, body []byte) bool {
		if !bytes.Contains(body, []byte(`"outcome":"result"`)) || handed.Add(1) != 1 {
			return false
		}
		killed <- t.Controller.Kill()
		return true
	})
	defer t.Runner.Lose(nil)
	car, err := m.JoinTrain(ctx)
	if err != nil {
		return nil, err
	}
	var lines []string
	for _, what := range []string{
		"killed -9 after the run, before its result was recorded",
		"started again; killed -9 while it handed the result out, which was lost",
	} {
		select {
		case err = <-killed:
		case <-ctx.Done():
			err = context.Cause(ctx)
		case <-time.After(resultWithin):
			err = fmt.Errorf("%w: no result within %s", ErrStory, resultWithin)
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
	run, err := t.run(ctx, m, 0)
	if err != nil {
		return lines, err
	}
	t.summary.Deliveries++
	lines = append(lines, "started again; the job waited through all of it, and is told the one result")
	more, err := t.outcome(ctx, m, car, run, t.usual())
	if _, second := t.Runner.Run(m.IID(), 1); err == nil && second {
		err = fmt.Errorf("%w: a second job ran", ErrStory)
	}
	return append(lines, more...), err
}
