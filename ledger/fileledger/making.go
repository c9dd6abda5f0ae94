package fileledger

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"os"

	"github.com/fencepost/fencepost/internal/durable"
	"github.com/fencepost/fencepost/internal/durable/frame"
	"github.com/fencepost/fencepost/ledger"
)

// pieceBytes is about how much of a snapshot is written and synced, or of a
// table read, before the shard serves what has come meanwhile: some tens of
// milliseconds, of which the shortest lease has many.
const pieceBytes = 2 << 20

// A making is a snapshot in the making, of the state as it was at one place of
// the log. What changes meanwhile stands behind that place.
type making struct {
	dir  durable.FS
	temp string // the caller alone writes below it
	file durable.File
	w    *snapWriter

	// The old table, whose rows are merged with those that are now done for
	// ever; then come those that may still change or that a table can't hold.
	table         *doneTable
	block         int // the next of it
	retired       map[ledger.TrustMark]bool
	fresh, others []ledger.Row
	tabled        bool // the new table is complete

	turn bool // it has the ledger's turn to compact
}

// makeSnapshot begins a snapshot of st as it is at a place of the log.
func makeSnapshot(dir durable.FS, temp string, log frame.Log, at place, st *state) (*making, error) {
	f, err := dir.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, durable.FilePerm)
	if err != nil {
		return nil, err
	}
	m := &making{dir: dir, temp: temp, file: f, w: newSnapWriter(f, log, at), table: st.done, retired: maps.Clone(st.retired)}
	m.w.stamp, m.w.closed = st.stamp, st.closed
	for mark := range st.retired {
		m.w.retired(mark)
	}
	if st.done != nil {
		for _, old := range st.done.marks {
			m.w.number(old.mark) // before others take the room
		}
	}
	for _, r := range st.sorted() {
		if m.w.tabled(r) {
			m.fresh = append(m.fresh, r)
		} else {
			m.others = append(m.others, r)
		}
	}
	return m, nil
}

// piece writes a piece of the rows. It reports whether more are left: then
// what was written is synced, so that the last sync is no long one.
func (m *making) piece() (more bool, err error) {
	for end := m.w.out.len() + pieceBytes; m.w.out.len() < end; {
		switch {
		case m.block < m.table.blocks():
			err = m.merge()
		case len(m.fresh) > 0:
			err = m.addFresh()
		case !m.tabled:
			m.tabled = true
			err = m.w.endBlock()
		case len(m.others) > 0:
			err = m.w.other(m.others[0])
			m.others = m.others[1:]
		default:
			return false, nil
		}
		if err != nil {
			return false, err
		}
	}
	return true, m.file.Sync()
}

// merge writes a block of the old table, and the fresh rows that belong in
// between.
func (m *making) merge() error {
	err := m.table.rowsOf(m.block, func(old ledger.Row) error {
		for len(m.fresh) > 0 && bytes.Compare(m.fresh[0].Key[:], old.Key[:]) < 0 {
			if err := m.addFresh(); err != nil {
				return err
			}
		}
		if m.retired[old.Trust] {
			return nil
		}
		return m.w.add(old)
	})
	m.block++
	return err
}

func (m *making) addFresh() error {
	err := m.w.add(m.fresh[0])
	m.fresh = m.fresh[1:]
	return err
}

// finish writes what stands behind the rows, and gives the snapshot its name.
func (m *making) finish() error {
	if err := m.w.finish(); err != nil {
		return err
	}
	if err := m.file.Sync(); err != nil {
		return err
	}
	if err := m.close(); err != nil {
		return err
	}
	// Between here and SyncDir a crash leaves the older snapshot with its
	// segments: safe, nothing was removed yet.
	if err := m.dir.Rename(m.temp, snapName(m.w.at.pos.LSN)); err != nil {
		return err
	}
	return m.dir.SyncDir(".")
}

func (m *making) close() error {
	if m.file == nil {
		return nil
	}
	f := m.file
	m.file = nil
	return f.Close()
}

// discard removes what was made so far, for err, which it returns.
func (m *making) discard(err error) error {
	err = errors.Join(err, m.close())
	if errors.Is(err, durable.ErrPoisoned) {
		return err
	}
	return errors.Join(err, removeIfThere(m.dir, m.temp))
}

// goOn makes the next piece of the snapshot in the making, and when it is
// complete removes what it makes superfluous.
func (s *shard) goOn(ctx context.Context) error {
	m := s.making
	if m.table != s.state.done {
		// The state was read anew, and the old table was closed over it.
		s.dropMaking()
		return m.discard(nil)
	}
	more, err := m.piece()
	if err == nil && more {
		return nil
	}
	if err == nil {
		err = m.finish()
	}
	s.dropMaking()
	if err != nil {
		return m.discard(err)
	}
	return s.locked(ctx, func() error { return s.prune(ctx) })
}

// complete makes all that is left of a snapshot in the making.
func (s *shard) complete(ctx context.Context) error {
	for s.making != nil {
		if err := s.goOn(ctx); err != nil {
			return err
		}
	}
	return nil
}

// giveUp removes a snapshot in the making, when the shard serves no more.
func (s *shard) giveUp() error {
	m := s.making
	if m == nil {
		return nil
	}
	s.dropMaking()
	return m.discard(nil)
}

func (s *shard) dropMaking() {
	if s.making.turn {
		<-s.led.compacting
	}
	s.making = nil
}
