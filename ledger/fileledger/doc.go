// Package fileledger keeps a ledger in ordinary files that several processes
// of one machine share.
//
// # Layout
//
//	FORMAT            superblock: version, uuid, and what the root was made with
//	health, POISON    the mark of a failed sync (package durable)
//	locks/a00 s00 …   an append lock and a sync lock per shard; never removed
//	slots/000 …       one per process that has the ledger open, locked for life
//	shard-00/
//	  000000000007.seg             segments of the log (package frame), numbered
//	  next.tmp                     the next segment, zero-filled ahead of need
//	  00000000000000000398.snap    snapshot: the state before LSN 398
//	  head                         how far the log is written and synced: a hint
//
// A row belongs to the shard that its key selects. A shard's state is its
// newest snapshot and the frames behind it; every frame holds one whole row
// (package ledger has its encoding), or the removal of one. A snapshot holds
// the rows that are done for ever as a sorted table, which stays on the disk,
// and all others, which are kept in memory.
//
// # An operation
//
// Operations that wait at a shard share one pass:
//
//	take the append lock
//	read what other processes have appended
//	decide each by DESIGN §5, and append a frame for each row that changed
//	release the append lock
//	take the sync lock
//	unless another process's sync has covered that place: sync
//	release the sync lock
//	answer
//
// An answer that changed nothing waits for the same sync: it may rest on
// another process's frame. The fence of a lease is the LSN of the frame that
// grants it, so that fences grow for ever, whatever is cleaned up.
//
// # What failures do
//
// A sync that fails stops the root for good, in every process (package
// durable). An unfinished write is sealed off by starting the next segment.
// Bytes that were promised as synced and do not verify stop their shard, with
// an error that names file and offset; the other shards go on. Where there is
// no room, new rows are answered Full and known ones end in the segment that
// was made ahead; nothing needs to be restarted when there is room again.
//
// The kernel frees the locks of a process that dies. One that is stopped while
// it holds a lock (SIGSTOP) stops that shard for all until it goes on: callers
// wait as long as their contexts allow.
//
// A holder whose process has died is found dead by its slot, whose lock the
// kernel has freed: its lease needs no waiting for. A restart of the machine
// ends all leases.
//
// # Shards, measured
//
// Two cores, ext4 on a virtual disk, machine shared with other work; 256
// workers take deliveries from claim over stage to complete, each step synced
// before it is answered. Deliveries a second, and as a multiple of the rate
// at which one writer alone got 4 KiB synced in the same minute:
//
//	shards   one process     four processes
//	     1   18,028 (3.4)    10,480 (1.6)
//	     2   15,582 (2.1)     9,991 (1.5)
//	     4   18,860 (2.4)     6,973 (1.5)
//	     8   13,223 (1.8)     4,011 (1.4)
//	    16    7,500 (1.1)     3,541 (0.8)
//	    32    6,018 (0.8)
//
// More shards make more and smaller syncs; fewer lose more to damage. The
// default is 4.
package fileledger
