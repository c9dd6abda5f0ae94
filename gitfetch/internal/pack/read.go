package pack

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/gitfetch/internal/inflate"
	"github.com/fencepost/fencepost/gitfetch/internal/object"
)

// Options of [Read].
type Options struct {
	Limits Limits
	// Create makes the file that the spool writes to. The Store closes it.
	Create func() (File, error)
	// Progress, where set, is told after each entry how many of how many
	// entries are in.
	Progress func(done, total int64)
	// Stop, where set, ends the work with its error. It is asked before each
	// entry is resolved, and now and then within a large delta: thousands can
	// wait for that when nothing more is to come from the source. It must be
	// safe for concurrent use.
	Stop func() error
	// Abort, where set, is called once if an object is found wrong while the
	// source is being waited for: the source should then return soon.
	Abort func()
	// Inflated, where set, holds what was charged to Limits.InflatedBytes
	// before, and in the end what was altogether, whatever became of it.
	Inflated *int64
	// Into, where set, is the store of earlier packs, to which this one is
	// added: the limit of objects holds for all of them together, and no object may be in
	// two. On error it is closed.
	Into *Store
	// Base, where set, finds an object outside the pack that a delta by id may
	// be on (a "thin" pack). It is asked once for each such delta, and only if
	// no object received so far has the id.
	Base func(id fencepost.ObjectID) (Outside, bool)
	// Hasher, where set, makes what ids are computed with; [object.NewHasher]
	// otherwise.
	Hasher func() *object.Hasher
	// Taker, where set, is shown every object. It is called from one goroutine
	// at a time, as Base is.
	Taker Taker
}

func (o *Options) newHasher() *object.Hasher {
	if o.Hasher != nil {
		return o.Hasher()
	}
	return object.NewHasher()
}

// A Taker looks at objects as soon as they are complete, before the rest of
// the pack is there, and may take the content of some to where it belongs.
type Taker interface {
	// Take is offered a blob that is in memory, and whose id is proven. With
	// true it has taken the content, which it has to release; the object is
	// not in the spool then, and is read by ReadTaken.
	Take(i Index, id fencepost.ObjectID, content *Content) (bool, error)
	// ReadTaken fills p with the content of an object that was taken, from
	// offset off. It must be safe for concurrent use once Read has returned.
	ReadTaken(i Index, p []byte, off int64) error
	// Complete is told of each commit and tree when the store can be asked for
	// it. The store may not be used after it returns, until Read has.
	Complete(s *Store, i Index) error
}

// An Outside is an object that is not of a pack. Whether it is what its id
// says is not looked at: what a delta makes of it is hashed.
type Outside struct {
	Kind object.Kind
	Size int64
	// ReadAt fills p whole from offset off, or fails.
	ReadAt func(p []byte, off int64) error
}

// Read receives one pack from src: every object inflated, resolved, hashed,
// and in the spool or taken. An error of src comes back as it is; a passed limit is an
// [object.LimitError]; everything else that is wrong with the pack matches a
// sentinel of this package or of package object. On error nothing is kept.
//
// Two goroutines share the work: this one receives and inflates, the other
// resolves, hashes and stores, in the order of the pack.
func Read(src Source, opts Options) (*Store, error) {
	store := opts.Into
	if store == nil {
		store = &Store{
			byID:  make(map[fencepost.ObjectID]Index),
			spool: newSpool(opts.Create),
		}
	}
	if opts.Taker != nil {
		store.taker = opts.Taker
	}
	charged := &budget{limit: opts.Limits.InflatedBytes}
	if opts.Inflated != nil {
		charged.used.Store(*opts.Inflated)
	}
	r := &reader{
		opts:    opts,
		in:      newStream(src),
		charged: charged,
		pool:    newPool(),
		to:      newResolver(store, opts, charged),
		first:   Index(len(store.entries)),
		jobs:    make(chan job, maxJobs),
		failed:  make(chan struct{}),
	}
	err := r.read()
	if opts.Inflated != nil {
		*opts.Inflated = charged.used.Load()
	}
	if err == nil {
		return store, nil
	}
	return nil, errors.Join(err, store.Close())
}

// maxJobs is how many entries wait to be resolved; their bytes are bounded by
// the pool.
const maxJobs = 1024

// A budget is charged by both goroutines.
type budget struct {
	limit int64
	used  atomic.Int64
}

// charge takes n bytes from the inflate budget before they are there.
func (b *budget) charge(n int64) error {
	if n > b.limit || b.used.Add(n) > b.limit {
		return &object.LimitError{Limit: LimitInflated, Max: b.limit}
	}
	return nil
}

// A job is one entry that was received.
type job struct {
	entry int64       // its number in the pack
	kind  object.Kind // 0 for a delta
	on    baseRef     // of a delta
	// content is the object or the delta's text. Where it is nil, the entry is
	// too large for that, and nothing but whether it may be done is asked for.
	content *Content
	idle    chan<- struct{}
}

// A baseRef says which object a delta is for: that of an entry of this pack,
// or one by its id.
type baseRef struct {
	byID bool
	id   fencepost.ObjectID
	at   Index
}

type reader struct {
	opts    Options
	in      *stream
	zip     inflate.Decoder
	charged *budget
	pool    *pool
	to      *resolver
	first   Index   // of this pack in the store
	starts  []int64 // pack offset at which each entry begins; ascending

	jobs   chan job
	failed chan struct{} // closed by the resolver's goroutine
}

// errStopped: the resolver has failed, and knows why.
var errStopped = errors.New("stopped")

func (r *reader) read() error {
	count, err := r.in.readCount()
	if err != nil {
		return err
	}
	if count > r.opts.Limits.Objects-int64(r.first) {
		return &object.LimitError{Limit: LimitObjects, Max: r.opts.Limits.Objects}
	}
	var resolving sync.WaitGroup
	var resolveErr error
	resolving.Go(func() { resolveErr = r.resolveAll() })
	err = r.readEntries(count)
	close(r.jobs)
	resolving.Wait()
	// What the resolver found wrong came earlier in the pack.
	if resolveErr != nil {
		return resolveErr
	}
	if err != nil {
		return err
	}
	if err := r.to.resolveWaiting(); err != nil {
		return err
	}
	r.to.store.counts.Objects += count
	r.to.store.counts.PackBytes += r.in.offset()
	r.to.store.counts.InflatedBytes = r.charged.used.Load()
	return nil
}

func (r *reader) readEntries(count int64) error {
	for i := range count {
		if err := r.readEntry(i); err != nil {
			return inEntry(i, err)
		}
		if r.opts.Progress != nil {
			r.opts.Progress(i+1, count)
		}
	}
	return r.in.finish()
}

func inEntry(i int64, err error) error { return fmt.Errorf("pack entry %d: %w", i, err) }

// resolveAll does all jobs. After an error the rest is only let go of.
func (r *reader) resolveAll() error {
	var err error
	for j := range r.jobs {
		switch {
		case err != nil || j.content == nil:
		default:
			if err = r.do(j); err != nil {
				err = inEntry(j.entry, err)
				close(r.failed)
				if r.opts.Abort != nil {
					r.opts.Abort()
				}
			}
			continue
		}
		if j.content != nil {
			j.content.Release()
		} else {
			close(j.idle)
		}
	}
	return err
}

// do does one job, unless it is too late for that.
func (r *reader) do(j job) error {
	if r.opts.Stop != nil {
		if err := r.opts.Stop(); err != nil {
			j.content.Release()
			return err
		}
	}
	return r.to.do(j)
}

// send hands a job over.
func (r *reader) send(j job) error {
	select {
	case <-r.failed:
		if j.content != nil {
			j.content.Release()
		}
		return errStopped
	case r.jobs <- j:
		return nil
	}
}

// settle waits until all jobs before are done. The resolver is this
// goroutine's then, until the next job.
func (r *reader) settle(entry int64) error {
	idle := make(chan struct{})
	if err := r.send(job{entry: entry, idle: idle}); err != nil {
		return err
	}
	<-idle
	select {
	case <-r.failed:
		return errStopped
	default:
		return nil
	}
}

func (r *reader) readEntry(i int64) error {
	start := r.in.offset()
	typ, size, err := r.in.readHeader()
	if err != nil {
		return err
	}
	j := job{entry: i}
	if typ == typeOfs || typ == typeRef {
		if j.on, err = r.readBase(start, typ); err != nil {
			return err
		}
		if limit := r.opts.Limits.largest(); size > limit {
			return &object.LimitError{Limit: LimitBlob, Max: limit}
		}
	} else {
		j.kind = object.Kind(typ)
		if err := r.opts.Limits.checkSize(j.kind, size); err != nil {
			return err
		}
	}
	if err := r.charged.charge(size); err != nil {
		return err
	}
	r.starts = append(r.starts, start)
	if size > resident {
		return r.readLarge(j, size)
	}
	c := r.pool.get(int(size))
	if _, err := r.zip.Whole(r.in, c.mem, int(size)); err != nil {
		c.Release()
		return r.failure(err)
	}
	j.content = c
	return r.send(j)
}

func (r *reader) readBase(start int64, typ uint8) (on baseRef, err error) {
	if typ == typeRef {
		on.byID = true
		return on, r.in.readFull(on.id[:])
	}
	distance, err := r.in.readDistance()
	if err != nil {
		return on, err
	}
	if distance <= 0 || distance > start-headerLen {
		return on, malformed("delta base outside the pack")
	}
	at, found := slices.BinarySearch(r.starts, start-distance)
	if !found {
		return on, malformed("delta base is not the start of an entry")
	}
	on.at = r.first + Index(at)
	return on, nil
}

// readLarge inflates an entry into the spool.
func (r *reader) readLarge(j job, size int64) error {
	if err := r.settle(j.entry); err != nil {
		return err
	}
	off := r.to.store.spool.end()
	if j.kind == 0 {
		err := r.zip.Stream(r.in, size, func(p []byte) error {
			_, err := r.to.store.spool.Write(p)
			return err
		})
		if err != nil {
			return r.failure(err)
		}
		return r.to.largeDelta(j.on, off, size)
	}
	r.to.out.begin(j.kind, size)
	if err := r.zip.Stream(r.in, size, r.to.out.write); err != nil {
		return r.failure(err)
	}
	return r.to.largeObject(entry{kind: j.kind, off: off, size: size})
}

// failure is what the caller is told of an inflater's error.
func (r *reader) failure(err error) error {
	switch {
	case errors.Is(err, inflate.ErrCorrupt):
		return malformed("entry's zlib stream: %w", err)
	case errors.Is(err, inflate.ErrLong):
		return malformed("entry inflates to more than it declares")
	case errors.Is(err, inflate.ErrShort):
		return malformed("entry inflates to less than it declares")
	case errors.Is(err, io.ErrUnexpectedEOF):
		return r.in.failure(io.ErrUnexpectedEOF)
	}
	return err
}
