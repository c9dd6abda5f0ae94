package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/gitfetch"
	git "github.com/go-git/go-git/v5"
)

// A tool gets one commit's files into a new directory, in a process of its own.
type tool struct {
	name string
	args func(url, commit, dir string) []string
}

func tools(self, binary, linked, copied string) []tool {
	as := func(name string) func(url, commit, dir string) []string {
		return func(url, commit, dir string) []string { return []string{self, "-as", name, url, commit, dir} }
	}
	onTop := func(earlier string) func(url, commit, dir string) []string {
		return func(url, commit, dir string) []string {
			return []string{self, "-as", "again", "-have", earlier, url, commit, dir}
		}
	}
	all := []tool{
		{"gitfetch", as("gitfetch")},
		{"gitfetch, synced", as("synced")},
		{"gitfetch, 50 changed, linked", onTop(linked)},
		{"gitfetch, 50 changed, copied", onTop(copied)},
		{"git clone --depth 1", func(url, _, dir string) []string { return []string{"git", "clone", "-q", "--depth=1", url, dir} }},
		{"go-git v5", as("go-git")},
	}
	if binary != "" {
		all = append(all, tool{"fencepost fetch, synced", func(url, commit, dir string) []string {
			return []string{binary, "fetch", "--allow-http", url, commit, dir}
		}})
	}
	return all
}

// A cost is what one process took.
type cost struct {
	wall, cpu time.Duration
	peak      int64 // bytes resident at most
}

func (t tool) run(url, commit, dir string) (cost, error) {
	args := t.args(url, commit, dir)
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Env = gitEnv()
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	begun := time.Now()
	err := cmd.Run()
	c := cost{wall: time.Since(begun)}
	if cmd.ProcessState != nil {
		// Where it has children (git has), they count: the largest of them, and
		// the time of all.
		c.cpu = cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
		c.peak = cmd.ProcessState.SysUsage().(*syscall.Rusage).Maxrss << 10
	}
	if err != nil {
		return c, fmt.Errorf("%s: %w\n%s", t.name, err, out.Bytes())
	}
	return c, nil
}

// as is one of the tools that this executable is itself.
func as(ctx context.Context, name, earlier string, args []string) error {
	if len(args) != 3 {
		return errors.New("wants URL, COMMIT and DIR")
	}
	url, commit, dir := args[0], args[1], args[2]
	switch name {
	case "gitfetch":
		// With its manifest, as a source fetches; git writes an index.
		return again(ctx, url, commit, dir, "")
	case "synced":
		_, err := fetch(ctx, url, commit, dir, gitfetch.SyncAll, nil)
		return err
	case "again":
		return again(ctx, url, commit, dir, earlier)
	case "go-git":
		_, err := git.PlainCloneContext(ctx, dir, false, &git.CloneOptions{URL: url, Depth: 1, Tags: git.NoTags, SingleBranch: true})
		return err
	}
	return fmt.Errorf("no tool called %q", name)
}

func fetch(ctx context.Context, url, commit, dir string, sync gitfetch.Sync, have *gitfetch.Have) (*gitfetch.Checkout, error) {
	id, err := fencepost.ParseCommitID(commit)
	if err != nil {
		return nil, err
	}
	return gitfetch.Fetch(ctx, gitfetch.Request{URL: url, Commit: id, Dir: dir, AllowHTTP: true, Sync: sync, Have: have})
}

// again fetches on top of the checkout in earlier, whose manifest is beside it,
// or from nothing where there is none, and writes the next manifest.
func again(ctx context.Context, url, commit, dir, earlier string) error {
	var have *gitfetch.Have
	if earlier != "" {
		f, err := os.Open(earlier + manifest)
		if err != nil {
			return err
		}
		m, err := gitfetch.ReadManifest(f)
		if err = errors.Join(err, f.Close()); err != nil {
			return err
		}
		have = &gitfetch.Have{Dir: earlier, Manifest: m}
	}
	c, err := fetch(ctx, url, commit, dir, gitfetch.SyncNone, have)
	if err != nil {
		return err
	}
	if st := c.Stats(); have != nil && (!st.Incremental || st.Fallback != "") {
		return fmt.Errorf("not on top of the earlier checkout: %s", st.Fallback)
	}
	f, err := os.Create(dir + manifest)
	if err != nil {
		return err
	}
	return errors.Join(c.WriteManifest(f), f.Close())
}

const manifest = ".manifest"

// same requires that two trees hold the same files, contents and execute bits.
func same(a, b string) error {
	cmd := exec.Command("diff", "-r", "--exclude=.git", a, b)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("trees differ: %w\n%.2000s", err, out)
	}
	return filepath.WalkDir(a, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			if d != nil && d.Name() == ".git" {
				return filepath.SkipDir
			}
			return err
		}
		rel, err := filepath.Rel(a, path)
		if err != nil {
			return err
		}
		x, err := os.Lstat(path)
		if err != nil {
			return err
		}
		y, err := os.Lstat(filepath.Join(b, rel))
		if err != nil {
			return err
		}
		if x.Mode()&0o100 != y.Mode()&0o100 {
			return fmt.Errorf("modes of %s differ", rel)
		}
		return nil
	})
}
