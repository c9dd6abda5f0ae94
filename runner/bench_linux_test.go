package runner_test

import (
	"bytes"
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/fencepost/fencepost/runner"
	"github.com/fencepost/fencepost/runner/check"
)

// exitZero is the smallest program there is: it exits with status 0. Nothing
// of what is measured is the program's own.
func exitZero(t testing.TB) []byte {
	t.Helper()
	var machine uint16
	var code []byte
	switch runtime.GOARCH {
	case "amd64":
		machine = 62
		// xor edi, edi; mov eax, 60; syscall
		code = []byte{0x31, 0xff, 0xb8, 60, 0, 0, 0, 0x0f, 0x05}
	case "arm64":
		machine = 183
		// mov x0, #0; mov x8, #93; svc #0
		code = []byte{0x00, 0x00, 0x80, 0xd2, 0xa8, 0x0b, 0x80, 0xd2, 0x01, 0x00, 0x00, 0xd4}
	default:
		t.Skipf("no machine code for %s", runtime.GOARCH)
	}
	const base, headers = 0x400000, 64 + 56
	var b bytes.Buffer
	b.WriteString("\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00")
	size := uint64(headers + len(code))
	for _, v := range []any{
		// ELF header: type, machine, version, entry, program headers, section
		// headers, flags, sizes and counts.
		uint16(2), machine, uint32(1), uint64(base + headers), uint64(64), uint64(0), uint32(0),
		uint16(64), uint16(56), uint16(1), uint16(0), uint16(0), uint16(0),
		// One segment to load, readable and executable.
		uint32(1), uint32(5), uint64(0), uint64(base), uint64(base), size, size, uint64(0x1000),
	} {
		if err := binary.Write(&b, binary.LittleEndian, v); err != nil {
			t.Fatal(err)
		}
	}
	b.Write(code)
	return b.Bytes()
}

// nothingJob is a run of the smallest program.
func nothingJob(b *testing.B) runner.Job {
	b.Helper()
	job := newJob(b, "none")
	program := exitZero(b)
	path := filepath.Join(job.Action.Root(), "bin", "nothing")
	if err := os.WriteFile(path, program, 0o500); err != nil {
		b.Fatal(err)
	}
	job.Program, job.ProgramSHA256 = "bin/nothing", check.DigestOf(program)
	return job
}

// BenchmarkRun is one whole run of a program that does nothing. Its pair is
// [BenchmarkBareNamespaces]; the project's target is three times that.
func BenchmarkRun(b *testing.B) {
	r := open(b)
	job := nothingJob(b)
	for b.Loop() {
		rec := r.Run(b.Context(), job)
		if rec.Exit == nil || rec.Exit.Status != 0 || rec.Cleanup != nil {
			b.Fatalf("record %+v", rec)
		}
	}
}

// BenchmarkBareNamespaces forks and executes the same program in the same
// namespaces, with nothing around it.
func BenchmarkBareNamespaces(b *testing.B) {
	job := nothingJob(b)
	path := filepath.Join(job.Action.Root(), job.Program)
	ids := []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}}
	gids := []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}}
	for b.Loop() {
		cmd := exec.Cmd{Path: path, Env: []string{}, SysProcAttr: &syscall.SysProcAttr{
			Cloneflags:  unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNS | unix.CLONE_NEWNET | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS,
			UidMappings: ids, GidMappings: gids,
		}}
		if err := cmd.Run(); err != nil {
			b.Fatal(err)
		}
	}
}
