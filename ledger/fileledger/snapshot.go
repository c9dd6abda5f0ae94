package fileledger

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"maps"
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
//	   0  8  magic "fpsnap\x00\x02"; the last byte is the version
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
//	 132  4  trust marks, at most 247
//	 136     each: mark, 8; done rows that bear it, 4; 1 if its rows were
//	         retired, 4; and zeros behind the last
//	4092  4  CRC-32C of bytes 0 to 4091
//	4096     blocks of done rows
//	         other rows, each: length, 4; CRC-32C, 4; row
//	         index: the first 8 bytes of each block's first key
const (
	snapSuffix     = ".snap"
	snapMagic      = "fpsnap\x00"
	snapVersion    = 2
	marksAt        = 136
	markSize       = 16
	maxMarks       = (snapCRCAt - marksAt) / markSize
	snapHeaderSize = 4096
	snapCRCAt      = snapHeaderSize - 4
	liveRowHead    = 8
)

// snapHeader is what a snapshot says before its rows.
type snapHeader struct {
	version   byte
	log       frame.Log
	at        place
	stamp     stamp
	closed    time.Time
	done      int
	live      int
	liveBytes int64
	indexCRC  uint32
	marks     []markedRows
}

// markedRows are the done rows of a snapshot that bear one trust mark. A
// retired mark has none.
type markedRows struct {
	mark    ledger.TrustMark
	rows    int
	retired bool
}

func (h snapHeader) layout() layout { return layouts[h.version] }

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
	b[len(snapMagic)] = h.version
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
	le.PutUint32(b[132:], uint32(len(h.marks)))
	for i, m := range h.marks {
		at := b[marksAt+i*markSize:]
		copy(at, m.mark[:])
		le.PutUint32(at[8:], uint32(m.rows))
		if m.retired {
			at[12] = 1
		}
	}
	le.PutUint32(b[snapCRCAt:], crc32.Checksum(b[:snapCRCAt], castagnoli))
	return b
}

func decodeSnapHeader(b []byte) (snapHeader, error) {
	if len(b) < snapHeaderSize || string(b[:len(snapMagic)]) != snapMagic {
		return snapHeader{}, errors.New("not a snapshot")
	}
	if v := b[len(snapMagic)]; v < 1 || v > snapVersion {
		return snapHeader{}, fmt.Errorf("snapshot of version %d, this program knows %d", v, snapVersion)
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
		version: b[len(snapMagic)],
		log:     frame.Log{UUID: [16]byte(b[8:24]), Shard: le.Uint32(b[24:])},
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
	if h.marks, err = decodeMarks(b, h.version); err != nil {
		return snapHeader{}, err
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

// decodeMarks reads the trust marks of a header.
func decodeMarks(b []byte, version byte) ([]markedRows, error) {
	n := binary.LittleEndian.Uint32(b[132:])
	if version == 1 && n > 0 || n > maxMarks {
		return nil, errors.New("too many trust marks")
	}
	var marks []markedRows
	seen := map[ledger.TrustMark]bool{}
	for i := range int(n) {
		at := b[marksAt+i*markSize:]
		m := markedRows{mark: ledger.TrustMark(at[:8]), rows: int(binary.LittleEndian.Uint32(at[8:])), retired: at[12] == 1}
		if m.mark.IsZero() || seen[m.mark] || m.rows > MaxCapacity || m.retired && m.rows > 0 {
			return nil, errors.New("trust mark out of range, or twice")
		}
		seen[m.mark] = true
		marks = append(marks, m)
	}
	return marks, nil
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

func (h snapHeader) liveAt() int64 {
	return snapHeaderSize + int64(h.layout().blocks(h.done))*blockSize
}
func (h snapHeader) indexAt() int64 { return h.liveAt() + h.liveBytes }
func (h snapHeader) size() int64 {
	return h.indexAt() + int64(h.layout().blocks(h.done))*indexKeyBytes
}

func snapName(lsn uint64) string { return fmt.Sprintf("%020d%s", lsn, snapSuffix) }

// snapWriter writes a snapshot: trust marks that were retired, done rows,
// other rows, each in the order of their keys, and then the rest.
type snapWriter struct {
	snapHeader
	out   fileWriter
	block []byte
	index []byte
}

func newSnapWriter(f durable.File, log frame.Log, at place) *snapWriter {
	return &snapWriter{
		snapHeader: snapHeader{version: snapVersion, log: log, at: at},
		out:        fileWriter{f: f, off: snapHeaderSize},
	}
}

// retired keeps the mark of a trust set that was retired. Marks are sorted, so
// that one state has one snapshot.
func (w *snapWriter) retired(mark ledger.TrustMark) {
	at, _ := slices.BinarySearchFunc(w.marks, mark, func(m markedRows, mark ledger.TrustMark) int {
		return bytes.Compare(m.mark[:], mark[:])
	})
	w.marks = slices.Insert(w.marks, at, markedRows{mark: mark, retired: true})
}

// number is the number of a row's trust mark, which a new one gets here: 0 for
// none. ok is false if there is no room for it, or it was retired.
func (w *snapWriter) number(mark ledger.TrustMark) (n int, ok bool) {
	if mark.IsZero() {
		return 0, true
	}
	for i, m := range w.marks {
		if m.mark == mark {
			return i + 1, !m.retired
		}
	}
	if len(w.marks) == maxMarks {
		return 0, false
	}
	w.marks = append(w.marks, markedRows{mark: mark})
	return len(w.marks), true
}

// tabled reports whether a row goes into the table, and keeps room for its
// trust mark if it does.
func (w *snapWriter) tabled(r ledger.Row) bool {
	if !fitsTable(r) {
		return false
	}
	_, ok := w.number(r.Trust)
	return ok
}

// add adds a row to the table.
func (w *snapWriter) add(r ledger.Row) error {
	if len(w.block) == 0 {
		w.index = append(w.index, r.Key[:indexKeyBytes]...)
	}
	n, ok := w.number(r.Trust)
	if !ok || !fitsTable(r) {
		return fmt.Errorf("row %s does not fit the table of done rows: %w", r.Key, ledger.ErrIllegalRow)
	}
	w.block = appendDoneRow(w.block, r, uint8(n))
	if n > 0 {
		w.marks[n-1].rows++
	}
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
	binary.LittleEndian.PutUint32(w.block[blockCRCAt:], blockCRC(w.seed(), number, w.block))
	err := w.out.write(w.block)
	w.block = w.block[:0]
	return err
}

// other writes a row that is not in the table.
func (w *snapWriter) other(r ledger.Row) error {
	b, err := ledger.AppendRow(make([]byte, liveRowHead, liveRowHead+ledger.EncodedLen(r)), r)
	if err != nil {
		return err
	}
	binary.LittleEndian.PutUint32(b, uint32(len(b)-liveRowHead))
	crc := crc32.Update(w.seed(), castagnoli, b[:4])
	binary.LittleEndian.PutUint32(b[4:], crc32.Update(crc, castagnoli, b[liveRowHead:]))
	w.live++
	w.liveBytes += int64(len(b))
	return w.out.write(b)
}

// finish writes what stands behind the rows, and the header.
func (w *snapWriter) finish() error {
	w.indexCRC = crc32.Update(w.seed(), castagnoli, w.index)
	if err := w.out.write(w.index); err != nil {
		return err
	}
	if err := w.out.flush(); err != nil {
		return err
	}
	_, err := w.out.f.WriteAt(w.encode(), 0)
	return err
}

// sorted are the rows in memory.
func (s *state) sorted() []ledger.Row {
	rows := slices.Collect(maps.Values(s.rows))
	sortByKey(rows)
	return rows
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

// len is how long the file is once all is written.
func (w *fileWriter) len() int64 { return w.off + int64(len(w.buf)) }

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
	for _, m := range h.marks {
		if m.retired {
			st.retired[m.mark] = true
		}
	}
	if at, err := loadLiveRows(st, tail[:h.liveBytes], h); err != nil {
		return corrupt(h.liveAt()+at, err.Error())
	}
	st.done = &doneTable{
		file: f, name: name, seed: h.seed(), layout: h.layout(), marks: h.marks, rows: h.done,
		at: snapHeaderSize, index: slices.Clone(index),
	}
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
