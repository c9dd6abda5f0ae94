// Package gitfetch fetches the tree of one Git commit, named by its id, into
// a fresh directory, within budgets, from a server that is not trusted.
//
// [Fetch] makes one checkout and [Workspace.Fetch] one of many; [LsRefs] asks
// which commit a branch is at. There is no Git binary, no .git directory, no
// configuration of the host, and nothing of the repository is executed or
// interpreted: no filters, hooks, attributes or submodules.
//
// # What is promised
//
// The commit's id is the only thing that is believed. A [Checkout] exists
// only if the commit, its tree, and every object that the tree names were
// received and hash to their ids, with the SHA-1 that detects collision
// attacks; if nothing else was received; if every name keeps the rules of
// [NameRules] and the [Policy]; and if no [Budgets] was passed. The directory
// is there whole or not at all. What it does not promise is that the commit
// was ever on a branch: servers give out any object that they have.
//
// # How it works
//
// A plain fetch is two requests of Git's protocol version 2 over HTTP: what the
// server can do, which a [Transport] remembers, and the commit with "deepen 1".
// The pack is taken apart as it arrives, each object inflated and hashed once,
// in memory that does not grow with their sizes. Meanwhile the tree is walked as
// far as its directories are there, all names of one judged before any file of
// it, and a file whose path was judged and whose content is proven is written at
// once, through a handle of its own directory, never over anything and never
// through a link. What can't be written yet goes to a nameless temporary file.
// When all is received the rest of the tree is judged and written, links last.
// All of this is in a directory with another name, which becomes the checkout
// in the end, or is removed.
//
// # Less to fetch
//
// With an earlier checkout in [Request.Have] only what differs is sent and
// written, and the rest becomes further names of files that are there.
// [Request.Select] leaves paths out. [Relate] and [Commits] look at commits
// alone, [LsRefs] at branches; with a [Transport] they share connections.
//
// # Errors
//
// Every error can be matched: by a sentinel ([ErrContent], [ErrCredential],
// …), by a type with details ([BudgetError], [PathError], [StatusError],
// [RemoteError], [AlteredError]), and by the [fencepost.Reason] of
// [fencepost.ReasonOf]. No error text holds a credential, a path of the host,
// or the server's own words; those are in fields, for the person who asked.
package gitfetch
