package fileledger

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"sort"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/durable"
	"github.com/fencepost/fencepost/ledger"
)

// A done row is one that never changes again: 124 bytes, sorted by key, 33 to
// a block of 4 KiB:
//
//	  0 32  delivery key
//	 32 32  binding
//	 64 16  evaluation
//	 80 32  publication digest
//	112  6  fence
//	118  4  since, seconds from 1970
//	122  1  attempts
//	123  1  which of the snapshot's trust marks, from 1; 0 for none
//
// and behind the rows of a block zeros, and in its last four bytes the
// CRC-32C of all before, seeded with the snapshot's seed and the block's
// number. A row with a number that is too large for its field stays among
// those that are kept in memory.
//
// In a snapshot of version 1 a done row is 128 bytes, 31 to a block: fence in
// 8, since in 5, attempts in 3, and no trust mark.
const (
	blockSize     = 4096
	blockCRCAt    = blockSize - 4
	indexKeyBytes = 8
	doneRowSize   = 124
	rowsPerBlock  = 33

	maxDoneFence    = 1<<48 - 1
	maxDoneSince    = 1<<32 - 1
	maxDoneAttempts = 1<<8 - 1
)

// A layout is how a version of snapshots puts done rows into blocks.
type layout struct{ rowSize, perBlock int }

var layouts = [...]layout{1: {128, 31}, 2: {doneRowSize, rowsPerBlock}}

// blocks is the number of blocks that rows take.
func (l layout) blocks(rows int) int { return (rows + l.perBlock - 1) / l.perBlock }

// fitsTable reports whether every number of a row that is done for ever fits
// a done row.
func fitsTable(r ledger.Row) bool {
	return isDoneForEver(r) && r.Fence.Uint64() <= maxDoneFence && r.Since.Unix() <= maxDoneSince && r.Attempts <= maxDoneAttempts
}

// appendDoneRow appends a row that fits, with the number of its trust mark.
func appendDoneRow(b []byte, r ledger.Row, mark uint8) []byte {
	b = append(b, r.Key[:]...)
	b = append(b, r.Binding[:]...)
	b = append(b, r.Evaluation[:]...)
	b = append(b, r.Published[:]...)
	// The fence's two high bytes are zero and give way to since.
	b = binary.LittleEndian.AppendUint64(b, r.Fence.Uint64())
	b = binary.LittleEndian.AppendUint32(b[:len(b)-2], uint32(r.Since.Unix()))
	return append(b, uint8(r.Attempts), mark)
}

// decodeDoneRow reads a row of the table.
func (t *doneTable) decodeDoneRow(b []byte) (ledger.Row, error) {
	number, seconds, attempts := binary.LittleEndian.Uint64(b[112:120]), int64(0), uint32(0)
	var trust ledger.TrustMark
	if t.layout == layouts[1] {
		packed := binary.LittleEndian.Uint64(b[120:])
		seconds, attempts = int64(packed&(1<<40-1)), uint32(packed>>40)
	} else {
		number &= maxDoneFence
		seconds, attempts = int64(binary.LittleEndian.Uint32(b[118:])), uint32(b[122])
		if n := int(b[123]); n > len(t.marks) {
			return ledger.Row{}, fmt.Errorf("trust mark %d of %d", n, len(t.marks))
		} else if n > 0 {
			trust = t.marks[n-1].mark
		}
	}
	fence, err := fencepost.ParseFence(number)
	if err != nil {
		return ledger.Row{}, err
	}
	r := ledger.Row{
		State: ledger.Done, Key: fencepost.DeliveryKey(b[:32]), Binding: fencepost.Binding(b[32:64]),
		Evaluation: fencepost.EvaluationID(b[64:80]), Published: [32]byte(b[80:112]), Fence: fence,
		Since: time.Unix(seconds, 0).UTC(), Attempts: attempts, Trust: trust,
	}
	return r, r.Validate()
}

func blockCRC(seed uint32, number int, block []byte) uint32 {
	var n [8]byte
	binary.LittleEndian.PutUint64(n[:], uint64(number))
	return crc32.Update(crc32.Update(seed, castagnoli, n[:]), castagnoli, block[:blockCRCAt])
}

// A doneTable is the sorted part of a snapshot file. It is read block by
// block; memory holds the first bytes of each block's first key. It is
// immutable.
type doneTable struct {
	file   durable.File
	name   string
	seed   uint32
	layout layout
	marks  []markedRows // the snapshot's
	rows   int
	at     int64 // of the first block, in bytes
	index  []byte
}

// blocks is the number of blocks; a nil table has none.
func (t *doneTable) blocks() int {
	if t == nil {
		return 0
	}
	return t.layout.blocks(t.rows)
}

// of is the number of rows with a trust mark; a nil table has none.
func (t *doneTable) of(mark ledger.TrustMark) int {
	if t == nil {
		return 0
	}
	for _, m := range t.marks {
		if m.mark == mark {
			return m.rows
		}
	}
	return 0
}

// close closes the table's file; a nil table has none.
func (t *doneTable) close() error {
	if t == nil {
		return nil
	}
	return t.file.Close()
}

// len is the number of rows; a nil table has none.
func (t *doneTable) len() int {
	if t == nil {
		return 0
	}
	return t.rows
}

func (t *doneTable) prefix(block int) []byte {
	return t.index[block*indexKeyBytes : (block+1)*indexKeyBytes]
}

// lookup returns the row of key, or the zero row. An error matches
// [ErrCorrupt], or is the file's.
func (t *doneTable) lookup(key fencepost.DeliveryKey) (ledger.Row, error) {
	// The last block whose first key is not above key; of blocks with the
	// same prefix, the earlier ones too.
	block := sort.Search(t.blocks(), func(i int) bool {
		return bytes.Compare(t.prefix(i), key[:indexKeyBytes]) > 0
	}) - 1
	for ; block >= 0; block-- {
		rows, err := t.block(block)
		if err != nil {
			return ledger.Row{}, err
		}
		size := t.layout.rowSize
		n := len(rows) / size
		i := sort.Search(n, func(i int) bool {
			return bytes.Compare(rows[i*size:i*size+len(key)], key[:]) >= 0
		})
		if i < n && bytes.Equal(rows[i*size:i*size+len(key)], key[:]) {
			return t.decode(block, rows[i*size:(i+1)*size])
		}
		if !bytes.Equal(t.prefix(block), key[:indexKeyBytes]) {
			return ledger.Row{}, nil
		}
	}
	return ledger.Row{}, nil
}

func (t *doneTable) decode(block int, b []byte) (ledger.Row, error) {
	r, err := t.decodeDoneRow(b)
	if err != nil {
		return ledger.Row{}, t.corrupt(block, err.Error())
	}
	return r, nil
}

func (t *doneTable) corrupt(block int, why string) error {
	return &CorruptError{File: t.name, Offset: t.at + int64(block)*blockSize, Why: why}
}

// block returns the rows of a block after checking it.
func (t *doneTable) block(number int) ([]byte, error) {
	b := make([]byte, blockSize)
	n, err := t.file.ReadAt(b, t.at+int64(number)*blockSize)
	if err != nil && err != io.EOF {
		return nil, fmt.Errorf("read %s: %w", t.name, err)
	}
	if n < len(b) || blockCRC(t.seed, number, b) != binary.LittleEndian.Uint32(b[blockCRCAt:]) {
		return nil, t.corrupt(number, "checksum of a block of done rows")
	}
	rows := min(t.layout.perBlock, t.rows-number*t.layout.perBlock)
	return b[:rows*t.layout.rowSize], nil
}

// each calls f for every row, in the order of their keys.
func (t *doneTable) each(f func(ledger.Row) error) error {
	for block := range t.blocks() {
		if err := t.rowsOf(block, f); err != nil {
			return err
		}
	}
	return nil
}

// rowsOf calls f for every row of a block.
func (t *doneTable) rowsOf(block int, f func(ledger.Row) error) error {
	rows, err := t.block(block)
	if err != nil {
		return err
	}
	for size := t.layout.rowSize; len(rows) > 0; rows = rows[size:] {
		r, err := t.decode(block, rows[:size])
		if err != nil {
			return err
		}
		if err := f(r); err != nil {
			return err
		}
	}
	return nil
}
