package fileledger

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"slices"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/durable"
	"github.com/fencepost/fencepost/internal/durable/frame"
	"github.com/fencepost/fencepost/ledger"
)

// A snapshot is the whole state of a shard at one place of its log, which was
// synced before the snapshot was made. It is written under another name,
// synced and renamed, so that a named one is whole.
//
//	   0  8  magic "fpsnap\x00\x01"
//	   8 16  uuid
//	  24  4  shard
//	  28  4  zero
//	  32  8  LSN of the next frame
//	  40  8  segment of that frame
//	  48  8  its offset there
//	  56  4  CRC of the frame before it
//	  60  4  zero
//	  64 32  stamp of the last frame
//	  96  8  closed through, ns since 1970, or 0
//	 104  8  done rows
//	 112  8  other rows
//	 120  8  bytes of other rows
//	 128  4  CRC-32C of the index
//	 132     zeros
//	4092  4  CRC-32C of bytes 0 to 4091
//	4096     blocks of done rows
//	         other rows, each: length, 4; CRC-32C, 4; row
//	         index: the first 8 bytes of each block's first key
const (
	snapSuffix     = ".snap"
	snapMagic      = "fpsnap\x00\x01"
	snapHeaderSize = 4096
	snapCRCAt      = snapHeaderSize - 4
	liveRowHead    = 8
)

// snapHeader is what a snapshot says before its rows.
type snapHeader struct {
	log       frame.Log
	at        place
	stamp     stamp
	closed    time.Time
	done      int
	live      int
	liveBytes int64
	indexCRC  uint32
}

// A place is a position in a log.
type place struct {
	segment uint64
	pos     frame.Position
}

func (p place) mark() mark { return mark{p.segment, p.pos.Offset} }

func (h snapHeader) encode() []byte {
	b := make([]byte, snapHeaderSize)
	le := binary.LittleEndian
	copy(b, snapMagic)
	copy(b[8:], h.log.UUID[:])
	le.PutUint32(b[24:], h.log.Shard)
	le.PutUint64(b[32:], h.at.pos.LSN)
	le.PutUint64(b[40:], h.at.segment)
	le.PutUint64(b[48:], uint64(h.at.pos.Offset))
	le.PutUint32(b[56:], h.at.pos.CRC)
	copy(b[64:], h.stamp.append(nil))
	if !h.closed.IsZero() {
		le.PutUint64(b[96:], uint64(h.closed.UnixNano()))
	}
	le.PutUint64(b[104:], uint64(h.done))
	le.PutUint64(b[112:], uint64(h.live))
	le.PutUint64(b[120:], uint64(h.liveBytes))
	le.PutUint32(b[128:], h.indexCRC)
	le.PutUint32(b[snapCRCAt:], crc32.Checksum(b[:snapCRCAt], castagnoli))
	return b
}

func decodeSnapHeader(b []byte) (snapHeader, error) {
	if len(b) < snapHeaderSize || string(b[:len(snapMagic)]) != snapMagic {
		return snapHeader{}, errors.New("not a snapshot of this version")
	}
	b = b[:snapHeaderSize]
	le := binary.LittleEndian
	if crc32.Checksum(b[:snapCRCAt], castagnoli) != le.Uint32(b[snapCRCAt:]) {
		return snapHeader{}, errors.New("checksum of the snapshot's header")
	}
	s, _, err := decodeStamp(b[64:96])
	if err != nil {
		return snapHeader{}, err
	}
	h := snapHeader{
		log: frame.Log{UUID: [16]byte(b[8:24]), Shard: le.Uint32(b[24:])},
		at: place{
			segment: le.Uint64(b[40:]),
			pos:     frame.Position{LSN: le.Uint64(b[32:]), Offset: int64(le.Uint64(b[48:])), CRC: le.Uint32(b[56:])},
		},
		stamp: s,
		done:  int(le.Uint64(b[104:])), live: int(le.Uint64(b[112:])),
		liveBytes: int64(le.Uint64(b[120:])), indexCRC: le.Uint32(b[128:]),
	}
	if n := int64(le.Uint64(b[96:])); n > 0 {
		h.closed = time.Unix(0, n).UTC()
	}
	if h.done < 0 || h.done > MaxCapacity || h.live < 0 || h.live > MaxCapacity ||
		h.liveBytes < 0 || h.liveBytes > int64(h.live)*(liveRowHead+ledger.MaxRowBytes) ||
		h.at.segment == 0 || h.at.pos.Offset < frame.SegmentHeaderSize || h.at.pos.LSN == 0 {
		return snapHeader{}, errors.New("snapshot header out of range")
	}
	if !bytes.Equal(h.encode(), b) {
		return snapHeader{}, errors.New("snapshot header malformed")
	}
	return h, nil
}

func (h snapHeader) seed() uint32 {
	var n [8]byte
	binary.LittleEndian.PutUint64(n[:], h.at.pos.LSN)
	return crc32.Update(logSeed(h.log), castagnoli, n[:])
}

func logSeed(l frame.Log) uint32 {
	var n [4]byte
	binary.LittleEndian.PutUint32(n[:], l.Shard)
	return crc32.Update(crc32.Checksum(l.UUID[:], castagnoli), castagnoli, n[:])
}

func (h snapHeader) liveAt() int64  { return snapHeaderSize + int64(blocksFor(h.done))*blockSize }
func (h snapHeader) indexAt() int64 { return h.liveAt() + h.liveBytes }
func (h snapHeader) size() int64 {
	return h.indexAt() + int64(blocksFor(h.done))*indexKeyBytes
}

func snapName(lsn uint64) string { return fmt.Sprintf("%020d%s", lsn, snapSuffix) }

// writeSnapshot writes st as it is at a place of the log. Below temp the
// caller alone writes.
func writeSnapshot(dir durable.FS, temp string, log frame.Log, at place, st *state) (err error) {
	f, err := dir.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, durable.FilePerm)
	if err != nil {
		return err
	}
	defer func() {
		if err = errors.Join(err, f.Close()); err != nil && !errors.Is(err, durable.ErrPoisoned) {
			err = errors.Join(err, removeIfThere(dir, temp))
		}
	}()
	h := snapHeader{log: log, at: at, stamp: st.stamp, closed: st.closed}
	w := &snapWriter{out: fileWriter{f: f, off: snapHeaderSize}, seed: h.seed()}
	if err := w.doneRows(st); err != nil {
		return err
	}
	if err := w.liveRows(st); err != nil {
		return err
	}
	h.done, h.live, h.liveBytes = w.done, w.live, w.liveBytes
	h.indexCRC = crc32.Update(h.seed(), castagnoli, w.index)
	if err := w.out.write(w.index); err != nil {
		return err
	}
	if err := w.out.flush(); err != nil {
		return err
	}
	if _, err := f.WriteAt(h.encode(), 0); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	// Between here and SyncDir a crash leaves the older snapshot with its
	// segments: safe, nothing was removed yet.
	if err := dir.Rename(temp, snapName(at.pos.LSN)); err != nil {
		return err
	}
	return dir.SyncDir(".")
}

// snapWriter writes the parts of a snapshot behind its header.
type snapWriter struct {
	out   fileWriter
	seed  uint32
	block []byte
	index []byte

	done, live int
	liveBytes  int64
}

// doneRows merges the old table with the rows that are now done for ever.
func (w *snapWriter) doneRows(st *state) error {
	var fresh []ledger.Row
	for _, r := range st.rows {
		if isDoneForEver(r) {
			fresh = append(fresh, r)
		}
	}
	sortByKey(fresh)
	err := st.done.each(func(old ledger.Row) error {
		for len(fresh) > 0 && bytes.Compare(fresh[0].Key[:], old.Key[:]) < 0 {
			if err := w.add(fresh[0]); err != nil {
				return err
			}
			fresh = fresh[1:]
		}
		return w.add(old)
	})
	if err != nil {
		return err
	}
	for _, r := range fresh {
		if err := w.add(r); err != nil {
			return err
		}
	}
	return w.endBlock()
}

func (w *snapWriter) add(r ledger.Row) error {
	if len(w.block) == 0 {
		w.index = append(w.index, r.Key[:indexKeyBytes]...)
	}
	w.block = appendDoneRow(w.block, r)
	w.done++
	if len(w.block) == rowsPerBlock*doneRowSize {
		return w.endBlock()
	}
	return nil
}

func (w *snapWriter) endBlock() error {
	if len(w.block) == 0 {
		return nil
	}
	w.block = append(w.block, make([]byte, blockSize-len(w.block))...)
	number := len(w.index)/indexKeyBytes - 1
	binary.LittleEndian.PutUint32(w.block[blockCRCAt:], blockCRC(w.seed, number, w.block))
	err := w.out.write(w.block)
	w.block = w.block[:0]
	return err
}

// liveRows writes the rows that may still change, sorted too, so that one
// state has one snapshot.
func (w *snapWriter) liveRows(st *state) error {
	var rows []ledger.Row
	for _, r := range st.rows {
		if !isDoneForEver(r) {
			rows = append(rows, r)
		}
	}
	sortByKey(rows)
	var b []byte
	for _, r := range rows {
		var err error
		if b, err = ledger.AppendRow(append(b[:0], make([]byte, liveRowHead)...), r); err != nil {
			return err
		}
		binary.LittleEndian.PutUint32(b, uint32(len(b)-liveRowHead))
		crc := crc32.Update(w.seed, castagnoli, b[:4])
		binary.LittleEndian.PutUint32(b[4:], crc32.Update(crc, castagnoli, b[liveRowHead:]))
		if err := w.out.write(b); err != nil {
			return err
		}
		w.live++
		w.liveBytes += int64(len(b))
	}
	return nil
}

func sortByKey(rows []ledger.Row) {
	slices.SortFunc(rows, func(a, b ledger.Row) int { return bytes.Compare(a.Key[:], b.Key[:]) })
}

// fileWriter gathers small writes.
type fileWriter struct {
	f   durable.File
	off int64
	buf []byte
}

func (w *fileWriter) write(b []byte) error {
	w.buf = append(w.buf, b...)
	if len(w.buf) < 256<<10 {
		return nil
	}
	return w.flush()
}

func (w *fileWriter) flush() error {
	if len(w.buf) == 0 {
		return nil
	}
	n, err := w.f.WriteAt(w.buf, w.off)
	w.off += int64(n)
	w.buf = w.buf[:0]
	return err
}

func removeIfThere(dir durable.FS, name string) error {
	if err := dir.Remove(name); err != nil && !isNotExist(err) {
		return err
	}
	return nil
}

// openSnapshot reads a snapshot: its rows that may change into memory, of the
// others the index. The file stays open for the table.
func openSnapshot(dir durable.FS, name string, log frame.Log) (*state, place, error) {
	f, err := dir.OpenFile(name, os.O_RDONLY, 0)
	if err != nil {
		return nil, place{}, err
	}
	st, at, err := loadSnapshot(f, name, log)
	if err != nil {
		return nil, place{}, errors.Join(err, f.Close())
	}
	return st, at, nil
}

func loadSnapshot(f durable.File, name string, log frame.Log) (*state, place, error) {
	corrupt := func(offset int64, why string) (*state, place, error) {
		return nil, place{}, &CorruptError{File: name, Offset: offset, Why: why}
	}
	size, err := f.Size()
	if err != nil {
		return nil, place{}, err
	}
	head, err := readRange(f, 0, min(size, snapHeaderSize))
	if err != nil {
		return nil, place{}, err
	}
	h, err := decodeSnapHeader(head)
	switch {
	case err != nil:
		return corrupt(0, err.Error())
	case h.log != log || snapName(h.at.pos.LSN) != name:
		return corrupt(0, "snapshot of another log or place")
	case h.size() != size:
		return corrupt(min(size, h.size()), "snapshot of another length than it says")
	}
	tail, err := readRange(f, h.liveAt(), size-h.liveAt())
	if err != nil {
		return nil, place{}, err
	}
	if int64(len(tail)) != size-h.liveAt() {
		return corrupt(h.liveAt()+int64(len(tail)), "snapshot cut off")
	}
	index := tail[h.liveBytes:]
	if crc32.Update(h.seed(), castagnoli, index) != h.indexCRC {
		return corrupt(h.indexAt(), "checksum of the index")
	}
	st := newState()
	st.stamp, st.closed = h.stamp, h.closed
	if at, err := loadLiveRows(st, tail[:h.liveBytes], h); err != nil {
		return corrupt(h.liveAt()+at, err.Error())
	}
	st.done = &doneTable{file: f, name: name, seed: h.seed(), rows: h.done, at: snapHeaderSize, index: slices.Clone(index)}
	return st, h.at, nil
}

// loadLiveRows reads the rows that may change. With an error it says where.
func loadLiveRows(st *state, b []byte, h snapHeader) (at int64, err error) {
	var last fencepost.DeliveryKey
	all := len(b)
	for range h.live {
		at := int64(all - len(b))
		if len(b) < liveRowHead {
			return at, errors.New("rows end early")
		}
		n := uint64(binary.LittleEndian.Uint32(b))
		if n > uint64(len(b)-liveRowHead) {
			return at, errors.New("row longer than what is left")
		}
		raw := b[liveRowHead : liveRowHead+n]
		crc := crc32.Update(h.seed(), castagnoli, b[:4])
		if crc32.Update(crc, castagnoli, raw) != binary.LittleEndian.Uint32(b[4:]) {
			return at, errors.New("checksum of a row")
		}
		r, err := ledger.DecodeRow(raw)
		if err != nil {
			return at, err
		}
		if bytes.Compare(r.Key[:], last[:]) <= 0 || r.Fence.Uint64() >= h.at.pos.LSN {
			return at, errors.New("row out of order, or its fence ahead of the log")
		}
		st.put(r.Key, ledger.Row{}, r)
		last, b = r.Key, b[liveRowHead+n:]
	}
	if len(b) > 0 {
		return int64(all - len(b)), errors.New("bytes behind the rows")
	}
	return 0, nil
}

func readRange(f io.ReaderAt, at, n int64) ([]byte, error) {
	b := make([]byte, n)
	got, err := f.ReadAt(b, at)
	if err != nil && err != io.EOF {
		return nil, err
	}
	return b[:got], nil
}
