// Package ledgertest is the conformance suite of [fencepost.Ledger]: one
// subtest per row of DESIGN §5's table, with what clocks, restarts, clean-up,
// capacity and concurrency must not change about it.
//
// An implementation runs it from a test of its own:
//
//	func TestConformance(t *testing.T) {
//		ledgertest.Run(t, func(tb testing.TB) ledgertest.Harness {
//			clock := ledgertest.NewClock()
//			l := open(tb, clock)
//			return ledgertest.Harness{Ledger: l, Clock: clock, …}
//		})
//	}
//
// [Properties] takes the same harness and walks the ledger at random, against
// [ledger.Decide].
//
// [Memory] is a small ledger that passes it, for tests of what uses one; the
// package's own tests break it in many ways and see the suite notice each.
package ledgertest
