package fileledger

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"time"

	"github.com/fencepost/fencepost/internal/durable"
	"github.com/fencepost/fencepost/internal/durable/frame"
	"github.com/fencepost/fencepost/ledger"
)

// An Incoming is a ledger in the making: under another name, which nobody
// opens, until all of it is there. It implements [ledger.Target].
//
//	name.incoming/…        FORMAT, locks, a snapshot and an empty log a shard
//	name.incoming/ARRIVED  the move, written when all else is durable
//	rename to name         and from then on it is a ledger like any
type Incoming struct {
	cfg  Config
	fsys durable.FS
	name string
	lock durable.File // of making ledgers here
	mark string       // the name of what says that all is here

	super  superblock
	shards []*incomingShard
	rows   int
}

var _ ledger.Target = (*Incoming)(nil)

// An incomingShard is one shard's snapshot, as it is written.
type incomingShard struct {
	w      *snapWriter
	file   durable.File
	others []ledger.Row // kept until the table is written
}

// Receive takes the place where a ledger is to arrive, for itself. cfg is what
// the ledger will be opened with. Its error matches [ledger.ErrInUse] while
// another process makes a ledger there, or is one of [Open]'s.
func Receive(_ context.Context, cfg Config) (*Incoming, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	parent, name, err := splitDir(cfg.Dir)
	if err != nil {
		return nil, err
	}
	in, err := receiveIn(cfg, durable.OS(parent), name)
	return in, opError("ledger.receive", err)
}

// ReceiveCopy is [Receive] for a copy that is made for safe keeping: what is
// there in the end can be held, and not opened. See [ErrCopy].
func ReceiveCopy(ctx context.Context, cfg Config) (*Incoming, error) {
	in, err := Receive(ctx, cfg)
	if err != nil {
		return nil, err
	}
	in.mark = copyName
	return in, nil
}

func receiveIn(cfg Config, fsys durable.FS, name string) (*Incoming, error) {
	if _, err := durable.CheckVolume(fsys, name, cfg.Volatile); err != nil {
		return nil, err
	}
	lock, err := fsys.OpenFile(name+".init", os.O_RDWR|os.O_CREATE, durable.FilePerm)
	if err != nil {
		return nil, permission(name+".init", err)
	}
	taken, err := lock.TryLock(durable.Exclusive)
	if err == nil && !taken {
		err = &RootError{Kind: ledger.ErrInUse, File: name + ".init", Mend: "wait until the other process has made its ledger, or has given up"}
	}
	if err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	return &Incoming{cfg: cfg, fsys: fsys, name: name, lock: lock, mark: arrivedName}, nil
}

func (in *Incoming) dir() durable.FS { return durable.Sub(in.fsys, in.name+incomingSuffix) }

// Arriving implements [ledger.Target].
func (in *Incoming) Arriving(context.Context) (ledger.Move, error) {
	return readMove(in.dir(), in.mark)
}

// Arrived implements [ledger.Target].
func (in *Incoming) Arrived(context.Context) (ledger.Move, error) {
	return readMove(durable.Sub(in.fsys, in.name), in.mark)
}

// Begin implements [ledger.Target].
func (in *Incoming) Begin(_ context.Context, h ledger.Head) ([16]byte, error) {
	const op = "ledger.receive"
	if _, err := in.fsys.Stat(in.name); err == nil {
		return [16]byte{}, &RootError{Kind: ledger.ErrNotEmpty, File: in.name, Mend: "name a directory that does not exist, or move that one away"}
	} else if !isNotExist(err) {
		return [16]byte{}, opError(op, err)
	}
	if h.Window != in.cfg.Window {
		return [16]byte{}, opError(op, differentWindow(h, in.cfg))
	}
	if err := in.begin(h); err != nil {
		return [16]byte{}, opError(op, err)
	}
	return in.super.uuid, nil
}

func differentWindow(h ledger.Head, c Config) error {
	s := superblock{version: superVersion, lease: c.Lease, capacity: c.Capacity, shards: c.Shards, window: h.Window}
	return s.check(c)
}

func (in *Incoming) begin(h ledger.Head) error {
	temp := in.name + incomingSuffix
	if err := errors.Join(in.closeShards(), durable.RemoveAll(in.fsys, temp)); err != nil {
		return err
	}
	if err := in.fsys.Mkdir(temp, durable.DirPerm); err != nil {
		return err
	}
	var uuid [16]byte
	if _, err := io.ReadFull(in.cfg.Random, uuid[:]); err != nil {
		return fmt.Errorf("draw a uuid: %w", err)
	}
	in.super, in.rows = in.cfg.superblock(uuid), 0
	dir := in.dir()
	// The fence of a lease is the LSN of its frame: the logs go on above.
	first := h.Fence + 1
	if err := build(in.cfg, in.super, dir, first); err != nil {
		return err
	}
	for n := range in.super.shards {
		id := frame.Log{UUID: uuid, Shard: uint32(n)}
		hdr := frame.Header{Log: id, Segment: 1, First: first}
		f, err := dir.OpenFile(shardDir(n)+"/"+snapName(first), os.O_RDWR|os.O_CREATE, durable.FilePerm)
		if err != nil {
			return err
		}
		w := newSnapWriter(f, id, place{segment: 1, pos: hdr.Start()})
		w.closed = h.Closed
		for _, mark := range h.Retired {
			w.retired(mark)
		}
		in.shards = append(in.shards, &incomingShard{w: w, file: f})
	}
	return nil
}

// Put implements [ledger.Target].
func (in *Incoming) Put(_ context.Context, rows []ledger.Row) error {
	if in.rows += len(rows); in.rows > in.cfg.Capacity {
		return opError("ledger.receive", fmt.Errorf("more than %d rows: %w; give it a larger ledger.capacity", in.cfg.Capacity, ErrConfig))
	}
	owner := &Ledger{super: in.super}
	for _, r := range rows {
		s := in.shards[owner.owner(r.Key)]
		if !s.w.tabled(r) {
			s.others = append(s.others, r)
			continue
		}
		if err := s.w.add(r); err != nil {
			return opError("ledger.receive", err)
		}
	}
	return nil
}

// CloseThrough makes what ended by then [fencepost.Expired] for good, as the
// head's Closed does: for a source that cleans up while it is read. It is
// called before Prepare.
func (in *Incoming) CloseThrough(end time.Time) {
	for _, s := range in.shards {
		s.w.closed = later(s.w.closed, end)
	}
}

// Prepare implements [ledger.Target].
func (in *Incoming) Prepare(_ context.Context, m ledger.Move) error {
	return opError("ledger.receive", in.prepare(m))
}

func (in *Incoming) prepare(m ledger.Move) error {
	for n, s := range in.shards {
		if err := s.finish(); err != nil {
			return err
		}
		if err := in.dir().SyncDir(shardDir(n)); err != nil {
			return err
		}
	}
	if err := in.closeShards(); err != nil {
		return err
	}
	for _, d := range []string{lockDir, slotDir, "."} {
		if err := in.dir().SyncDir(d); err != nil {
			return err
		}
	}
	if err := in.fsys.SyncDir("."); err != nil {
		return err
	}
	// Only now, when all that it vouches for is durable.
	return durable.WriteFile(in.dir(), in.mark, encodeMove(m))
}

func (s *incomingShard) finish() error {
	if err := s.w.endBlock(); err != nil {
		return err
	}
	for _, r := range s.others {
		if err := s.w.other(r); err != nil {
			return err
		}
	}
	if err := s.w.finish(); err != nil {
		return err
	}
	return s.file.Sync()
}

// Rows implements [ledger.Target].
func (in *Incoming) Rows(ctx context.Context) iter.Seq2[ledger.Row, error] {
	return func(yield func(ledger.Row, error) bool) {
		h, err := in.still(ctx)
		if err != nil {
			yield(ledger.Row{}, opError("ledger.receive", err))
			return
		}
		more := true
		for r, err := range h.Rows(ctx) {
			if more = yield(r, err); !more {
				break
			}
		}
		if err := h.Close(); err != nil && more {
			yield(ledger.Row{}, opError("ledger.receive", err))
		}
	}
}

// still reads what is arriving.
func (in *Incoming) still(ctx context.Context) (_ *Held, err error) {
	super, err := inspect(in.dir())
	if err != nil && !errors.Is(err, ErrCopy) {
		return nil, err
	}
	h := &Held{dir: in.dir(), super: super}
	if h.held, err = hold(in.dir(), durable.Shared); err != nil {
		return nil, err
	}
	if err := h.read(ctx); err != nil {
		return nil, errors.Join(err, h.Close())
	}
	return h, nil
}

// Arrive implements [ledger.Target].
func (in *Incoming) Arrive(_ context.Context, m ledger.Move) error {
	there, err := readMove(in.dir(), in.mark)
	if err == nil && there != m {
		err = fmt.Errorf("%w: another move is under way in %s", ledger.ErrIncoming, in.name+incomingSuffix)
	}
	if err == nil {
		err = in.fsys.Rename(in.name+incomingSuffix, in.name)
	}
	if err == nil {
		err = in.fsys.SyncDir(".")
	}
	return opError("ledger.arrive", err)
}

func (in *Incoming) closeShards() error {
	var errs []error
	for _, s := range in.shards {
		errs = append(errs, s.file.Close())
	}
	in.shards = nil
	return errors.Join(errs...)
}

// Discard removes what has not arrived.
func (in *Incoming) Discard() error {
	err := errors.Join(in.closeShards(), durable.RemoveAll(in.fsys, in.name+incomingSuffix))
	if err == nil {
		err = in.fsys.SyncDir(".")
	}
	return opError("ledger.receive", err)
}

// Close lets the place go. What has not arrived stays, for the next try.
func (in *Incoming) Close() error { return errors.Join(in.closeShards(), in.lock.Close()) }
