package runner_test

import (
	"bytes"
	"encoding/json"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fencepost/fencepost/runner"
)

func init() { openers["plain"] = runner.OpenPlain }

// command is a controller that was not started yet.
func command(t testing.TB, role, dir, script string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe")
	cmd.Env = []string{controllerEnv + "=" + role, directoryEnv + "=" + dir, scriptEnv + "=" + script}
	cmd.WaitDelay = 10 * time.Second
	return cmd
}

func listen(t testing.TB, cmd *exec.Cmd) told {
	t.Helper()
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("controller: %v\n%s%s", err, out, stderr.String())
	}
	var got told
	if err := json.Unmarshal(out, &got); err != nil {
		t.Fatalf("controller said %q: %v", out, err)
	}
	return got
}

// kill -9 of the controller leaves no process, and the next start finds and
// removes the rest.
func TestNothingOutlivesAKilledController(t *testing.T) {
	t.Parallel()
	for _, role := range []string{"required", "plain"} {
		t.Run(role, func(t *testing.T) {
			t.Parallel()
			dir, mark := t.TempDir(), newMark()
			cmd := command(t, role, dir, "descendsleep "+mark+" 3")
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			eventually(t, "three daemons run", func() bool { return alive(t, mark) >= 3 })
			groups := controlGroups(t)
			if err := cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			if err := cmd.Wait(); err == nil {
				t.Error("the controller ended by itself")
			}
			scratch := filepath.Join(dir, "scratch")
			before, err := filepath.Glob(filepath.Join(scratch, "proc-*"))
			if err != nil || len(before) != 1 {
				t.Fatalf("process directories %v, %v", before, err)
			}
			next, err := runner.Open(t.Context(), runner.Config{Entry: entry, Scratch: scratch, Now: time.Now})
			if err != nil {
				t.Fatal(err)
			}
			defer next.Close()
			if n := alive(t, mark); n != 0 {
				t.Errorf("%d processes are alive after the next start", n)
			}
			// The program's stage, and the one that was kept ready.
			if s := next.Swept(); s.Runs < 1 || s.Runs > 2 || s.Err != nil {
				t.Errorf("swept %+v", s)
			}
			if _, err := os.Stat(before[0]); !os.IsNotExist(err) {
				t.Errorf("process directory of the killed one: %v", err)
			}
			id := strings.TrimPrefix(filepath.Base(before[0]), "proc-")
			if had := named(groups, id); len(had) == 0 && len(named(controlGroups(t), "")) > 0 {
				t.Error("the controller had no control groups: the test shows nothing")
			}
			if left := named(controlGroups(t), id); len(left) != 0 {
				t.Errorf("control groups left: %v", left)
			}
		})
	}
}

// controlGroups are all groups of this package on the machine.
func controlGroups(t testing.TB) []string {
	t.Helper()
	var out []string
	err := filepath.WalkDir("/sys/fs/cgroup", func(path string, d fs.DirEntry, err error) error {
		// Groups come and go while we look.
		if err == nil && d.IsDir() && strings.HasPrefix(d.Name(), "fencepost-") {
			out = append(out, path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func named(groups []string, id string) []string {
	return slices.DeleteFunc(slices.Clone(groups), func(path string) bool { return !strings.Contains(filepath.Base(path), id) })
}

// A process without any privilege of its own gets the whole sandbox too.
func TestUnprivilegedRunnerHasTheWholeSandbox(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("the other tests run unprivileged already")
	}
	const nobody = 65534
	dir := publicDir(t)
	if err := os.Chown(dir, nobody, nobody); err != nil {
		t.Fatal(err)
	}
	cmd := command(t, "required", dir, "who")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	got := listen(t, cmd)
	if got.Error != "" || got.Conclusion != "pass" || got.Cleanup != "<nil>" {
		t.Fatalf("controller told %+v", got)
	}
	for _, p := range got.Protections {
		if !p.On {
			t.Errorf("%s is off", p.Protection)
		}
	}
	if !strings.Contains(string(got.Report), `"uid 1000 1000"`) || !strings.Contains(string(got.Report), `"capabilities 0 0 0"`) {
		t.Errorf("the program is %s", got.Report)
	}
}

// publicDir is a directory that other users can reach; t.TempDir's parent is
// not one.
func publicDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "fencepost-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// withoutNamespaces makes a command's process one that can make no namespace:
// it is the superuser of a user namespace whose limit on them is none.
func withoutNamespaces(t testing.TB, cmd *exec.Cmd) {
	t.Helper()
	cmd.Args = []string{"sh", "-c", "echo 0 >/proc/sys/user/max_user_namespaces && exec \"$0\"", "/proc/self/exe"}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Path, cmd.Args[3] = "/bin/sh", self
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}},
	}
}

func TestRequiredSandboxIsRefusedWithWhatIsMissing(t *testing.T) {
	t.Parallel()
	cmd := command(t, "required", t.TempDir(), "pass")
	withoutNamespaces(t, cmd)
	got := listen(t, cmd)
	if !slices.Equal(got.Refused, []runner.Protection{runner.ProtectionUserNamespace}) || got.Conclusion != "" {
		t.Errorf("controller told %+v", got)
	}
}

func TestBestEffortRunsWithWhatThereIs(t *testing.T) {
	t.Parallel()
	cmd := command(t, "best_effort", t.TempDir(), "pass")
	withoutNamespaces(t, cmd)
	got := listen(t, cmd)
	if got.Error != "" || got.Conclusion != "pass" || got.Cleanup != "<nil>" {
		t.Fatalf("controller told %+v", got)
	}
	on := map[runner.Protection]bool{}
	for _, p := range got.Protections {
		on[p.Protection] = p.On
	}
	for p, want := range map[runner.Protection]bool{
		runner.ProtectionUserNamespace: false, runner.ProtectionPrivateRoot: false,
		runner.ProtectionLandlock: true, runner.ProtectionSeccomp: true, runner.ProtectionTreeKill: true,
	} {
		if on[p] != want {
			t.Errorf("%s is on: %v, want %v", p, on[p], want)
		}
	}
}
