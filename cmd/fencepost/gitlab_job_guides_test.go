package main

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"
)

// A guideJob is the policy's job as guides show it.
type guideJob struct {
	Stage        string
	Image        string
	Rules        []map[string]string
	IDTokens     map[string]map[string]string `yaml:"id_tokens"`
	Variables    map[string]string
	Dependencies *[]string
	Timeout      time.Duration
	AllowFailure *bool `yaml:"allow_failure"`
	Script       []string
}

// section is what stands in a guide between two texts.
func section(t *testing.T, guide, from, to string) string {
	t.Helper()
	text, err := os.ReadFile("../../docs/" + guide)
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(string(text), from)
	inside, _, closed := strings.Cut(rest, to)
	if !found || !closed {
		t.Fatalf("%s has no %q", guide, from)
	}
	return inside
}

// The job that an operator copies is the same in both guides, is as the guides
// say that it must be, and its command is one that this program takes.
func TestTheGuidesHaveOneJobThatWorks(t *testing.T) {
	t.Parallel()
	const from, to = "```yaml\n# fencepost.yml\n", "```"
	text := section(t, "gates-gitlab.md", from, to)
	if other := section(t, "gitlab-job.md", from, to); other != text {
		t.Errorf("the guides have two jobs:\n%s\n%s", text, other)
	}
	var file map[string]guideJob
	if err := yaml.UnmarshalWithOptions([]byte(text), &file, yaml.Strict()); err != nil {
		t.Fatal(err)
	}
	var gate struct {
		Gates map[string]struct {
			Audience string
			Policy   struct{ Job string }
		}
	}
	if err := yaml.Unmarshal([]byte("gates:"+section(t, "gates-gitlab.md", "\ngates:", to)), &gate); err != nil {
		t.Fatal(err)
	}
	docs := gate.Gates["docs"]
	job, ok := file[docs.Policy.Job]
	if !ok || len(file) != 1 {
		t.Fatalf("the file has %v, the gate's job is %q", file, docs.Policy.Job)
	}
	audience := job.IDTokens[tokenVariable]["aud"]
	if audience == "" || audience != docs.Audience {
		t.Errorf("the token is for %q, the gate's audience is %q", audience, docs.Audience)
	}
	if !regexp.MustCompile(`@sha256:[0-9a-f]{64}$`).MatchString(job.Image) {
		t.Errorf("the image %s is named by no digest", job.Image)
	}
	if job.AllowFailure == nil || *job.AllowFailure {
		t.Error("the job does not say allow_failure: false")
	}
	if job.Dependencies == nil || len(*job.Dependencies) != 0 || job.Variables["GIT_STRATEGY"] != "none" {
		t.Errorf("the job takes files of others: %+v", job)
	}
	if len(job.Rules) != 1 || !strings.Contains(job.Rules[0]["if"], `$CI_MERGE_REQUEST_EVENT_TYPE == "merge_train"`) {
		t.Errorf("the job's rules are %v", job.Rules)
	}
	wantCommand(t, job)
}

// wantCommand demands that the job's script is one command of this program, to
// the gate of the guide, that ends before the job is cut off.
func wantCommand(t *testing.T, job guideJob) {
	t.Helper()
	args := strings.Fields(strings.Join(job.Script, "\n"))
	if len(job.Script) != 1 || !slices.Equal(args[:2], []string{"fencepost", "gitlab-job"}) {
		t.Fatalf("the script is %q", job.Script)
	}
	cmd := Main{}.gitlabJobCommand()
	if err := cmd.ParseFlags(args[2:]); err != nil {
		t.Fatal(err)
	}
	waits, err := cmd.Flags().GetDuration("timeout")
	if err != nil {
		t.Fatal(err)
	}
	if waits >= job.Timeout {
		t.Errorf("the client waits %s, and the job is cut off after %s", waits, job.Timeout)
	}
	// Nothing is sent: a token that is none is refused once the URL was found to
	// be in order.
	env := map[string]string{tokenVariable: "none", requestVariable: "7"}
	if code, _, errs := runJob(t, t.Context(), env, args[2:]...); code != exitUsage || !strings.Contains(errs, "the token must be an ID token") {
		t.Errorf("code %d: %s", code, errs)
	}
}
