package fileledger

import (
	"context"
	"fmt"
	"time"

	"github.com/fencepost/fencepost/ledger"
)

// compactSegments is how many segments a log has before it is compacted, or
// more where the table of done rows, which is written anew each time, is
// large: a quarter of it.
const compactSegments = 4

// compactRetry is how long a compaction that failed is not tried again.
const compactRetry = 10 * time.Second

// needsCompaction reports whether the log behind the newest snapshot has
// grown enough.
func (s *shard) needsCompaction() bool {
	if now := s.led.cfg.Instant(); now.Boot == s.compactAfter.Boot && now.At < s.compactAfter.At {
		return false
	}
	enough := max(compactSegments, int64(s.state.done.len())*doneRowSize/4/s.led.cfg.SegmentBytes)
	return int64(s.log.hdr.Segment)-int64(s.state.from) >= enough
}

// compact begins to write a snapshot, in the end of which the log before it is
// removed. Only one shard of a process does so at a time: others come to it
// later.
func (s *shard) compact(ctx context.Context) error {
	select {
	case s.led.compacting <- struct{}{}:
	default:
		return nil
	}
	err := s.begin(ctx)
	if s.making == nil {
		<-s.led.compacting
		return s.retryLater(err)
	}
	s.making.turn = true
	return s.retryLater(s.goOn(ctx))
}

// retryLater puts the next compaction off after an error of this one, which it
// returns.
func (s *shard) retryLater(err error) error {
	if err != nil {
		s.compactAfter = s.led.cfg.Instant()
		s.compactAfter.At += compactRetry
	}
	return err
}

// compactNow writes a snapshot and removes the log before it.
func (s *shard) compactNow(ctx context.Context) error {
	if err := s.complete(ctx); err != nil {
		return err
	}
	if err := s.begin(ctx); err != nil {
		return err
	}
	return s.complete(ctx)
}

// begin begins a snapshot, unless there is one of this state.
func (s *shard) begin(ctx context.Context) error {
	var newer bool
	err := s.locked(ctx, func() error {
		list, err := listShard(s.log.dir)
		if err != nil {
			return err
		}
		newest := list.newest()
		newer = newest > s.state.snapshot
		if newer {
			// Another process was faster: its snapshot is as good.
			return s.load(ctx)
		}
		return nil
	})
	if err != nil || newer {
		return err
	}
	// The snapshot promises that all before its place was synced.
	at := s.log.place()
	if err := s.log.sync(ctx, at.mark()); err != nil {
		return err
	}
	if at.pos.LSN == s.state.snapshot {
		return s.locked(ctx, func() error { return s.prune(ctx) })
	}
	temp := tempName(at.pos.LSN, s.led.slots.own.Slot)
	s.making, err = makeSnapshot(s.log.dir, temp, s.log.id, at, s.state)
	return err
}

// prune removes what the newest snapshot makes superfluous, and takes it as
// the state's base. The append lock is held: nobody reads the log now.
//
// RELIABILITY I9: the newer snapshot is durable, and named in a durable
// directory.
func (s *shard) prune(ctx context.Context) error {
	if err := s.load(ctx); err != nil {
		return err
	}
	list, err := listShard(s.log.dir)
	if err != nil {
		return err
	}
	for _, n := range list.segments {
		if n < s.state.from && n < s.log.hdr.Segment {
			if err := s.log.dir.Remove(segName(n)); err != nil {
				return err
			}
		}
	}
	for _, lsn := range list.snapshots {
		if lsn < s.state.snapshot {
			if err := s.log.dir.Remove(snapName(lsn)); err != nil {
				return err
			}
		}
	}
	return s.log.dir.SyncDir(".")
}

func (f files) newest() uint64 {
	if len(f.snapshots) == 0 {
		return 0
	}
	return f.snapshots[len(f.snapshots)-1]
}

// cleanUp is a round of maintenance.
func (s *shard) cleanUp(ctx context.Context) error {
	return s.pass(ctx, []*op{{do: func(ctx context.Context, s *shard) error { return s.removeRows(ctx) }}})
}

// removeRows removes the rows that may be removed.
func (s *shard) removeRows(ctx context.Context) error {
	now := s.state.stamp.at(s.led.cfg.Instant())
	wall := s.led.cfg.Now()
	for key, row := range s.state.rows {
		if !ledger.Removable(row, wall, now.running) {
			continue
		}
		end, _ := row.Lifetime.End()
		if err := s.append(ctx, record{stamp: now, key: key, closed: later(end, s.state.closed)}, row); err != nil {
			return err
		}
	}
	return s.tick(ctx, now)
}

// tickEvery is how much running time passes before an idle log says so again.
const tickEvery = time.Hour

// tick ends a log that has fallen idle with a frame that says that all before
// it was synced, so that damage to its last rows can't pass for an unfinished
// write. From then on it keeps count of the running time, also over starts of
// the machine.
func (s *shard) tick(ctx context.Context, now stamp) error {
	last := s.state.stamp
	if s.state.ticked && now.now.Boot == last.now.Boot && now.running-last.running < tickEvery {
		return nil
	}
	return s.appendTick(ctx)
}

func (s *shard) appendTick(ctx context.Context) error {
	return s.append(ctx, record{stamp: s.state.stamp.at(s.led.cfg.Instant())}, ledger.Row{})
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// removeTemps removes what dead processes have left half-made. The names of
// temporary files bear their makers' slots; this process has made none yet.
func (s *shard) removeTemps() error {
	list, err := listShard(s.log.dir)
	if err != nil {
		return err
	}
	for _, name := range list.temps {
		gone, err := s.led.slots.freeOrOwn(tempSlot(name))
		if err != nil {
			return err
		}
		if gone {
			if err := removeIfThere(s.log.dir, name); err != nil {
				return err
			}
		}
	}
	return nil
}

const tempSuffix = snapSuffix + ".tmp"

func tempName(lsn uint64, slot uint32) string {
	return fmt.Sprintf("%020d-%03d%s", lsn, slot, tempSuffix)
}

// tempSlot is the slot in a temporary file's name; one that there is none of
// for a name that has none.
func tempSlot(name string) uint32 {
	var lsn uint64
	var slot uint32
	if n, err := fmt.Sscanf(name, "%020d-%03d", &lsn, &slot); err != nil || n != 2 {
		return maxSlots
	}
	return slot
}
