package inbox

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/durable"
	"github.com/fencepost/fencepost/internal/durable/crashfs"
	"github.com/fencepost/fencepost/internal/durable/frame"
)

// damagedInbox is a closed inbox over several segments.
func damagedInbox(t testing.TB) (*crashfs.Disk, *witness) {
	t.Helper()
	d := crashfs.New(crashfs.Options{})
	w := newWitness(t, d)
	b := open(t, d.Process(), small)
	for i := range uint64(12) {
		must(t, w.record(b, mail{id: i, body: bytes.Repeat(fmt.Appendf(nil, "%d.", i), 700)}))
	}
	must(t, w.finish(b))
	must(t, b.Close())
	return d, w
}

// segments lists the segments' names with their sizes.
func segments(t testing.TB, p durable.FS) []durable.Info {
	t.Helper()
	infos, err := p.ReadDir(logsDir)
	must(t, err)
	return infos
}

// afterDamage opens an inbox after harm was done to it, and checks that each
// acknowledged entry is there or its loss is reported.
func afterDamage(t testing.TB, w *witness, d *crashfs.Disk, file string) (missing int, damage []*frame.CorruptError) {
	t.Helper()
	cfg := small
	cfg.OnDamage = func(e *frame.CorruptError) { damage = append(damage, e) }
	b, err := Open(t.Context(), d.Process(), cfg)
	if err != nil {
		t.Fatalf("%s: open: %v", file, err)
	}
	held, err := w.contents(b)
	if err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	for key := range w.acked {
		if _, ok := held[key]; !ok {
			missing++
		}
	}
	if missing > 0 && len(damage) == 0 {
		t.Fatalf("%s: %d entries are missing without a word", file, missing)
	}
	if (b.Health() == nil) != (len(damage) == 0) {
		t.Fatalf("%s: Health = %v with %d damages", file, b.Health(), len(damage))
	}
	must(t, b.Close())
	return missing, damage
}

func TestDamageIsReportedAndCostsOnlyWhatItHit(t *testing.T) {
	t.Parallel()
	whole, w := damagedInbox(t)
	harm := func(file string, do func(f durable.File, size int64) error) *crashfs.Disk {
		d := whole.After(crashfs.KeepAll)
		p := d.Process()
		f, err := p.OpenFile(file, 2, 0)
		must(t, err)
		size, err := f.Size()
		must(t, err)
		must(t, errors.Join(do(f, size), f.Sync(), f.Close()))
		return d
	}
	infos := segments(t, whole.Process())
	for _, info := range infos {
		file := logsDir + "/" + info.Name
		hits := 0
		for at := int64(3); at < info.Size; at += 41 {
			d := harm(file, func(f durable.File, _ int64) error {
				var b [1]byte
				if _, err := f.ReadAt(b[:], at); err != nil {
					return err
				}
				b[0] ^= 1 << (at % 8)
				_, err := f.WriteAt(b[:], at)
				return err
			})
			missing, damage := afterDamage(t, w, d, file)
			if missing > 1 {
				t.Fatalf("%s: one bit at %d cost %d entries", file, at, missing)
			}
			for _, e := range damage {
				if e.File != file || e.Offset > at || e.Offset < 0 {
					t.Fatalf("%s: bit at %d was reported as %v", file, at, e)
				}
			}
			if len(damage) > 0 {
				hits++
			}
		}
		if hits < 50 {
			t.Errorf("%s: %d of %d damaged bits were noticed", file, hits, info.Size/41)
		}
		for at := int64(0); at < info.Size; at += crashfs.SectorSize {
			d := harm(file, func(f durable.File, _ int64) error {
				_, err := f.WriteAt(make([]byte, crashfs.SectorSize), at)
				return err
			})
			if missing, _ := afterDamage(t, w, d, file); missing > 2 {
				t.Fatalf("%s: a zeroed sector at %d cost %d entries", file, at, missing)
			}
		}
		d := harm(file, func(f durable.File, size int64) error { return f.Truncate(size / 2) })
		if missing, _ := afterDamage(t, w, d, file); missing == 0 {
			t.Errorf("%s: half of it is gone and nothing is missing", file)
		}
	}
}

func TestAMissingSegmentIsReported(t *testing.T) {
	t.Parallel()
	whole, w := damagedInbox(t)
	infos := segments(t, whole.Process())
	for i := 1; i < len(infos); i++ { // the first was removed, for all one knows
		d := whole.After(crashfs.KeepAll)
		p := d.Process()
		must(t, p.Remove(logsDir+"/"+infos[i].Name))
		must(t, p.SyncDir(logsDir))
		missing, damage := afterDamage(t, w, d, infos[i].Name)
		if missing == 0 || len(damage) != 1 || damage[0].File != logsDir+"/"+infos[i].Name {
			t.Errorf("without %s: %d missing, reported %v", infos[i].Name, missing, damage)
		}
	}
}

func TestADamagedSegmentIsSetAsideOnceItsEntriesAreSafe(t *testing.T) {
	t.Parallel()
	d, w := damagedInbox(t)
	p := d.Process()
	infos := segments(t, p)
	file := logsDir + "/" + infos[len(infos)-1].Name // the newest
	f, err := p.OpenFile(file, 2, 0)
	must(t, err)
	_, err = f.WriteAt([]byte{0xff}, frame.SegmentHeaderSize+frame.HeaderSize+1)
	must(t, errors.Join(err, f.Sync()))

	b := open(t, p, small)
	health := b.Health()
	damage, ok := errors.AsType[*frame.CorruptError](health)
	if !ok || damage.File != file || damage.Offset != frame.SegmentHeaderSize {
		t.Fatalf("Health = %v, want %s at %d", health, file, frame.SegmentHeaderSize)
	}
	before := b.Stats().Entries
	if before != len(w.acked)-1 {
		t.Fatalf("%d entries, want all but one of %d", before, len(w.acked))
	}
	// Behind the damage there are entries. Nothing may seal them off.
	record(t, b, mail{id: 500, body: text("new")}, Accepted)
	crashed := open(t, d.After(crashfs.LoseAll).Process(), small)
	if got := crashed.Stats().Entries; got != before+1 {
		t.Errorf("after a crash %d entries, want %d", got, before+1)
	}
	must(t, crashed.Close())
	// All older segments go, and the damaged one is set aside with them.
	for range before - 2 {
		item, err := b.Next(t.Context())
		must(t, err)
		must(t, b.Done(item.ID, ""))
	}
	must(t, b.tidy(t.Context()))
	if _, err := p.Stat(file); err == nil {
		t.Error("the damaged segment is still part of the log")
	}
	must(t, b.Close())
	last := open(t, p, small)
	damage, ok = errors.AsType[*frame.CorruptError](last.Health())
	if want := asideName(file, frame.SegmentHeaderSize); !ok || damage.File != want || damage.Offset != frame.SegmentHeaderSize {
		t.Errorf("Health = %v, want %s", last.Health(), want)
	}
	if got := last.Stats().Entries; got != 3 {
		t.Errorf("%d entries, want 3", got)
	}
	must(t, last.Close())
	must(t, p.Remove(asideName(file, frame.SegmentHeaderSize)))
	clean := open(t, p, small)
	must(t, clean.Health())
	must(t, clean.Close())
}

func TestAnEntryThatGoesBadIsReportedByRead(t *testing.T) {
	t.Parallel()
	d := crashfs.New(crashfs.Options{})
	p := d.Process()
	b := open(t, p, small)
	record(t, b, mail{id: 1, body: bytes.Repeat([]byte("good"), 100)}, Accepted)
	record(t, b, mail{id: 2, body: bytes.Repeat([]byte("fine"), 100)}, Accepted)
	file := segmentName(0, 1)
	f, err := p.OpenFile(file, 2, 0)
	must(t, err)
	_, err = f.WriteAt([]byte("bad"), frame.SegmentHeaderSize+400)
	must(t, err)
	item, err := b.Next(t.Context())
	must(t, err)
	_, err = b.Read(t.Context(), item.ID)
	damage, ok := errors.AsType[*frame.CorruptError](err)
	if !ok || damage.File != file || damage.Offset != frame.SegmentHeaderSize {
		t.Fatalf("Read = %v, want corruption of %s at %d", err, file, frame.SegmentHeaderSize)
	}
	if err := b.Health(); !errors.Is(err, frame.ErrCorrupt) {
		t.Errorf("Health = %v, want ErrCorrupt", err)
	}
	must(t, b.Done(item.ID, fencepost.ReasonCorrupt))
	if _, r := take(t, b); string(r.Body[:4]) != "fine" {
		t.Errorf("the other entry reads %q", r.Body)
	}
	must(t, b.Close())
}

func TestATornTailIsSealedAndNothingIsWrittenOverIt(t *testing.T) {
	t.Parallel()
	d := crashfs.New(crashfs.Options{})
	b := open(t, d.Process(), small)
	record(t, b, mail{id: 1, body: text("kept")}, Accepted)
	// A crash inside of the write of the second.
	d.Plan(func(c crashfs.Call) crashfs.Fault {
		if c.Op == crashfs.OpWrite && strings.HasPrefix(c.Name, segmentName(0, 1)) {
			return crashfs.Fault{Crash: crashfs.Inside, Keep: 300}
		}
		return crashfs.Fault{}
	})
	m := mail{id: 2, body: bytes.Repeat([]byte("torn"), 200)}
	if _, err := b.Record(t.Context(), m.accepted(t), headers, m.body); !errors.Is(err, crashfs.ErrCrashed) {
		t.Fatalf("Record = %v, want ErrCrashed", err)
	}
	after := d.After(crashfs.KeepAll)
	p := after.Process()
	read := func() []byte {
		t.Helper()
		b, err := durable.ReadFile(p, segmentName(0, 1), 1<<20)
		must(t, err)
		return b
	}
	torn := read()
	b = open(t, p, small)
	must(t, b.Health())
	record(t, b, m, Accepted)
	if !bytes.Equal(torn, read()) {
		t.Error("the torn segment was written to")
	}
	if _, r := take(t, b); string(r.Body) != "kept" {
		t.Errorf("first is %q", r.Body)
	}
	must(t, b.Close())
	b = open(t, p, small)
	must(t, b.Health())
	if got := b.Stats().Entries; got != 2 {
		t.Errorf("%d entries, want 2", got)
	}
	must(t, b.Close())
}
