package inbox_test

import (
	"bytes"
	"context"
	"io"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/durable/crashfs"
	"github.com/fencepost/fencepost/internal/inbox"
	"github.com/fencepost/fencepost/internal/inbox/inboxtest"
)

// A box is an inbox in files as the suite sees it.
type box struct {
	*inbox.Inbox
	process *crashfs.Process
	stop    func()
}

func (b *box) Done(_ context.Context, id inbox.ItemID) error {
	return b.Inbox.Done(id, fencepost.ReasonNone)
}

func (b *box) Release(_ context.Context, id inbox.ItemID) error { return b.Inbox.Release(id) }

func TestConformance(t *testing.T) {
	t.Parallel()
	inboxtest.Run(t, func(t *testing.T, bounds inboxtest.Bounds) inboxtest.Harness {
		disk := crashfs.New(crashfs.Options{})
		cfg := inbox.Config{
			MaxEntries: bounds.Entries, MaxBody: bounds.Body, RetryAfter: bounds.RetryAfter,
			SegmentBytes: 64 << 10, MaxBytes: 64 << 20, MinFree: -1, AdoptEvery: 20 * time.Millisecond,
		}
		return inboxtest.Harness{
			Open: func(t testing.TB) inboxtest.Box {
				b := &box{process: disk.Process()}
				var err error
				if b.Inbox, err = inbox.Open(t.Context(), b.process, cfg); err != nil {
					t.Fatal(err)
				}
				ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
				var running sync.WaitGroup
				running.Go(func() {
					// A killed process's upkeep fails, as it must.
					_ = b.Run(ctx)
				})
				b.stop = func() {
					stop()
					running.Wait()
				}
				t.Cleanup(b.stop)
				return b
			},
			Close: func(t testing.TB, in inboxtest.Box) {
				if err := in.(*box).Close(); err != nil {
					t.Error(err)
				}
			},
			Kill:     func(_ testing.TB, in inboxtest.Box) { in.(*box).process.Kill() },
			Damage:   func(t testing.TB) { damageSegments(t, disk.Process()) },
			Takeover: time.Second,
		}
	})
}

// damageSegments alters a byte of the body of the entry that the suite stored.
func damageSegments(t testing.TB, fsys *crashfs.Process) {
	infos, err := fsys.ReadDir("logs")
	if err != nil || len(infos) == 0 {
		t.Fatalf("segments: %v, %v", infos, err)
	}
	for _, info := range infos {
		f, err := fsys.OpenFile("logs/"+info.Name, os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		stored := make([]byte, 64<<10)
		if _, err := f.ReadAt(stored, 0); err != nil && err != io.EOF {
			t.Fatal(err)
		}
		at := bytes.Index(stored, []byte("middle"))
		if at < 0 {
			t.Fatal("the entry is not in the segment")
		}
		if _, err := f.WriteAt([]byte("!"), int64(at)); err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
