package mutation

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
)

// root is the module's, from here.
const root = "../.."

// least is how many faults there are to be.
const least = 20

func mutants(t *testing.T) []Mutant {
	t.Helper()
	b, err := os.ReadFile("mutants.txt")
	if err != nil {
		t.Fatal(err)
	}
	all, err := Parse(string(b))
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < least {
		t.Fatalf("%d mutants, want %d", len(all), least)
	}
	return all
}

// TestEveryMutantCanBeMade: each old text is there once, and each test exists.
func TestEveryMutantCanBeMade(t *testing.T) {
	t.Parallel()
	names := map[string]bool{}
	for _, m := range mutants(t) {
		if names[m.Name] {
			t.Errorf("two mutants are called %s", m.Name)
		}
		names[m.Name] = true
		b, err := os.ReadFile(filepath.Join(root, m.File))
		if err != nil {
			t.Errorf("mutant %s: %v", m.Name, err)
			continue
		}
		if after, err := m.Apply(string(b)); err != nil {
			t.Error(err)
		} else if after == string(b) {
			t.Errorf("mutant %s changes nothing", m.Name)
		}
		test, _, _ := strings.Cut(m.Test, "/")
		if !defined(t, filepath.Join(root, m.Package), test) {
			t.Errorf("mutant %s: there is no %s in %s", m.Name, test, m.Package)
		}
	}
}

// defined reports whether a package has a test of that name.
func defined(t *testing.T, dir, test string) bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(b), "\nfunc "+test+"(") {
			return true
		}
	}
	return false
}

// TestTheTableIsDocumented: docs/reliability.md has each mutant's row, and no
// other, in this order.
func TestTheTableIsDocumented(t *testing.T) {
	t.Parallel()
	b, err := os.ReadFile(filepath.Join(root, "docs/reliability.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, section, ok := strings.Cut(string(b), "\n| fault | in | caught by |\n| --- | --- | --- |\n")
	if !ok {
		t.Fatal("docs/reliability.md has no table of faults")
	}
	var got []string
	for line := range strings.SplitSeq(section, "\n") {
		if !strings.HasPrefix(line, "|") {
			break
		}
		got = append(got, line)
	}
	var want []string
	for _, m := range mutants(t) {
		want = append(want, m.Row())
	}
	if !slices.Equal(got, want) {
		t.Errorf("the table of faults in docs/reliability.md is not that of mutants.txt; it should be:\n%s", strings.Join(want, "\n"))
	}
}

func TestParseRefusesWhatIsNoTable(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"no mutant":   "what x\n",
		"no end":      "mutant a\nwhat b\nfile c\ntest d e\n---\nold\n+++\nnew\n",
		"no test":     "mutant a\nwhat b\nfile c\n---\nold\n+++\n===\n",
		"a new word":  "mutant a\nwhy b\n",
		"a loose end": "===\n",
	} {
		if all, err := Parse(text); err == nil {
			t.Errorf("%s: %+v, want an error", name, all)
		}
	}
	m := Mutant{Name: "m", File: "f", Edits: []Edit{{Old: "a", New: "b"}}}
	for _, text := range []string{"", "aa"} {
		if _, err := m.Apply(text); err == nil {
			t.Errorf("applied to %q, which has not exactly one a", text)
		}
	}
	if got, err := m.Apply("cat"); err != nil || got != "cbt" {
		t.Errorf("Apply = %q, %v", got, err)
	}
}

// mutantTime bounds the test of one mutant.
const mutantTime = 10 * time.Minute

// TestEachMutantIsCaught makes every fault and runs its test, which must fail.
// FENCEPOST_MUTATE is a regular expression of names, "." for all.
func TestEachMutantIsCaught(t *testing.T) {
	pattern := os.Getenv("FENCEPOST_MUTATE")
	if pattern == "" {
		t.Skip("make mutate runs it: it builds and tests a package for each of the faults")
	}
	want := regexp.MustCompile(pattern)
	slots := make(chan struct{}, max(1, runtime.GOMAXPROCS(0)))
	caught := 0
	t.Run("all", func(t *testing.T) {
		for _, m := range mutants(t) {
			if !want.MatchString(m.Name) {
				continue
			}
			caught++
			t.Run(m.Name, func(t *testing.T) {
				t.Parallel()
				slots <- struct{}{}
				defer func() { <-slots }()
				m.mustBeCaught(t)
			})
		}
	})
	if caught == 0 {
		t.Fatalf("no mutant matches %q", pattern)
	}
	t.Logf("%d mutants", caught)
}

func (m Mutant) mustBeCaught(t *testing.T) {
	t.Helper()
	file, err := filepath.Abs(filepath.Join(root, m.File))
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	text, err := m.Apply(string(b))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	altered, overlay := filepath.Join(dir, "altered.go"), filepath.Join(dir, "overlay.json")
	j, err := json.Marshal(map[string]any{"Replace": map[string]string{file: altered}})
	if err := errors.Join(err, os.WriteFile(altered, []byte(text), 0o600), os.WriteFile(overlay, j, 0o600)); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), mutantTime)
	defer cancel()
	var run []string
	for part := range strings.SplitSeq(m.Test, "/") {
		run = append(run, "^"+regexp.QuoteMeta(part)+"$")
	}
	cmd := exec.CommandContext(ctx, "go", "test", "-overlay", overlay, "-count", "1", "-failfast", "-timeout", "8m",
		"-run", strings.Join(run, "/"), m.Package)
	cmd.Dir = root
	began := time.Now()
	out, err := cmd.CombinedOutput()
	exit, failed := errors.AsType[*exec.ExitError](err)
	switch {
	case err == nil:
		t.Errorf("%s: %s notices nothing", m.What, m.Test)
	case !failed || exit.ExitCode() != 1 || strings.Contains(string(out), "[build failed]"):
		t.Errorf("%s: not tested: %v\n%.2000s", m.What, err, out)
	case !strings.Contains(string(out), "--- FAIL: "+strings.Split(m.Test, "/")[0]) && !strings.Contains(string(out), "running tests:\n\t"+strings.Split(m.Test, "/")[0]):
		t.Errorf("%s: it is not %s that fails:\n%.2000s", m.What, m.Test, out)
	default:
		t.Logf("%s: caught by %s in %v", m.What, m.Test, time.Since(began).Round(time.Second))
	}
}
