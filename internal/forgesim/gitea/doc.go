// Package gitea is a simulated Gitea or Forgejo as sources and gates meet it:
// signed deliveries, the repository's API with its requests, reviews, statuses
// and branch rule, and a git server.
//
// A [Forge] keeps its Git data in a [forgesim.Forge], whose http-backend serves
// it, and puts another API, other tokens and other webhooks in front: those of
// contracts/gitea.md, field by field. It is one [http.Handler]: the API below
// /api/v1, git smart HTTP elsewhere; [Forge.Start] puts it on a loopback port.
//
//	forge, err := gitea.New(ctx, gitea.Config{Dir: dir, Now: clock.Now})
//	docs, err := forge.CreateRepository(ctx, gitea.Create{Owner: "acme", Name: "docs", Files: files})
//	token := forge.NewToken("reader", "read:repository")
//	hook := docs.AddHook(gitea.HookConfig{URL: url, Secret: secret})
//	server, err := forge.Start(ctx) // server.API, server.Git, server.Close; it delivers webhooks
//	head, err := docs.Push(ctx, forgesim.Push{Change: change})
//
// As the real one it tries each delivery once, tells of a deleted branch by
// another event than push, shows at most five commits of a push, newest first,
// and marks what it is about to send as sent.
//
// All exported methods are safe for concurrent use.
package gitea
