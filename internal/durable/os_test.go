package durable_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost/internal/durable"
)

func TestErrorsDoNotShowThePathOfTheHost(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	fsys := durable.OS(filepath.Join(dir, "root"))
	_, openErr := fsys.OpenFile("a", os.O_RDONLY, 0)
	_, statErr := fsys.Stat("a")
	_, listErr := fsys.ReadDir("a")
	_, volumeErr := fsys.Volume()
	for name, err := range map[string]error{
		"open": openErr, "stat": statErr, "list": listErr, "volume": volumeErr,
		"mkdir": fsys.Mkdir("a/b", 0o700), "rename": fsys.Rename("a", "b"),
		"link": fsys.Link("a", "b"), "remove": fsys.Remove("a"), "syncdir": fsys.SyncDir("a"),
	} {
		if !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: %v, want ErrNotExist", name, err)
		}
		if err != nil && strings.Contains(err.Error(), dir) {
			t.Errorf("%s: the error shows the host's path: %v", name, err)
		}
	}
	if err := fsys.SyncDir("a"); !errors.Is(err, durable.ErrSyncNotTried) {
		t.Errorf("SyncDir of a missing directory = %v, want ErrSyncNotTried", err)
	}
}

func TestTheTestMachinesVolumeIsKnown(t *testing.T) {
	t.Parallel()
	v, err := durable.CheckVolume(durable.OS(t.TempDir()), "data", true)
	if err != nil {
		t.Skipf("this machine's file system is refused: %v", err)
	}
	if v.Type == "" || v.Total <= 0 || v.Free < 0 || v.Free > v.Total {
		t.Errorf("Volume() = %+v", v)
	}
}

func openLock(t *testing.T, dir string) durable.File {
	t.Helper()
	f, err := durable.OS(dir).OpenFile("lock", os.O_RDWR|os.O_CREATE, durable.FilePerm)
	must(t, err)
	return f
}

func TestLockWaitsAndCanBeGivenUp(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	a, b := openLock(t, dir), openLock(t, dir)
	must(t, a.Lock(t.Context(), durable.Exclusive))
	cause := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	gaveUp := make(chan error)
	go func() { gaveUp <- b.Lock(ctx, durable.Exclusive) }()
	cancel(cause)
	if err := <-gaveUp; !errors.Is(err, cause) {
		t.Fatalf("Lock = %v, want the context's cause", err)
	}
	must(t, a.Unlock())
	// What was given up in the kernel does not keep the lock.
	must(t, a.Lock(t.Context(), durable.Exclusive))
	got := make(chan error)
	go func() { got <- b.Lock(t.Context(), durable.Exclusive) }()
	must(t, a.Unlock())
	must(t, <-got)
	if ok, err := a.TryLock(durable.Shared); ok || err != nil {
		t.Errorf("TryLock of a held lock = %v, %v", ok, err)
	}
	must(t, b.Close()) // frees it
	must(t, a.Lock(t.Context(), durable.Shared))
	must(t, a.Close())
}

func TestOneOpenFileLocksForOneUserAtATime(t *testing.T) {
	t.Parallel()
	a := openLock(t, t.TempDir())
	must(t, a.Lock(t.Context(), durable.Exclusive))
	if ok, err := a.TryLock(durable.Exclusive); ok || err != nil {
		t.Errorf("second TryLock of one File = %v, %v", ok, err)
	}
	must(t, a.Unlock())
	if err := a.Unlock(); !errors.Is(err, durable.ErrNotLocked) {
		t.Errorf("second Unlock = %v, want ErrNotLocked", err)
	}
	must(t, a.Close())
}

func TestAReplacedLockFileIsNoticed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	a := openLock(t, dir)
	must(t, os.Remove(filepath.Join(dir, "lock")))
	if err := a.Lock(t.Context(), durable.Exclusive); !errors.Is(err, durable.ErrLockReplaced) {
		t.Errorf("Lock of a removed file = %v, want ErrLockReplaced", err)
	}
	must(t, openLock(t, dir).Close())
	if ok, err := a.TryLock(durable.Exclusive); ok || !errors.Is(err, durable.ErrLockReplaced) {
		t.Errorf("TryLock of a replaced file = %v, %v; want ErrLockReplaced", ok, err)
	}
	must(t, a.Close())
}

// lockMain is the other process of TestLocksAreFreedByDeath.
func lockMain(dir string) {
	f, err := durable.OS(dir).OpenFile("lock", os.O_RDWR|os.O_CREATE, durable.FilePerm)
	if err == nil {
		err = f.Lock(context.Background(), durable.Exclusive)
	}
	fmt.Println("locked", err)
	time.Sleep(time.Minute) // it is killed first
}

func TestLocksAreFreedByDeath(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	exe, err := os.Executable()
	must(t, err)
	cmd := exec.CommandContext(t.Context(), exe, "-test.run=^$")
	cmd.Env = append(os.Environ(), lockDir+"="+dir)
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	buf := make([]byte, 1<<10)
	seen := ""
	for !strings.Contains(seen, "locked <nil>") {
		n, err := out.Read(buf)
		must(t, err)
		seen += string(buf[:n])
	}
	f := openLock(t, dir)
	if ok, err := f.TryLock(durable.Exclusive); ok || err != nil {
		t.Fatalf("TryLock while another process holds it = %v, %v", ok, err)
	}
	must(t, cmd.Process.Kill())
	must(t, f.Lock(t.Context(), durable.Exclusive))
	must(t, f.Close())
	_ = cmd.Wait() // it was killed
}

func TestClosedFilesSaySo(t *testing.T) {
	t.Parallel()
	f := openLock(t, t.TempDir())
	must(t, f.Close())
	for name, err := range map[string]error{
		"sync":  f.Sync(),
		"write": second(f.WriteAt([]byte("x"), 0)),
		"vec":   second(f.WriteVecAt([][]byte{{1}}, 0)),
		"lock":  f.Lock(t.Context(), durable.Exclusive),
		"close": f.Close(),
	} {
		if !errors.Is(err, fs.ErrClosed) {
			t.Errorf("%s of a closed file = %v, want ErrClosed", name, err)
		}
	}
}

func TestWriteVecOfManyParts(t *testing.T) {
	t.Parallel()
	fsys := durable.OS(t.TempDir())
	f, err := fsys.OpenFile("a", os.O_RDWR|os.O_CREATE, durable.FilePerm)
	must(t, err)
	var parts [][]byte
	want := "...."
	for i := range 3000 {
		s := strings.Repeat(string(rune('a'+i%26)), i%4)
		parts = append(parts, []byte(s))
		want += s
	}
	n, err := f.WriteVecAt(parts, 4)
	must(t, err)
	if n != len(want)-4 {
		t.Errorf("WriteVecAt = %d, want %d", n, len(want)-4)
	}
	_, err = f.WriteAt([]byte("...."), 0)
	must(t, err)
	must(t, f.Close())
	if got := read(t, fsys, "a"); got != want {
		t.Error("other bytes were written than given")
	}
}

func TestAppendIsRefused(t *testing.T) {
	t.Parallel()
	if _, err := durable.OS(t.TempDir()).OpenFile("a", os.O_APPEND|os.O_CREATE|os.O_RDWR, 0o600); !errors.Is(err, fs.ErrInvalid) {
		t.Errorf("OpenFile with O_APPEND = %v, want ErrInvalid", err)
	}
}
