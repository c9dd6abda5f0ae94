package shelf_test

import (
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/durable"
	"github.com/fencepost/fencepost/internal/durable/crashfs"
	"github.com/fencepost/fencepost/internal/gate/shelf"
	"github.com/fencepost/fencepost/internal/gate/shelftest"
)

var noon = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

type clock struct {
	mu sync.Mutex
	t  time.Time // guarded by mu
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.t
}

func (c *clock) elapse(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.t = c.t.Add(d)
}

func open(t testing.TB, fsys durable.FS, limits shelf.Limits, c *clock) *shelf.Shelf {
	t.Helper()
	s, err := shelf.Open(t.Context(), fsys, limits, c.now)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// entry is the file of a delivery.
func entry(t testing.TB, dir string, d fencepost.DeliveryID) string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(dir, "2026-*", string(d)))
	if err != nil || len(found) != 1 {
		t.Fatalf("files of %s = %v, %v; want one", d, found, err)
	}
	return found[0]
}

func TestConformance(t *testing.T) {
	t.Parallel()
	shelftest.Run(t, func(t *testing.T, limits shelf.Limits) shelftest.Harness {
		dir, c := t.TempDir(), &clock{t: noon}
		return shelftest.Harness{
			Open:   func(t testing.TB) shelftest.Shelf { return open(t, durable.OS(dir), limits, c) },
			Elapse: func(_ testing.TB, d time.Duration) { c.elapse(d) },
			Spoil: func(t testing.TB, d fencepost.DeliveryID) {
				name := entry(t, dir, d)
				data, err := os.ReadFile(name)
				if err != nil {
					t.Fatal(err)
				}
				data[len(data)-1] ^= 1
				if err := os.WriteFile(name, data, 0o600); err != nil {
					t.Fatal(err)
				}
			},
			Swap: func(t testing.TB, from, to fencepost.DeliveryID) {
				data, err := os.ReadFile(entry(t, dir, from))
				if err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(entry(t, dir, to), data, 0o600); err != nil {
					t.Fatal(err)
				}
			},
		}
	})
}

func id(n byte) fencepost.DeliveryID { return fencepost.DeliveryKey{n}.ID() }

func TestNoPartOfAnEntryIsBelieved(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, durable.OS(dir), shelf.Limits{}, &clock{t: noon})
	if err := errors.Join(s.Put(t.Context(), id(1), []byte("staged")), s.End(t.Context(), id(2), fencepost.ReasonSuperseded)); err != nil {
		t.Fatal(err)
	}
	for _, d := range []fencepost.DeliveryID{id(1), id(2)} {
		name := entry(t, dir, d)
		whole, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		bad := map[string][]byte{"longer": append(whole[:len(whole):len(whole)], 0), "large": make([]byte, 1<<20)}
		for n := range whole {
			bad[fmt.Sprintf("first %d bytes", n)] = whole[:n]
			flipped := append([]byte(nil), whole...)
			flipped[n] ^= 0x40
			bad[fmt.Sprintf("byte %d altered", n)] = flipped
		}
		for what, data := range bad {
			if err := os.WriteFile(name, data, 0o600); err != nil {
				t.Fatal(err)
			}
			if e, ok, err := s.Get(t.Context(), d); ok || fencepost.ReasonOf(err) != fencepost.ReasonCorrupt {
				t.Errorf("%s: Get = %+v, %v, %v; want corrupt", what, e, ok, err)
			}
		}
	}
}

func TestTheKeyIsForTheOwnerAlone(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, durable.OS(dir), shelf.Limits{}, &clock{t: noon})
	if _, err := s.PollKey(t.Context()); err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(dir, "poll-key")
	info, err := os.Stat(name)
	if err != nil || info.Mode().Perm()&0o077 != 0 {
		t.Errorf("mode = %v, %v; want nothing for others", info.Mode(), err)
	}
	for _, n := range []int{0, 31, 33} {
		if err := os.WriteFile(name, make([]byte, n), 0o600); err != nil {
			t.Fatal(err)
		}
		if key, err := s.PollKey(t.Context()); err == nil {
			t.Errorf("a key of %d bytes is taken for one, as %d bytes", n, key.Len())
		}
	}
}

// What a crash of the machine may leave after each call, whatever it kept of
// what was not synced: what was promised is told, and nothing else is, and the
// key that was given out is the key.
func TestCrashAtEveryCall(t *testing.T) {
	t.Parallel()
	whole := crashfs.New(crashfs.Options{})
	workload(t, whole)
	for n := 1; n <= whole.Calls(); n++ {
		for _, when := range []crashfs.When{crashfs.Before, crashfs.Inside, crashfs.After} {
			d := crashfs.New(crashfs.Options{})
			d.Plan(crashfs.CrashAt(n, when, 3))
			promised := workload(t, d)
			for name, keep := range map[string]crashfs.Policy{
				"lose": crashfs.LoseAll, "keep": crashfs.KeepAll, "random": crashfs.Random(uint64(n)),
			} {
				after(t, fmt.Sprintf("call %d %v %s", n, when, name), d.After(keep).Process(), promised)
			}
		}
	}
}

// A promises is what calls have returned for.
type promises struct {
	entries map[fencepost.DeliveryID]shelf.Entry
	key     fencepost.Secret
}

// staged and ended are all that a workload tells.
var (
	staged = map[fencepost.DeliveryID]string{id(1): "one", id(2): "two", id(3): "three"}
	ended  = map[fencepost.DeliveryID]fencepost.Reason{id(2): fencepost.ReasonSuperseded, id(4): fencepost.ReasonExpired}
)

func workload(t *testing.T, d *crashfs.Disk) promises {
	t.Helper()
	p := promises{entries: map[fencepost.DeliveryID]shelf.Entry{}}
	s, err := shelf.Open(t.Context(), d.Process(), shelf.Limits{}, (&clock{t: noon}).now)
	if err != nil {
		return p
	}
	if key, err := s.PollKey(t.Context()); err == nil && !d.Crashed() {
		p.key = key
	}
	put := func(d2 fencepost.DeliveryID) {
		if s.Put(t.Context(), d2, []byte(staged[d2])) == nil && !d.Crashed() {
			p.entries[d2] = shelf.Entry{Document: []byte(staged[d2])}
		}
	}
	end := func(d2 fencepost.DeliveryID) {
		if s.End(t.Context(), d2, ended[d2]) == nil && !d.Crashed() {
			p.entries[d2] = shelf.Entry{Reason: ended[d2]}
		}
	}
	put(id(1))
	end(id(2))
	end(id(4))
	put(id(2))
	put(id(3))
	if err := s.Close(); err != nil && !d.Crashed() {
		t.Error(err)
	}
	return p
}

func after(t *testing.T, where string, fsys durable.FS, promised promises) {
	t.Helper()
	s, err := shelf.Open(t.Context(), fsys, shelf.Limits{}, (&clock{t: noon}).now)
	if err != nil {
		t.Fatalf("%s: open: %v", where, err)
	}
	defer func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}()
	for n := range byte(5) {
		d := id(n + 1)
		got, ok, err := s.Get(t.Context(), d)
		if err != nil {
			t.Fatalf("%s: %s: Get: %v", where, d, err)
		}
		want, told := promised.entries[d]
		switch {
		case told && !ok:
			t.Fatalf("%s: %s was told and is not", where, d)
		case told && !want.Ended() && string(got.Document) != string(want.Document):
			t.Fatalf("%s: %s tells %q, promised was %q", where, d, got.Document, want.Document)
		case ok && got.Ended() && got.Reason != ended[d], ok && !got.Ended() && string(got.Document) != staged[d]:
			t.Fatalf("%s: %s tells what nobody did: %+v", where, d, got)
		}
	}
	key, err := s.PollKey(t.Context())
	if err != nil || promised.key.Len() > 0 && !key.Equal(promised.key) {
		t.Fatalf("%s: the key is another one than was given out, %v", where, err)
	}
	for d, text := range staged {
		if err := s.Put(t.Context(), d, []byte(text)); err != nil {
			t.Fatalf("%s: put %s again: %v", where, d, err)
		}
	}
	if n, _, err := s.Usage(t.Context()); err != nil || n < int64(len(staged)) || n > int64(len(staged)+1) {
		t.Fatalf("%s: Usage = %d, %v", where, n, err)
	}
}

// A process that is killed leaves what is not durable yet. Who tells the same
// again promises it all the same.
func TestWhatAKilledProcessLeftIsMadeDurable(t *testing.T) {
	t.Parallel()
	tell := func(s *shelf.Shelf) error {
		return errors.Join(s.Put(t.Context(), id(1), []byte("one")), s.End(t.Context(), id(2), fencepost.ReasonExpired))
	}
	whole := crashfs.New(crashfs.Options{})
	s, err := shelf.Open(t.Context(), whole.Process(), shelf.Limits{}, (&clock{t: noon}).now)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(tell(s), s.Close()); err != nil {
		t.Fatal(err)
	}
	for n := 1; n <= whole.Calls(); n++ {
		d := crashfs.New(crashfs.Options{})
		first := d.Process()
		// The process does nothing more from this call on, and is killed.
		d.Plan(crashfs.FailFrom(n, errors.New("killed")))
		if s, err := shelf.Open(t.Context(), first, shelf.Limits{}, (&clock{t: noon}).now); err == nil {
			_ = tell(s)
		}
		d.Plan(nil)
		first.Kill()
		s, err := shelf.Open(t.Context(), d.Process(), shelf.Limits{}, (&clock{t: noon}).now)
		if err != nil {
			t.Fatalf("call %d: %v", n, err)
		}
		if err := tell(s); err != nil {
			t.Fatalf("call %d: %v", n, err)
		}
		again, err := shelf.Open(t.Context(), d.After(crashfs.LoseAll).Process(), shelf.Limits{}, (&clock{t: noon}).now)
		if err != nil {
			t.Fatalf("call %d: %v", n, err)
		}
		if e, ok, err := again.Get(t.Context(), id(1)); err != nil || !ok || string(e.Document) != "one" {
			t.Errorf("call %d: the result is lost: %+v, %v, %v", n, e, ok, err)
		}
		if e, ok, err := again.Get(t.Context(), id(2)); err != nil || !ok || e.Reason != fencepost.ReasonExpired {
			t.Errorf("call %d: the end is lost: %+v, %v, %v", n, e, ok, err)
		}
	}
}

func TestAFullDiskIsAnErrorAndRoomMendsIt(t *testing.T) {
	t.Parallel()
	d := crashfs.New(crashfs.Options{Capacity: 8192})
	s := open(t, d.Process(), shelf.Limits{}, &clock{t: noon})
	if err := s.Put(t.Context(), id(1), []byte("kept")); err != nil {
		t.Fatal(err)
	}
	large := make([]byte, 20000)
	if err := s.Put(t.Context(), id(2), large); !errors.Is(err, durable.ErrNoSpace) {
		t.Fatalf("Put = %v, want ErrNoSpace", err)
	}
	if e, ok, err := s.Get(t.Context(), id(1)); err != nil || !ok || string(e.Document) != "kept" {
		t.Errorf("Get = %+v, %v, %v", e, ok, err)
	}
	d.SetCapacity(0)
	if err := s.Put(t.Context(), id(2), large); err != nil {
		t.Error(err)
	}
}

// The bytes of docs/formats.md, "Results", with the digests of the vectors of
// docs/encoding.md.
func TestAnEntryIsAsDocumented(t *testing.T) {
	t.Parallel()
	const delivery = "dlv_ifq7mzoskrk3gl362r2hhjozee"
	dir := t.TempDir()
	s := open(t, durable.OS(dir), shelf.Limits{}, &clock{t: noon})
	for _, tc := range []struct {
		kind, digest, rest string
		tell               func(rest string) error
	}{
		{"\x02", "0747d6add20a582a1a8957fd45f904bddd9eb7dae0f0a6ff4717ef73eda2455f", "superseded", func(rest string) error {
			return s.End(t.Context(), delivery, fencepost.Reason(rest))
		}},
		{"\x01", "5651aa714c586ce6614d6935e755ff99a73ccc4d06340ea72c2535cff15b09ed", `{"conclusion":"success"}`, func(rest string) error {
			return s.Put(t.Context(), delivery, []byte(rest))
		}},
	} {
		if err := tc.tell(tc.rest); err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(entry(t, dir, delivery))
		if err != nil {
			t.Fatal(err)
		}
		digest, err := hex.DecodeString(tc.digest)
		if err != nil {
			t.Fatal(err)
		}
		if want := "FPRESULT\x01" + tc.kind + string(digest) + tc.rest; string(got) != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
