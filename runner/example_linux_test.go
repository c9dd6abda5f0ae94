package runner_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/runner"
	"github.com/fencepost/fencepost/runner/check"
)

// A directory is the simplest checkout. A real one proves in Verify that the
// files are still those of its tree.
type directory struct {
	commit fencepost.CommitID
	tree   fencepost.TreeID
	root   string
}

func (d directory) Commit() fencepost.CommitID       { return d.commit }
func (d directory) Tree() fencepost.TreeID           { return d.tree }
func (d directory) Root() string                     { return d.root }
func (d directory) Verify(ctx context.Context) error { return ctx.Err() }
func newDirectory(root string, digit string) directory {
	return directory{commitID(digit), treeID(digit), root}
}

// shellCheck keeps the run contract without any library.
const shellCheck = `#!/bin/sh
digest() { sha256sum <"$1" | cut -d ' ' -f 1; }
echo '{"looked_at":"everything"}' >report.json
run=$(sed 's/.*"run":"\([^"]*\)".*/\1/' request.json)
printf '{"schema":"fencepost.result/v1","run":"%s","request_sha256":"%s","report_sha256":"%s","conclusion":"pass","title":"Looks good","summary":""}' \
	"$run" "$(digest request.json)" "$(digest report.json)" >result.json
`

// The main function of a program that uses a runner begins with
//
//	entry := runner.Init()
//
// In this example the test binary's TestMain has done that.
func ExampleRunner_Run() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	candidate, action := newDirectory(filepath.Join(dir, "candidate"), "1"), newDirectory(filepath.Join(dir, "action"), "2")
	for _, d := range []directory{candidate, action} {
		if err := os.Mkdir(d.root, 0o700); err != nil {
			fmt.Println(err)
			return
		}
	}
	if err := os.WriteFile(filepath.Join(action.root, "check.sh"), []byte(shellCheck), 0o400); err != nil {
		fmt.Println(err)
		return
	}

	r, err := runner.Open(ctx, runner.Config{Entry: entry, Scratch: filepath.Join(dir, "scratch"), Now: time.Now})
	if err != nil {
		fmt.Println(err) // names what the kernel lacks
		return
	}
	defer r.Close()
	record := r.Run(ctx, runner.Job{
		Run: "evl_example.1", Delivery: "dlv_aaaaaaaaaaaaaaaaaaaaaaaaaa",
		Repository:      check.Repository{Provider: "github", ID: "1296269", Name: "acme/docs"},
		Base:            check.Base{Ref: "refs/heads/main", Commit: commitID("3"), Tree: treeID("3")},
		Head:            check.Revision{Commit: commitID("4"), Tree: treeID("4")},
		CandidateCommit: candidate.commit, Candidate: candidate,
		ActionCommit: action.commit, Action: action,
		Program: "check.sh", ProgramSHA256: check.DigestOf([]byte(shellCheck)),
		Lease: runner.RenewerFunc(func(context.Context) (time.Duration, error) { return time.Minute, nil }),
	})
	switch o := record.Outcome.(type) {
	case runner.Concluded:
		fmt.Println(o.Result.Conclusion, "-", o.Result.Title, "-", strings.TrimSpace(string(o.Report)))
	case runner.Failed:
		fmt.Println(o.Reason, o.Err)
	}
	// Output: pass - Looks good - {"looked_at":"everything"}
}
