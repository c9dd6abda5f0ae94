package fileledger

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"

	"github.com/fencepost/fencepost/internal/durable"
	"github.com/fencepost/fencepost/ledger"
)

const (
	slotDir = "slots"
	// maxSlots bounds the processes that have a ledger open at once.
	maxSlots = 256
)

// ErrNoSlot: as many processes as can have this ledger open already.
var ErrNoSlot = fmt.Errorf("%d processes have this ledger open", maxSlots)

// slots tells which holders live. Each process keeps the lock of one slot
// file for life; the kernel frees it when the process ends, however it ends.
// The epoch in the file tells one owner of a slot from the next.
type slots struct {
	fsys durable.FS
	own  ledger.Holder
	file durable.File
}

func slotName(n uint32) string { return fmt.Sprintf("%s/%03d", slotDir, n) }

// takeSlot takes the first free slot.
func takeSlot(fsys durable.FS) (*slots, error) {
	for n := range uint32(maxSlots) {
		f, err := fsys.OpenFile(slotName(n), os.O_RDWR|os.O_CREATE, durable.FilePerm)
		if err != nil {
			return nil, err
		}
		taken, err := f.TryLock(durable.Exclusive)
		if err == nil && taken {
			epoch, err := nextEpoch(f)
			if err != nil {
				return nil, errors.Join(err, f.Close())
			}
			return &slots{fsys: fsys, own: ledger.Holder{Slot: n, Epoch: epoch}, file: f}, nil
		}
		if err := errors.Join(err, f.Close()); err != nil {
			return nil, err
		}
	}
	return nil, ErrNoSlot
}

// nextEpoch counts the owners of a slot. It is not synced: after a restart of
// the machine every lease has passed by its boot id.
func nextEpoch(f durable.File) (uint64, error) {
	epoch, err := readEpoch(f)
	if err != nil {
		return 0, err
	}
	epoch++
	var b [12]byte
	binary.LittleEndian.PutUint64(b[:], epoch)
	binary.LittleEndian.PutUint32(b[8:], crc32.Checksum(b[:8], castagnoli))
	_, err = f.WriteAt(b[:], 0)
	return epoch, err
}

// readEpoch returns 0 where nobody has written one.
func readEpoch(f durable.File) (uint64, error) {
	var b [12]byte
	n, err := f.ReadAt(b[:], 0)
	if err != nil && err != io.EOF {
		return 0, err
	}
	if n < len(b) || crc32.Checksum(b[:8], castagnoli) != binary.LittleEndian.Uint32(b[8:]) {
		return 0, nil
	}
	return binary.LittleEndian.Uint64(b[:]), nil
}

// dead reports whether h is proven not to live any more. Doubt, such as an
// error, is no proof.
func (s *slots) dead(h ledger.Holder) (bool, error) {
	if h == s.own || h == (ledger.Holder{}) || h.Slot >= maxSlots {
		return false, nil
	}
	f, err := s.fsys.OpenFile(slotName(h.Slot), os.O_RDWR, 0)
	if err != nil {
		return false, err
	}
	dead, err := f.TryLock(durable.Exclusive)
	if err == nil && !dead {
		// Somebody lives there: the same one?
		var epoch uint64
		epoch, err = readEpoch(f)
		dead = err == nil && epoch > h.Epoch
	}
	return dead, errors.Join(err, f.Close())
}

// freeOrOwn reports whether nobody but this process has slot n.
func (s *slots) freeOrOwn(n uint32) (bool, error) {
	if n == s.own.Slot || n >= maxSlots {
		return true, nil
	}
	f, err := s.fsys.OpenFile(slotName(n), os.O_RDWR, 0)
	if isNotExist(err) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	free, err := f.TryLock(durable.Exclusive)
	return free, errors.Join(err, f.Close())
}

func (s *slots) close() error { return s.file.Close() }
