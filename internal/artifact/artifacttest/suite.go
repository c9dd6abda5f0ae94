package artifacttest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/fencepost/fencepost/internal/artifact"
)

// A Store is one process's view of an evidence store.
type Store interface {
	Put(ctx context.Context, data []byte) (artifact.Ref, error)
	Get(ctx context.Context, ref artifact.Ref) ([]byte, error)
	Expire(ctx context.Context) error
	Usage(ctx context.Context) (count, bytes int64, err error)
}

// A Harness is one fresh store and the levers that a case needs over it.
type Harness struct {
	// Open opens the store as one more process, until the test ends.
	Open func(t testing.TB) Store
	// Elapse makes everything that is stored so much older.
	Elapse func(t testing.TB, d time.Duration)
	// Spoil puts other bytes in the place of everything that is stored.
	Spoil func(t testing.TB, data []byte)
}

const day = 24 * time.Hour

// Run runs the suite; fresh makes a store within limits for each case.
func Run(t *testing.T, fresh func(t *testing.T, limits artifact.Limits) Harness) {
	for _, c := range []struct {
		name   string
		limits artifact.Limits
		do     func(t *testing.T, h Harness)
	}{
		{"put is read back by its digest", artifact.Limits{}, readBack},
		{"what is damaged is neither gone nor believed", artifact.Limits{ArtifactBytes: 100}, damaged},
		{"oversized is refused and nothing is kept", artifact.Limits{ArtifactBytes: 4}, oversized},
		{"the oldest make room: count", artifact.Limits{Count: 2}, oldestGo},
		{"the oldest make room: bytes", artifact.Limits{TotalBytes: 5, ArtifactBytes: 5}, oldestGo},
		{"what can't fit at all is refused", artifact.Limits{TotalBytes: 3, ArtifactBytes: 10}, neverFits},
		{"expired is gone and touched lasts longer", artifact.Limits{TTL: day}, expired},
		{"several processes share the bounds", artifact.Limits{Count: 3}, shared},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.do(t, fresh(t, c.limits))
		})
	}
}

func put(t testing.TB, s Store, data string) artifact.Ref {
	t.Helper()
	ref, err := s.Put(t.Context(), []byte(data))
	if err != nil {
		t.Fatal(err)
	}
	return ref
}

func wantGone(t testing.TB, s Store, ref artifact.Ref) {
	t.Helper()
	if _, err := s.Get(t.Context(), ref); !errors.Is(err, artifact.ErrGone) {
		t.Errorf("Get = %v, want ErrGone", err)
	}
}

func wantHeld(t testing.TB, s Store, ref artifact.Ref, want string) {
	t.Helper()
	got, err := s.Get(t.Context(), ref)
	if err != nil || string(got) != want {
		t.Errorf("Get = %q, %v, want %q", got, err, want)
	}
}

func wantUsage(t testing.TB, s Store, count, bytes int64) {
	t.Helper()
	if n, b, err := s.Usage(t.Context()); n != count || b != bytes || err != nil {
		t.Errorf("Usage = %d, %d, %v; want %d of %d bytes", n, b, err, count, bytes)
	}
}

func readBack(t *testing.T, h Harness) {
	s := h.Open(t)
	ref := put(t, s, "evidence")
	wantHeld(t, h.Open(t), ref, "evidence")
	if ref != artifact.RefOf([]byte("evidence")) {
		t.Errorf("%v does not name its bytes", ref)
	}
	if again := put(t, s, "evidence"); again != ref {
		t.Errorf("the same bytes got %v and %v", ref, again)
	}
	wantUsage(t, s, 1, 8)
	wantHeld(t, s, put(t, s, ""), "")
	wantGone(t, s, artifact.RefOf([]byte("other")))
}

func damaged(t *testing.T, h Harness) {
	s := h.Open(t)
	ref := put(t, s, "evidence")
	for name, data := range map[string][]byte{
		"flipped": []byte("evidencf"), "empty": {}, "short": []byte("evid"), "oversized": bytes.Repeat([]byte("x"), 101),
	} {
		h.Spoil(t, data)
		if _, err := s.Get(t.Context(), ref); !errors.Is(err, artifact.ErrDamaged) {
			t.Errorf("%s: Get = %v, want ErrDamaged", name, err)
		}
	}
	put(t, s, "evidence")
	wantHeld(t, s, ref, "evidence")
}

func oversized(t *testing.T, h Harness) {
	s := h.Open(t)
	if _, err := s.Put(t.Context(), []byte("12345")); !errors.Is(err, artifact.ErrTooLarge) {
		t.Errorf("Put = %v, want ErrTooLarge", err)
	}
	put(t, s, "1234")
	wantUsage(t, s, 1, 4)
}

func oldestGo(t *testing.T, h Harness) {
	s := h.Open(t)
	oldest := put(t, s, "a1")
	h.Elapse(t, day)
	older := put(t, s, "b2")
	h.Elapse(t, day)
	newest := put(t, s, "c3")
	wantGone(t, s, oldest)
	wantHeld(t, s, older, "b2")
	wantHeld(t, s, newest, "c3")
	wantUsage(t, s, 2, 4)
}

func neverFits(t *testing.T, h Harness) {
	s := h.Open(t)
	if _, err := s.Put(t.Context(), []byte("1234")); !errors.Is(err, artifact.ErrTooLarge) {
		t.Errorf("Put = %v, want ErrTooLarge", err)
	}
}

func expired(t *testing.T, h Harness) {
	s := h.Open(t)
	once, twice := put(t, s, "once"), put(t, s, "twice")
	h.Elapse(t, 20*time.Hour)
	put(t, s, "twice")
	if err := s.Expire(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantHeld(t, s, once, "once")
	h.Elapse(t, 16*time.Hour)
	if err := s.Expire(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantGone(t, s, once)
	wantHeld(t, s, twice, "twice")
	wantUsage(t, s, 1, 5)
}

func shared(t *testing.T, h Harness) {
	var wg sync.WaitGroup
	for p := range 2 {
		s := h.Open(t)
		wg.Go(func() {
			for i := range 4 {
				if _, err := s.Put(t.Context(), fmt.Appendf(nil, "%d%d", p, i)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	wantUsage(t, h.Open(t), 3, 6)
}
