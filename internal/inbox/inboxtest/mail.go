package inboxtest

import (
	"context"
	"encoding/binary"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/inbox"
)

var epoch = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

var headers = fencepost.NewHeaders([]fencepost.Header{
	{Name: "X-Hub-Signature-256", Value: "sha256=0123456789abcdef"},
	{Name: "Content-Type", Value: "application/json"},
})

// mail is a request as a case makes it.
type mail struct {
	id     uint64 // replay identity
	body   string
	at     time.Time // receipt; by the id if zero
	signed time.Time // zero for a permanent lifetime
}

// Verify implements [fencepost.Verifier]: it believes everything.
func (m mail) Verify(fencepost.Headers, []byte, time.Time) (fencepost.Evidence, error) {
	id := binary.BigEndian.AppendUint64(nil, m.id)
	return fencepost.Evidence{
		Anchor: "2026-q4", TrustSet: "acme", SignedAt: m.signed,
		Replay: fencepost.ReplaySigned{Domain: "test", Values: []string{string(id)}},
	}, nil
}

// accepted authenticates a mail.
func (m mail) accepted(t testing.TB) fencepost.AcceptedDelivery {
	t.Helper()
	return Accepted(t, m.id, m.body, m.at, m.signed)
}

// Headers are those of every delivery that [Accepted] makes.
func Headers() fencepost.Headers { return headers }

// Accepted makes a delivery of a replay identity and a body, received at a time
// of its own if at is zero, and of a permanent lifetime if signed is.
func Accepted(t testing.TB, id uint64, body string, at, signed time.Time) fencepost.AcceptedDelivery {
	t.Helper()
	if at.IsZero() {
		at = epoch.Add(time.Duration(id) * time.Second)
	}
	rule := fencepost.RouteRule{
		Route: "docs", TrustSet: "acme", SignedTime: fencepost.SignedTimeNone, Window: fencepost.DefaultReplayWindow,
	}
	if !signed.IsZero() {
		rule.SignedTime = fencepost.SignedTimeRequired
	}
	proof, err := fencepost.Authenticate(fencepost.NewIngressCheck("docs", headers, []byte(body), at), mail{id: id, signed: signed})
	must(t, err)
	d, err := fencepost.Accept(proof, rule, headers, []byte(body))
	must(t, err)
	return d
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func record(t testing.TB, b Box, m mail, want inbox.Outcome) {
	t.Helper()
	got, err := b.Record(t.Context(), m.accepted(t), headers, []byte(m.body))
	if err != nil || got != want {
		t.Errorf("Record(%d) = %v, %v; want %v", m.id, got, err, want)
	}
}

// take hands out the next item, which must be there.
func take(t testing.TB, b Box) (inbox.Item, inbox.Recorded) {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), soon)
	defer stop()
	item, err := b.Next(ctx)
	must(t, err)
	r, err := b.Read(t.Context(), item.ID)
	must(t, err)
	return item, r
}

func readError(t testing.TB, b Box, id inbox.ItemID) error {
	_, err := b.Read(t.Context(), id)
	return err
}

// wantBodies takes and ends as many as it wants, and demands their bodies in
// order and nothing more.
func wantBodies(t testing.TB, b Box, want ...string) {
	t.Helper()
	var got []string
	for range want {
		item, r := take(t, b)
		got = append(got, string(r.Body))
		must(t, b.Done(t.Context(), item.ID))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("handed out (-want +got):\n%s", diff)
	}
	ctx, stop := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer stop()
	if item, err := b.Next(ctx); err == nil {
		t.Errorf("handed out %v, too", item)
	}
}
