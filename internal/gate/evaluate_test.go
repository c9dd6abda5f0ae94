package gate_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/gitfetch"
	"github.com/fencepost/fencepost/internal/gate"
)

func reasonError(r fencepost.Reason) error { return &fencepost.Error{Op: "test", Reason: r} }

func TestADeliveryBecomesOneResult(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		pass bool
		want string
	}{{"pass", true, "success"}, {"block", false, "failure"}} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			inWorld(t, func(t *testing.T, w *world) {
				w.program.pass = tc.pass
				w.deliver(7, w.provider.head.ID)
				w.run()
				w.wantRuns(tc.want)
				const want = "claimed refreshed fetched fetched ran refreshed staged published ended"
				if got := w.journal.kinds(); got != want {
					t.Errorf("transcript %q, want %q", got, want)
				}
				v := w.provider.shown()[0]
				if v.Artifact == "" || v.Revision.IsZero() || v.Title != "Title 1" || v.Summary != "Summary" {
					t.Errorf("verdict %+v", v)
				}
				if w.provider.writes() != 1 || w.provider.refreshes != 3 {
					t.Errorf("%d writes, %d refreshes", w.provider.writes(), w.provider.refreshes)
				}
				if len(w.alerts.all()) != 0 {
					t.Errorf("alerts %v", w.alerts.all())
				}
			})
		})
	}
}

func TestARunWithoutAConclusionIsAFailureWithItsReason(t *testing.T) {
	t.Parallel()
	for _, r := range []fencepost.Reason{
		fencepost.ReasonTimeout, fencepost.ReasonMissingOutput, fencepost.ReasonOversizedOutput, fencepost.ReasonMalformedOutput,
		fencepost.ReasonMismatch, fencepost.ReasonRuntimeTampered, fencepost.ReasonProgramDigest,
	} {
		t.Run(string(r), func(t *testing.T) {
			t.Parallel()
			inWorld(t, func(t *testing.T, w *world) {
				w.program.reason = r
				w.deliver(7, w.provider.head.ID)
				w.run()
				w.wantRuns("failure " + string(r))
				if n := w.program.count(); n != 1 {
					t.Errorf("%d runs", n)
				}
				if w.provider.shown()[0].Artifact == "" || !strings.Contains(w.store.last(), string(r)) {
					t.Errorf("evidence %s", w.store.last())
				}
			})
		})
	}
}

func TestAGateThatCantBeJudged(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		state fencepost.Reason
		want  []string
	}{
		{fencepost.ReasonClosed, nil},
		{fencepost.ReasonDraft, nil},
		{fencepost.ReasonNotMergeable, []string{"failure not_mergeable"}},
		{fencepost.ReasonGateUnproven, []string{"failure gate_unproven"}},
		{fencepost.ReasonForeignStatus, []string{"failure foreign_status"}},
	} {
		t.Run(string(tc.state), func(t *testing.T) {
			t.Parallel()
			inWorld(t, func(t *testing.T, w *world) {
				w.provider.state = tc.state
				w.deliver(7, w.provider.head.ID)
				w.run()
				w.wantRuns(tc.want...)
				if tc.want == nil {
					w.wantEnd(gate.KindEnded, tc.state)
				}
				if n := w.program.count(); n != 0 {
					t.Errorf("%d runs", n)
				}
				names := "Not as it must be: `rule`."
				if tc.state == fencepost.ReasonGateUnproven && !strings.Contains(w.provider.shown()[0].Summary, names) {
					t.Errorf("summary %q does not name the fact", w.provider.shown()[0].Summary)
				}
			})
		})
	}
}

func TestWhatMovedOnIsSuperseded(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		// move happens during the first run; nil: before it.
		move func(p *provider)
	}{
		{"another head before", nil},
		{"another head", func(p *provider) { p.head = commit("44") }},
		{"another base", func(p *provider) { p.base = commit("55") }},
		{"closed", func(p *provider) { p.state = fencepost.ReasonClosed }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			inWorld(t, func(t *testing.T, w *world) {
				w.deliver(7, w.provider.head.ID)
				want := fencepost.ReasonSuperseded
				if tc.move == nil {
					w.provider.head = commit("44")
				} else {
					w.program.during = func(int) { w.provider.set(tc.move) }
				}
				if tc.name == "closed" {
					want = fencepost.ReasonClosed
				}
				w.run()
				w.wantRuns()
				w.wantEnd(gate.KindStaged, want)
				w.wantEnd(gate.KindEnded, want)
			})
		})
	}
}

func TestAChangedRuleIsEvaluatedAnew(t *testing.T) {
	t.Parallel()
	inWorld(t, func(t *testing.T, w *world) {
		w.program.during = func(run int) {
			if run == 1 {
				w.provider.set(func(p *provider) { p.rule++ })
			}
		}
		w.deliver(7, w.provider.head.ID)
		w.run()
		w.wantRuns("success")
		if n := w.program.count(); n != 2 {
			t.Errorf("%d runs", n)
		}
	})
}

// TestACommitThatIsNotShownYetIsWaitedFor: until the deadline that is no attempt,
// and afterwards it is one like any other.
func TestACommitThatIsNotShownYetIsWaitedFor(t *testing.T) {
	t.Parallel()
	hidden := func(for_ time.Duration) func(w *world) {
		return func(w *world) {
			began := time.Now()
			w.limits.Attempts = 2
			w.provider.onRefresh = func(int) error {
				if time.Since(began) < for_ {
					return notYet(fencepost.ReasonProvider)
				}
				return nil
			}
		}
	}
	for _, tc := range []struct {
		name    string
		hide    func(w *world)
		want    string
		counted int
	}{
		{"within it", hidden(40 * time.Second), "success", 0},
		{"for ever", hidden(time.Hour), "failure provider", 2},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			inWorld(t, func(t *testing.T, w *world) {
				tc.hide(w)
				began := time.Now()
				w.deliver(7, w.provider.head.ID)
				p := w.start(nil)
				attempt := 0
				for range 600 {
					time.Sleep(time.Second)
					synctest.Wait()
					if strings.Contains(w.journal.kinds(), "staged") {
						break
					}
				}
				for _, e := range w.journal.all() {
					attempt = max(attempt, e.Attempt-1)
				}
				if attempt != tc.counted && tc.counted == 0 {
					t.Errorf("%d attempts were counted, want none", attempt)
				}
				if waited := time.Since(began); tc.counted > 0 && (waited < 45*time.Second || waited > 5*time.Minute) {
					t.Errorf("given up after %v", waited)
				}
				w.provider.set(func(p *provider) { p.onRefresh = nil })
				w.settle()
				p.end(t)
				w.wantRuns(tc.want)
			})
		})
	}
}

func TestPassingTroubleGetsABoundedNumberOfAttempts(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name  string
		cause func(w *world)
		want  string
	}{
		{"provider", func(w *world) {
			w.provider.onRefresh = func(int) error { return reasonError(fencepost.ReasonProvider) }
		}, "failure provider"},
		{"acquisition", func(w *world) {
			w.provider.onFetch = func(gitfetch.Request) error { return reasonError(fencepost.ReasonAcquisition) }
		}, "failure acquisition"},
		{"the action's credential", func(w *world) {
			w.provider.onFetch = func(r gitfetch.Request) error {
				if strings.Contains(r.URL, "checks") {
					return reasonError(fencepost.ReasonCredential)
				}
				return nil
			}
		}, "failure acquisition"},
		{"unavailable", func(w *world) { w.program.reason = fencepost.ReasonUnavailable }, "failure unavailable"},
		{"test merge altered", func(w *world) { w.provider.altered = true }, "failure provider"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			inWorld(t, func(t *testing.T, w *world) {
				w.limits.Attempts = 3
				tc.cause(w)
				w.deliver(7, w.provider.head.ID)
				p := w.start(nil)
				time.Sleep(30 * time.Minute)
				w.provider.set(func(p *provider) { p.onRefresh = nil })
				w.settle()
				p.end(t)
				w.wantRuns(tc.want)
				fences := map[uint64]bool{}
				retries := 0
				for _, e := range w.journal.all() {
					if e.Kind == gate.KindClaimed && !slices.Contains(e.Details, gate.Detail{Name: "staged", Value: "true"}) {
						fences[e.Fence] = true
					}
					if e.Kind == gate.KindRetrying {
						retries++
					}
				}
				if len(fences) != 3 || retries != 2 {
					t.Errorf("%d fences, %d retries\n%s", len(fences), retries, w.journal)
				}
				if !w.alerts.wasRaised("retries_exhausted:" + strings.TrimPrefix(tc.want, "failure ")) {
					t.Errorf("alerts %v", w.alerts.all())
				}
			})
		})
	}
}

func TestAttemptsAreCountedOverRestarts(t *testing.T) {
	t.Parallel()
	inWorld(t, func(t *testing.T, w *world) {
		w.limits.Attempts = 3
		w.program.reason = fencepost.ReasonUnavailable
		w.deliver(7, w.provider.head.ID)
		for range 3 {
			p := w.start(nil)
			time.Sleep(5 * time.Second)
			p.end(t)
			time.Sleep(2 * time.Minute)
		}
		w.run()
		w.wantRuns("failure unavailable")
		if n := w.program.count(); n != 3 {
			t.Errorf("%d runs", n)
		}
	})
}

func TestARunThatAlwaysKillsTheProcessIsGivenUp(t *testing.T) {
	t.Parallel()
	inWorld(t, func(t *testing.T, w *world) {
		w.limits.Attempts, w.limits.Starts = 2, 4
		w.deliver(7, w.provider.head.ID)
		for i := 0; i < 20 && w.queue.len() > 0; i++ {
			p := w.start(&mortality{only: "run", at: 1, before: true})
			time.Sleep(3 * time.Minute)
			p.end(t)
		}
		w.run()
		w.wantRuns("failure retries_exhausted")
		if !w.alerts.isOpen(gate.AlertRetriesExhausted) {
			t.Errorf("alerts %v", w.alerts.opened())
		}
		w.deliver(8, w.provider.head.ID)
		w.run()
		if w.alerts.isOpen(gate.AlertRetriesExhausted) {
			t.Errorf("after a run with a conclusion: alerts %v", w.alerts.opened())
		}
	})
}

func TestWhatCanNotBeRemovedIsAnAlertAndNeverAPass(t *testing.T) {
	t.Parallel()
	inWorld(t, func(t *testing.T, w *world) {
		failing := 2
		w.provider.onRemove = func() error {
			if failing--; failing >= 0 {
				return errors.New("directory not empty")
			}
			return nil
		}
		w.deliver(7, w.provider.head.ID)
		w.run()
		w.wantRuns("success")
		if n := w.program.count(); n != 3 {
			t.Errorf("%d runs, want one that leads to a result after two that left something", n)
		}
		if !w.alerts.wasRaised("cleanup_failed:unavailable") || w.alerts.isOpen(gate.AlertCleanupFailed) {
			t.Errorf("raised %v, open %v", w.alerts.all(), w.alerts.opened())
		}
	})
}

func TestAnEvaluationDoesNotResolveItsOwnAlert(t *testing.T) {
	t.Parallel()
	inWorld(t, func(t *testing.T, w *world) {
		w.program.left = errors.New("a process is alive")
		w.deliver(7, w.provider.head.ID)
		w.run()
		w.wantRuns("success")
		if !w.alerts.isOpen(gate.AlertCleanupFailed) {
			t.Errorf("what the run left is told nowhere: raised %v, open %v", w.alerts.all(), w.alerts.opened())
		}
		w.program.set(func(p *program) { p.left = nil })
		w.deliver(8, w.provider.head.ID)
		w.run()
		if w.alerts.isOpen(gate.AlertCleanupFailed) {
			t.Errorf("after a clean run: alerts %v", w.alerts.opened())
		}
	})
}

func TestWaitingForAProviderIsNotCounted(t *testing.T) {
	t.Parallel()
	for _, r := range []fencepost.Reason{fencepost.ReasonRateLimited, fencepost.ReasonCredential} {
		t.Run(string(r), func(t *testing.T) {
			t.Parallel()
			inWorld(t, func(t *testing.T, w *world) {
				w.limits.Attempts = 2
				until := time.Now().Add(40 * time.Minute)
				w.provider.onRefresh = func(int) error {
					if time.Now().Before(until) {
						return &gate.WaitError{Until: until, Err: reasonError(r)}
					}
					return nil
				}
				w.deliver(7, w.provider.head.ID)
				w.run()
				w.wantRuns("success")
				if w.provider.refreshes > 5 {
					t.Errorf("%d refreshes", w.provider.refreshes)
				}
				if w.alerts.wasRaised("credential:credential") != (r == fencepost.ReasonCredential) || w.alerts.isOpen(gate.AlertCredential) {
					t.Errorf("alerts %v, open %v", w.alerts.all(), w.alerts.opened())
				}
			})
		})
	}
}

func TestALostLeaseStagesNothing(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		only string
	}{{"renewal that is not answered", "renew"}} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			inWorld(t, func(t *testing.T, w *world) {
				w.program.takes = 30 * time.Second
				w.deliver(7, w.provider.head.ID)
				stalled := w.start(&mortality{only: tc.only, at: 4, before: true})
				time.Sleep(25 * time.Second)
				if w.journal.kinds() == "" || strings.Contains(w.journal.kinds(), "staged") {
					t.Errorf("transcript %q", w.journal.kinds())
				}
				stalled.end(t)
				w.run()
				w.wantRuns("success")
				if w.provider.writes() != 1 {
					t.Errorf("%d writes", w.provider.writes())
				}
			})
		})
	}
}

func TestNoEvidenceNoPass(t *testing.T) {
	t.Parallel()
	inWorld(t, func(t *testing.T, w *world) {
		w.limits.Attempts = 2
		w.store.setFail(errors.New("disk full"))
		w.deliver(7, w.provider.head.ID)
		w.run()
		w.wantRuns("failure evidence")
		if v := w.provider.shown()[0]; v.Artifact != "" {
			t.Errorf("artifact %q", v.Artifact)
		}
	})
	inWorld(t, func(t *testing.T, w *world) {
		w.store.setFail(errors.New("disk full"))
		w.deliver(7, w.provider.head.ID)
		p := w.start(nil)
		time.Sleep(time.Second)
		w.store.setFail(nil)
		w.settle()
		p.end(t)
		w.wantRuns("success")
	})
}

func TestEvidenceHoldsWhatWasSeen(t *testing.T) {
	t.Parallel()
	inWorld(t, func(t *testing.T, w *world) {
		w.plan.ExternalVerification = true
		w.deliver(7, w.provider.head.ID)
		w.run()
		w.wantRuns("success")
		for _, want := range []string{
			`"schema":"fencepost.evidence/v1"`, `"first_refresh":{`, `"second_refresh":{`, `"text":"{\"links\": 2}"`,
			`"protections":[{"protection":"landlock","on":true}]`, `"plan":{"action":"https://forge.invalid/acme/checks.git"`,
			`{"fact":"candidate.parents","expected":"`, `{"fact":"gate.revision","expected":"`,
			`{"fact":"request.state","expected":"open","observed":"open","verdict":"met"}`,
		} {
			if !strings.Contains(w.store.last(), want) {
				t.Errorf("evidence lacks %s:\n%s", want, w.store.last())
			}
		}
		if strings.Contains(w.store.last(), "unmet") {
			t.Errorf("evidence of a pass holds an unmet fact:\n%s", w.store.last())
		}
	})
}

func TestOneRunOfARequestAtATime(t *testing.T) {
	t.Parallel()
	inWorld(t, func(t *testing.T, w *world) {
		w.program.takes = 20 * time.Second
		for range 4 {
			w.deliverAs(7, w.provider.head.ID, "a", time.Now().String())
			time.Sleep(time.Second)
		}
		w.run()
		if w.program.mostAtOnce() != 1 {
			t.Errorf("%d runs at once", w.program.mostAtOnce())
		}
		// The first was under way; of the others the newest makes the rest old.
		w.wantRuns("success", "success")
		if got := strings.Count(w.journal.kinds(), "ended:superseded"); got != 2 {
			t.Errorf("%d superseded\n%s", got, w.journal)
		}
		// What is known to be old asks the provider nothing.
		w.provider.mu.Lock()
		defer w.provider.mu.Unlock()
		if w.provider.refreshes != 2*3 {
			t.Errorf("the gate was read %d times, want three times for each run", w.provider.refreshes)
		}
	})
}

func TestRequestsRunSideBySide(t *testing.T) {
	t.Parallel()
	inWorld(t, func(t *testing.T, w *world) {
		w.program.takes = 20 * time.Second
		for n := range int64(3) {
			w.deliver(n+1, w.provider.head.ID)
		}
		p := w.start(nil)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if w.program.running() != 3 {
			t.Errorf("%d runs", w.program.running())
		}
		w.settle()
		p.end(t)
	})
}

func TestAnOlderEvaluationDoesNotFollowANewerOne(t *testing.T) {
	t.Parallel()
	inWorld(t, func(t *testing.T, w *world) {
		// Two processes: the older evaluation is still running when the newer
		// one of the same head is staged.
		w.program.takes = 20 * time.Second
		w.deliverAs(7, w.provider.head.ID, "a", "older")
		slow := w.start(nil)
		time.Sleep(time.Second)
		w.program.set(func(p *program) { p.takes = 0; p.pass = false })
		w.deliverAs(8, w.provider.head.ID, "a", "newer")
		w.settle()
		slow.end(t)
		w.wantRuns("failure")
		if !strings.Contains(w.journal.kinds(), "staged:superseded") {
			t.Errorf("transcript %s", w.journal.kinds())
		}
	})
}
