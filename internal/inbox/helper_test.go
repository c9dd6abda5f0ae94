package inbox

import (
	"context"
	"encoding/binary"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/durable/crashfs"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(victimDir); dir != "" {
		victimMain(dir)
		return
	}
	goleak.VerifyTestMain(m)
}

var epoch = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

// mail is a request as a test makes it.
type mail struct {
	id     uint64 // replay identity
	body   []byte
	at     time.Time // receipt; epoch if zero
	signed time.Time // zero for a permanent lifetime
}

// accepted authenticates a mail with a verifier that believes everything.
func (m mail) accepted(t tester) fencepost.AcceptedDelivery {
	t.Helper()
	if m.at.IsZero() {
		m.at = epoch.Add(time.Duration(m.id) * time.Second)
	}
	rule := fencepost.RouteRule{
		Route: "docs", TrustSet: "acme", SignedTime: fencepost.SignedTimeNone,
		Window: fencepost.DefaultReplayWindow,
	}
	if !m.signed.IsZero() {
		rule.SignedTime = fencepost.SignedTimeRequired
	}
	check := fencepost.NewIngressCheck("docs", headers, m.body, m.at)
	p, err := fencepost.Authenticate(check, m)
	if err != nil {
		t.Fatal(err)
	}
	d, err := fencepost.Accept(p, rule, headers, m.body)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// Verify implements [fencepost.Verifier].
func (m mail) Verify(fencepost.Headers, []byte, time.Time) (fencepost.Evidence, error) {
	id := binary.BigEndian.AppendUint64(nil, m.id)
	return fencepost.Evidence{
		Anchor: "2026-q4", TrustSet: "acme", SignedAt: m.signed,
		Replay: fencepost.ReplaySigned{Domain: "test", Values: []string{string(id)}},
	}, nil
}

var headers = fencepost.NewHeaders([]fencepost.Header{
	{Name: "X-Hub-Signature-256", Value: "sha256=0123456789abcdef"},
	{Name: "Content-Type", Value: "application/json"},
})

// small bounds that make segments turn over quickly.
var small = Config{
	SegmentBytes: minSegment, MaxBytes: 16 * minSegment, MaxBody: 64 << 10, MinFree: -1,
}

// A tester is what [testing.T] and the one of package rapid have in common.
type tester interface {
	Helper()
	Fatal(args ...any)
	Context() context.Context
}

func must(t tester, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func open(t testing.TB, p *crashfs.Process, cfg Config) *Inbox {
	t.Helper()
	b, err := Open(t.Context(), p, cfg)
	must(t, err)
	return b
}
