package gate_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/gitfetch"
	"github.com/fencepost/fencepost/internal/gate"
)

// A provider is a forge in a few lines: one request, its gate, and the results
// it shows.
type provider struct {
	mu sync.Mutex
	// Guarded by mu:
	head, base, candidate gate.Commit
	rule                  int // changes the revision and nothing else
	state                 fencepost.Reason
	results               []gate.Verdict
	creates, refreshes    int
	foreign               int // results under our key that we did not make
	hide                  int // lookups that still leave out what is there
	// What goes wrong, by call; called with mu held, the number from 1.
	onRefresh func(n int) error
	onCreate  func(n int) (before, after error)
	onFind    func() error
	onFetch   func(r gitfetch.Request) error
	onRemove  func() error
	onRetract func(n int) error
	retracts  int
	inRefresh func(ctx context.Context)
	anyHead   bool // every head is its request's
	unwanted  bool // no event is let in any more
	// far is how long each call takes. Not guarded: set before the start.
	far     time.Duration
	altered bool // git's parents differ from the API's
}

func newProvider() *provider {
	return &provider{head: commit("11"), base: commit("22"), candidate: commit("33")}
}

// remove is the removal of a checkout.
func (p *provider) remove() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.onRemove == nil {
		return nil
	}
	return p.onRemove()
}

func (p *provider) shown() []gate.Verdict {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.results)
}

func (p *provider) writes() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.creates
}

func (p *provider) set(change func(p *provider)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change(p)
}

// Admit reads "number head".
func (p *provider) Admit(_ fencepost.Headers, body []byte) (gate.Subject, error) {
	fields := strings.Fields(string(body))
	var number int64
	if len(fields) < 2 {
		return gate.Subject{}, &fencepost.Error{Op: "admit", Reason: fencepost.ReasonMalformed}
	}
	p.mu.Lock()
	unwanted := p.unwanted
	p.mu.Unlock()
	if unwanted || fields[1] == "unwanted" {
		return gate.Subject{}, &fencepost.Error{Op: "admit", Reason: fencepost.ReasonEventNotHandled}
	}
	_, err := fmt.Sscan(fields[0], &number)
	head, err2 := fencepost.ParseCommitID(fields[1])
	return gate.Subject{Number: number, Head: head, BaseRef: "refs/heads/main"}, errors.Join(err, err2)
}

func (p *provider) Refresh(ctx context.Context, s gate.Subject) (gate.Snapshot, error) {
	time.Sleep(p.far)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refreshes++
	if p.inRefresh != nil {
		p.inRefresh(ctx)
	}
	if p.onRefresh != nil {
		if err := p.onRefresh(p.refreshes); err != nil {
			return gate.Snapshot{}, err
		}
	}
	head, candidate := p.head, p.candidate
	if p.anyHead {
		head = gate.Commit{ID: s.Head, Tree: fencepost.TreeID{ObjectID: s.Head.ObjectID}}
		candidate.ID = mergeOf(s.Head)
		candidate.Tree = fencepost.TreeID{ObjectID: candidate.ID.ObjectID}
	}
	switch {
	case s.Head != head.ID:
		return gate.Snapshot{State: fencepost.ReasonSuperseded, Repository: "acme/docs"}, nil
	case p.state == fencepost.ReasonClosed, p.state == fencepost.ReasonDraft:
		return gate.Snapshot{State: p.state, Repository: "acme/docs"}, nil
	}
	e := fencepost.NewEncoder("fencepost.gate-revision/v1").Bytes(head.ID.ObjectID[:]).
		Bytes(p.base.ID.ObjectID[:]).Int(int64(p.rule)).Text(string(p.state)).Int(s.Number)
	return gate.Snapshot{
		State: p.state, Revision: e.Sum(), Repository: "acme/docs", Base: p.base, Head: head, Candidate: candidate,
		Facts: []gate.Fact{
			{Name: "request.state", Expected: "open", Observed: "open"},
			{Name: "rule", Expected: "present", Observed: presence(p.state != fencepost.ReasonGateUnproven)},
		},
	}, nil
}

func presence(is bool) string {
	if is {
		return "present"
	}
	return "absent"
}

// mergeOf is the test merge of a head where every head has one, and the other
// way round.
func mergeOf(id fencepost.CommitID) fencepost.CommitID {
	id.ObjectID[0] ^= 0x80
	return id
}

func (p *provider) Source(gate.Snapshot) (gate.Source, error) {
	return gate.Source{URL: "https://forge.invalid/acme/docs.git"}, nil
}

func (p *provider) Compose(v gate.Verdict) ([]byte, error) { return json.Marshal(v) }

func (p *provider) Inspect(document []byte) (v gate.Verdict, err error) {
	return v, json.Unmarshal(document, &v)
}

func (p *provider) Find(_ context.Context, document []byte) (gate.Published, bool, error) {
	time.Sleep(p.far)
	v, err := p.Inspect(document)
	if err != nil {
		return gate.Published{}, false, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.onFind != nil {
		if err := p.onFind(); err != nil {
			return gate.Published{}, false, err
		}
	}
	if p.hide > 0 {
		p.hide--
		return gate.Published{}, false, nil
	}
	n := p.foreign
	for _, r := range p.results {
		if r.Evaluation == v.Evaluation {
			n++
		}
	}
	switch n {
	case 0:
		return gate.Published{}, false, nil
	case 1:
		return gate.Published{ID: v.Evaluation.String()}, true, nil
	}
	return gate.Published{}, false, &fencepost.Error{Op: "find", Reason: fencepost.ReasonPublishConflict}
}

func (p *provider) Create(_ context.Context, document []byte) (gate.Published, error) {
	time.Sleep(p.far)
	v, err := p.Inspect(document)
	if err != nil {
		return gate.Published{}, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.creates++
	var after error
	if p.onCreate != nil {
		var before error
		if before, after = p.onCreate(p.creates); before != nil {
			return gate.Published{}, before
		}
	}
	p.results = append(p.results, v)
	return gate.Published{ID: v.Evaluation.String()}, after
}

// Retract implements [gate.Retracter].
func (p *provider) Retract(_ context.Context, document []byte) error {
	if _, err := p.Inspect(document); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.retracts++
	if p.onRetract != nil {
		return p.onRetract(p.retracts)
	}
	return nil
}

// A mortalLane is the provider as one process reaches it.
type mortalLane struct {
	fate *mortality
	*provider
}

func (l mortalLane) Refresh(ctx context.Context, s gate.Subject) (gate.Snapshot, error) {
	return call(l.fate, "refresh", func() (gate.Snapshot, error) { return l.provider.Refresh(ctx, s) })
}

func (l mortalLane) Find(ctx context.Context, d []byte) (gate.Published, bool, error) {
	type answer struct {
		p  gate.Published
		ok bool
	}
	a, err := call(l.fate, "find", func() (answer, error) {
		p, ok, err := l.provider.Find(ctx, d)
		return answer{p, ok}, err
	})
	return a.p, a.ok, err
}

func (l mortalLane) Create(ctx context.Context, d []byte) (gate.Published, error) {
	return call(l.fate, "create", func() (gate.Published, error) { return l.provider.Create(ctx, d) })
}
