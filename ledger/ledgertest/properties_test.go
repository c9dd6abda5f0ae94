package ledgertest

import (
	"fmt"
	"runtime"
	"testing"

	"pgregory.net/rapid"
)

// walkSeeds is how many walks a broken ledger may pass before one fails;
// unseenSeeds how many are tried where none is expected to.
const (
	walkSeeds   = 2000
	unseenSeeds = 20
)

// unseen are broken ledgers that no walk can tell from right ones, with why.
var unseen = map[string]string{
	"capacity not looked at":                    "walks never fill a ledger",
	"full for known rows too":                   "walks never fill a ledger",
	"zero values and other windows taken":       "walks ask for what is valid",
	"no isolation":                              "walks do one thing at a time",
	"clean-up forgets what it closed":           "a ledger may close in parts, so that walks allow both",
	"replay end exclusive":                      "walks never stand on the nanosecond of it",
	"clean-up at the replay end":                "walks never stand on the nanosecond of it",
	"running end dated by the wall clock alone": "walks seldom get there; the suite's rows do",
}

// TestBrokenLedgersLackTheProperties: each broken ledger fails a walk, but
// those that none can notice.
func TestBrokenLedgersLackTheProperties(t *testing.T) {
	t.Parallel()
	for name, broken := range mutants() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			walked := rapid.Custom(func(r *rapid.T) string {
				rapid.Bool().Draw(r, "anything") // a generator must draw
				return walkFails(t, r, memoryHarness(broken))
			})
			why, hidden := unseen[name]
			seeds, seed := walkSeeds, 0
			if hidden {
				seeds = unseenSeeds
			}
			for ; seed < seeds; seed++ {
				if failure := walked.Example(seed); failure != "" {
					t.Logf("seed %d: %s", seed, failure)
					break
				}
			}
			if caught := seed < seeds; caught == hidden {
				t.Errorf("caught %v, by seed %d; hidden %v: %s", caught, seed, hidden, why)
			}
		})
	}
}

// walkFails tells why a walk fails; empty if it doesn't.
func walkFails(tb testing.TB, r *rapid.T, h Harness) (why string) {
	f := &failure{}
	defer func() {
		if p := recover(); p != nil {
			if p != any(f) {
				if e, ok := p.(runtime.Error); ok {
					why = fmt.Sprint("panic: ", e)
					return
				}
				if s, ok := p.(string); ok {
					why = "panic: " + s
					return
				}
				panic(p)
			}
			why = f.why
		}
	}()
	w := newWalker(r, tb, h)
	w.fail = f
	w.walk()
	return ""
}

// A failure keeps a walk's failure to itself.
type failure struct{ why string }

func (*failure) Helper() {}
func (f *failure) Fatalf(format string, args ...any) {
	f.why = fmt.Sprintf(format, args...)
	panic(f)
}
