package forgesim_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/fencepost/fencepost/internal/forgesim"
)

// A request is gated: blocked until the App's check passes on its head.
func ExampleForge() {
	if err := gateOneRequest(context.Background()); err != nil {
		fmt.Println(err)
	}
	// Output:
	// webhooks: push, pull_request opened
	// allowed: false [check fencepost/docs is expected]
	// allowed: true []
}

func gateOneRequest(ctx context.Context) error {
	dir, err := os.MkdirTemp("", "forge")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	forge, err := forgesim.New(ctx, forgesim.Config{
		Dir: filepath.Join(dir, "forge"), Now: time.Now, App: forgesim.AppConfig{Key: appKey()},
	})
	if err != nil {
		return err
	}
	docs, err := forge.ImportRepository(ctx, forgesim.Import{
		Owner: "acme", Name: "docs", Files: map[string]string{"README.md": "# Docs\n"},
	})
	if err != nil {
		return err
	}
	if _, err := forge.App().Install(docs); err != nil {
		return err
	}
	docs.AddRuleset(forgesim.RequireCheck("fencepost/docs", forge.App().ID()))
	pr, err := docs.OpenPullRequest(ctx, forgesim.OpenPull{
		Head: "change", Change: forgesim.Change{Files: map[string]string{"guide.md": "# Guide\n"}},
	})
	if err != nil {
		return err
	}
	made := forge.Outbox()
	fmt.Printf("webhooks: %s, %s %s\n", made[0].Event, made[1].Event, made[1].Action)
	before, err := pr.MergeState(ctx)
	if err != nil {
		return err
	}
	fmt.Println("allowed:", before.Allowed, before.Reasons)
	if _, err := docs.CreateCheckRun(ctx, forgesim.NewCheckRun{
		Name: "fencepost/docs", HeadSHA: pr.Head(), Conclusion: "success",
	}); err != nil {
		return err
	}
	after, err := pr.MergeState(ctx)
	if err != nil {
		return err
	}
	fmt.Println("allowed:", after.Allowed, after.Reasons)
	return nil
}
