package github_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/forgesim"
	"github.com/fencepost/fencepost/internal/gate"
)

const create = "POST /repos/{owner}/{repo}/check-runs"

func TestAPublicationBecomesOneCheckRun(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	pr, s := b.open(forgesim.OpenPull{})
	v := verdict(s, b.refresh(s))
	document := b.compose(v)

	if _, found, err := b.lane.Find(t.Context(), document); found || err != nil {
		t.Fatalf("found %v before it was published, %v", found, err)
	}
	made, err := b.lane.Create(t.Context(), document)
	must(t, err)
	found, ok, err := b.lane.Find(t.Context(), document)
	if err != nil || !ok || found != made {
		t.Fatalf("found %v %v, made %v, %v", found, ok, made, err)
	}
	runs := b.repo.CheckRuns(pr.Head())
	if len(runs) != 1 {
		t.Fatalf("%d runs", len(runs))
	}
	r := runs[0]
	if r.Name != check || r.ExternalID != v.Evaluation.String() || r.Status != "completed" || r.Conclusion != "success" ||
		r.AppID != b.forge.App().ID() || r.Title != v.Title || !strings.HasPrefix(r.Summary, v.Summary+"\n\nEvaluation `evl_") {
		t.Errorf("run %+v", r)
	}
	if !r.StartedAt.Equal(v.Started.Truncate(time.Second)) || !r.CompletedAt.Equal(v.Completed.Truncate(time.Second)) {
		t.Errorf("times %v to %v", r.StartedAt, r.CompletedAt)
	}
}

func TestAFailureIsAFailure(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	pr, s := b.open(forgesim.OpenPull{})
	v := verdict(s, b.refresh(s))
	v.Conclusion, v.Reason, v.Artifact, v.Revision = gate.Fail, fencepost.ReasonTimeout, "", fencepost.GateRevision{}
	_, err := b.lane.Create(t.Context(), b.compose(v))
	must(t, err)
	if r := b.repo.CheckRuns(pr.Head())[0]; r.Conclusion != "failure" || !strings.Contains(r.Summary, "`timeout`") {
		t.Errorf("run %+v", r)
	}
}

func TestFindLooksAtOurOwnRunsAlone(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	pr, s := b.open(forgesim.OpenPull{})
	v := verdict(s, b.refresh(s))
	document := b.compose(v)
	other, err := b.forge.AddApp(forgesim.AppConfig{ID: 9, Slug: "copycat", Key: appKey()})
	must(t, err)
	for _, n := range []forgesim.NewCheckRun{
		{App: other, Name: check, HeadSHA: pr.Head(), ExternalID: v.Evaluation.String(), Conclusion: "success", Title: v.Title, Summary: "x"},
		{Name: check, HeadSHA: pr.Head(), ExternalID: "evl_other", Conclusion: "success"},
		{Name: check, HeadSHA: pr.Head(), Conclusion: "success"},
		{Name: "another", HeadSHA: pr.Head(), ExternalID: v.Evaluation.String(), Conclusion: "success"},
	} {
		_, err := b.repo.CreateCheckRun(t.Context(), n)
		must(t, err)
	}
	if _, found, err := b.lane.Find(t.Context(), document); found || err != nil {
		t.Fatalf("found %v, %v", found, err)
	}
}

func TestFindReadsEveryPage(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	pr, s := b.open(forgesim.OpenPull{})
	document := b.compose(verdict(s, b.refresh(s)))
	_, err := b.lane.Create(t.Context(), document)
	must(t, err)
	for range 205 {
		_, err := b.repo.CreateCheckRun(t.Context(), forgesim.NewCheckRun{Name: check, HeadSHA: pr.Head(), ExternalID: "evl_later", Conclusion: "failure"})
		must(t, err)
	}
	if _, found, err := b.lane.Find(t.Context(), document); !found || err != nil {
		t.Fatalf("found %v, %v", found, err)
	}
}

func TestWhatDiffersUnderOurKeyFailsClosed(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		edit func(n *forgesim.NewCheckRun)
		runs int
	}{
		{"another conclusion", func(n *forgesim.NewCheckRun) { n.Conclusion = "failure" }, 1},
		{"not completed", func(n *forgesim.NewCheckRun) { n.Conclusion = "" }, 1},
		{"another title", func(n *forgesim.NewCheckRun) { n.Title = "Other" }, 1},
		{"another summary", func(n *forgesim.NewCheckRun) { n.Summary = "Other" }, 1},
		{"neutral", func(n *forgesim.NewCheckRun) { n.Conclusion = "neutral" }, 1},
		{"other times", func(*forgesim.NewCheckRun) {}, 1},
		{"two of them", func(*forgesim.NewCheckRun) {}, 2},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			pr, s := b.open(forgesim.OpenPull{})
			v := verdict(s, b.refresh(s))
			document := b.compose(v)
			n := forgesim.NewCheckRun{
				Name: check, HeadSHA: pr.Head(), ExternalID: v.Evaluation.String(), Conclusion: "success", Title: v.Title, Summary: v.Summary,
			}
			tc.edit(&n)
			for range tc.runs {
				_, err := b.repo.CreateCheckRun(t.Context(), n)
				must(t, err)
			}
			_, _, err := b.lane.Find(t.Context(), document)
			wantReason(t, err, fencepost.ReasonPublishConflict)
		})
	}
}

func TestTwoThatAreBothWhatWasStagedFailClosed(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	_, s := b.open(forgesim.OpenPull{})
	document := b.compose(verdict(s, b.refresh(s)))
	for range 2 {
		_, err := b.lane.Create(t.Context(), document)
		must(t, err)
	}
	_, found, err := b.lane.Find(t.Context(), document)
	wantReason(t, err, fencepost.ReasonPublishConflict)
	if found {
		t.Error("one of two was taken")
	}
}

func TestAWriteIsSentOnce(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name    string
		effect  forgesim.Effect
		unknown bool
		notYet  bool
		want    fencepost.Reason
		runs    int
	}{
		{"answer lost after the write", forgesim.DropAnswer{}, true, false, fencepost.ReasonProvider, 1},
		{"half an answer after the write", forgesim.Truncate{}, true, false, fencepost.ReasonProvider, 1},
		{"garbled answer after the write", forgesim.Garble{}, true, false, fencepost.ReasonProvider, 1},
		{"connection lost before the write", forgesim.DropRequest{}, true, false, fencepost.ReasonProvider, 0},
		{"500", forgesim.Fail{Code: 500}, true, false, fencepost.ReasonProvider, 0},
		{"503 with a time to wait", forgesim.Fail{Code: 503, RetryAfter: time.Minute}, true, false, fencepost.ReasonProvider, 0},
		{"secondary limit", forgesim.SecondaryLimit{RetryAfter: time.Minute}, false, false, fencepost.ReasonRateLimited, 0},
		{"403", forgesim.Fail{Code: 403}, false, false, fencepost.ReasonCredential, 0},
		{"commit not visible", forgesim.NotYet{}, false, true, fencepost.ReasonProvider, 0},
		{"redirected", forgesim.Redirect{Code: 307, Location: "http://evil.invalid/x"}, false, false, fencepost.ReasonProvider, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			pr, s := b.open(forgesim.OpenPull{})
			document := b.compose(verdict(s, b.refresh(s)))
			b.forge.Inject(forgesim.Fault{On: create, Effect: tc.effect})
			_, err := b.lane.Create(t.Context(), document)
			wantReason(t, err, tc.want)
			if errors.Is(err, gate.ErrUnknown) != tc.unknown || errors.Is(err, gate.ErrNotYet) != tc.notYet {
				t.Errorf("error %v: unknown %v, not yet %v", err, errors.Is(err, gate.ErrUnknown), errors.Is(err, gate.ErrNotYet))
			}
			if got := len(b.repo.CheckRuns(pr.Head())); got != tc.runs {
				t.Errorf("%d runs, want %d", got, tc.runs)
			}
			if n := b.forge.Count(create); n != 1 {
				t.Errorf("%d requests to write", n)
			}
			// The truth comes out by looking, whatever happened.
			_, found, err := b.lane.Find(t.Context(), document)
			if tc.want == fencepost.ReasonRateLimited {
				wantReason(t, err, fencepost.ReasonRateLimited)
				return
			}
			if err != nil || found != (tc.runs == 1) {
				t.Errorf("found %v, %v", found, err)
			}
		})
	}
}

func TestATokenThatEndsDoesNotLoseAWrite(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	pr, s := b.open(forgesim.OpenPull{})
	document := b.compose(verdict(s, b.refresh(s)))
	b.forge.Inject(forgesim.Fault{On: create, Effect: forgesim.ExpireToken{}})
	_, err := b.lane.Create(t.Context(), document)
	must(t, err)
	if got := len(b.repo.CheckRuns(pr.Head())); got != 1 {
		t.Errorf("%d runs", got)
	}
}

func TestACommitThatIsGoneIsToldFromOneThatIsLate(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	_, s := b.open(forgesim.OpenPull{})
	v := verdict(s, b.refresh(s))
	gone, err := fencepost.ParseCommitID(strings.Repeat("ab", 20))
	must(t, err)
	v.Subject.Head = gone
	document := b.compose(v)
	_, err = b.lane.Create(t.Context(), document)
	wantReason(t, err, fencepost.ReasonCommitGone)
	if !errors.Is(err, gate.ErrNotYet) {
		t.Errorf("error %v", err)
	}
	_, _, err = b.lane.Find(t.Context(), document)
	wantReason(t, err, fencepost.ReasonCommitGone)
}

func TestPublicationGoesWhereTheRepositoryIsNow(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	pr, s := b.open(forgesim.OpenPull{})
	document := b.compose(verdict(s, b.refresh(s)))
	must(t, b.repo.Rename("handbook"))
	_, err := b.lane.Create(t.Context(), document)
	must(t, err)
	_, found, err := b.lane.Find(t.Context(), document)
	if err != nil || !found || len(b.repo.CheckRuns(pr.Head())) != 1 {
		t.Errorf("found %v, %v", found, err)
	}
}

func TestAnotherGatesDocumentIsNotPublished(t *testing.T) {
	t.Parallel()
	b, foreign := newBench(t), newBench(t)
	foreignRepo, err := foreign.forge.ImportRepository(t.Context(), forgesim.Import{Owner: "acme", Name: "more", Files: map[string]string{"x": "x"}})
	must(t, err)
	foreign.repo = foreignRepo
	other := foreign.newLane(quick())
	_, s := b.open(forgesim.OpenPull{})
	document, err := other.Compose(verdict(s, b.refresh(s)))
	must(t, err)
	_, err = b.lane.Create(t.Context(), document)
	wantReason(t, err, fencepost.ReasonIdentity)
	if n := b.forge.Count(create); n != 0 {
		t.Errorf("%d requests to write", n)
	}
	_, err = b.lane.Create(t.Context(), []byte(`{"schema":"other"}`))
	wantReason(t, err, fencepost.ReasonCorrupt)
}
