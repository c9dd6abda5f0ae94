package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// A bomb is a repository that is small on the wire and large once it is
// unpacked. gitfetch has to refuse it; what others make of it is shown beside.
type bomb struct {
	name string
	make func(r repo) (tree string, err error)
}

func bombs() []bomb {
	return []bomb{
		{"a gibibyte of zeros", zeros},
		{"100,000 paths from 7 objects", unfold},
	}
}

// zeros makes a tree with one file, which is a gibibyte of zeros.
func zeros(r repo) (string, error) {
	blob, err := r.write(io.LimitReader(endless{}, 1<<30), "hash-object", "-w", "--stdin")
	if err != nil {
		return "", err
	}
	return r.write(strings.NewReader("100644 blob "+blob+"\tzeros\n"), "mktree")
}

// endless reads zeros for ever.
type endless struct{}

func (endless) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

// unfold makes a tree of five levels, each with ten entries that are the same
// object.
func unfold(r repo) (string, error) {
	id, err := r.write(strings.NewReader("x"), "hash-object", "-w", "--stdin")
	if err != nil {
		return "", err
	}
	kind, mode := "blob", "100644"
	for range 5 {
		var entries strings.Builder
		for i := range 10 {
			fmt.Fprintf(&entries, "%s %s %s\t%d\n", mode, kind, id, i)
		}
		if id, err = r.write(strings.NewReader(entries.String()), "mktree"); err != nil {
			return "", err
		}
		kind, mode = "tree", "040000"
	}
	return id, nil
}

// write runs git with an input and returns the id it prints.
func (r repo) write(in io.Reader, args ...string) (string, error) {
	cmd := exec.Command("git", args...)
	cmd.Dir, cmd.Env, cmd.Stdin, cmd.Stderr = r.dir, gitEnv(), in, os.Stderr
	out, err := cmd.Output()
	return strings.TrimSpace(string(out)), err
}

// makeBomb makes the repository of a bomb below dir.
func makeBomb(dir string, n int, b bomb) (repo, error) {
	r := repo{dir: filepath.Join(dir, fmt.Sprintf("bomb-%d.git", n))}
	if err := errors.Join(os.RemoveAll(r.dir), os.MkdirAll(r.dir, 0o755)); err != nil {
		return r, err
	}
	if _, err := r.git("init", "-q", "--bare", "-b", "main"); err != nil {
		return r, err
	}
	tree, err := b.make(r)
	if err != nil {
		return r, err
	}
	if r.second, err = r.git("-c", "user.name=bench", "-c", "user.email=bench@example.org", "commit-tree", "-m", "bomb", tree); err != nil {
		return r, err
	}
	_, err = r.git("update-ref", "refs/heads/main", r.second)
	return r, err
}

// defuse prints what each tool makes of each bomb. A fetch of ours that is not
// refused by a budget is an error.
func defuse(self string, o options) (err error) {
	at, stop, err := startServer(self, o.work)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	for n, b := range bombs() {
		r, err := makeBomb(o.work, n, b)
		if err != nil {
			return fmt.Errorf("%s: %w", b.name, err)
		}
		fmt.Println(b.name)
		for i, t := range o.choose(self, "", "") {
			if strings.Contains(t.name, ",") {
				continue // the same fetch, or one on top of an earlier checkout
			}
			for round := range 2 { // in the first one the server packs
				dir := filepath.Join(o.work, fmt.Sprintf("bomb-%d-%d-%d", n, i, round))
				c, err := t.run(at+"/"+filepath.Base(r.dir), r.second, dir)
				outcome := "written out whole"
				switch {
				case err != nil && ours(t):
					outcome = "refused"
				case err != nil:
					outcome = "failed: " + err.Error()
				}
				if ours(t) && (err == nil || !strings.Contains(err.Error(), "over the ")) {
					return fmt.Errorf("%s: %s was not refused by a budget: %v", b.name, t.name, err)
				}
				if round > 0 {
					fmt.Printf("  %-28s wall %6.2f s  cpu %6.2f s  peak %4.0f MiB  %s\n",
						t.name, c.wall.Seconds(), c.cpu.Seconds(), float64(c.peak)/(1<<20), outcome)
				}
			}
		}
	}
	return nil
}
