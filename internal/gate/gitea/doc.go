// Package gitea is the Gitea and Forgejo lane of a gate: it admits pull-request
// events, proves what a gate is, and publishes one review and one commit
// status.
//
//	Lane      gate.Lane for one gate
//	├ Admit   event.go                         signed bytes → subject
//	├ Refresh refresh.go rule.go contained.go  subject → snapshot
//	├ Compose document.go                      verdict → the bytes to publish
//	├ Create  publish.go shown.go              bytes → review and status
//	└ Open    watch.go                         what a gate ought to know
//
// There is no test merge at these providers: the candidate is the head, and
// commits that were fetched and hashed prove that it contains the tip of the
// base. Two accounts ask: the reviewer, whose review and status open the gate,
// and one that may read the branch's rule, which only an administrator of the
// repository can.
//
// A review says who, and counts whatever commit it was made for; a commit
// status says which commit, whoever made it. A gate needs both, and its rule
// must ask for both. contracts/gitea.md §6, §7
package gitea
