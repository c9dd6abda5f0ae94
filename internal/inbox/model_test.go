package inbox

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/durable/crashfs"
)

// TestInboxAgainstAModel runs random lives of up to three processes over one
// disk, with kills and crashes, and holds what they hand out against what
// was acknowledged.
func TestInboxAgainstAModel(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		m := &model{T: rt, t: t, disk: crashfs.New(crashfs.Options{}), live: map[int]*life{}, states: map[fencepost.DeliveryKey]*fate{}}
		defer m.end()
		rt.Repeat(map[string]func(*rapid.T){
			"record":  m.record,
			"record2": m.record,
			"record3": m.record,
			"finish":  m.finish,
			"finish2": m.finish,
			"release": m.release,
			"tidy":    m.tidy,
			"adopt":   m.adopt,
			"close":   m.close,
			"kill":    m.kill,
			"crash":   m.crash,
		})
	})
}

type model struct {
	*rapid.T
	t      *testing.T
	disk   *crashfs.Disk
	live   map[int]*life
	states map[fencepost.DeliveryKey]*fate
}

// A life is one process and its inbox.
type life struct {
	p *crashfs.Process
	b *Inbox
}

// A fate is what the world knows of one delivery.
type fate struct {
	body  string
	acked bool // acknowledged, and not done since
}

func (m *model) some(rt *rapid.T) *life {
	n := rapid.IntRange(0, 2).Draw(rt, "process")
	if l := m.live[n]; l != nil {
		return l
	}
	l := &life{p: m.disk.Process()}
	b, err := Open(context.WithoutCancel(m.t.Context()), l.p, small)
	if err != nil {
		rt.Fatal(err)
	}
	l.b = b
	m.live[n] = l
	return l
}

func (m *model) record(rt *rapid.T) {
	l := m.some(rt)
	id := rapid.Uint64Range(0, 30).Draw(rt, "id")
	mm := mail{id: id, body: fmt.Appendf(nil, "%0*d", id*97+1, id)}
	if id%3 == 0 {
		mm.at = epoch.Add(time.Duration(rapid.IntRange(0, 100).Draw(rt, "minute")) * time.Minute)
		mm.signed = mm.at
	}
	d := mm.accepted(m.t)
	f := m.states[d.Key()]
	if f == nil {
		f = &fate{body: string(mm.body)}
		m.states[d.Key()] = f
	}
	outcome, err := l.b.Record(context.WithoutCancel(m.t.Context()), d, headers, mm.body)
	switch {
	case err != nil:
		if !errors.Is(err, ErrFull) {
			rt.Fatalf("Record(%d): %v", id, err)
		}
	case outcome == Conflict:
		rt.Fatalf("Record(%d) conflicts with itself", id)
	default:
		f.acked = true
	}
}

func (m *model) finish(rt *rapid.T) {
	l := m.some(rt)
	if s := l.b.Stats(); s.Entries == s.Leased {
		return
	}
	item, r := take(rt, l.b)
	f := m.states[item.Key]
	if f == nil || f.body != string(r.Body) {
		rt.Fatalf("%v was handed out with %.20q", item.Key, r.Body)
	}
	if err := l.b.Done(item.ID, fencepost.ReasonSuperseded); err != nil {
		rt.Fatal(err)
	}
	f.acked = false // a ledger knows it now
}

func (m *model) release(rt *rapid.T) {
	l := m.some(rt)
	if s := l.b.Stats(); s.Entries == s.Leased {
		return
	}
	item, _ := take(rt, l.b)
	if err := l.b.Release(item.ID); err != nil {
		rt.Fatal(err)
	}
}

func (m *model) tidy(rt *rapid.T) {
	if err := m.some(rt).b.tidy(context.WithoutCancel(m.t.Context())); err != nil {
		rt.Fatal(err)
	}
}

func (m *model) adopt(rt *rapid.T) {
	if err := m.some(rt).b.adopt(context.WithoutCancel(m.t.Context())); err != nil {
		rt.Fatal(err)
	}
}

func (m *model) close(rt *rapid.T) {
	n := rapid.IntRange(0, 2).Draw(rt, "process")
	if l := m.live[n]; l != nil {
		if err := l.b.Close(); err != nil {
			rt.Fatal(err)
		}
		delete(m.live, n)
	}
}

func (m *model) kill(rt *rapid.T) {
	n := rapid.IntRange(0, 2).Draw(rt, "process")
	if l := m.live[n]; l != nil {
		l.p.Kill()
		delete(m.live, n)
	}
}

func (m *model) crash(rt *rapid.T) {
	m.disk.Crash()
	m.disk = m.disk.After(crashfs.Random(rapid.Uint64().Draw(rt, "seed")))
	clear(m.live)
	m.check(rt)
}

// check looks at the disk as the next start of the machine would.
func (m *model) check(rt *rapid.T) {
	ctx := context.WithoutCancel(m.t.Context())
	b, err := Open(ctx, m.disk.After(crashfs.KeepAll).Process(), small)
	if err != nil {
		rt.Fatal(err)
	}
	if err := b.Health(); err != nil {
		rt.Fatalf("false alarm: %v", err)
	}
	held := map[fencepost.DeliveryKey]bool{}
	for s := b.Stats(); s.Entries > s.Leased; s = b.Stats() {
		item, r := take(rt, b)
		if f := m.states[item.Key]; f == nil || f.body != string(r.Body) {
			rt.Fatalf("%v was handed out with %.20q", item.Key, r.Body)
		}
		held[item.Key] = true
	}
	for key, f := range m.states {
		if f.acked && !held[key] {
			rt.Fatalf("%v was acknowledged and is lost", key)
		}
	}
	if err := b.Close(); err != nil {
		rt.Fatal(err)
	}
}

func (m *model) end() {
	if m.Failed() {
		return
	}
	m.disk.Crash()
	m.disk = m.disk.After(crashfs.LoseAll)
	m.check(m.T)
}
