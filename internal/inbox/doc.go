// Package inbox is the durable raw inbox: what was answered `accepted` is in
// it, whole and synced, until it is done.
//
//	inbox/
//	  FORMAT                        version and UUID, written once
//	  health, POISON                see package durable
//	  slots/000 … 063               lock files, never removed; each holds a
//	                                hint of what its log has synced
//	  logs/003-0000000000000012.seg segments of the log of slot 3, in the
//	                                format of package frame
//	  logs/….seg.damaged            set aside as evidence: for people
//
// # One log per process
//
// A process holds the lock of one slot for life and is the only writer of
// that slot's log. So recording needs no lock between processes, and costs
// one write and one sync, which all requests share that come while the one
// before is under way (group commit), or within a moment while many come at
// once ([Config.Gather]). When the kernel has freed the lock of
// a slot, its process is dead, and whoever gets the lock owns that log: the
// next start, or another process, which looks every few seconds.
//
// # Frames
//
//	type 1, entry    a request, as [entry] encodes it
//	type 2, moved    8 bytes serial, and an entry: a copy of an older one
//	type 3, done     8 bytes serial, and the reason: that entry is done
//	type 4, synced   nothing: it is there for its synced-through offset
//
// An entry's serial is the LSN of the frame that recorded it; it names the
// entry in its log, also in its later copies.
//
// Marks of done entries are not waited for: one that a crash loses brings
// its entry back, and the ledger knows that it is completed. Everything else
// is synced before it counts.
//
// # Segments
//
// Segments are allocated whole before they are used, so that a full disk
// shows before anything is promised, and removed when all of their entries
// are done, the oldest first. What keeps an old one alive is moved to the
// newest when more than half of all bytes are dead. Recovery always goes on
// in a new segment: nothing is ever written behind a tail.
//
// # Damage
//
// Bytes that do not verify although they were promised as synced are reported
// with file and offset ([Config.OnDamage], [Inbox.Health]). Entries that do
// verify, also behind the damage, are served: each stands for itself. They
// are moved to sound segments, and the damaged one is set aside when its turn
// to be removed comes. An entry that goes bad between opening and reading is
// reported by [Inbox.Read].
//
// # Memory
//
// Bodies are written from the caller's own memory and never kept: of an entry
// about 250 bytes stay in memory.
package inbox
