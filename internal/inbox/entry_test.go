package inbox

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/durable"
	"github.com/fencepost/fencepost/internal/durable/crashfs"
	"github.com/fencepost/fencepost/internal/durable/frame"
)

func sample() Recorded {
	return Recorded{
		Route: "docs", Received: epoch.Add(5), Anchor: "a", Headers: headers, Body: text("body"),
		Key: fencepost.DeliveryKey{1}, Binding: fencepost.Binding{2},
		Lifetime: fencepost.BoundedUntil(epoch.Add(time.Hour)),
	}
}

func encode(r Recorded) []byte { return append(appendMeta(nil, r), r.Body...) }

func TestEntriesHaveOneForm(t *testing.T) {
	t.Parallel()
	whole := encode(sample())
	got, err := Decode(whole)
	must(t, err)
	opts := cmp.AllowUnexported(fencepost.Headers{}, fencepost.ReplayLifetime{})
	if diff := cmp.Diff(sample(), got, opts); diff != "" {
		t.Errorf("decoded (-want +got):\n%s", diff)
	}
	if n := len(appendMeta(nil, Recorded{})); n != metaFixed {
		t.Errorf("an empty entry takes %d bytes, metaFixed is %d", n, metaFixed)
	}
	for n := range whole {
		if _, err := Decode(whole[:n]); !errors.Is(err, fencepost.ErrMalformed) {
			t.Errorf("the first %d bytes: %v, want ErrMalformed", n, err)
		}
	}
	for name, spoil := range map[string]func(r *Recorded) []byte{
		"longer":      func(r *Recorded) []byte { return append(encode(*r), 'x') },
		"no route":    func(r *Recorded) []byte { r.Route = ""; return encode(*r) },
		"no key":      func(r *Recorded) []byte { r.Key = fencepost.DeliveryKey{}; return encode(*r) },
		"version 2":   func(r *Recorded) []byte { b := encode(*r); b[0] = 2; return b },
		"many header": func(r *Recorded) []byte { b := encode(*r); b[metaFixed+4+1-8] = 0xff; return b },
		"upper case": func(r *Recorded) []byte {
			return bytes.Replace(encode(*r), text("content-type"), text("Content-Type"), 1)
		},
	} {
		r := sample()
		if got, err := Decode(spoil(&r)); !errors.Is(err, fencepost.ErrMalformed) {
			t.Errorf("%s: %+v, %v; want ErrMalformed", name, got, err)
		}
	}
}

func TestItemIDs(t *testing.T) {
	t.Parallel()
	for _, s := range []string{"", "0-1", "000-01", "000-", "0000-1", "000-1 ", "-01-1", "000-99999999999999999999"} {
		if id, err := ParseItemID(s); !errors.Is(err, fencepost.ErrMalformed) {
			t.Errorf("ParseItemID(%q) = %v, %v; want ErrMalformed", s, id, err)
		}
	}
	if id, err := ParseItemID("063-12"); err != nil || id != (ItemID{slot: 63, serial: 12}) {
		t.Errorf("ParseItemID = %+v, %v", id, err)
	}
}

func TestSegmentNames(t *testing.T) {
	t.Parallel()
	slot, number, ok := parseSegmentName("003-0000000000000012.seg")
	if !ok || slot != 3 || number != 12 {
		t.Errorf("parseSegmentName = %d, %d, %v", slot, number, ok)
	}
	for _, s := range []string{"003-0000000000000012.seg.tmp", "3-0000000000000012.seg", "003-12.seg", "003-0000000000000000.seg", "x", "003-0000000000000012.seg.40.damaged"} {
		if _, _, ok := parseSegmentName(s); ok {
			t.Errorf("%q is taken for a segment", s)
		}
	}
}

func FuzzDecodeFrame(f *testing.F) {
	f.Add(frameEntry, encode(sample()))
	f.Add(frameMoved, append([]byte{1, 0, 0, 0, 0, 0, 0, 0}, encode(sample())...))
	f.Add(frameDone, encodeDone(7, fencepost.ReasonSuperseded))
	f.Add(frameEntry, []byte{})
	f.Fuzz(func(t *testing.T, typ uint8, payload []byte) {
		if typ == frameDone {
			serial, outcome, err := decodeDone(payload)
			if err == nil && !bytes.Equal(encodeDone(serial, outcome), payload) {
				t.Fatal("a done mark encodes to other bytes")
			}
			return
		}
		s, err := decodeFrame(frame.Frame{Type: typ, LSN: 100, Payload: payload})
		if err != nil {
			if !errors.Is(err, fencepost.ErrMalformed) {
				t.Fatalf("error %v", err)
			}
			return
		}
		again := encode(s.Recorded)
		if typ == frameMoved {
			payload = payload[serialSize:]
		}
		if !bytes.Equal(again, payload) {
			t.Fatal("an entry encodes to other bytes")
		}
	})
}

// FuzzRecovery opens an inbox whose newest segment holds any bytes.
func FuzzRecovery(f *testing.F) {
	d := crashfs.New(crashfs.Options{})
	b := open(f, d.Process(), small)
	for i := range uint64(3) {
		record(f, b, mail{id: i, body: text("body")}, Accepted)
	}
	must(f, b.Close())
	name := segmentName(0, 1)
	whole, err := durable.ReadFile(d.Process(), name, 1<<20)
	must(f, err)
	f.Add(0, []byte{})
	f.Add(5000, text("garbage"))
	f.Add(4096, whole[4096:4700])
	f.Add(4300, whole[4096:4700])
	f.Add(4320, whole[4096:4700])
	f.Add(0, whole[:100])
	f.Fuzz(func(t *testing.T, at int, data []byte) {
		d := d.After(crashfs.KeepAll)
		p := d.Process()
		file, err := p.OpenFile(name, 2, 0)
		must(t, err)
		if at < 0 || at > minSegment || len(data) > minSegment-at {
			t.Skip()
		}
		if len(data) > 0 {
			_, err = file.WriteAt(data, int64(at))
			must(t, errors.Join(err, file.Sync()))
		}
		b := open(t, p, small)
		entries := b.Stats().Entries
		if entries < 3 && b.Health() == nil {
			t.Fatalf("%d entries and no word of damage", entries)
		}
		for s := b.Stats(); s.Entries > s.Leased; s = b.Stats() {
			item, err := b.Next(t.Context())
			must(t, err)
			if r, err := b.Read(t.Context(), item.ID); err != nil || string(r.Body) != "body" {
				t.Fatalf("%v reads %q, %v", item.ID, r.Body, err)
			}
		}
		record(t, b, mail{id: 100, body: text("new")}, Accepted)
		must(t, b.Close())
		again := open(t, d.After(crashfs.LoseAll).Process(), small)
		if got := again.Stats().Entries; got != entries+1 {
			t.Fatalf("%d entries, %d after another start", entries+1, got)
		}
		must(t, again.Close())
	})
}
