package e2e

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/forgesim"
	"github.com/fencepost/fencepost/internal/forgesim/gitlab"
	"github.com/fencepost/fencepost/internal/trial/world"
)

// A replay is a job's request to a controller, sent again and again.
type replay struct {
	t     *testing.T
	world *world.GitLabWorld
	skew  *skew
	body  string
	token string
	known fencepost.DeliveryID
}

// send sends the request once more.
func (r *replay) send() (world.Answer, int) {
	r.t.Helper()
	req, err := http.NewRequestWithContext(r.t.Context(), http.MethodPost, r.world.JobURL, strings.NewReader(r.body))
	if err != nil {
		r.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+r.token)
	req.Header.Set("Content-Type", "application/json")
	return answerTo(r.t, r.world.Client, req)
}

// wantKnown demands that the request is answered as one that is known.
func (r *replay) wantKnown(when string) {
	r.t.Helper()
	if a, status := r.send(); status/100 != 2 || a.Outcome != "replayed" || a.Delivery != r.known {
		r.t.Errorf("%s: answered %d %s, want replayed %s", when, status, a, r.known)
	}
}

// wantRefused demands that its token is refused.
func (r *replay) wantRefused(when string) {
	r.t.Helper()
	if a, status := r.send(); status != http.StatusUnauthorized {
		r.t.Errorf("%s: answered %d %s, want 401", when, status, a)
	}
}

// again ends the controller, does something, and starts it again.
func (r *replay) again(meanwhile func()) {
	r.t.Helper()
	if err := r.world.Controller.Stop(); err != nil {
		r.t.Fatal(err)
	}
	meanwhile()
	if _, err := r.world.Controller.Start(context.Background()); err != nil {
		r.t.Fatal(err)
	}
}

// compact removes what may be removed, by a clock that is wrong by so much.
func (r *replay) compact(by time.Duration) {
	r.t.Helper()
	r.skew.set(by)
	defer r.skew.set(0)
	cmd := exec.CommandContext(r.t.Context(), r.world.Binary, "ledger", "compact", "--config", r.world.ConfigFile)
	cmd.Env = append(os.Environ(), r.skew.env()...)
	if out, err := cmd.CombinedOutput(); err != nil {
		r.t.Fatalf("compact: %v: %s", err, out)
	}
}

// Invariant 18: no step of the clock opens a replay window early. A job's
// token, whose delivery is remembered for minutes alone, is sent again and
// again, under a clock that is an hour ahead, right, and an hour behind, also
// after the ledger was cleaned up by a wrong one: it is known or refused, and
// never a second delivery.
func TestNoStepOfTheClockOpensAReplayWindow(t *testing.T) {
	t.Parallel()
	program, err := steppable()
	if err != nil {
		t.Fatal(err)
	}
	r := &replay{t: t, skew: newSkew(t)}
	r.world, err = world.NewGitLab(context.Background(), world.GitLabConfig{
		Binary: program, Program: hostileProgram, Dir: t.TempDir(), Now: time.Now,
		Files: behave("pass"), Handbook: map[string]string{"a.md": "a\n"},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.world.Close(); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			dumpLog(t, r.world.Controller.Log)
		}
	})
	r.world.Controller.Env, r.world.Controller.Within = r.skew.env(), barragePatience
	if _, err := r.world.Controller.Start(context.Background()); err != nil {
		t.Fatal(err)
	}
	r.first()
	r.wantKnown("right after it")
	r.skew.set(step)
	r.wantRefused("an hour ahead")
	r.skew.set(0)
	r.wantRefused("set right, which the process works off")
	r.again(func() {})
	r.wantKnown("started anew")
	r.again(func() { r.compact(step) })
	r.wantKnown("cleaned up by a clock that was an hour ahead")
	r.again(func() { r.compact(-step); r.skew.set(-step) })
	r.wantRefused("started an hour behind")
	r.skew.set(0)
	r.wantKnown("set right forward")
	if err := r.world.Controller.Stop(); err != nil {
		t.Error(err)
	}
	found, verified := rowsOf(t, filepath.Join(r.world.Dir, "data", "ledger"))
	if verified != nil {
		t.Error(verified)
	}
	if _, ok := found[r.known]; !ok || len(found) != 1 {
		t.Errorf("%d deliveries, want the one alone: %v", len(found), found)
	}
}

// first has a job run, and keeps its request.
func (r *replay) first() {
	r.t.Helper()
	m, err := r.world.Project.OpenRequest(r.t.Context(), gitlab.Open{Source: "one", Change: forgesim.Change{Files: behave("pass 1")}})
	if err != nil {
		r.t.Fatal(err)
	}
	if _, err := m.JoinTrain(r.t.Context()); err != nil {
		r.t.Fatal(err)
	}
	run, err := world.Await(r.t.Context(), endWithin, func() (world.JobRun, bool, error) {
		run, ok := r.world.Runner.Run(m.IID(), 0)
		return run, ok && run.Ended, nil
	})
	if err != nil || run.Exit != 0 {
		r.t.Fatalf("the job: %v, exit %d: %s", err, run.Exit, run.Said)
	}
	r.body, r.token, r.known = fmt.Sprintf(`{"merge_request":%d}`, m.IID()), run.Token, run.Report.Delivery
}
