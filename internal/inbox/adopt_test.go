package inbox

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencepost/fencepost/internal/durable/crashfs"
)

func TestTheLogOfADeadProcessIsAdopted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := crashfs.New(crashfs.Options{})
		p, q := d.Process(), d.Process()
		first, second := open(t, p, small), open(t, q, small)
		ran := make(chan error, 1)
		go func() { ran <- second.Run(t.Context()) }()
		for i := range uint64(10) {
			record(t, first, mail{id: i, body: bytes.Repeat(fmt.Append(nil, i), 1000)}, Accepted)
		}
		record(t, second, mail{id: 100, body: text("mine")}, Accepted)
		time.Sleep(time.Minute)
		if got := second.Stats().Entries; got != 1 {
			t.Fatalf("%d entries while the other process lives, want 1", got)
		}
		p.Kill()
		time.Sleep(6 * time.Second)
		synctest.Wait()
		if got := second.Stats().Entries; got != 11 {
			t.Fatalf("%d entries after the other process died, want 11", got)
		}
		if got := drain(t, second); len(got) != 11 || got[10] != "mine" {
			t.Errorf("handed out %d entries, the last %.10q", len(got), got[len(got)-1])
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if n := len(second.journals()); n != 1 {
			t.Errorf("%d logs are held after the work, want the own one", n)
		}
		// The slot is free again, and what was done stays done.
		third := open(t, d.Process(), small)
		if third.own.slot != 0 || third.Stats().Entries != 0 {
			t.Errorf("slot %d with %d entries, want slot 0 with none", third.own.slot, third.Stats().Entries)
		}
		must(t, third.Health()) // no segment that was removed is missed
		must(t, third.Close())
		must(t, second.Close())
		must(t, <-ran)
	})
}

func TestOpenAdoptsAllThatDied(t *testing.T) {
	t.Parallel()
	d := crashfs.New(crashfs.Options{})
	for i := range uint64(3) {
		p := d.Process()
		b := open(t, p, small)
		record(t, b, mail{id: i, body: fmt.Append(nil, i), at: epoch.Add(-time.Duration(i) * time.Hour)}, Accepted)
		defer p.Kill()
	}
	living := open(t, d.Process(), small)
	if got := living.Stats().Entries; got != 0 {
		t.Errorf("%d entries of living processes were adopted", got)
	}
	must(t, living.Close())
	b := open(t, d.After(crashfs.LoseAll).Process(), small)
	if diff := slices.Compare(drain(t, b), []string{"2", "1", "0"}); diff != 0 {
		t.Error("not all entries came, in order of receipt")
	}
	// Done marks in adopted logs hold.
	must(t, b.Close())
	again := open(t, d.After(crashfs.LoseAll).Process(), small)
	if got := again.Stats().Entries; got != 3 {
		t.Errorf("the disk itself changed: %d entries", got)
	}
	must(t, again.tidy(t.Context()))
	must(t, again.Close())
}

func TestDoneMarksInAdoptedLogsHold(t *testing.T) {
	t.Parallel()
	d := crashfs.New(crashfs.Options{})
	p := d.Process()
	keep := open(t, d.Process(), small) // slot 0
	other := open(t, p, small)          // slot 1
	for i := range uint64(4) {
		record(t, other, mail{id: i, body: fmt.Append(nil, i)}, Accepted)
	}
	p.Kill()
	must(t, keep.adopt(t.Context()))
	for range 3 {
		item, _ := take(t, keep)
		must(t, keep.Done(item.ID, ""))
	}
	must(t, keep.tidy(t.Context()))
	after := open(t, d.After(crashfs.LoseAll).Process(), small)
	if got := drain(t, after); !slices.Equal(got, []string{"3"}) {
		t.Errorf("after a crash %q, want what was not done", got)
	}
	must(t, after.Close())
	must(t, keep.Close())
}

func TestADeliveryInTwoLogsIsWorkedOnOnce(t *testing.T) {
	t.Parallel()
	d := crashfs.New(crashfs.Options{})
	p := d.Process()
	b, other := open(t, d.Process(), small), open(t, p, small)
	same := mail{id: 1, body: text("same")}
	record(t, b, same, Accepted)
	record(t, other, same, Accepted)
	record(t, other, mail{id: 2, body: text("theirs")}, Accepted)
	record(t, b, mail{id: 3, body: text("one")}, Accepted)
	record(t, other, mail{id: 3, body: text("the other")}, Accepted)
	p.Kill()
	must(t, b.adopt(t.Context()))
	got := drain(t, b)
	slices.Sort(got)
	// Two bindings of one key are two deliveries: the ledger refuses one.
	if want := []string{"one", "same", "the other", "theirs"}; !slices.Equal(got, want) {
		t.Errorf("handed out %q, want %q", got, want)
	}
	must(t, b.tidy(t.Context()))
	must(t, b.Close())
	last := open(t, d.Process(), small)
	if got := last.Stats().Entries; got != 0 {
		t.Errorf("%d entries came back", got)
	}
	must(t, last.Close())
}

func TestARecoveringLogThatCantBeReadIsTroubleAndTriedAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := crashfs.New(crashfs.Options{})
		p := d.Process()
		b, other := open(t, d.Process(), small), open(t, p, small)
		ran := make(chan error, 1)
		go func() { ran <- b.Run(t.Context()) }()
		record(t, other, mail{id: 1, body: text("theirs")}, Accepted)
		p.Kill()
		eio := errors.New("input/output error")
		d.Plan(func(c crashfs.Call) crashfs.Fault {
			if c.Op == crashfs.OpRead && c.Name == segmentName(1, 1) {
				return crashfs.Fault{Err: eio}
			}
			return crashfs.Fault{}
		})
		time.Sleep(6 * time.Second)
		synctest.Wait()
		if err := b.Health(); !errors.Is(err, eio) {
			t.Errorf("Health = %v, want the trouble", err)
		}
		if got := b.Stats().Bytes; got != 0 {
			t.Errorf("%d bytes are counted of a log that was not adopted", got)
		}
		d.Plan(nil)
		time.Sleep(6 * time.Second)
		synctest.Wait()
		must(t, b.Health())
		if got := drain(t, b); !slices.Equal(got, []string{"theirs"}) {
			t.Errorf("handed out %q", got)
		}
		must(t, b.Close())
		must(t, <-ran)
	})
}

func TestAllSlotsTaken(t *testing.T) {
	t.Parallel()
	p := crashfs.New(crashfs.Options{}).Process()
	for range slotCount {
		b := open(t, p, small)
		defer b.Close()
	}
	if _, err := Open(t.Context(), p, small); !errors.Is(err, ErrNoSlot) {
		t.Errorf("Open = %v, want ErrNoSlot", err)
	}
}
