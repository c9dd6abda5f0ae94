package stage

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fencepost/fencepost/runner/internal/landlock"
)

func base() Base {
	return Base{
		Binds: []Bind{{Source: "/usr", Target: "/usr"}, {Source: "/f", Target: "/g", File: true}},
		Links: []Link{{Target: "/bin", Text: "usr/bin"}}, Devices: []string{"null", "zero"}, Leave: true,
	}
}

func config() Config {
	return Config{
		Strict: true, Binds: []Bind{{Source: "/f", Target: "/g", Detached: true}}, Scratch: 2, Inodes: 3, Work: "/work", Program: "/program", Request: "q", Report: "r", Result: "s", Doors: 2, Landlock: 7,
		Rules:  []landlock.Rule{{Path: "/", Access: landlock.Read}, {Path: "/work", Access: landlock.Write}},
		Limits: Rlimits{CPUSeconds: 4, FileBytes: 5, OpenFiles: 6, Processes: 7, DataBytes: 1 << 63},
	}
}

func TestMessagesComeBackAsTheyWere(t *testing.T) {
	t.Parallel()
	for _, b := range []Base{base(), {Plain: true}} {
		got, err := decodeBase(b.Encode())
		if diff := cmp.Diff(b, got); err != nil || diff != "" {
			t.Errorf("base: %v (-want +got):\n%s", err, diff)
		}
	}
	for _, c := range []Config{config(), {}} {
		got, err := decodeConfig(c.Encode())
		if diff := cmp.Diff(c, got); err != nil || diff != "" {
			t.Errorf("config: %v (-want +got):\n%s", err, diff)
		}
	}
	ready := Ready{Fatal: true, Failures: []Failure{{PartMounts, "bind", 1}, {PartSeccomp, "apply", 38}}}
	if got, err := DecodeReady(ready.Encode()); err != nil || !cmp.Equal(got, ready) {
		t.Errorf("ready: %+v, %v", got, err)
	}
	exit := Exit{Spawn: 1, Status: 1 << 31, UserMicros: 3, SystemMicros: 4, MaxRSSKiB: 5}
	if got, err := DecodeExit(exit.Encode()); err != nil || got != exit {
		t.Errorf("exit: %+v, %v", got, err)
	}
}

func TestTornMessagesAreRefused(t *testing.T) {
	t.Parallel()
	c := config()
	whole := c.Encode()
	for n := 1; n < len(whole); n++ {
		if _, err := decodeConfig(whole[:n]); !errors.Is(err, errCodec) {
			t.Fatalf("%d of %d bytes: %v", n, len(whole), err)
		}
	}
	if _, err := decodeConfig(append(whole, 0)); !errors.Is(err, errCodec) {
		t.Errorf("a byte too many: %v", err)
	}
}

func FuzzDecode(f *testing.F) {
	c, b := config(), base()
	f.Add(c.Encode())
	f.Add(b.Encode())
	f.Add((&Ready{Failures: []Failure{{PartMounts, "bind", 1}}}).Encode())
	f.Fuzz(func(t *testing.T, in []byte) {
		if len(in) == 0 {
			return
		}
		if c, err := decodeConfig(in); err == nil {
			again, err := decodeConfig(c.Encode())
			if err != nil || !cmp.Equal(again, c) {
				t.Fatalf("%+v became %+v, %v", c, again, err)
			}
		}
		if b, err := decodeBase(in); err == nil {
			again, err := decodeBase(b.Encode())
			if err != nil || !cmp.Equal(again, b) {
				t.Fatalf("%+v became %+v, %v", b, again, err)
			}
		}
		if _, err := DecodeReady(in); err != nil && !errors.Is(err, errCodec) {
			t.Fatal(err)
		}
		if _, err := DecodeExit(in); err != nil && !errors.Is(err, errCodec) {
			t.Fatal(err)
		}
	})
}
