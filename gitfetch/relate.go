package gitfetch

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/gitfetch/internal/object"
	"github.com/fencepost/fencepost/gitfetch/internal/pack"
	"github.com/fencepost/fencepost/gitfetch/internal/pktline"
)

// A Relation is how one commit stands to another. The zero Relation is none.
type Relation uint8

// The ways to stand.
const (
	// RelationSame: they are one.
	RelationSame Relation = iota + 1
	// RelationAhead: the head contains the other.
	RelationAhead
	// RelationBehind: the other contains the head.
	RelationBehind
	// RelationApart: neither contains the other.
	RelationApart
	// RelationUnknown: it could not be told; see [Related.Doubt].
	RelationUnknown
)

// String returns "same", "ahead", "behind", "apart" or "unknown".
func (r Relation) String() string {
	return words{"same", "ahead", "behind", "apart", "unknown"}.text(uint8(r))
}

// A Doubt is why a relation is unknown.
type Doubt string

// The doubts.
const (
	// DoubtGone: the server has the other commit no more.
	DoubtGone Doubt = "gone"
	// DoubtBudget: it would take more commits, or bytes, than there may be.
	DoubtBudget Doubt = "budget"
)

// Related is what [Relate] found.
type Related struct {
	Relation Relation
	// Doubt is set where the relation is unknown.
	Doubt Doubt
	// Commits received and hashed, each as often as it came.
	Commits int64
	// WireBytes is what came over the network.
	WireBytes int64
}

// relateBytes bounds what all commits that Relate or Commits receives at a
// time come to: they are in memory.
const relateBytes = 32 << 20

// relateDepths are how many commits deep Relate looks, one after the other.
func relateDepths() []int { return []int{64, 1024, 16_384} }

// Relate says how head stands to other, by commits alone, each of which hashes
// to its id. That one contains the other is proven by a chain of parents from
// the one to the other. That neither does is the server's word: it may hide a
// chain, and can't make one. It looks at most 16,384 commits deep, at as many
// as 32 MiB and [Budgets] hold; beyond that, the relation is unknown and no
// error. That head is not on the server is one ([ErrNotOurRef]).
//
// A server that can't leave trees and files out sends those that differ too,
// which the same bounds hold for. The request's Commit, Dir, Policy, Sync,
// Select and Have are not looked at.
func Relate(ctx context.Context, req Request, head, other fencepost.CommitID) (Related, error) {
	const op = "gitfetch.relate"
	t, err := req.check()
	if err == nil && (head.IsZero() || other.IsZero()) {
		err = fmt.Errorf("%w: commit: must be set", ErrRequest)
	}
	if err != nil {
		return Related{}, sealed(op, err)
	}
	if head == other {
		return Related{Relation: RelationSame}, nil
	}
	ctx, c, stop, err := converseAlone(ctx, t)
	if err != nil {
		return Related{}, sealed(op, err)
	}
	defer stop()
	r := &relater{c: c, head: side{tip: head, other: other}, other: side{tip: other, other: head}}
	relation, err := r.relate(ctx)
	found := Related{Relation: relation, Doubt: r.doubt, Commits: r.commits, WireBytes: c.wire}
	if err != nil {
		return Related{}, sealed(op, causeOf(ctx, err))
	}
	return found, nil
}

// A relater asks for what each of two commits has that the other has not.
type relater struct {
	c           *client
	head, other side
	doubt       Doubt
	filter      int // of filters, the first that the server took
	commits     int64
	inflated    int64
	// each, where set, is told of every commit that is received.
	each func(fencepost.CommitID, object.CommitFacts)
}

// A side is one of the two, as far as it was received.
type side struct {
	tip, other fencepost.CommitID
	parents    map[fencepost.CommitID][]fencepost.CommitID
	cut        map[fencepost.CommitID]bool
	done       bool // there is no more to ask for
}

func (r *relater) relate(ctx context.Context) (Relation, error) {
	for _, depth := range relateDepths() {
		for _, s := range []*side{&r.head, &r.other} {
			if s.done {
				continue
			}
			contains, err := r.look(ctx, s, depth)
			if err != nil {
				return r.orDoubt(err, s == &r.other)
			}
			switch {
			case contains && s == &r.head:
				return RelationAhead, nil
			case contains:
				return RelationBehind, nil
			}
		}
		if r.head.done && r.other.done {
			if !r.head.present() || !r.other.present() {
				return 0, fmt.Errorf("%w: server says that one commit contains the other, and does not show it", ErrProtocol)
			}
			return RelationApart, nil
		}
	}
	r.doubt = DoubtBudget
	return RelationUnknown, nil
}

// orDoubt takes an error for no answer where it is none of the server's.
func (r *relater) orDoubt(err error, ofOther bool) (Relation, error) {
	if errors.Is(err, ErrNotOurRef) && ofOther {
		r.doubt = DoubtGone
		return RelationUnknown, nil
	}
	if budget, ok := errors.AsType[*BudgetError](translate(err)); ok {
		switch budget.Budget {
		case BudgetConnect, BudgetIdle, BudgetTotal, BudgetRedirects:
			return 0, err
		}
		r.doubt = DoubtBudget
		return RelationUnknown, nil
	}
	return 0, err
}

// present reports whether the server sent the tip itself: it does not where it
// takes the tip for a part of the other's history.
func (s *side) present() bool { _, ok := s.parents[s.tip]; return ok }

// look receives a side down to a depth and walks through it.
func (r *relater) look(ctx context.Context, s *side, depth int) (contains bool, err error) {
	if err := r.receive(ctx, s, depth); err != nil {
		return false, err
	}
	s.done = true
	seen := map[fencepost.CommitID]bool{s.tip: true}
	for todo := []fencepost.CommitID{s.tip}; len(todo) > 0; {
		at := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		parents, here := s.parents[at]
		if here && s.cut[at] && len(parents) > 0 {
			s.done = false
		}
		for _, p := range parents {
			if p == s.other {
				return true, nil
			}
			if !seen[p] {
				seen[p] = true
				todo = append(todo, p)
			}
		}
	}
	return false, nil
}

func (r *relater) receive(ctx context.Context, s *side, depth int) error {
	for {
		source, more, err := r.ask(ctx, s, depth)
		if err != nil {
			remote, ok := errors.AsType[*RemoteError](err)
			if more && (errors.Is(err, ErrRejected) || ok && !remote.notOurRef) {
				r.filter++ // it may take another one, or none
				continue
			}
			return err
		}
		return r.read(ctx, source, s)
	}
}

// filters are what is tried, one after the other: servers may take some only.
func filters() []string { return []string{"filter tree:0", "filter blob:none", ""} }

// ask sends one request. more says that another filter is left to be tried.
func (r *relater) ask(ctx context.Context, s *side, depth int) (source *packSource, more bool, err error) {
	err = r.c.converse(ctx, func(caps capabilities) error {
		if !caps.has("fetch", "shallow") {
			return ErrUnsupported
		}
		last := len(filters()) - 1
		if !caps.has("fetch", "filter") {
			r.filter = last
		}
		more = r.filter < last
		args := []string{"ofs-delta", "no-progress", fmt.Sprint("deepen ", depth)}
		if f := filters()[r.filter]; f != "" {
			args = append(args, f)
		}
		args = append(args, "want "+s.tip.String())
		if !s.other.IsZero() {
			args = append(args, "have "+s.other.String())
		}
		args = append(args, "done")
		a, err := r.c.fetchCommand(ctx, caps, args)
		if err != nil {
			return err
		}
		s.cut = make(map[fencepost.CommitID]bool)
		source, err = openWith(a, func(a *answer) (*packSource, error) { return openCut(a, s.cut) })
		return err
	})
	return source, more, err
}

// openCut reads an answer up to its pack, and which commits are without their
// parents in it.
func openCut(a *answer, cut map[fencepost.CommitID]bool) (*packSource, error) {
	first, err := a.firstText()
	if err != nil {
		return nil, err
	}
	if first != "shallow-info" {
		return nil, fmt.Errorf("%w: no shallow-info at its start", ErrProtocol)
	}
	for {
		p, err := a.next()
		if err != nil {
			return nil, cutShort(err)
		}
		if p.Kind == pktline.Delim {
			break
		}
		const word = "shallow "
		text := ""
		if p.Kind == pktline.Data {
			text = p.Text()
		}
		if len(text) < len(word) || text[:len(word)] != word {
			return nil, fmt.Errorf("%w: illegal shallow-info", ErrProtocol)
		}
		id, err := fencepost.ParseCommitID(text[len(word):])
		if err != nil {
			return nil, fmt.Errorf("%w: shallow-info with an illegal id", ErrProtocol)
		}
		cut[id] = true
	}
	section, err := a.text()
	if err != nil {
		return nil, err
	}
	return packSection(a, section)
}

// read takes the commits of a pack. What else is in it is hashed and dropped.
func (r *relater) read(ctx context.Context, source *packSource, s *side) (err error) {
	b := &r.c.t.Budgets
	store, err := pack.Read(source, pack.Options{
		Limits: pack.Limits{
			Objects:       b.Objects,
			InflatedBytes: min(b.InflatedBytes, r.inflated+relateBytes),
			DeltaDepth:    b.DeltaDepth,
			CommitBytes:   b.CommitBytes,
			TreeBytes:     b.TreeBytes,
			BlobBytes:     b.FileBytes,
		},
		Create:   func() (pack.File, error) { return new(memory), nil },
		Inflated: &r.inflated,
		Stop:     stopper(ctx),
	})
	if err = errors.Join(err, source.a.close()); err != nil {
		if store != nil {
			err = errors.Join(err, store.Close())
		}
		return err
	}
	s.parents = make(map[fencepost.CommitID][]fencepost.CommitID)
	for i := range pack.Index(store.Len()) {
		if store.Kind(i) != object.Commit {
			continue
		}
		content, err := store.Content(i, nil)
		if err != nil {
			return errors.Join(err, store.Close())
		}
		id := fencepost.CommitID{ObjectID: store.ID(i)}
		facts, err := object.ParseCommit(content)
		if err != nil {
			return errors.Join(fmt.Errorf("commit %s: %w", id, err), store.Close())
		}
		s.parents[id] = facts.Parents
		r.commits++
		if r.each != nil {
			r.each(id, facts)
		}
	}
	return store.Close()
}

// A memory is a [pack.File] of what relateBytes allow.
type memory struct{ b []byte }

// WriteAt implements [io.WriterAt] for writes without gaps.
func (m *memory) WriteAt(p []byte, off int64) (int, error) {
	m.b = append(m.b[:off], p...)
	return len(p), nil
}

// ReadAt implements [io.ReaderAt].
func (m *memory) ReadAt(p []byte, off int64) (int, error) {
	n := copy(p, m.b[off:])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// Close drops it.
func (m *memory) Close() error {
	m.b = nil
	return nil
}
