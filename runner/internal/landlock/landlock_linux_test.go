package landlock

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

func TestRulesetHandlesWhatTheVersionKnows(t *testing.T) {
	t.Parallel()
	for abi, want := range map[int]struct {
		size                uintptr
		refer, net, signals bool
	}{
		1: {8, false, false, false}, 2: {8, true, false, false}, 4: {16, true, true, false},
		5: {16, true, true, false}, 6: {24, true, true, true}, 99: {24, true, true, true},
	} {
		attr, size := ruleset(abi)
		if size != want.size || (attr.Handled_access_fs&unix.LANDLOCK_ACCESS_FS_REFER != 0) != want.refer ||
			(attr.Handled_access_net != 0) != want.net || (attr.Scoped&unix.LANDLOCK_SCOPE_SIGNAL != 0) != want.signals {
			t.Errorf("version %d: %+v, size %d", abi, attr, size)
		}
	}
}

func TestRuleWithoutAccessIsRefused(t *testing.T) {
	t.Parallel()
	abi, err := ABI()
	if err != nil {
		t.Skipf("the kernel has no Landlock: %v", err)
	}
	if err := Restrict(abi, []Rule{{Path: "/"}}); !errors.Is(err, unix.EINVAL) {
		t.Errorf("err = %v, want EINVAL", err)
	}
	if err := Restrict(abi, []Rule{{Path: "/no/such/path", Access: Read}}); !errors.Is(err, unix.ENOENT) {
		t.Errorf("err = %v, want ENOENT", err)
	}
}

func TestThreadIsHeldToItsRules(t *testing.T) {
	t.Parallel()
	abi, err := ABI()
	if err != nil {
		t.Skipf("the kernel has no Landlock: %v", err)
	}
	dir := t.TempDir()
	for _, name := range []string{"open", "shut"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name, "file"), []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	failed := make(chan error, 1)
	go func() {
		// Never unlocked: the restricted thread ends here.
		runtime.LockOSThread()
		failed <- errors.Join(
			unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0),
			Restrict(abi, []Rule{{Path: filepath.Join(dir, "open"), Access: Write}, {Path: filepath.Join(dir, "shut"), Access: Read}}),
			expect("write where allowed", nil, os.WriteFile(filepath.Join(dir, "open", "new"), nil, 0o600)),
			expect("write where not", unix.EACCES, os.WriteFile(filepath.Join(dir, "shut", "new"), nil, 0o600)),
			expect("read where allowed", nil, read(filepath.Join(dir, "shut", "file"))),
			expect("read where not", unix.EACCES, read("/etc/passwd")),
			expect("device", unix.EACCES, unix.Mknod(filepath.Join(dir, "open", "null"), unix.S_IFCHR|0o600, 259)),
		)
	}()
	if err := <-failed; err != nil {
		t.Error(err)
	}
	if err := read("/etc/passwd"); err != nil {
		t.Errorf("another thread is held too: %v", err)
	}
}

func read(path string) error {
	_, err := os.ReadFile(path)
	return err
}

type unexpected struct {
	what      string
	want, got error
}

func (u unexpected) Error() string {
	got := "no error"
	if u.got != nil {
		got = u.got.Error()
	}
	return u.what + ": " + got
}

func expect(what string, want, got error) error {
	if (want == nil && got == nil) || (want != nil && errors.Is(got, want)) {
		return nil
	}
	// Without the privilege the kernel answers before Landlock does.
	if what == "device" && errors.Is(got, unix.EPERM) {
		return nil
	}
	return unexpected{what, want, got}
}
