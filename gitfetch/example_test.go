package gitfetch_test

import (
	"context"
	"fmt"
	"log"
	"path/filepath"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/gitfetch"
	"github.com/fencepost/fencepost/gitfetch/internal/gitserver"
)

// One commit of a public repository, with the safest policy: no links, no
// submodules, portable names.
func Example() {
	url, commit, dir, done := demo()
	defer done()

	ctx := context.Background()
	checkout, err := gitfetch.Fetch(ctx, gitfetch.Request{
		URL:       url,
		Commit:    commit,
		Dir:       dir,
		AllowHTTP: true, // this server is on loopback
	})
	if err != nil {
		log.Fatal(err)
	}
	for file := range checkout.Files() {
		fmt.Println(file.Mode, file.Path, file.Size)
	}
	if err := checkout.Verify(ctx); err != nil {
		log.Fatal(err)
	}
	if err := checkout.Remove(); err != nil {
		log.Fatal(err)
	}
	// Output:
	// 100644 README 6
	// 100755 bin/run 10
}

// A service that makes many checkouts opens a workspace. What a killed
// process left there is gone when the next one opens it.
func ExampleWorkspace() {
	url, commit, dir, done := demo()
	defer done()

	work, err := gitfetch.OpenWorkspace(filepath.Dir(dir))
	if err != nil {
		log.Fatal(err)
	}
	defer work.Close()

	checkout, err := work.Fetch(context.Background(), gitfetch.Request{
		URL:       url,
		Commit:    commit,
		AllowHTTP: true,
		Policy:    gitfetch.Policy{Symlinks: gitfetch.SymlinksAsData, Gitlinks: gitfetch.GitlinksSkip},
		Budgets:   gitfetch.Budgets{WireBytes: 10 << 20, Paths: 5_000},
		Credential: func(context.Context) (string, fencepost.Secret, error) {
			return "x-access-token", fencepost.NewSecret([]byte("from the secret store")), nil
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(checkout.Stats().Files, "files")
	// Output: 2 files
}

// Which commit a branch is at right now.
func ExampleLsRefs() {
	url, commit, _, done := demo()
	defer done()

	refs, err := gitfetch.LsRefs(context.Background(), gitfetch.Request{URL: url, AllowHTTP: true}, "refs/heads/main")
	if err != nil {
		log.Fatal(err)
	}
	for _, ref := range refs {
		fmt.Println(ref.Name, ref.Commit() == commit)
	}
	// Output: refs/heads/main true
}

// demo starts a real Git server with a repository of two files.
func demo() (url string, commit fencepost.CommitID, dir string, done func()) {
	script := new(gitserver.Script)
	server := gitserver.New(script)
	repo := server.Repo(script, "demo.git")
	commit = repo.Commit(script, "main", []gitserver.Entry{
		{Path: "README", Content: "hello\n"},
		{Path: "bin/run", Mode: "100755", Content: "#!/bin/sh\n"},
	})
	return repo.URL, commit, filepath.Join(script.TempDir(), "checkout"), script.Close
}
