package ingress

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

// Whatever bodies come and go, no part of the budget holds more memory than
// its size, kept buffers included, and all room comes back.
func TestBudgetHoldsItsBounds(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		largest := rapid.Int64Range(1, 8<<20).Draw(t, "largest")
		total := largest + rapid.Int64Range(0, 16<<20).Draw(t, "more")
		b := newBudget(total, largest, time.Nanosecond)
		pools := []*pool{b.large}
		if b.small != nil {
			pools = append(pools, b.small)
		}
		sum := int64(0)
		for _, p := range pools {
			sum += p.size
		}
		if sum != total || b.large.size < largest {
			t.Fatalf("parts of %d bytes, the larger %d; want %d in all and %d in one", sum, b.large.size, total, largest)
		}
		var held []*buffer
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			switch action := rapid.IntRange(0, 9).Draw(t, "action"); {
			case action == 0:
				b.trim()
			case action < 4 && len(held) > 0:
				i := rapid.IntRange(0, len(held)-1).Draw(t, "which")
				held[i].release()
				held = append(held[:i], held[i+1:]...)
			default:
				n := rapid.Int64Range(0, largest).Draw(t, "n")
				room, err := b.take(context.Background(), n)
				if err != nil {
					if !errors.Is(err, errNoRoom) {
						t.Fatalf("err = %v", err)
					}
					break
				}
				if int64(len(room.bytes)) < n {
					t.Fatalf("%d bytes of room for %d", len(room.bytes), n)
				}
				held = append(held, room)
			}
			use := int64(0)
			for _, room := range held {
				use += int64(len(room.bytes))
			}
			if got := b.inUse(); got != use {
				t.Fatalf("%d bytes in use, says %d", use, got)
			}
			for _, p := range pools {
				if p.used < 0 || p.kept < 0 || p.used+p.kept > p.size {
					t.Fatalf("a part of %d bytes uses %d and keeps %d", p.size, p.used, p.kept)
				}
			}
		}
		for _, room := range held {
			room.release()
		}
		for _, p := range pools {
			if p.used != 0 || !p.sem.TryAcquire(p.size) {
				t.Fatalf("%d bytes of room did not come back", p.used)
			}
		}
	})
}

func TestBuffersAreUsedAgainAndDroppedWhenIdle(t *testing.T) {
	t.Parallel()
	b := newBudget(64<<20, 16<<20, time.Second)
	first, err := b.take(t.Context(), 10<<20)
	if err != nil {
		t.Fatal(err)
	}
	place := &first.bytes[0]
	first.release()
	again, err := b.take(t.Context(), 12<<20)
	if err != nil {
		t.Fatal(err)
	}
	if &again.bytes[0] != place {
		t.Error("the buffer was not used again")
	}
	again.release()
	b.trim()
	if b.large.kept == 0 {
		t.Error("a buffer that was just used was dropped")
	}
	b.trim()
	if b.large.kept != 0 || len(b.large.free) != 0 {
		t.Errorf("%d bytes are kept in vain", b.large.kept)
	}
}

// Room is given in the order in which it was asked for, and waiting for it
// ends in time or with the context.
func TestRoomIsGivenInOrder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBudget(100, 100, time.Minute)
		first, err := b.take(t.Context(), 100)
		if err != nil {
			t.Fatal(err)
		}
		order := make(chan int, 3)
		for i := range 3 {
			go func() {
				room, err := b.take(t.Context(), 100)
				if err != nil {
					t.Error(err)
				}
				order <- i
				room.release()
			}()
			synctest.Wait()
		}
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		if _, err := b.take(ctx, 1); !errors.Is(err, context.Canceled) {
			t.Errorf("err = %v, want the context's", err)
		}
		first.release()
		synctest.Wait()
		if a, b, c := <-order, <-order, <-order; a != 0 || b != 1 || c != 2 {
			t.Errorf("room went to %d, %d, %d", a, b, c)
		}
	})
}
