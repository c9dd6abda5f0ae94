// Package shelf keeps what senders wait for, in files: the result of each
// delivery of a lane whose result is fetched, or that it ended without one.
//
//	results/
//	  lock          held while something is put, ended, expired or counted
//	  usage         count and bytes of the entries: 16 bytes, a cache
//	  poll-key      32 random bytes that poll secrets are made from; made once
//	  2026-11-30/   one directory for each UTC day
//	    dlv_…       the entry of a delivery that was first told of on that day
//
// An entry is one file, big-endian:
//
//	offset  size
//	0       8     "FPRESULT"
//	8       1     1: the version
//	9       1     1: a result, 2: an end without one
//	10      32    SHA-256 of all of the entry and the delivery's id, in the
//	              encoding of docs/encoding.md: domain "fencepost.result/v1",
//	              id, kind, rest
//	42      …     the result's document, byte for byte as it was staged, or
//	              the reason of the end
//
// It is written beside its name, synced and renamed, so that there is never a
// part of one. What does not verify is damaged: neither a result nor an end,
// and a later Put or End takes its place.
//
// Bounds hold over all processes that share the directory. Room is made by
// evicting the oldest day first, but neither this day nor the one before: a
// job may still wait for those. Where that leaves none, the shelf is full, and
// says so.
package shelf
