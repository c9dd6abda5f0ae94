// Package forgesim is a simulated GitHub: the REST calls, App authentication,
// webhooks and git server that a gate or a source meets, hostile within the
// rules.
//
// A [Forge] keeps accounts, Apps, repositories, pull requests, rulesets, Check
// Runs and commit statuses in memory, and Git data in real bare repositories
// that the git binary makes, changes and serves (git http-backend). It is one
// [http.Handler]: REST below [APIPrefix], git smart HTTP elsewhere. [Forge.Start]
// puts it on a loopback port; [Forge.RoundTripper] answers without a socket.
//
//	forge, err := forgesim.New(ctx, forgesim.Config{Dir: dir, Now: clock.Now, Hostility: forgesim.Hostile(seed)})
//	docs, err := forge.ImportRepository(ctx, forgesim.Import{Owner: "acme", Name: "docs", Source: path})
//	inst, err := forge.App().Install(docs)
//	docs.AddRuleset(forgesim.RequireCheck("fencepost/docs", forge.App().ID()))
//	server, err := forge.Start(ctx) // server.API, server.Git, server.Close; it delivers webhooks
//	pr, err := docs.OpenPullRequest(ctx, forgesim.OpenPull{
//		Head: "change", Change: forgesim.Change{Files: map[string]string{"a.md": "text\n"}},
//	})
//	state, err := pr.MergeState(ctx)
//
// What a test does to the forge (push, rename, delete the fork, post a foreign
// status) are methods of [Repository] and [PullRequest]; what goes wrong on the
// wire is a [Fault]; what happened is in [Forge.Journal], [Forge.Count] and
// [Forge.Deliveries].
//
// The contract simulated is the API of version 2022-11-28, with what version
// 2026-03-10 removes, as GitHub's published description has it. The tests of
// this package hold each request and each answer against that description
// (package githubspec). Where the description is silent the simulator takes the
// reading that is hardest on its client.
//
// All exported methods are safe for concurrent use. State changes run one at a
// time, under one lock, together with the git commands that they need.
package forgesim
