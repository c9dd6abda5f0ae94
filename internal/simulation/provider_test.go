package simulation

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/gate"
)

// A provider is a forge in memory: requests, their gate, and what it shows. It
// changes only while its caller holds the token, and at appointed times.
type provider struct {
	sim      *Sim
	requests []request
	base     int // commits of the base branch
	rule     int // revisions of the rule
	results  []result
	limited  time.Duration // no answers before
	nextID   int

	mu       sync.Mutex
	verdicts map[string]gate.Verdict // guarded by mu: by document
}

// A request is a pull request.
type request struct{ head int }

// A result is what the provider shows.
type result struct {
	id       string
	document string
	// from is when lists have it.
	from time.Duration
}

func commitOf(kind byte, request, n int) gate.Commit {
	var c gate.Commit
	c.ID.ObjectID = fencepost.ObjectID{kind, byte(request), byte(n), 1}
	c.Tree.ObjectID = fencepost.ObjectID{kind, byte(request), byte(n), 2}
	return c
}

func (p *provider) headOf(number int64) gate.Commit {
	return commitOf('h', int(number), p.requests[number-1].head)
}

// candidate is the test merge of a head and a base, which its id tells.
func candidate(head, base gate.Commit) gate.Commit {
	c := commitOf('m', 0, 0)
	copy(c.ID.ObjectID[4:], head.ID.ObjectID[:3])
	copy(c.ID.ObjectID[8:], base.ID.ObjectID[:3])
	c.Tree.ObjectID = c.ID.ObjectID
	return c
}

// snapshot is what the gate is now.
func (p *provider) snapshot(s gate.Subject) gate.Snapshot {
	head, base := p.headOf(s.Number), commitOf('b', 0, p.base)
	if s.Head != head.ID {
		return gate.Snapshot{State: fencepost.ReasonSuperseded, Repository: "acme/docs"}
	}
	revision := fencepost.NewEncoder("fencepost.gate-revision/v1").Bytes(head.ID.ObjectID[:]).
		Bytes(base.ID.ObjectID[:]).Int(int64(p.rule)).Int(s.Number).Sum()
	return gate.Snapshot{
		Revision: revision, Repository: "acme/docs", Base: base, Head: head, Candidate: candidate(head, base),
	}
}

// copies lists what is shown of a delivery's evaluation, whether lists have it
// yet or not.
func (p *provider) copies(e fencepost.EvaluationID) []result {
	var of []result
	for _, r := range p.results {
		if p.verdict(r.document).Evaluation == e {
			of = append(of, r)
		}
	}
	return of
}

// verdict reads a document, once.
func (p *provider) verdict(document string) gate.Verdict {
	p.mu.Lock()
	defer p.mu.Unlock()
	v, ok := p.verdicts[document]
	if !ok {
		// A document that a mutant has spoilt is nobody's verdict.
		_ = json.Unmarshal([]byte(document), &v)
		p.verdicts[document] = v
	}
	return v
}

// show publishes a document.
func (p *provider) show(document string, lag time.Duration) string {
	p.nextID++
	id := fmt.Sprint(p.nextID)
	p.results = append(p.results, result{id: id, document: document, from: p.sim.now() + lag})
	p.sim.note(event{kind: evShown, slot: -1, delivery: p.sim.deliveryOf(p.verdict(document)), text: document})
	return id
}

// A lane is the provider as one process of one gate asks it.
type lane struct {
	p *process
	// first is the first answer of each request, for a mutant.
	first map[gate.Subject]gate.Snapshot
}

var _ gate.Lane = (*lane)(nil)

// Admit implements [gate.Lane]: a body is "number head salt".
func (l *lane) Admit(_ fencepost.Headers, body []byte) (gate.Subject, error) {
	return l.p.sim.subjectOf(string(body))
}

func providerError(why fencepost.Reason, err error) error {
	return &fencepost.Error{Op: "provider", Reason: why, Err: err}
}

var errServer = errors.New("the provider says 502")

// ask takes the token for a call and tells what comes of it: an error without
// any effect, or nil.
func (l *lane) ask(ctx context.Context, op string, s gate.Subject, delivery int) (order, error) {
	_ = s
	o, err := l.p.take(ctx, call{slot: l.p.slot, delivery: delivery, op: op})
	if err != nil {
		return o, providerError(fencepost.ReasonUnavailable, err)
	}
	pr := l.p.sim.provider
	switch {
	case o.fault.kind == RateLimit:
		pr.limited = pr.sim.now() + time.Duration(1+o.draw%20)*time.Second
	case o.fault.kind == ProviderError:
		return o, providerError(fencepost.ReasonProvider, errServer)
	}
	if left := pr.limited - pr.sim.now(); left > 0 {
		return o, &gate.WaitError{Until: l.p.now().Add(left), Err: providerError(fencepost.ReasonRateLimited, errServer)}
	}
	return o, nil
}

// late makes an answer that is late wait, and tells whether anybody still
// waits for it.
func (l *lane) late(ctx context.Context, o order) error {
	if o.fault.kind != AnswerLate {
		return nil
	}
	return l.p.sleep(ctx, time.Duration(o.draw%12_000)*time.Millisecond+7)
}

// Refresh implements [gate.Lane].
func (l *lane) Refresh(ctx context.Context, s gate.Subject) (gate.Snapshot, error) {
	sim := l.p.sim
	if before, ok := l.first[s]; ok && sim.mutant == PublishesWithoutLooking && sim.phase(l.p.slot, sim.workingOn(l.p, s)) >= Staging {
		return before, nil
	}
	d := sim.workingOn(l.p, s)
	o, err := l.ask(ctx, "refresh", s, d)
	if err != nil {
		return gate.Snapshot{}, err
	}
	sent := sim.steps
	snapshot := sim.provider.snapshot(s)
	if err := l.late(ctx, o); err != nil {
		return gate.Snapshot{}, providerError(fencepost.ReasonProvider, err)
	}
	if o.fault.kind == AnswerLost {
		return gate.Snapshot{}, providerError(fencepost.ReasonProvider, errServer)
	}
	if l.first[s].Repository == "" {
		l.first[s] = snapshot
	}
	sim.note(event{kind: evRefreshed, slot: l.p.slot, delivery: d, sent: sent, revision: snapshot.Revision})
	return snapshot, nil
}

// Source implements [gate.Lane].
func (l *lane) Source(gate.Snapshot) (gate.Source, error) {
	return gate.Source{URL: "https://forge.invalid/acme/docs.git"}, nil
}

// Compose implements [gate.Lane].
func (l *lane) Compose(v gate.Verdict) ([]byte, error) { return json.Marshal(v) }

// Inspect implements [gate.Lane].
func (l *lane) Inspect(document []byte) (gate.Verdict, error) {
	v := l.p.sim.provider.verdict(string(document))
	if v.Evaluation.IsZero() {
		return v, fencepost.ErrMalformed
	}
	return v, nil
}

// Find implements [gate.Lane].
func (l *lane) Find(ctx context.Context, document []byte) (gate.Published, bool, error) {
	v, err := l.Inspect(document)
	if err != nil {
		return gate.Published{}, false, err
	}
	sim := l.p.sim
	o, err := l.ask(ctx, "find", v.Subject, sim.deliveryOf(v))
	if err != nil {
		return gate.Published{}, false, err
	}
	var listed []result
	for _, r := range sim.provider.copies(v.Evaluation) {
		if r.from <= sim.now() && sim.mutant != NeverFinds {
			listed = append(listed, r)
		}
	}
	if err := l.late(ctx, o); err != nil || o.fault.kind == AnswerLost {
		return gate.Published{}, false, providerError(fencepost.ReasonProvider, errServer)
	}
	switch {
	case len(listed) == 0:
		return gate.Published{}, false, nil
	case len(listed) > 1 || listed[0].document != string(document):
		return gate.Published{}, false, providerError(fencepost.ReasonPublishConflict, errors.New("shown twice, or otherwise"))
	}
	return gate.Published{ID: listed[0].id}, true, nil
}

// Create implements [gate.Lane].
func (l *lane) Create(ctx context.Context, document []byte) (gate.Published, error) {
	v, err := l.Inspect(document)
	if err != nil {
		return gate.Published{}, err
	}
	sim := l.p.sim
	if sim.mutant == NeverSends {
		return gate.Published{ID: "0"}, nil
	}
	o, err := l.ask(ctx, "create", v.Subject, sim.deliveryOf(v))
	if err != nil {
		return gate.Published{}, err
	}
	if sim.mutant == PublishesOtherBytes && l.p.life > 0 {
		document = append(document, ' ')
	}
	text := string(document)
	sim.note(event{kind: evSent, slot: l.p.slot, delivery: sim.deliveryOf(v), text: text, revision: v.Revision, eval: v.Evaluation})
	unknown := fmt.Errorf("%w: %w", gate.ErrUnknown, providerError(fencepost.ReasonProvider, errServer))
	var lag time.Duration
	switch o.fault.kind {
	case EffectLate:
		// Some come so late that nobody looks for them any more: then it is
		// shown twice, and fails closed.
		d := time.Duration(o.draw%3000) * time.Millisecond
		if o.draw%8 == 0 {
			d *= 20
			sim.deliveries[sim.deliveryOf(v)].late = true
		}
		sim.at(sim.now()+d, func() { sim.provider.show(text, 0) })
		return gate.Published{}, unknown
	case AnswerLost:
		if o.draw%3 == 0 {
			if sim.mutant == TakesUnknownForDone {
				return gate.Published{ID: "0"}, nil
			}
			return gate.Published{}, unknown // and so was the request
		}
	case Lag:
		lag = time.Duration(o.draw%3000) * time.Millisecond
	}
	id := sim.provider.show(text, lag)
	if err := l.late(ctx, o); err != nil || o.fault.kind == AnswerLost {
		return gate.Published{}, unknown
	}
	return gate.Published{ID: id}, nil
}
