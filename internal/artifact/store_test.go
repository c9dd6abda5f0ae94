package artifact_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost/internal/artifact"
	"github.com/fencepost/fencepost/internal/durable"
	"github.com/fencepost/fencepost/internal/durable/crashfs"
)

var noon = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

type clock struct{ t time.Time }

func (c *clock) now() time.Time { return c.t }

func open(t *testing.T, fsys durable.FS, limits artifact.Limits, c *clock) *artifact.Store {
	t.Helper()
	s, err := artifact.Open(t.Context(), fsys, limits, c.now)
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

func put(t *testing.T, s *artifact.Store, data string) artifact.Ref {
	t.Helper()
	ref, err := s.Put(t.Context(), []byte(data))
	if err != nil {
		t.Fatal(err)
	}
	return ref
}

func wantGone(t *testing.T, s *artifact.Store, ref artifact.Ref) {
	t.Helper()
	if _, err := s.Get(t.Context(), ref); !errors.Is(err, artifact.ErrGone) {
		t.Errorf("Get = %v, want ErrGone", err)
	}
}

func wantHeld(t *testing.T, s *artifact.Store, ref artifact.Ref, want string) {
	t.Helper()
	got, err := s.Get(t.Context(), ref)
	if err != nil || string(got) != want {
		t.Errorf("Get = %q, %v, want %q", got, err, want)
	}
}

func TestPutIsReadBackByItsDigest(t *testing.T) {
	t.Parallel()
	s := open(t, durable.OS(t.TempDir()), artifact.Limits{}, &clock{noon})
	ref := put(t, s, "evidence")
	wantHeld(t, s, ref, "evidence")
	if again := put(t, s, "evidence"); again != ref {
		t.Errorf("the same bytes got %v and %v", ref, again)
	}
	if n, bytes, err := s.Usage(t.Context()); n != 1 || bytes != 8 || err != nil {
		t.Errorf("Usage = %d, %d, %v, want 1 artifact of 8 bytes", n, bytes, err)
	}
}

func TestRefHasOneForm(t *testing.T) {
	t.Parallel()
	s := open(t, durable.OS(t.TempDir()), artifact.Limits{}, &clock{noon})
	ref := put(t, s, "x")
	if got, err := artifact.ParseRef(ref.String()); got != ref || err != nil {
		t.Errorf("ParseRef(%v) = %v, %v", ref, got, err)
	}
	text := ref.String()
	for _, bad := range []string{"", "art_", text[4:], strings.ToUpper(text), text + "a", text[:len(text)-1], "art_../../etc/passwd", text[:len(text)-1] + "7"} {
		if _, err := artifact.ParseRef(bad); !errors.Is(err, artifact.ErrRef) {
			t.Errorf("ParseRef(%q) = %v, want ErrRef", bad, err)
		}
	}
}

func TestWhatIsDamagedIsNeitherGoneNorBelieved(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, durable.OS(dir), artifact.Limits{ArtifactBytes: 100}, &clock{noon})
	ref := put(t, s, "evidence")
	held, err := filepath.Glob(filepath.Join(dir, "2026-11-30", "*"))
	if err != nil || len(held) != 1 {
		t.Fatalf("files = %v, %v, want one", held, err)
	}
	for name, data := range map[string][]byte{
		"flipped": []byte("evidencf"), "empty": nil, "short": []byte("evid"), "oversized": bytes.Repeat([]byte("x"), 101),
	} {
		if err := os.WriteFile(held[0], data, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Get(t.Context(), ref); !errors.Is(err, artifact.ErrDamaged) {
			t.Errorf("%s: Get = %v, want ErrDamaged", name, err)
		}
	}
	put(t, s, "evidence")
	wantHeld(t, s, ref, "evidence")
}

func TestOversizedIsRefusedAndNothingIsKept(t *testing.T) {
	t.Parallel()
	s := open(t, durable.OS(t.TempDir()), artifact.Limits{ArtifactBytes: 4}, &clock{noon})
	if _, err := s.Put(t.Context(), []byte("12345")); !errors.Is(err, artifact.ErrTooLarge) {
		t.Errorf("Put = %v, want ErrTooLarge", err)
	}
	put(t, s, "1234")
	if n, _, err := s.Usage(t.Context()); n != 1 || err != nil {
		t.Errorf("Usage = %d, %v, want 1", n, err)
	}
}

func TestTheOldestMakeRoom(t *testing.T) {
	t.Parallel()
	for name, limits := range map[string]artifact.Limits{
		"count": {Count: 2}, "bytes": {TotalBytes: 5, ArtifactBytes: 5},
	} {
		c := &clock{noon}
		s := open(t, durable.OS(t.TempDir()), limits, c)
		oldest := put(t, s, "a1")
		c.t = c.t.Add(24 * time.Hour)
		older := put(t, s, "b2")
		c.t = c.t.Add(24 * time.Hour)
		newest := put(t, s, "c3")
		wantGone(t, s, oldest)
		wantHeld(t, s, older, "b2")
		wantHeld(t, s, newest, "c3")
		if n, _, err := s.Usage(t.Context()); n != 2 || err != nil {
			t.Errorf("%s: Usage = %d, %v, want 2", name, n, err)
		}
	}
}

func TestExpiredIsGoneAndTouchedLastsLonger(t *testing.T) {
	t.Parallel()
	c := &clock{noon}
	s := open(t, durable.OS(t.TempDir()), artifact.Limits{TTL: 24 * time.Hour}, c)
	once, twice := put(t, s, "once"), put(t, s, "twice")
	c.t = c.t.Add(20 * time.Hour)
	put(t, s, "twice")
	if err := s.Expire(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantHeld(t, s, once, "once")
	c.t = noon.Add(36 * time.Hour)
	if err := s.Expire(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantGone(t, s, once)
	wantHeld(t, s, twice, "twice")
}

func TestSeveralOpenersShareTheBounds(t *testing.T) {
	t.Parallel()
	fsys, c := durable.OS(t.TempDir()), &clock{noon}
	a, b := open(t, fsys, artifact.Limits{Count: 3}, c), open(t, fsys, artifact.Limits{Count: 3}, c)
	for i := range 4 {
		put(t, a, fmt.Sprintf("a%d", i))
		put(t, b, fmt.Sprintf("b%d", i))
	}
	if n, _, err := b.Usage(t.Context()); n != 3 || err != nil {
		t.Errorf("Usage = %d, %v, want 3", n, err)
	}
}

// Whatever call the machine crashes at, and whatever it kept of what was not
// synced: what Put answered for is there, and nothing else is believed.
func TestCrashAtEveryCall(t *testing.T) {
	t.Parallel()
	calls := func() int {
		d := crashfs.New(crashfs.Options{})
		workload(t, d)
		return d.Calls()
	}()
	for n := 1; n <= calls; n++ {
		for _, when := range []crashfs.When{crashfs.Before, crashfs.Inside, crashfs.After} {
			d := crashfs.New(crashfs.Options{})
			d.Plan(crashfs.CrashAt(n, when, 3))
			promised := workload(t, d)
			for name, keep := range map[string]crashfs.Policy{
				"lose": crashfs.LoseAll, "keep": crashfs.KeepAll, "random": crashfs.Random(uint64(n)),
			} {
				after := d.After(keep).Process()
				s, err := artifact.Open(t.Context(), after, artifact.Limits{}, (&clock{noon}).now)
				if err != nil {
					t.Fatalf("call %d %v %s: open: %v", n, when, name, err)
				}
				for ref, want := range promised {
					if got, err := s.Get(t.Context(), ref); err != nil || string(got) != want {
						t.Fatalf("call %d %v %s: Get = %q, %v, want %q", n, when, name, got, err, want)
					}
				}
				if ref, err := s.Put(t.Context(), []byte("three")); err != nil {
					t.Fatalf("call %d %v %s: put: %v", n, when, name, err)
				} else if got, err := s.Get(t.Context(), ref); err != nil || string(got) != "three" {
					t.Fatalf("call %d %v %s: Get = %q, %v", n, when, name, got, err)
				}
				if err := s.Close(); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
}

// workload stores two artifacts and returns what was promised.
func workload(t *testing.T, d *crashfs.Disk) map[artifact.Ref]string {
	t.Helper()
	promised := map[artifact.Ref]string{}
	s, err := artifact.Open(t.Context(), d.Process(), artifact.Limits{}, (&clock{noon}).now)
	if err != nil {
		return promised
	}
	for _, data := range []string{"one", "two"} {
		if ref, err := s.Put(t.Context(), []byte(data)); err == nil && !d.Crashed() {
			promised[ref] = data
		}
	}
	if err := s.Close(); err != nil && !d.Crashed() {
		t.Error(err)
	}
	return promised
}

func TestAFullDiskIsAnErrorAndRoomMendsIt(t *testing.T) {
	t.Parallel()
	d := crashfs.New(crashfs.Options{Capacity: 8192})
	s := open(t, d.Process(), artifact.Limits{}, &clock{noon})
	kept := put(t, s, "kept")
	if _, err := s.Put(t.Context(), bytes.Repeat([]byte("x"), 20000)); !errors.Is(err, durable.ErrNoSpace) {
		t.Fatalf("Put = %v, want ErrNoSpace", err)
	}
	wantHeld(t, s, kept, "kept")
	d.SetCapacity(0)
	put(t, s, strings.Repeat("x", 20000))
}
