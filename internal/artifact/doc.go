// Package artifact is a bounded, content-addressed, expiring store for the
// evidence of evaluations.
//
//	artifacts/
//	  lock            held while something is stored, evicted or counted
//	  usage           count and bytes of what is stored: 16 bytes, a cache
//	  2026-11-30/     one directory for each UTC day
//	    <sha256>      the bytes, under the SHA-256 of them in hexadecimal
//
// A [Ref] names bytes by their digest, so nothing can be read under it but
// those bytes: what is gone is [ErrGone], what is not those bytes any more is
// [ErrDamaged], and neither is ever taken for the other or for empty.
//
// Bounds hold over all processes that share the directory. Room is made by
// evicting the oldest day first: no state of the ledger depends on an
// artifact (DESIGN §8).
package artifact
