// Package notebook is the small durable memory of gates, shared by all
// processes of one data directory: notes of deliveries until they are done, and
// the newest evaluation that was staged for each head.
//
//	notebook/
//	  notes/00 … notes/3f   notes, by the first byte of the delivery key
//	  heads/00 … heads/3f   heads, by the first byte of their digest
//	  locks/0 … locks/f     held while a file with that last digit is changed;
//	                        never removed
//
// A file is one line "fencepost.notebook/v1 ", the SHA-256 of what follows in
// 64 hexadecimal digits and a newline; then one JSON object of entries by key.
// One that holds a note with a job is of version 2, and the line says so; all
// others are of version 1, as they were before there were jobs.
// It is replaced whole, by a synced rename, so that a crash leaves the old one
// or the new one. A file that does not verify is damage: whatever needs it
// fails with [fencepost.ReasonCorrupt], and the other files go on.
//
// Every file has a bound on its entries. A note that finds no room is refused
// with [fencepost.ReasonFull], for it is needed; of heads the one that was
// looked at longest ago makes room, which at worst lets an older evaluation of
// it be published after a newer one, each of them for the gate as it is.
package notebook
