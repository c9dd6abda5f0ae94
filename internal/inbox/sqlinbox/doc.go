// Package sqlinbox is the inbox of package inbox on PostgreSQL: one for all
// processes of all machines that share the database. What was answered
// `accepted` is in it, whole and committed, until it is done.
//
// # Who has an entry
//
// An entry that is handed out names its owner, which is a process, and an
// owner has a row with the time, by the server's clock, until which it is
// taken for alive. It moves that time on every few seconds. Whoever finds that
// it has passed removes the row, and with it the name from every entry: they
// are handed out again. A process that was only paused finds its row gone,
// and goes on under another name, with none of those entries.
//
// That is all the protection that an inbox needs, and all that it gives: two
// may work on one delivery for a while, and the ledger says which of them may
// stage. [Inbox.Read] and [Inbox.Done] compare the owner in the statement that
// counts, so that who has lost an entry hears of it there.
//
// # Room
//
// Entries and bytes are counted in parts, each in the transaction that adds or
// removes an entry; requests that are recorded at the same time choose parts
// by chance. A bound is held against the sum as it was committed, so it may be
// passed by what is recorded at that very moment: by no more entries than all
// processes have connections.
//
// # Damage
//
// An entry is stored with the SHA-256 of its bytes. One that does not verify
// any more is [inbox.ErrCorrupt] to who reads it, counted by [Inbox.Health]
// while this process runs, and can only be done.
//
// # News
//
// A process that has recorded something says so on a channel, after the
// commit and at most a few times a second, and all look then. What is missed
// is found by looking once a second.
package sqlinbox
