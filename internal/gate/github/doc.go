// Package github is the GitHub lane of a gate: it admits pull-request events,
// proves what a gate is, and publishes one Check Run.
//
//	Lane      gate.Lane for one gate
//	├ Admit   event.go                            signed bytes → subject
//	├ Refresh refresh.go merge.go rules.go foreign.go   subject → snapshot
//	├ Compose document.go                         verdict → the bytes to publish
//	└ Create  publish.go                          bytes → Check Run
//	Client    one installation of one App: client.go, over
//	          app.go, token.go                    who we are
//	          limit.go, pace.go                   how fast we may be
//	          cache.go, page.go, answer.go        how an answer is read
//
// The API version is pinned to [APIVersion]: later ones leave out
// merge_commit_sha, without which no test merge can be named.
//
// Nothing that GitHub answers decides where the next request goes: redirects
// are not followed, pages only below the configured API, and a repository that
// answers under another name is believed once its id and its owner's id are the
// configured ones.
package github
