package fileledger

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"time"

	"github.com/fencepost/fencepost"
)

// Sentinels that errors of this package match.
var (
	// ErrCorrupt: stored bytes do not verify. [CorruptError] has the place.
	ErrCorrupt = errors.New("ledger is corrupt")
	// ErrVersion: the root was made by another version of this format.
	ErrVersion = errors.New("ledger of another format version")
	// ErrParameters: the root was made with other parameters.
	// [ParameterError] names the field.
	ErrParameters = errors.New("ledger was made with other parameters")
	// ErrClosed: the ledger was closed.
	ErrClosed = errors.New("ledger is closed")
)

// A CorruptError says where stored bytes do not verify. It matches
// [ErrCorrupt].
type CorruptError struct {
	// File is the name inside the ledger's directory.
	File string
	// Offset is where in the file the valid bytes end.
	Offset int64
	// Why says what is wrong, without any content.
	Why string
	// Mend says what to do; empty for what holds of lost or altered bytes.
	Mend string
}

// Error names file, offset and the mend.
func (e *CorruptError) Error() string {
	mend := e.Mend
	if mend == "" {
		mend = mendDamage
	}
	return fmt.Sprintf("%s is corrupt at offset %d: %s; %s", e.File, e.Offset, e.Why, mend)
}

// What mends a [CorruptError]. The long form of the first is in
// docs/operations.md.
const (
	mendDamage  = "stop the controller and keep the directory as evidence; put the file back from a file-system snapshot if nothing was written since, else start with a new data directory (docs/operations.md, A corrupt shard)"
	mendForeign = "somebody has put it there: stop the controller, move it out of the ledger's directory, and start"
	mendFormat  = "put it back from any copy of this ledger, since it is written once; if this is the directory of something else, name another directory"
	mendMark    = "somebody meant the ledger not to be opened: configure where it went, and never remove this mark while it is in use there"
)

// Is reports whether target is [ErrCorrupt].
func (e *CorruptError) Is(target error) bool { return target == ErrCorrupt }

// A ParameterError names a parameter that a root was made with another value
// of. It matches [ErrParameters].
type ParameterError struct {
	// Field is the parameter's name in configuration, such as
	// "ledger.lease".
	Field string
	// Made is the root's value, Given that of the [Config].
	Made, Given string
}

// Error names the field, both values and the mend.
func (e *ParameterError) Error() string {
	return fmt.Sprintf("%s: the ledger was made with %s, configured is %s; set it back, or start with a new data directory", e.Field, e.Made, e.Given)
}

// Is reports whether target is [ErrParameters].
func (e *ParameterError) Is(target error) bool { return target == ErrParameters }

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

const (
	formatName = "FORMAT"
	// The superblock is one sector, written once:
	//
	//	  0  8  magic "fpledger"
	//	  8  4  version, 2
	//	 12  4  shards
	//	 16 16  uuid
	//	 32  8  lease, ns
	//	 40  8  capacity, rows
	//	 48  8  max signed age, ns
	//	 56  8  max queue age, ns
	//	 64     zeros
	//	508  4  CRC-32C of bytes 0 to 507
	superSize    = 512
	superMagic   = "fpledger"
	superVersion = 2
)

// superblock is what a root was made with.
type superblock struct {
	version  uint32
	uuid     [16]byte
	shards   int
	lease    time.Duration
	capacity int
	window   fencepost.ReplayWindow
}

func (c Config) superblock(uuid [16]byte) superblock {
	return superblock{version: superVersion, uuid: uuid, shards: c.Shards, lease: c.Lease, capacity: c.Capacity, window: c.Window}
}

func (s superblock) encode() []byte {
	b := make([]byte, superSize)
	le := binary.LittleEndian
	copy(b, superMagic)
	le.PutUint32(b[8:], s.version)
	le.PutUint32(b[12:], uint32(s.shards))
	copy(b[16:], s.uuid[:])
	le.PutUint64(b[32:], uint64(s.lease))
	le.PutUint64(b[40:], uint64(s.capacity))
	le.PutUint64(b[48:], uint64(s.window.MaxSignedAge))
	le.PutUint64(b[56:], uint64(s.window.MaxQueueAge))
	le.PutUint32(b[superSize-4:], crc32.Checksum(b[:superSize-4], castagnoli))
	return b
}

// decodeSuperblock reads a superblock. Its error matches [ErrVersion] or
// [ErrCorrupt].
func decodeSuperblock(b []byte) (superblock, error) {
	corrupt := func(why string) (superblock, error) {
		return superblock{}, &CorruptError{File: formatName, Why: why, Mend: mendFormat}
	}
	if len(b) != superSize || string(b[:len(superMagic)]) != superMagic {
		return corrupt("not a ledger's superblock")
	}
	le := binary.LittleEndian
	if crc32.Checksum(b[:superSize-4], castagnoli) != le.Uint32(b[superSize-4:]) {
		return corrupt("checksum")
	}
	version := le.Uint32(b[8:])
	if version < 1 || version > superVersion {
		return superblock{}, fmt.Errorf("%w: %s is of version %d, this program knows %d; run the program that made it", ErrVersion, formatName, version, superVersion)
	}
	s := superblock{
		version: version,
		uuid:    [16]byte(b[16:32]), shards: int(le.Uint32(b[12:])),
		lease: time.Duration(le.Uint64(b[32:])), capacity: int(le.Uint64(b[40:])),
		window: fencepost.ReplayWindow{
			MaxSignedAge: time.Duration(le.Uint64(b[48:])), MaxQueueAge: time.Duration(le.Uint64(b[56:])),
		},
	}
	if s.shards < 1 || s.shards > MaxShards || s.capacity < 1 || s.capacity > MaxCapacity ||
		s.lease < MinLease || s.lease > MaxLease || s.window.Validate() != nil {
		return corrupt("values out of range")
	}
	if string(s.encode()) != string(b) {
		return corrupt("bytes where zeros belong")
	}
	return s, nil
}

// check reports every parameter in which c differs from s.
func (s superblock) check(c Config) error {
	var errs []error
	differ := func(field string, made, given any) {
		if made != given {
			errs = append(errs, &ParameterError{Field: field, Made: fmt.Sprint(made), Given: fmt.Sprint(given)})
		}
	}
	differ("ledger.lease", s.lease, c.Lease)
	differ("ledger.capacity", s.capacity, c.Capacity)
	differ("replay.max_signed_age", s.window.MaxSignedAge, c.Window.MaxSignedAge)
	differ("replay.max_queue_age", s.window.MaxQueueAge, c.Window.MaxQueueAge)
	differ("ledger.shards", s.shards, c.Shards)
	if len(errs) == 0 {
		return nil
	}
	return &fencepost.Error{Op: "ledger.open", Reason: fencepost.ReasonParameters, Err: errors.Join(errs...)}
}
