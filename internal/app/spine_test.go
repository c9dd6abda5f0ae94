package app

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost/ledger"
	"github.com/fencepost/fencepost/ledger/fileledger"
)

// TestAGateOfARetiredTrustSetIsRefused: whatever it got would end as expired,
// without a word.
func TestAGateOfARetiredTrustSetIsRefused(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	c := s.Config
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	l, err := fileledger.Open(t.Context(), LedgerConfig(c, time.Now))
	if err != nil {
		t.Fatal(err)
	}
	_, err = l.Retire(t.Context(), ledger.MarkOf("acme"))
	if err := errors.Join(err, l.Close()); err != nil {
		t.Fatal(err)
	}
	o := s.Options
	o.Config = c
	again, err := Open(t.Context(), o)
	if err == nil {
		t.Fatal("it opens", again.Close())
	}
	if !errors.Is(err, ErrRetired) || !strings.Contains(err.Error(), "acme") {
		t.Errorf("error = %v, want ErrRetired that names acme", err)
	}
}
