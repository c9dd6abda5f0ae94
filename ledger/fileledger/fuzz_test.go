package fileledger

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"os"
	"testing"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/durable"
	"github.com/fencepost/fencepost/internal/durable/crashfs"
	"github.com/fencepost/fencepost/internal/durable/frame"
	"github.com/fencepost/fencepost/ledger"
	"github.com/fencepost/fencepost/ledger/ledgertest"
)

func FuzzSuperblock(f *testing.F) {
	cfg := testConfig(ledgertest.NewClock())
	f.Add(cfg.superblock([16]byte{1, 2, 3}).encode())
	f.Add(make([]byte, superSize))
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := decodeSuperblock(b)
		if err != nil {
			if !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrVersion) || s != (superblock{}) {
				t.Fatalf("%+v, %v; want nothing and ErrCorrupt or ErrVersion", s, err)
			}
			return
		}
		if !bytes.Equal(s.encode(), b) {
			t.Fatalf("not canonical: %x", b)
		}
	})
}

func FuzzRecord(f *testing.F) {
	s := store(f)
	for _, r := range s.rows {
		b, err := record{row: r, key: r.Key}.append(nil)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(uint8(framePut), b[:min(len(b), 512)])
	}
	b, err := record{key: fencepost.DeliveryKey{1}, closed: time.Unix(1, 0)}.append(nil)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(uint8(frameRemove), b)
	f.Add(uint8(frameTick), b[:stampSize])
	f.Fuzz(func(t *testing.T, frameType uint8, b []byte) {
		r, err := decodeRecord(frameType, b)
		if err != nil {
			if !wrongFrame(err) || !r.row.Equal(ledger.Row{}) {
				t.Fatalf("%+v, %v; want nothing and an error about the frame", r, err)
			}
			return
		}
		again, err := r.append(nil)
		if err != nil || r.frameType() != frameType || !bytes.Equal(again, b) {
			t.Fatalf("does not come out as it went in: %v", err)
		}
	})
}

// snapshotOf is a snapshot of a few rows, done for ever and not.
func snapshotOf(tb testing.TB) (name string, b []byte, id frame.Log) {
	s := store(tb)
	fsys := durable.Sub(s.disk.Process(), testName)
	list, err := listShard(durable.Sub(fsys, shardDir(0)))
	if err != nil || len(list.snapshots) != 1 {
		tb.Fatalf("%d snapshots, %v; want 1", len(list.snapshots), err)
	}
	name = snapName(list.newest())
	super, err := decodeSuperblock(readFile(tb, fsys, formatName))
	if err != nil {
		tb.Fatal(err)
	}
	return name, readFile(tb, fsys, shardDir(0)+"/"+name), frame.Log{UUID: super.uuid}
}

func FuzzSnapshot(f *testing.F) {
	name, good, id := snapshotOf(f)
	f.Add(good)
	f.Add(good[:snapHeaderSize])
	f.Fuzz(func(t *testing.T, b []byte) {
		checkSnapshot(t, name, b, id)
		if len(b) < snapHeaderSize {
			return
		}
		// Past the checksum, which chance never gets right.
		b = bytes.Clone(b)
		binary.LittleEndian.PutUint32(b[snapCRCAt:], crc32.Checksum(b[:snapCRCAt], castagnoli))
		checkSnapshot(t, name, b, id)
	})
}

// checkSnapshot: it is corrupt, or all of it can be read.
func checkSnapshot(t *testing.T, name string, b []byte, id frame.Log) {
	t.Helper()
	fsys := crashfs.New(crashfs.Options{}).Process()
	f, err := fsys.OpenFile(name, os.O_RDWR|os.O_CREATE, durable.FilePerm)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt(b, 0); err != nil {
		t.Fatal(err)
	}
	st, _, err := loadSnapshot(f, name, id)
	if err != nil {
		if !errors.Is(err, ErrCorrupt) || st != nil {
			t.Fatalf("%v, %v; want nothing and ErrCorrupt", st, err)
		}
		return
	}
	err = st.done.each(func(r ledger.Row) error {
		got, err := st.row(r.Key)
		if err == nil && !got.Equal(r) {
			t.Errorf("row %s is not found as it stands", r.Key)
		}
		return err
	})
	if err != nil && !errors.Is(err, ErrCorrupt) {
		t.Fatalf("table: %v, want ErrCorrupt", err)
	}
}

// FuzzLog puts any bytes where frames belong: the shard says what it said
// before, or that it is corrupt; it never panics.
func FuzzLog(f *testing.F) {
	s := store(f)
	const name = testName + "/shard-00/000000000001.seg"
	good := readFile(f, s.disk.Process(), name)[frame.SegmentHeaderSize:]
	f.Add(good[:2048], uint16(0))
	f.Add([]byte("torn"), uint16(300))
	f.Add(bytes.Repeat([]byte{0}, 64), uint16(1000))
	f.Fuzz(func(t *testing.T, b []byte, at uint16) {
		disk := s.disk.After(crashfs.KeepAll)
		fsys := disk.Process()
		at %= uint16(len(good))
		b = b[:min(len(b), len(good)-int(at))]
		if len(b) > 0 {
			writeAt(t, fsys, name, b, frame.SegmentHeaderSize+int64(at))
		}
		if _, err := s.readBack(t, fsys); err != nil {
			t.Fatal(err)
		}
	})
}

func TestRowsAreInOrderAndComplete(t *testing.T) {
	t.Parallel()
	f := onCrashFS(t)
	f.cfg.Capacity = 3000
	l := f.ledger()
	p := &play{tb: t, cfg: f.cfg, clock: f.clock}
	const rows = 2500
	for n := range rows {
		upTo := "claim"
		if n%5 > 0 {
			upTo = "done"
		}
		if n == rows/2 {
			if err := l.Compact(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if err := p.take(l, p.permanent(n), "result", upTo); err != nil {
			t.Fatal(err)
		}
	}
	seen := map[fencepost.DeliveryKey]bool{}
	var last ledger.Row
	for r, err := range l.Rows(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		if seen[r.Key] {
			t.Fatalf("row %s comes twice", r.Key)
		}
		if l.owner(last.Key) == l.owner(r.Key) && bytes.Compare(last.Key[:], r.Key[:]) >= 0 {
			t.Fatalf("row %s comes after %s", r.Key, last.Key)
		}
		seen[r.Key], last = true, r
	}
	if len(seen) != rows {
		t.Errorf("%d rows, want %d", len(seen), rows)
	}
	for r := range l.Rows(t.Context()) { // one may stop early
		last = r
		break
	}
}

func TestLookupAndRepeat(t *testing.T) {
	t.Parallel()
	f := onCrashFS(t)
	l := f.ledger()
	now := f.clock.Now()
	d := ledgertest.Deliver(t, ledgertest.Spec{ID: "a", Signed: now})
	later := ledgertest.Deliver(t, ledgertest.Spec{ID: "a", Signed: now.Add(time.Hour)})
	other := ledgertest.Deliver(t, ledgertest.Spec{ID: "a", Body: "other", Signed: now})
	repeat := func(d fencepost.AcceptedDelivery, want ledger.Repeat) {
		t.Helper()
		if got, err := l.Repeat(t.Context(), d); err != nil || got != want {
			t.Fatalf("repeat = %d, %v; want %d", got, err, want)
		}
	}
	if _, ok, err := l.Lookup(t.Context(), d.Key()); ok || err != nil {
		t.Fatalf("lookup of nothing: %v, %v", ok, err)
	}
	repeat(d, ledger.RepeatUnknown)
	if _, err := l.Claim(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	repeat(later, ledger.RepeatKnown)
	repeat(other, ledger.RepeatConflict)
	f.crash()
	l = f.ledger()
	row, ok, err := l.Lookup(t.Context(), d.Key())
	if err != nil || !ok || row.State != ledger.Leased || row.Binding != d.Binding() || row.Lifetime != later.Lifetime() {
		t.Fatalf("lookup = %+v, %v, %v; want it leased until the later end", row, ok, err)
	}
	if _, _, err := l.Lookup(t.Context(), fencepost.DeliveryKey{}); !errors.Is(err, fencepost.ErrZeroValue) {
		t.Errorf("lookup of the zero key: %v, want ErrZeroValue", err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := l.Lookup(ended, d.Key()); !errors.Is(err, context.Canceled) || fencepost.ReasonOf(err) != fencepost.ReasonUnavailable {
		t.Errorf("lookup under an ended context: %v", err)
	}
}
