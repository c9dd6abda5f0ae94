package e2e

import (
	"encoding/base64"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost/internal/forgesim"
	"github.com/fencepost/fencepost/internal/forgesim/gitlab"
	"github.com/fencepost/fencepost/internal/source"
	"github.com/fencepost/fencepost/internal/trial/world"
)

// TestGitLabNeverStopsASourcesWebhook: what is not wanted is answered as GitLab
// wants it, and what is not proven is not taken.
func TestGitLabNeverStopsASourcesWebhook(t *testing.T) {
	t.Parallel()
	program, err := doclinks()
	if err != nil {
		t.Fatal(err)
	}
	w, err := world.NewGitLab(t.Context(), world.GitLabConfig{
		Binary: fencepostBinary, Program: program, Dir: t.TempDir(), Now: time.Now,
		Files: map[string]string{"README.md": "# Docs\n"}, Handbook: map[string]string{"a.md": "a\n"},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { // not a cleanup: the controller ends with the test's context
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	}()
	if _, err := w.Controller.Start(t.Context()); err != nil {
		t.Fatal(err)
	}

	// Of another branch, of a project that is not the source's, and deletions.
	if _, err := w.Project.AddHook(gitlab.HookConfig{URL: w.HookURL, SigningToken: w.SigningToken, Pushes: true, Requests: true}); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"one", "two", "three"} {
		for _, p := range []*gitlab.Project{w.Followed, w.Project} {
			if _, err := p.Push(t.Context(), forgesim.Push{Branch: name, Change: forgesim.Change{Files: map[string]string{name: name}}}); err != nil {
				t.Fatal(err)
			}
			if err := p.DeleteBranch(t.Context(), name); err != nil {
				t.Fatal(err)
			}
		}
	}
	const unwanted = 12
	answered := func(n int) []gitlab.Delivery {
		t.Helper()
		sent, err := world.Await(t.Context(), time.Minute, func() ([]gitlab.Delivery, bool, error) {
			all := w.Forge.Deliveries()
			return all, len(all) == n && all[n-1].StatusCode != 0, nil
		})
		if err != nil {
			t.Fatal(err)
		}
		return sent
	}
	for i, d := range answered(unwanted) {
		if d.StatusCode != http.StatusOK {
			t.Errorf("unwanted event %d is answered %d", i, d.StatusCode)
		}
	}
	if status, _ := w.Hook.AlertStatus(); status != "executable" {
		t.Errorf("the webhook is %s", status)
	}

	// What is not proven. The delivery is one that would be taken.
	head, err := w.Followed.Push(t.Context(), forgesim.Push{Change: forgesim.Change{Files: map[string]string{"b.md": "b\n"}}})
	if err != nil {
		t.Fatal(err)
	}
	last := answered(unwanted + 1)[unwanted]
	send := func(change func(*http.Request)) int {
		t.Helper()
		r, err := w.Forge.SignedRequest(t.Context(), last, w.HookURL)
		if err != nil {
			t.Fatal(err)
		}
		if change != nil {
			change(r)
		}
		resp, err := w.Client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		if err := resp.Body.Close(); err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode
	}
	for name, tc := range map[string]struct {
		change func(*http.Request)
		want   int
	}{
		"again, at another time": {nil, 200},
		"under another id":       {func(r *http.Request) { r.Header.Set("webhook-id", "another") }, 401},
		"at a time of long ago":  {func(r *http.Request) { r.Header.Set("webhook-timestamp", "1764500000") }, 401},
		"under another key": {func(r *http.Request) {
			r.Header.Set("webhook-signature", "v1,"+base64.StdEncoding.EncodeToString(make([]byte, 32)))
		}, 401},
		"with a secret token in its place": {func(r *http.Request) {
			r.Header.Del("webhook-signature")
			r.Header.Set("X-Gitlab-Token", w.SigningToken)
		}, 401},
		"of two kinds": {func(r *http.Request) { r.Header.Add("X-Gitlab-Event", "Push Hook") }, 401},
	} {
		if got := send(tc.change); got != tc.want {
			t.Errorf("%s: answered %d, want %d", name, got, tc.want)
		}
	}
	if _, err := world.Await(t.Context(), time.Minute, func() (struct{}, bool, error) {
		done, err := w.Applied(t.Context(), head)
		return struct{}{}, done, err
	}); err != nil {
		t.Fatal(err)
	}
	_, runs, err := w.State(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	// Beside the push's there may be runs for the first tree, for a push that came
	// while that was looked at, and for what the reconciler saw in between.
	pushed := 0
	for _, r := range runs {
		if r.Trigger.Kind == source.ByPush {
			pushed++
		}
	}
	if pushed > 1 {
		t.Errorf("%d of %d runs are for the one push", pushed, len(runs))
	}
	for _, d := range w.Forge.Deliveries() {
		if strings.Contains(string(d.Body), w.SigningToken) {
			t.Error("the signing token is sent")
		}
	}
}

// TestDoctorAtGitLab: a world that works is found well, and what is broken in it
// is named.
func TestDoctorAtGitLab(t *testing.T) {
	t.Parallel()
	w, err := world.NewGitLab(t.Context(), world.GitLabConfig{
		Binary: fencepostBinary, Program: hostileProgram, Dir: t.TempDir(), Now: time.Now,
		Files: map[string]string{"README.md": "# Docs\n"}, Handbook: map[string]string{"a.md": "a\n"},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	}()
	if got := mayBe(doctor(t, w.ConfigFile)); len(got) > 0 {
		t.Errorf("as it is: %v", got)
	}
	w.Project.Set(func(s *gitlab.Settings) { s.Enforcement, s.SkipTrainAllowed = "allow_bypass", true })
	// Only a maintainer's token is shown webhooks.
	token := w.Forge.NewToken("owner", gitlab.Maintainer, "read_api", "read_repository")
	if err := os.WriteFile(filepath.Join(w.Dir, "secrets", "source"), []byte(token), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := w.Hook.Set(w.HookURL, ""); err != nil {
		t.Fatal(err)
	}
	got := strings.Join(mayBe(doctor(t, w.ConfigFile)), ", ")
	for _, want := range []string{"project.merge_train_enforcement", "project.merge_trains_skip_train_allowed", "warn source handbook: webhook"} {
		if !strings.Contains(got, want) {
			t.Errorf("%s is not named in: %s", want, got)
		}
	}
}
