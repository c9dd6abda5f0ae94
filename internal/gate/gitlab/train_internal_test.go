package gitlab

import (
	"errors"
	"strings"
	"testing"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/gate"
)

const (
	ownProject = 20
	shaA       = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
	shaB       = "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
	shaC       = "cccccccccccccccccccccccccccccccccccccccc"
)

func car(id, iid int64, pipeline *pipelineAnswer) carAnswer {
	c := carAnswer{ID: id, Pipeline: pipeline, Status: "fresh"}
	c.Request.IID, c.Request.ProjectID = iid, ownProject
	return c
}

// TestWhatACarStandsBehind: the car with the next lower id, in whichever order
// the list is.
func TestWhatACarStandsBehind(t *testing.T) {
	t.Parallel()
	a, b, c := car(5, 1, &pipelineAnswer{ID: 1, SHA: shaA}), car(7, 2, &pipelineAnswer{ID: 2, SHA: shaB}), car(9, 3, &pipelineAnswer{ID: 3, SHA: shaC})
	unmade := car(7, 2, nil)
	foreign := b
	foreign.Request.ProjectID = 21
	for _, tt := range []struct {
		name   string
		cars   []carAnswer
		number int64
		mine   int64
		before string
	}{
		{"the first", []carAnswer{a, b, c}, 1, 5, ""},
		{"the second", []carAnswer{a, b, c}, 2, 7, shaA},
		{"the third", []carAnswer{c, a, b}, 3, 9, shaB},
		{"behind one without a pipeline", []carAnswer{a, unmade, c}, 3, 9, ""},
		{"not in the train", []carAnswer{a, c}, 2, 0, ""},
		{"another project's request of that number", []carAnswer{a, foreign, c}, 2, 0, ""},
		{"an empty train", nil, 1, 0, ""},
	} {
		got := trainOf(tt.cars, ownProject, tt.number)
		var mine int64
		if got.mine != nil {
			mine = got.mine.ID
		}
		before := ""
		if !got.before.IsZero() {
			before = got.before.String()
		}
		if mine != tt.mine || before != tt.before {
			t.Errorf("%s: car %d behind %q, want %d behind %q", tt.name, mine, before, tt.mine, tt.before)
		}
	}
}

// TestWhenAPipelineKeepsNothingFromBeingMerged: by request, car and job, in this
// order.
func TestWhenAPipelineKeepsNothingFromBeingMerged(t *testing.T) {
	t.Parallel()
	s := gate.Subject{Number: 1, Job: gate.Job{ID: 302, Pipeline: 574}}
	no, yes := false, true
	for _, tt := range []struct {
		name   string
		change func(*answers, *carAnswer)
		want   fencepost.Reason
		err    error
	}{
		{"it does", func(*answers, *carAnswer) {}, "", nil},
		{"idle", func(_ *answers, c *carAnswer) { c.Status = "idle" }, "", nil},
		{"closed", func(a *answers, _ *carAnswer) { a.request.State = "closed" }, fencepost.ReasonClosed, nil},
		{"a draft", func(a *answers, _ *carAnswer) { a.request.Draft = &yes }, fencepost.ReasonDraft, nil},
		{"stale", func(_ *answers, c *carAnswer) { c.Status = "stale" }, fencepost.ReasonSuperseded, nil},
		{"merging", func(_ *answers, c *carAnswer) { c.Status = "merging" }, fencepost.ReasonSuperseded, nil},
		{"merged", func(_ *answers, c *carAnswer) { c.Status = "merged" }, fencepost.ReasonSuperseded, nil},
		{"merged past the train", func(_ *answers, c *carAnswer) { c.Status = "skip_merged" }, fencepost.ReasonSuperseded, nil},
		{"a status that is not known", func(_ *answers, c *carAnswer) { c.Status = "parked" }, fencepost.ReasonSuperseded, nil},
		{"another pipeline", func(_ *answers, c *carAnswer) { c.Pipeline.ID = 575 }, fencepost.ReasonSuperseded, nil},
		{"no pipeline yet", func(_ *answers, c *carAnswer) { c.Pipeline = nil }, "", gate.ErrNotYet},
		{"no job yet", func(a *answers, _ *carAnswer) { a.job = nil }, "", gate.ErrNotYet},
		{"no job, and another pipeline", func(a *answers, c *carAnswer) { a.job, c.Pipeline.ID = nil, 575 }, fencepost.ReasonSuperseded, nil},
		{"success", func(a *answers, _ *carAnswer) { a.job.Status = "success" }, fencepost.ReasonSuperseded, nil},
		{"failed", func(a *answers, _ *carAnswer) { a.job.Status = "failed" }, fencepost.ReasonSuperseded, nil},
		{"canceling", func(a *answers, _ *carAnswer) { a.job.Status = "canceling" }, fencepost.ReasonSuperseded, nil},
	} {
		c := car(5, 1, &pipelineAnswer{ID: 574})
		a := answers{job: &jobAnswer{Status: "running"}, request: &requestAnswer{State: "opened", Draft: &no}}
		tt.change(&a, &c)
		got, err := ended(s, a, train{mine: &c})
		if got != tt.want || !errors.Is(err, tt.err) || (err == nil) != (tt.err == nil) {
			t.Errorf("%s: %q, %v; want %q, %v", tt.name, got, err, tt.want, tt.err)
		}
	}
	if got, err := ended(s, answers{request: &requestAnswer{State: "opened", Draft: &no}}, train{}); got != fencepost.ReasonSuperseded || err != nil {
		t.Errorf("out of the train: %q, %v", got, err)
	}
}

// TestACarMustBeOfThatPipeline: each of its fields.
func TestACarMustBeOfThatPipeline(t *testing.T) {
	t.Parallel()
	head, err := fencepost.ParseCommitID(shaA)
	if err != nil {
		t.Fatal(err)
	}
	s := gate.Subject{Number: 1, Head: head}
	for _, tt := range []struct {
		p     pipelineAnswer
		unmet string
	}{
		{pipelineAnswer{SHA: shaA, Ref: "refs/merge-requests/1/train", Source: "merge_request_event"}, ""},
		{pipelineAnswer{SHA: shaB, Ref: "refs/merge-requests/1/train", Source: "merge_request_event"}, "car.pipeline.sha"},
		{pipelineAnswer{SHA: shaA, Ref: "refs/merge-requests/11/train", Source: "merge_request_event"}, "car.pipeline.ref"},
		{pipelineAnswer{SHA: shaA, Ref: "refs/merge-requests/1/train", Source: "api"}, "car.pipeline.source"},
		{pipelineAnswer{SHA: shaA, Ref: "refs/merge-requests/1/train"}, "car.pipeline.source"},
	} {
		var unmet []string
		for _, f := range ofCar(s, carAnswer{Pipeline: &tt.p}) {
			if !f.met() {
				unmet = append(unmet, f.name)
			}
		}
		if got := strings.Join(unmet, " "); got != tt.unmet {
			t.Errorf("%+v: unmet %q, want %q", tt.p, got, tt.unmet)
		}
	}
}

// TestAMergeIsOfBaseAndHead: of exactly two, one of which is the head.
func TestAMergeIsOfBaseAndHead(t *testing.T) {
	t.Parallel()
	id := func(s string) gate.Commit {
		c, err := fencepost.ParseCommitID(s)
		if err != nil {
			t.Fatal(err)
		}
		return gate.Commit{ID: c}
	}
	a, b, c := id(shaA), id(shaB), id(shaC)
	for _, tt := range []struct {
		name    string
		parents []gate.Commit
		ok      bool
	}{
		{"base and head", []gate.Commit{a, b}, true},
		{"head and base", []gate.Commit{b, a}, true},
		{"of another head", []gate.Commit{a, c}, false},
		{"the head alone", []gate.Commit{b}, false},
		{"of three", []gate.Commit{a, b, c}, false},
		{"of the same twice", []gate.Commit{b, b}, false},
		{"a root", nil, false},
	} {
		base, head, ok := merge{parents: tt.parents}.of(b.ID)
		if ok != tt.ok || ok && (base != a || head != b) {
			t.Errorf("%s: base %v, head %v, %v", tt.name, base.ID, head.ID, ok)
		}
	}
}
