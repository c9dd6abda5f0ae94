package e2e

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"iter"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost"
	rows "github.com/fencepost/fencepost/ledger"
	"github.com/fencepost/fencepost/ledger/fileledger"
)

// A verdict is what an audit found.
type verdict struct {
	acknowledged, lost, published, twice, takeovers, fences int
	broken                                                  []string
}

// String gives the figures.
func (v verdict) String() string {
	return fmt.Sprintf("%d acknowledged, %d of them lost; %d published, %d of them twice; %d leases, %d of them after another's death; %d faults",
		v.acknowledged, v.lost, v.published, v.twice, v.fences, v.takeovers, len(v.broken))
}

func (v *verdict) breach(format string, args ...any) {
	v.broken = append(v.broken, fmt.Sprintf(format, args...))
}

// A leasing is what a controller noted when it was given a lease.
type leasing struct {
	At         time.Time            `json:"at"`
	Delivery   fencepost.DeliveryID `json:"delivery"`
	Kind       string               `json:"event"`
	Evaluation string               `json:"evaluation"`
	Fence      uint64               `json:"fence"`
	// Journal is where it is noted.
	Journal string `json:"-"`
}

// books are what controllers have written down, after their end.
type books struct {
	rows     map[fencepost.DeliveryID]rows.Row
	verified error
	// leasings are those of each delivery, of each journal in its order.
	leasings map[fencepost.DeliveryID][]leasing
	// askew is set where the journals' times are not the provider's: then
	// fences alone say what was before what.
	askew bool
}

// booksOf reads the ledger and the journals of one data directory.
func booksOf(t *testing.T, dataDir string) books {
	t.Helper()
	b := books{leasings: leasingsOf(t, filepath.Join(dataDir, "receipts"))}
	b.rows, b.verified = rowsOf(t, filepath.Join(dataDir, "ledger"))
	return b
}

// audit holds what the provider saw and what the senders were told against
// the ledger and the journals, after the end of all controllers.
func audit(seen []sight, told []telling, b books) verdict {
	var v verdict
	if b.verified != nil {
		v.breach("the ledger does not verify: %v", b.verified)
	}
	bodies := map[string][]sight{}
	for _, s := range seen {
		bodies[s.Head] = append(bodies[s.Head], s)
	}
	heads := map[string]fencepost.DeliveryID{}
	for _, a := range told {
		switch {
		case a.Status == http.StatusServiceUnavailable:
			continue
		case a.Status/100 != 2 || a.Outcome != "accepted" && a.Outcome != "replayed":
			v.breach("the delivery of %.9s was answered %d %s", a.Head, a.Status, a.Outcome)
			continue
		}
		if known, ok := heads[a.Head]; ok && known != a.Delivery {
			v.breach("the delivery of %.9s was called %s and %s [4]", a.Head, known, a.Delivery)
		}
		heads[a.Head] = a.Delivery
	}
	v.acknowledged = len(heads)
	for head, delivery := range heads {
		v.judge(head, b.rows[delivery], bodies[head], b.leasings[delivery], b.askew)
	}
	for head := range bodies {
		if _, ok := heads[head]; !ok {
			v.breach("%.9s was published, and nobody was told that its delivery is accepted", head)
		}
	}
	if len(b.rows) != len(heads) {
		v.breach("%d rows for %d deliveries", len(b.rows), len(heads))
	}
	return v
}

// judge judges one delivery that was acknowledged.
func (v *verdict) judge(head string, row rows.Row, runs []sight, leasings []leasing, askew bool) {
	switch {
	case row.State == rows.Unclaimed || len(runs) == 0:
		v.lost++
		v.breach("%.9s was acknowledged; it is %v in the ledger, with %d results [3]", head, row.State, len(runs))
		return
	case len(runs) > 1:
		v.twice++
		v.breach("%.9s was published %d times [7]", head, len(runs))
	}
	v.published++
	if row.State != rows.Done {
		v.breach("%.9s is %v, after all had ended", head, row.State)
	}
	for _, r := range runs {
		if r.Evaluation != row.Evaluation.String() {
			v.breach("%.9s was published by the evaluation %s, its row has %v [4]", head, r.Evaluation, row.Evaluation)
		}
		if r.Body != runs[0].Body {
			v.breach("%.9s was published with different bytes [7]", head)
		}
	}
	if askew {
		v.judgeOrder(head, row, leasings)
	} else {
		v.judgeFences(head, row, runs[0].At, leasings)
	}
}

// judgeFences looks at the leases that controllers noted. A note may be lost
// with its controller, so a fence may be missing here.
func (v *verdict) judgeFences(head string, row rows.Row, published time.Time, leasings []leasing) {
	slices.SortStableFunc(leasings, func(a, b leasing) int { return a.At.Compare(b.At) })
	var last, publisher uint64
	for _, l := range leasings {
		if l.Evaluation != row.Evaluation.String() {
			v.breach("%.9s was leased to the evaluation %s, its row has %v [4]", head, l.Evaluation, row.Evaluation)
		}
		switch l.Kind {
		case "claimed":
			v.fences++
			if last != 0 {
				v.takeovers++
			}
			if l.Fence <= last {
				v.breach("%.9s was leased under fence %d after %d [5]", head, l.Fence, last)
			}
			last = l.Fence
			if l.At.Before(published) {
				publisher = l.Fence
			}
		case "ran", "staged":
			if l.At.After(published) {
				v.breach("%.9s: %s under fence %d after its publication [6]", head, l.Kind, l.Fence)
			}
		case "published":
			// Whoever has published, or found it published, is the newest.
			if l.Fence < last {
				v.breach("%.9s: published under fence %d, which %d had followed [5]", head, l.Fence, last)
			}
			if l.Fence < publisher {
				v.breach("%.9s: published under fence %d, though %d had been given before [5]", head, l.Fence, publisher)
			}
		}
	}
	if fence := row.Fence.Uint64(); fence < last {
		v.breach("%.9s: fence %d was given, its row has %d [5]", head, last, fence)
	}
}

// judgeOrder is judgeFences where no two clocks need agree: what one journal
// says is in its order, and fences order the leases of all.
func (v *verdict) judgeOrder(head string, row rows.Row, leasings []leasing) {
	last, published := map[string]uint64{}, map[string]bool{}
	given, highest, shown := map[uint64]bool{}, uint64(0), uint64(0)
	for _, l := range leasings {
		if l.Evaluation != row.Evaluation.String() {
			v.breach("%.9s was leased to the evaluation %s, its row has %v [4]", head, l.Evaluation, row.Evaluation)
		}
		before := last[l.Journal]
		if l.Kind == "claimed" {
			v.fences++
			if len(given) > 0 {
				v.takeovers++
			}
			if given[l.Fence] || l.Fence <= before {
				v.breach("%.9s was leased under fence %d after %d [5]", head, l.Fence, before)
			}
			given[l.Fence], last[l.Journal], highest = true, l.Fence, max(highest, l.Fence)
			continue
		}
		if l.Fence < before {
			v.breach("%.9s: %s under fence %d after %d was given [5]", head, l.Kind, l.Fence, before)
		}
		switch l.Kind {
		case "ran", "staged":
			if published[l.Journal] {
				v.breach("%.9s: %s under fence %d after its publication [6]", head, l.Kind, l.Fence)
			}
		case "published":
			published[l.Journal], shown = true, max(shown, l.Fence)
		}
	}
	// Whoever is the newest has published, or found it published.
	if shown != highest || row.Fence.Uint64() != highest {
		v.breach("%.9s: the last fence is %d, published under %d, its row has %d [5]", head, highest, shown, row.Fence.Uint64())
	}
}

// rowsOf reads the whole file ledger; the second error says what in it does not
// verify.
func rowsOf(t *testing.T, dir string) (map[fencepost.DeliveryID]rows.Row, error) {
	t.Helper()
	report, err := fileledger.Verify(t.Context(), fileledger.Config{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	cfg := report.Config
	cfg.Dir, cfg.Volatile = dir, true
	l, err := fileledger.Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	found := collect(t, l.Rows(t.Context()))
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	return found, report.Err()
}

func collect(t *testing.T, all iter.Seq2[rows.Row, error]) map[fencepost.DeliveryID]rows.Row {
	t.Helper()
	found := map[fencepost.DeliveryID]rows.Row{}
	for row, err := range all {
		if err != nil {
			t.Fatal(err)
		}
		found[row.Key.ID()] = row
	}
	return found
}

// leasingsOf are the notes of leases in the journals of a directory.
func leasingsOf(t *testing.T, dir string) map[fencepost.DeliveryID][]leasing {
	t.Helper()
	all := map[fencepost.DeliveryID][]leasing{}
	eachNote(t, dir, func(l leasing) {
		if l.Fence != 0 {
			all[l.Delivery] = append(all[l.Delivery], l)
		}
	})
	return all
}

// eachNote reads the journals' lines that are whole: a checksum, and JSON.
func eachNote(t *testing.T, dir string, f func(leasing)) {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "*.log"))
	if err != nil || len(names) == 0 {
		t.Fatalf("journals in %s: %v, %v", dir, names, err)
	}
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			l := leasing{Journal: name}
			_, event, _ := strings.Cut(line, " ")
			if json.Unmarshal([]byte(event), &l) == nil {
				f(l)
			}
		}
	}
}

// What the audit says of journals whose clocks don't agree: of each order that
// must not be, and of none that may.
func TestTheAuditSeesABrokenOrder(t *testing.T) {
	t.Parallel()
	id, err := fencepost.NewEvaluationID(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	note := func(journal, kind string, fence uint64) leasing {
		return leasing{Kind: kind, Evaluation: id.String(), Fence: fence, Journal: journal}
	}
	foreign := note("a", "claimed", 2)
	foreign.Evaluation = "another"
	for _, tc := range []struct {
		name   string
		fence  uint64
		notes  []leasing
		broken bool
	}{
		{"one life", 2, []leasing{note("a", "claimed", 2), note("a", "ran", 2), note("a", "staged", 2), note("a", "published", 2)}, false},
		{"taken over", 5, []leasing{note("a", "claimed", 2), note("a", "ran", 2), note("b", "claimed", 5), note("b", "ran", 5), note("b", "published", 5)}, false},
		{"published and found so", 5, []leasing{note("a", "claimed", 2), note("a", "published", 2), note("b", "claimed", 5), note("b", "published", 5)}, false},
		{"a fence that goes back", 5, []leasing{note("a", "claimed", 5), note("a", "claimed", 2), note("a", "published", 5)}, true},
		{"a fence twice", 5, []leasing{note("a", "claimed", 5), note("b", "claimed", 5), note("b", "published", 5)}, true},
		{"published by an older one alone", 5, []leasing{note("a", "claimed", 2), note("b", "claimed", 5), note("a", "published", 2)}, true},
		{"staged under an older fence", 5, []leasing{note("a", "claimed", 2), note("a", "claimed", 5), note("a", "staged", 2), note("a", "published", 5)}, true},
		{"run after its publication", 2, []leasing{note("a", "claimed", 2), note("a", "published", 2), note("a", "ran", 2)}, true},
		{"another evaluation", 2, []leasing{foreign, note("a", "published", 2)}, true},
		{"a row that went back", 2, []leasing{note("a", "claimed", 5), note("a", "published", 5)}, true},
	} {
		fence, err := fencepost.ParseFence(tc.fence)
		if err != nil {
			t.Fatal(err)
		}
		var v verdict
		v.judgeOrder("head", rows.Row{Evaluation: id, Fence: fence}, tc.notes)
		if broken := len(v.broken) > 0; broken != tc.broken {
			t.Errorf("%s: broken %t (%q), want %t", tc.name, broken, v.broken, tc.broken)
		}
	}
}
