package gitfetch_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"strings"
	"syscall"
	"testing"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/gitfetch"
	"github.com/fencepost/fencepost/gitfetch/internal/object"
	"github.com/fencepost/fencepost/gitfetch/internal/packtest"
)

// An alone is a fetch in a process of its own.
type alone struct {
	URL    string
	Commit fencepost.ObjectID
	Dir    string
	// FileSize, unless 0, is the largest file that the system lets it write.
	FileSize uint64
}

// A told is what that process says: its largest memory in KiB, what the fetch
// ended by, and whether the system's refusal is in that.
type told struct {
	Resident int64
	Err      string
	Reason   fencepost.Reason
	TooBig   bool
}

func runFetch(text string) error {
	var a alone
	if err := json.Unmarshal([]byte(text), &a); err != nil {
		return err
	}
	if a.FileSize > 0 {
		// Its default would end the process.
		signal.Ignore(syscall.SIGXFSZ)
		if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: a.FileSize, Max: a.FileSize}); err != nil {
			return err
		}
	}
	var out told
	_, err := gitfetch.Fetch(context.Background(), gitfetch.Request{URL: a.URL, Commit: fencepost.CommitID{ObjectID: a.Commit}, AllowHTTP: true, Dir: a.Dir})
	if err != nil {
		out.Err, out.Reason, out.TooBig = err.Error(), fencepost.ReasonOf(err), errors.Is(err, syscall.EFBIG)
	}
	// Not that of getrusage, which is its parent's at first.
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return err
	}
	_, peak, _ := strings.Cut(string(status), "VmHWM:")
	if _, err := fmt.Sscanf(peak, "%d kB", &out.Resident); err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(out)
}

func (a alone) run(t *testing.T) told {
	t.Helper()
	text, err := json.Marshal(a)
	if err != nil {
		t.Fatal(err)
	}
	child := exec.CommandContext(t.Context(), os.Args[0])
	child.Env = append(os.Environ(), childFetch+"="+string(text))
	b, err := child.Output()
	var out told
	if err == nil {
		err = json.Unmarshal(b, &out)
	}
	if err != nil {
		t.Fatalf("child: %v, %s", err, b)
	}
	return out
}

// treeOf is a pack of that many files of that size, in directories of a
// hundred, which nothing makes smaller.
func treeOf(files, size int) (commit fencepost.ObjectID, pack []byte) {
	var f forge
	chance := rand.NewChaCha8([32]byte{1})
	var dirs, entries []packtest.Entry
	for i := range files {
		content := make([]byte, size)
		_, _ = chance.Read(content) // never fails
		f.b.Raw(packtest.Header(uint8(object.Blob), int64(size)), packtest.Stored(content))
		id := packtest.ID(object.Blob, content)
		f.note(id, object.Blob, nil)
		entries = append(entries, file(numbered(i), id))
		if len(entries) == 100 || i == files-1 {
			dirs = append(dirs, dir("d"+numbered(i), f.tree(entries...)))
			entries = nil
		}
	}
	commit = f.commit(f.tree(dirs...))
	return commit, f.inGitOrder(commit)
}

// What docs/fetch.md says that a fetch takes: memoryConstant, and memoryPerPath
// for each path, whatever is in the files.
const (
	memoryPerPath  = 1 << 10
	memoryConstant = 24 << 20
)

// TestMemoryDoesNotGrowWithWhatIsInFiles but by so much a path. Each fetch has
// a process of its own, whose memory the system measures.
func TestMemoryDoesNotGrowWithWhatIsInFiles(t *testing.T) {
	const few, many, size = 500, 2500, 8 << 10
	constant, perPath := int64(memoryConstant), int64(memoryPerPath)
	if raced() {
		// The detector has a part of its own, and remembers what it saw.
		constant, perPath = 2*constant, 3*perPath
	}
	resident := make(map[int]int64)
	for _, files := range []int{few, many} {
		commit, pack := treeOf(files, size)
		h := &host{advertisement: advertisement(), result: answerWith(commit, pack)}
		got := alone{URL: h.start(t), Commit: commit, Dir: filepath.Join(t.TempDir(), "out")}.run(t)
		if got.Err != "" {
			t.Fatalf("%d files: %s", files, got.Err)
		}
		resident[files] = got.Resident << 10
		t.Logf("%d files of %d MiB together: %d KiB", files, files*size>>20, got.Resident)
		if most := constant + int64(files)*perPath; resident[files] > most {
			t.Errorf("%d files: %d KiB, more than %d", files, got.Resident, most>>10)
		}
	}
	// What a collector leaves lying about differs from run to run.
	const noise = 4 << 20
	if grown, most := resident[many]-resident[few], noise+(many-few)*perPath; grown > most {
		t.Errorf("%d files more take %d KiB more, over %d", many-few, grown>>10, most>>10)
	}
}

// raced reports whether this binary has the race detector in it.
func raced() bool {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return false
	}
	for _, s := range info.Settings {
		if s.Key == "-race" {
			return s.Value == "true"
		}
	}
	return false
}

// TestADiskThatTakesNoMoreEndsTheFetch as one that is full does: while files
// are placed, while the spool is written, and in the end.
func TestADiskThatTakesNoMoreEndsTheFetch(t *testing.T) {
	t.Parallel()
	const most = 64 << 10
	large := strings.Repeat("x", most+1)
	inOrder := func(f *forge, _ fencepost.ObjectID) []byte { return f.b.Bytes() }
	largeFile := func(f *forge) fencepost.ObjectID { return f.tree(file("a", f.blob("a")), file("b", f.blob(large))) }
	for name, tt := range map[string]struct {
		build func(f *forge) fencepost.ObjectID
		pack  func(f *forge, commit fencepost.ObjectID) []byte
	}{
		"a file that is placed": {largeFile, (*forge).inGitOrder},
		"a file in the end":     {largeFile, inOrder},
		"what is spooled": {func(f *forge) fencepost.ObjectID {
			var entries []packtest.Entry
			for i := range 40 {
				entries = append(entries, file(numbered(i), f.blob(numbered(i)+large[:most-7])))
			}
			return f.tree(entries...)
		}, inOrder},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var f forge
			commit := f.commit(tt.build(&f))
			h := &host{advertisement: advertisement(), result: answerWith(commit, tt.pack(&f, commit))}
			parent := t.TempDir()
			got := alone{URL: h.start(t), Commit: commit, Dir: filepath.Join(parent, "out"), FileSize: most}.run(t)
			if !got.TooBig || got.Reason != fencepost.ReasonUnavailable || strings.Contains(got.Err, parent) {
				t.Errorf("err = %s (%s), want %v", got.Err, got.Reason, syscall.EFBIG)
			}
			if left := names(t, parent); len(left) != 0 {
				t.Errorf("left behind: %q", left)
			}
		})
	}
}
