package fileledger

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/durable"
	"github.com/fencepost/fencepost/ledger"
)

// A Report is what [Verify] found.
type Report struct {
	// UUID, Shards, Lease, Capacity and Window are what the root was made
	// with.
	Config Config
	UUID   [16]byte
	// Poisoned is why the root takes no writes; nil if it does.
	Poisoned error
	// Shut is why the root can't be opened though it may be whole: it was
	// moved, or is a copy; nil if it can.
	Shut error
	// Shards are in order.
	Shards []ShardReport
}

// A ShardReport is what [Verify] found in one shard.
type ShardReport struct {
	// Number is the shard's.
	Number int
	// Rows are counted by state.
	Leased, Staged, Done int
	// LSN is that of the last frame, Snapshot that of the newest snapshot's
	// place, or 0.
	LSN, Snapshot uint64
	// Segments are those behind the snapshot.
	Segments int
	// Frames were read and verified behind the snapshot, and Bytes are the
	// sizes of all files that were read.
	Frames, Bytes int64
	// Torn names file and offset of a write that was never finished nor
	// acknowledged; the next process that opens the ledger seals it. Empty
	// if there is none.
	Torn string
	// Err says what does not verify, with file and offset; nil if all does.
	Err error
}

// Err joins what does not verify in any shard with the poison, or is nil.
func (r Report) Err() error {
	errs := []error{r.Poisoned}
	for _, s := range r.Shards {
		errs = append(errs, s.Err)
	}
	return opError("ledger.verify", errors.Join(errs...))
}

// Verify reads every byte of the ledger in cfg.Dir that counts and changes
// nothing. Only cfg.Dir is looked at; the parameters are the root's own. It
// also works on a ledger that is poisoned, corrupt or open: each shard's
// append lock is held while it is read. The error is about the superblock or
// the files themselves; what the shards hold is in the report.
func Verify(ctx context.Context, cfg Config) (Report, error) {
	r, err := verifyIn(ctx, durable.OS(filepath.Clean(cfg.Dir)))
	return r, opError("ledger.verify", err)
}

func verifyIn(ctx context.Context, fsys durable.FS) (Report, error) {
	super, shut := inspect(fsys)
	if shut != nil && !errors.Is(shut, ledger.ErrMoved) && !errors.Is(shut, ErrCopy) {
		return Report{}, shut
	}
	r := Report{UUID: super.uuid, Shut: shut, Config: Config{
		Lease: super.lease, Capacity: super.capacity, Window: super.window, Shards: super.shards,
	}}
	if _, err := fsys.Stat(durable.PoisonName); err == nil {
		r.Poisoned = &durable.PoisonedError{Op: "mark", Err: fmt.Errorf("see %s", durable.PoisonName)}
	} else if !isNotExist(err) {
		return Report{}, err
	}
	for n := range super.shards {
		if err := context.Cause(ctx); err != nil {
			return Report{}, err
		}
		s, err := verifyShard(ctx, fsys, super, n)
		if err != nil {
			return Report{}, err
		}
		r.Shards = append(r.Shards, s)
	}
	return r, nil
}

// verifyShard reads one shard under its append lock.
func verifyShard(ctx context.Context, fsys durable.FS, super superblock, n int) (_ ShardReport, err error) {
	s := stillShard(fsys, super, n)
	defer func() { err = errors.Join(err, s.closeStill()) }()
	s.log.appendLock = lockFile{fsys: fsys, name: appendLockName(n), flag: os.O_RDONLY}
	name := shardDir(n) + "/" + headName
	if s.log.head.file, err = fsys.OpenFile(name, os.O_RDONLY, 0); err != nil {
		return ShardReport{}, permission(name, err)
	}
	if err := s.log.appendLock.lock(ctx); err != nil {
		return ShardReport{}, permission(s.log.appendLock.name, err)
	}
	r := ShardReport{Number: n}
	if err := s.verify(&r); err != nil {
		r.Err = s.log.corrupt(err)
	}
	return r, nil
}

func (s *shard) verify(r *ShardReport) error {
	if err := s.read(); err != nil {
		return err
	}
	if err := s.verifyDone(); err != nil {
		return err
	}
	r.Leased, r.Staged = s.state.counts[ledger.Leased], s.state.counts[ledger.Staged]
	r.Done = s.state.counts[ledger.Done] + s.state.tabled()
	r.LSN, r.Snapshot = s.log.pos.LSN-1, s.state.snapshot
	r.Segments = int(s.log.hdr.Segment-s.state.from) + 1
	if err := s.measure(r); err != nil {
		return err
	}
	if s.torn {
		r.Torn = fmt.Sprintf("%s/%s at offset %d", s.log.name, segName(s.log.hdr.Segment), s.log.pos.Offset)
	}
	return nil
}

// verifyDone reads the whole table of done rows: sorted, of this shard, and
// nowhere else. A key whose row was retired may have come again.
func (s *shard) verifyDone() error {
	var last fencepost.DeliveryKey
	n := 0
	return s.state.done.each(func(r ledger.Row) error {
		block := n / s.state.done.layout.perBlock
		n++
		_, again := s.state.rows[r.Key]
		twice := again && !s.state.retired[r.Trust]
		if bytes.Compare(r.Key[:], last[:]) <= 0 || twice || s.owner(r.Key) != s.number {
			return s.state.done.corrupt(block, "done rows out of order, twice, or of another shard")
		}
		last = r.Key
		return nil
	})
}

// measure adds up what was read.
func (s *shard) measure(r *ShardReport) error {
	r.Frames = s.frames
	names := []string{headName}
	for n := s.state.from; n <= s.log.hdr.Segment; n++ {
		names = append(names, segName(n))
	}
	if s.state.snapshot > 0 {
		names = append(names, snapName(s.state.snapshot))
	}
	for _, name := range names {
		info, err := s.log.dir.Stat(name)
		if err != nil {
			return err
		}
		r.Bytes += info.Size
	}
	return nil
}
