package sqlartifact

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/fencepost/fencepost/internal/artifact"
	"github.com/fencepost/fencepost/internal/artifact/artifacttest"
	"github.com/fencepost/fencepost/internal/store"
	"github.com/fencepost/fencepost/internal/store/pgtest"
)

var postgres = pgtest.Server{Fast: true}

func TestMain(m *testing.M) {
	os.Exit(pgtest.Run(m, &postgres, func() error { return goleak.Find() }))
}

func open(t testing.TB, url string, limits artifact.Limits) *Store {
	t.Helper()
	db, err := store.Open(t.Context(), store.Options{URL: url, Connections: 4})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	s, err := Open(t.Context(), db, limits)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestConformance(t *testing.T) {
	t.Parallel()
	artifacttest.Run(t, func(t *testing.T, limits artifact.Limits) artifacttest.Harness {
		url := postgres.Database(t)
		return artifacttest.Harness{
			Open: func(t testing.TB) artifacttest.Store { return open(t, url, limits) },
			Elapse: func(t testing.TB, d time.Duration) {
				postgres.Exec(t, url, fmt.Sprintf("update artifacts set stored_at = stored_at - %d", d.Microseconds()))
			},
			Spoil: func(t testing.TB, data []byte) {
				postgres.Exec(t, url, `update artifacts set body = '\x`+hex.EncodeToString(data)+`'`)
			},
		}
	})
}

// Invariant 8: evidence of which it is not known whether it was stored is not
// referred to.
func TestAPutOfUnknownOutcomeIsAnError(t *testing.T) {
	t.Parallel()
	s := open(t, postgres.Database(t), artifact.Limits{})
	write := s.write
	s.write = func(ctx context.Context, op string, fn func(context.Context, *store.Tx) error) error {
		return errors.Join(write(ctx, op, fn), store.ErrUnknownOutcome)
	}
	if ref, err := s.Put(t.Context(), []byte("evidence")); !errors.Is(err, store.ErrUnknownOutcome) || ref != (artifact.Ref{}) {
		t.Errorf("Put = %v, %v; want no reference and the error", ref, err)
	}
}
