// Package sqlnotebook is the memory of gates, as package notebook is, on
// PostgreSQL and shared by all processes of all machines: notes of deliveries
// until they are done, and the newest evaluation that was staged for each
// head.
//
// A change reads a row, and stores what it makes of it if the row's version is
// still the one that it has read; else it is made anew of what is there now. A
// row that can't be what was written is damage: whatever needs it fails with
// [fencepost.ReasonCorrupt], and the others go on.
//
// Rows are spread over 64 buckets, each with a bound. A note that finds no
// room is refused with [fencepost.ReasonFull], for it is needed; of heads the
// one that was looked at longest ago makes room. What is made at the same
// moment may pass the bound, by no more than the connections of all processes.
package sqlnotebook
