package fileledger

import (
	"encoding/binary"
	"hash/crc32"
	"io"

	"github.com/fencepost/fencepost/internal/durable"
)

// The head of a shard is how its processes tell each other, through the page
// cache, how far the log was written and synced. It is never synced itself
// and never the truth: without it, everything is synced once more.
//
//	 0 64  sync record, written under the sync lock
//	64 64  tail record, written under the append lock
//
// A record is: segment, 8; offset, 8; flags, 4; CRC-32C of that, seeded with
// the shard's own seed, 4.
const (
	headName   = "head"
	headSize   = 4096
	headRecord = 64

	syncRecordAt = 0
	tailRecordAt = headRecord

	// headSyncing in the sync record: a sync was begun and did not end. Its
	// process died, perhaps after it had failed, so that another sync proves
	// nothing.
	headSyncing = 1
)

// A mark is a place in a shard's log.
type mark struct {
	segment uint64
	offset  int64
}

// before reports whether m lies before n.
func (m mark) before(n mark) bool {
	return m.segment < n.segment || m.segment == n.segment && m.offset < n.offset
}

type head struct {
	file durable.File
	seed uint32
}

// read returns a record; ok is false if there is none.
func (h head) read(at int64) (m mark, flags uint32, ok bool, err error) {
	var b [headRecord]byte
	n, err := h.file.ReadAt(b[:], at)
	if err != nil && err != io.EOF {
		return mark{}, 0, false, err
	}
	le := binary.LittleEndian
	if n < len(b) || crc32.Update(h.seed, castagnoli, b[:20]) != le.Uint32(b[20:]) {
		return mark{}, 0, false, nil
	}
	return mark{le.Uint64(b[0:]), int64(le.Uint64(b[8:]))}, le.Uint32(b[16:]), true, nil
}

func (h head) write(at int64, m mark, flags uint32) error {
	var b [24]byte
	le := binary.LittleEndian
	le.PutUint64(b[0:], m.segment)
	le.PutUint64(b[8:], uint64(m.offset))
	le.PutUint32(b[16:], flags)
	le.PutUint32(b[20:], crc32.Update(h.seed, castagnoli, b[:20]))
	_, err := h.file.WriteAt(b[:], at)
	return err
}
