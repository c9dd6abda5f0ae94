package github_test

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/forgesim"
	"github.com/fencepost/fencepost/internal/gate/github"
)

func TestHealingSeesOpenRequestsAndAsksForTheirEvents(t *testing.T) {
	t.Parallel()
	status := http.StatusBadGateway
	var taken int
	hook := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		taken++
		w.WriteHeader(status)
	}))
	t.Cleanup(hook.Close)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	b := newBench(t, func(c *forgesim.Config, _ *github.Limits) {
		c.App.HookURL, c.App.HookSecret, c.HookClient = hook.URL, []byte("0123456789abcdef"), client
	})
	pr, s := b.open(forgesim.OpenPull{})
	b.open(forgesim.OpenPull{Head: "draft", Draft: true, Change: forgesim.Change{Files: map[string]string{"d": "d"}}})
	must(t, pr.SetTitle(t.Context(), "Another title"))
	must(t, b.forge.Deliver(t.Context()))

	open, err := b.lane.Open(t.Context())
	must(t, err)
	if len(open) != 1 || open[0].Subject != s || time.Since(open[0].Changed) > time.Minute {
		t.Fatalf("open %+v, want %+v alone", open, s)
	}
	if shown, err := b.lane.Shown(t.Context(), s); shown || err != nil {
		t.Errorf("shown %v, %v", shown, err)
	}
	logged, err := b.lane.Log(t.Context(), time.Now().Add(-time.Hour))
	must(t, err)
	var named int
	for _, d := range logged {
		if d.Taken || d.Delivery == "" {
			t.Errorf("logged %+v", d)
		}
		got, err := b.lane.Named(t.Context(), d.ID)
		switch fencepost.ReasonOf(err) {
		case fencepost.ReasonEventNotHandled: // the title
		case fencepost.ReasonNone:
			if got != s {
				continue // the draft's
			}
			named++
			status = http.StatusAccepted
			before := taken
			must(t, b.lane.Redeliver(t.Context(), d.ID))
			must(t, b.forge.Deliver(t.Context()))
			if taken != before+1 {
				t.Errorf("%d deliveries more", taken-before)
			}
		default:
			t.Errorf("named: %v", err)
		}
	}
	if named != 1 {
		t.Errorf("%d deliveries name the request", named)
	}
	_, err = b.repo.CreateCheckRun(t.Context(), forgesim.NewCheckRun{Name: check, HeadSHA: pr.Head(), Conclusion: "success"})
	must(t, err)
	if shown, err := b.lane.Shown(t.Context(), s); !shown || err != nil {
		t.Errorf("shown %v, %v", shown, err)
	}
}

func TestSweepsLeaveTheReserveToLiveWork(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(c *forgesim.Config, _ *github.Limits) { c.RateLimit = 20 })
	_, s := b.open(forgesim.OpenPull{})
	b.refresh(s)
	b.repo.AddRuleset(forgesim.Ruleset{Rules: []forgesim.Rule{{Type: "deletion"}}})
	for range 6 {
		if _, err := b.lane.Open(t.Context()); err != nil {
			wantReason(t, err, fencepost.ReasonRateLimited)
			b.refresh(s)
			return
		}
		_, _, err := b.lane.Find(t.Context(), b.compose(verdict(s, b.refresh(s))))
		must(t, err)
	}
	t.Error("the sweep was never held back")
}
