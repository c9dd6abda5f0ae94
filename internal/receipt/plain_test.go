package receipt

import (
	"encoding/json"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/fencepost/fencepost"
)

// What is written without reflection is what encoding/json writes, byte by
// byte, and what needs escaping is left to it.
func TestPlainEventsAreWrittenAsJSONWritesThem(t *testing.T) {
	t.Parallel()
	tame := rapid.StringMatching(`[a-z0-9 _./:-]{0,20}`)
	wild := rapid.OneOf(tame, rapid.StringMatching(`[ -~]{0,5}`), rapid.String())
	plainOnes, others := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		word, far := tame, int64(1<<32)
		if rapid.Bool().Draw(t, "wild") {
			word, far = wild, 1<<40
		}
		at := time.Unix(rapid.Int64Range(-far, far).Draw(t, "s"), rapid.Int64Range(0, 999_999_999).Draw(t, "ns"))
		e := Event{
			At: at.UTC(), Delivery: fencepost.DeliveryID(word.Draw(t, "delivery")), Kind: Kind(word.Draw(t, "kind")),
			Route: fencepost.RouteName(word.Draw(t, "route")), Anchor: fencepost.AnchorID(word.Draw(t, "anchor")),
			Gate: word.Draw(t, "gate"), Evaluation: word.Draw(t, "evaluation"), Fence: rapid.Uint64().Draw(t, "fence"),
			Attempt: rapid.Int().Draw(t, "attempt"), Reason: fencepost.Reason(word.Draw(t, "reason")),
			Took: time.Duration(rapid.Int64().Draw(t, "took")),
		}
		for range rapid.IntRange(0, 3).Draw(t, "details") {
			e.Details = append(e.Details, Detail{Name: word.Draw(t, "name"), Value: word.Draw(t, "value")})
		}
		got, ok := appendPlain([]byte("before"), e)
		if !ok {
			others++
			return
		}
		plainOnes++
		want, err := json.Marshal(e)
		if err != nil || string(got) != "before"+string(want) {
			t.Fatalf("got  %s\nwant %s, %v", got, want, err)
		}
	})
	if plainOnes == 0 || others == 0 {
		t.Errorf("%d events were plain and %d not: one kind was not tried", plainOnes, others)
	}
}

func BenchmarkAppendLine(b *testing.B) {
	e := Event{
		At: time.Date(2026, 11, 30, 12, 0, 0, 123456789, time.UTC), Delivery: "dlv_aaaaaaaaaaaaaaaaaaaaaaaaaa", Kind: Received,
		Route: "docs", Anchor: "2026-q4", Gate: "docs", Took: 1234567, Details: []Detail{{Name: "body_bytes", Value: "8192"}},
	}
	b.ReportAllocs()
	var line []byte
	for b.Loop() {
		var err error
		if line, err = appendLine(line[:0], e); err != nil {
			b.Fatal(err)
		}
	}
}
