package receipt

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/durable"
	"github.com/fencepost/fencepost/internal/durable/crashfs"
)

var noon = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

func id(n byte) fencepost.DeliveryID { return fencepost.DeliveryKey{0: n, 31: 1}.ID() }

func at(n byte, seconds int, kind Kind) Event {
	return Event{At: noon.Add(time.Duration(seconds) * time.Second), Delivery: id(n), Kind: kind}
}

type clock struct{ t time.Time }

func (c *clock) now() time.Time { return c.t }

func open(t *testing.T, fsys durable.FS, limits Limits, c *clock) *Journal {
	t.Helper()
	j, err := Open(t.Context(), fsys, limits, c.now)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := j.Close(); err != nil {
			t.Error(err)
		}
	})
	return j
}

func appendAll(t *testing.T, j *Journal, events ...Event) {
	t.Helper()
	for _, e := range events {
		if err := j.Append(t.Context(), e); err != nil {
			t.Fatal(err)
		}
	}
}

func TestAReceiptHoldsItsDeliverysEventsInTheirOrder(t *testing.T) {
	t.Parallel()
	fsys, c := durable.OS(t.TempDir()), &clock{noon}
	a, b := open(t, fsys, Limits{}, c), open(t, fsys, Limits{}, c)
	received := at(1, 0, Received)
	received.Route, received.Anchor, received.Gate = "docs", "2026-q4", "docs"
	claimed := at(1, 1, Claimed)
	claimed.Fence, claimed.Evaluation, claimed.Attempt = 7, "evl_x", 1
	staged := at(1, 3, Staged)
	staged.Details = []Detail{{DetailConclusion, "success"}}
	// The second claim is another process's, in a segment of its own.
	again := at(1, 2, Claimed)
	again.Fence, again.Evaluation, again.Attempt = 9, "evl_x", 2
	appendAll(t, a, received, claimed, at(2, 1, Received), staged)
	appendAll(t, b, again)

	got, damages, err := Show(t.Context(), fsys, id(1))
	if err != nil || len(damages) != 0 {
		t.Fatalf("Show: %v, damages %v", err, damages)
	}
	if diff := cmp.Diff([]Event{received, claimed, again, staged}, got.Events); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	want := []Summary{
		{Delivery: id(2), Received: noon.Add(time.Second), Last: noon.Add(time.Second), State: Received},
		{
			Delivery: id(1), Route: "docs", Gate: "docs", Anchor: "2026-q4", Evaluation: "evl_x", Received: noon,
			Last: noon.Add(3 * time.Second), State: Staged, Conclusion: "success", Claims: 2,
		},
	}
	list, _, err := List(t.Context(), fsys, Filter{})
	if diff := cmp.Diff(want, list); diff != "" || err != nil {
		t.Errorf("List: %v (-want +got):\n%s", err, diff)
	}
}

func TestListChooses(t *testing.T) {
	t.Parallel()
	fsys, c := durable.OS(t.TempDir()), &clock{noon}
	j := open(t, fsys, Limits{}, c)
	for n := range byte(5) {
		e := at(n, int(n), Received)
		e.Gate, e.Route = fmt.Sprintf("gate%d", n%2), fencepost.RouteName(fmt.Sprintf("route%d", n%2))
		appendAll(t, j, e)
	}
	replay := at(0, 9, Replayed)
	appendAll(t, j, replay)
	for name, tc := range map[string]struct {
		filter Filter
		want   []fencepost.DeliveryID
	}{
		"gate":  {Filter{Gate: "gate1"}, []fencepost.DeliveryID{id(3), id(1)}},
		"route": {Filter{Route: "route0"}, []fencepost.DeliveryID{id(4), id(2), id(0)}},
		"since": {Filter{Since: noon.Add(3 * time.Second)}, []fencepost.DeliveryID{id(4), id(3)}},
		"limit": {Filter{Limit: 1}, []fencepost.DeliveryID{id(4)}},
	} {
		got, _, err := List(t.Context(), fsys, tc.filter)
		if err != nil {
			t.Fatal(err)
		}
		var ids []fencepost.DeliveryID
		for _, s := range got {
			ids = append(ids, s.Delivery)
			if s.Delivery == id(0) && (s.Replays != 1 || s.State != Received) {
				t.Errorf("%s: a replay changed the state: %+v", name, s)
			}
		}
		if diff := cmp.Diff(tc.want, ids); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// A full journal is 256 MiB, and a page that shows the newest few must not
// read it. What it shows is the same as if it had.
func TestListReadsNoMoreSegmentsThanItNeeds(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	fsys, c := durable.OS(dir), &clock{noon}
	// One writer lives all along, in one segment, and ends what is old.
	idle := open(t, fsys, Limits{}, c)
	const deliveries = 60
	byID := func(n int) fencepost.DeliveryID {
		return fencepost.DeliveryKey{0: byte(n), 1: byte(n >> 8), 31: 1}.ID()
	}
	event := func(n, minutes int, kind Kind) Event {
		return Event{At: noon.Add(time.Duration(minutes) * time.Minute), Delivery: byID(n), Kind: kind, Gate: fmt.Sprintf("gate%d", n%2)}
	}
	busy := open(t, fsys, Limits{SegmentBytes: 1500}, c)
	for n := range deliveries {
		c.t = noon.Add(time.Duration(5*n) * time.Minute)
		appendAll(t, busy, event(n, 5*n, Received), event(n, 5*n+1, Claimed))
		if n >= 2 {
			// Its end comes when others have come meanwhile.
			appendAll(t, busy, event(n-2, 5*n+2, Ended))
		}
		if n == deliveries/2 {
			appendAll(t, idle, event(3, 5*n+2, Replayed))
		}
	}
	everything, _, err := List(t.Context(), fsys, Filter{Limit: 2 * deliveries})
	if err != nil || len(everything) != deliveries {
		t.Fatalf("%d deliveries, %v, want %d", len(everything), err, deliveries)
	}
	segments, err := list(fsys)
	if err != nil || len(segments) < 10 {
		t.Fatalf("%d segments, %v; want more", len(segments), err)
	}
	for name, f := range map[string]Filter{
		"newest":      {Limit: 5},
		"of one gate": {Limit: 5, Gate: "gate1"},
		"since":       {Limit: deliveries, Since: noon.Add(5 * 50 * time.Minute)},
	} {
		var want []Summary
		for _, s := range everything {
			if f.chooses(&s) && len(want) < f.Limit {
				want = append(want, s)
			}
		}
		reads := &opens{FS: fsys}
		got, _, err := List(t.Context(), reads, f)
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("%s: %v (-want +got):\n%s", name, err, diff)
		}
		// Each is opened for its end, and what is needed twice more.
		if most := 2 * len(segments); reads.n > most {
			t.Errorf("%s: %d opens of %d segments, want at most %d", name, reads.n, len(segments), most)
		}
		t.Logf("%s: %d opens of %d segments", name, reads.n, len(segments))
	}
	if got, _, err := List(t.Context(), fsys, Filter{Gate: "nowhere"}); err != nil || len(got) != 0 {
		t.Errorf("of no gate: %v, %v", got, err)
	}
}

// opens counts files that are opened.
type opens struct {
	durable.FS
	n int
}

func (o *opens) OpenFile(name string, flag int, perm fs.FileMode) (durable.File, error) {
	o.n++
	return o.FS.OpenFile(name, flag, perm)
}

func TestUnknownDeliveryIsNotFound(t *testing.T) {
	t.Parallel()
	fsys := durable.OS(t.TempDir())
	open(t, fsys, Limits{}, &clock{noon})
	if _, _, err := Show(t.Context(), fsys, id(1)); !errors.Is(err, ErrNotFound) {
		t.Errorf("Show = %v, want ErrNotFound", err)
	}
}

func TestDamageIsReportedWithItsPlaceAndTheRestIsRead(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	fsys := durable.OS(dir)
	j := open(t, fsys, Limits{}, &clock{noon})
	appendAll(t, j, at(1, 0, Received), at(1, 1, Claimed), at(1, 2, Ended))
	files, err := filepath.Glob(filepath.Join(dir, "*.log"))
	if err != nil || len(files) != 1 {
		t.Fatalf("segments = %v, %v", files, err)
	}
	data, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	first := int64(bytes.IndexByte(data, '\n')) + 1
	data[first+20] ^= 1
	torn := append(data, []byte("0123abcd {\"at\":")...)
	if err := os.WriteFile(files[0], torn, 0o600); err != nil {
		t.Fatal(err)
	}
	got, damages, err := Show(t.Context(), fsys, id(1))
	if err != nil || len(got.Events) != 2 {
		t.Errorf("Show = %d events, %v, want 2", len(got.Events), err)
	}
	if len(damages) != 1 || damages[0].Offset != first || !errors.Is(damages[0], ErrDamaged) {
		t.Errorf("damages = %v, want one at byte %d", damages, first)
	}
}

func TestOldSegmentsGoAndWrittenOnesStay(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	fsys, c := durable.OS(dir), &clock{noon}
	other := open(t, fsys, Limits{}, c)
	appendAll(t, other, at(9, 0, Received))
	j := open(t, fsys, Limits{SegmentBytes: 1000, TotalBytes: 4000}, c)
	for i := range 200 {
		c.t = c.t.Add(time.Second)
		appendAll(t, j, at(1, i, Claimed))
	}
	segments, err := list(fsys)
	if err != nil {
		t.Fatal(err)
	}
	var total int64
	for _, s := range segments {
		total += s.size
	}
	if total > 4000+1000 {
		t.Errorf("%d bytes in %d segments, want at most 5000", total, len(segments))
	}
	if _, _, err := Show(t.Context(), fsys, id(9)); err != nil {
		t.Errorf("a segment that still has a writer was removed: %v", err)
	}
	if err := other.Close(); err != nil {
		t.Fatal(err)
	}
	c.t = c.t.Add(91 * 24 * time.Hour)
	open(t, fsys, Limits{}, c)
	if _, _, err := Show(t.Context(), fsys, id(9)); !errors.Is(err, ErrNotFound) {
		t.Errorf("an expired segment is still there: %v", err)
	}
}

func TestEventsThatAreNoneAreRefused(t *testing.T) {
	t.Parallel()
	j := open(t, durable.OS(t.TempDir()), Limits{}, &clock{noon})
	large := at(1, 0, Ran)
	large.Details = []Detail{{"x", strings.Repeat("y", MaxEventBytes)}}
	for name, e := range map[string]Event{
		"no delivery": {At: noon, Kind: Ran}, "no kind": {At: noon, Delivery: id(1)},
		"no time": {Delivery: id(1), Kind: Ran}, "too large": large,
	} {
		if err := j.Append(t.Context(), e); !errors.Is(err, ErrEvent) {
			t.Errorf("%s: Append = %v, want ErrEvent", name, err)
		}
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	if err := j.Append(t.Context(), at(1, 0, Ran)); !errors.Is(err, ErrClosed) {
		t.Errorf("Append after Close = %v, want ErrClosed", err)
	}
}

// A crash of the machine may lose what was not synced, but what was read
// back is events that were written, in their order.
func TestCrashAtEveryCall(t *testing.T) {
	t.Parallel()
	work := func(d *crashfs.Disk) {
		j, err := Open(t.Context(), d.Process(), Limits{SegmentBytes: 300}, (&clock{noon}).now)
		if err != nil {
			return
		}
		for i := range 6 {
			if err := j.Append(t.Context(), at(1, i, Claimed)); err != nil {
				break
			}
		}
		if err := j.Close(); err != nil && !d.Crashed() {
			t.Error(err)
		}
	}
	whole := crashfs.New(crashfs.Options{})
	work(whole)
	for n := 1; n <= whole.Calls(); n++ {
		d := crashfs.New(crashfs.Options{})
		d.Plan(crashfs.CrashAt(n, crashfs.Inside, 30))
		work(d)
		for _, keep := range []crashfs.Policy{crashfs.LoseAll, crashfs.KeepAll, crashfs.Random(uint64(n))} {
			fsys := d.After(keep).Process()
			got, _, err := Show(t.Context(), fsys, id(1))
			if err != nil && !errors.Is(err, ErrNotFound) {
				t.Fatalf("call %d: %v", n, err)
			}
			for i := 1; i < len(got.Events); i++ {
				if !got.Events[i].At.After(got.Events[i-1].At) {
					t.Fatalf("call %d: events out of order: %v", n, got.Events)
				}
			}
			j, err := Open(t.Context(), fsys, Limits{}, (&clock{noon}).now)
			if err != nil {
				t.Fatalf("call %d: reopen: %v", n, err)
			}
			if err := j.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func FuzzSegment(f *testing.F) {
	var seed []byte
	for i := range 3 {
		line, err := appendLine(nil, at(1, i, Claimed))
		if err != nil {
			f.Fatal(err)
		}
		seed = append(seed, line...)
	}
	f.Add(seed)
	f.Add(seed[:len(seed)-5])
	f.Add([]byte("00000000 {}\n\n\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		var events []Event
		damages := scanSegment("x", data, func(e Event) { events = append(events, e) })
		if lines := bytes.Count(data, []byte("\n")); len(events)+len(damages) != lines {
			t.Fatalf("%d events and %d damages of %d lines", len(events), len(damages), lines)
		}
		for _, e := range events {
			line, err := appendLine(nil, e)
			if errors.Is(err, ErrEvent) && len(data) > MaxEventBytes/6 {
				continue // escapes made it longer than a line may be
			}
			if err != nil {
				t.Fatalf("an event that was read can't be written: %v", err)
			}
			if again, err := parseLine(line[:len(line)-1]); err != nil || !again.At.Equal(e.At) {
				t.Fatalf("round trip: %v, %v", again, err)
			}
		}
	})
}
