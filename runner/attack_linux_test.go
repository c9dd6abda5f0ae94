package runner_test

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/runner"
	"github.com/fencepost/fencepost/runner/check"
)

// These tests are attacks: a program that does what it must not be able to do,
// and tells how far it got.

// DESIGN §2, invariant 13.
func TestNoDescendantOutlivesTheRun(t *testing.T) {
	t.Parallel()
	r := open(t)
	for name, c := range map[string]struct {
		script string
		wall   time.Duration
		check  func(*testing.T, runner.Record)
	}{
		"daemons after a pass": {"descend %s 5", 0, func(t *testing.T, rec runner.Record) {
			if got := seen(t, rec); !slices.Equal(got, []string{"5"}) {
				t.Errorf("started %v daemons, want 5", got)
			}
		}},
		"daemons at the wall limit": {"descendsleep %s 5", time.Second, func(t *testing.T, rec runner.Record) {
			wantFailed(t, rec, fencepost.ReasonTimeout, runner.ErrWall)
		}},
		"as many as there can be": {"bomb %s", 0, func(t *testing.T, rec runner.Record) {
			got := seen(t, rec)
			n, err := strconv.Atoi(got[0])
			if limit := runner.DefaultLimits().Processes; err != nil || n < 1 || n > limit {
				t.Errorf("started %v daemons, want 1 to %d", got, limit)
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			mark := newMark()
			job := newJob(t, fmt.Sprintf(c.script, mark))
			job.Limits.Wall = c.wall
			lived := watch(t, mark)
			rec := r.Run(t.Context(), job)
			// At once, not eventually: the proof came before Run returned.
			if n := alive(t, mark); n != 0 {
				t.Errorf("%d processes are alive after the run", n)
			}
			if lived() == 0 && c.wall != 0 {
				t.Error("no daemon was seen while the run lasted: the test shows nothing")
			}
			c.check(t, rec)
		})
	}
}

// watch counts the most processes with the mark that were alive at a time,
// until the count is asked for.
func watch(t *testing.T, mark string) (most func() int) {
	t.Helper()
	stop, result := make(chan struct{}), make(chan int, 1)
	go func() {
		n := 0
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-stop:
				result <- n
				return
			case <-tick.C:
				n = max(n, alive(t, mark))
			}
		}
	}()
	return func() int {
		close(stop)
		return <-result
	}
}

func TestProgramCannotWriteOutsideItsScratch(t *testing.T) {
	t.Parallel()
	r := open(t)
	// Which of the guards answers first does not matter.
	refused := []string{"read-only file system", "permission denied", "text file busy"}
	paths := []string{
		"/candidate/script", "/candidate/new", "/action/bin/check", "/program", "/request.json", "request.json",
		"/new", "/etc/new", "/usr/bin/new", "/dev/new", "/action/../new",
	}
	job := newJob(t, append([]string{"write"}, paths...)...)
	for i, got := range seen(t, r.Run(t.Context(), job)) {
		if !slices.Contains(refused, got) {
			t.Errorf("write to %s: %s", paths[i], got)
		}
	}
	if got := seen(t, r.Run(t.Context(), newJob(t, "write /dev/null own /tmp/own"))); !slices.Equal(got, []string{"ok", "ok", "ok"}) {
		t.Errorf("what must be writable: %v", got)
	}
	if b, err := os.ReadFile(filepath.Join(job.Candidate.Root(), "script")); err != nil || !strings.HasPrefix(string(b), "write") {
		t.Errorf("candidate holds %q (%v)", b, err)
	}
}

// The mounts themselves are read-only, also where Landlock would answer first.
func TestTreesAreMountedReadOnly(t *testing.T) {
	t.Parallel()
	r := open(t)
	paths := []string{"/candidate", "/action", "/program", "/usr", "/", "request.json", "."}
	got := seen(t, r.Run(t.Context(), newJob(t, append([]string{"mounts"}, paths...)...)))
	for i, flags := range got {
		want := "ro nosuid nodev"
		if paths[i] == "." {
			want = "nosuid nodev"
		}
		if flags != want {
			t.Errorf("%s is mounted %s, want %s", paths[i], flags, want)
		}
	}
}

func TestEveryLimitReachesTheProgram(t *testing.T) {
	t.Parallel()
	r := open(t)
	job := newJob(t, "limits")
	job.Limits = runner.Limits{CPU: 1500 * time.Millisecond, FileBytes: 3 << 20, OpenFiles: 77, Processes: 33}
	got := seen(t, r.Run(t.Context(), job))
	// A part of a second is a whole one, and the sandbox's own threads have
	// room among the processes.
	want := []string{"2 2", "3145728 3145728", "77 77", "49 49", "0 0", "0 0"}
	if !slices.Equal(got, want) {
		t.Errorf("processor time, file size, open files, processes, queues, priority: %v, want %v", got, want)
	}
}

func TestProgramCannotReadTheHost(t *testing.T) {
	t.Parallel()
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("s"), 0o644); err != nil {
		t.Fatal(err)
	}
	r := open(t)
	paths := []string{secret, "/etc/shadow", "/etc/passwd", "/proc/1/environ", "/proc/self/status", "/sys/kernel/vmcoreinfo", "/root/.profile", "/.host/etc/passwd", "/dev/mem", "/dev/vda"}
	got := seen(t, r.Run(t.Context(), newJob(t, append([]string{"read"}, paths...)...)))
	for i, path := range paths {
		if got[i] == "ok" {
			t.Errorf("%s could be read", path)
		}
	}
	ok := seen(t, r.Run(t.Context(), newJob(t, "read", "/candidate/script", "/action/bin/check", "request.json", "/program", "/usr/bin/env")))
	if want := []string{"ok", "ok", "ok", "ok", "ok"}; !slices.Equal(ok, want) {
		t.Errorf("what must be readable: %v", ok)
	}
}

func TestProgramSeesOnlyWhatWasBound(t *testing.T) {
	t.Parallel()
	r := open(t, func(c *runner.Config) { c.SystemDirs = []string{"/usr", "/lib", "/lib64"} })
	got := seen(t, r.Run(t.Context(), newJob(t, "list /")))
	want := []string{"action", "candidate", "dev", "lib", "lib64", "program", "request.json", "tmp", "usr", "work"}
	if !slices.Equal(got, want) {
		t.Errorf("root holds %v, want %v", got, want)
	}
	got = seen(t, r.Run(t.Context(), newJob(t, "list .")))
	if want := []string{"report.json", "request.json", "result.json"}; !slices.Equal(got, want) {
		t.Errorf("working directory holds %v, want %v", got, want)
	}
}

func TestProgramInheritsNothing(t *testing.T) {
	// A descriptor that is not closed on exec, as a careless host would have.
	f, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	leaked, err := dup(int(f.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	defer leaked.Close()
	t.Setenv("CANARY_OF_THE_ENVIRONMENT", "1")
	r := open(t)
	got := seen(t, r.Run(t.Context(), newJob(t, "stdio")))
	want := []string{"ok", "true", "true", "true", "0", "0", "/work", "ok", "022"}
	if !slices.Equal(got, want) {
		t.Errorf("null device, standard files, further ones, environment, directory, umask: %v, want %v", got, want)
	}
}

func TestProgramIsNobody(t *testing.T) {
	t.Parallel()
	r := open(t)
	got := seen(t, r.Run(t.Context(), newJob(t, "who")))
	want := []string{
		"uid 1000 1000", "gid 1000 1000", "groups []", "capabilities 0 0 0", "bounds 0", "no_new_privs 1", "seccomp 2", "core 1 1",
		"setuid operation not permitted", "setgid operation not permitted", "setgroups operation not permitted",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestDangerousCallsAreRefused(t *testing.T) {
	t.Parallel()
	r := open(t)
	for _, line := range seen(t, r.Run(t.Context(), newJob(t, "calls"))) {
		name, got, _ := strings.Cut(line, ": ")
		want := "operation not permitted"
		switch name {
		case "clone3":
			want = "function not implemented"
		case "socket vsock", "socket netlink", "socket packet", "socket alg":
			want = "address family not supported by protocol"
		}
		if got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
}

func TestCallOfAnotherABIKills(t *testing.T) {
	t.Parallel()
	if !hasForeignABI {
		t.Skip("this processor has one ABI that the filter can tell only by its arch value; the filter's own test covers it")
	}
	r := open(t)
	rec := r.Run(t.Context(), newJob(t, "foreign"))
	wantFailed(t, rec, fencepost.ReasonUnavailable, runner.ErrSignalled)
	if rec.Exit == nil || rec.Exit.Signal != 31 {
		t.Errorf("exit %+v, want signal 31 (SIGSYS)", rec.Exit)
	}
}

func TestProgramHasNoNetwork(t *testing.T) {
	t.Parallel()
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer tcp.Close()
	name := "@fencepost-" + newMark()
	abstract, err := net.Listen("unix", name)
	if err != nil {
		t.Fatal(err)
	}
	defer abstract.Close()
	r := open(t)
	got := seen(t, r.Run(t.Context(), newJob(t, "connect", tcp.Addr().String(), name)))
	if got[0] != "permission denied" && got[0] != "network is unreachable" {
		t.Errorf("TCP to the host: %s", got[0])
	}
	if got[1] != "connection refused" && got[1] != "operation not permitted" {
		t.Errorf("abstract socket of the host: %s", got[1])
	}
	if got[2] != "network is unreachable" {
		t.Errorf("datagram: %s", got[2])
	}
	if got[3] != "down" {
		t.Errorf("interfaces: %s", got[3])
	}
}

func TestProgramSharesNoNameWithTheHost(t *testing.T) {
	t.Parallel()
	const key = 0x66656e63
	id, err := unix.SysvShmGet(key, 4096, unix.IPC_CREAT|unix.IPC_EXCL|0o666)
	if err != nil {
		t.Fatalf("make shared memory: %v", err)
	}
	defer func() {
		if _, err := unix.SysvShmCtl(id, unix.IPC_RMID, nil); err != nil {
			t.Errorf("remove shared memory: %v", err)
		}
	}()
	r := open(t)
	got := seen(t, r.Run(t.Context(), newJob(t, "isolated", strconv.Itoa(key))))
	if want := []string{"sandbox", "no such file or directory", "true"}; !slices.Equal(got, want) {
		t.Errorf("host name, shared memory, low process number: %v, want %v", got, want)
	}
}

func TestProgramCannotHarmItsInit(t *testing.T) {
	t.Parallel()
	r := open(t)
	rec := r.Run(t.Context(), newJob(t, "killinit"))
	for _, line := range seen(t, rec) {
		if !strings.HasSuffix(line, "operation not permitted") {
			t.Errorf("%s", line)
		}
	}
}

func TestMemoryIsBounded(t *testing.T) {
	t.Parallel()
	r := open(t)
	job := newJob(t, "hog")
	job.Limits.Memory = 64 << 20
	rec := r.Run(t.Context(), job)
	on := protection(rec, runner.ProtectionMemoryLimit)
	if !strings.HasPrefix(on.By, "cgroup") {
		// Without a control group the program's own allocation fails.
		wantFailed(t, rec, fencepost.ReasonMissingOutput, runner.ErrOutput)
		return
	}
	wantFailed(t, rec, fencepost.ReasonUnavailable, runner.ErrSignalled)
	if rec.Exit == nil || rec.Exit.Signal != 9 || rec.MemoryKills < 1 {
		t.Errorf("exit %+v with %d kills for want of memory", rec.Exit, rec.MemoryKills)
	}
}

func TestScratchIsBounded(t *testing.T) {
	t.Parallel()
	r := open(t)
	job := newJob(t, "fill 4")
	job.Limits.ScratchBytes = 16 << 20
	got := seen(t, r.Run(t.Context(), job))
	if n, err := strconv.Atoi(got[0]); err != nil || n < 12 || n > 16 || got[1] != "no space left on device" {
		t.Errorf("wrote %s MiB of 16, then %s", got[0], got[1])
	}
	job = newJob(t, "fill 0")
	job.Limits.ScratchFiles = 32
	got = seen(t, r.Run(t.Context(), job))
	if got[1] != "no space left on device" {
		t.Errorf("made files until %s", got[1])
	}
}

func TestFileSizeIsBounded(t *testing.T) {
	t.Parallel()
	r := open(t)
	job := newJob(t, "fill 64")
	job.Limits.FileBytes = 8 << 20
	got := seen(t, r.Run(t.Context(), job))
	if want := []string{"8", "file too large"}; !slices.Equal(got, want) {
		t.Errorf("one file grew to %v MiB, want %v", got, want)
	}
}

func TestOpenFilesAreBounded(t *testing.T) {
	t.Parallel()
	r := open(t)
	job := newJob(t, "files")
	job.Limits.OpenFiles = 64
	got := seen(t, r.Run(t.Context(), job))
	if n, err := strconv.Atoi(got[0]); err != nil || n < 32 || n > 64 {
		t.Errorf("opened %s files of 64", got[0])
	}
}

func TestProcessorTimeIsBounded(t *testing.T) {
	t.Parallel()
	r := open(t)
	job := newJob(t, "spin")
	job.Limits.CPU = time.Second
	rec := r.Run(t.Context(), job)
	wantFailed(t, rec, fencepost.ReasonUnavailable, runner.ErrSignalled)
	if rec.Exit == nil || rec.Exit.User+rec.Exit.System > 3*time.Second {
		t.Errorf("exit %+v", rec.Exit)
	}
}

func TestInterpretersWork(t *testing.T) {
	t.Parallel()
	r := open(t)
	job := newJob(t, "none")
	script := []byte("#!/bin/sh\necho not seen\ncat request.json >/tmp/copy && cmp -s copy request.json && exit 7\nexit 8\n")
	if err := os.WriteFile(filepath.Join(job.Action.Root(), "check.sh"), script, 0o400); err != nil {
		t.Fatal(err)
	}
	job.Program, job.ProgramSHA256 = "check.sh", check.DigestOf(script)
	rec := r.Run(t.Context(), job)
	wantFailed(t, rec, fencepost.ReasonMissingOutput, runner.ErrOutput)
	if rec.Exit == nil || rec.Exit.Status != 7 {
		t.Errorf("exit %+v, want status 7", rec.Exit)
	}
	if got := seen(t, r.Run(t.Context(), newJob(t, "shell"))); got[0] != "ok" {
		t.Errorf("a program that starts a shell: %s", got[0])
	}
}

func TestWhatIsNoProgramCannotBeStarted(t *testing.T) {
	t.Parallel()
	r := open(t)
	for name, text := range map[string]string{"text": "hello", "interpreter": "#!/no/such\n", "empty": ""} {
		job := newJob(t, "none")
		path := filepath.Join(job.Action.Root(), "broken")
		if err := os.WriteFile(path, []byte(text), 0o400); err != nil {
			t.Fatal(err)
		}
		job.Program, job.ProgramSHA256 = "broken", check.DigestOf([]byte(text))
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			wantFailed(t, r.Run(t.Context(), job), fencepost.ReasonUnavailable, runner.ErrSpawn)
		})
	}
}

func TestProgramCannotChangeItself(t *testing.T) {
	t.Parallel()
	r := open(t)
	for i, got := range seen(t, r.Run(t.Context(), newJob(t, "tamper"))) {
		if got == "ok" {
			t.Errorf("attempt %d succeeded", i)
		}
	}
}

// Every protection is on here, so that none can go missing unnoticed.
func TestRecordNamesEveryProtection(t *testing.T) {
	t.Parallel()
	r := open(t)
	rec := r.Run(t.Context(), newJob(t, "pass"))
	var names []runner.Protection
	for _, p := range rec.Protections {
		names = append(names, p.Protection)
		if !p.On {
			t.Errorf("%s is off", p.Protection)
		}
	}
	if !slices.Equal(names, runner.Protections()) {
		t.Errorf("record names %v", names)
	}
}

func protection(rec runner.Record, p runner.Protection) runner.ProtectionState {
	for _, s := range rec.Protections {
		if s.Protection == p {
			return s
		}
	}
	return runner.ProtectionState{}
}
