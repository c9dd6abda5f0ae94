package forgesim

import (
	"context"
	"path/filepath"
	"testing"
	"time"
)

// A client that is killed while it asks must not turn a clean merge into a
// conflict.
func TestATestMergeOutlivesTheClientThatAsksForIt(t *testing.T) {
	t.Parallel()
	f, err := New(t.Context(), Config{Dir: filepath.Join(t.TempDir(), "forge"), Now: time.Now, MergePolls: -1})
	if err != nil {
		t.Fatal(err)
	}
	r, err := f.ImportRepository(t.Context(), Import{Owner: "acme", Name: "docs", Files: map[string]string{"a": "a"}})
	if err != nil {
		t.Fatal(err)
	}
	pr, err := r.OpenPullRequest(t.Context(), OpenPull{Head: "change", Change: Change{Files: map[string]string{"b": "b"}}})
	if err != nil {
		t.Fatal(err)
	}
	gone, leave := context.WithCancel(t.Context())
	leave()
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, err := pr.refreshTestMerge(gone); err != nil || !pr.test.known || !pr.test.mergeable {
		t.Errorf("test merge: known %t, mergeable %t, %v; want a clean one", pr.test.known, pr.test.mergeable, err)
	}
}
