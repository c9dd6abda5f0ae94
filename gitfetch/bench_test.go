package gitfetch_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/gitfetch"
	"github.com/fencepost/fencepost/gitfetch/internal/gitserver"
)

// benchRepo is 2,000 files of some 8 KiB in 200 directories.
func benchRepo(b *testing.B) (*gitserver.Repo, fencepost.CommitID) {
	b.Helper()
	rnd := rand.New(rand.NewPCG(1, 2))
	var entries []gitserver.Entry
	for i := range 2000 {
		var text strings.Builder
		for range 180 {
			fmt.Fprintf(&text, "line %d of something like source, word %x\n", rnd.IntN(50), rnd.Uint32())
		}
		entries = append(entries, gitserver.Entry{Path: fmt.Sprintf("d%03d/f%d", i%200, i), Content: text.String()})
	}
	repo := gitserver.New(b).Repo(b, "r.git")
	commit := repo.Commit(b, "main", entries)
	// As a server keeps it: or else it looks for deltas at each fetch.
	repo.Git(b, "repack", "-adq")
	return repo, commit
}

// BenchmarkFetch and BenchmarkGitClone do the same job from the same server:
// one commit's files in a new directory.
func BenchmarkFetch(b *testing.B) {
	repo, commit := benchRepo(b)
	dir := b.TempDir()
	n := 0
	for b.Loop() {
		n++
		c, err := gitfetch.Fetch(b.Context(), gitfetch.Request{
			URL: repo.URL, Commit: commit, AllowHTTP: true, Dir: filepath.Join(dir, fmt.Sprint(n)),
		})
		if err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		if err := c.Remove(); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
}

func BenchmarkGitClone(b *testing.B) {
	repo, _ := benchRepo(b)
	dir := b.TempDir()
	n := 0
	for b.Loop() {
		n++
		to := filepath.Join(dir, fmt.Sprint(n))
		cmd := exec.CommandContext(b.Context(), "git", "clone", "-q", "--depth=1", repo.URL, to)
		cmd.Env = append(os.Environ(), "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL="+os.DevNull)
		if out, err := cmd.CombinedOutput(); err != nil {
			b.Fatalf("%v\n%s", err, out)
		}
		b.StopTimer()
		if err := os.RemoveAll(to); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
}

func BenchmarkVerify(b *testing.B) {
	repo, commit := benchRepo(b)
	c, err := gitfetch.Fetch(b.Context(), gitfetch.Request{
		URL: repo.URL, Commit: commit, AllowHTTP: true, Dir: filepath.Join(b.TempDir(), "c"),
	})
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if err := c.Verify(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
}
