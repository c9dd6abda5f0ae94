package procs

import (
	"errors"
	"os"
	"os/exec"
	"testing"
	"time"
)

func TestStatIsReadPastANameThatLies(t *testing.T) {
	t.Parallel()
	const tail = " S 7 1 1 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 4242 1 1 1"
	for name, c := range map[string]struct {
		in   string
		want stat
		err  error
	}{
		"plain":          {"12 (sh)" + tail, stat{'S', 7, 4242}, nil},
		"spaces":         {"12 (a b c)" + tail, stat{'S', 7, 4242}, nil},
		"parenthesis":    {"12 (x) Z 1 (y)" + tail, stat{'S', 7, 4242}, nil},
		"line end":       {"12 (x\ny)" + tail + "\n", stat{'S', 7, 4242}, nil},
		"empty":          {"", stat{}, errStat},
		"no parenthesis": {"12 sh" + tail, stat{}, errStat},
		"short":          {"12 (sh) S 7 1", stat{}, errStat},
		"parent":         {"12 (sh) S x 1 1 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 4242 1 1 1", stat{}, errStat},
		"start":          {"12 (sh) S 7 1 1 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 -1 1 1 1", stat{}, errStat},
	} {
		got, err := parseStat([]byte(c.in))
		if got != c.want || !errors.Is(err, c.err) {
			t.Errorf("%s: %+v, %v, want %+v, %v", name, got, err, c.want, c.err)
		}
	}
}

func FuzzParseStat(f *testing.F) {
	f.Add([]byte("12 (sh) S 7 1 1 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 4242 1 1 1"))
	f.Add([]byte(")"))
	f.Fuzz(func(t *testing.T, in []byte) {
		if got, err := parseStat(in); err != nil && (got != stat{} || !errors.Is(err, errStat)) {
			t.Fatalf("%+v, %v", got, err)
		}
	})
}

func TestProcessIsIdentified(t *testing.T) {
	t.Parallel()
	boot, err := BootID()
	if err != nil || len(boot) != 36 {
		t.Fatalf("boot id %q, %v", boot, err)
	}
	a, err := Identify(os.Getpid(), boot)
	if err != nil {
		t.Fatal(err)
	}
	b, err := Identify(os.Getpid(), boot)
	if err != nil || a != b || a.Start == 0 {
		t.Errorf("%+v and %+v, %v", a, b, err)
	}
}

func TestEndSparesWhoEndsInTime(t *testing.T) {
	t.Parallel()
	boot, err := BootID()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "/bin/sleep", "0.1")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	id, err := Identify(cmd.Process.Pid, boot)
	if err != nil {
		t.Fatal(err)
	}
	if killed, err := End(id, 10*time.Second, time.Second); killed || err != nil {
		t.Errorf("killed %v, %v", killed, err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("sleep: %v", err)
	}
	if killed, err := End(id, 0, 0); killed || err != nil {
		t.Errorf("a process that is gone: killed %v, %v", killed, err)
	}
}

func TestDescentIsFollowedUpwards(t *testing.T) {
	t.Parallel()
	parents := map[int]int{2: 1, 3: 2, 4: 3, 5: 1, 6: 7, 7: 6}
	for pid, want := range map[int]bool{3: true, 4: true, 2: false, 5: false, 6: false, 99: false} {
		if got := descends(parents, pid, 2); got != want {
			t.Errorf("%d descends from 2: %v, want %v", pid, got, want)
		}
	}
}
