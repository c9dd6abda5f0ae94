// Package receipt is the journal of what happened to each delivery, for
// people: it decides nothing, and its loss changes no result.
//
// A journal is a directory of segments, one writer each:
//
//	receipts/
//	  lock                                  held while old segments are removed
//	  01764504000000000000-5f2c9a1e.log     lines, oldest first; the name begins
//	                                        with the segment's birth in Unix
//	                                        nanoseconds
//
// A line is eight hexadecimal digits (CRC-32C of the JSON text, RFC 3720
// appendix B.4), a space, one [Event] as JSON, and a newline. A last line
// without newline was torn by a crash and is passed over. A line whose sum is
// wrong is damage: it is reported with file and offset, and the rest is read.
//
// Lines are written one system call each and synced when a segment is closed:
// a killed process loses nothing, a machine that loses power the last seconds.
// The ledger and the inbox hold what may not be lost.
package receipt
