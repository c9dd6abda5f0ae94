package gitea_test

import (
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/forgesim"
	forge "github.com/fencepost/fencepost/internal/forgesim/gitea"
	"github.com/fencepost/fencepost/internal/gate"
	"github.com/fencepost/fencepost/internal/gate/gitea"
)

func TestAPassUnlocksAndABlockLocks(t *testing.T) {
	t.Parallel()
	for _, kind := range []gitea.Kind{gitea.Gitea, gitea.Forgejo} {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			b := newBench(t, kind)
			ctx := t.Context()
			p, s := b.open()
			if b.locked(p) == "" {
				t.Fatal("a request without a result can be merged")
			}
			block := b.document(s, gate.Fail, 1)
			if _, found, err := b.lane.Find(ctx, block); found || err != nil {
				t.Fatalf("found before it was written: %t, %v", found, err)
			}
			shown, err := b.lane.Create(ctx, block)
			must(t, err)
			if got, found, err := b.lane.Find(ctx, block); !found || err != nil || got != shown {
				t.Fatalf("find: %+v, %t, %v; want %+v", got, found, err, shown)
			}
			if b.locked(p) == "" {
				t.Fatal("a blocked request can be merged")
			}
			pass := b.document(s, gate.Pass, 2)
			shown, err = b.lane.Create(ctx, pass)
			must(t, err)
			if got, found, err := b.lane.Find(ctx, pass); !found || err != nil || got != shown {
				t.Fatalf("find: %+v, %t, %v; want %+v", got, found, err, shown)
			}
			if why := b.locked(p); why != "" {
				t.Fatalf("a passed request can't be merged: %s", why)
			}
			if shown, err := b.lane.Shown(ctx, s); !shown || err != nil {
				t.Errorf("shown: %t, %v", shown, err)
			}

			// A push locks it again, at once: the status is another commit's.
			_, err = p.Push(ctx, forgesim.Change{Files: map[string]string{"guide.md": "2\n"}})
			must(t, err)
			if b.locked(p) == "" {
				t.Error("an approval of another head lets a push through")
			}
			// Doing it again writes nothing.
			if _, err := b.lane.Create(ctx, pass); err != nil {
				t.Fatal(err)
			}
			if n := len(p.Reviews()); n != 2 {
				t.Errorf("%d reviews, want 2", n)
			}
		})
	}
}

// TestARepeatWritesOnlyWhatIsMissing cuts a publication at each of its writes,
// before and after the server took it.
func TestARepeatWritesOnlyWhatIsMissing(t *testing.T) {
	t.Parallel()
	for _, conclusion := range []gate.Conclusion{gate.Pass, gate.Fail} {
		for _, part := range []string{"/reviews", "/statuses/"} {
			for _, taken := range []bool{false, true} {
				t.Run(conclusion.String()+part+map[bool]string{true: " taken", false: " lost"}[taken], func(t *testing.T) {
					t.Parallel()
					b := newBench(t, gitea.Gitea)
					p, s := b.open()
					doc := b.document(s, conclusion, 1)
					var cut atomic.Bool
					b.forge.Interfere(func(r *http.Request) *forge.Answer {
						if r.Method != http.MethodPost || !strings.Contains(r.URL.Path, part) || cut.Swap(true) {
							return nil
						}
						if taken {
							// It is done, and its answer never comes.
							b.forge.Quietly(r)
						}
						return &forge.Answer{}
					})
					_, err := b.lane.Create(t.Context(), doc)
					if !errors.Is(err, gate.ErrUnknown) {
						t.Fatalf("error %v, want ErrUnknown", err)
					}
					shown, found, err := b.lane.Find(t.Context(), doc)
					must(t, err)
					if !found {
						if shown, err = b.lane.Create(t.Context(), doc); err != nil {
							t.Fatal(err)
						}
					}
					if again, found, err := b.lane.Find(t.Context(), doc); err != nil || !found || again != shown {
						t.Fatalf("find: %+v, %t, %v", again, found, err)
					}
					if r, st := len(p.Reviews()), len(b.repo.Statuses(p.Head())); r != 1 || st != 1 {
						t.Errorf("%d reviews and %d statuses, want one of each", r, st)
					}
				})
			}
		}
	}
}

// TestAnApprovalOfAMovedHeadIsTakenBack moves the head between the review and
// its read-back.
func TestAnApprovalOfAMovedHeadIsTakenBack(t *testing.T) {
	t.Parallel()
	b := newBench(t, gitea.Gitea)
	ctx := t.Context()
	p, s := b.open()
	doc := b.document(s, gate.Pass, 1)
	var moved atomic.Bool
	b.forge.Interfere(func(r *http.Request) *forge.Answer {
		if r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "/pulls/1") && len(p.Reviews()) == 1 && !moved.Swap(true) {
			// An amended commit with the same tree: no rule about stale
			// approvals would notice it.
			if _, err := p.Push(ctx, forgesim.Change{Message: "amended"}); err != nil {
				t.Error(err)
			}
		}
		return nil
	})
	_, err := b.lane.Create(ctx, doc)
	if !moved.Load() || !errors.Is(err, gate.ErrOvertaken) {
		t.Fatalf("moved %t, error %v; want ErrOvertaken", moved.Load(), err)
	}
	for _, r := range p.Reviews() {
		if r.State == "APPROVED" && r.Official && !r.Dismissed {
			t.Errorf("the approval still counts: %+v", r)
		}
	}
	if len(b.repo.Statuses(s.Head.String())) != 0 {
		t.Error("a status was set for a head that had moved")
	}
	if _, found, err := b.lane.Find(ctx, doc); found || !errors.Is(err, gate.ErrOvertaken) {
		t.Errorf("find: %t, %v; want ErrOvertaken", found, err)
	}
	if _, err := b.lane.Create(ctx, doc); !errors.Is(err, gate.ErrOvertaken) {
		t.Errorf("create again: %v; want ErrOvertaken", err)
	}
	// The new head's own evaluation is not hindered.
	next := b.document(b.subject(p), gate.Pass, 2)
	_, err = b.lane.Create(ctx, next)
	must(t, err)
	if why := b.locked(p); why != "" {
		t.Errorf("the new head can't be merged: %s", why)
	}
}

// TestAPartIsRetracted: a crash left an approval without its status, and the
// head moved meanwhile.
func TestAPartIsRetracted(t *testing.T) {
	t.Parallel()
	b := newBench(t, gitea.Gitea)
	ctx := t.Context()
	p, s := b.open()
	doc := b.document(s, gate.Pass, 1)
	b.forge.Interfere(func(r *http.Request) *forge.Answer {
		if r.Method == http.MethodPost && strings.Contains(r.URL.Path, "/statuses/") {
			return &forge.Answer{}
		}
		return nil
	})
	if _, err := b.lane.Create(ctx, doc); !errors.Is(err, gate.ErrUnknown) {
		t.Fatalf("error %v, want ErrUnknown", err)
	}
	b.forge.Interfere(nil)
	_, err := p.Push(ctx, forgesim.Change{Message: "amended"})
	must(t, err)
	for range 2 {
		must(t, b.lane.Retract(ctx, doc))
	}
	if all := p.Reviews(); len(all) != 2 || all[0].Official || all[1].State != "REQUEST_CHANGES" {
		t.Errorf("reviews %+v", all)
	}
	must(t, b.lane.Retract(ctx, b.compose(s, gate.Pass, 3, b.refresh(b.subject(p)).Revision)))
	if n := len(p.Reviews()); n != 2 {
		t.Errorf("what was never shown was retracted: %d reviews", n)
	}
}

// TestAProgramCantTakeItsApprovalBack: its summary begins with the words of a
// review that does.
func TestAProgramCantTakeItsApprovalBack(t *testing.T) {
	t.Parallel()
	for _, conclusion := range []gate.Conclusion{gate.Pass, gate.Fail} {
		b := newBench(t, gitea.Gitea)
		_, s := b.open()
		v := b.verdict(s, conclusion, 1, b.refresh(s).Revision)
		v.Summary = "Taken back: the head moved while the approval was being published."
		doc, err := b.lane.Compose(v)
		must(t, err)
		shown, err := b.lane.Create(t.Context(), doc)
		must(t, err)
		if got, found, err := b.lane.Find(t.Context(), doc); !found || err != nil || got != shown {
			t.Errorf("%v: find: %+v, %t, %v; want %+v", conclusion, got, found, err, shown)
		}
	}
}

// TestARequestByTheReviewer: the server takes no review of it by its author, so
// that it can't pass, and is blocked by the status alone.
func TestARequestByTheReviewer(t *testing.T) {
	t.Parallel()
	for _, kind := range []gitea.Kind{gitea.Gitea, gitea.Forgejo} {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			b := newBench(t, kind)
			ctx := t.Context()
			p, err := b.repo.OpenPull(ctx, forgesim.OpenPull{
				Head: "change", Actor: reviewer, Change: forgesim.Change{Files: map[string]string{"guide.md": "a guide\n"}},
			}, nil)
			must(t, err)
			s := b.subject(p)
			got := b.refresh(s)
			if i := slices.IndexFunc(got.Facts, func(f gate.Fact) bool { return !f.Met() }); got.State != fencepost.ReasonGateUnproven ||
				i < 0 || got.Facts[i].Name != "request.author" || got.Facts[i].Mend == "" {
				t.Fatalf("%+v", got)
			}
			var reviews atomic.Int64
			b.forge.Interfere(func(r *http.Request) *forge.Answer {
				if r.Method == http.MethodPost && strings.Contains(r.URL.Path, "/reviews") {
					reviews.Add(1)
				}
				return nil
			})
			for i, known := range []bool{true, false} {
				v := b.verdict(s, gate.Fail, byte(i+1), got.Revision)
				v.Reason, v.Artifact = fencepost.ReasonGateUnproven, ""
				doc, err := b.lane.Compose(v)
				must(t, err)
				if !known {
					b.lane = b.newLane()
				}
				shown, err := b.lane.Create(ctx, doc)
				must(t, err)
				for _, lane := range []*gitea.Lane{b.lane, b.newLane()} {
					if again, found, err := lane.Find(ctx, doc); err != nil || !found || again != shown {
						t.Errorf("find: %+v, %t, %v; want %+v", again, found, err, shown)
					}
				}
				if again, err := b.newLane().Create(ctx, doc); err != nil || again != shown {
					t.Errorf("create again: %+v, %v; want %+v", again, err, shown)
				}
				if n := len(b.repo.Statuses(p.Head())); n != i+1 {
					t.Errorf("%d statuses, want %d", n, i+1)
				}
			}
			if n := reviews.Load(); n != 0 {
				t.Errorf("%d reviews were tried, and none can be had", n)
			}
			if b.locked(p) == "" {
				t.Error("it can be merged")
			}
		})
	}
}

func TestAnApprovalThatDoesNotCount(t *testing.T) {
	t.Parallel()
	b := newBench(t, gitea.Gitea)
	p, s := b.open()
	doc := b.document(s, gate.Pass, 1)
	rule := forge.GateRule("main", "somebody", check)
	b.repo.Protect(rule)
	_, err := b.lane.Create(t.Context(), doc)
	wantReason(t, err, fencepost.ReasonGateUnproven)
	if len(b.repo.Statuses(p.Head())) != 0 {
		t.Error("a status was set though the approval does not count")
	}
}

// TestTwoGatesWithOneReviewer: another installation's gate reviews the same
// request as the same user, and takes the weight off our approval. That is no
// newer evaluation of ours: it is told, and not taken for an end.
func TestTwoGatesWithOneReviewer(t *testing.T) {
	t.Parallel()
	b := newBench(t, gitea.Gitea)
	ctx := t.Context()
	p, s := b.open()
	c := b.config()
	c.Gate, c.Check = "links", "fencepost/links"
	links, err := gitea.New(c)
	must(t, err)
	ours := b.document(s, gate.Pass, 1)
	v := b.verdict(s, gate.Pass, 2, b.refresh(s).Revision)
	v.Gate = "links"
	theirs, err := links.Compose(v)
	must(t, err)
	var between atomic.Bool
	b.forge.Interfere(func(r *http.Request) *forge.Answer {
		// Before our approval is read back.
		if r.Method == http.MethodGet && strings.Contains(r.URL.Path, "/reviews/") && !between.Swap(true) {
			if _, err := links.Create(ctx, theirs); err != nil {
				t.Error(err)
			}
		}
		return nil
	})
	_, err = b.lane.Create(ctx, ours)
	wantReason(t, err, fencepost.ReasonGateUnproven)
	for range 2 {
		if _, found, err := b.lane.Find(ctx, ours); found || errors.Is(err, gate.ErrOvertaken) {
			t.Errorf("find: %t, %v; the other gate's review is no newer one of ours", found, err)
		}
		_, err = b.lane.Create(ctx, ours)
		wantReason(t, err, fencepost.ReasonGateUnproven)
	}
	if got, found, err := links.Find(ctx, theirs); !found || err != nil {
		t.Errorf("the other gate's: %+v, %t, %v", got, found, err)
	}
	// A newer one of ours has overtaken it.
	_, err = b.lane.Create(ctx, b.document(s, gate.Pass, 3))
	must(t, err)
	if _, found, err := b.lane.Find(ctx, ours); found || !errors.Is(err, gate.ErrOvertaken) {
		t.Errorf("find: %t, %v; want ErrOvertaken", found, err)
	}
	if n := len(b.repo.Statuses(p.Head())); n != 2 {
		t.Errorf("%d statuses, want one of each gate", n)
	}
}

// TestAReviewThatNamesNoGate is of a version that named none: it is taken for
// ours.
func TestAReviewThatNamesNoGate(t *testing.T) {
	t.Parallel()
	b := newBench(t, gitea.Gitea)
	p, s := b.open()
	doc := b.document(s, gate.Pass, 1)
	b.forge.Interfere(func(r *http.Request) *forge.Answer {
		if r.Method == http.MethodPost && strings.Contains(r.URL.Path, "/statuses/") {
			return &forge.Answer{}
		}
		return nil
	})
	if _, err := b.lane.Create(t.Context(), doc); !errors.Is(err, gate.ErrUnknown) {
		t.Fatalf("error %v, want ErrUnknown", err)
	}
	p.Review(reviewer, "APPROVED", "All is well.\n\nEvaluation `evl_other` of delivery `dlv_other`.")
	if _, found, err := b.lane.Find(t.Context(), doc); found || !errors.Is(err, gate.ErrOvertaken) {
		t.Errorf("find: %t, %v; want ErrOvertaken", found, err)
	}
}

// TestAnApprovalThatIsDismissedBeforeItIsFound: the answer of the status was
// lost, and by the time that it is looked up an administrator has dismissed the
// approval, which opens nothing any more.
func TestAnApprovalThatIsDismissedBeforeItIsFound(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		next func(b *bench, p *forge.Pull) error
		want fencepost.Reason
	}{
		"dismissed": {func(*bench, *forge.Pull) error { return nil }, fencepost.ReasonGateUnproven},
		"another gate's is newer": {func(_ *bench, p *forge.Pull) error {
			p.Review(reviewer, "APPROVED", "Fine.\n\nEvaluation `evl_other` of delivery `dlv_other`. Gate: `links`.")
			return nil
		}, fencepost.ReasonGateUnproven},
		"a person's is newer": {func(_ *bench, p *forge.Pull) error {
			p.Review(reviewer, "REQUEST_CHANGES", "By hand.")
			return nil
		}, fencepost.ReasonGateUnproven},
		"ours is newer": {func(b *bench, p *forge.Pull) error {
			_, err := b.lane.Create(b.t.Context(), b.document(b.subject(p), gate.Pass, 2))
			return err
		}, fencepost.ReasonNone},
		"the head moved": {func(_ *bench, p *forge.Pull) error {
			_, err := p.Push(t.Context(), forgesim.Change{Files: map[string]string{"guide.md": "2\n"}})
			return err
		}, fencepost.ReasonNone},
		"closed": {func(_ *bench, p *forge.Pull) error { return p.Close(t.Context()) }, fencepost.ReasonNone},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, gitea.Gitea)
			p, s := b.open()
			doc := b.document(s, gate.Pass, 1)
			b.forge.Interfere(func(r *http.Request) *forge.Answer {
				if r.Method == http.MethodPost && strings.Contains(r.URL.Path, "/statuses/") {
					b.forge.Quietly(r)
					return &forge.Answer{}
				}
				return nil
			})
			if _, err := b.lane.Create(t.Context(), doc); !errors.Is(err, gate.ErrUnknown) {
				t.Fatalf("error %v, want ErrUnknown", err)
			}
			b.forge.Interfere(nil)
			p.Dismiss(p.Reviews()[0].ID)
			must(t, tc.next(b, p))
			_, found, err := b.lane.Find(t.Context(), doc)
			if found != (tc.want == fencepost.ReasonNone) || fencepost.ReasonOf(err) != tc.want {
				t.Errorf("find: %t, %v; want reason %q", found, err, tc.want)
			}
			if _, err = b.lane.Create(t.Context(), doc); fencepost.ReasonOf(err) != tc.want {
				t.Errorf("create: %v; want reason %q", err, tc.want)
			}
			if n := len(b.repo.Statuses(s.Head.String())); tc.want != fencepost.ReasonNone && n != 1 {
				t.Errorf("%d statuses, want 1", n)
			}
		})
	}
}

func TestTwoResultsUnderOneEvaluationFailClosed(t *testing.T) {
	t.Parallel()
	b := newBench(t, gitea.Gitea)
	p, s := b.open()
	doc := b.document(s, gate.Pass, 1)
	_, err := b.lane.Create(t.Context(), doc)
	must(t, err)
	first := p.Reviews()[0]
	p.Review(reviewer, "APPROVED", first.Body)
	_, _, err = b.lane.Find(t.Context(), doc)
	wantReason(t, err, fencepost.ReasonPublishConflict)

	// Another body under the same evaluation.
	q := newBench(t, gitea.Gitea)
	p, s = q.open()
	doc = q.document(s, gate.Pass, 1)
	p.Review(reviewer, "APPROVED", "All good.\n\n"+first.Body[strings.LastIndex(first.Body, "Evaluation `"):])
	_, _, err = q.lane.Find(t.Context(), doc)
	wantReason(t, err, fencepost.ReasonPublishConflict)
}

// TestAStatusOnTwoPagesIsOne: somebody's status, made while the list is read,
// moves ours from the end of a page to the next one's beginning.
func TestAStatusOnTwoPagesIsOne(t *testing.T) {
	t.Parallel()
	b := newBench(t, gitea.Gitea)
	p, s := b.open()
	doc := b.document(s, gate.Pass, 1)
	another := func() { b.repo.SetStatus("somebody", p.Head(), "build", "success") }
	another()
	shown, err := b.lane.Create(t.Context(), doc)
	must(t, err)
	for range 49 {
		another()
	}
	var moved atomic.Bool
	b.forge.Interfere(func(r *http.Request) *forge.Answer {
		if strings.HasSuffix(r.URL.Path, "/statuses") && r.URL.Query().Get("page") == "2" && !moved.Swap(true) {
			another()
		}
		return nil
	})
	got, found, err := b.lane.Find(t.Context(), doc)
	if !moved.Load() || err != nil || !found || got != shown {
		t.Errorf("moved %t; find: %+v, %t, %v; want %+v", moved.Load(), got, found, err, shown)
	}
}

// TestAClosedRequestTakesNoResult: Gitea refuses the review, and nothing is
// unknown then.
func TestAClosedRequestTakesNoResult(t *testing.T) {
	t.Parallel()
	b := newBench(t, gitea.Gitea)
	p, s := b.open()
	doc := b.document(s, gate.Pass, 1)
	must(t, p.Close(t.Context()))
	_, err := b.lane.Create(t.Context(), doc)
	wantReason(t, err, fencepost.ReasonProvider)
	if errors.Is(err, gate.ErrUnknown) {
		t.Error("a refused write counts as unknown")
	}
	must(t, b.lane.Retract(t.Context(), doc))
}

func TestADocumentOfAnotherGateIsNotPublished(t *testing.T) {
	t.Parallel()
	b := newBench(t, gitea.Gitea)
	_, s := b.open()
	doc := b.document(s, gate.Pass, 1)
	c := b.config()
	c.Reviewer.ID++
	other, err := gitea.New(c)
	must(t, err)
	_, err = other.Create(t.Context(), doc)
	wantReason(t, err, fencepost.ReasonIdentity)
	_, _, err = b.lane.Find(t.Context(), append(doc, ' '))
	wantReason(t, err, fencepost.ReasonCorrupt)
	if v, err := b.lane.Inspect(doc); err != nil || v.Subject != s || v.Conclusion != gate.Pass {
		t.Errorf("inspect: %+v, %v", v, err)
	}
}

func TestOpenRequests(t *testing.T) {
	t.Parallel()
	b := newBench(t, gitea.Gitea)
	ctx := t.Context()
	p, s := b.open()
	draft, err := b.repo.OpenPull(ctx, forgesim.OpenPull{Head: "draft", Title: "[WIP] no", Change: forgesim.Change{Files: map[string]string{"d": "d"}}}, nil)
	must(t, err)
	closed, err := b.repo.OpenPull(ctx, forgesim.OpenPull{Head: "old", Change: forgesim.Change{Files: map[string]string{"o": "o"}}}, nil)
	must(t, err)
	must(t, closed.Close(ctx))
	fork, err := b.repo.Fork(ctx, "rival")
	must(t, err)
	far, err := b.repo.OpenPull(ctx, forgesim.OpenPull{Head: "far", Change: forgesim.Change{Files: map[string]string{"f": "f"}}}, fork)
	must(t, err)
	open, err := b.lane.Open(ctx)
	must(t, err)
	if len(open) != 2 || open[0].Subject != b.subject(far) || open[1].Subject != s {
		t.Errorf("open: %+v; want %d and %d and not %d", open, far.Number(), p.Number(), draft.Number())
	}
	if shown, err := b.lane.Shown(ctx, s); shown || err != nil {
		t.Errorf("shown: %t, %v", shown, err)
	}
	if got := b.refresh(b.subject(far)); got.State != fencepost.ReasonNone {
		t.Errorf("a request from a fork: %+v", got)
	}
	fork.Delete()
	if got := b.refresh(b.subject(far)); got.State != fencepost.ReasonNone {
		t.Errorf("a request from a deleted fork: %+v", got)
	}
}
