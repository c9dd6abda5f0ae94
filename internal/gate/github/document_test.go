package github_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/gate"
	"github.com/fencepost/fencepost/internal/gate/github"
)

// paper is a lane that is never asked for anything but documents and events.
func paper(t testing.TB) *github.Lane {
	t.Helper()
	client, err := github.NewClient(github.ClientConfig{
		API: mustURL(t, "https://api.github.com"), App: github.App{ID: 12345, Installation: 67890, Key: keyOf(nil)},
		Now: fixedNow,
	})
	if err != nil {
		t.Fatal(err)
	}
	lane, err := github.NewLane(client, github.LaneConfig{
		Gate: "docs", Repository: github.Repository{ID: 1296269, OwnerID: 583231, Name: "acme/docs"},
		BaseRef: "refs/heads/main", Check: check, Git: mustURL(t, "https://github.com"),
	})
	if err != nil {
		t.Fatal(err)
	}
	return lane
}

func aVerdict(t testing.TB) gate.Verdict {
	t.Helper()
	head, err := fencepost.ParseCommitID(strings.Repeat("1f", 20))
	if err != nil {
		t.Fatal(err)
	}
	return verdict(gate.Subject{Number: 7, Head: head, BaseRef: "refs/heads/main"}, gate.Snapshot{Revision: fencepost.GateRevision{9}})
}

func TestADocumentIsGolden(t *testing.T) {
	t.Parallel()
	got, err := paper(t).Compose(aVerdict(t))
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"app":{"id":"12345","installation":"67890"},"artifact":"art_x","base_ref":"refs/heads/main",` +
		`"check":"fencepost/docs","completed_at":"2026-11-30T12:00:01Z","conclusion":"success",` +
		`"delivery":"dlv_aaaaaaaaaaaaaaaaaaaaaaaaaa","evaluation":"evl_aebagaaaaaaaaaaaaaaaaaaaaa","gate":"docs",` +
		`"gate_revision":"0900000000000000000000000000000000000000000000000000000000000000",` +
		`"head_sha":"1f1f1f1f1f1f1f1f1f1f1f1f1f1f1f1f1f1f1f1f","number":7,"reason":"","received_at":"2026-11-30T12:00:00Z",` +
		`"repository":{"id":"1296269","name":"acme/docs","owner_id":"583231"},"schema":"fencepost.publication.github/v1",` +
		`"shown":"2 files, 0 broken links\n\nEvaluation ` + "`evl_aebagaaaaaaaaaaaaaaaaaaaaa` of delivery `dlv_aaaaaaaaaaaaaaaaaaaaaaaaaa`. Evidence: `art_x`." + `",` +
		`"started_at":"2026-11-30T12:00:00Z","summary":"2 files, 0 broken links","title":"All links lead somewhere"}`
	if string(got) != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestADocumentComesBackAsItsVerdict(t *testing.T) {
	t.Parallel()
	lane, base := paper(t), aVerdict(t)
	rapid.Check(t, func(r *rapid.T) {
		v := base
		v.Title = rapid.StringN(1, gate.MaxTitle, -1).Filter(func(s string) bool { return s != "" }).Draw(r, "title")
		v.Summary = rapid.StringN(0, 200, gate.MaxSummary).Draw(r, "summary")
		if rapid.Bool().Draw(r, "failed") {
			v.Conclusion, v.Reason = gate.Fail, fencepost.ReasonMismatch
			v.Artifact, v.Revision = "", fencepost.GateRevision{}
		}
		document, err := lane.Compose(v)
		if err != nil {
			r.Fatalf("compose: %v", err)
		}
		got, err := lane.Inspect(document)
		if err != nil {
			r.Fatalf("inspect: %v", err)
		}
		again, err := lane.Compose(got)
		if err != nil || !bytes.Equal(again, document) {
			r.Fatalf("composed again: %v\n%s", err, cmp.Diff(string(document), string(again)))
		}
		if got.Evaluation != v.Evaluation || got.Subject != v.Subject || got.Revision != v.Revision || got.Conclusion != v.Conclusion {
			r.Fatalf("got %+v, want %+v", got, v)
		}
	})
}

func TestTheLargestVerdictFitsAPublication(t *testing.T) {
	t.Parallel()
	v := aVerdict(t)
	v.Title = strings.Repeat(`"`, gate.MaxTitle)
	v.Summary = strings.Repeat(`"`, gate.MaxSummary)
	document, err := paper(t).Compose(v)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := fencepost.NewPublication(document); err != nil {
		t.Error(err)
	}
}

func TestNoPassIsComposedWithoutWhatItNeeds(t *testing.T) {
	t.Parallel()
	for name, edit := range map[string]func(*gate.Verdict){
		"evidence":      func(v *gate.Verdict) { v.Artifact = "" },
		"gate revision": func(v *gate.Verdict) { v.Revision = fencepost.GateRevision{} },
		"no reason":     func(v *gate.Verdict) { v.Reason = fencepost.ReasonTimeout },
		"title":         func(v *gate.Verdict) { v.Title = "" },
		"evaluation":    func(v *gate.Verdict) { v.Evaluation = fencepost.EvaluationID{} },
		"head":          func(v *gate.Verdict) { v.Subject.Head = fencepost.CommitID{} },
		"conclusion":    func(v *gate.Verdict) { v.Conclusion = 0 },
		"order of time": func(v *gate.Verdict) { v.Completed = v.Started.AddDate(0, 0, -1) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v := aVerdict(t)
			edit(&v)
			if _, err := paper(t).Compose(v); !errors.Is(err, fencepost.ErrMalformed) {
				t.Errorf("error %v, want ErrMalformed", err)
			}
		})
	}
}

func FuzzInspect(f *testing.F) {
	lane := paper(f)
	good, err := lane.Compose(aVerdict(f))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add([]byte(strings.Replace(string(good), "success", "neutral", 1)))
	f.Add(append([]byte(" "), good...))
	f.Add([]byte(`{"schema":"fencepost.publication.github/v1"}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		v, err := lane.Inspect(data)
		if err != nil {
			if !errors.Is(err, fencepost.ErrMalformed) && !errors.Is(err, fencepost.ErrTooLarge) {
				t.Errorf("error %v", err)
			}
			return
		}
		if v.Conclusion != gate.Pass && v.Conclusion != gate.Fail {
			t.Errorf("conclusion %v", v.Conclusion)
		}
	})
}
