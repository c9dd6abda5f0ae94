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

// A done row is one that never changes again: 128 bytes, sorted by key, 31 to
// a block of 4 KiB:
//
//	  0 32  delivery key
//	 32 32  binding
//	 64 16  evaluation
//	 80 32  publication digest
//	112  8  fence
//	120  5  since, seconds from 1970
//	125  3  attempts
//
// and behind the rows of a block zeros, and in its last four bytes the
// CRC-32C of all before, seeded with the snapshot's seed and the block's
// number.
const (
	doneRowSize   = 128
	blockSize     = 4096
	rowsPerBlock  = 31
	blockCRCAt    = blockSize - 4
	indexKeyBytes = 8
)

func blocksFor(rows int) int { return (rows + rowsPerBlock - 1) / rowsPerBlock }

func appendDoneRow(b []byte, r ledger.Row) []byte {
	b = append(b, r.Key[:]...)
	b = append(b, r.Binding[:]...)
	b = append(b, r.Evaluation[:]...)
	b = append(b, r.Published[:]...)
	b = binary.LittleEndian.AppendUint64(b, r.Fence.Uint64())
	return binary.LittleEndian.AppendUint64(b, uint64(r.Since.Unix())|uint64(r.Attempts)<<40)
}

// decodeDoneRow reads doneRowSize bytes.
func decodeDoneRow(b []byte) (ledger.Row, error) {
	fence, err := fencepost.ParseFence(binary.LittleEndian.Uint64(b[112:]))
	if err != nil {
		return ledger.Row{}, err
	}
	packed := binary.LittleEndian.Uint64(b[120:])
	r := ledger.Row{
		State: ledger.Done, Key: fencepost.DeliveryKey(b[:32]), Binding: fencepost.Binding(b[32:64]),
		Evaluation: fencepost.EvaluationID(b[64:80]), Published: [32]byte(b[80:112]), Fence: fence,
		Since: time.Unix(int64(packed&(1<<40-1)), 0).UTC(), Attempts: uint32(packed >> 40),
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
	file  durable.File
	name  string
	seed  uint32
	rows  int
	at    int64 // of the first block, in bytes
	index []byte
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
	block := sort.Search(blocksFor(t.rows), func(i int) bool {
		return bytes.Compare(t.prefix(i), key[:indexKeyBytes]) > 0
	}) - 1
	for ; block >= 0; block-- {
		rows, err := t.block(block)
		if err != nil {
			return ledger.Row{}, err
		}
		n := len(rows) / doneRowSize
		i := sort.Search(n, func(i int) bool {
			return bytes.Compare(rows[i*doneRowSize:i*doneRowSize+len(key)], key[:]) >= 0
		})
		if i < n && bytes.Equal(rows[i*doneRowSize:i*doneRowSize+len(key)], key[:]) {
			return t.decode(block, rows[i*doneRowSize:(i+1)*doneRowSize])
		}
		if !bytes.Equal(t.prefix(block), key[:indexKeyBytes]) {
			return ledger.Row{}, nil
		}
	}
	return ledger.Row{}, nil
}

func (t *doneTable) decode(block int, b []byte) (ledger.Row, error) {
	r, err := decodeDoneRow(b)
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
	rows := min(rowsPerBlock, t.rows-number*rowsPerBlock)
	return b[:rows*doneRowSize], nil
}

// each calls f for every row, in the order of their keys.
func (t *doneTable) each(f func(ledger.Row) error) error {
	for block := range blocksFor(t.len()) {
		rows, err := t.block(block)
		if err != nil {
			return err
		}
		for ; len(rows) > 0; rows = rows[doneRowSize:] {
			r, err := t.decode(block, rows[:doneRowSize])
			if err != nil {
				return err
			}
			if err := f(r); err != nil {
				return err
			}
		}
	}
	return nil
}
