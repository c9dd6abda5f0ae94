package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/fencepost/fencepost/internal/trial/world"
)

// A watcher is a reader in a loop: whatever it finds must be one whole tree of
// the branch, none older than the one before, under a fence that only grows.
type watcher struct {
	link  string
	grace time.Duration

	mu     sync.Mutex
	known  map[string]int
	faults []string
	// Of the goroutine that looks.
	target string
	last   int
	fence  uint64
	seen   int
	reads  int
}

func watch(link string, grace time.Duration) *watcher {
	return &watcher{link: link, grace: grace, known: map[string]int{}, last: -1}
}

// know adds the next tree of the branch, before anybody can see it.
func (w *watcher) know(tr tree) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, twice := w.known[tr.digest()]; !twice {
		w.known[tr.digest()] = len(w.known)
	}
}

func (w *watcher) fault(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.faults) < 20 {
		w.faults = append(w.faults, time.Now().Format("05.000 ")+fmt.Sprintf(format, args...))
	}
}

// look reads once; with changed alone only what was not read before.
func (w *watcher) look(changed bool) {
	now, err := os.Readlink(w.link)
	switch {
	case errors.Is(err, fs.ErrNotExist) && w.target == "":
		return // nothing was served yet
	case err != nil:
		w.fault("the link is gone: %v", err)
		return
	case changed && now == w.target:
		return
	}
	began := time.Now()
	root, tr, err := served(w.link)
	switch {
	case err != nil && time.Since(began) > w.grace:
		return // we were slower than a reader may be
	case err != nil:
		w.fault("can't be read: %v", err)
		return
	}
	w.reads++
	w.judge(tr, root)
	w.target = now
}

func (w *watcher) judge(tr tree, root string) {
	w.mu.Lock()
	n, ok := w.known[tr.digest()]
	w.mu.Unlock()
	if !ok {
		w.fault("is of no commit: %q", tr)
		return
	}
	if n < w.last {
		w.fault("went back from tree %d to %d", w.last, n)
	}
	if n > w.last {
		w.seen++
	}
	w.last = n
	var record struct {
		Fence uint64 `json:"fence"`
	}
	text, err := os.ReadFile(root + ".json")
	if err == nil {
		err = json.Unmarshal(text, &record)
	}
	if err != nil || record.Fence < w.fence {
		w.fault("has fence %d after %d (%v)", record.Fence, w.fence, err)
	}
	w.fence = max(w.fence, record.Fence)
}

// run reads until ctx ends.
func (w *watcher) run(ctx context.Context, every time.Duration) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for ctx.Err() == nil {
		w.look(false)
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
}

// A reader is a watcher of the source of a handbook, which looks all the time.
type reader struct {
	*watcher
	stop func()
}

func watchHandbook(t *testing.T, f *world.Field) *reader {
	t.Helper()
	w := watch(f.Served("handbook"), time.Minute)
	r := f.Repositories["handbook"]
	for _, commit := range r.Refs() {
		tr, err := committed(t.Context(), r.GitDir(), commit)
		if err != nil {
			t.Fatal(err)
		}
		w.know(tr)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	all.Go(func() { w.run(ctx, time.Millisecond) })
	stop := sync.OnceFunc(func() { cancel(); all.Wait() })
	t.Cleanup(stop)
	return &reader{w, stop}
}

// push pushes an edition that readers may see from now on.
func (r *reader) push(t *testing.T, f *world.Field, n int) string {
	t.Helper()
	r.know(editionTree(n))
	return pushEdition(t, f, n)
}

// editionTree is what pushEdition makes.
func editionTree(n int) tree {
	tr := tree{}
	for path, text := range edition(n) {
		tr[path] = "100644 " + text
	}
	tr["bin/run"] = "100755 " + edition(n)["bin/run"]
	return tr
}

// finish ends the reading and judges it.
func (r *reader) finish(t *testing.T, f *world.Field, commit string) {
	t.Helper()
	r.stop()
	r.look(false)
	for _, fault := range r.faults {
		t.Errorf("a reader: %s", fault)
	}
	if r.reads < 2 {
		t.Errorf("the reader read %d times", r.reads)
	}
	wantServed(t, f, "handbook", commit)
	t.Logf("%d reads saw %d trees", r.reads, r.seen)
}
