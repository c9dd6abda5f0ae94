// Package frame is the format of append-only logs: checksummed frames in
// preallocated segments, and how to tell the end of a log from damage.
//
// # Segment
//
// A log, named by the UUID of its root and a shard number, is a row of
// segment files, numbered from 1. A segment is a header and then frames, all
// numbers little-endian:
//
//	offset    0  magic      8  "fpseg\x00\x00\x01": format version 1
//	          8  uuid      16  of the root
//	         24  shard      4
//	         28  zero       4
//	         32  segment    8  number of this segment
//	         40  first      8  LSN of its first frame
//	         48  prev       8  number of the segment before, 0 for none
//	         56  prev end   8  where that segment's frames end
//	         64  prev crc   4  CRC of its last frame, or of its header
//	         68  crc        4  CRC-32C of bytes 0 to 67
//	         72  zero          up to 4096
//	       4096  frames, then zeros up to the end of the file
//
// A header is durable before the file gets its name, so a named segment has
// one. The header of a segment seals the one before: it says where its frames
// ended, and nothing behind that place was ever acknowledged.
//
// # Frame
//
//	offset    0  length     4  header and payload, without padding; never 0
//	          4  type       1  of the payload; never 0
//	          5  flags      1  of the payload
//	          6  zero       2
//	          8  lsn        8  one more than that of the frame before
//	         16  prev crc   4  CRC of the frame before; of the segment's header for the first
//	         20  zero       4
//	         24  synced     8  offset in this segment up to which bytes were synced when this frame was made
//	         32  crc        4  CRC-32C, seeded with (uuid, shard, segment), of bytes 0 to 31 and the payload
//	         36  zero       4
//	         40  payload, and zeros up to a multiple of 8
//
// The seed makes a frame of another log, segment or life of this file no
// frame. A length of 0 in a header of zeros is the end of the log, for what
// follows was never written.
//
// # End, torn tail, corruption
//
// Where the frames of a segment stop, [Reader.Judge] says which of three it
// is, by evidence (RELIABILITY §3.5):
//
//   - [Clean]: only zeros follow.
//   - [Torn]: something else follows, but nothing shows that it was ever
//     synced. It was never acknowledged. The segment is sealed there by
//     starting the next one, and the bytes stay as they are: what is not
//     overwritten can't be mistaken for a continuation.
//   - [Corrupt]: some frame that verifies, or the next segment's header, says
//     that bytes behind this place were synced. They are lost or altered.
//
// A log whose last frames are never followed by another can't show that they
// were synced; so a writer that falls idle appends a frame that says so.
package frame
