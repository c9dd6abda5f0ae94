// Package gitlab is a client of GitLab's API, for gates and sources. It reads;
// nothing of ours is ever written there.
//
// A [Client] is one instance with one token. The token travels in the
// PRIVATE-TOKEN header alone, never in a query, to the configured API and
// nowhere else: redirects are not followed, and neither is a link to a next
// page that leads away. Every answer is bounded and strict JSON; every error
// carries a public reason and no text of the server's.
//
// contracts/gitlab.md §8
package gitlab
