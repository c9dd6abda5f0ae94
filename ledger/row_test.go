package ledger_test

import (
	"bytes"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/ledger"
)

func exportAll(reflect.Type) bool { return true }

// legal rows of every shape.
func legalRows(tb testing.TB) map[string]ledger.Row {
	x := newTable(tb)
	rows := map[string]ledger.Row{
		"leased": x.row(ledger.Leased, time.Second),
		"staged": x.row(ledger.Staged, time.Second),
		"done":   x.row(ledger.Done, 0),
	}
	none, err := fencepost.NoPublication(fencepost.ReasonSuperseded)
	if err != nil {
		tb.Fatal(err)
	}
	r := rows["staged"]
	r.Publication = none
	rows["staged none"] = r
	r.Publication = publication(tb, strings.Repeat("x", fencepost.MaxPublicationBytes))
	rows["staged largest"] = r
	for _, name := range []string{"leased", "staged", "done"} {
		r := rows[name]
		r.Lifetime = fencepost.BoundedUntil(noon.Add(time.Hour + 1))
		r.RunningEnd = 12345
		rows[name+" bounded"] = r
	}
	return rows
}

func TestRowEncodingRoundTrips(t *testing.T) {
	t.Parallel()
	for name, r := range legalRows(t) {
		b, err := ledger.AppendRow([]byte("front"), r)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		b = b[len("front"):]
		if len(b) != ledger.EncodedLen(r) || len(b) > ledger.MaxRowBytes {
			t.Errorf("%s: %d bytes, EncodedLen says %d, at most %d", name, len(b), ledger.EncodedLen(r), ledger.MaxRowBytes)
		}
		got, err := ledger.DecodeRow(b)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if !got.Equal(r) {
			t.Errorf("%s: %s", name, cmp.Diff(r, got, cmp.Exporter(exportAll)))
		}
		for n := range len(b) {
			if n > 200 {
				break
			}
			if _, err := ledger.DecodeRow(b[:n]); !errors.Is(err, ledger.ErrMalformedRow) {
				t.Fatalf("%s cut to %d bytes: %v, want ErrMalformedRow", name, n, err)
			}
		}
		if _, err := ledger.DecodeRow(append(b[:len(b):len(b)], 0)); !errors.Is(err, ledger.ErrMalformedRow) {
			t.Errorf("%s with a byte too many: %v, want ErrMalformedRow", name, err)
		}
	}
}

func TestIllegalRowsCannotBeEncoded(t *testing.T) {
	t.Parallel()
	rows := legalRows(t)
	for name, spoil := range map[string]func() ledger.Row{
		"unclaimed":                        func() ledger.Row { return ledger.Row{} },
		"unclaimed with a key":             func() ledger.Row { return ledger.Row{Key: fencepost.DeliveryKey{1}} },
		"unknown state":                    func() ledger.Row { r := rows["done"]; r.State = 4; return r },
		"no key":                           func() ledger.Row { r := rows["done"]; r.Key = fencepost.DeliveryKey{}; return r },
		"no evaluation":                    func() ledger.Row { r := rows["done"]; r.Evaluation = fencepost.EvaluationID{}; return r },
		"no fence":                         func() ledger.Row { r := rows["done"]; r.Fence = fencepost.Fence{}; return r },
		"no attempts":                      func() ledger.Row { r := rows["done"]; r.Attempts = 0; return r },
		"too many attempts":                func() ledger.Row { r := rows["done"]; r.Attempts = ledger.MaxAttempts + 1; return r },
		"leased without a lease":           func() ledger.Row { r := rows["leased"]; r.Execution = ledger.Term{}; return r },
		"leased with a publication":        func() ledger.Row { r := rows["leased"]; r.Publication = publication(t, "p"); return r },
		"leased with a publishing lease":   func() ledger.Row { r := rows["leased"]; r.Publishing = r.Execution; return r },
		"staged with an execution lease":   func() ledger.Row { r := rows["staged"]; r.Execution = r.Publishing; return r },
		"staged without a lease":           func() ledger.Row { r := rows["staged"]; r.Publishing = ledger.Term{}; return r },
		"staged without a publication":     func() ledger.Row { r := rows["staged"]; r.Publication = fencepost.Publication{}; return r },
		"staged and published":             func() ledger.Row { r := rows["staged"]; r.Published[0] = 1; return r },
		"done with a lease":                func() ledger.Row { r := rows["done"]; r.Execution = rows["leased"].Execution; return r },
		"done with a publication":          func() ledger.Row { r := rows["done"]; r.Publication = publication(t, "p"); return r },
		"done without a digest":            func() ledger.Row { r := rows["done"]; r.Published = [32]byte{}; return r },
		"since with nanoseconds":           func() ledger.Row { r := rows["done"]; r.Since = r.Since.Add(1); return r },
		"since in another zone":            func() ledger.Row { r := rows["done"]; r.Since = r.Since.In(time.FixedZone("x", 3600)); return r },
		"since before 1970":                func() ledger.Row { r := rows["done"]; r.Since = time.Unix(-1, 0).UTC(); return r },
		"running end without a replay end": func() ledger.Row { r := rows["done"]; r.RunningEnd = 1; return r },
		"replay end out of range": func() ledger.Row {
			r := rows["done"]
			r.Lifetime = fencepost.BoundedUntil(time.Unix(1<<40, 0))
			return r
		},
		"deadline without a boot": func() ledger.Row { r := rows["leased"]; r.Execution.Deadline.Boot = ledger.BootID{}; return r },
		"negative deadline":       func() ledger.Row { r := rows["leased"]; r.Execution.Deadline.At = -1; return r },
	} {
		r := spoil()
		if b, err := ledger.AppendRow(nil, r); !errors.Is(err, ledger.ErrIllegalRow) || len(b) != 0 {
			t.Errorf("%s: AppendRow = %d bytes, %v; want none, ErrIllegalRow", name, len(b), err)
		}
	}
}

func TestEdges(t *testing.T) {
	t.Parallel()
	x := newTable(t)
	none := ledger.Row{}
	leased, staged, done := x.row(ledger.Leased, 1), x.row(ledger.Staged, 1), x.row(ledger.Done, 0)
	bounded := func(r ledger.Row, end time.Duration) ledger.Row {
		r.Lifetime = fencepost.BoundedUntil(noon.Add(end))
		return r
	}
	fenced := func(r ledger.Row, n uint64) ledger.Row { r.Fence = fence(t, n); return r }
	published := func(r ledger.Row, text string) ledger.Row {
		r.Publication = publication(t, text)
		return r
	}
	other := func(r ledger.Row) ledger.Row { r.Evaluation[5]++; return r }
	digest := func(r ledger.Row) ledger.Row { r.Published[5]++; return r }
	for _, tt := range []struct {
		name     string
		from, to ledger.Row
		legal    bool
	}{
		{"first claim", none, leased, true},
		{"nothing", none, none, true},
		{"staged from nothing", none, staged, false},
		{"done from nothing", none, done, false},
		{"renewal", leased, leased, true},
		{"takeover", leased, fenced(leased, 8), true},
		{"fence back", leased, fenced(leased, 6), false},
		{"another evaluation", leased, other(leased), false},
		{"stage", leased, staged, true},
		{"stage under another fence", leased, fenced(staged, 8), false},
		{"done without staging", leased, done, false},
		{"leased again after staging", staged, leased, false},
		{"publisher takes over", staged, fenced(staged, 8), true},
		{"publication changes", staged, published(staged, "another"), false},
		{"complete", staged, done, true},
		{"complete with another value", staged, digest(done), false},
		{"staged again after done", done, staged, false},
		{"done with another value", done, digest(done), false},
		{"done under another fence", done, fenced(done, 8), false},
		{"replay end moves on", bounded(done, 1), bounded(done, 2), true},
		{"replay end moves back", bounded(done, 2), bounded(done, 1), false},
		{"permanent becomes bounded", done, bounded(done, 1), false},
		{"clean-up of a bounded done row", bounded(done, 1), none, true},
		{"clean-up of a permanent row", done, none, false},
		{"clean-up of a staged row", bounded(staged, 1), none, false},
		{"clean-up of a leased row", bounded(leased, 1), none, false},
	} {
		err := ledger.CheckEdge(tt.from, tt.to)
		if tt.legal != (err == nil) || err != nil && !errors.Is(err, ledger.ErrIllegalRow) {
			t.Errorf("%s: %v, want legal = %v", tt.name, err, tt.legal)
		}
	}
}

func TestRemovableNeedsBothClocks(t *testing.T) {
	t.Parallel()
	r := legalRows(t)["done bounded"]
	end, _ := r.Lifetime.End()
	for _, tt := range []struct {
		name    string
		row     ledger.Row
		wall    time.Time
		running time.Duration
		want    bool
	}{
		{"both passed", r, end.Add(1), r.RunningEnd + 1, true},
		{"wall at its end", r, end, r.RunningEnd + 1, false},
		{"running time at its end", r, end.Add(1), r.RunningEnd, false},
		{"wall alone, by years", r, end.AddDate(9, 0, 0), r.RunningEnd, false},
		{"leased", legalRows(t)["leased bounded"], end.Add(1), r.RunningEnd + 1, false},
		{"staged", legalRows(t)["staged bounded"], end.Add(1), r.RunningEnd + 1, false},
		{"permanent", legalRows(t)["done"], end.AddDate(9, 0, 0), 1 << 60, false},
	} {
		if got := ledger.Removable(tt.row, tt.wall, tt.running); got != tt.want {
			t.Errorf("%s: Removable = %v, want %v", tt.name, got, tt.want)
		}
	}
}

func FuzzDecodeRow(f *testing.F) {
	for _, r := range legalRows(f) {
		b, err := ledger.AppendRow(nil, r)
		if err != nil {
			f.Fatal(err)
		}
		if len(b) < 4096 {
			f.Add(b)
		}
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := ledger.DecodeRow(b)
		if err != nil {
			if !errors.Is(err, ledger.ErrMalformedRow) || !r.Equal(ledger.Row{}) {
				t.Fatalf("DecodeRow = %v, %v; want the zero row and ErrMalformedRow", r, err)
			}
			return
		}
		again, err := ledger.AppendRow(nil, r)
		if err != nil {
			t.Fatalf("a decoded row can't be encoded: %v", err)
		}
		if !bytes.Equal(again, b) {
			t.Fatalf("not canonical:\n in %x\nout %x", b, again)
		}
	})
}
