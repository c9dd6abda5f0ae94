package fileledger

import (
	"fmt"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/ledger"
)

// state is what one shard's log says: a snapshot and the frames behind it,
// applied in order. It is owned by the shard's loop.
type state struct {
	// rows holds every row but those that are in done. A row that is done
	// for ever moves to done at the next snapshot.
	rows map[fencepost.DeliveryKey]ledger.Row
	done *doneTable // nil before the first snapshot

	// The snapshot that it began with: its LSN, or 0, and the first segment
	// that is still needed.
	snapshot, from uint64

	stamp  stamp
	closed time.Time // see [ledger.Moment]
	// retired are the marks of trust sets whose rows were retired. Rows in
	// done that bear one are there no more; hidden is how many those are.
	retired map[ledger.TrustMark]bool
	hidden  int
	ticked  bool // the last frame is a tick, or there is none

	counts  [ledger.Done + 1]int // by state, of rows alone
	charged int64                // see charge, of rows alone
}

func newState() *state {
	return &state{rows: map[fencepost.DeliveryKey]ledger.Row{}, retired: map[ledger.TrustMark]bool{}, ticked: true}
}

// reserve is what a leased row may yet grow to.
const reserve = ledger.MaxRowBytes

// charge is what a row takes of the byte bound. A leased one counts with the
// largest publication, so that staging always finds room.
func charge(r ledger.Row) int64 {
	switch r.State {
	case ledger.Unclaimed:
		return 0
	case ledger.Leased:
		return reserve
	default:
		return int64(ledger.EncodedLen(r))
	}
}

// row looks a delivery up; the zero row if there is none. Its error is the
// table's.
func (s *state) row(key fencepost.DeliveryKey) (ledger.Row, error) {
	if r, ok := s.rows[key]; ok {
		return r, nil
	}
	if s.done == nil {
		return ledger.Row{}, nil
	}
	r, err := s.done.lookup(key)
	if s.retired[r.Trust] {
		return ledger.Row{}, err
	}
	return r, err
}

// put stores next for key, where prev was. A row that leaves the table of
// done rows can't be: nothing changes a row that is done for ever.
func (s *state) put(key fencepost.DeliveryKey, prev, next ledger.Row) {
	if prev.State != ledger.Unclaimed {
		s.counts[prev.State]--
		s.charged -= charge(prev)
	}
	if next.State == ledger.Unclaimed {
		delete(s.rows, key)
		return
	}
	s.rows[key] = next
	s.counts[next.State]++
	s.charged += charge(next)
}

// count is the number of rows.
func (s *state) count() int { return len(s.rows) + s.tabled() }

// tabled is the number of rows in done.
func (s *state) tabled() int { return s.done.len() - s.hidden }

// bytes is what all rows are charged with.
func (s *state) bytes() int64 { return s.charged + int64(s.tabled())*doneRowSize }

// apply replays a record that stands at lsn. It holds the record to the
// edges of DESIGN §5: what the log says must be what operations do.
func (s *state) apply(r record, lsn uint64) error {
	switch r.frameType() {
	case frameTick:
		s.store(r, ledger.Row{})
		return nil
	case frameRetire:
		if err := s.checkRetire(r.mark); err != nil {
			return err
		}
		s.store(r, ledger.Row{})
		return nil
	}
	prev, err := s.row(r.key)
	if err != nil {
		return err
	}
	if err := ledger.CheckEdge(prev, r.row); err != nil {
		return err
	}
	if r.row.Fence.Uint64() > lsn {
		return fmt.Errorf("fence %v of a frame with LSN %d: %w", r.row.Fence, lsn, ledger.ErrIllegalRow)
	}
	if r.row.State == ledger.Unclaimed {
		if prev.State == ledger.Unclaimed {
			return fmt.Errorf("removal of no row: %w", ledger.ErrIllegalRow)
		}
		if end, _ := prev.Lifetime.End(); r.closed.Before(end) {
			return fmt.Errorf("removal closes less than the row's life: %w", ledger.ErrIllegalRow)
		}
	}
	s.store(r, prev)
	return nil
}

// store makes a record that is known to be right part of the state.
func (s *state) store(r record, prev ledger.Row) {
	s.stamp, s.ticked = r.stamp, r.frameType() == frameTick
	switch r.frameType() {
	case frameTick:
		return
	case frameRetire:
		s.retire(r.mark)
		return
	}
	s.put(r.key, prev, r.row)
	if r.closed.After(s.closed) {
		s.closed = r.closed
	}
}

// isDoneForEver reports whether a row never changes again.
func isDoneForEver(r ledger.Row) bool {
	_, bounded := r.Lifetime.End()
	return r.State == ledger.Done && !bounded
}
