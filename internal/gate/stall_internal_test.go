package gate

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fencepost/fencepost"
)

// A transcript of alerts.
type transcript []string

func (s *transcript) Raise(a Alert)                  { *s = append(*s, "raise "+string(a.Code)+" "+a.Subject) }
func (s *transcript) Resolve(c AlertCode, of string) { *s = append(*s, "resolve "+string(c)+" "+of) }

func TestAStallEndsWithTheLastThatWaits(t *testing.T) {
	t.Parallel()
	full, corrupt := stall{AlertLedgerCapacity, "docs"}, stall{AlertLedgerCorrupt, "docs"}
	var got transcript
	s := newStalls(&got)
	one, two := &task{}, &task{}
	s.move(one, full, fencepost.ReasonFull)
	s.move(two, full, fencepost.ReasonFull)
	s.move(one, full, fencepost.ReasonFull)
	s.over("docs", AlertLedgerCapacity)
	s.move(one, stall{}, fencepost.ReasonNone)
	s.move(two, corrupt, fencepost.ReasonCorrupt)
	s.move(two, stall{}, fencepost.ReasonNone)
	s.over("docs", AlertLedgerCapacity)
	want := transcript{
		"raise ledger_capacity docs", "raise ledger_corrupt docs", "resolve ledger_capacity docs",
		"resolve ledger_corrupt docs", "resolve ledger_capacity docs",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
