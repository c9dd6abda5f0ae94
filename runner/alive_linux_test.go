package runner_test

import (
	"crypto/rand"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// newMark is a word that only the processes of one test have among their
// arguments.
func newMark() string { return "mark-" + rand.Text() }

// alive counts the processes of the machine that carry the mark, zombies too.
func alive(t testing.TB, mark string) int {
	t.Helper()
	paths, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no processes found: %v", err)
	}
	n := 0
	for _, path := range paths {
		// A process may end between the listing and the reading.
		if b, err := os.ReadFile(path); err == nil && strings.Contains(string(b), mark) {
			n++
		}
	}
	return n
}

// eventually waits for a condition of the outside world, for at most ten
// seconds.
func eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if holds() {
			return
		}
	}
	t.Fatalf("%s: not within ten seconds", what)
}
