// Package gitea is a client of Gitea's and Forgejo's API, for gates and sources.
//
// A [Client] is one instance with one token, which travels in the Authorization
// header alone, never in a query. What it can be asked and what its errors are,
// package forge says.
//
// contracts/gitea.md §4
package gitea
