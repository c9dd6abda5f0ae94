// Package jobkeys holds the public keys of a GitLab instance that a trust set
// pins, and finds those of which it knows the thumbprint alone.
//
// No request ever waits for a key, and none makes one be fetched: a [Set]
// verifies with what it has, and a [Finder] looks in the background for what
// it lacks. Where a key comes from doesn't matter, since it is taken only if
// it has the thumbprint that was pinned; so what was found is kept in a
// [Store], and a key that the instance no longer publishes still verifies
// what it signed.
package jobkeys
