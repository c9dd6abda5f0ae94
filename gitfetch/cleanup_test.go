package gitfetch_test

import (
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/gitfetch"
)

// usurp puts a file in the place of a directory, which stands aside until
// restore: nothing below it can be removed, whoever asks.
func usurp(t *testing.T, dir string) (restore func()) {
	t.Helper()
	aside := dir + "-aside"
	if err := errors.Join(os.Rename(dir, aside), os.WriteFile(dir, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := errors.Join(os.Remove(dir), os.Rename(aside, dir)); err != nil {
			t.Fatal(err)
		}
	}
}

func wantCleanup(t *testing.T, what string, err error, dir string) {
	t.Helper()
	if !errors.Is(err, gitfetch.ErrCleanup) || strings.Contains(err.Error(), dir) {
		t.Errorf("%s: err = %v, want %v and no path of the host", what, err, gitfetch.ErrCleanup)
	}
}

// TestWhatCantBeRemovedIsSaid by whoever should have, who may try again.
func TestWhatCantBeRemovedIsSaid(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "work")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	w, err := gitfetch.OpenWorkspace(dir)
	if err != nil {
		t.Fatal(err)
	}
	commit, pack := good()
	h := &host{advertisement: advertisement(), result: answerWith(commit, pack)}
	c, err := w.Fetch(t.Context(), gitfetch.Request{URL: h.start(t), Commit: fencepost.CommitID{ObjectID: commit}, AllowHTTP: true})
	if err != nil {
		t.Fatal(err)
	}
	restore := usurp(t, dir)
	err = c.Remove()
	wantCleanup(t, "Remove", err, dir)
	if fencepost.ReasonOf(err) != fencepost.ReasonUnavailable {
		t.Errorf("reason %s", fencepost.ReasonOf(err))
	}
	wantCleanup(t, "Close", w.Close(), dir)
	restore()
	if err := c.Verify(t.Context()); err != nil {
		t.Errorf("after that: %v", err)
	}
	if err := errors.Join(c.Remove(), c.Remove()); err != nil {
		t.Errorf("Remove, again: %v", err)
	}
	if err := errors.Join(w.Close(), w.Close()); err != nil {
		t.Errorf("Close, again: %v", err)
	}
	if left := names(t, dir); len(left) != 0 {
		t.Errorf("left behind: %q", left)
	}
}

// TestAFetchThatLeavesSomethingBehindSaysSo beside what it failed by, and does
// not begin anew.
func TestAFetchThatLeavesSomethingBehindSaysSo(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		last   string // name of the last file
		broken bool   // the pack
		want   ending
	}{
		"a tree that is refused":   {"CON", false, breaks("device")},
		"a pack that is refused":   {"ok", true, fails(gitfetch.ErrPack).because(fencepost.ReasonUnavailable)}, // this machine failed, too
		"a tree that can't be put": {"ok", false, ending{}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			parent := t.TempDir()
			sent := sendTwice(tt.last, func(*forge) {})
			posts := 0
			h := &host{advertisement: advertisement(), write: func(w http.ResponseWriter, r *http.Request) {
				posts++
				_, _ = w.Write(sent.first)
				_ = http.NewResponseController(w).Flush()
				for n := 0; r.Context().Err() == nil && n < earlyFiles; n, _ = filesBelow(parent) {
					time.Sleep(time.Millisecond)
				}
				usurp(t, own(t, parent))
				if tt.broken {
					sent.second[len(sent.second)-5] ^= 1
				}
				_, _ = w.Write(sent.second)
			}}
			c, err := gitfetch.Fetch(t.Context(), gitfetch.Request{
				URL: h.start(t), Commit: fencepost.CommitID{ObjectID: sent.commit}, AllowHTTP: true, Dir: filepath.Join(parent, "out"),
				Select: func(string) bool { return true },
			})
			wantCleanup(t, "Fetch", err, parent)
			if c != nil || posts != 1 {
				t.Errorf("a checkout: %v, after %d requests", c, posts)
			}
			if tt.want != (ending{}) && (!tt.want.matches(err) || fencepost.ReasonOf(err) != tt.want.reason) {
				t.Errorf("err = %v (%s), want %s too", err, fencepost.ReasonOf(err), tt.want)
			}
			if left := names(t, parent); len(left) != 2 {
				t.Errorf("in the directory: %q", left)
			}
		})
	}
}
