package app

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencepost/fencepost/internal/config"
	"github.com/fencepost/fencepost/ledger"
)

// TestTheRateIsLookedAtNowAndThen: what can't be read leaves what was known.
func TestTheRateIsLookedAtNowAndThen(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := &App{Options: Options{Now: time.Now, Log: slog.New(slog.DiscardHandler), Config: &config.Config{}}}
		a.Config.Ledger.Capacity = 1000
		a.ledgerRows.set(100, 0)
		answers := []int{70, -1, 7}
		a.spine.ages = func(_ context.Context, now time.Time) (ledger.Ages, error) {
			permanent := answers[0]
			answers = answers[1:]
			if permanent < 0 {
				return ledger.Ages{}, errors.New("away")
			}
			return ledger.Ages{Oldest: now.Add(-1000 * time.Hour), Permanent: permanent}, nil
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { a.project(ctx); close(ended) }()
		for i, days := range []int{90, 90, 900} {
			synctest.Wait()
			want := time.Duration(days) * 24 * time.Hour
			if left, ok := a.ledgerFullIn(); !ok || left != want {
				t.Errorf("full in %v, %v; want %v", left, ok, want)
			}
			if i < 2 {
				time.Sleep(projectEvery)
			}
		}
		stop()
		<-ended
	})
}
