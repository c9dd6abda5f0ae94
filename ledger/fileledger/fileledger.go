package fileledger

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/durable"
	"github.com/fencepost/fencepost/internal/durable/frame"
	"github.com/fencepost/fencepost/ledger"
	"github.com/fencepost/fencepost/ledger/internal/abandoned"
)

// A Ledger is one process's view of a ledger in files. It implements
// [fencepost.Ledger] and is safe for concurrent use; other processes of the
// same machine may have the same directory open.
type Ledger struct {
	cfg   Config
	super superblock
	root  *durable.Root
	held  durable.File // see [hold]
	slots *slots

	shards     []*shard
	compacting chan struct{} // full while a shard is compacted
	randomMu   sync.Mutex

	stop    context.CancelFunc // of the loops
	closing chan struct{}      // closed by Close
	once    sync.Once
	wait    sync.WaitGroup

	// abandoned are the leases that [Ledger.Abandon] was told of.
	abandoned abandoned.Leases
}

var _ fencepost.Ledger = (*Ledger)(nil)

// Open opens the ledger in cfg.Dir, and makes it where there is none. It
// reads what the ledger was made with; the logs are read in the background,
// and the first operations wait for theirs. The ledger's goroutines end with
// Close alone: ctx is for opening.
//
// Its errors match [ErrConfig], [ErrParameters], [ErrVersion], [ErrCorrupt],
// [ErrForeign], [ErrMissing], [ErrPermission], [ErrLocks], [ErrCopy],
// [ledger.ErrMoved], [ledger.ErrIncoming], [ledger.ErrInUse], [ErrNoSlot],
// [durable.ErrPoisoned] (with [fencepost.ReasonPoisoned]) or
// [durable.ErrUnsuitable].
func Open(ctx context.Context, cfg Config) (*Ledger, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	parent, name, err := splitDir(cfg.Dir)
	if err != nil {
		return nil, err
	}
	return openIn(ctx, cfg, durable.OS(parent), name)
}

// splitDir splits the directory of a ledger into the one that it is in, and its
// name there. Its error matches [ErrConfig].
func splitDir(dir string) (parent, name string, err error) {
	parent, name = filepath.Split(filepath.Clean(dir))
	if name == "" || name == "." || name == ".." {
		return "", "", fmt.Errorf("%w: dir %q names no directory to make", ErrConfig, dir)
	}
	if parent == "" {
		parent = "."
	}
	return parent, name, nil
}

// OpenOn is [Open] with cfg.Dir a name in fsys, for the tests of this module:
// on a disk that fails, forgets, or says that it syncs.
func OpenOn(ctx context.Context, fsys durable.FS, cfg Config) (*Ledger, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	return openIn(ctx, cfg, fsys, cfg.Dir)
}

// openIn opens the ledger in the directory name of fsys. cfg has its
// defaults.
func openIn(ctx context.Context, cfg Config, fsys durable.FS, name string) (*Ledger, error) {
	if _, err := durable.CheckVolume(fsys, name, cfg.Volatile); err != nil {
		return nil, openError(err)
	}
	if err := initRoot(ctx, cfg, fsys, name); err != nil {
		return nil, openError(err)
	}
	dir := durable.Sub(fsys, name)
	super, err := inspect(dir)
	if err == nil {
		err = super.check(cfg)
	}
	if err == nil {
		super, err = upgrade(ctx, dir, super)
	}
	if err != nil {
		return nil, openError(err)
	}
	root, err := durable.OpenRoot(dir)
	if err != nil {
		return nil, openError(permission(durable.HealthName, err))
	}
	l := &Ledger{cfg: cfg, super: super, root: root, compacting: make(chan struct{}, 1), closing: make(chan struct{})}
	if err := l.open(); err != nil {
		return nil, openError(errors.Join(err, l.closeFiles()))
	}
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	l.stop = stop
	for _, s := range l.shards {
		l.wait.Go(func() { s.run(running) })
	}
	return l, nil
}

func openError(err error) error { return opError("ledger.open", err) }

// initRoot makes the ledger where there is none. Of several processes that
// try, one does.
func initRoot(ctx context.Context, cfg Config, fsys durable.FS, name string) (err error) {
	if _, err := fsys.Stat(name); !isNotExist(err) {
		return err
	}
	if err := notIncoming(fsys, name); err != nil {
		return err
	}
	lock, err := fsys.OpenFile(name+".init", os.O_RDWR|os.O_CREATE, durable.FilePerm)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lock.Close()) }()
	if err := lock.Lock(ctx, durable.Exclusive); err != nil {
		return err
	}
	if _, err := fsys.Stat(name); !isNotExist(err) {
		return err // another process was faster
	}
	if err := notIncoming(fsys, name); err != nil {
		return err
	}
	var uuid [16]byte
	if _, err := io.ReadFull(cfg.Random, uuid[:]); err != nil {
		return fmt.Errorf("draw a uuid: %w", err)
	}
	super := cfg.superblock(uuid)
	return durable.InitDir(fsys, name, func(dir durable.FS) error { return build(cfg, super, dir, 1) })
}

// build puts a new ledger's files into an empty directory. Its logs begin with
// the LSN first.
func build(cfg Config, super superblock, dir durable.FS, first uint64) error {
	if err := durable.WriteFile(dir, formatName, super.encode()); err != nil {
		return err
	}
	for _, d := range []string{lockDir, slotDir} {
		if err := dir.Mkdir(d, durable.DirPerm); err != nil {
			return err
		}
	}
	for n := range super.shards {
		if err := buildShard(cfg, frame.Log{UUID: super.uuid, Shard: uint32(n)}, dir, first); err != nil {
			return err
		}
	}
	return nil
}

func buildShard(cfg Config, id frame.Log, dir durable.FS, first uint64) error {
	n := int(id.Shard)
	if err := dir.Mkdir(shardDir(n), durable.DirPerm); err != nil {
		return err
	}
	sub := durable.Sub(dir, shardDir(n))
	if err := makeSegmentFile(sub, spareName, cfg.SegmentBytes); err != nil {
		return err
	}
	f, err := sub.OpenFile(spareName, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	hdr := frame.Header{Log: id, Segment: 1, First: first}
	if err := errors.Join(frame.Install(sub, f, spareName, segName(1), hdr), f.Close()); err != nil {
		return err
	}
	if err := makeSegmentFile(sub, headName, headSize); err != nil {
		return err
	}
	for _, name := range []string{appendLockName(n), syncLockName(n)} {
		f, err := dir.OpenFile(name, os.O_RDWR|os.O_CREATE, durable.FilePerm)
		if err != nil {
			return err
		}
		if err := errors.Join(f.Sync(), f.Close()); err != nil {
			return err
		}
	}
	return nil
}

const lockDir = "locks"

func shardDir(n int) string       { return fmt.Sprintf("shard-%02d", n) }
func appendLockName(n int) string { return fmt.Sprintf("%s/a%02d", lockDir, n) }
func syncLockName(n int) string   { return fmt.Sprintf("%s/s%02d", lockDir, n) }

// open opens what stays open.
func (l *Ledger) open() (err error) {
	if l.held, err = hold(l.root, durable.Shared); err != nil {
		return err
	}
	// It may have been moved, or upgraded, before this process had the lock.
	if l.super, err = inspect(l.root); err != nil {
		return err
	}
	for n := range l.super.shards {
		s := l.newShard(n)
		l.shards = append(l.shards, s)
		if err := s.openFiles(); err != nil {
			return err
		}
	}
	// Last: it writes.
	if l.slots, err = takeSlot(l.root); err != nil {
		return permission(slotDir, err)
	}
	return nil
}

// newShard is a shard of which nothing is open yet.
func (l *Ledger) newShard(n int) *shard {
	id := l.logID(n)
	s := &shard{
		led: l, number: n, queue: make(chan *op, queueLength), stale: true,
		glance: newGlance(l.cfg.Capacity/l.super.shards + 1),
		limit:  l.cfg.Capacity / l.super.shards, bytes: l.cfg.MaxBytes / int64(l.super.shards),
		log: log{
			dir: durable.Sub(l.root, shardDir(n)), name: shardDir(n), id: id,
			flag: os.O_RDWR, segSize: l.cfg.SegmentBytes,
		},
	}
	if n < l.cfg.Capacity%l.super.shards {
		s.limit++
	}
	s.log.head.seed = logSeed(id)
	s.log.appendLock = newLock(l.root, appendLockName(n))
	s.log.syncLock = newLock(l.root, syncLockName(n))
	return s
}

// openFiles opens the files of a shard that every process has open, and finds
// those that this process has no permission to. The log is read by its loop.
func (s *shard) openFiles() (err error) {
	name := shardDir(s.number) + "/" + headName
	if s.log.head.file, err = s.led.root.OpenFile(name, os.O_RDWR, 0); err != nil {
		return permission(name, err)
	}
	for _, lock := range []*lockFile{&s.log.appendLock, &s.log.syncLock} {
		if err := lock.open(); err != nil {
			return permission(lock.name, err)
		}
	}
	return s.log.permitted()
}

// Close ends the ledger's goroutines and closes its files. Operations that
// still wait, and later ones, are answered [ErrClosed]. What was answered is
// durable: nothing is written here. A second Close is [ErrClosed].
func (l *Ledger) Close() error {
	err := ErrClosed
	l.once.Do(func() {
		close(l.closing)
		l.stop()
		l.wait.Wait()
		err = l.closeFiles()
	})
	return err
}

func (l *Ledger) closeFiles() error {
	var errs []error
	for _, s := range l.shards {
		errs = append(errs, s.log.close())
		if s.state != nil {
			errs = append(errs, s.state.done.close())
		}
	}
	if l.slots != nil {
		errs = append(errs, l.slots.close())
	}
	if l.held != nil {
		errs = append(errs, l.held.Close())
	}
	return errors.Join(append(errs, l.root.Close())...)
}

// owner is the number of the shard that a key belongs to. Keys are digests:
// any part of them is spread evenly.
func (l *Ledger) owner(key fencepost.DeliveryKey) int {
	return int(binary.LittleEndian.Uint32(key[len(key)-4:]) % uint32(l.super.shards))
}

func (l *Ledger) newEvaluation() (fencepost.EvaluationID, error) {
	l.randomMu.Lock()
	defer l.randomMu.Unlock()
	return fencepost.NewEvaluationID(l.cfg.Random)
}

// ticker fires when maintenance is due; never if it is off.
func (l *Ledger) ticker() (<-chan time.Time, func()) {
	if l.cfg.Maintain < 0 {
		return nil, func() {}
	}
	t := time.NewTicker(l.cfg.Maintain)
	return t.C, t.Stop
}

// Claim implements [fencepost.Ledger].
func (l *Ledger) Claim(ctx context.Context, d fencepost.AcceptedDelivery) (fencepost.Claim, error) {
	a, err := l.request(ctx, ledger.ClaimRequest{Delivery: d})
	return a.Claim, err
}

// Renew implements [fencepost.Ledger].
func (l *Ledger) Renew(ctx context.Context, d fencepost.AcceptedDelivery, lease fencepost.Lease) (fencepost.Renewal, error) {
	a, err := l.request(ctx, ledger.RenewRequest{Delivery: d, Lease: lease})
	return a.Renewal, err
}

// Stage implements [fencepost.Ledger].
func (l *Ledger) Stage(ctx context.Context, d fencepost.AcceptedDelivery, lease fencepost.Lease, p fencepost.Publication) (fencepost.StageOutcome, error) {
	a, err := l.request(ctx, ledger.StageRequest{Delivery: d, Lease: lease, Publication: p})
	return a.Stage, err
}

// Complete implements [fencepost.Ledger].
func (l *Ledger) Complete(ctx context.Context, d fencepost.AcceptedDelivery, s fencepost.StagedPublication) (fencepost.Completion, error) {
	a, err := l.request(ctx, ledger.CompleteRequest{Delivery: d, Staged: s})
	return a.Completion, err
}

// Repeat tells whether d is known, without claiming it, and durably moves its
// row's replay end to d's where that is later: what *replayed* means in
// DESIGN §4. Its errors are those of [fencepost.Ledger].
func (l *Ledger) Repeat(ctx context.Context, d fencepost.AcceptedDelivery) (ledger.Repeat, error) {
	a, err := l.request(ctx, ledger.RepeatRequest{Delivery: d})
	return a.Repeat, err
}

// Lookup returns the row of key, and false if there is none. What it says is
// durable. Its errors are those of [fencepost.Ledger].
func (l *Ledger) Lookup(ctx context.Context, key fencepost.DeliveryKey) (ledger.Row, bool, error) {
	const name = "ledger.lookup"
	if key.IsZero() {
		return ledger.Row{}, false, fmt.Errorf("%s: %w", name, fencepost.ErrZeroValue)
	}
	o := &op{key: key}
	if err := l.enqueue(ctx, l.owner(key), o); err != nil {
		return ledger.Row{}, false, opError(name, err)
	}
	return o.row, o.row.State != ledger.Unclaimed, nil
}

func (l *Ledger) request(ctx context.Context, req ledger.Request) (ledger.Answer, error) {
	if err := ledger.Check(req, l.cfg.Window); err != nil {
		return ledger.Answer{}, err
	}
	o := &op{req: req}
	if err := l.enqueue(ctx, l.owner(req.On().Key()), o); err != nil {
		return ledger.Answer{}, opError(req.Op(), err)
	}
	return o.answer, nil
}

// enqueue gives an op to a shard and waits for its end, or for the end of
// ctx: then the op may still take effect.
func (l *Ledger) enqueue(ctx context.Context, shard int, o *op) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	o.done = make(chan struct{})
	select {
	case <-l.closing:
		return ErrClosed
	default:
	}
	select {
	case l.shards[shard].queue <- o:
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-l.closing:
		return ErrClosed
	}
	select {
	case <-o.done:
		return o.err
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-l.closing:
	}
	// The loop has ended or is about to: it refuses what it has not served.
	l.wait.Wait()
	select {
	case <-o.done:
		return o.err
	default:
		return ErrClosed
	}
}

// opError gives an error the reason that may be shown to anyone.
func opError(op string, err error) error {
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[*fencepost.Error](err); ok {
		return err
	}
	reason := fencepost.ReasonUnavailable
	switch {
	case errors.Is(err, durable.ErrPoisoned):
		reason = fencepost.ReasonPoisoned
	case errors.Is(err, ErrCorrupt), errors.Is(err, frame.ErrCorrupt):
		reason = fencepost.ReasonCorrupt
	case errors.Is(err, fencepost.ErrZeroValue), errors.Is(err, ErrConfig):
		return err
	}
	return &fencepost.Error{Op: op, Reason: reason, Err: err}
}
