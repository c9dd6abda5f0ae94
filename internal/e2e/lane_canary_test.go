package e2e

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
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
	"github.com/fencepost/fencepost/internal/forgesim"
	"github.com/fencepost/fencepost/internal/forgesim/gitea"
	"github.com/fencepost/fencepost/internal/forgesim/gitlab"
	"github.com/fencepost/fencepost/internal/trial/world"
)

// laneCanaries are what goes in at the edges of every lane.
func laneCanaries() map[string]string {
	return map[string]string{
		"title": "CANARY-TITLE-7d1f", "commit message": "CANARY-MESSAGE-20d4", "branch": "canary-branch-b0b0",
		"sender": "canary-sender-41aa", "sender's address": "canary-sender-41aa@", "header value": "CANARY-HEADER-90c3",
		"provider's text": "CANARY-PROVIDER-3e3e", "secret's path": "secrets/canary-nowhere-5e", "refused body": "CANARY-BODY-7d1f",
	}
}

// configureMore makes what fails end soon, and alerts be told to an Alertmanager.
func configureMore(t *testing.T, name string, heard *alertListener) {
	t.Helper()
	text := "work: {attempts: 2, backoff: 100ms}\nalerts: {alertmanager: " + heard.url + ", allow_http: true}\n"
	was, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, append(was, text...), 0o600); err != nil {
		t.Fatal(err)
	}
}

// secretOf reads a secret of a world's.
func secretOf(t *testing.T, dir, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, "secrets", name))
	if err != nil || len(text) < 16 {
		t.Fatalf("secret %s: %d bytes, %v", name, len(text), err)
	}
	return string(text)
}

// Invariant 16 at Gitea.
func TestNoSecretOfAGateAtGiteaReachesAnyOutput(t *testing.T) {
	t.Parallel()
	w, err := world.NewGitea(context.Background(), world.GiteaConfig{
		Binary: fencepostBinary, Program: hostileProgram, Dir: t.TempDir(), Now: time.Now, Files: behave("pass"), Args: []string{"--debug"},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	})
	heard := hearAlerts(t)
	configureMore(t, w.ConfigFile, heard)
	if _, err := w.Controller.Start(context.Background()); err != nil {
		t.Fatal(err)
	}
	canaries := laneCanaries()
	canaries["webhook secret"], canaries["data directory"] = w.Secret, filepath.Join(w.Dir, "data")
	canaries["reviewer's token"], canaries["rule token"] = secretOf(t, w.Dir, "reviewer"), secretOf(t, w.Dir, "rules")
	canaries["basic credential"] = "fencepost:" + canaries["reviewer's token"]
	judged := func(what, state string) {
		t.Helper()
		p, err := w.Repository.OpenPull(t.Context(), forgesim.OpenPull{
			Head: canaries["branch"] + what, Title: canaries["title"], Body: canaries["refused body"], Actor: canaries["sender"],
			Change: forgesim.Change{Files: behave(what), Message: canaries["commit message"]},
		}, nil)
		if err != nil {
			t.Fatal(err)
		}
		await(t, what, func() bool {
			return slices.ContainsFunc(w.Repository.Statuses(p.Head()), func(s gitea.Status) bool { return s.State == state })
		})
	}
	judged("pass", "success")
	accepted := acceptAtGitea(t, w, canaries["header value"])
	judged("crash", "failure")
	w.Forge.Interfere(stumble(t, canaries["provider's text"], "/pulls/", "/statuses/", w.Forge.Quietly))
	judged("block", "failure")
	s := searched{controller: w.Controller, data: filepath.Join(w.Dir, "data"), config: w.ConfigFile, ops: w.OpsURL, client: w.Client}
	s.forge(t, w.HookURL, "X-Gitea-Signature", strings.Repeat("0", 64), canaries["header value"])
	s.failReload(t, "file:secrets/webhook", canaries["secret's path"])
	await(t, "an alert at the Alertmanager", func() bool { return bytes.Contains(heard.all(), []byte("retries_exhausted")) })
	outputs := map[string][]byte{"posted alerts": heard.all()}
	var went []byte
	for _, d := range w.Forge.Deliveries() {
		went = append(went, d.Body...)
		if sum := d.Header.Get("X-Gitea-Signature"); sum != "" {
			canaries["signature of "+d.UUID] = sum
		}
	}
	wantIn(t, went, canaries, "title", "branch", "sender", "sender's address")
	s.search(t, accepted, outputs, canaries)
}

// wantIn fails unless what went in holds the canaries: what never was there is
// found nowhere.
func wantIn(t *testing.T, went []byte, canaries map[string]string, names ...string) {
	t.Helper()
	for _, name := range names {
		if canaries[name] == "" || !bytes.Contains(went, []byte(canaries[name])) {
			t.Errorf("%s %q did not go in", name, canaries[name])
		}
	}
}

// stumble has two reads of a part garbled by a text of the provider's, and the
// answer of the first write of another part lost.
func stumble(t *testing.T, text, reads, writes string, quietly func(*http.Request)) func(*http.Request) *gitea.Answer {
	var mu sync.Mutex
	garbled, lost := 2, 1
	return func(r *http.Request) *gitea.Answer {
		mu.Lock()
		defer mu.Unlock()
		switch {
		case r.Method == http.MethodGet && strings.Contains(r.URL.Path, reads) && garbled > 0:
			garbled--
			return &gitea.Answer{Status: http.StatusOK, Header: http.Header{"X-Canary": {text}}, Body: `{"message":"` + text}
		case r.Method == http.MethodPost && strings.Contains(r.URL.Path, writes) && lost > 0:
			lost--
			quietly(r)
			return &gitea.Answer{}
		}
		return nil
	}
}

// acceptAtGitea sends an event again in other words and with a further header,
// which makes it a delivery of its own, and waits for its end.
func acceptAtGitea(t *testing.T, w *world.GiteaWorld, header string) fencepost.DeliveryID {
	t.Helper()
	var last gitea.Delivery
	for _, d := range w.Forge.Deliveries() {
		if d.Event == "pull_request" {
			last = d
		}
	}
	last.Body = append(slices.Clone(last.Body), '\n')
	req, err := w.Forge.Request(t.Context(), last, w.HookURL)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-Canary", header)
	resp, err := w.Client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, 1<<16))
	if err != nil {
		t.Fatal(err)
	}
	answer, err := world.ReadAnswer(text)
	if err != nil || answer.Outcome != "accepted" {
		t.Fatalf("answered %s (%v), want accepted", text, err)
	}
	return answer.Delivery
}

// Invariant 16 at GitLab: of the job's side, too.
func TestNoSecretOfAGateAtGitLabReachesAnyOutput(t *testing.T) {
	t.Parallel()
	w, err := world.NewGitLab(context.Background(), world.GitLabConfig{
		Binary: fencepostBinary, Program: hostileProgram, Dir: t.TempDir(), Now: time.Now,
		Files: behave("pass"), Handbook: map[string]string{"a.md": "a\n"}, Args: []string{"--debug"},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	})
	heard := hearAlerts(t)
	configureMore(t, w.ConfigFile, heard)
	if _, err := w.Controller.Start(context.Background()); err != nil {
		t.Fatal(err)
	}
	canaries := laneCanaries()
	canaries["signing token"], canaries["data directory"] = w.SigningToken, filepath.Join(w.Dir, "data")
	canaries["gate's token"], canaries["source's token"] = secretOf(t, w.Dir, "gate"), secretOf(t, w.Dir, "source")
	canaries["basic credential"] = "fencepost:" + canaries["gate's token"]
	polls := hearPolls(w.Runner)
	judged := func(what string, exit int) world.JobRun {
		t.Helper()
		m, err := w.Project.OpenRequest(t.Context(), gitlab.Open{
			Source: canaries["branch"] + what, Title: canaries["title"], Actor: canaries["sender"],
			Change: forgesim.Change{Files: behave(what), Message: canaries["commit message"]},
		})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := m.JoinTrain(t.Context()); err != nil {
			t.Fatal(err)
		}
		var run world.JobRun
		await(t, what, func() bool {
			run, _ = w.Runner.Run(m.IID(), 0)
			return run.Ended
		})
		if (run.Exit == 0) != (exit == 0) {
			t.Fatalf("%s: exit %d, want %d: %s", what, run.Exit, exit, run.Said)
		}
		return run
	}
	accepted := judged("pass", 0).Report.Delivery
	judged("crash", 1)
	disturb := stumble(t, canaries["provider's text"], "/jobs/", "/none/", nil)
	w.Forge.Interfere(func(r *http.Request) *gitlab.Answer {
		if a := disturb(r); a != nil {
			return &gitlab.Answer{Status: a.Status, Header: a.Header, Body: a.Body}
		}
		return nil
	})
	judged("block", 1)
	s := searched{controller: w.Controller, data: filepath.Join(w.Dir, "data"), config: w.ConfigFile, ops: w.OpsURL, client: w.Client}
	s.forge(t, w.JobURL, "Authorization", "Bearer "+canaries["header value"]+".e30.e30", canaries["header value"])
	s.failReload(t, "file:secrets/signing", canaries["secret's path"])
	await(t, "an alert at the Alertmanager", func() bool { return bytes.Contains(heard.all(), []byte("retries_exhausted")) })
	outputs := map[string][]byte{"posted alerts": heard.all()}
	var went []byte
	for i, run := range w.Runner.Runs() {
		at := run.Job.Name() + " " + string(rune('a'+i))
		canaries["token of "+at] = run.Token
		canaries["signature of "+at] = run.Token[strings.LastIndexByte(run.Token, '.')+1:]
		canaries["claims of "+at] = strings.Split(run.Token, ".")[1]
		claims, err := base64.RawURLEncoding.DecodeString(strings.Split(run.Token, ".")[1])
		if err != nil {
			t.Fatal(err)
		}
		went = append(went, claims...)
		report, err := json.Marshal(run.Report)
		if err != nil {
			t.Fatal(err)
		}
		outputs["what "+at+" said"], outputs["what "+at+" reported"] = []byte(run.Said), report
	}
	given := polls()
	if len(given) < 3 {
		t.Fatalf("%d poll secrets were given, want one for each job", len(given))
	}
	for i, poll := range given {
		canaries["poll secret "+string(rune('a'+i))] = poll
	}
	wantIn(t, went, canaries, "branch", "sender", "sender's address")
	s.search(t, accepted, outputs, canaries)
}

// hearPolls hears the poll secrets that jobs are given.
func hearPolls(r *world.Runner) func() []string {
	var mu sync.Mutex
	var heard []string
	r.Lose(func(_ *http.Request, body []byte) bool {
		var answer struct{ Poll string }
		if json.Unmarshal(body, &answer) == nil && answer.Poll != "" {
			mu.Lock()
			defer mu.Unlock()
			if !slices.Contains(heard, answer.Poll) {
				heard = append(heard, answer.Poll)
			}
		}
		return false
	})
	return func() []string {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(heard)
	}
}
