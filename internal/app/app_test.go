package app

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/durable"
	"github.com/fencepost/fencepost/internal/receipt"
	"github.com/fencepost/fencepost/webhook"
)

// post sends a signed delivery, with more headers, and returns the answer.
func (s *stage) post(t *testing.T, body []byte, more http.Header) (status int, outcome, reason string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+s.listener.Addr().String()+"/hooks/docs", bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	mac := hmac.New(sha256.New, []byte(hookSecret))
	mac.Write(body)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("X-Hub-Signature-256", "sha256="+hex.EncodeToString(mac.Sum(nil)))
	req.Header.Set("X-GitHub-Event", "pull_request")
	req.Header.Set("X-GitHub-Delivery", "5b2a")
	for name, values := range more {
		req.Header[name] = append(req.Header[name], values...)
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var answer struct{ Outcome, Reason string }
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, answer.Outcome, answer.Reason
}

// DESIGN §4: more than one value for a signature, delivery or event header is
// ambiguous and refused as unauthenticated.
func TestADoubledHeaderIsUnauthenticated(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.run(t)
	body := append(event(2<<10, 1), '}')
	for _, name := range []string{"X-Hub-Signature-256", "X-Github-Event", "X-Github-Delivery"} {
		status, outcome, reason := s.post(t, body, http.Header{name: {"again"}})
		if status != http.StatusUnauthorized || outcome != "rejected" || reason != string(fencepost.ReasonUnauthenticated) {
			t.Errorf("%s twice: %d %s %s, want 401 rejected unauthenticated", name, status, outcome, reason)
		}
	}
	if status, outcome, _ := s.post(t, body, nil); status != http.StatusAccepted {
		t.Errorf("each of them once: %d %s, want 202 accepted", status, outcome)
	}
}

// Whoever sends to a route that does not exist, or with a wrong signature,
// learns nothing from how long the answer takes: also not after the sets
// have changed.
func TestEveryRefusalCostsTheSameAfterAReload(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	h := fencepost.NewHeaders([]fencepost.Header{{Name: "x-hub-signature-256", Value: "sha256=" + strings.Repeat("0", 64)}})
	cost := func(v fencepost.Verifier) int {
		_, err := v.Verify(h, []byte("{}"), time.Now())
		refusal, ok := errors.AsType[*webhook.Refusal](err)
		if !ok {
			t.Fatalf("refused with %v, want a Refusal", err)
		}
		return refusal.MACs
	}
	const one = `    - {id: one, secret: "file:secret"}` + "\n"
	more := func(n int) string { return fmt.Sprintf("    - {id: more%d, secret: \"file:more%[1]d\"}\n", n) }
	for n, from := 1, one; n <= 3; n++ {
		if n > 1 {
			s.write(t, fmt.Sprintf("more%d", n), fmt.Sprintf("another secret of this test, %d", n))
			to := from + more(n)
			if err := s.Reload(t.Context(), s.rewrite(t, from, to)); err != nil {
				t.Fatal(err)
			}
			from = to
		}
		if known, unknown := cost(s.trust["acme"]), cost(s.decoy); known != n || unknown != n {
			t.Errorf("with %d keys a refusal costs %d MACs, and %d without a route, want %d for both", n, known, unknown, n)
		}
	}
	if err := s.Reload(t.Context(), s.rewrite(t, more(3), "")); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]int{2, 2}, []int{cost(s.trust["acme"]), cost(s.decoy)}); diff != "" {
		t.Errorf("MACs with a key less (-want +got):\n%s", diff)
	}
}

// A failed sync is final (invariant 8): what is written after it could not be
// relied on, so the controller ends, and says why.
func TestAFailedSyncEndsTheController(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	ended := s.run(t)
	s.root.Poison("sync", errors.New("input/output error"))
	select {
	case err := <-ended:
		if !errors.Is(err, durable.ErrPoisoned) {
			t.Errorf("ended with %v, want the failed sync", err)
		}
	case <-time.After(30 * time.Second):
		t.Fatal("it goes on")
	}
	if log := s.log.String(); !strings.Contains(log, "alert raised") || !strings.Contains(log, "reason=ledger_corrupt") {
		t.Errorf("the log tells of no alert:\n%s", log)
	}
}

// Many who look at the operations page cost as much as one.
func TestRecentDeliveriesAreReadOncePerMoment(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	now := time.Now()
	s.Now = func() time.Time { return now }
	write := func(n byte) {
		err := s.receipts.Append(t.Context(), receipt.Event{
			At: now, Kind: receipt.Received, Delivery: fencepost.DeliveryKey{0: n}.ID(), Gate: "docs",
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	ask := func(limit, want int) {
		t.Helper()
		rows, err := s.RecentDeliveries(t.Context(), limit)
		if err != nil || len(rows) != want {
			t.Errorf("%d rows, %v, want %d", len(rows), err, want)
		}
	}
	ask(10, 0)
	write(1)
	write(2)
	// What it was a moment ago; but not to another question.
	ask(10, 0)
	ask(1, 1)
	now = now.Add(keepRecent - 1)
	ask(1, 1)
	now = now.Add(1)
	ask(10, 2)
	write(3)
	now = now.Add(keepRecent)
	ask(10, 3)
}
