package ledger_test

import (
	"errors"
	"testing"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/ledger"
)

// marked are the legal rows, each of a trust set.
func marked(tb testing.TB) map[string]ledger.Row {
	rows := legalRows(tb)
	for name, r := range rows {
		r.Trust = ledger.MarkOf("acme")
		rows[name] = r
	}
	return rows
}

func TestARowWithATrustMarkIsOfVersionTwo(t *testing.T) {
	t.Parallel()
	for name, r := range marked(t) {
		b, err := ledger.AppendRow(nil, r)
		if err != nil || b[0] != 2 || len(b) != ledger.EncodedLen(r) || len(b) > ledger.MaxRowBytes {
			t.Fatalf("%s: version %d, %d bytes, %v; want version 2, EncodedLen %d", name, b[0], len(b), err, ledger.EncodedLen(r))
		}
		if got, err := ledger.DecodeRow(b); err != nil || !got.Equal(r) || got.Trust != r.Trust {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
		clear(b[100:108])
		if _, err := ledger.DecodeRow(b); !errors.Is(err, ledger.ErrMalformedRow) {
			t.Errorf("%s with a mark of zeros: %v, want ErrMalformedRow: one row has one encoding", name, err)
		}
	}
	for name, r := range legalRows(t) {
		if b, err := ledger.AppendRow(nil, r); err != nil || b[0] != 1 {
			t.Errorf("%s without a mark: version %d, %v; want 1", name, b[0], err)
		}
	}
}

func TestTheTrustMarkOfARowStays(t *testing.T) {
	t.Parallel()
	from := marked(t)["leased"]
	to := from
	to.Trust = ledger.MarkOf("another")
	if err := ledger.CheckEdge(from, to); !errors.Is(err, ledger.ErrIllegalRow) {
		t.Errorf("edge to another mark: %v, want ErrIllegalRow", err)
	}
	if ledger.MarkOf("acme") == ledger.MarkOf("another") || !ledger.MarkOf("").IsZero() {
		t.Error("marks do not tell sets apart")
	}
}

func TestAFirstClaimMarksTheRowUnlessItsSetIsRetired(t *testing.T) {
	t.Parallel()
	x := newTable(t)
	fresh := ledger.Fresh{Fence: fence(t, 9), Evaluation: x.freshEval}
	next, a := ledger.Decide(ledger.Row{}, ledger.ClaimRequest{Delivery: x.d}, now, fresh)
	if _, ok := a.Claim.(fencepost.Acquired); !ok || next.Trust != ledger.MarkOf("test") {
		t.Fatalf("claim = %T, mark %s; want Acquired and that of the delivery's set", a.Claim, next.Trust)
	}
	at := now
	at.Retired = true
	if none, a := ledger.Decide(ledger.Row{}, ledger.ClaimRequest{Delivery: x.d}, at, fresh); a.Claim != fencepost.Claim(fencepost.Expired{}) || none.State != ledger.Unclaimed {
		t.Errorf("first claim of a retired set = %T, want Expired", a.Claim)
	}
	// What is known goes on.
	at.Now.At += 2 * at.Lease
	if _, a := ledger.Decide(next, ledger.ClaimRequest{Delivery: x.d}, at, fresh); a.Claim == fencepost.Claim(fencepost.Expired{}) {
		t.Error("a known row of a retired set is Expired")
	}
}

func TestWhatMayBeRetired(t *testing.T) {
	t.Parallel()
	rows, mark := marked(t), ledger.MarkOf("acme")
	for name, r := range rows {
		wantRetirable := name == "done"
		wantHolds := name == "leased" || name == "staged" || name == "staged none" || name == "staged largest"
		if got := ledger.Retirable(r, mark); got != wantRetirable {
			t.Errorf("Retirable(%s) = %v", name, got)
		}
		if got := ledger.Holds(r, mark); got != wantHolds {
			t.Errorf("Holds(%s) = %v", name, got)
		}
		if other := ledger.MarkOf("other"); ledger.Retirable(r, other) || ledger.Holds(r, other) {
			t.Errorf("%s is of another set", name)
		}
		r.Trust = ledger.TrustMark{}
		if ledger.Retirable(r, ledger.TrustMark{}) || ledger.Holds(r, ledger.TrustMark{}) {
			t.Errorf("%s: a row of no set can be retired", name)
		}
	}
}
