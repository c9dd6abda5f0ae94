package shelftest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/gate/shelf"
)

// A Shelf is one process's view of a shelf.
type Shelf interface {
	Put(ctx context.Context, d fencepost.DeliveryID, document []byte) error
	End(ctx context.Context, d fencepost.DeliveryID, why fencepost.Reason) error
	Get(ctx context.Context, d fencepost.DeliveryID) (shelf.Entry, bool, error)
	Expire(ctx context.Context) error
	Usage(ctx context.Context) (count, bytes int64, err error)
	PollKey(ctx context.Context) (fencepost.Secret, error)
}

// A Harness is one fresh shelf and the levers that a case needs over it.
type Harness struct {
	// Open opens the shelf as one more process, until the test ends.
	Open func(t testing.TB) Shelf
	// Elapse makes everything that is stored so much older.
	Elapse func(t testing.TB, d time.Duration)
	// Spoil alters what is stored of a delivery.
	Spoil func(t testing.TB, d fencepost.DeliveryID)
	// Swap puts what is stored of one delivery in the place of another's.
	Swap func(t testing.TB, from, to fencepost.DeliveryID)
}

const day = 24 * time.Hour

// Run runs the suite; fresh makes a shelf within limits for each case.
func Run(t *testing.T, fresh func(t *testing.T, limits shelf.Limits) Harness) {
	for _, c := range []struct {
		name   string
		limits shelf.Limits
		do     func(t *testing.T, h Harness)
	}{
		{"a result is told byte for byte and once", shelf.Limits{}, result},
		{"an end stands until a result is told", shelf.Limits{}, end},
		{"what is no entry is refused", shelf.Limits{}, refused},
		{"what is damaged is neither told nor in the way", shelf.Limits{}, damaged},
		{"another delivery's entry is none", shelf.Limits{}, swapped},
		{"expired is gone", shelf.Limits{TTL: 2 * day}, expired},
		{"what may be awaited is never evicted: count", shelf.Limits{Count: 2}, full},
		{"what may be awaited is never evicted: bytes", shelf.Limits{TotalBytes: 2 * shelf.Entry{Document: document}.Size()}, full},
		{"an entry that changes is counted once", shelf.Limits{Count: 1}, countedOnce},
		{"processes agree on one result", shelf.Limits{}, together},
		{"the poll key is made once", shelf.Limits{}, pollKey},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.do(t, fresh(t, c.limits))
		})
	}
}

var document = []byte(`{"conclusion":"success"}` + "\x00\xff")

// id names a delivery of its own for each n.
func id(n byte) fencepost.DeliveryID { return fencepost.DeliveryKey{15: n, 0: 7}.ID() }

func wantPut(t testing.TB, s Shelf, d fencepost.DeliveryID, document []byte) {
	t.Helper()
	if err := s.Put(t.Context(), d, document); err != nil {
		t.Fatalf("Put: %v", err)
	}
}

func wantEnd(t testing.TB, s Shelf, d fencepost.DeliveryID, why fencepost.Reason) {
	t.Helper()
	if err := s.End(t.Context(), d, why); err != nil {
		t.Fatalf("End: %v", err)
	}
}

func wantResult(t testing.TB, s Shelf, d fencepost.DeliveryID, want []byte) {
	t.Helper()
	e, ok, err := s.Get(t.Context(), d)
	if err != nil || !ok || e.Ended() || e.Reason != "" || !bytes.Equal(e.Document, want) {
		t.Errorf("Get = %q, %q, %v, %v; want the result %q", e.Document, e.Reason, ok, err, want)
	}
}

func wantEnded(t testing.TB, s Shelf, d fencepost.DeliveryID, want fencepost.Reason) {
	t.Helper()
	e, ok, err := s.Get(t.Context(), d)
	if err != nil || !ok || !e.Ended() || e.Reason != want {
		t.Errorf("Get = %q, %q, %v, %v; want the end %q", e.Document, e.Reason, ok, err, want)
	}
}

func wantNothing(t testing.TB, s Shelf, d fencepost.DeliveryID) {
	t.Helper()
	if e, ok, err := s.Get(t.Context(), d); err != nil || ok {
		t.Errorf("Get = %q, %q, %v, %v; want nothing", e.Document, e.Reason, ok, err)
	}
}

func wantReason(t testing.TB, err error, want fencepost.Reason) {
	t.Helper()
	if err == nil || fencepost.ReasonOf(err) != want {
		t.Errorf("error = %v (%s); want %s", err, fencepost.ReasonOf(err), want)
	}
}

func result(t *testing.T, h Harness) {
	s := h.Open(t)
	wantNothing(t, s, id(1))
	wantPut(t, s, id(1), document)
	other := h.Open(t)
	for _, s := range []Shelf{s, other} {
		wantResult(t, s, id(1), document)
		wantPut(t, s, id(1), document)
	}
	wantReason(t, other.Put(t.Context(), id(1), []byte("another")), fencepost.ReasonPublishConflict)
	wantEnd(t, other, id(1), fencepost.ReasonSuperseded)
	wantResult(t, s, id(1), document)
	wantNothing(t, s, id(2))
	if n, size, err := s.Usage(t.Context()); n != 1 || size != (shelf.Entry{Document: document}).Size() || err != nil {
		t.Errorf("Usage = %d, %d, %v; want one entry", n, size, err)
	}
	largest := bytes.Repeat([]byte("x"), fencepost.MaxPublicationBytes)
	wantPut(t, s, id(3), largest)
	wantResult(t, other, id(3), largest)
}

func end(t *testing.T, h Harness) {
	s := h.Open(t)
	wantEnd(t, s, id(1), fencepost.ReasonSuperseded)
	wantEnd(t, s, id(2), fencepost.ReasonNone)
	other := h.Open(t)
	wantEnded(t, other, id(1), fencepost.ReasonSuperseded)
	wantEnded(t, other, id(2), fencepost.ReasonNone)
	wantEnd(t, other, id(1), fencepost.ReasonExpired)
	wantEnded(t, s, id(1), fencepost.ReasonSuperseded)
	wantPut(t, s, id(1), document)
	wantResult(t, other, id(1), document)
	wantEnded(t, other, id(2), fencepost.ReasonNone)
}

func refused(t *testing.T, h Harness) {
	s := h.Open(t)
	for name, test := range map[string]struct {
		err  error
		want error
	}{
		"no document":    {s.Put(t.Context(), id(1), nil), fencepost.ErrZeroValue},
		"large document": {s.Put(t.Context(), id(1), make([]byte, fencepost.MaxPublicationBytes+1)), fencepost.ErrTooLarge},
		"no delivery":    {s.Put(t.Context(), "../poll-key", document), fencepost.ErrMalformed},
		"end of none":    {s.End(t.Context(), "", fencepost.ReasonNone), fencepost.ErrMalformed},
		"large reason":   {s.End(t.Context(), id(1), fencepost.Reason(bytes.Repeat([]byte("x"), 100))), fencepost.ErrTooLarge},
	} {
		if !errors.Is(test.err, test.want) {
			t.Errorf("%s: %v, want %v", name, test.err, test.want)
		}
	}
	wantNothing(t, s, id(1))
	if n, size, err := s.Usage(t.Context()); n != 0 || size != 0 || err != nil {
		t.Errorf("Usage = %d, %d, %v; want none", n, size, err)
	}
}

func damaged(t *testing.T, h Harness) {
	s := h.Open(t)
	wantPut(t, s, id(1), document)
	wantEnd(t, s, id(2), fencepost.ReasonSuperseded)
	for _, d := range []fencepost.DeliveryID{id(1), id(2)} {
		h.Spoil(t, d)
		_, ok, err := s.Get(t.Context(), d)
		wantReason(t, err, fencepost.ReasonCorrupt)
		if ok {
			t.Error("damaged, and told")
		}
	}
	wantPut(t, s, id(1), document)
	wantEnd(t, s, id(2), fencepost.ReasonSuperseded)
	wantResult(t, s, id(1), document)
	wantEnded(t, s, id(2), fencepost.ReasonSuperseded)
}

func swapped(t *testing.T, h Harness) {
	s := h.Open(t)
	wantPut(t, s, id(1), document)
	wantEnd(t, s, id(2), fencepost.ReasonSuperseded)
	h.Swap(t, id(1), id(2))
	_, _, err := s.Get(t.Context(), id(2))
	wantReason(t, err, fencepost.ReasonCorrupt)
}

func expired(t *testing.T, h Harness) {
	s := h.Open(t)
	wantPut(t, s, id(1), document)
	h.Elapse(t, day)
	wantEnd(t, s, id(2), fencepost.ReasonSuperseded)
	if err := s.Expire(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantResult(t, s, id(1), document)
	h.Elapse(t, 2*day)
	if err := s.Expire(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantNothing(t, s, id(1))
	h.Elapse(t, 2*day)
	again := h.Open(t)
	wantNothing(t, again, id(2))
	if n, size, err := again.Usage(t.Context()); n != 0 || size != 0 || err != nil {
		t.Errorf("Usage = %d, %d, %v; want none", n, size, err)
	}
}

func full(t *testing.T, h Harness) {
	s := h.Open(t)
	wantPut(t, s, id(1), document)
	wantPut(t, s, id(2), document)
	wantReason(t, s.Put(t.Context(), id(3), document), fencepost.ReasonFull)
	wantPut(t, s, id(2), document)
	wantResult(t, s, id(1), document)
	h.Elapse(t, 2*day)
	wantPut(t, h.Open(t), id(3), document)
	wantResult(t, s, id(3), document)
	left := 0
	for _, d := range []fencepost.DeliveryID{id(1), id(2)} {
		if _, ok, err := s.Get(t.Context(), d); err != nil {
			t.Error(err)
		} else if ok {
			left++
		}
	}
	if left != 1 {
		t.Errorf("%d of two old results are left, want one to have made room", left)
	}
}

func countedOnce(t *testing.T, h Harness) {
	s := h.Open(t)
	wantEnd(t, s, id(1), fencepost.ReasonRevoked)
	wantReason(t, s.End(t.Context(), id(2), fencepost.ReasonNone), fencepost.ReasonFull)
	wantPut(t, s, id(1), document)
	wantResult(t, s, id(1), document)
	if n, size, err := s.Usage(t.Context()); n != 1 || size != (shelf.Entry{Document: document}).Size() || err != nil {
		t.Errorf("Usage = %d, %d, %v; want the one entry as it is", n, size, err)
	}
}

func together(t *testing.T, h Harness) {
	const processes = 4
	said := make([]error, processes)
	var wg sync.WaitGroup
	for p := range processes {
		s := h.Open(t)
		wg.Go(func() {
			said[p] = s.Put(t.Context(), id(1), fmt.Appendf(nil, "result %d", p))
			if err := s.End(t.Context(), id(1), fencepost.ReasonSuperseded); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	s := h.Open(t)
	took := 0
	for p, err := range said {
		if err == nil {
			took++
			wantResult(t, s, id(1), fmt.Appendf(nil, "result %d", p))
			continue
		}
		wantReason(t, err, fencepost.ReasonPublishConflict)
	}
	if took != 1 {
		t.Errorf("%d of %d results were taken, want one", took, processes)
	}
}

func pollKey(t *testing.T, h Harness) {
	const processes = 4
	keys := make([]fencepost.Secret, processes)
	var wg sync.WaitGroup
	for p := range processes {
		s := h.Open(t)
		wg.Go(func() {
			var err error
			if keys[p], err = s.PollKey(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	for p, key := range keys {
		if key.Len() != 32 || !key.Equal(keys[0]) {
			t.Errorf("process %d has another key, or one of %d bytes", p, key.Len())
		}
	}
	if key := keys[0].Reveal(); bytes.Equal(key, make([]byte, len(key))) {
		t.Error("the key is no secret")
	}
	again, err := h.Open(t).PollKey(t.Context())
	if err != nil || !again.Equal(keys[0]) {
		t.Errorf("opened again, the key is another one, %v", err)
	}
}
