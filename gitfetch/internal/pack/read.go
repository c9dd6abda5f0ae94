package pack

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/gitfetch/internal/object"
)

const (
	// residentBase is the largest base that is read into memory whole; from
	// a larger one each copy reads what it needs.
	residentBase = 1 << 20
	// textBuffer is how much of a delta's text is in memory at a time.
	textBuffer = 8 << 10
)

// Options of [Read].
type Options struct {
	Limits Limits
	// Create makes the file that the spool writes to. The Store closes it.
	Create func() (File, error)
	// Progress, where set, is told after each entry how many of how many
	// entries are in.
	Progress func(done, total int64)
	// Stop, where set, ends the work with its error. It is asked now and then
	// while deltas are resolved, which can take long and wait for no source.
	Stop func() error
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
// and in the spool. An error of src comes back as it is; a passed limit is an
// [object.LimitError]; everything else that is wrong with the pack matches a
// sentinel of this package or of package object. On error nothing is kept.
func Read(src Source, opts Options) (*Store, error) {
	r := newReader(src, opts)
	err := r.read()
	if opts.Inflated != nil {
		*opts.Inflated = r.inflated
	}
	if err == nil {
		return r.store, nil
	}
	return nil, errors.Join(err, r.store.Close())
}

type reader struct {
	opts   Options
	in     *stream
	zip    *inflater
	text   *bufio.Reader
	out    *content
	store  *Store
	first  Index   // of this pack in the store
	starts []int64 // pack offset at which each entry begins; ascending
	base   []byte  // memory for resident bases

	// Deltas that wait for their base, by the id or the entry they wait for.
	waiting  int
	onID     map[fencepost.ObjectID][]Index
	onIndex  map[Index][]Index
	inflated int64
}

func newReader(src Source, opts Options) *reader {
	in := newStream(src)
	store := opts.Into
	if store == nil {
		store = &Store{
			byID:  make(map[fencepost.ObjectID]Index),
			spool: newSpool(opts.Create),
		}
	}
	r := &reader{
		opts:    opts,
		in:      in,
		zip:     &inflater{in: in},
		text:    bufio.NewReaderSize(nil, textBuffer),
		out:     newContent(store.spool),
		store:   store,
		first:   Index(len(store.entries)),
		onID:    make(map[fencepost.ObjectID][]Index),
		onIndex: make(map[Index][]Index),
	}
	if opts.Inflated != nil {
		r.inflated = *opts.Inflated
	}
	return r
}

func (r *reader) read() error {
	count, err := r.in.readCount()
	if err != nil {
		return err
	}
	if count > r.opts.Limits.Objects-int64(r.first) {
		return &object.LimitError{Limit: LimitObjects, Max: r.opts.Limits.Objects}
	}
	for i := range count {
		if err := r.readEntry(); err != nil {
			return fmt.Errorf("pack entry %d: %w", i, err)
		}
		if r.opts.Progress != nil {
			r.opts.Progress(i+1, count)
		}
	}
	if err := r.in.finish(); err != nil {
		return err
	}
	if err := r.resolveWaiting(); err != nil {
		return err
	}
	r.store.counts.Objects += count
	r.store.counts.PackBytes += r.in.offset()
	r.store.counts.InflatedBytes = r.inflated
	return nil
}

// charge takes n bytes from the inflate budget before they are there.
func (r *reader) charge(n int64) error {
	limit := r.opts.Limits.InflatedBytes
	if n > limit-r.inflated {
		return &object.LimitError{Limit: LimitInflated, Max: limit}
	}
	r.inflated += n
	return nil
}

func (r *reader) readEntry() error {
	start := r.in.offset()
	typ, size, err := r.in.readHeader()
	if err != nil {
		return err
	}
	if typ == typeOfs || typ == typeRef {
		return r.readDelta(start, typ, size)
	}
	kind := object.Kind(typ)
	if err := r.opts.Limits.checkSize(kind, size); err != nil {
		return err
	}
	if err := r.charge(size); err != nil {
		return err
	}
	if err := r.zip.begin(size); err != nil {
		return err
	}
	e := entry{kind: kind, off: r.store.spool.end(), size: size}
	r.out.begin(kind, size)
	if err := r.out.fill(r.zip, size); err != nil {
		return err
	}
	if err := r.zip.end(); err != nil {
		return err
	}
	i := r.add(start, e)
	return r.complete(i)
}

// add appends an entry, complete or waiting.
func (r *reader) add(start int64, e entry) Index {
	r.starts = append(r.starts, start)
	r.store.entries = append(r.store.entries, e)
	return Index(len(r.store.entries) - 1)
}

// complete takes the id of what was written to r.out as that of entry i.
func (r *reader) complete(i Index) error {
	if err := r.out.flush(); err != nil {
		return err
	}
	id, err := r.out.hasher.Sum()
	if err != nil {
		return err
	}
	if _, taken := r.store.byID[id]; taken {
		return fmt.Errorf("%w: %s", ErrDuplicate, id)
	}
	r.store.entries[i].id = id
	r.store.byID[id] = i
	return nil
}

func (r *reader) readDelta(start int64, typ uint8, size int64) error {
	on, err := r.readBase(start, typ)
	if err != nil {
		return err
	}
	if limit := r.opts.Limits.largest(); size > limit {
		return &object.LimitError{Limit: LimitBlob, Max: limit}
	}
	if err := r.charge(size); err != nil {
		return err
	}
	if err := r.zip.begin(size); err != nil {
		return err
	}
	r.store.counts.Deltas++
	if !on.known && on.outside == nil {
		return r.park(start, size, on.wait)
	}
	i := r.add(start, entry{})
	b, err := r.open(on)
	if err != nil {
		return err
	}
	if err := r.resolve(i, b, r.zip, size); err != nil {
		return err
	}
	return r.zip.end()
}

// A baseRef says which object a delta is for: a complete one of the store, one
// outside the pack, or one that is not complete yet, where wait enters a delta
// into the right queue.
type baseRef struct {
	at      Index
	known   bool
	outside *Outside
	wait    func(delta Index)
}

func (r *reader) readBase(start int64, typ uint8) (baseRef, error) {
	if typ == typeRef {
		var id fencepost.ObjectID
		if err := r.in.readFull(id[:]); err != nil {
			return baseRef{}, err
		}
		on := baseRef{wait: func(i Index) { r.onID[id] = append(r.onID[id], i) }}
		if on.at, on.known = r.store.byID[id]; !on.known && r.opts.Base != nil {
			if o, ok := r.opts.Base(id); ok {
				on.outside = &o
			}
		}
		return on, nil
	}
	distance, err := r.in.readDistance()
	if err != nil {
		return baseRef{}, err
	}
	if distance <= 0 || distance > start-headerLen {
		return baseRef{}, malformed("delta base outside the pack")
	}
	at, found := slices.BinarySearch(r.starts, start-distance)
	if !found {
		return baseRef{}, malformed("delta base is not the start of an entry")
	}
	on := baseRef{at: r.first + Index(at)}
	on.known = r.store.entries[on.at].kind != 0
	on.wait = func(i Index) { r.onIndex[on.at] = append(r.onIndex[on.at], i) }
	return on, nil
}

// park keeps the text of a delta in the spool until its base is there.
func (r *reader) park(start, size int64, wait func(Index)) error {
	e := entry{off: r.store.spool.end(), size: size}
	// What the hasher makes of the text is not asked for.
	r.out.begin(object.Blob, size)
	if err := r.out.fill(r.zip, size); err != nil {
		return err
	}
	if err := r.zip.end(); err != nil {
		return err
	}
	if err := r.out.flush(); err != nil {
		return err
	}
	wait(r.add(start, e))
	r.waiting++
	return nil
}

// resolve applies the delta whose text is read from text, size bytes of it,
// to a complete object, and completes entry i with the result.
func (r *reader) resolve(i Index, b *base, text io.Reader, size int64) error {
	depth := b.depth + 1
	if limit := r.opts.Limits.DeltaDepth; int64(depth) > limit {
		return &object.LimitError{Limit: LimitDeltaDepth, Max: limit}
	}
	r.text.Reset(text)
	d := delta{text: r.text, left: size, stop: r.opts.Stop}
	e := entry{kind: b.kind, depth: depth, off: r.store.spool.end()}
	err := d.apply(b, r.out, func(result int64) error {
		if err := r.opts.Limits.checkSize(b.kind, result); err != nil {
			return err
		}
		e.size = result
		r.out.begin(b.kind, result)
		return r.charge(result)
	})
	if err != nil {
		return err
	}
	r.store.entries[i] = e
	return r.complete(i)
}

// open makes a complete object, of the store or outside it, ready to be copied
// from.
func (r *reader) open(on baseRef) (*base, error) {
	var b *base
	if o := on.outside; o != nil {
		b = &base{kind: o.Kind, size: o.Size, readAt: o.ReadAt}
	} else {
		e := &r.store.entries[on.at]
		b = &base{kind: e.kind, depth: e.depth, size: e.size, readAt: func(p []byte, off int64) error { return r.store.ReadAt(on.at, p, off) }}
	}
	if b.size > residentBase {
		return b, nil
	}
	if r.base == nil || int64(cap(r.base)) < b.size {
		r.base = make([]byte, b.size)
	}
	b.whole = r.base[:b.size]
	return b, b.readAt(b.whole, 0)
}

// resolveWaiting resolves the deltas that came before their bases, each
// queue as soon as its base is complete, without recursion. What then still
// waits has no base here.
func (r *reader) resolveWaiting() error {
	if r.waiting == 0 {
		return nil
	}
	type job struct{ delta, base Index }
	var ready []job
	release := func(base Index) {
		id := r.store.entries[base].id
		for _, queue := range [][]Index{r.onID[id], r.onIndex[base]} {
			for _, i := range queue {
				ready = append(ready, job{i, base})
			}
		}
		delete(r.onID, id)
		delete(r.onIndex, base)
	}
	for i := int(r.first); i < len(r.store.entries); i++ {
		if r.store.entries[i].kind != 0 {
			release(Index(i))
		}
	}
	for len(ready) > 0 {
		if r.opts.Stop != nil {
			if err := r.opts.Stop(); err != nil {
				return err
			}
		}
		next := ready[len(ready)-1]
		ready = ready[:len(ready)-1]
		parked := r.store.entries[next.delta]
		text := io.NewSectionReader(spoolReader{r.store.spool}, parked.off, parked.size)
		b, err := r.open(baseRef{at: next.base})
		if err == nil {
			err = r.resolve(next.delta, b, text, parked.size)
		}
		if err != nil {
			return fmt.Errorf("pack entry %d: %w", next.delta, err)
		}
		r.waiting--
		release(next.delta)
	}
	if r.waiting > 0 {
		return fmt.Errorf("%w: %d", ErrUnresolved, r.waiting)
	}
	return nil
}

// A spoolReader reads parked text as an [io.ReaderAt].
type spoolReader struct{ s *spool }

func (r spoolReader) ReadAt(p []byte, off int64) (int, error) {
	if err := r.s.readAt(p, off); err != nil {
		return 0, err
	}
	return len(p), nil
}
