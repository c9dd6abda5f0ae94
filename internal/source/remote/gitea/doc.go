// Package gitea asks Gitea's and Forgejo's API what a source's repository is,
// and how two of its commits stand to each other.
//
// A [Client] is one instance with one token, shared by all sources of both; a
// [Repository] of it implements [remote.Identity] and [remote.Ancestry]. The
// token travels in the Authorization header alone, never in a query, to the
// configured API and nowhere else: redirects are not followed. A repository is
// asked for by its id, so that a rename is seen as what it is.
//
// contracts/gitea.md §4
package gitea
