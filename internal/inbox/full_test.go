package inbox

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost/internal/durable"
	"github.com/fencepost/fencepost/internal/durable/crashfs"
)

func TestFullOfEntries(t *testing.T) {
	t.Parallel()
	cfg := small
	cfg.MaxEntries, cfg.RetryAfter = 2, 7*time.Second
	b := open(t, crashfs.New(crashfs.Options{}).Process(), cfg)
	record(t, b, mail{id: 1, body: text("1")}, Accepted)
	record(t, b, mail{id: 2, body: text("2")}, Accepted)
	m := mail{id: 3, body: text("3")}
	_, err := b.Record(t.Context(), m.accepted(t), headers, m.body)
	full, ok := errors.AsType[*FullError](err)
	if !ok || full.Bound != "entries" || full.RetryAfter != 7*time.Second || !errors.Is(err, ErrFull) {
		t.Fatalf("Record = %v, want full of entries, retry after 7s", err)
	}
	record(t, b, mail{id: 1, body: text("1")}, Replayed)
	item, _ := take(t, b)
	must(t, b.Done(item.ID, ""))
	record(t, b, m, Accepted)
	must(t, b.Close())
}

// fill records until there is no room, and returns how many and the error.
func fill(t testing.TB, b *Inbox, from uint64, size int) (int, error) {
	t.Helper()
	for i := range uint64(10_000) {
		m := mail{id: from + i, body: bytes.Repeat([]byte{'x'}, size)}
		if _, err := b.Record(t.Context(), m.accepted(t), headers, m.body); err != nil {
			return int(i), err
		}
	}
	t.Fatal("never full")
	return 0, nil
}

func TestFullOfBytesEmptiesAgain(t *testing.T) {
	t.Parallel()
	d := crashfs.New(crashfs.Options{})
	b := open(t, d.Process(), small)
	n, err := fill(t, b, 0, 1000)
	if full, ok := errors.AsType[*FullError](err); !ok || full.Bound != "bytes" {
		t.Fatalf("Record = %v, want full of bytes", err)
	}
	if got := b.Stats().Bytes; got > small.MaxBytes {
		t.Errorf("%d bytes of segments, at most %d", got, small.MaxBytes)
	}
	if n < 80 {
		t.Errorf("full after %d records", n)
	}
	if got := len(keysAfter(t, d, crashfs.LoseAll)); got != n {
		t.Errorf("%d of %d entries survive", got, n)
	}
	if got := len(drain(t, b)); got != n {
		t.Errorf("%d of %d entries were handed out", got, n)
	}
	must(t, b.tidy(t.Context()))
	if m, err := fill(t, b, 100_000, 1000); m < n-20 || !errors.Is(err, ErrFull) {
		t.Errorf("after it was emptied there was room for %d, %v; want about %d", m, err, n)
	}
	must(t, b.Close())
}

func TestAFullDiskRefusesKeepsAndRecovers(t *testing.T) {
	t.Parallel()
	d := crashfs.New(crashfs.Options{Capacity: 5 * minSegment})
	b := open(t, d.Process(), small)
	n, err := fill(t, b, 0, 1000)
	if full, ok := errors.AsType[*FullError](err); !ok || full.Bound != "disk" {
		t.Fatalf("Record = %v, want a full disk", err)
	}
	must(t, b.Health())
	must(t, b.tidy(t.Context()))
	must(t, b.Health())
	if got := len(keysAfter(t, d, crashfs.LoseAll)); got != n {
		t.Errorf("%d of %d entries survive", got, n)
	}
	d.SetCapacity(0)
	record(t, b, mail{id: 5000, body: text("there is room")}, Accepted)
	if got := len(drain(t, b)); got != n+1 {
		t.Errorf("%d of %d entries were handed out", got, n+1)
	}
	must(t, b.Close())
}

func TestAFullDiskIsEmptiedByWork(t *testing.T) {
	t.Parallel()
	d := crashfs.New(crashfs.Options{Capacity: 5 * minSegment})
	b := open(t, d.Process(), small)
	n, err := fill(t, b, 0, 1000)
	if !errors.Is(err, ErrFull) {
		t.Fatalf("Record = %v, want ErrFull", err)
	}
	drain(t, b)
	must(t, b.tidy(t.Context()))
	if m, err := fill(t, b, 5000, 1000); m < n/2 {
		t.Errorf("room for %d after the work, %v; want about %d", m, err, n)
	}
	must(t, b.Close())
}

func TestTheDisksReserveIsLeftFree(t *testing.T) {
	t.Parallel()
	cfg := small
	cfg.MinFree = 4 * minSegment
	d := crashfs.New(crashfs.Options{Capacity: 8 * minSegment})
	b := open(t, d.Process(), cfg)
	if _, err := fill(t, b, 0, 1000); !errors.Is(err, ErrFull) {
		t.Fatalf("Record = %v, want ErrFull", err)
	}
	if free := 8*minSegment - d.Used(); free < cfg.MinFree {
		t.Errorf("%d bytes are left, want %d", free, cfg.MinFree)
	}
	must(t, b.Close())
}

// A log that was sealed by a full disk may lose its last segment: nobody may
// miss it later.
func TestALogThatAFullDiskEmptiedIsNotMissed(t *testing.T) {
	t.Parallel()
	d := crashfs.New(crashfs.Options{})
	p := d.Process()
	b := open(t, p, small)
	record(t, b, mail{id: 1, body: text("1")}, Accepted)
	must(t, b.tidy(t.Context()))
	d.Plan(func(c crashfs.Call) (f crashfs.Fault) {
		if (c.Op == crashfs.OpWrite || c.Op == crashfs.OpAllocate) && strings.HasPrefix(c.Name, logsDir) {
			f.Err = durable.ErrNoSpace
		}
		return f
	})
	m := mail{id: 2, body: text("2")}
	if _, err := b.Record(t.Context(), m.accepted(t), headers, m.body); !errors.Is(err, ErrFull) {
		t.Fatalf("Record = %v, want ErrFull", err)
	}
	item, _ := take(t, b)
	must(t, b.Done(item.ID, ""))
	must(t, b.tidy(t.Context()))
	if n := len(b.own.segments); n != 0 {
		t.Errorf("%d segments are left, want none", n)
	}
	d.Plan(nil)
	p.Kill()
	again := open(t, d.Process(), small)
	must(t, again.Health())
	must(t, again.Close())
}
