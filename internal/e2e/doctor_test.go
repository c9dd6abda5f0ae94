package e2e

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost/internal/forgesim"
	"github.com/fencepost/fencepost/internal/forgesim/gitea"
	"github.com/fencepost/fencepost/internal/trial/world"
)

// A doctored is what `fencepost doctor --json` says.
type doctored struct {
	OK     bool
	Checks []check
}

type check struct{ Subject, Check, Status, Seen, Mend string }

// not lists the checks that are not of the statuses, as "status subject:
// check".
func (d doctored) not(statuses ...string) (all []string) {
	for _, c := range d.Checks {
		if !strings.Contains(" "+strings.Join(statuses, " ")+" ", " "+c.Status+" ") {
			all = append(all, c.Status+" "+c.Subject+": "+c.Check)
		}
	}
	return all
}

// doctor runs it over a configuration, and holds that it tells no secret of the
// directory beside, that what is wrong has a mend, and its exit code.
func doctor(t *testing.T, file string) doctored {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), fencepostBinary, "doctor", "--config", file, "--json")
	var stderr strings.Builder
	cmd.Stderr = &stderr
	text, err := cmd.Output()
	var d doctored
	if jsonErr := json.Unmarshal(text, &d); jsonErr != nil {
		t.Fatalf("%v: %s%s", jsonErr, text, stderr.String())
	}
	if (err == nil) != d.OK || cmd.ProcessState.ExitCode() > 1 {
		t.Errorf("ok is %t, and it ended with %v", d.OK, err)
	}
	for _, c := range d.Checks {
		if (c.Status == "fail" || c.Status == "warn") && c.Mend == "" {
			t.Errorf("%+v has no mend", c)
		}
	}
	secrets, err := filepath.Glob(filepath.Join(filepath.Dir(file), "secrets", "*"))
	if err != nil || len(secrets) == 0 {
		t.Fatalf("secrets: %v, %v", secrets, err)
	}
	for _, name := range secrets {
		secret, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(text)+stderr.String(), string(secret)) {
			t.Errorf("it tells what is in %s", filepath.Base(name))
		}
	}
	return d
}

// mayBe are checks that are about the machine that the test runs on.
func mayBe(d doctored) (rest []string) {
	for _, c := range d.not("ok", "skipped") {
		if !strings.Contains(c, "clock.synchronized") && !strings.Contains(c, "data_dir: ") && !strings.Contains(c, "machine: sandbox") {
			rest = append(rest, c)
		}
	}
	return rest
}

// A world that works is found well, beside its running controller and without
// it, and what is broken in it is named.
func TestDoctor(t *testing.T) {
	t.Parallel()
	w := newWorld(t, world.Config{Source: &world.SourceConfig{Repository: forgesim.Import{Files: map[string]string{"page": "1"}}}})
	least := forgesim.Permissions{"checks": "write", "contents": "read", "metadata": "read", "pull_requests": "read", "statuses": "read"}
	// The App is on it already.
	installation, err := w.Forge.App().Install(w.Repository)
	if err != nil {
		t.Fatal(err)
	}
	installation.SetPermissions(least)
	if got := mayBe(doctor(t, w.ConfigFile)); len(got) > 0 {
		t.Errorf("beside a controller: %v", got)
	}
	kill(t, w)
	least["checks"] = "read"
	installation.SetPermissions(least)
	d := doctor(t, w.ConfigFile)
	if got := strings.Join(mayBe(d), ", "); !strings.Contains(got, "fail gate docs: permission.checks") {
		t.Errorf("a permission was taken back: %s", got)
	}
	w.Forge.SetDown(true)
	if d := doctor(t, w.ConfigFile); d.OK {
		t.Error("a forge that is down is well")
	}
}

// The plan's program is fetched and held against its digest, before a request
// needs it.
func TestDoctorFetchesThePlansProgram(t *testing.T) {
	t.Parallel()
	w := newWorld(t, world.Config{})
	text, err := os.ReadFile(w.ConfigFile)
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ name, pattern, instead, fails, seen string }{
		{"commit", `commit: "[0-9a-f]{40}"`, `commit: "` + strings.Repeat("a", 40) + `"`, "plan.action", "the repository does not have the commit"},
		{"url", `checks\.git`, "nowhere.git", "plan.action", "no repository is there that may be seen"},
		{"program", `program: \S+`, "program: bin/other", "plan.program", "the action has no file bin/other"},
		{"digest", `sha256: "[0-9a-f]{64}"`, `sha256: "` + strings.Repeat("0", 64) + `"`, "plan.program", "SHA-256 "},
		{"size", `wall: 1m0s`, "wall: 1m0s\n      program_size: 1KiB", "plan.program", "larger than plan.program_size"},
	} {
		altered := regexp.MustCompile(tt.pattern).ReplaceAllLiteral(text, []byte(tt.instead))
		file := filepath.Join(filepath.Dir(w.ConfigFile), tt.name+".yaml")
		if err := os.WriteFile(file, altered, 0o600); err != nil {
			t.Fatal(err)
		}
		d := doctor(t, file)
		i := slices.IndexFunc(d.Checks, func(c check) bool { return c.Check == tt.fails })
		if i < 0 || d.OK || d.Checks[i].Status != "fail" || !strings.HasPrefix(d.Checks[i].Seen, tt.seen) {
			t.Errorf("%s: %v", tt.name, d.not("ok", "skipped"))
			for _, c := range d.Checks {
				if strings.HasPrefix(c.Check, "plan.") {
					t.Errorf("%+v", c)
				}
			}
		}
	}
}

func TestDoctorAtGitea(t *testing.T) {
	t.Parallel()
	for _, forgejo := range []bool{false, true} {
		w, err := world.NewGitea(context.Background(), world.GiteaConfig{
			Binary: fencepostBinary, Program: hostileProgram, Dir: t.TempDir(), Now: time.Now, Forgejo: forgejo, Files: behave("pass"),
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := w.Close(); err != nil {
				t.Error(err)
			}
		})
		// Its webhook leads to loopback, which a server must have been allowed.
		const address = "warn gate docs: webhook.address"
		if got := mayBe(doctor(t, w.ConfigFile)); !slices.Equal(got, []string{address}) {
			t.Errorf("%s: %v", w.Kind(), got)
		}
		rule := gitea.GateRule("main", world.Reviewer, world.CheckName)
		rule.IgnoreStale, rule.BlockAdmins = false, false
		w.Repository.Protect(rule)
		got := mayBe(doctor(t, w.ConfigFile))
		if len(got) != 3 || !strings.Contains(got[0], "rule.ignore_stale_approvals") || got[2] != address {
			t.Errorf("%s, two settings broken: %v", w.Kind(), got)
		}
	}
}

// A database is found by what it says of itself: one that no controller has
// used, one that is in use, and one that answers before a commit is safe.
func TestDoctorOfADatabase(t *testing.T) {
	t.Parallel()
	f, err := world.NewField(context.Background(), world.FieldConfig{
		Binary: fencepostBinary, Dir: t.TempDir(), Now: time.Now, Databases: []string{postgres.Database(t)},
		Repositories: map[string]forgesim.Import{"pages": {Files: map[string]string{"page": "1"}}},
		Sources:      []world.FieldSource{{Key: "pages", Repository: "pages"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	of := func(check string) string {
		t.Helper()
		for _, c := range doctor(t, f.ConfigFile(0)).Checks {
			if c.Subject == "database" && c.Check == check {
				return c.Status
			}
		}
		return ""
	}
	if got := of("open"); got != "warn" {
		t.Errorf("a database that no controller has used: %q", got)
	}
	if _, err := f.Controllers[0].Start(context.Background()); err != nil {
		t.Fatal(err)
	}
	for _, check := range []string{"open", "durability", "settings", "clock"} {
		if got := of(check); got != "ok" {
			t.Errorf("a database that is in use: %s is %q", check, got)
		}
	}
	url := filepath.Join(f.Dir, "secrets", "database-1")
	text, err := os.ReadFile(url)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(url, append(text, "&synchronous_commit=off"...), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := of("durability"); got != "fail" {
		t.Errorf("a URL that turns synchronous_commit down: %q", got)
	}
}
