// Package gitea is a client of Gitea's and Forgejo's API, for gates and sources.
//
// A [Client] is one instance with one token. The token travels in the
// Authorization header alone, never in a query, to the configured API and
// nowhere else: redirects are not followed. Every answer is bounded and strict
// JSON; every error carries a public reason and no text of the server's.
//
// contracts/gitea.md §4
package gitea
