// Package durable is the only code that writes, syncs and renames files whose
// loss would break a promise.
//
// It has three layers. [FS] and [File] are the few calls that every store is
// written against; [OS] is the real thing and the package crashfs a double
// that crashes, tears and fails. [Root] wraps an FS and makes a failed sync
// final. The functions ([WriteFile], [InitDir], [ZeroFill], …) are the orders
// of those calls that are safe, written down once.
//
// # What makes bytes durable
//
//   - Bytes of a file: WriteAt, then Sync of the same file.
//   - A name (created, renamed, linked or removed): SyncDir of its directory.
//   - A new directory: SyncDir of itself for what is in it, and of its parent
//     for its own name.
//
// Nothing else counts. In particular a rename that was not followed by
// SyncDir may be undone by a crash, and syncing a new file does not sync its
// name.
//
// # A failed sync is final
//
// After a sync has failed, Linux marks the pages clean: the next sync reports
// success, also to another process, and reading back shows the lost bytes
// from the page cache. So nothing can be retried or checked. A [Root] whose
// sync failed sets a mark that other processes see before it gives the error
// back, and takes no change from then on; after each sync that succeeded it
// looks for the mark of others, and for a file system that the kernel has
// made read-only. Whoever shares one file between processes must hold a lock
// of its own around [File.Sync], so that no other process syncs between the
// failure and the mark.
//
// The mark is two things in the root's directory: the first byte of the file
// "health", which exists from the start so that it can be set on a full disk,
// and a file "POISON" with a text for people. [ClearPoison] takes it away.
package durable
