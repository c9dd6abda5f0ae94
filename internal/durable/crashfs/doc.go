// Package crashfs is the double of a disk that crashes: an in-memory
// [durable.FS] that knows what was synced, forgets what was not, and fails
// where it is told to.
//
// # The model
//
// A [Disk] is used by any number of simulated processes ([Disk.Process]),
// each of which can be killed ([Process.Kill]): its locks are freed, what it
// wrote stays in the page cache. A crash of the machine ([Disk.Crash], or a
// [Fault] at a chosen call) ends all processes; every later call is
// [ErrCrashed]. [Disk.After] then makes the disk that the next start of the
// machine finds, under a [Policy] that says which of the unsynced changes had
// reached it. One crash can be looked at under many policies.
//
// The unsynced changes are:
//
//   - Each 512-byte sector of a file that was written since the file's last
//     Sync. Any version of it that was written since then, or the one before,
//     may be found. Sectors are independent of each other.
//   - The length of a file. Any length it had since the last Sync may be
//     found; sectors below it that did not arrive read as zeros.
//   - Each change of names. A rename or link is one change: after the crash
//     it has happened or not. SyncDir makes all changes of its directory
//     durable; a change can't be found without the earlier ones of the same
//     name. Syncing a file does not make its name durable.
//
// A Sync that fails leaves the file's sectors as Linux leaves them: clean, so
// that the next Sync has nothing to do and succeeds, readable, and not on the
// disk (RELIABILITY §2.5).
//
// A symbolic link is a name like others, and its text is there when the link
// is. No name leads through one: Stat describes the link, and opening it
// fails.
//
// # Calls
//
// Every call of every process has a number, counted from 1 ([Disk.Calls]). A
// plan ([Disk.Plan]) sees each [Call] before it happens and may give it a
// [Fault]. The usual plans are [CrashAt], [FailAt] and [FailFrom]; a test
// runs its workload once without a plan to learn the number of calls, and
// then once for each.
package crashfs
