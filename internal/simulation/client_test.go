package simulation

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/gate"
	"github.com/fencepost/fencepost/internal/inbox"
	"github.com/fencepost/fencepost/ledger"
)

// rule is the route's.
var rule = fencepost.RouteRule{
	Route: "docs", TrustSet: "acme", SignedTime: fencepost.SignedTimeNone, Window: fencepost.DefaultReplayWindow,
}

// trust believes a signature that is the body's SHA-256.
type trust struct{}

// Trusts implements [gate.Trust].
func (trust) Trusts(fencepost.AnchorID) bool { return true }

// Verify implements [gate.Trust].
func (trust) Verify(h fencepost.Headers, body []byte, _ time.Time) (fencepost.Evidence, error) {
	signature, _ := h.Only("x-signature")
	if signature != sign(body) {
		return fencepost.Evidence{}, fencepost.ErrUnauthenticated
	}
	return fencepost.Evidence{Anchor: "a", TrustSet: "acme", Replay: fencepost.ReplayBody{}}, nil
}

func sign(body []byte) string {
	sum := sha256.Sum256(body)
	return hex.EncodeToString(sum[:])
}

// A delivery is one signed body, however often it is sent.
type delivery struct {
	body    string
	headers fencepost.Headers
	key     fencepost.DeliveryKey
	id      fencepost.DeliveryID
	subject gate.Subject
	// late is set when a write of its result took effect so late that nobody
	// looked for it any more.
	late bool
}

// newDelivery adds a delivery for the head that a request has now.
func (s *Sim) newDelivery(number int64) int {
	head := s.provider.headOf(number).ID
	body := fmt.Sprintf("%d %s %d", number, head, len(s.deliveries))
	d := &delivery{
		body: body, subject: gate.Subject{Number: number, Head: head, BaseRef: "refs/heads/main"},
		headers: fencepost.NewHeaders([]fencepost.Header{{Name: "x-signature", Value: sign([]byte(body))}}),
	}
	accepted, err := d.receive(time.Unix(1, 0))
	if err != nil {
		s.broken("harness", "%v", err)
		return -1
	}
	d.key, d.id = accepted.Key(), accepted.ID()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.numbers[d.key], s.ids[d.id], s.subjects[body] = len(s.deliveries), len(s.deliveries), d.subject
	s.deliveries = append(s.deliveries, d)
	s.oracles = append(s.oracles, &oracle{attempts: map[int]*attempt{}, announced: map[int]int{}})
	return len(s.deliveries) - 1
}

// receive authenticates the delivery, as the edge does.
func (d *delivery) receive(at time.Time) (fencepost.AcceptedDelivery, error) {
	check := fencepost.NewIngressCheck(rule.Route, d.headers, []byte(d.body), at)
	return fencepost.Receive(check, trust{}, rule)
}

// send has a sender send a delivery after a while, and again until it is told
// that it is recorded.
func (s *Sim) send(n int, after time.Duration, first int) {
	s.mu.Lock()
	s.senders++
	s.sent++
	sender, d := s.sent, s.deliveries[n]
	s.mu.Unlock()
	go func() {
		defer func() {
			s.mu.Lock()
			s.senders--
			s.mu.Unlock()
		}()
		pause := time.NewTimer(after)
		defer pause.Stop()
		for try := first; ; try++ {
			select {
			case <-pause.C:
			case <-s.over:
				return
			}
			if p := s.alive(try); p != nil && p.receive(n, d, sender) {
				return
			}
			pause.Reset(time.Duration(500+mix(s.seed, uint64(n), uint64(try))%2000) * time.Millisecond)
		}
	}()
}

// receive is one request at one process. It reports whether the sender was
// told that it is recorded.
func (p *process) receive(n int, d *delivery, sender int) bool {
	at := func(op string) call { return call{slot: p.slot, delivery: n, op: op, off: int64(sender)} }
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	accepted, err := d.receive(p.now())
	if err != nil {
		return false
	}
	if _, err := p.take(ctx, at("record")); err != nil {
		return false
	}
	if p.sim.mutant == AcksBeforeSync {
		if _, err := p.take(ctx, at("answer")); err != nil {
			return false
		}
		p.sim.note(event{kind: evAcked, slot: p.slot, delivery: n})
	}
	recorded, err := p.recordIn(ctx, accepted, d, at)
	if err != nil || !recorded {
		return p.sim.mutant == AcksBeforeSync
	}
	if _, err := p.take(ctx, at("answer")); err != nil {
		return false
	}
	p.sim.note(event{kind: evAcked, slot: p.slot, delivery: n})
	return true
}

// recordIn is what package app's recorder does.
func (p *process) recordIn(ctx context.Context, a fencepost.AcceptedDelivery, d *delivery, at func(op string) call) (bool, error) {
	if p.ledger.MayKnow(a.Key()) {
		known, err := p.ledger.Repeat(ctx, a)
		if err != nil {
			return false, err
		}
		if known == ledger.RepeatConflict {
			return false, errors.New("conflict")
		}
		if known == ledger.RepeatKnown {
			row, ok, err := p.ledger.Lookup(ctx, a.Key())
			if err != nil {
				return false, err
			}
			if ok && row.State == ledger.Done {
				p.pool.Wake(a.Key())
				return true, nil
			}
		}
	}
	// Several may have been answered under one token, and go on from here in
	// some order.
	if _, err := p.take(ctx, at("inbox")); err != nil {
		return false, err
	}
	outcome, err := p.inbox.Record(ctx, a, d.headers, []byte(d.body))
	if err != nil || outcome == inbox.Conflict {
		return false, err
	}
	if outcome == inbox.Replayed {
		p.pool.Wake(a.Key())
	}
	return true, nil
}
