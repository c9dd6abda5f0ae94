// Package gitlab asks GitLab's API what a source's project is, and how two of
// its commits stand to each other.
//
// A [Project] implements [remote.Identity] and [remote.Ancestry] through a
// client that all sources of one instance and token share. It is asked for by
// its id, so that a rename is seen as what it is. The namespace's id, which no
// push names, is proven here.
//
// contracts/gitlab.md §8
package gitlab
