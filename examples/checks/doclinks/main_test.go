package main

import (
	"debug/elf"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/google/go-cmp/cmp"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/examples/checks/doclinks/links"
	"github.com/fencepost/fencepost/runner/check"
)

// build makes the program as the Makefile does.
func build(t *testing.T) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "doclinks")
	cmd := exec.CommandContext(t.Context(), "go", "build", "-o", program, ".")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	return program
}

// A workdir is a program's working directory, as the controller makes it.
type workdir struct {
	dir     string
	request check.Request
}

func newWorkdir(t *testing.T, tree map[string]string) *workdir {
	t.Helper()
	w := &workdir{dir: t.TempDir()}
	commit, err := fencepost.ParseCommitID(strings.Repeat("ab", 20))
	if err != nil {
		t.Fatal(err)
	}
	id := fencepost.TreeID(commit)
	now := time.Now()
	w.request = check.Request{
		Schema: check.RequestSchema, Run: "evl_abc.1", Delivery: "dlv_aaaaaaaaaaaaaaaaaaaaaaaaaa",
		Repository: check.Repository{Provider: "github", ID: "1", Name: "acme/docs"},
		Base:       check.Base{Ref: "refs/heads/main", Commit: commit, Tree: id},
		Head:       check.Revision{Commit: commit, Tree: id},
		// One root is relative and one absolute: both are in the contract.
		Candidate: check.Candidate{Commit: commit, Tree: id, Root: "candidate"},
		Action:    check.Action{Commit: commit, Root: w.path("action"), ProgramSHA256: check.DigestOf([]byte("program"))},
		IssuedAt:  check.Time(now), Deadline: check.Time(now.Add(time.Minute)),
		Evidence: []check.Evidence{},
	}
	for name, text := range tree {
		write(t, w.path("candidate", name), text)
	}
	write(t, w.path(check.ReportFile), "")
	write(t, w.path(check.ResultFile), "")
	return w
}

func (w *workdir) path(parts ...string) string {
	return filepath.Join(append([]string{w.dir}, parts...)...)
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// run writes the request and runs the program with nothing around it. It
// returns the exit status, and the result if there is one.
func (w *workdir) run(t *testing.T, program string) (int, *check.Result) {
	t.Helper()
	raw, err := w.request.Encode()
	if err != nil {
		t.Fatal(err)
	}
	write(t, w.path(check.RequestFile), string(raw))
	cmd := exec.CommandContext(t.Context(), program)
	cmd.Dir, cmd.Env = w.dir, []string{}
	var exit *exec.ExitError
	if err := cmd.Run(); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	b := read(t, w.path(check.ResultFile))
	if len(b) == 0 {
		return cmd.ProcessState.ExitCode(), nil
	}
	result, err := check.DecodeResult(b)
	if err != nil {
		t.Fatalf("result: %v\n%s", err, b)
	}
	report := read(t, w.path(check.ReportFile))
	if err := check.ValidReport(report); err != nil {
		t.Errorf("report: %v\n%s", err, report)
	}
	if result.RequestSHA256 != check.DigestOf(raw) || result.ReportSHA256 != check.DigestOf(report) || result.Run != w.request.Run {
		t.Errorf("the result %+v is not of this request and report", result)
	}
	return cmd.ProcessState.ExitCode(), &result
}

// TestProgram runs the built program in directories as the runner makes them.
func TestProgram(t *testing.T) {
	t.Parallel()
	program := build(t)
	isStatic(t, program)
	t.Run("report and summary", func(t *testing.T) {
		t.Parallel()
		reports(t, program)
	})
	good := map[string]string{"README.md": "# Shop\n\n[a](docs/a.md#a)\n", "docs/a.md": "# A\n\n[up](../README.md)\n"}
	for name, c := range map[string]struct {
		tree   map[string]string
		change func(*testing.T, *workdir)
		exit   int
		title  string
	}{
		"pass":     {good, nil, check.ExitPass, "All 2 links lead somewhere"},
		"no pages": {map[string]string{"main.go": "package main"}, nil, check.ExitPass, "No links to follow"},
		"block": {map[string]string{"README.md": "[a](docs/a.md#b) ![b](b.png)", "docs/a.md": "# A\n[x](../../up)"}, nil,
			check.ExitBlock, "3 broken links in 2 files"},
		"the deadline is near": {good, func(_ *testing.T, w *workdir) {
			w.request.IssuedAt = check.Time(time.Now().Add(-time.Minute))
			w.request.Deadline = check.Time(time.Now())
		}, check.ExitBlock, "Out of time before every link was followed"},
		"a symbolic link out of the tree": {map[string]string{"README.md": "[a](out/secret.md#secret)"}, func(t *testing.T, w *workdir) {
			write(t, w.path("outside", "secret.md"), "# Secret")
			if err := os.Symlink("../outside", w.path("candidate", "out")); err != nil {
				t.Fatal(err)
			}
		}, check.ExitBlock, "1 broken link in 1 file"},
		"no candidate": {good, func(_ *testing.T, w *workdir) { w.request.Candidate.Root = "nowhere" }, check.ExitFailed, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorkdir(t, c.tree)
			if c.change != nil {
				c.change(t, w)
			}
			exit, result := w.run(t, program)
			if exit != c.exit {
				t.Errorf("exit status %d, want %d", exit, c.exit)
			}
			switch {
			case c.title == "" && result != nil:
				t.Errorf("a result was written: %+v", result)
			case c.title != "" && (result == nil || result.Title != c.title || result.Conclusion.ExitStatus() != c.exit):
				t.Errorf("result = %+v, want the title %q", result, c.title)
			}
		})
	}
}

// reports holds what a block leaves in both files.
func reports(t *testing.T, program string) {
	t.Helper()
	w := newWorkdir(t, map[string]string{"README.md": "# A\n\n[a](b.md)\n"})
	if exit, result := w.run(t, program); exit != check.ExitBlock || result == nil ||
		result.Summary != "| where | link | why |\n| --- | --- | --- |\n| `README.md:3` | `b.md` | no such file or directory |\n" {
		t.Errorf("exit status %d, result %+v", exit, result)
	}
	var got links.Report
	if err := json.Unmarshal(read(t, w.path(check.ReportFile)), &got, json.RejectUnknownMembers(true)); err != nil {
		t.Fatal(err)
	}
	want := links.Report{
		Schema: links.ReportSchema, Files: 1, Links: 1, Broken: 1, BrokenFiles: 1,
		Findings: []links.Finding{{File: "README.md", Line: 3, Link: "b.md", Why: links.WhyMissing}},
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(links.Finding{})); diff != "" {
		t.Errorf("report (-want +got):\n%s", diff)
	}
}

// isStatic holds that the program needs no file of the system around it: the
// sandbox may show it none.
func isStatic(t *testing.T, program string) {
	t.Helper()
	if runtime.GOOS != "linux" {
		return
	}
	f, err := elf.Open(program)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP || p.Type == elf.PT_DYNAMIC {
			t.Errorf("the program has a %v", p.Type)
		}
	}
}
