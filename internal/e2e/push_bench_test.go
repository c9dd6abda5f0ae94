package e2e

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fencepost/fencepost/internal/forgesim"
	"github.com/fencepost/fencepost/internal/trial/world"
)

// gitSync is an executable of kubernetes/git-sync to measure beside; without
// it Fencepost is measured alone.
func gitSync() string { return os.Getenv("GIT_SYNC") }

// BenchmarkPushToSwitch is the time from a push of three small files, whose
// webhook the forge sends at once, until readers of the served directory see
// them. With GIT_SYNC, the same commit is then fetched by git-sync from the
// same Git server, signalled right after the push as a hook of its would.
func BenchmarkPushToSwitch(b *testing.B) {
	for _, size := range []struct {
		name        string
		files, each int
	}{{"10MB", 1000, 10 << 10}, {"123MB", 3000, 41 << 10}} {
		b.Run(size.name, func(b *testing.B) { benchmarkPush(b, size.files, size.each) })
	}
}

func benchmarkPush(b *testing.B, files, each int) {
	w := newWorld(b, world.Config{YAML: quick, Source: &world.SourceConfig{
		Repository: forgesim.Import{Source: bigTree(b, files, each), Public: true},
		YAML:       "    fetch: {total: 60s}\n",
	}})
	if err := serves(b, filepath.Join(w.Served(), "pushed"), "0"); err != nil {
		b.Fatal(err)
	}
	repack(b, w)
	peer := startGitSync(b, w)
	var ours, theirs []time.Duration
	n := 0
	for b.Loop() {
		n++
		text := fmt.Sprint(n)
		if _, err := w.Handbook.Push(b.Context(), forgesim.Push{Change: forgesim.Change{Files: map[string]string{
			"pushed": text, "d000/f00001": text, "d001/f00101": text,
		}}}); err != nil {
			b.Fatal(err)
		}
		began := time.Now()
		if err := serves(b, filepath.Join(w.Served(), "pushed"), text); err != nil {
			b.Fatal(err)
		}
		ours = append(ours, time.Since(began))
		settle(b, w)
		if peer != nil {
			theirs = append(theirs, peer.sync(b, text))
		}
	}
	b.ReportMetric(quantile(ours, 50), "push-p50-ms")
	b.ReportMetric(quantile(ours, 90), "push-p90-ms")
	if peer != nil {
		b.ReportMetric(quantile(theirs, 50), "git-sync-p50-ms")
		b.ReportMetric(quantile(ours, 50)/quantile(theirs, 50), "ratio")
	}
	b.ReportMetric(0, "ns/op")
}

// repack makes of the forge's loose objects a pack, as every host does: else
// the server's compressing would be most of what is measured.
func repack(b *testing.B, w *world.World) {
	b.Helper()
	cmd := exec.CommandContext(b.Context(), "git", "-C", w.Handbook.GitDir(), "repack", "-adq")
	if out, err := cmd.CombinedOutput(); err != nil {
		b.Fatalf("repack: %v: %s", err, out)
	}
}

// bigTree is a directory of files that don't compress well.
func bigTree(b *testing.B, files, each int) string {
	b.Helper()
	dir := b.TempDir()
	rng := rand.New(rand.NewPCG(1, uint64(files)))
	raw := make([]byte, each*3/4)
	for i := range files {
		for j := range raw {
			raw[j] = byte(rng.Uint32())
		}
		name := filepath.Join(dir, fmt.Sprintf("d%03d", i/100), fmt.Sprintf("f%05d", i))
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			b.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(base64.StdEncoding.EncodeToString(raw)), 0o644); err != nil {
			b.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "pushed"), []byte("0"), 0o644); err != nil {
		b.Fatal(err)
	}
	return dir
}

// serves waits until a file has a text.
func serves(tb testing.TB, name, text string) error {
	for deadline := time.Now().Add(2 * time.Minute); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		if got, err := os.ReadFile(name); err == nil && string(got) == text {
			return nil
		}
	}
	return fmt.Errorf("%s is not served: %w", text, world.ErrAwaited)
}

// settle waits until the run has ended, so that nothing of it is left to do.
func settle(b *testing.B, w *world.World) {
	b.Helper()
	if _, err := world.Await(b.Context(), time.Minute, func() (struct{}, bool, error) {
		s, _, err := w.State(b.Context())
		return struct{}{}, s.Run == nil && s.UnmetSince.IsZero(), err
	}); err != nil {
		b.Fatal(err)
	}
}

// A gitSyncing is a running git-sync.
type gitSyncing struct {
	cmd  *exec.Cmd
	link string
}

func startGitSync(b *testing.B, w *world.World) *gitSyncing {
	b.Helper()
	if gitSync() == "" {
		return nil
	}
	root := b.TempDir()
	g := &gitSyncing{link: filepath.Join(root, "link")}
	var log bytes.Buffer
	g.cmd = exec.Command(gitSync(), "--repo", w.Server.Git+"/"+w.Handbook.FullName()+".git", "--ref", w.Handbook.DefaultBranch(),
		"--root", filepath.Join(root, "root"), "--link", g.link, "--period", "1h", "--sync-on-signal", "SIGHUP", "--depth", "1")
	g.cmd.Stderr = &log
	if err := g.cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := g.cmd.Process.Kill(); err != nil {
			b.Error(err)
		}
		// Its status says that it was killed.
		_ = g.cmd.Wait()
	})
	if err := serves(b, filepath.Join(g.link, "pushed"), "0"); err != nil {
		b.Fatalf("git-sync: %v: %s", err, log.String())
	}
	return g
}

// sync tells git-sync of a push and waits until its link shows it.
func (g *gitSyncing) sync(b *testing.B, text string) time.Duration {
	b.Helper()
	began := time.Now()
	if err := g.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		b.Fatal(err)
	}
	if err := serves(b, filepath.Join(g.link, "pushed"), text); err != nil {
		b.Fatal("git-sync: ", err)
	}
	return time.Since(began)
}

// BenchmarkFromNothing is one checkout from nothing in a process of its own:
// `fencepost fetch`, and git-sync's --one-time with GIT_SYNC.
func BenchmarkFromNothing(b *testing.B) {
	for _, size := range []struct {
		name        string
		files, each int
	}{{"10MB", 1000, 10 << 10}, {"123MB", 3000, 41 << 10}} {
		b.Run(size.name, func(b *testing.B) { benchmarkFromNothing(b, size.files, size.each) })
	}
}

func benchmarkFromNothing(b *testing.B, files, each int) {
	w := newWorld(b, world.Config{YAML: quick, Source: &world.SourceConfig{
		Repository: forgesim.Import{Source: bigTree(b, files, each), Public: true},
		YAML:       "    enabled: false\n",
	}})
	repack(b, w)
	url := w.Server.Git + "/" + w.Handbook.FullName() + ".git"
	head := w.Handbook.Ref("refs/heads/" + w.Handbook.DefaultBranch())
	var ours, theirs []time.Duration
	var rss, theirRSS int64
	for b.Loop() {
		took, most := oneShot(b, exec.Command(w.Binary, "fetch", url, head, filepath.Join(b.TempDir(), "out"), "--allow-http"))
		ours, rss = append(ours, took), max(rss, most)
		if gitSync() != "" {
			root := b.TempDir()
			took, most := oneShot(b, exec.Command(gitSync(), "--repo", url, "--ref", w.Handbook.DefaultBranch(),
				"--root", filepath.Join(root, "root"), "--link", filepath.Join(root, "link"), "--one-time", "--depth", "1"))
			theirs, theirRSS = append(theirs, took), max(theirRSS, most)
		}
	}
	b.ReportMetric(quantile(ours, 50), "fetch-p50-ms")
	b.ReportMetric(float64(rss)/1024, "fetch-MB")
	if len(theirs) > 0 {
		b.ReportMetric(quantile(theirs, 50), "git-sync-p50-ms")
		b.ReportMetric(float64(theirRSS)/1024, "git-sync-MB")
		b.ReportMetric(quantile(ours, 50)/quantile(theirs, 50), "ratio")
	}
	b.ReportMetric(0, "ns/op")
}

// oneShot runs a command to its end; most is the largest resident size, in
// KiB, of it or of one of its children.
func oneShot(b *testing.B, cmd *exec.Cmd) (took time.Duration, most int64) {
	b.Helper()
	began := time.Now()
	if out, err := cmd.CombinedOutput(); err != nil {
		b.Fatalf("%s: %v: %s", strings.Join(cmd.Args, " "), err, out)
	}
	took = time.Since(began)
	if usage, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage); ok {
		most = usage.Maxrss
	}
	return took, most
}
