package fileledger

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/durable/crashfs"
)

// TestAnAnswerWaitsForTheSyncOfWhatItRestsOn: what a process wrote and did
// not live to sync is synced before another one answers by it.
func TestAnAnswerWaitsForTheSyncOfWhatItRestsOn(t *testing.T) {
	t.Parallel()
	diesAtItsSync(t, crashfs.Fault{Kill: crashfs.Before})
}

// TestASyncWhoseProcessDiedIsNotTrusted: it may have failed, and then another
// sync of the same bytes says nothing.
func TestASyncWhoseProcessDiedIsNotTrusted(t *testing.T) {
	t.Parallel()
	diesAtItsSync(t, crashfs.Fault{Err: syscall.EIO, Kill: crashfs.After})
}

// diesAtItsSync: a process dies at the sync of each step in turn; another one
// answers, and a power cut takes what is not on the disk.
func diesAtItsSync(t *testing.T, fault crashfs.Fault) {
	t.Helper()
	for n, upTo := range []string{"claim", "stage", "done"} {
		p, disk := newPlay(t), crashfs.New(crashfs.Options{})
		first, second := disk.Process(), disk.Process()
		a, err := openIn(t.Context(), p.cfg, first, testName)
		if err != nil {
			t.Fatal(err)
		}
		b, err := openIn(t.Context(), p.cfg, second, testName)
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := b.Lookup(t.Context(), p.permanent(1).Key()); err != nil {
			t.Fatal(err)
		}
		syncs := 1 + n // a renewal at the same moment changes nothing
		disk.Plan(func(c crashfs.Call) crashfs.Fault {
			if c.Op == crashfs.OpSync && strings.HasSuffix(c.Name, segSuffix) {
				if syncs--; syncs == 0 {
					return fault
				}
			}
			return crashfs.Fault{}
		})
		if err := p.take(a, p.permanent(0), "result", upTo); err == nil || syncs != 0 {
			t.Fatalf("%s: %v, %d syncs were still to come", upTo, err, syncs)
		}
		_ = a.Close()
		disk.Plan(nil)
		before, known, err := b.Lookup(t.Context(), p.permanent(0).Key())
		if err != nil || !known || before.State.String() != []string{"leased", "staged", "done"}[n] {
			t.Fatalf("%s: the other process says %v, %v, %v", upTo, before.State, known, err)
		}
		// Its own sync must not be what helps where none was begun.
		claims := fault.Err != nil
		if claims {
			if c, err := b.Claim(t.Context(), p.permanent(1)); err != nil || fmt.Sprintf("%T", c) != "fencepost.Acquired" {
				t.Fatalf("%s: another delivery: %T, %v", upTo, c, err)
			}
		}
		disk.Crash()
		_ = b.Close()
		p.clock.Restart()
		l, err := openIn(t.Context(), p.cfg, disk.After(crashfs.LoseAll).Process(), testName)
		if err != nil {
			t.Fatalf("%s: %v", upTo, err)
		}
		after, _, err := l.Lookup(t.Context(), p.permanent(0).Key())
		if err != nil || !after.Equal(before) {
			t.Errorf("%s: what was answered is lost: %v of fence %v, was %v of fence %v, %v", upTo, after.State, after.Fence, before.State, before.Fence, err)
		}
		if claims {
			if c, err := l.Claim(t.Context(), p.permanent(1)); err != nil || c.(fencepost.Acquired).Attempt != 2 {
				t.Errorf("%s: another delivery afterwards: %+v, %v; want its second attempt", upTo, c, err)
			}
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestTheHeadShowsDamageToTheLastFrame: no later frame says that it was
// synced, but the head does.
func TestTheHeadShowsDamageToTheLastFrame(t *testing.T) {
	t.Parallel()
	p, disk := newPlay(t), crashfs.New(crashfs.Options{})
	l, err := openIn(t.Context(), p.cfg, disk.Process(), testName)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.take(l, p.permanent(0), "result", "claim"); err != nil {
		t.Fatal(err)
	}
	last := l.shards[0].log.pos.Offset - 1
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	fsys := disk.Process()
	writeAt(t, fsys, testName+"/shard-00/000000000001.seg", []byte{0xff}, last)
	if l, err = openIn(t.Context(), p.cfg, fsys, testName); err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if c, err := l.Claim(t.Context(), p.permanent(0)); !errors.Is(err, ErrCorrupt) {
		t.Errorf("claim: %T, %v; want ErrCorrupt", c, err)
	}
}
