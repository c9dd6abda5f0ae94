//go:build unix

package runner_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/fencepost/fencepost/runner/check"
)

// This file is the program that runs: the test binary under another name. What
// it finds out it tells as the report of a pass.

// isProgram reports whether this process was started by a runner as a program.
func isProgram() bool { return filepath.Base(os.Args[0]) == "program" }

// program does what the candidate's script says.
func program() int {
	req, script, err := readScript()
	if err != nil {
		return 90
	}
	act, ok := acts[script[0]]
	if !ok {
		return 91
	}
	return act(req, script[1:])
}

func readScript() (*check.Request, []string, error) {
	raw, err := os.ReadFile(check.RequestFile)
	if err != nil {
		return nil, nil, err
	}
	req, err := check.DecodeRequest(raw)
	if err != nil {
		return nil, nil, err
	}
	script, err := os.ReadFile(filepath.Join(req.Candidate.Root, "script"))
	if err != nil {
		return nil, nil, err
	}
	return &req, strings.Fields(string(script)), nil
}

// conclude leaves the verdict as an honest check does.
func conclude(v check.Verdict) int {
	return check.Main(context.Background(), func(context.Context, *check.Request) (check.Verdict, error) { return v, nil })
}

// tell passes with observations as the report.
func tell(seen ...string) int { return conclude(check.Pass("Observed", "").WithReport(seen)) }

// word is how an attempt ended: "ok", or the system's error.
func word(err error) string {
	if err == nil {
		return "ok"
	}
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		return errno.Error()
	}
	return "error"
}

// acts are the scripts' first words.
var acts = map[string]func(req *check.Request, args []string) int{
	"pass":  func(*check.Request, []string) int { return conclude(check.Pass("All is well", "")) },
	"block": func(*check.Request, []string) int { return conclude(check.Block("Not well", "- because")) },
	// exit STATUS: without a result.
	"exit": func(_ *check.Request, a []string) int { return number(a[0]) },
	// passthen STATUS: a pass, and another status.
	"passthen":  func(_ *check.Request, a []string) int { conclude(check.Pass("x", "")); return number(a[0]) },
	"blockthen": func(_ *check.Request, a []string) int { conclude(check.Block("x", "")); return number(a[0]) },
	// signal NUMBER: sends it to itself, after a pass.
	"signal": func(_ *check.Request, a []string) int {
		conclude(check.Pass("x", ""))
		return raise(syscall.Signal(number(a[0])))
	},
	// sleep: ignores what can be ignored, for ever.
	"sleep": func(*check.Request, []string) int { return sleep() },
	// descend MARK COUNT: leaves that many daemons and passes.
	"descend": func(_ *check.Request, a []string) int {
		return descend(a[0], number(a[1]), func(started int) int { return tell(strconv.Itoa(started)) })
	},
	// descendsleep MARK COUNT: leaves daemons and never ends.
	"descendsleep": func(_ *check.Request, a []string) int {
		return descend(a[0], number(a[1]), func(int) int { return sleep() })
	},
	// bomb MARK: starts daemons, which start daemons, until it can't.
	"bomb": func(_ *check.Request, a []string) int {
		return descend(a[0], 10_000, func(started int) int { return tell(strconv.Itoa(started)) })
	},
	"result":  func(_ *check.Request, a []string) int { return spoiledResult(a[0]) },
	"replace": func(_ *check.Request, a []string) int { return replaceOutput(a[0], a[1]) },
	"write":   func(_ *check.Request, a []string) int { return tell(tryWrites(a)...) },
	"read":    func(_ *check.Request, a []string) int { return tell(tryReads(a)...) },
	"list":    func(_ *check.Request, a []string) int { return tell(listing(a[0])...) },
	"stdio":   func(*check.Request, []string) int { return tell(stdio()...) },
	"files":   func(*check.Request, []string) int { return tell(strconv.Itoa(openFiles())) },
	"fill":    func(_ *check.Request, a []string) int { return fill(number(a[0])) },
	"hog":     func(*check.Request, []string) int { return hog() },
	"spin":    func(*check.Request, []string) int { return spin() },
	// tamper: changes the program file, as far as it is let.
	"tamper": func(*check.Request, []string) int { return tell(tamperProgram()...) },
	// mess: leaves a tree that its owner can't enter.
	"mess":  func(*check.Request, []string) int { return tell(mess()...) },
	"shell": func(*check.Request, []string) int { return tell(word(exec.Command("/bin/sh", "-c", "exit 0").Run())) },
}

func number(s string) int {
	n, err := strconv.Atoi(s)
	if err != nil {
		return 92
	}
	return n
}

func raise(sig syscall.Signal) int {
	if err := syscall.Kill(os.Getpid(), sig); err != nil {
		return 93
	}
	for {
		time.Sleep(time.Hour)
	}
}

func sleep() int {
	signal.Ignore(syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT)
	for {
		time.Sleep(time.Hour)
	}
}

// descend starts daemons and goes on with how many it could start.
func descend(mark string, count int, then func(started int) int) int {
	started := 0
	for range count {
		// Double fork: the child is a session leader, starts a grandchild in a
		// session of its own, and ends. The mark is the daemon's name.
		cmd := exec.Command("/bin/sh", "-c", `setsid /bin/sh -c 'trap "" TERM INT HUP; tail -f /dev/null; :' `+mark+" & exit 0")
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		if cmd.Run() != nil {
			break
		}
		started++
	}
	return then(started)
}

// spoiledResult writes a result that is wrong in one way, and exits as a pass.
func spoiledResult(how string) int {
	conclude(check.Pass("x", ""))
	b, err := os.ReadFile(check.ResultFile)
	if err != nil {
		return 95
	}
	good := string(b)
	edited := map[string]string{
		"torn":       good[:len(good)-2],
		"duplicate":  strings.Replace(good, "{", `{"conclusion":"pass",`, 1),
		"unknown":    strings.Replace(good, "{", `{"extra":true,`, 1),
		"trailing":   good + good,
		"utf8":       strings.Replace(good, `"x"`, "\"\xff\"", 1),
		"run":        strings.Replace(good, "evl_test.1", "evl_test.2", 1),
		"huge":       good + strings.Repeat(" ", check.MaxResultBytes),
		"title":      strings.Replace(good, `"x"`, `"`+strings.Repeat("x", 200)+`"`, 1),
		"conclusion": strings.Replace(good, `"pass"`, `"block"`, 1),
	}
	switch how {
	case "request", "report":
		name := how + "_sha256"
		at := strings.Index(good, name) + len(name) + 3
		edited[how] = good[:at] + strings.Repeat("1", 64) + good[at+64:]
	case "hugereport":
		return word2(os.WriteFile(check.ReportFile, []byte(`"`+strings.Repeat("a", check.MaxReportBytes)+`"`), 0o600))
	case "sparse":
		return word2(os.Truncate(check.ReportFile, 60<<20))
	case "badreport":
		return rewriteReport(`{"a":1,"a":2}`)
	case "emptyreport":
		return rewriteReport("")
	}
	text, ok := edited[how]
	if !ok {
		return 96
	}
	return word2(os.WriteFile(check.ResultFile, []byte(text), 0o600))
}

// rewriteReport leaves a report whose digest agrees.
func rewriteReport(text string) int {
	b, err := os.ReadFile(check.ResultFile)
	if err != nil {
		return 95
	}
	result, err := check.DecodeResult(b)
	if err != nil {
		return 95
	}
	result.ReportSHA256 = check.DigestOf([]byte(text))
	if b, err = result.Encode(); err != nil {
		return 95
	}
	return max(word2(os.WriteFile(check.ReportFile, []byte(text), 0o600)), word2(os.WriteFile(check.ResultFile, b, 0o600)))
}

func word2(err error) int {
	if err != nil {
		return 97
	}
	return 0
}

// replaceOutput puts something else under an output's name, after a pass.
func replaceOutput(how, name string) int {
	conclude(check.Pass("x", ""))
	b, err := os.ReadFile(name)
	if err != nil {
		return 95
	}
	if err := os.WriteFile("other", b, 0o600); err != nil {
		return 95
	}
	switch how {
	case "rename":
		err = os.Rename("other", name)
	case "remove":
		err = os.Remove(name)
	case "recreate":
		err = errors.Join(os.Remove(name), os.WriteFile(name, b, 0o600))
	case "symlink":
		err = errors.Join(os.Remove(name), os.Symlink("other", name))
	case "hardlink":
		err = errors.Join(os.Remove(name), os.Link("other", name))
	case "directory":
		err = errors.Join(os.Remove(name), os.Mkdir(name, 0o700))
	case "alias":
		// A second name for the same file replaces nothing.
		err = os.Link(name, "alias")
	}
	return word2(err)
}

// tryWrites tries to change what is not the program's to change.
func tryWrites(paths []string) []string {
	var seen []string
	for _, path := range paths {
		f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE, 0o600)
		if err == nil {
			_, err = f.WriteString("x")
			err = errors.Join(err, f.Close())
		}
		seen = append(seen, word(err))
	}
	return seen
}

func tryReads(paths []string) []string {
	var seen []string
	for _, path := range paths {
		_, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrPermission) {
			err = syscall.EACCES
		}
		seen = append(seen, word(err))
	}
	return seen
}

func listing(dir string) []string {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return []string{word(err)}
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// stdio tells what is inherited: standard files, further descriptors,
// environment, umask.
func stdio() []string {
	null, err := os.Stat(os.DevNull)
	seen := []string{word(err)}
	for _, f := range []*os.File{os.Stdin, os.Stdout, os.Stderr} {
		info, err := f.Stat()
		seen = append(seen, strconv.FormatBool(err == nil && os.SameFile(info, null)))
	}
	// The runtime's own descriptors come first: what is above them would be
	// inherited.
	extra := 0
	for fd := 3; fd < 200; fd++ {
		var st syscall.Stat_t
		if syscall.Fstat(fd, &st) == nil && !ownDescriptor(fd) {
			extra++
		}
	}
	dir, err := os.Getwd()
	return append(seen, strconv.Itoa(extra), fmt.Sprint(len(os.Environ())), dir, word(err), fmt.Sprintf("%03o", syscall.Umask(0)))
}

// ownDescriptor reports whether the Go runtime made it: it closes all of its
// own on exec, and what was inherited was not closed.
func ownDescriptor(fd int) bool {
	flags, _, errno := syscall.Syscall(syscall.SYS_FCNTL, uintptr(fd), syscall.F_GETFD, 0)
	return errno == 0 && flags&syscall.FD_CLOEXEC != 0
}

func openFiles() int {
	var fds []int
	for {
		fd, err := syscall.Open("/dev/null", syscall.O_RDONLY, 0)
		if err != nil {
			break
		}
		fds = append(fds, fd)
	}
	for _, fd := range fds {
		_ = syscall.Close(fd)
	}
	return len(fds)
}

// fill writes files of so many MiB until there is no room, and tells how much
// there was.
func fill(size int) int {
	block := make([]byte, 1<<20)
	total := 0
	var last error
	for n := 0; last == nil && n < 1000; n++ {
		f, err := os.Create("fill" + strconv.Itoa(n))
		if err != nil {
			last = err
			break
		}
		for range size {
			if _, last = f.Write(block); last != nil {
				break
			}
			total++
		}
		last = errors.Join(last, f.Close())
	}
	for n := range 1000 {
		if os.Remove("fill"+strconv.Itoa(n)) != nil {
			break
		}
	}
	return tell(strconv.Itoa(total), word(last))
}

func hog() int {
	var kept [][]byte
	for {
		b := make([]byte, 1<<20)
		for i := 0; i < len(b); i += 4096 {
			b[i] = 1
		}
		kept = append(kept, b)
		if len(kept) > 100_000 {
			return 98
		}
	}
}

func spin() int {
	for n := 0; ; n++ {
		if n < 0 {
			return 99
		}
	}
}

func mess() []string {
	err := errors.Join(
		os.MkdirAll("a/b/c", 0o700), os.WriteFile("a/b/f", nil, 0),
		os.Symlink("/etc", "a/b/link"), os.Chmod("a/b", 0), os.Chmod("a", 0o100), os.Chmod(".", 0o500))
	return []string{word(err)}
}

func tamperProgram() []string {
	var seen []string
	seen = append(seen, word(os.Chmod(os.Args[0], 0o700)))
	f, err := os.OpenFile(os.Args[0], os.O_WRONLY|os.O_APPEND, 0)
	if err == nil {
		_, err = f.WriteString("x")
		err = errors.Join(err, f.Close())
	}
	return append(seen, word(err), word(os.Rename(os.Args[0], os.Args[0]+"2")))
}
