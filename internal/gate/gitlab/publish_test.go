package gitlab_test

import (
	"bytes"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fencepost/fencepost"
	forge "github.com/fencepost/fencepost/internal/forgesim/gitlab"
	"github.com/fencepost/fencepost/internal/gate"
	"github.com/fencepost/fencepost/internal/gate/gitlab"
	"github.com/fencepost/fencepost/internal/gate/shelf"
)

const delivery = fencepost.DeliveryID("dlv_aaaaaaaaaaaaaaaaaaaaaaaaaa")

// A quiet is a lane that asks nobody.
type quiet struct {
	bench
	config gitlab.LaneConfig
}

// gateOf is such a lane, and a subject that it may have admitted.
func gateOf(t *testing.T) (*quiet, gate.Subject) {
	b := &quiet{bench: bench{t: t, results: &results{held: map[fencepost.DeliveryID]shelf.Entry{}}, token: "glpat-of-nobody"}}
	b.now.Store(1_764_500_000)
	b.server = &forge.Server{API: "http://127.0.0.1:1/api/v4"}
	b.config = gitlab.LaneConfig{
		Gate: "docs", Repository: gitlab.Repository{ID: 20, OwnerID: 72, Name: "acme/docs"}, BaseRef: "refs/heads/main", Check: "fencepost/docs",
		Instance: parseURL(t, "http://127.0.0.1:1"), Git: parseURL(t, "http://127.0.0.1:1"), AllowHTTP: true,
		Policy: gitlab.Policy{Project: 31, Path: "acme/policies", Commits: []fencepost.CommitID{commit(t, pinned)}, Job: jobName},
		Client: b.client(), Results: b.results,
	}
	var err error
	b.lane, err = gitlab.New(b.config)
	must(t, err)
	return b, gate.Subject{Number: 1, Head: commit(t, pinned), BaseRef: "refs/heads/main", Job: gate.Job{ID: 302, Pipeline: 574, Source: "pipeline_execution_policy"}}
}

// Invariant 7: what is put is byte for byte what was staged, once.
func TestAResultIsPutOnce(t *testing.T) {
	t.Parallel()
	b, s := gateOf(t)
	data := b.document(s, gate.Pass, fencepost.GateRevision{1})
	if v, err := b.lane.Inspect(data); err != nil || !cmp.Equal(v, b.verdict(s, gate.Pass, fencepost.GateRevision{1})) {
		t.Errorf("inspected: %v, %+v", err, v)
	}
	if _, found, err := b.lane.Find(t.Context(), data); found || err != nil {
		t.Fatalf("found before it was put: %v", err)
	}
	for range 2 {
		p, err := b.lane.Create(t.Context(), data)
		if err != nil || p.ID != "result "+string(delivery) {
			t.Fatalf("put: %+v, %v", p, err)
		}
	}
	if p, found, err := b.lane.Find(t.Context(), data); !found || err != nil || p.ID == "" {
		t.Errorf("not found: %+v, %v", p, err)
	}
	if got := b.results.held[delivery]; !bytes.Equal(got.Document, data) {
		t.Errorf("held %q", got.Document)
	}
	other := b.document(s, gate.Fail, fencepost.GateRevision{1})
	_, err := b.lane.Create(t.Context(), other)
	wantReason(t, err, fencepost.ReasonPublishConflict)
	_, _, err = b.lane.Find(t.Context(), other)
	wantReason(t, err, fencepost.ReasonPublishConflict)
}

// TestAnEndIsTold: and never takes a result's place; a result that is published
// after all takes an end's.
func TestAnEndIsTold(t *testing.T) {
	t.Parallel()
	b, s := gateOf(t)
	must(t, b.lane.Ended(t.Context(), delivery, fencepost.ReasonSuperseded))
	must(t, b.lane.Ended(t.Context(), delivery, fencepost.ReasonNone))
	if got := b.results.held[delivery]; got.Reason != fencepost.ReasonSuperseded || got.Document != nil {
		t.Errorf("held %+v", got)
	}
	data := b.document(s, gate.Pass, fencepost.GateRevision{1})
	if _, found, err := b.lane.Find(t.Context(), data); found || err != nil {
		t.Errorf("found in the place of an end: %v, %v", found, err)
	}
	_, err := b.lane.Create(t.Context(), data)
	must(t, err)
	must(t, b.lane.Ended(t.Context(), delivery, fencepost.ReasonNone))
	if got := b.results.held[delivery]; !bytes.Equal(got.Document, data) {
		t.Errorf("an end took the result's place: %+v", got)
	}
}

// TestAWriteOfUnknownOutcomeIsLookedUp: whether it was done or not.
func TestAWriteOfUnknownOutcomeIsLookedUp(t *testing.T) {
	t.Parallel()
	b, s := gateOf(t)
	data := b.document(s, gate.Pass, fencepost.GateRevision{1})
	for _, lost := range []bool{false, true} {
		b.results.fail, b.results.lost = &fencepost.Error{Op: "put", Reason: fencepost.ReasonUnavailable, Err: errors.New("no answer")}, lost
		_, err := b.lane.Create(t.Context(), data)
		if !errors.Is(err, gate.ErrUnknown) || fencepost.ReasonOf(err) != fencepost.ReasonUnavailable {
			t.Errorf("error %v, want one of unknown outcome", err)
		}
		if _, found, err := b.lane.Find(t.Context(), data); found != lost || err != nil {
			t.Errorf("found %v, %v; want %v", found, err, lost)
		}
	}
	b.results.held = map[fencepost.DeliveryID]shelf.Entry{}
	b.results.fail, b.results.lost = shelf.Full("put"), false
	_, err := b.lane.Create(t.Context(), data)
	wantReason(t, err, fencepost.ReasonFull)
	if errors.Is(err, gate.ErrUnknown) {
		t.Error("what found no room is of unknown outcome")
	}
}

// TestDocumentsAreOfOneForm: another's, altered or incomplete ones are none.
func TestDocumentsAreOfOneForm(t *testing.T) {
	t.Parallel()
	b, s := gateOf(t)
	data := b.document(s, gate.Pass, fencepost.GateRevision{1})
	for _, c := range []struct{ name, old, new string }{
		{"a blank", `{"artifact"`, `{ "artifact"`},
		{"another schema", gitlab.DocumentSchema, "fencepost.publication.gitea/v1"},
		{"a job without an id", `"id":"302"`, `"id":"0"`},
		{"no evidence", `"artifact":"art_1"`, `"artifact":""`},
		{"more fields", `{"artifact"`, `{"a":1,"artifact"`},
	} {
		changed := bytes.Replace(data, []byte(c.old), []byte(c.new), 1)
		if bytes.Equal(changed, data) {
			t.Fatalf("%s: nothing was changed in %s", c.name, data)
		}
		if _, err := b.lane.Inspect(changed); !errors.Is(err, fencepost.ErrMalformed) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	webhooks := s
	webhooks.Job = gate.Job{}
	if _, err := b.lane.Compose(b.verdict(webhooks, gate.Pass, fencepost.GateRevision{1})); !errors.Is(err, fencepost.ErrMalformed) {
		t.Errorf("without a job: %v", err)
	}
	config := b.config
	config.Gate = "others"
	lane, err := gitlab.New(config)
	must(t, err)
	_, err = lane.Create(t.Context(), data)
	wantReason(t, err, fencepost.ReasonIdentity)
	_, _, err = lane.Find(t.Context(), data)
	wantReason(t, err, fencepost.ReasonIdentity)
	_, err = lane.Create(t.Context(), data[1:])
	wantReason(t, err, fencepost.ReasonCorrupt)
}

// TestNothingIsMissedHere: the sender is a job that fails by itself.
func TestNothingIsMissedHere(t *testing.T) {
	t.Parallel()
	b, s := gateOf(t)
	if open, err := b.lane.Open(t.Context()); len(open) != 0 || err != nil {
		t.Errorf("open %v, %v", open, err)
	}
	if shown, err := b.lane.Shown(t.Context(), s); shown || err != nil {
		t.Errorf("shown %v, %v", shown, err)
	}
}

func TestNewRefuses(t *testing.T) {
	t.Parallel()
	b, _ := gateOf(t)
	for name, change := range map[string]func(*gitlab.LaneConfig){
		"no client":         func(c *gitlab.LaneConfig) { c.Client = nil },
		"no results":        func(c *gitlab.LaneConfig) { c.Results = nil },
		"no name":           func(c *gitlab.LaneConfig) { c.Gate = "" },
		"no project":        func(c *gitlab.LaneConfig) { c.Repository.ID = 0 },
		"no namespace":      func(c *gitlab.LaneConfig) { c.Repository.OwnerID = 0 },
		"a path that leads": func(c *gitlab.LaneConfig) { c.Repository.Name = "acme/../docs" },
		"a tag":             func(c *gitlab.LaneConfig) { c.BaseRef = "refs/tags/v1" },
		"no check":          func(c *gitlab.LaneConfig) { c.Check = "" },
		"no policy":         func(c *gitlab.LaneConfig) { c.Policy.Project = 0 },
		"no policy's path":  func(c *gitlab.LaneConfig) { c.Policy.Path = "policies" },
		"no job":            func(c *gitlab.LaneConfig) { c.Policy.Job = "" },
		"no commits":        func(c *gitlab.LaneConfig) { c.Policy.Commits = nil },
		"a zero commit":     func(c *gitlab.LaneConfig) { c.Policy.Commits = make([]fencepost.CommitID, 1) },
		"many commits":      func(c *gitlab.LaneConfig) { c.Policy.Commits = make([]fencepost.CommitID, gitlab.MaxCommits+1) },
		"no instance":       func(c *gitlab.LaneConfig) { c.Instance = nil },
		"plain HTTP":        func(c *gitlab.LaneConfig) { c.AllowHTTP = false },
		"a query":           func(c *gitlab.LaneConfig) { c.Git = parseURL(t, "https://git.example.org?x=1") },
	} {
		config := b.config
		change(&config)
		if _, err := gitlab.New(config); !errors.Is(err, fencepost.ErrMalformed) && !errors.Is(err, fencepost.ErrZeroValue) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestExamine: what is right has no fault, and what is not has a mend.
func TestExamine(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	faults := func() (names []string) {
		for _, f := range b.lane.Examine(t.Context()) {
			if !f.Met() && f.Skipped == "" {
				if names = append(names, f.Name); f.Mend == "" {
					t.Errorf("%s has no mend", f.Name)
				}
			}
		}
		return names
	}
	if got := faults(); got != nil {
		t.Errorf("faults %v, want none", got)
	}
	b.commits = append(b.commits, commit(t, pinned))
	b.lane = b.newLane()
	b.docs.Protect()
	must(t, b.docs.Rename("manual"))
	want := []string{"project.path", "branch.protected", "branch.push", "branch.allow_force_push", "policy.file at " + pinned[:12]}
	if diff := cmp.Diff(want, faults()); diff != "" {
		t.Errorf("faults (-want +got):\n%s", diff)
	}
	b.token = b.forge.NewToken("reader", 40, "read_api")
	if diff := cmp.Diff(append(append(want[:4:4], "git"), want[4]), faults()); diff != "" {
		t.Errorf("without read_repository (-want +got):\n%s", diff)
	}
	b.token = "glpat-of-nobody"
	if got := faults(); len(got) < 2 || got[0] != "project" {
		t.Errorf("with no token: %v", got)
	}
}
