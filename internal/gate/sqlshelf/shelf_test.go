package sqlshelf

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/gate/shelf"
	"github.com/fencepost/fencepost/internal/gate/shelftest"
	"github.com/fencepost/fencepost/internal/store"
	"github.com/fencepost/fencepost/internal/store/pgtest"
)

var postgres = pgtest.Server{Fast: true}

func TestMain(m *testing.M) {
	os.Exit(pgtest.Run(m, &postgres, func() error { return goleak.Find() }))
}

func open(t testing.TB, url string, limits shelf.Limits) *Shelf {
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
	shelftest.Run(t, func(t *testing.T, limits shelf.Limits) shelftest.Harness {
		url := postgres.Database(t)
		return shelftest.Harness{
			Open: func(t testing.TB) shelftest.Shelf { return open(t, url, limits) },
			Elapse: func(t testing.TB, d time.Duration) {
				postgres.Exec(t, url, fmt.Sprintf("update results set stored_at = stored_at - %d", d.Microseconds()))
			},
			Spoil: func(t testing.TB, d fencepost.DeliveryID) {
				postgres.Exec(t, url, fmt.Sprintf(`update results set body = case when body is not null then body || '\x00'::bytea end,
					reason = case when body is null then 'expired' else '' end where delivery = '%s'`, d))
			},
			Swap: func(t testing.TB, from, to fencepost.DeliveryID) {
				postgres.Exec(t, url, fmt.Sprintf(`update results set (digest, reason, body) =
					(select digest, reason, body from results where delivery = '%s') where delivery = '%s'`, from, to))
			},
		}
	})
}

// Invariant 8: of what is not known to be stored, nothing is said to be told.
func TestAnUnknownOutcomeIsAnErrorAndTellingAgainMendsIt(t *testing.T) {
	t.Parallel()
	s := open(t, postgres.Database(t), shelf.Limits{})
	d := fencepost.DeliveryKey{1}.ID()
	write := s.write
	s.write = func(ctx context.Context, op string, fn func(context.Context, *store.Tx) error) error {
		return errors.Join(write(ctx, op, fn), store.ErrUnknownOutcome)
	}
	if err := s.Put(t.Context(), d, []byte("staged")); !errors.Is(err, store.ErrUnknownOutcome) {
		t.Errorf("Put = %v, want the outcome unknown", err)
	}
	if err := s.End(t.Context(), d, fencepost.ReasonExpired); !errors.Is(err, store.ErrUnknownOutcome) {
		t.Errorf("End = %v, want the outcome unknown", err)
	}
	if key, err := s.PollKey(t.Context()); !errors.Is(err, store.ErrUnknownOutcome) || key.Len() != 0 {
		t.Errorf("PollKey = %d bytes, %v; want none, the outcome unknown", key.Len(), err)
	}
	s.write = write
	if err := s.Put(t.Context(), d, []byte("staged")); err != nil {
		t.Error(err)
	}
	if e, ok, err := s.Get(t.Context(), d); err != nil || !ok || string(e.Document) != "staged" {
		t.Errorf("Get = %+v, %v, %v", e, ok, err)
	}
}
