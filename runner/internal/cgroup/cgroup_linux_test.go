package cgroup

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

const hybrid = `24 23 0:5 / /proc rw - proc proc rw
32 23 0:26 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
33 32 0:27 / /sys/fs/cgroup/cpu,cpuacct rw shared:9 master:1 - cgroup cgroup rw,cpu,cpuacct
34 32 0:28 /box /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory
35 32 0:29 / /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids
36 32 0:30 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw
`

func TestPlacesAreFoundThroughTheMounts(t *testing.T) {
	t.Parallel()
	mounts, err := parseMounts(strings.NewReader(hybrid + "short\n1 2 3 4 - x\n"))
	if err != nil {
		t.Fatal(err)
	}
	own := parseOwn(strings.NewReader("9:memory:/box/a\n8:pids:/\n3:cpu,cpuacct:/c\nbroken\n0::/u\n"))
	want := map[string]string{"memory": "/box/a", "pids": "/", "cpu": "/c", "cpuacct": "/c", "": "/u"}
	if diff := cmp.Diff(want, own); diff != "" {
		t.Errorf("own groups (-want +got):\n%s", diff)
	}
	for _, c := range []struct {
		controller, path, want string
		ok                     bool
	}{
		{memory, "/box/a", "/sys/fs/cgroup/memory/a", true},
		{memory, "/box", "/sys/fs/cgroup/memory", true},
		// Outside of what is mounted.
		{memory, "/other", "", false},
		{memory, "/box/../other", "", false},
		{pids, "/", "/sys/fs/cgroup/pids", true},
		{pids, "", "", false},
		{"freezer", "/", "", false},
	} {
		if got, ok := mounts.legacy(c.controller, c.path); got != c.want || ok != c.ok {
			t.Errorf("%s %q: %q, %v, want %q, %v", c.controller, c.path, got, ok, c.want, c.ok)
		}
	}
	if got, ok := mounts.unified("/u"); got != "/sys/fs/cgroup/unified/u" || !ok {
		t.Errorf("unified: %q, %v", got, ok)
	}
}

func FuzzParse(f *testing.F) {
	f.Add(hybrid)
	f.Add("9:memory:/box/a\n0::/u\n")
	f.Fuzz(func(t *testing.T, in string) {
		mounts, err := parseMounts(strings.NewReader(in))
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range parseOwn(strings.NewReader(in)) {
			for _, m := range mounts {
				if dir, ok := m.dir(path); ok && !within(dir, m.point) {
					t.Fatalf("%q is outside of the mount %+v", dir, m)
				}
			}
		}
	})
}

func within(path, dir string) bool {
	rel, err := filepath.Rel(dir, path)
	return err == nil && filepath.IsLocal(rel)
}

// unifiedDir looks like a version 2 directory as far as writes go.
func unifiedDir(t *testing.T, delegated string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "cgroup.subtree_control"), []byte(delegated), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestControllersAreDelegatedWhereTheyAreMissing(t *testing.T) {
	t.Parallel()
	for have, want := range map[string]string{
		"cpu memory pids\n": "cpu memory pids\n",
		"cpu memory\n":      "+pids memory\n",
		"\n":                "+memory +pids",
	} {
		dir := unifiedDir(t, have)
		if err := delegate(dir); err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(filepath.Join(dir, "cgroup.subtree_control"))
		if err != nil {
			t.Fatal(err)
		}
		// An ordinary file keeps what the write did not cover.
		if !strings.HasPrefix(string(got), strings.TrimSpace(want)[:4]) {
			t.Errorf("%q became %q, want %q", have, got, want)
		}
	}
}

func TestPlaceThatDoesNotExistIsUnavailable(t *testing.T) {
	t.Parallel()
	if _, err := Find(filepath.Join(t.TempDir(), "none")); !errors.Is(err, ErrUnavailable) {
		t.Errorf("err = %v, want ErrUnavailable", err)
	}
}

func TestGroupsAreListedByName(t *testing.T) {
	t.Parallel()
	a, b := t.TempDir(), t.TempDir()
	for _, path := range []string{a + "/fencepost-x-1", a + "/fencepost-y-1", b + "/fencepost-x-2", b + "/other-x-1"} {
		if err := os.Mkdir(path, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	got, err := Named([]string{a, b, b + "/gone"}, "x-")
	if diff := cmp.Diff([]string{a + "/fencepost-x-1", b + "/fencepost-x-2"}, got); err != nil || diff != "" {
		t.Errorf("err %v (-want +got):\n%s", err, diff)
	}
}

// host is a place on this machine, or the test is skipped: the runner says the
// same in its record.
func host(t *testing.T) *Host {
	t.Helper()
	h, err := Find("")
	if errors.Is(err, ErrUnavailable) {
		t.Skipf("no control groups for this process: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func TestGroupIsMadeLimitedAndRemoved(t *testing.T) {
	t.Parallel()
	h := host(t)
	g, err := h.Create("test-made")
	if err != nil {
		t.Fatal(err)
	}
	defer g.Remove(time.Second)
	if err := g.Limit(Limits{}); !errors.Is(err, unix.EINVAL) {
		t.Errorf("no limits: %v", err)
	}
	if err := g.Limit(Limits{Memory: 32 << 20, Processes: 5}); err != nil {
		t.Fatal(err)
	}
	for c, file := range map[string]string{pids: "pids.max", memory: map[int]string{1: "memory.limit_in_bytes", 2: "memory.max"}[h.Version()]} {
		dir, ok := g.dirs[c]
		if !ok {
			continue
		}
		want := map[string]string{pids: "5", memory: "33554432"}[c]
		if got, err := readSmall(filepath.Join(dir, file)); err != nil || got != want {
			t.Errorf("%s is %q, %v, want %s", file, got, err, want)
		}
	}
	if _, err := h.Create("test-made"); !errors.Is(err, os.ErrExist) {
		t.Errorf("second group of a name: %v", err)
	}
	if _, err := os.Stat(g.distinct()[0]); err != nil {
		t.Errorf("the first one is gone: %v", err)
	}
	dirs := g.distinct()
	if err := g.Remove(time.Second); err != nil {
		t.Fatal(err)
	}
	for _, dir := range dirs {
		if _, err := os.Stat(dir); !os.IsNotExist(err) {
			t.Errorf("group is left: %v", err)
		}
	}
}

func TestKillEmptiesAGroup(t *testing.T) {
	t.Parallel()
	h := host(t)
	g, err := h.Create("test-kill")
	if err != nil {
		t.Fatal(err)
	}
	defer g.Remove(time.Second)
	var members []*exec.Cmd
	for range 3 {
		cmd := exec.CommandContext(t.Context(), "/bin/sleep", "1000")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		for _, dir := range g.distinct() {
			if err := writeValue(filepath.Join(dir, "cgroup.procs"), strconv.Itoa(cmd.Process.Pid)); err != nil {
				t.Fatal(err)
			}
		}
		members = append(members, cmd)
	}
	if err := g.Remove(0); !errors.Is(err, unix.EBUSY) {
		t.Errorf("remove with members: %v, want EBUSY", err)
	}
	done := make(chan error, 1)
	go func() { done <- g.Kill(10 * time.Second) }()
	for _, cmd := range members {
		if err := cmd.Wait(); err == nil {
			t.Error("a member ended by itself")
		}
	}
	if err := <-done; err != nil {
		t.Errorf("kill: %v", err)
	}
	if err := Kill([]string{"/sys/fs/cgroup/none/such"}, 0); err != nil {
		t.Errorf("kill in a group that is gone: %v", err)
	}
}

// The controllers may be elsewhere, as on a host with both versions: being born
// into a group, being found in it and being killed in it need none.
func TestProcessIsBornIntoAGroupOfVersion2(t *testing.T) {
	t.Parallel()
	mounts, err := readMounts("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	own, err := readOwn("/proc/self/cgroup")
	if err != nil {
		t.Fatal(err)
	}
	parent, ok := mounts.unified(own[""])
	if !ok {
		t.Skip("no version 2 tree is mounted")
	}
	h := &Host{version: 2, parents: map[string]string{memory: parent, pids: parent}}
	g, err := h.Create("test-born")
	if err != nil {
		t.Skipf("no group can be made: %v", err)
	}
	defer g.Remove(time.Second)
	fd, ok := g.BirthFD()
	if !ok || len(g.Doors()) != 0 || len(g.distinct()) != 1 {
		t.Fatalf("group %+v", g)
	}
	cmd := exec.CommandContext(t.Context(), "/bin/sleep", "1000")
	cmd.SysProcAttr = &syscall.SysProcAttr{
		UseCgroupFD: true, CgroupFD: fd, Cloneflags: syscall.CLONE_NEWUSER | syscall.CLONE_NEWPID,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}},
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if got, err := membersOf(g.distinct()[0]); err != nil || len(got) != 1 || got[0] != cmd.Process.Pid {
		t.Errorf("members %v, %v, want %d", got, err, cmd.Process.Pid)
	}
	done := make(chan error, 1)
	go func() { done <- g.Kill(10 * time.Second) }()
	if err := cmd.Wait(); err == nil {
		t.Error("the member ended by itself")
	}
	if err := <-done; err != nil {
		t.Errorf("kill: %v", err)
	}
	if err := g.Remove(time.Second); err != nil {
		t.Errorf("remove: %v", err)
	}
}
