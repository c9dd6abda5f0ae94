// Package gitlab is a client of GitLab's API, for gates and sources. It reads;
// nothing of ours is ever written there.
//
// A [Client] is one instance with one token, of the scope read_api, and
// read_repository for Git. The token travels in the PRIVATE-TOKEN header alone,
// never in a query, and no link to a next page that leads away is followed. What
// its errors are, package forge says.
//
// contracts/gitlab.md §8
package gitlab
