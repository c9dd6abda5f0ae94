package sqlnotebook

import (
	"context"
	"errors"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/gate"
	"github.com/fencepost/fencepost/internal/gate/notetest"
	"github.com/fencepost/fencepost/internal/store"
	"github.com/fencepost/fencepost/internal/store/pgtest"
)

var postgres = pgtest.Server{Fast: true}

func TestMain(m *testing.M) {
	os.Exit(pgtest.Run(m, &postgres, func() error { return goleak.Find() }))
}

func open(t testing.TB, url string, limits Limits) *Notebook {
	t.Helper()
	// Many change one row at once in the suite, which is nobody's working day.
	db, err := store.Open(t.Context(), store.Options{URL: url, Connections: 4, Tries: 100})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	n, err := Open(t.Context(), db, limits)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestConformance(t *testing.T) {
	t.Parallel()
	notetest.Run(t, func(t *testing.T, bounds notetest.Bounds) notetest.Harness {
		url := postgres.Database(t)
		return notetest.Harness{
			Open:   func(t testing.TB) notetest.Book { return open(t, url, Limits(bounds)) },
			Elapse: func() {}, // the server's clock moves by itself
			Damage: func(t testing.TB) { postgres.Exec(t, url, "update gate_notes set entered_head = 'x' || entered_head") },
		}
	})
}

// Invariant 8: a change whose answer is lost is an error, also if it was made,
// and what is there is what the next one starts from.
func TestAChangeOfUnknownOutcomeIsAnError(t *testing.T) {
	t.Parallel()
	n := open(t, postgres.Database(t), Limits{})
	key := fencepost.DeliveryKey{1}
	start := func() (gate.Note, error) {
		return n.Change(t.Context(), key, func(n *gate.Note) { n.Starts++ })
	}
	write := n.write
	for _, stored := range []bool{false, true} {
		n.write = func(ctx context.Context, op string, fn func(context.Context, *store.Tx) error) error {
			var err error
			if stored {
				err = write(ctx, op, fn)
			}
			return errors.Join(err, &fencepost.Error{Op: op, Reason: fencepost.ReasonUnavailable, Err: store.ErrUnknownOutcome})
		}
		got, err := start()
		if !errors.Is(err, store.ErrUnknownOutcome) || got != (gate.Note{}) {
			t.Errorf("stored %v: %+v, %v; want no note and the error", stored, got, err)
		}
	}
	n.write = write
	if got, err := start(); err != nil || got.Starts != 2 {
		t.Errorf("%+v, %v; want the second start", got, err)
	}
}
