package forgesim

import (
	"context"
	"errors"
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

func TestATestMergeIsPreparedBeforeAnybodyAsks(t *testing.T) {
	t.Parallel()
	f, err := New(t.Context(), Config{Dir: filepath.Join(t.TempDir(), "forge"), Now: time.Now, MergePolls: 3})
	if err != nil {
		t.Fatal(err)
	}
	r, err := f.ImportRepository(t.Context(), Import{Owner: "acme", Name: "docs", Files: map[string]string{"a": "a"}})
	if err != nil {
		t.Fatal(err)
	}
	open := func(head, file, text string) *PullRequest {
		t.Helper()
		pr, err := r.OpenPullRequest(t.Context(), OpenPull{Head: head, Change: Change{Files: map[string]string{file: text}}})
		if err != nil {
			t.Fatal(err)
		}
		return pr
	}
	clean, conflict := open("clean", "b", "b"), open("conflict", "a", "head")
	if _, err := r.Push(t.Context(), Push{Branch: "main", Change: Change{Files: map[string]string{"a": "base"}}}); err != nil {
		t.Fatal(err)
	}
	made, err := clean.PrepareTestMerge(t.Context())
	if err != nil || made == "" || made != r.Ref(clean.ref("merge")) {
		t.Errorf("test merge %q, %v, want that of %s", made, err, clean.ref("merge"))
	}
	if again, err := clean.PrepareTestMerge(t.Context()); err != nil || again != made {
		t.Errorf("once more: %q, %v, want %q", again, err, made)
	}
	if made, err := conflict.PrepareTestMerge(t.Context()); err != nil || made != "" {
		t.Errorf("test merge %q of a conflict, %v", made, err)
	}
	f.mu.Lock()
	if due, err := clean.refreshTestMerge(t.Context()); due || err != nil || !clean.test.known || clean.test.sha != made {
		t.Errorf("what is asked next is due %v, %v: %+v", due, err, clean.test)
	}
	f.mu.Unlock()
	if err := clean.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := clean.PrepareTestMerge(t.Context()); !errors.Is(err, ErrConfig) {
		t.Errorf("a closed request: %v, want ErrConfig", err)
	}
}
