package pack

import (
	"bufio"
	"bytes"
	"fmt"
	"io"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/gitfetch/internal/object"
)

const (
	// textBuffer is how much of a large delta's text is in memory at a time.
	textBuffer = 8 << 10
	// residentBase is the largest base that is read into memory whole; from
	// a larger one each copy reads what it needs.
	residentBase = resident
)

// A resolver completes entries: it applies deltas, computes ids, and puts
// objects where they belong. Not safe for concurrent use.
type resolver struct {
	opts    Options
	store   *Store
	first   Index
	charged *budget
	pool    *pool
	hasher  *object.Hasher
	out     *content // for what is too large for memory
	text    *bufio.Reader
	base    []byte // memory for resident bases
	parked  []byte // memory for texts that come back from the spool

	// Deltas that wait for their base, by the id or the entry they wait for.
	waiting int
	onID    map[fencepost.ObjectID][]Index
	onIndex map[Index][]Index
}

func newResolver(store *Store, opts Options, charged *budget) *resolver {
	return &resolver{
		opts:    opts,
		store:   store,
		first:   Index(len(store.entries)),
		charged: charged,
		pool:    newPool(),
		hasher:  opts.newHasher(),
		out:     newContent(store.spool, opts.newHasher()),
		text:    bufio.NewReaderSize(nil, textBuffer),
		onID:    make(map[fencepost.ObjectID][]Index),
		onIndex: make(map[Index][]Index),
	}
}

// do completes the entry of a job, or has it wait, and takes its content over.
func (r *resolver) do(j job) error {
	if j.kind != 0 {
		return r.small(r.add(entry{kind: j.kind, size: int64(len(j.content.Bytes))}), j.content)
	}
	defer j.content.Release()
	r.store.counts.Deltas++
	b, err := r.find(j.on)
	if err != nil {
		return err
	}
	if b == nil {
		off := r.store.spool.end()
		if _, err := r.store.spool.Write(j.content.Bytes); err != nil {
			return err
		}
		r.park(j.on, off, int64(len(j.content.Bytes)))
		return nil
	}
	return r.resolve(r.add(entry{}), b, j.content.Bytes)
}

// largeObject completes an entry whose content is in the spool but for what
// out holds.
func (r *resolver) largeObject(e entry) error {
	i := r.add(e)
	if err := r.out.flush(); err != nil {
		return err
	}
	return r.identify(i, r.out.hasher)
}

// largeDelta completes a delta whose text is in the spool, or has it wait.
func (r *resolver) largeDelta(on baseRef, off, size int64) error {
	r.store.counts.Deltas++
	b, err := r.find(on)
	if err != nil {
		return err
	}
	if b == nil {
		r.park(on, off, size)
		return nil
	}
	return r.resolveSpooled(r.add(entry{}), b, off, size)
}

// add appends an entry, complete or waiting.
func (r *resolver) add(e entry) Index {
	r.store.entries = append(r.store.entries, e)
	return Index(len(r.store.entries) - 1)
}

// park has a delta wait whose text is in the spool.
func (r *resolver) park(on baseRef, off, size int64) {
	i := r.add(entry{off: off, size: size})
	if on.byID {
		r.onID[on.id] = append(r.onID[on.id], i)
	} else {
		r.onIndex[on.at] = append(r.onIndex[on.at], i)
	}
	r.waiting++
}

// small completes an entry whose content is in memory, which it takes over.
func (r *resolver) small(i Index, content *Content) error {
	e := &r.store.entries[i]
	r.hasher.Reset(e.kind, e.size)
	r.hasher.Write(content.Bytes)
	if err := r.named(i, r.hasher); err != nil {
		content.Release()
		return err
	}
	if r.opts.Taker != nil && e.kind == object.Blob {
		taken, err := r.opts.Taker.Take(i, e.id, content)
		if taken {
			e.off = isTaken
		}
		if taken || err != nil {
			if !taken {
				content.Release()
			}
			return err
		}
	}
	e.off = r.store.spool.end()
	_, err := r.store.spool.Write(content.Bytes)
	content.Release()
	if err != nil {
		return err
	}
	return r.completed(i)
}

// named takes what a hasher says as the id of an entry.
func (r *resolver) named(i Index, hasher *object.Hasher) error {
	id, err := hasher.Sum()
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

// identify completes an entry that is in the spool.
func (r *resolver) identify(i Index, hasher *object.Hasher) error {
	if err := r.named(i, hasher); err != nil {
		return err
	}
	return r.completed(i)
}

// completed shows a commit or a tree to the taker.
func (r *resolver) completed(i Index) error {
	if r.opts.Taker == nil {
		return nil
	}
	switch r.store.entries[i].kind {
	case object.Commit, object.Tree:
		return r.opts.Taker.Complete(r.store, i)
	}
	return nil
}

// find makes the base of a delta ready to be copied from. It returns nil where
// that is not complete yet.
func (r *resolver) find(on baseRef) (*base, error) {
	at := on.at
	if on.byID {
		var ok bool
		if at, ok = r.store.byID[on.id]; !ok {
			if r.opts.Base != nil {
				if o, ok := r.opts.Base(on.id); ok {
					return r.open(&base{kind: o.Kind, size: o.Size, readAt: o.ReadAt})
				}
			}
			return nil, nil
		}
	}
	if r.store.entries[at].kind == 0 {
		return nil, nil
	}
	return r.complete(at)
}

// complete makes a complete object of the store ready to be copied from.
func (r *resolver) complete(at Index) (*base, error) {
	e := &r.store.entries[at]
	return r.open(&base{kind: e.kind, depth: e.depth, size: e.size, readAt: func(p []byte, off int64) error { return r.store.ReadAt(at, p, off) }})
}

func (r *resolver) open(b *base) (*base, error) {
	if b.size > residentBase {
		return b, nil
	}
	r.base = sized(r.base, b.size)
	b.whole = r.base
	return b, b.readAt(b.whole, 0)
}

// sized returns b with that length, at most [resident], in other memory where
// it does not fit.
func sized(b []byte, size int64) []byte {
	if b == nil || int64(cap(b)) < size {
		return make([]byte, size, max(size, min(2*int64(cap(b)), resident)))
	}
	return b[:size]
}

// resolve applies a delta in memory to a complete object, and completes entry
// i with the result.
func (r *resolver) resolve(i Index, b *base, text []byte) error {
	result, ok := r.fits(b, text)
	if !ok {
		return r.resolveLarge(i, b, bytes.NewReader(text), int64(len(text)))
	}
	e, err := r.begin(b)
	if err != nil {
		return err
	}
	if err := r.admit(&e, result); err != nil {
		return err
	}
	content := r.pool.get(int(result))
	if err := applyWhole(b.whole, text, content.Bytes); err != nil {
		content.Release()
		return err
	}
	r.store.entries[i] = e
	return r.small(i, content)
}

// fits says how large the result of a delta is, if all of it can be done in
// memory. Where it can't, or where there is something wrong with the text's
// start, the general way is taken, which says what.
func (r *resolver) fits(b *base, text []byte) (result int64, ok bool) {
	if b.whole == nil || len(text) < minDelta {
		return 0, false
	}
	d := delta{text: r.text, left: int64(len(text))}
	r.text.Reset(bytes.NewReader(text))
	from, err := d.readSize()
	if err != nil || from != b.size {
		return 0, false
	}
	if result, err = d.readSize(); err != nil || result > resident {
		return 0, false
	}
	return result, true
}

// begin returns the entry that a delta on b will be.
func (r *resolver) begin(b *base) (entry, error) {
	depth := b.depth + 1
	if limit := r.opts.Limits.DeltaDepth; int64(depth) > limit {
		return entry{}, &object.LimitError{Limit: LimitDeltaDepth, Max: limit}
	}
	return entry{kind: b.kind, depth: depth}, nil
}

// admit holds the result of a delta to the limits before it is made.
func (r *resolver) admit(e *entry, result int64) error {
	if err := r.opts.Limits.checkSize(e.kind, result); err != nil {
		return err
	}
	e.size = result
	return r.charged.charge(result)
}

// resolveLarge is resolve through the spool, with the text read from text.
func (r *resolver) resolveLarge(i Index, b *base, text io.Reader, size int64) error {
	e, err := r.begin(b)
	if err != nil {
		return err
	}
	r.text.Reset(text)
	d := delta{text: r.text, left: size, stop: r.opts.Stop}
	e.off = r.store.spool.end()
	err = d.apply(b, r.out, func(result int64) error {
		if err := r.admit(&e, result); err != nil {
			return err
		}
		r.out.begin(b.kind, result)
		return nil
	})
	if err != nil {
		return err
	}
	r.store.entries[i] = e
	if err := r.out.flush(); err != nil {
		return err
	}
	return r.identify(i, r.out.hasher)
}

// resolveSpooled resolves a delta whose text is in the spool.
func (r *resolver) resolveSpooled(i Index, b *base, off, size int64) error {
	if size > resident {
		return r.resolveLarge(i, b, io.NewSectionReader(spoolReader{r.store.spool}, off, size), size)
	}
	// Not of the pool: whoever waits for that, as for the result, must hold
	// nothing of it.
	r.parked = sized(r.parked, size)
	if err := r.store.spool.readAt(r.parked, off); err != nil {
		return err
	}
	return r.resolve(i, b, r.parked)
}

// resolveWaiting resolves the deltas that came before their bases, each
// queue as soon as its base is complete, without recursion. What then still
// waits has no base here.
func (r *resolver) resolveWaiting() error {
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
		b, err := r.complete(next.base)
		if err == nil {
			err = r.resolveSpooled(next.delta, b, parked.off, parked.size)
		}
		if err != nil {
			return inEntry(int64(next.delta-r.first), err)
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
