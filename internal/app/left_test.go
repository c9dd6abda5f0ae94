package app

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/inbox"
	"github.com/fencepost/fencepost/internal/inbox/inboxtest"
)

// Invariant 4: a database in which nothing is known does not take the place of
// files in which something is.
func TestWhatIsInFilesIsNotLeftBehind(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	wantLeft := func(mend string) {
		t.Helper()
		if err := s.leftBehind(t.Context()); mend == "" && err != nil ||
			mend != "" && (!errors.Is(err, ErrLeftBehind) || !strings.Contains(err.Error(), mend)) {
			t.Errorf("left behind: %v, want %q", err, mend)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	wantLeft("")

	open := func(open func() error, use func()) {
		t.Helper()
		if err := open(); err != nil {
			t.Fatal(err)
		}
		use()
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	d := inboxtest.Accepted(t, 1, "{}", time.Time{}, time.Time{})
	open(func() error { return s.openInbox(t.Context()) }, func() {
		got, err := s.spine.inbox.Record(t.Context(), d, inboxtest.Headers(), []byte("{}"))
		if err != nil || got != inbox.Accepted {
			t.Fatalf("Record = %v, %v", got, err)
		}
	})
	wantLeft("without `database`")
	open(func() error { return s.openLedger(t.Context()) }, func() {
		claim, err := s.spine.ledger.Claim(t.Context(), inboxtest.Accepted(t, 2, "{}", time.Time{}, time.Time{}))
		if _, ok := claim.(fencepost.Acquired); err != nil || !ok {
			t.Fatalf("Claim = %v, %v", claim, err)
		}
	})
	wantLeft("fencepost ledger migrate")
}
