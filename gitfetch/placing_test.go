package gitfetch_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/gitfetch"
	"github.com/fencepost/fencepost/gitfetch/internal/packtest"
	"github.com/fencepost/fencepost/gitfetch/internal/pktline"
)

// earlyFiles is how many good files stand before the end of a tree whose pack
// is sent in two parts.
const earlyFiles = 100

// A twoPart commit is sent in Git's order: many good files, then, after a
// pause, a directory last in the tree.
type twoPart struct {
	commit        fencepost.ObjectID
	first, second []byte // of the answer
}

// sendTwice makes one whose last directory has a file of that name, and adds
// more to the pack.
func sendTwice(name string, more func(f *forge)) twoPart {
	var f forge
	var entries []packtest.Entry
	for i := range earlyFiles {
		entries = append(entries, file(fmt.Sprintf("f%03d", i), f.blob(fmt.Sprint(i))))
	}
	last := packtest.Tree(file(name, f.blob("last")))
	commit := f.commit(f.tree(append(entries, dir("z", f.tree(file(name, f.blob("last")))))...))
	more(&f)
	pack := f.inGitOrder(commit)
	cut := bytes.Index(pack, packtest.Deflate(last))
	return twoPart{commit, band(opening(commit), 1, pack[:cut]), pktline.AppendFlush(band(nil, 1, pack[cut:]))}
}

// filesBelow counts regular files, and names the directory that holds them.
func filesBelow(root string) (n int, dir string) {
	// What is looked at is being made, or removed, meanwhile.
	_ = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() && d.Name() != "owner" && !strings.HasPrefix(d.Name(), "spool-") {
			n, dir = n+1, filepath.Dir(path)
		}
		return nil
	})
	return n, dir
}

// TestWhatWasWrittenBeforeTheEndIsGoneIfThatIsBad has a server wait until all
// files before the last directory are on disk, and then something go wrong.
func TestWhatWasWrittenBeforeTheEndIsGoneIfThatIsBad(t *testing.T) {
	t.Parallel()
	why := errors.New("lease lost")
	nothing := func(*forge) {}
	is := func(want error) func(error) bool { return func(err error) bool { return errors.Is(err, want) } }
	over := func(want gitfetch.Budget) func(error) bool {
		return func(err error) bool { return over(want).matches(err) }
	}
	send := func(w http.ResponseWriter, p twoPart, _ string, _ func()) { _, _ = w.Write(p.second) }
	tests := []struct {
		name   string
		sent   twoPart
		then   func(w http.ResponseWriter, p twoPart, dir string, giveUp func())
		ends   func(error) bool
		reason fencepost.Reason
		set    func(*gitfetch.Request)
	}{
		{"a directory that breaks a rule", sendTwice("CON", nothing), send, breaks("device").matches, fencepost.ReasonContent, nil},
		{"an object too many", sendTwice("ok", func(f *forge) { f.blob("extra") }), send, is(gitfetch.ErrExtraObject), fencepost.ReasonAcquisition, nil},
		{"a file over a budget", sendTwice("ok", nothing), send, over(gitfetch.BudgetOutput), fencepost.ReasonAcquisition, func(r *gitfetch.Request) {
			r.Budgets.OutputBytes = 10 + 2*90 + 1
		}},
		{"a pack that ends there", sendTwice("ok", nothing), func(w http.ResponseWriter, _ twoPart, _ string, _ func()) { _, _ = w.Write(pktline.AppendFlush(nil)) }, is(gitfetch.ErrPack), fencepost.ReasonAcquisition, nil},
		{"a damaged end", sendTwice("ok", nothing), func(w http.ResponseWriter, p twoPart, _ string, _ func()) {
			bad := bytes.Clone(p.second)
			bad[len(bad)-5] ^= 1
			_, _ = w.Write(bad)
		}, is(gitfetch.ErrPack), fencepost.ReasonAcquisition, nil},
		{"a connection that breaks", sendTwice("ok", nothing), func(http.ResponseWriter, twoPart, string, func()) { panic(http.ErrAbortHandler) }, is(gitfetch.ErrConnection), fencepost.ReasonAcquisition, nil},
		{"silence", sendTwice("ok", nothing), nil, over(gitfetch.BudgetIdle), fencepost.ReasonAcquisition, func(r *gitfetch.Request) { r.Budgets.Idle = time.Second }},
		{"a caller that gives up", sendTwice("ok", nothing), func(_ http.ResponseWriter, _ twoPart, _ string, giveUp func()) { giveUp() }, is(why), fencepost.ReasonUnavailable, nil},
		{"a file that can't be written", sendTwice("ok", nothing), func(w http.ResponseWriter, p twoPart, dir string, _ func()) {
			if err := os.RemoveAll(dir); err != nil {
				t.Error(err)
			}
			_, _ = w.Write(p.second)
		}, is(fs.ErrNotExist), fencepost.ReasonUnavailable, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			parent := t.TempDir()
			var written atomic.Int64
			h := &host{advertisement: advertisement(), write: func(w http.ResponseWriter, r *http.Request) {
				_, _ = w.Write(tt.sent.first)
				_ = http.NewResponseController(w).Flush()
				var at string
				for n := 0; r.Context().Err() == nil && n < earlyFiles; written.Store(int64(n)) {
					time.Sleep(time.Millisecond)
					n, at = filesBelow(parent)
				}
				if tt.then != nil {
					tt.then(w, tt.sent, at, func() { cancel(why) })
					return
				}
				<-r.Context().Done()
			}}
			req := gitfetch.Request{URL: h.start(t), Commit: fencepost.CommitID{ObjectID: tt.sent.commit}, AllowHTTP: true, Dir: filepath.Join(parent, "out")}
			if tt.set != nil {
				tt.set(&req)
			}
			c, err := gitfetch.Fetch(ctx, req)
			if c != nil || !tt.ends(err) || fencepost.ReasonOf(err) != tt.reason || errors.Is(err, gitfetch.ErrCleanup) {
				t.Errorf("err = %v (%s)", err, fencepost.ReasonOf(err))
			}
			if n := written.Load(); n != earlyFiles {
				t.Errorf("%d files were there before the end, want %d", n, earlyFiles)
			}
			if left, err := os.ReadDir(parent); err != nil || len(left) != 0 {
				t.Errorf("left behind: %v, %v", left, err)
			}
		})
	}
}

// TestADirectoryIsJudgedBeforeAnyFileOfIt has a server that sends a root with
// one bad name among many, and waits: the fetch ends there, and no file is
// ever made.
func TestADirectoryIsJudgedBeforeAnyFileOfIt(t *testing.T) {
	t.Parallel()
	var f forge
	entries := []packtest.Entry{}
	for i := range earlyFiles {
		entries = append(entries, file(fmt.Sprintf("f%03d", i), f.blob(fmt.Sprint(i))))
	}
	root := append(entries, file("z?", f.blob("bad")))
	commit := f.commit(f.tree(root...))
	pack := f.inGitOrder(commit)
	deflated := packtest.Deflate(packtest.Tree(root...))
	cut := bytes.Index(pack, deflated) + len(deflated)
	h := &host{advertisement: advertisement(), write: func(w http.ResponseWriter, r *http.Request) {
		_, _ = w.Write(band(opening(commit), 1, pack[:cut]))
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}}
	_, err := fetchFrom(t, h, commit, func(r *gitfetch.Request) { r.Budgets.Idle, r.Budgets.Total = time.Hour, time.Hour })
	wantPathError(t, err, "reserved-char")
}
