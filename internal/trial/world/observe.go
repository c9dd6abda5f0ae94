package world

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/durable"
	"github.com/fencepost/fencepost/internal/forgesim"
	"github.com/fencepost/fencepost/internal/receipt"
)

// Errors of looking at a world.
var (
	// ErrAnswer: what ingress answered is not what it must be.
	ErrAnswer = errors.New("unexpected answer")
	// ErrAwaited: what was waited for did not come in time.
	ErrAwaited = errors.New("did not come in time")
)

// An Answer is what ingress says (DESIGN §4).
type Answer struct {
	Outcome  string               `json:"outcome"`
	Reason   fencepost.Reason     `json:"reason"`
	Delivery fencepost.DeliveryID `json:"delivery"`
}

// ReadAnswer reads the body of an answer.
func ReadAnswer(body []byte) (Answer, error) {
	var a Answer
	if err := json.Unmarshal(body, &a); err != nil {
		return Answer{}, fmt.Errorf("%w: not JSON: %w", ErrAnswer, err)
	}
	return a, nil
}

// String joins what is set.
func (a Answer) String() string {
	parts := []string{a.Outcome}
	for _, p := range []string{string(a.Reason), string(a.Delivery)} {
		if p != "" {
			parts = append(parts, p)
		}
	}
	return strings.Join(parts, " ")
}

// Await looks until look finds something or fails, at most for within: then
// its error matches [ErrAwaited].
func Await[T any](ctx context.Context, within time.Duration, look func() (T, bool, error)) (T, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, within, fmt.Errorf("%w: %s passed", ErrAwaited, within))
	defer cancel()
	ticker := time.NewTicker(pollEvery)
	defer ticker.Stop()
	for {
		found, ok, err := look()
		if ok || err != nil {
			return found, err
		}
		select {
		case <-ctx.Done():
			return found, context.Cause(ctx)
		case <-ticker.C:
		}
	}
}

// Delivery finds the first pull_request delivery of a request in the forge's
// log, or its first redelivery.
func (w *World) Delivery(pr *forgesim.PullRequest, redelivery bool) (forgesim.Delivery, bool) {
	for _, d := range w.Forge.Deliveries() {
		var body struct {
			Number int `json:"number"`
		}
		if d.Event == "pull_request" && d.Redelivery == redelivery &&
			json.Unmarshal(d.Body, &body) == nil && body.Number == pr.Number() {
			return d, true
		}
	}
	return forgesim.Delivery{}, false
}

// Receipt reads what the controller wrote down of a delivery; it is empty
// while there is nothing.
func (w *World) Receipt(ctx context.Context, id fencepost.DeliveryID) (receipt.Receipt, error) {
	r, damages, err := receipt.Show(ctx, durable.OS(filepath.Join(w.DataDir(), "receipts")), id)
	if errors.Is(err, receipt.ErrNotFound) {
		return receipt.Receipt{}, nil
	}
	if err == nil && len(damages) > 0 {
		err = damages[0]
	}
	return r, err
}

// ReceiptOf is [World.Receipt] for a request's first delivery, which must
// have been accepted.
func (w *World) ReceiptOf(ctx context.Context, pr *forgesim.PullRequest) (receipt.Receipt, error) {
	d, ok := w.Delivery(pr, false)
	if !ok {
		return receipt.Receipt{}, nil
	}
	a, err := ReadAnswer(d.ResponseBody)
	if err != nil {
		return receipt.Receipt{}, err
	}
	if a.Outcome != "accepted" {
		return receipt.Receipt{}, fmt.Errorf("%w: %d %s", ErrAnswer, d.StatusCode, a)
	}
	return w.Receipt(ctx, a.Delivery)
}

// Ended waits until a request's first delivery has ended and returns its
// receipt.
func (w *World) Ended(ctx context.Context, pr *forgesim.PullRequest, within time.Duration) (receipt.Receipt, error) {
	r, err := Await(ctx, within, func() (receipt.Receipt, bool, error) {
		r, err := w.ReceiptOf(ctx, pr)
		_, ended := Find(r, receipt.Ended)
		return r, ended, err
	})
	if err != nil {
		return r, fmt.Errorf("end of request #%d: %w", pr.Number(), err)
	}
	return r, nil
}

// Find returns the last event of a kind.
func Find(r receipt.Receipt, kind receipt.Kind) (receipt.Event, bool) {
	for i := len(r.Events) - 1; i >= 0; i-- {
		if r.Events[i].Kind == kind {
			return r.Events[i], true
		}
	}
	return receipt.Event{}, false
}
