package gitfetch_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/gitfetch"
	"github.com/fencepost/fencepost/gitfetch/internal/object"
	"github.com/fencepost/fencepost/gitfetch/internal/packtest"
)

func TestEveryBudgetTripsByItsName(t *testing.T) {
	t.Parallel()
	b := func(set func(b *gitfetch.Budgets)) func(*gitfetch.Request) {
		return func(r *gitfetch.Request) { set(&r.Budgets) }
	}
	plain := func(f *forge) fencepost.ObjectID {
		return f.tree(dir("dir", f.tree(file("name", f.blob("content")))), file("other", f.blob("more")))
	}
	bomb := func(f *forge) fencepost.ObjectID {
		// Ten thousand million paths from twelve objects.
		id := f.tree(file("f", f.blob("x")))
		for range 9 {
			var entries []packtest.Entry
			for n := range 10 {
				entries = append(entries, dir(fmt.Sprint("d", n), id))
			}
			id = f.tree(entries...)
		}
		return id
	}
	tests := []struct {
		budget gitfetch.Budget
		limit  int64
		path   string
		build  func(f *forge) fencepost.ObjectID
		change func(*gitfetch.Request)
	}{
		{gitfetch.BudgetWire, 400, "", plain, b(func(b *gitfetch.Budgets) { b.WireBytes = 400 })},
		{gitfetch.BudgetWire, 1, "", plain, b(func(b *gitfetch.Budgets) { b.WireBytes = 1 })},
		{gitfetch.BudgetMetadata, 50, "", plain, b(func(b *gitfetch.Budgets) { b.MetadataBytes = 50 })},
		{gitfetch.BudgetMetadataLines, 3, "", plain, b(func(b *gitfetch.Budgets) { b.MetadataLines = 3 })},
		{gitfetch.BudgetInflated, 20, "", plain, b(func(b *gitfetch.Budgets) { b.InflatedBytes = 20 })},
		{gitfetch.BudgetObjects, 4, "", plain, b(func(b *gitfetch.Budgets) { b.Objects = 4 })},
		{gitfetch.BudgetCommit, 10, "", plain, b(func(b *gitfetch.Budgets) { b.CommitBytes = 10 })},
		{gitfetch.BudgetTree, 30, "", plain, b(func(b *gitfetch.Budgets) { b.TreeBytes = 30 })},
		{gitfetch.BudgetFile, 6, "", plain, b(func(b *gitfetch.Budgets) { b.FileBytes = 6 })},
		{gitfetch.BudgetDeltaDepth, 1, "", func(f *forge) fencepost.ObjectID {
			a := f.blob("abcdef")
			f.b.Ref(a, packtest.Delta(6, 5, packtest.Copy(0, 5)))
			f.b.Ref(packtest.ID(object.Blob, []byte("abcde")), packtest.Delta(5, 4, packtest.Copy(0, 4)))
			return f.tree(file("a", a))
		}, b(func(b *gitfetch.Budgets) { b.DeltaDepth = 1 })},
		{gitfetch.BudgetPaths, 1, "other", plain, b(func(b *gitfetch.Budgets) { b.Paths = 1 })},
		{gitfetch.BudgetPaths, 200_000, "", bomb, b(func(b *gitfetch.Budgets) { b.Repeats = 200_000 })},
		{gitfetch.BudgetRepeats, 50_000, "", bomb, nil},
		{gitfetch.BudgetRepeats, 1, "d2/f", func(f *forge) fencepost.ObjectID {
			// The first and the second of three are within the budget.
			same := f.tree(file("f", f.blob("x")))
			return f.tree(dir("d0", same), dir("d1", same), dir("d2", same))
		}, b(func(b *gitfetch.Budgets) { b.Repeats = 1 })},
		{gitfetch.BudgetDepth, 1, "dir/name", plain, b(func(b *gitfetch.Budgets) { b.PathDepth = 1 })},
		{gitfetch.BudgetComponent, 4, "other", plain, b(func(b *gitfetch.Budgets) { b.ComponentBytes = 4 })},
		{gitfetch.BudgetPath, 7, "dir/name", plain, b(func(b *gitfetch.Budgets) { b.PathBytes = 7 })},
		{gitfetch.BudgetOutput, 10, "other", plain, b(func(b *gitfetch.Budgets) { b.OutputBytes = 10 })},
		{gitfetch.BudgetLinks, 1, "l2", func(f *forge) fencepost.ObjectID {
			l := f.blob("x")
			return f.tree(packtest.Entry{Mode: "120000", Name: "l1", ID: l}, packtest.Entry{Mode: "120000", Name: "l2", ID: l})
		}, func(r *gitfetch.Request) { r.Budgets.Links, r.Policy.Symlinks = 1, gitfetch.SymlinksAsData }},
		{gitfetch.BudgetLinkBytes, 3, "l2", func(f *forge) fencepost.ObjectID {
			l := f.blob("xy")
			return f.tree(packtest.Entry{Mode: "120000", Name: "l1", ID: l}, packtest.Entry{Mode: "120000", Name: "l2", ID: l})
		}, func(r *gitfetch.Request) { r.Budgets.LinkBytes, r.Policy.Symlinks = 3, gitfetch.SymlinksInside }},
	}
	for i, tt := range tests {
		t.Run(fmt.Sprintf("%d %s", i, tt.budget), func(t *testing.T) {
			t.Parallel()
			var f forge
			commit := f.commit(tt.build(&f))
			_, err := fetchFrom(t, &host{advertisement: advertisement(), result: answerWith(commit, f.b.Bytes())}, commit, tt.change)
			be, ok := errors.AsType[*gitfetch.BudgetError](err)
			if !ok || be.Budget != tt.budget || be.Limit != tt.limit || tt.path != "" && be.Path != tt.path {
				t.Errorf("err = %v, want %s of %d at %q", err, tt.budget, tt.limit, tt.path)
			}
			if fencepost.ReasonOf(err) != fencepost.ReasonAcquisition {
				t.Errorf("reason %s", fencepost.ReasonOf(err))
			}
		})
	}
}

// drip writes the answer and then the same bytes for ever, until the client
// goes away.
func drip(first, rest []byte) func(http.ResponseWriter, *http.Request) {
	return func(w http.ResponseWriter, r *http.Request) {
		flusher := http.NewResponseController(w)
		_, err := w.Write(first)
		for err == nil {
			if err = flusher.Flush(); err != nil {
				return
			}
			select {
			case <-r.Context().Done():
				return
			case <-time.After(2 * time.Millisecond):
			}
			if len(rest) > 0 {
				_, err = w.Write(rest)
			}
		}
	}
}

func TestTimeBudgets(t *testing.T) {
	t.Parallel()
	commit, _ := good()
	open := opening(commit)
	// Names one object more than ever come, so that the client reads on.
	header := append([]byte("PACK\x00\x00\x00\x02\x00\x00\x00\x02"), packtest.Header(3, 1<<20)...)
	started := band(open, 1, header)
	tests := []struct {
		name   string
		write  func(http.ResponseWriter, *http.Request)
		budget gitfetch.Budget
		set    func(b *gitfetch.Budgets)
	}{
		{"silence before the answer", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, gitfetch.BudgetIdle, func(b *gitfetch.Budgets) { b.Idle = 50 * time.Millisecond }},
		{"silence in the pack", drip(started, nil), gitfetch.BudgetIdle, func(b *gitfetch.Budgets) { b.Idle = 50 * time.Millisecond }},
		{"keepalives alone", drip(started, []byte("0005\x01")), gitfetch.BudgetIdle, func(b *gitfetch.Budgets) { b.Idle = 100 * time.Millisecond }},
		{"progress texts alone", drip(started, []byte("0006\x02.")), gitfetch.BudgetIdle, func(b *gitfetch.Budgets) { b.Idle = 100 * time.Millisecond }},
		{"bytes, but for ever", drip(band(started, 1, packtest.Deflate(nil)[:2]), []byte("000a\x01\x00\x00\x00\xff\xff")), gitfetch.BudgetTotal, func(b *gitfetch.Budgets) { b.Total = 150 * time.Millisecond }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, err := fetchFrom(t, &host{advertisement: advertisement(), write: tt.write}, commit, func(r *gitfetch.Request) { tt.set(&r.Budgets) })
			if be, ok := errors.AsType[*gitfetch.BudgetError](err); !ok || be.Budget != tt.budget {
				t.Errorf("err = %v, want the budget %s", err, tt.budget)
			}
		})
	}
}

func TestTheConnectBudgetHoldsForTheHandshake(t *testing.T) {
	t.Parallel()
	// It takes connections and says nothing.
	mute, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { mute.Close() })
	req := gitfetch.Request{URL: "https://" + mute.Addr().String() + "/r.git", Commit: fencepost.CommitID{ObjectID: fencepost.ObjectID{1}}}
	req.Budgets.Connect = 50 * time.Millisecond
	_, err = workspace(t).Fetch(t.Context(), req)
	if be, ok := errors.AsType[*gitfetch.BudgetError](err); !ok || be.Budget != gitfetch.BudgetConnect {
		t.Errorf("err = %v, want the budget %s", err, gitfetch.BudgetConnect)
	}
}

func TestACancelledFetchSaysSoAndLeavesNothing(t *testing.T) {
	t.Parallel()
	commit, _ := good()
	why := errors.New("lease lost")
	ctx, cancel := context.WithCancelCause(t.Context())
	h := &host{advertisement: advertisement(), write: func(w http.ResponseWriter, r *http.Request) {
		cancel(why)
		<-r.Context().Done()
	}}
	parent := t.TempDir()
	_, err := gitfetch.Fetch(ctx, gitfetch.Request{URL: h.start(t), Commit: fencepost.CommitID{ObjectID: commit}, AllowHTTP: true, Dir: filepath.Join(parent, "out")})
	if !errors.Is(err, why) || fencepost.ReasonOf(err) != fencepost.ReasonUnavailable {
		t.Errorf("err = %v (%s), want %v", err, fencepost.ReasonOf(err), why)
	}
	if left, err := os.ReadDir(parent); err != nil || len(left) != 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func TestRequestsAreCheckedBeforeAnythingIsSent(t *testing.T) {
	t.Parallel()
	id := fencepost.CommitID{ObjectID: fencepost.ObjectID{1}}
	good := gitfetch.Request{URL: "https://git.example/r", Commit: id, Dir: "x"}
	for name, change := range map[string]func(*gitfetch.Request){
		"no commit":             func(r *gitfetch.Request) { r.Commit = fencepost.CommitID{} },
		"no directory":          func(r *gitfetch.Request) { r.Dir = "" },
		"plain http":            func(r *gitfetch.Request) { r.URL = "http://git.example/r" },
		"a budget below zero":   func(r *gitfetch.Request) { r.Budgets.Paths = -1 },
		"a time below zero":     func(r *gitfetch.Request) { r.Budgets.Idle = -1 },
		"an endless depth":      func(r *gitfetch.Request) { r.Budgets.PathDepth = 1 << 20 },
		"endless paths":         func(r *gitfetch.Request) { r.Budgets.Paths = 1 << 40 },
		"no such policy":        func(r *gitfetch.Request) { r.Policy.Symlinks = 9 },
		"no such sync":          func(r *gitfetch.Request) { r.Sync = 9 },
		"a bad redirect origin": func(r *gitfetch.Request) { r.RedirectOrigins = []string{"git.example"} },
		"a redirect to a path":  func(r *gitfetch.Request) { r.RedirectOrigins = []string{"https://git.example/r"} },
	} {
		req := good
		change(&req)
		if _, err := gitfetch.Fetch(t.Context(), req); !errors.Is(err, gitfetch.ErrRequest) {
			t.Errorf("%s: err = %v, want %v", name, err, gitfetch.ErrRequest)
		}
	}
}
