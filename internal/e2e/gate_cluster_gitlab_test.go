package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/durable"
	"github.com/fencepost/fencepost/internal/forgesim"
	"github.com/fencepost/fencepost/internal/forgesim/gitlab"
	"github.com/fencepost/fencepost/internal/receipt"
	"github.com/fencepost/fencepost/internal/source"
	"github.com/fencepost/fencepost/internal/trial/world"
)

// gitlabMachines are controllers over one PostgreSQL database at one GitLab,
// behind a load balancer that sends jobs to one after the other, and their
// polls to any but the one that took the job.
type gitlabMachines struct {
	*world.GitLabWorld
	all []*world.Controller

	mu sync.Mutex
	// Guarded by mu: whose turn it is; which machine took a delivery, and which
	// told its job the result, by their URLs; its poll secret; and the deliveries
	// that the one which took them was asked about.
	turn             int
	took, told, poll map[fencepost.DeliveryID]string
	same             []fencepost.DeliveryID
}

func newGitLabMachines(t *testing.T, n int, database string, config world.GitLabConfig) *gitlabMachines {
	t.Helper()
	config.Binary, config.Program, config.Dir, config.Now = fencepostBinary, hostileProgram, t.TempDir(), time.Now
	config.Database = database
	w, err := world.NewGitLab(context.Background(), config)
	if err != nil {
		t.Fatal(err)
	}
	m := &gitlabMachines{
		GitLabWorld: w, all: []*world.Controller{w.Controller},
		took: map[fencepost.DeliveryID]string{}, told: map[fencepost.DeliveryID]string{}, poll: map[fencepost.DeliveryID]string{},
	}
	t.Cleanup(func() {
		if err := w.Close(); err != nil {
			t.Error(err)
		}
		for _, c := range m.all {
			if t.Failed() {
				dumpLog(t, c.Log)
			}
		}
	})
	for range n - 1 {
		c, err := w.Elsewhere(t.Context(), database)
		if err != nil {
			t.Fatal(err)
		}
		m.all = append(m.all, c)
	}
	for i := range m.all {
		m.start(t, i)
	}
	w.Runner.Route(m.balance)
	w.Runner.Lose(m.hear)
	return m
}

// start starts one machine, whose process outlives the test's context: cleanup
// stops it.
func (m *gitlabMachines) start(t *testing.T, i int) {
	t.Helper()
	if _, err := m.all[i].Start(context.Background()); err != nil {
		t.Fatal(err)
	}
}

// balance is where the next request of a job goes.
func (m *gitlabMachines) balance(r *http.Request) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.turn++
	to := m.all[m.turn%len(m.all)].URL()
	if r.Method == http.MethodGet && to == m.took[fencepost.DeliveryID(filepath.Base(r.URL.Path))] {
		m.turn++
		to = m.all[m.turn%len(m.all)].URL()
	}
	return to
}

// hear hears who answers jobs, and loses nothing.
func (m *gitlabMachines) hear(r *http.Request, body []byte) bool {
	a, err := world.ReadAnswer(body)
	if err != nil || a.Delivery == "" {
		return false
	}
	var with struct{ Poll string }
	if json.Unmarshal(body, &with) != nil {
		return false
	}
	at := "http://" + r.URL.Host
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case r.Method == http.MethodPost && m.took[a.Delivery] == "":
		m.took[a.Delivery], m.poll[a.Delivery] = at, with.Poll
	case r.Method == http.MethodGet && at == m.took[a.Delivery]:
		m.same = append(m.same, a.Delivery)
	case a.Outcome == "result":
		m.told[a.Delivery] = at
	}
	return false
}

// deliveries are those that were taken.
func (m *gitlabMachines) deliveries() (all []fencepost.DeliveryID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for d := range m.took {
		all = append(all, d)
	}
	return all
}

// events are those of a delivery that one machine wrote down.
func (m *gitlabMachines) events(t *testing.T, i int, d fencepost.DeliveryID) []receipt.Event {
	t.Helper()
	name := "data"
	if i > 0 {
		name = fmt.Sprintf("data-%d", i+1)
	}
	r, _, err := receipt.Show(t.Context(), durable.OS(filepath.Join(m.Dir, name, "receipts")), d)
	if err != nil && !errors.Is(err, receipt.ErrNotFound) {
		t.Fatal(err)
	}
	return r.Events
}

func has(events []receipt.Event, kind receipt.Kind) bool {
	return slices.ContainsFunc(events, func(e receipt.Event) bool { return e.Kind == kind })
}

// join opens a request, and puts it behind those that are in the train.
func (m *gitlabMachines) join(t *testing.T, name string, files map[string]string) (*gitlab.MergeRequest, *gitlab.Car) {
	t.Helper()
	r, err := m.Project.OpenRequest(t.Context(), gitlab.Open{Source: name, Change: forgesim.Change{Files: files}})
	if err != nil {
		t.Fatal(err)
	}
	car, err := r.JoinTrain(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return r, car
}

// killInTheRun kills a machine while its program runs, and returns which it was
// and over which delivery.
func (m *gitlabMachines) killInTheRun(t *testing.T) (victim int, over fencepost.DeliveryID) {
	t.Helper()
	await(t, "a run", func() bool {
		for _, d := range m.deliveries() {
			for i := range m.all {
				if e := m.events(t, i, d); has(e, receipt.Fetched) && !has(e, receipt.Ran) {
					victim, over = i, d
					return true
				}
			}
		}
		return false
	})
	if err := m.all[victim].Kill(); err != nil {
		t.Fatal(err)
	}
	if has(m.events(t, victim, over), receipt.Ran) {
		t.Fatalf("machine %d was killed after the run", victim)
	}
	return victim, over
}

// answer asks a machine for the result of a delivery with its poll secret.
func (m *gitlabMachines) answer(t *testing.T, i int, d fencepost.DeliveryID) string {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, m.all[i].URL()+"/jobs/"+world.Gate+"/"+string(d), http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	m.mu.Lock()
	r.Header.Set("Authorization", "Bearer "+m.poll[d])
	m.mu.Unlock()
	return m.do(t, r)
}

// again sends a job's token to a machine once more.
func (m *gitlabMachines) again(t *testing.T, i int, run world.JobRun) string {
	t.Helper()
	hint := fmt.Sprintf(`{"merge_request":%d}`, run.Job.Request().IID())
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, m.all[i].URL()+"/jobs/"+world.Gate, strings.NewReader(hint))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Authorization", "Bearer "+run.Token)
	return m.do(t, r)
}

func (m *gitlabMachines) do(t *testing.T, r *http.Request) string {
	t.Helper()
	resp, err := m.Client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var text bytes.Buffer
	if _, err := text.ReadFrom(io.LimitReader(resp.Body, 1<<16)); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%d %s", resp.StatusCode, text.String())
}

// Invariants 3, 4, 5 and 7 for jobs on several machines (DESIGN §12): a train of
// requests is judged by three machines of which one is killed in a run. Each job
// asks others than the one that took it, and is told its one result.
func TestThreeGatesAtGitLabOverOneDatabase(t *testing.T) {
	t.Parallel()
	m := newGitLabMachines(t, 3, postgres.Database(t), world.GitLabConfig{
		Files: behave("slow 3s"), Handbook: map[string]string{"a.md": "a\n"}, YAML: brisk,
	})
	var requests []*gitlab.MergeRequest
	for _, name := range []string{"one", "two", "three"} {
		r, _ := m.join(t, name, map[string]string{name + ".md": name + "\n"})
		requests = append(requests, r)
	}
	// At the end: a car behind it would hold its change, too.
	blocked, car := m.join(t, "four", behave("block"))
	requests = append(requests, blocked)
	victim, over := m.killInTheRun(t)
	runs := map[fencepost.DeliveryID]world.JobRun{}
	for _, r := range requests {
		var run world.JobRun
		await(t, fmt.Sprintf("the end of the job of !%d", r.IID()), func() bool {
			run, _ = m.Runner.Run(r.IID(), 0)
			return run.Ended
		})
		runs[run.Report.Delivery] = run
		if want := r != blocked; run.Exit == 0 != want || run.Report.Passed() != want {
			t.Errorf("job of !%d: exit %d, %+v, want a pass: %t; it said %q", r.IID(), run.Exit, run.Report, want, run.Said)
		}
		if _, more := m.Runner.Run(r.IID(), 1); more {
			t.Errorf("!%d had a second job", r.IID())
		}
	}
	m.wantTrain(t, requests[:3], blocked, car)
	m.start(t, victim)
	for d, run := range runs {
		m.wantOnce(t, d, run)
	}
	if has(m.events(t, victim, over), receipt.Staged) {
		t.Errorf("machine %d was killed over %s, and staged its result", victim, over)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(runs) != 4 || len(m.took) != 4 || len(m.told) != 4 || len(m.same) > 0 {
		t.Errorf("%d jobs, %d deliveries, %d told by others than who took them; asked who took them: %v",
			len(runs), len(m.took), len(m.told), m.same)
	}
	machines := map[string]bool{}
	for _, at := range m.took {
		machines[at] = true
	}
	if len(machines) < 2 {
		t.Errorf("all jobs were taken by %v", machines)
	}
}

// wantTrain demands that what passed is merged, in its order, and nothing else.
func (m *gitlabMachines) wantTrain(t *testing.T, passed []*gitlab.MergeRequest, blocked *gitlab.MergeRequest, car *gitlab.Car) {
	t.Helper()
	await(t, "the train's end", func() bool { return passed[len(passed)-1].State() == "merged" && car.Left() != "" })
	last, _ := m.Runner.Run(passed[len(passed)-1].IID(), 0)
	if tip := m.Project.Ref("refs/heads/main"); tip != last.Job.Pipeline().SHA() {
		t.Errorf("main is at %.7s, want the commit that was judged last, %.7s", tip, last.Job.Pipeline().SHA())
	}
	for _, r := range passed {
		if r.State() != "merged" {
			t.Errorf("!%d is %s", r.IID(), r.State())
		}
	}
	if blocked.State() != "opened" {
		t.Errorf("the blocked one is %s", blocked.State())
	}
}

// wantOnce demands that a delivery has one evaluation, staged by one machine
// once, and that every machine tells the same of it, also to whoever sends its
// token again.
func (m *gitlabMachines) wantOnce(t *testing.T, d fencepost.DeliveryID, run world.JobRun) {
	t.Helper()
	staged, evaluations := 0, map[string]bool{}
	var answers, replays []string
	for i := range m.all {
		for _, e := range m.events(t, i, d) {
			if e.Kind == receipt.Staged {
				staged++
			}
			if e.Evaluation != "" {
				evaluations[e.Evaluation] = true
			}
		}
		answers, replays = append(answers, m.answer(t, i, d)), append(replays, m.again(t, i, run))
	}
	if staged != 1 || len(evaluations) != 1 {
		t.Errorf("%s was staged %d times, in the evaluations %v; want once, in one", d, staged, evaluations)
	}
	slices.Sort(answers)
	if len(slices.Compact(answers)) != 1 || !strings.HasPrefix(answers[0], `200 {"outcome":"result"`) || !strings.Contains(answers[0], run.Report.Conclusion) {
		t.Errorf("told of %s: %q", d, answers)
	}
	slices.Sort(replays)
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(slices.Compact(replays)) != 1 || !strings.HasPrefix(replays[0], `200 {"outcome":"replayed"`) || !strings.Contains(replays[0], m.poll[d]) {
		t.Errorf("the token of %s again: %q", d, replays)
	}
}

// DESIGN §12 for a source at GitLab: pushes come in at one machine after the
// other, and what each of them acknowledged is served, also if it dies then.
func TestThreeSourcesAtGitLabOverOneDatabase(t *testing.T) {
	t.Parallel()
	m := newGitLabMachines(t, 3, postgres.Database(t), world.GitLabConfig{
		Files: behave("pass"), Handbook: map[string]string{"a.md": "0\n"}, Timings: swift, YAML: brisk,
	})
	served := func(text string) {
		t.Helper()
		await(t, "the page "+text, func() bool {
			got, err := os.ReadFile(filepath.Join(m.Served(), "a.md"))
			return err == nil && string(got) == text+"\n"
		})
	}
	served("0")
	var head string
	var last gitlab.Delivery
	for i, c := range m.all {
		if err := m.Hook.Set(c.URL()+"/hooks/"+world.SourceName, m.SigningToken); err != nil {
			t.Fatal(err)
		}
		text := fmt.Sprint(i + 1)
		var err error
		if head, err = m.Followed.Push(t.Context(), forgesim.Push{Change: forgesim.Change{Files: map[string]string{"a.md": text + "\n"}}}); err != nil {
			t.Fatal(err)
		}
		await(t, "an answer of machine "+text, func() bool {
			all := m.Forge.Deliveries()
			if len(all) <= i {
				return false
			}
			last = all[i]
			return last.StatusCode != 0
		})
		if last.StatusCode != http.StatusOK {
			t.Fatalf("machine %s answered %d", text, last.StatusCode)
		}
		if i == 1 {
			if err := c.Kill(); err != nil {
				t.Fatal(err)
			}
		}
		served(text)
	}
	await(t, "the head on record", func() bool {
		done, err := m.Applied(t.Context(), head)
		if err != nil {
			t.Fatal(err)
		}
		return done
	})
	_, before, err := m.State(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	// Sent again under its id, to a machine that knows it from the database.
	r, err := m.Forge.SignedRequest(t.Context(), last, m.all[0].URL()+"/hooks/"+world.SourceName)
	if err != nil {
		t.Fatal(err)
	}
	if got := m.do(t, r); !strings.HasPrefix(got, `200 {"outcome":"replayed"`) {
		t.Errorf("the last push again: %s", got)
	}
	if _, after, err := m.State(t.Context()); err != nil || len(after) != len(before) {
		t.Errorf("a push that came again made %d runs of %d (%v)", len(after), len(before), err)
	}
	if len(before) < 4 || before[0].Status != source.Complete {
		t.Errorf("%d runs, the last %s; want one for each of 4 commits", len(before), before[0].Status)
	}
}
