package durable

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"
)

// TestAProbeIsAChange: one that asks for nothing would be granted by a file
// system that takes nothing any more.
func TestAProbeIsAChange(t *testing.T) {
	t.Parallel()
	name := filepath.Join(t.TempDir(), "health")
	f, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	long := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)
	if err := os.Chtimes(name, long, long); err != nil {
		t.Fatal(err)
	}
	if err := probe(f); err != nil {
		t.Fatal(err)
	}
	if info, err := f.Stat(); err != nil || info.ModTime().Equal(long) {
		t.Errorf("the file was last changed at %v, %v: the probe changed nothing", info.ModTime(), err)
	}
}

func TestVecAllWritesAllOnce(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		parts := rapid.SliceOfN(rapid.SliceOfN(rapid.Byte(), 0, 9), 0, 20).Draw(t, "parts")
		want := bytes.Join(parts, nil)
		var got []byte
		n, err := vecAll(parts, 100, func(p [][]byte, off int64) (int, error) {
			all := bytes.Join(p, nil)
			if off != 100+int64(len(got)) {
				t.Fatalf("write at %d, want %d", off, 100+len(got))
			}
			if len(all) == 0 {
				return 0, nil
			}
			k := rapid.IntRange(1, len(all)).Draw(t, "short")
			got = append(got, all[:k]...)
			return k, nil
		})
		if err != nil || n != len(want) || !bytes.Equal(got, want) {
			t.Fatalf("vecAll = %d, %v; wrote %v, want %v", n, err, got, want)
		}
	})
}

func TestVecAllReportsHowFarItGot(t *testing.T) {
	t.Parallel()
	calls := 0
	n, err := vecAll([][]byte{[]byte("abc"), []byte("defg")}, 0, func([][]byte, int64) (int, error) {
		if calls++; calls == 1 {
			return 5, nil
		}
		return -1, unix.ENOSPC
	})
	if n != 5 || !errors.Is(err, unix.ENOSPC) {
		t.Errorf("vecAll = %d, %v; want 5 and ENOSPC", n, err)
	}
	if n, err := vecAll([][]byte{[]byte("abc")}, 0, func([][]byte, int64) (int, error) { return 0, nil }); n != 0 || err == nil {
		t.Errorf("vecAll that does not move = %d, %v; want an error", n, err)
	}
}

func TestSkip(t *testing.T) {
	t.Parallel()
	parts := [][]byte{[]byte("abc"), nil, []byte("de")}
	for n, want := range []string{"abcde", "bcde", "cde", "de", "e", ""} {
		if got := string(bytes.Join(skip(parts, n), nil)); got != want {
			t.Errorf("skip %d: %q, want %q", n, got, want)
		}
	}
	if string(parts[0]) != "abc" {
		t.Error("skip changed its argument")
	}
}

func TestVolatileOverlaysAreSeen(t *testing.T) {
	t.Parallel()
	const info = `22 1 0:20 / / rw,relatime shared:1 - overlay overlay rw,lowerdir=/l,upperdir=/u,workdir=/w
30 22 0:31 / /scratch rw - overlay overlay rw,lowerdir=/l,upperdir=/u,volatile
31 30 0:32 / /scratch/data rw master:1 - ext4 /dev/vda rw
32 22 0:33 / /nfs rw - nfs4 host:/volatile rw
short line
`
	for path, want := range map[string]bool{
		"/": false, "/home": false, "/scratch": true, "/scratch/x": true, "/scratchy": false,
		"/scratch/data/x": false, "/nfs": false,
	} {
		if got := isVolatileMount([]byte(info), path); got != want {
			t.Errorf("%s: volatile %v, want %v", path, got, want)
		}
	}
}

func TestNoSpaceIsTold(t *testing.T) {
	t.Parallel()
	for _, errno := range []error{unix.ENOSPC, unix.EDQUOT} {
		err := opError("write", "a", errno)
		if e, ok := errors.AsType[*NoSpaceError](err); !ok || e.Name != "a" || !errors.Is(err, ErrNoSpace) || !errors.Is(err, errno) {
			t.Errorf("%v: %v, want a NoSpaceError of a", errno, err)
		}
	}
	if err := opError("write", "a", unix.EROFS); !errors.Is(err, ErrReadOnly) {
		t.Errorf("EROFS: %v, want ErrReadOnly", err)
	}
	if err := opError("write", "a", nil); err != nil {
		t.Errorf("opError of nil = %v", err)
	}
}
