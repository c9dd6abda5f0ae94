package check_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/runner/check"
)

// judge is a whole check: it blocks a tree without a licence.
func judge(_ context.Context, req *check.Request) (check.Verdict, error) {
	tree, err := req.OpenCandidate()
	if err != nil {
		return check.Verdict{}, err
	}
	defer tree.Close()
	if _, err := tree.Stat("LICENSE"); err != nil {
		return check.Block("No licence", "The tree has no file `LICENSE`."), nil
	}
	return check.Pass("Licence found", ""), nil
}

// The main function of a check is one line.
func ExampleMain() {
	main := func() { os.Exit(check.Main(context.Background(), judge)) }
	_ = main
}

// An author tries a check in a directory that looks as the runner makes it.
func ExampleRun() {
	dir, err := os.MkdirTemp("", "check")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	commit, _ := fencepost.ParseCommitID(strings.Repeat("ab", 20))
	tree := fencepost.TreeID(commit)
	req := check.Request{
		Schema: check.RequestSchema, Run: "by-hand", Delivery: "dlv_aaaaaaaaaaaaaaaaaaaaaaaaaa",
		Repository: check.Repository{Provider: "github", ID: "1", Name: "acme/docs"},
		Base:       check.Base{Ref: "refs/heads/main", Commit: commit, Tree: tree},
		Head:       check.Revision{Commit: commit, Tree: tree},
		Candidate:  check.Candidate{Commit: commit, Tree: tree, Root: dir},
		Action:     check.Action{Commit: commit, Root: dir, ProgramSHA256: check.DigestOf([]byte("…"))},
		IssuedAt:   check.Time(time.Now()), Deadline: check.Time(time.Now().Add(time.Minute)),
		Evidence: []check.Evidence{},
	}
	encoded, err := req.Encode()
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := os.WriteFile(filepath.Join(dir, check.RequestFile), encoded, 0o600); err != nil {
		fmt.Println(err)
		return
	}
	conclusion, err := check.Run(context.Background(), dir, judge)
	fmt.Println(conclusion, err)
	// Output: block <nil>
}
