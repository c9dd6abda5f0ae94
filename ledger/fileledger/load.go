package fileledger

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/fencepost/fencepost/internal/durable"
	"github.com/fencepost/fencepost/internal/durable/frame"
)

// files is what a shard's directory holds.
type files struct {
	segments  []uint64 // in order
	snapshots []uint64 // by LSN, in order
	temps     []string // left over, or being made
}

// listShard reads a shard's directory. A name that is none of ours is an
// error: somebody has put it there.
func listShard(dir durable.FS) (files, error) {
	entries, err := dir.ReadDir(".")
	if err != nil {
		return files{}, err
	}
	var f files
	for _, e := range entries {
		base, isSeg := strings.CutSuffix(e.Name, segSuffix)
		base, isSnap := strings.CutSuffix(base, snapSuffix)
		switch {
		case e.Name == headName, e.Name == spareName:
		case strings.HasSuffix(e.Name, durable.TempSuffix):
			f.temps = append(f.temps, e.Name)
		case isSeg, isSnap:
			n, err := strconv.ParseUint(base, 10, 64)
			if err != nil || n == 0 || isSeg && e.Name != segName(n) || isSnap && e.Name != snapName(n) {
				return files{}, &CorruptError{File: e.Name, Why: "not the name of a file of this format", Mend: mendForeign}
			}
			if isSeg {
				f.segments = append(f.segments, n)
			} else {
				f.snapshots = append(f.snapshots, n)
			}
		default:
			return files{}, &CorruptError{File: e.Name, Why: "not a file of this format", Mend: mendForeign}
		}
	}
	return f, nil
}

// permitted tries whether this process may use what is in a shard's directory.
// Other faults are for the loop, which tells the shard's own from the disk's.
// No lock is held: a name may be gone meanwhile.
func (l *log) permitted() error {
	list, err := listShard(l.dir)
	if err != nil {
		return onlyPermission(l.name, err)
	}
	type file struct {
		name string
		flag int
	}
	try := []file{{spareName, l.flag}}
	for _, n := range list.segments {
		try = append(try, file{segName(n), l.flag})
	}
	if newest := list.newest(); newest > 0 {
		try = append(try, file{snapName(newest), os.O_RDONLY})
	}
	for _, one := range try {
		f, err := l.dir.OpenFile(one.name, one.flag, 0)
		if err == nil {
			err = f.Close()
		}
		if err := onlyPermission(l.name+"/"+one.name, err); err != nil {
			return err
		}
	}
	return nil
}

// load reads a shard anew and makes it ready to be written. The append lock
// is held. It runs at the start, after a write that failed, and when others
// have compacted the log away from under this process.
func (s *shard) load(ctx context.Context) error {
	// Names made by a process that died before it had synced them.
	if err := s.log.dir.SyncDir("."); err != nil {
		return err
	}
	if err := s.read(); err != nil {
		return err
	}
	if s.torn {
		if err := s.log.rotate(ctx); err != nil {
			return err
		}
		s.torn = false
	}
	// What the head says of the tail may be of a machine's earlier life.
	return s.log.head.write(tailRecordAt, s.log.end(), 0)
}

// read reads the newest snapshot and the frames behind it. It changes no
// file.
func (s *shard) read() error {
	l := &s.log
	list, err := listShard(l.dir)
	if err != nil {
		return err
	}
	st, from, err := loadNewest(l.dir, l.id, list)
	if err != nil {
		return err
	}
	if err := s.replace(st); err != nil {
		return err
	}
	s.remember(st)
	l.spare, l.synced = false, mark{}
	first, last, err := list.after(from)
	if err != nil {
		return err
	}
	for n := first; n <= last; n++ {
		if err := s.loadSegment(n, from, n == last); err != nil {
			return err
		}
	}
	m, _, ok, err := l.head.read(syncRecordAt)
	if err != nil {
		return err
	}
	if ok && m.segment == l.hdr.Segment && m.offset <= l.pos.Offset {
		l.synced = m
	}
	return nil
}

// loadNewest loads the newest snapshot, or nothing from the log's beginning.
func loadNewest(dir durable.FS, id frame.Log, list files) (*state, place, error) {
	st, from := newState(), place{segment: 1}
	if newest := list.newest(); newest > 0 {
		var err error
		if st, from, err = openSnapshot(dir, snapName(newest), id); err != nil {
			return nil, place{}, err
		}
	}
	st.snapshot, st.from = from.pos.LSN, from.segment
	return st, from, nil
}

// after returns the segments to be read from a place on.
func (f files) after(from place) (first, last uint64, err error) {
	if len(f.segments) == 0 {
		return 0, 0, &CorruptError{File: segName(from.segment), Why: "the log has no segment"}
	}
	last = f.segments[len(f.segments)-1]
	have := map[uint64]bool{}
	for _, n := range f.segments {
		have[n] = true
	}
	for n := from.segment; n <= max(last, from.segment); n++ {
		if !have[n] {
			return 0, 0, &CorruptError{File: segName(n), Why: "the segment is missing"}
		}
	}
	return from.segment, last, nil
}

// loadSegment applies the frames of one segment.
func (s *shard) loadSegment(n uint64, from place, last bool) error {
	l := &s.log
	f, hdr, size, err := openSegment(l.dir, l.id, n, l.flag)
	if err != nil {
		return err
	}
	if n != from.segment {
		if err := l.checkSeal(nil, hdr); err != nil {
			return errors.Join(err, f.Close())
		}
	}
	if err := l.use(f, hdr, size); err != nil {
		return err
	}
	r := l.reader(size)
	if n == from.segment && from.pos.LSN != 0 {
		if from.pos.LSN < hdr.First || from.pos.Offset > size {
			return &CorruptError{File: segName(n), Why: "the snapshot's place is not in it"}
		}
		r.At(from.pos)
		r.Promise(from.pos.Offset)
	}
	if _, err := l.replay(r, s.apply); err != nil {
		return err
	}
	if !last {
		return nil // the next header says whether this is where it ends
	}
	s.torn, err = l.judge(r)
	return err
}

// apply makes a frame part of the state.
func (s *shard) apply(f frame.Frame) error {
	rec, err := decodeRecord(f.Type, f.Payload)
	if err != nil {
		return err
	}
	if !rec.key.IsZero() && s.owner(rec.key) != s.number {
		return fmt.Errorf("a row of another shard: %w", errRecord)
	}
	s.glance.add(rec.key)
	s.frames++
	return s.state.apply(rec, f.LSN)
}

// replace gives the shard another state.
func (s *shard) replace(st *state) error {
	old := s.state
	s.state = st
	if old == nil {
		return nil
	}
	return old.done.close()
}
