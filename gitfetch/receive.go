package gitfetch

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/gitfetch/internal/pack"
)

// A fetcher makes one checkout, in one conversation and within one set of
// budgets, however often it has to begin.
type fetcher struct {
	w      *Workspace
	t      *target
	dog    *watchdog
	client *client
	root   *os.Root // of the workspace
	final  string
	lap    func() time.Duration

	inflated int64 // as charged so far
	shortcut bool  // less than the whole was asked for
	stats    Stats
}

// fetch tries with what is here already and with what the server can leave
// out, and then plainly.
func (f *fetcher) fetch(ctx context.Context) (*Checkout, error) {
	h := openHave(f.t.Have)
	if h == nil && f.t.Have != nil {
		f.stats.Fallback = FallbackDirectory
	}
	plain := h == nil && f.t.Select == nil
	c, err := f.attempt(ctx, h, plain)
	if h != nil {
		err = errors.Join(err, h.close())
	}
	if why := fallback(err); f.shortcut && c == nil && why != "" && ctx.Err() == nil {
		f.stats = Stats{Fallback: why, Receive: f.stats.Receive, Check: f.stats.Check, Write: f.stats.Write}
		f.dog.progress()
		return f.attempt(ctx, nil, true)
	}
	return c, err
}

// fallback says why a fetch that went wrong may go right without shortcuts,
// or "" where it would not, or must not.
func fallback(err error) Fallback {
	err = translate(err)
	switch {
	case err == nil, isBudget(err), errors.Is(err, ErrCleanup), errors.Is(err, ErrCollision),
		errors.Is(err, ErrCredential), errors.Is(err, ErrRateLimited):
		return ""
	case errors.Is(err, errAltered):
		return FallbackAltered
	case errors.Is(err, errNoFilter):
		return FallbackFilter
	case errors.Is(err, errHost), errors.Is(err, ErrContent), errors.Is(err, ErrNotOurRef) && !errors.Is(err, errBlobs):
		return ""
	}
	if status, ok := errors.AsType[*StatusError](err); ok {
		if mayBeOfShortcut(status) {
			return FallbackAnswer
		}
		return ""
	}
	_, remote := errors.AsType[*RemoteError](err)
	for _, odd := range []error{ErrConnection, ErrRejected, ErrProtocol, ErrPack, ErrObject, ErrMissingObject, ErrExtraObject, errBlobs} {
		remote = remote || errors.Is(err, odd)
	}
	if remote {
		return FallbackAnswer
	}
	return ""
}

// mayBeOfShortcut reports whether a status may be about how something was
// asked for: a server, or a proxy before it, that can't read the request, finds
// it too long, or dies of it. One that wants us to wait is not asked again.
func mayBeOfShortcut(e *StatusError) bool {
	switch e.Status {
	case http.StatusBadRequest, http.StatusRequestEntityTooLarge:
		return true
	}
	return e.Status >= 500 && e.RetryAfter == 0
}

var (
	// errNoFilter: what is here was left out in part, and the server can't.
	errNoFilter = errors.New("server can't filter")
	// errBlobs: the server did not give out single blobs.
	errBlobs = errors.New("blobs by id")
)

// attempt makes the checkout, with an earlier one in h, or none. With an error
// there is none, and nothing of it.
func (f *fetcher) attempt(ctx context.Context, h *have, plain bool) (c *Checkout, err error) {
	f.stats.Incremental = h != nil
	var early *placer
	defer func() {
		if early != nil && err != nil {
			err = errors.Join(err, f.drop(early.tree))
		}
	}()
	if h == nil {
		if early, err = f.newPlacer(ctx); err != nil {
			return nil, err
		}
	}
	store, planner, err := f.receive(ctx, h, plain, early)
	if early != nil {
		// Where it failed, receiving has failed by that, too.
		if left := early.end(); err == nil {
			err = left
		}
	}
	if store != nil {
		defer func() {
			if left := store.Close(); left != nil {
				err = errors.Join(err, host("close spool", left))
			}
		}()
	}
	f.stats.WireBytes = f.client.wire
	if err != nil {
		return nil, causeOf(ctx, err)
	}
	f.dog.stop()
	f.stats.Receive += f.lap()
	if planner == nil {
		planner = f.plannerOf(early, store, h)
		err = planner.tree(ctx)
	}
	var p *plan
	if err == nil {
		p, err = planner.finish(ctx)
	}
	f.stats.Check += f.lap()
	if err != nil {
		return nil, err
	}
	return f.write(ctx, store, h, p, early)
}

// receive gets what is needed. With a filter a planner has walked through the
// tree by then.
func (f *fetcher) receive(ctx context.Context, h *have, plain bool, early *placer) (*pack.Store, *planner, error) {
	var source *packSource
	ctx, abort := context.WithCancel(ctx)
	defer abort()
	filtered := false
	err := f.client.converse(ctx, func(caps capabilities) (err error) {
		filtered = !plain && (f.t.Select != nil || h.partial()) && caps.has("fetch", "filter")
		f.shortcut = h != nil
		if h.partial() && !filtered {
			return errNoFilter
		}
		f.shortcut = f.shortcut || filtered
		source, err = f.client.requestTree(ctx, caps, f.t.Commit, h, filtered)
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	receiving := &receiving{abort: abort, have: h, early: early}
	store, err := f.readPack(ctx, source, nil, receiving)
	if err != nil || !filtered {
		return store, nil, err
	}
	f.stats.Filtered = true
	receiving.have = nil // whose files are for deltas of the first pack alone
	p := f.plannerOf(early, store, h)
	if err := p.tree(ctx); err != nil {
		return store, nil, err
	}
	ids := p.missing()
	for len(ids) > 0 {
		n := min(len(ids), wantsPerRequest)
		if store, err = f.blobs(ctx, store, ids[:n], receiving); err != nil {
			return store, nil, err
		}
		ids = ids[n:]
	}
	return store, p, nil
}

// plannerOf returns the planner of those files that were written already, which
// has been on its way, or a new one.
func (f *fetcher) plannerOf(early *placer, store *pack.Store, h *have) *planner {
	if early == nil {
		return newPlanner(f.t, store, h)
	}
	early.planner.store = store
	return early.planner
}

// A receiving is what stays the same for all packs of one attempt.
type receiving struct {
	abort context.CancelFunc // ends the conversation
	have  *have              // nil: no delta is on what is here
	early *placer            // nil: nothing is written before all is there
}

// wantsPerRequest keeps a request below half a MiB, which servers and proxies
// that bound them let through.
const wantsPerRequest = 10_000

// blobs adds single blobs to a store. With an error the store is closed.
func (f *fetcher) blobs(ctx context.Context, store *pack.Store, ids []fencepost.ObjectID, with *receiving) (*pack.Store, error) {
	var source *packSource
	err := f.client.converse(ctx, func(caps capabilities) (err error) {
		source, err = f.client.requestBlobs(ctx, caps, ids)
		return err
	})
	if err == nil {
		store, err = f.readPack(ctx, source, store, with)
	} else {
		err = errors.Join(err, store.Close())
		store = nil
	}
	if err != nil {
		return store, fmt.Errorf("%w: %w", errBlobs, err)
	}
	return store, nil
}

// readPack takes one pack in, and closes its answer. With an error there is no
// store, and into is closed.
func (f *fetcher) readPack(ctx context.Context, source *packSource, into *pack.Store, with *receiving) (_ *pack.Store, err error) {
	b := &f.t.Budgets
	opts := pack.Options{
		Limits: pack.Limits{
			Objects:       b.Objects,
			InflatedBytes: b.InflatedBytes,
			DeltaDepth:    b.DeltaDepth,
			CommitBytes:   b.CommitBytes,
			TreeBytes:     b.TreeBytes,
			BlobBytes:     b.FileBytes,
		},
		Create:   func() (pack.File, error) { return makeSpool(f.root, f.w.name) },
		Progress: f.client.reporter(),
		Into:     into,
		Inflated: &f.inflated,
		Stop:     stopper(ctx),
		Abort:    with.abort,
		Hasher:   f.t.hasher,
	}
	if with.early != nil {
		opts.Taker = with.early
	}
	if with.have != nil {
		bases := with.have.bases()
		defer func() { err = errors.Join(err, bases.close()) }()
		opts.Base = bases.find
	}
	store, err := pack.Read(source, opts)
	if err = errors.Join(err, source.a.close()); err != nil {
		if store != nil {
			err = errors.Join(err, store.Close())
		}
		return nil, err
	}
	counts := store.Counts()
	f.stats.PackBytes, f.stats.InflatedBytes = counts.PackBytes, f.inflated
	f.stats.Objects, f.stats.Deltas = counts.Objects, counts.Deltas
	return store, nil
}

// write makes what is not made yet, and moves the directory to its place.
func (f *fetcher) write(ctx context.Context, store *pack.Store, h *have, p *plan, early *placer) (*Checkout, error) {
	w := &writer{
		t: f.t, store: store, have: h, plan: p,
		stamps: make([]stamp, len(p.nodes)), todo: make([]bool, len(p.nodes)), end: make([]int32, len(p.nodes)),
	}
	if early != nil {
		w.tree, w.early = early.tree, early
	} else {
		var err error
		if w.tree, err = f.makeTree(); err != nil {
			return nil, err
		}
	}
	w.look()
	err := f.writeTree(ctx, w)
	f.stats.Write += f.lap()
	f.stats.Files, f.stats.Directories, f.stats.OutputBytes, f.stats.LeftOut = p.files, p.dirs, p.output, p.out
	w.reused.report(&f.stats)
	var c *Checkout
	if err == nil {
		c, err = f.w.adopt(f.t, p, w, f.final, f.stats)
	}
	if err != nil && early == nil {
		err = errors.Join(err, f.drop(w.tree))
	}
	return c, err
}

// writeTree makes all of the plan that is not there yet.
func (f *fetcher) writeTree(ctx context.Context, w *writer) error {
	if f.t.Progress != nil {
		objects, wire := int64(w.store.Len()), f.client.wire
		var mu sync.Mutex
		var most int64
		w.progress = func(files int64) {
			mu.Lock()
			defer mu.Unlock()
			// Two writers may come here in another order than they counted.
			most = max(most, files)
			f.t.Progress(Progress{Objects: objects, TotalObjects: objects, WireBytes: wire, Files: most, TotalFiles: w.plan.files})
		}
	}
	if err := w.write(ctx, w.tree.dir); err != nil {
		return err
	}
	if w.progress != nil {
		w.progress(w.written.Load())
	}
	return nil
}
