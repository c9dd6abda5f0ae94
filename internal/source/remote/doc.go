// Package remote is the provider's and Git's side of one source: it proves
// what the repository is, reads where the branch stands, and fetches the tree
// of the head that it found (DESIGN §9).
//
// [Remote] implements [source.Remote] over three parts that the caller gives:
// [Identity] asks the provider's API what the repository is now, each
// [Ancestry] tells how two commits stand to each other where Git's commits
// could not, and the credential is read anew for each exchange with Git. Heads
// come by Git's own protocol, which no API limit counts.
//
// An observation reads the head first and asks for the identity then, in one
// window: a repository that took the name in between is found out by the
// second, so that no head of a stranger is ever taken for the source's. What is
// fetched afterwards is named by its commit, which proves the content whoever
// sends it.
//
// There is one credential, one name and one branch. Where the provider does
// not let that credential see that branch under that name, the observation
// fails with the reason; nothing is ever asked for without a credential, with
// another one, under another name, or of another host: redirects are not
// followed.
package remote
