package fileledger

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/ledger"
	"github.com/fencepost/fencepost/ledger/ledgertest"
)

// What follows builds a ledger by hand, from docs/formats.md alone: no
// encoder of this module is called but for the digests of a delivery. If the
// page and the code part ways, it can't be opened.

// A page builds bytes at offsets, as the tables of the page give them.
type page []byte

func (p page) u32(at int, v uint32)    { binary.LittleEndian.PutUint32(p[at:], v) }
func (p page) u64(at int, v uint64)    { binary.LittleEndian.PutUint64(p[at:], v) }
func (p page) bytes(at int, b ...byte) { copy(p[at:], b) }
func (p page) text(at int, s string)   { copy(p[at:], s) }
func crcOf(parts ...[]byte) uint32 {
	return crc32.Checksum(bytes.Join(parts, nil), crc32.MakeTable(crc32.Castagnoli))
}
func le(v uint64, size int) (b []byte)  { b = binary.LittleEndian.AppendUint64(nil, v); return b[:size] }
func join(parts ...[]byte) (all []byte) { return bytes.Join(parts, nil) }

var (
	handUUID  = bytes.Repeat([]byte{0xfe, 0x21}, 8)
	handShard = []byte{0, 0, 0, 0}
	handBoot  = bytes.Repeat([]byte{7}, 16)
)

const (
	handLSN   = 501
	handSince = 1_790_000_000
)

func handFormat() []byte {
	p := make(page, 512)
	p.text(0, "fpledger")
	p.u32(8, 2)
	p.u32(12, 1)
	p.bytes(16, handUUID...)
	p.u64(32, 60_000_000_000)
	p.u64(40, 1000)
	p.u64(48, 300_000_000_000)
	p.u64(56, 86_400_000_000_000)
	p.u32(508, crcOf(p[:508]))
	return p
}

// handSegment is segment 3, whose first frame is number handLSN, with one
// frame: a put of a leased row.
func handSegment(row []byte) []byte {
	p := make(page, 256<<10)
	p.text(0, "fpseg\x00\x00\x01")
	p.bytes(8, handUUID...)
	p.u64(32, 3)
	p.u64(40, handLSN)
	p.u64(48, 2)
	p.u64(56, 5000)
	p.u32(64, 0x12345678)
	p.u32(68, crcOf(p[:68]))
	payload := join(le(0, 8), le(5_000_000_000, 8), handBoot, row) // the stamp, and the row
	f := p[4096:]
	f.u32(0, uint32(40+len(payload)))
	f.bytes(4, 1)
	f.u64(8, handLSN)
	f.u32(16, binary.LittleEndian.Uint32(p[68:]))
	f.u64(24, 4096)
	f.bytes(40, payload...)
	f.u32(32, crcOf(handUUID, handShard, le(3, 8), f[:32], payload))
	return p
}

func handMark(set string) []byte {
	// docs/encoding.md: each field is its length, big-endian, and its bytes.
	const domain = "fencepost.trust-mark/v1"
	var b []byte
	for _, field := range []string{domain, set} {
		b = binary.BigEndian.AppendUint64(b, uint64(len(field)))
		b = append(b, field...)
	}
	sum := sha256.Sum256(b)
	return sum[:8]
}

// handSnapshot is the state before frame handLSN: one done row in the table,
// one staged row beside it, one trust set that was retired.
func handSnapshot(done fencepost.AcceptedDelivery, published []byte, staged []byte, segment page) []byte {
	seed := join(handUUID, handShard, le(handLSN, 8))
	block := make(page, 4096)
	key, binding := done.Key(), done.Binding()
	block.bytes(0, key[:]...)
	block.bytes(32, binding[:]...)
	block.bytes(64, bytes.Repeat([]byte{0xe1}, 16)...)
	block.bytes(80, published...)
	block.bytes(112, le(44, 6)...)
	block.bytes(118, le(handSince, 4)...)
	block.bytes(122, 3, 2) // attempts, and the second mark
	block.u32(4092, crcOf(seed, le(0, 8), block[:4092]))
	n := le(uint64(len(staged)), 4)
	others := join(n, le(uint64(crcOf(seed, n, staged)), 4), staged)
	index := key[:8]
	p := make(page, 4096)
	p.text(0, "fpsnap\x00\x02")
	p.bytes(8, handUUID...)
	p.u64(32, handLSN)
	p.u64(40, 3)
	p.u64(48, 4096)
	p.u32(56, binary.LittleEndian.Uint32(segment[68:]))
	p.u64(64, 0)
	p.u64(72, 4_000_000_000)
	p.bytes(80, handBoot...)
	p.u64(96, 1_700_000_000_000_000_000)
	p.u64(104, 1)
	p.u64(112, 1)
	p.u64(120, uint64(len(others)))
	p.u32(128, crcOf(seed, index))
	p.u32(132, 2)
	p.bytes(136, join(handMark("gone"), le(0, 4), le(1, 4))...)
	p.bytes(152, join(handMark("test"), le(1, 4), le(0, 4))...)
	p.u32(4092, crcOf(p[:4092]))
	return join(p, block, others, index)
}

// handRow is the part of a row before what depends on its state.
func handRow(d fencepost.AcceptedDelivery, state byte, evaluation byte, fence uint64, mark []byte) []byte {
	key, binding := d.Key(), d.Binding()
	version := byte(1)
	if mark != nil {
		version = 2
	}
	return join([]byte{version, state, 0, 0}, key[:], binding[:], bytes.Repeat([]byte{evaluation}, 16),
		le(fence, 8), le(handSince, 5), le(1, 3), mark)
}

func handTerm() []byte {
	return join(handBoot, le(64_000_000_000, 8), le(handSince*1_000_000_000+60, 8), le(9, 4), le(1, 8))
}

func TestALedgerMadeByHandFromTheDocumentsCanBeOpened(t *testing.T) {
	t.Parallel()
	done := ledgertest.Deliver(t, ledgertest.Spec{ID: "done"})
	staged := ledgertest.Deliver(t, ledgertest.Spec{ID: "staged"})
	leased := ledgertest.Deliver(t, ledgertest.Spec{ID: "leased"})
	pub, err := fencepost.NewPublication([]byte("the exact bytes"))
	if err != nil {
		t.Fatal(err)
	}
	digest := pub.Digest()
	stagedRow := join(handRow(staged, 2, 0xe2, 45, nil), handTerm(), digest[:], le(uint64(pub.Len()), 4), pub.Bytes())
	leasedRow := join(handRow(leased, 1, 0xe3, handLSN, handMark("test")), handTerm())
	segment := handSegment(leasedRow)
	dir := filepath.Join(t.TempDir(), "ledger")
	write := func(name string, b []byte) {
		t.Helper()
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("FORMAT", handFormat())
	write("health", make([]byte, 512))
	write("locks/a00", nil)
	write("locks/s00", nil)
	write("slots/009", join(le(1, 8), le(uint64(crcOf(le(1, 8))), 4)))
	write("shard-00/head", make([]byte, 4096))
	write("shard-00/next.tmp", make([]byte, 256<<10))
	write("shard-00/000000000003.seg", segment)
	write("shard-00/00000000000000000"+strconv.Itoa(handLSN)+".snap", handSnapshot(done, digest[:], stagedRow, segment))

	r, err := Verify(t.Context(), Config{Dir: dir})
	if err != nil || r.Err() != nil || !bytes.Equal(r.UUID[:], handUUID) {
		t.Fatalf("verify: %v, %v, uuid %x", err, r.Err(), r.UUID)
	}
	if s := r.Shards[0]; s.Done != 1 || s.Staged != 1 || s.Leased != 1 || s.LSN != handLSN || s.Snapshot != handLSN || s.Frames != 1 || s.Torn != "" {
		t.Errorf("verify says %+v", s)
	}
	l, err := Open(t.Context(), Config{Dir: dir, Shards: 1, Capacity: 1000, SegmentBytes: 256 << 10, Volatile: true, Maintain: -1})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ctx := t.Context()
	if c, err := l.Claim(ctx, done); err != nil || c != fencepost.Claim(fencepost.Completed{}) {
		t.Errorf("the done row is answered %T, %v", c, err)
	}
	if row, _, err := l.Lookup(ctx, done.Key()); err != nil || row.Attempts != 3 || row.Fence.Uint64() != 44 ||
		row.Since.Unix() != handSince || row.Trust != ledger.MarkOf("test") || row.Evaluation != fencepost.EvaluationID(bytes.Repeat([]byte{0xe1}, 16)) {
		t.Errorf("the done row is %+v, %v", row, err)
	}
	c, err := l.Claim(ctx, staged)
	if p, ok := c.(fencepost.Publish); err != nil || !ok || !p.Staged.Publication().Equal(pub) {
		t.Errorf("the staged row is answered %T, %v", c, err)
	}
	c, err = l.Claim(ctx, leased)
	if a, ok := c.(fencepost.Acquired); err != nil || !ok || !a.Reclaimed || a.Lease.Fence().Uint64() <= handLSN {
		t.Errorf("the leased row is answered %+v, %v", c, err)
	}
	gone := ledgertest.Deliver(t, ledgertest.Spec{ID: "any", TrustSet: "gone"})
	if c, err := l.Claim(ctx, gone); err != nil || c != fencepost.Claim(fencepost.Expired{}) {
		t.Errorf("what a retired set authenticated is answered %T, %v", c, err)
	}
	// The page says where each version stands: a newer one is refused.
	later := handFormat()
	page(later).u32(8, 3)
	page(later).u32(508, crcOf(later[:508]))
	if _, err := decodeSuperblock(later); !errors.Is(err, ErrVersion) {
		t.Errorf("FORMAT of version 3: %v, want ErrVersion", err)
	}
}
