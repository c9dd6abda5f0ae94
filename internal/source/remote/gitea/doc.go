// Package gitea asks Gitea's and Forgejo's API what a source's repository is,
// and how two of its commits stand to each other.
//
// A [Repository] implements [remote.Identity] and [remote.Ancestry] through a
// client that all sources of one instance and token share. It is asked for by
// its id, so that a rename is seen as what it is.
//
// contracts/gitea.md §4
package gitea
