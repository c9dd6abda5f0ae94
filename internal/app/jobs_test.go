package app

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/config"
	"github.com/fencepost/fencepost/internal/durable"
	"github.com/fencepost/fencepost/internal/gate"
	"github.com/fencepost/fencepost/internal/gate/shelf"
	"github.com/fencepost/fencepost/internal/ingress"
)

// verdicts read a document as the verdict that they have for it.
type verdicts map[string]gate.Verdict

func (verdicts) Compose(gate.Verdict) ([]byte, error) { return nil, errors.New("not of this test") }

func (v verdicts) Inspect(document []byte) (gate.Verdict, error) {
	found, ok := v[string(document)]
	if !ok {
		return gate.Verdict{}, fencepost.ErrMalformed
	}
	return found, nil
}

// What a job is told is what is on the shelf for its own delivery, or that
// nothing is; what can't be read is neither.
func TestAJobIsToldWhatStandsForItsDelivery(t *testing.T) {
	t.Parallel()
	s, err := shelf.Open(t.Context(), durable.OS(t.TempDir()), shelf.Limits{}, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	id := func(n byte) fencepost.DeliveryID { return fencepost.DeliveryKey{n}.ID() }
	f := fetched{s, verdicts{
		"pass":   {Delivery: id(1), Conclusion: gate.Pass, Title: "2 checks", Summary: "all well"},
		"block":  {Delivery: id(2), Conclusion: gate.Fail, Title: "1 of 2"},
		"swap":   {Delivery: id(1), Conclusion: gate.Pass},
		"halved": {Delivery: id(5)},
	}}
	for d, document := range map[fencepost.DeliveryID]string{id(1): "pass", id(2): "block", id(4): "swap", id(5): "halved", id(6): "other"} {
		if err := s.Put(t.Context(), d, []byte(document)); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.End(t.Context(), id(3), fencepost.ReasonSuperseded); err != nil {
		t.Fatal(err)
	}
	for d, want := range map[fencepost.DeliveryID]ingress.Result{
		id(1): {Conclusion: "success", Title: "2 checks", Summary: "all well"},
		id(2): {Conclusion: "failure", Title: "1 of 2"},
		id(3): {Ended: true, Reason: fencepost.ReasonSuperseded},
		id(9): {},
	} {
		if got, err := f.Result(t.Context(), d); err != nil || got != want {
			t.Errorf("%s: %+v, %v; want %+v", d, got, err, want)
		}
	}
	for _, d := range []fencepost.DeliveryID{id(4), id(5), id(6)} {
		if got, err := f.Result(t.Context(), d); !errors.Is(err, fencepost.ErrMalformed) || got != (ingress.Result{}) {
			t.Errorf("%s: %+v, %v; want nothing told", d, got, err)
		}
	}
}

// awaitedLane is a lane whose sender waits.
type awaitedLane struct{ gate.Lane }

func (awaitedLane) Ended(context.Context, fencepost.DeliveryID, fencepost.Reason) error { return nil }

// Only lanes whose senders wait have a job's route, and the key of its secrets
// outlives the process.
func TestTheKeyOfPollSecretsIsKept(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	for name, l := range s.lanes {
		if job, err := s.job(t.Context(), l); job != nil || err != nil {
			t.Errorf("gate %s waits for nothing, and has %+v, %v", name, job, err)
		}
	}
	first, err := s.job(t.Context(), awaitedLane{})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s.App, err = Open(t.Context(), s.Options)
	if err != nil {
		t.Fatal(err)
	}
	again, err := s.job(t.Context(), awaitedLane{})
	if err != nil || !again.Key.Equal(first.Key) || first.Key.Len() != 32 {
		t.Errorf("after a restart the key is another one, or none: %v", err)
	}
}

// A result is kept for longer than its delivery may be worked on, whatever is
// configured.
func TestResultsOutliveTheirDeliveries(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		queue, work, want time.Duration
	}{
		{24 * time.Hour, 72 * time.Hour, 7 * 24 * time.Hour},
		{720 * time.Hour, time.Hour, 744*time.Hour + time.Minute},
		{time.Hour, 720 * time.Hour, 744*time.Hour + time.Minute},
	} {
		a := &App{Options: Options{Config: &config.Config{
			Replay: fencepost.ReplayWindow{MaxSignedAge: time.Minute, MaxQueueAge: tc.queue}, Work: config.Work{MaxAge: tc.work},
			Results: config.Results{Keep: 7 * 24 * time.Hour},
		}}}
		if got := a.keptResults(); got != tc.want {
			t.Errorf("kept for %v with %+v, want %v", got, tc, tc.want)
		}
	}
}
