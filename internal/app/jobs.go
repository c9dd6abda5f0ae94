package app

import (
	"context"
	"fmt"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/gate"
	"github.com/fencepost/fencepost/internal/gate/shelf"
	"github.com/fencepost/fencepost/internal/ingress"
)

// job makes the route of a lane whose sender waits for its result one of a job;
// nil for other lanes.
func (a *App) job(ctx context.Context, l gate.Lane) (*ingress.Job, error) {
	if _, ok := l.(gate.Awaited); !ok {
		return nil, nil
	}
	key, err := a.spine.results.PollKey(ctx)
	if err != nil {
		return nil, err
	}
	return &ingress.Job{Key: key, Results: fetched{a.spine.results, l}}, nil
}

// fetched is the shelf as the jobs of one lane see it.
type fetched struct {
	results   results
	documents gate.Documents
}

// Result implements [ingress.Results].
func (f fetched) Result(ctx context.Context, d fencepost.DeliveryID) (ingress.Result, error) {
	e, ok, err := f.results.Get(ctx, d)
	switch {
	case err != nil || !ok:
		return ingress.Result{}, err
	case e.Ended():
		return ingress.Result{Ended: true, Reason: e.Reason}, nil
	}
	v, err := f.documents.Inspect(e.Document)
	if err != nil {
		return ingress.Result{}, err
	}
	// What stands under a delivery that it is not of is told to nobody.
	if v.Delivery != d || v.Conclusion != gate.Pass && v.Conclusion != gate.Fail {
		return ingress.Result{}, fmt.Errorf("a result of another delivery: %w", fencepost.ErrMalformed)
	}
	return ingress.Result{Conclusion: v.Conclusion.String(), Title: v.Title, Summary: v.Summary}, nil
}

// keptResults is how long a result is kept at least: as long as is configured,
// and longer than its delivery may be under way.
func (a *App) keptResults() time.Duration {
	r, w := a.Config.Replay, a.Config.Work
	return max(a.Config.Results.Keep, r.MaxSignedAge+max(r.MaxQueueAge, w.MaxAge)+shelf.Awaited)
}

func (a *App) resultLimits() shelf.Limits {
	r := a.Config.Results
	return shelf.Limits{Count: int64(r.MaxCount), TotalBytes: int64(r.MaxTotal), TTL: a.keptResults()}
}
