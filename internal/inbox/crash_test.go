package inbox

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/durable"
	"github.com/fencepost/fencepost/internal/durable/crashfs"
)

// A witness is what the world outside knows of an inbox: what was answered
// and what was done.
type witness struct {
	t testing.TB
	d *crashfs.Disk
	// sent holds the body of every request that was ever sent, acked those
	// that were answered and not done since.
	sent, acked map[fencepost.DeliveryKey]string
	// buried are those whose done mark is certainly durable.
	buried map[fencepost.DeliveryKey]bool
	dug    []fencepost.DeliveryKey // done, mark not known to be durable
}

func newWitness(t testing.TB, d *crashfs.Disk) *witness {
	return &witness{
		t: t, d: d,
		sent:   map[fencepost.DeliveryKey]string{},
		acked:  map[fencepost.DeliveryKey]string{},
		buried: map[fencepost.DeliveryKey]bool{},
	}
}

func (w *witness) record(b *Inbox, m mail) error {
	d := m.accepted(w.t)
	w.sent[d.Key()] = string(m.body)
	delete(w.buried, d.Key()) // it may come back from now on
	outcome, err := b.Record(context.WithoutCancel(w.t.Context()), d, headers, m.body)
	if w.d.Crashed() {
		return errors.Join(err, crashfs.ErrCrashed) // nobody heard the answer
	}
	if err == nil && outcome != Conflict {
		w.acked[d.Key()] = string(m.body)
	}
	return err
}

// finish takes one item and is done with it.
func (w *witness) finish(b *Inbox) error {
	if s := b.Stats(); s.Entries == s.Leased {
		return nil
	}
	ctx := context.WithoutCancel(w.t.Context())
	item, err := b.Next(ctx)
	if err != nil {
		return err
	}
	r, err := b.Read(ctx, item.ID)
	if err != nil {
		return errors.Join(err, b.Release(item.ID))
	}
	if string(r.Body) != w.sent[item.Key] {
		w.t.Errorf("%v reads %q, was sent as %q", item.Key, r.Body, w.sent[item.Key])
	}
	if err := b.Done(item.ID, fencepost.ReasonSuperseded); err != nil {
		return err
	}
	delete(w.acked, item.Key)
	w.dug = append(w.dug, item.Key)
	return nil
}

func (w *witness) tidy(b *Inbox) error {
	dug := w.dug
	if err := b.tidy(context.WithoutCancel(w.t.Context())); err != nil || w.d.Crashed() {
		return errors.Join(err, crashfs.ErrCrashed)
	}
	b.own.qmu.Lock()
	waiting := len(b.own.marks)
	b.own.qmu.Unlock()
	if waiting == 0 {
		for _, key := range dug {
			w.buried[key] = true
		}
		w.dug = nil
	}
	return nil
}

// script is a life of an inbox that reaches every kind of call: rotation,
// large entries, repeats, marks, moving, removal, closing, reopening.
func script(w *witness, p *crashfs.Process) (err error) {
	body := func(i uint64, size int) mail {
		return mail{id: i, body: bytes.Repeat(fmt.Appendf(nil, "%d.", i), size)}
	}
	cfg := small
	cfg.MaxBytes = 8 * minSegment
	ctx := context.WithoutCancel(w.t.Context())
	id := uint64(0)
	for life := range 2 {
		b, err := Open(ctx, p, cfg)
		if err != nil {
			return err
		}
		steps := []func() error{
			func() error { return w.record(b, body(id, 10)) },
			func() error { return w.record(b, body(id, 10)) }, // the first of these stays for ever
			func() error { return w.record(b, body(id, 2500)) },
			func() error { return w.finish(b) },
			func() error { return w.tidy(b) },
			func() error {
				m := body(900, 10)
				m.at = epoch.Add(time.Duration(life) * time.Minute)
				m.signed = m.at
				return w.record(b, m) // in the second life a longer repeat
			},
			func() error { return w.record(b, body(id, 1500)) },
			func() error { return w.record(b, body(id, 6000)) }, // larger than a segment
			func() error { return w.finish(b) },
			func() error { return w.finish(b) },
			func() error { return w.tidy(b) },
			func() error { return w.record(b, body(id, 2000)) },
			func() error { return w.finish(b) },
			func() error { return w.tidy(b) },
		}
		for _, step := range steps {
			id++
			if e := step(); e != nil {
				err = errors.Join(err, e)
			}
		}
		if e := b.Close(); e != nil {
			err = errors.Join(err, e)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// check opens what is left and holds it against what the world knows.
func (w *witness) check(d *crashfs.Disk) error {
	ctx := context.WithoutCancel(w.t.Context())
	p := d.Process()
	b, err := Open(ctx, p, small)
	if err != nil {
		return fmt.Errorf("open: %w", err)
	}
	if err := b.Health(); err != nil {
		return fmt.Errorf("false alarm: %w", err)
	}
	held, err := w.contents(b)
	if err != nil {
		return err
	}
	for key, body := range w.acked {
		if held[key] != body {
			return fmt.Errorf("%v was acknowledged and is lost", key)
		}
	}
	for key := range held {
		if w.buried[key] {
			return fmt.Errorf("%v was done, durably, and came back", key)
		}
	}
	// And life goes on.
	m := mail{id: 77777, body: text("new")}
	if o, err := b.Record(ctx, m.accepted(w.t), headers, m.body); err != nil || o != Accepted {
		return fmt.Errorf("record after recovery: %v, %w", o, err)
	}
	// What was recovered was on stable storage, and the new segment has not
	// sealed it off.
	again, err := Open(ctx, d.After(crashfs.LoseAll).Process(), small)
	if err != nil {
		return fmt.Errorf("open again: %w", err)
	}
	if got := again.Stats().Entries; got != len(held)+1 {
		return fmt.Errorf("%d entries were recovered and one recorded, %d after another crash", len(held), got)
	}
	return errors.Join(b.tidy(ctx), b.Close(), again.Close(), b.Health())
}

// contents reads all entries, and leaves them handed out.
func (w *witness) contents(b *Inbox) (map[fencepost.DeliveryKey]string, error) {
	ctx := context.WithoutCancel(w.t.Context())
	held := map[fencepost.DeliveryKey]string{}
	for s := b.Stats(); s.Entries > s.Leased; s = b.Stats() {
		item, err := b.Next(ctx)
		if err != nil {
			return nil, err
		}
		r, err := b.Read(ctx, item.ID)
		if err != nil {
			return nil, err
		}
		if body, ok := w.sent[item.Key]; !ok || body != string(r.Body) || r.Headers.Digest() != headers.Digest() {
			return nil, fmt.Errorf("%v reads %.40q, was sent as %.40q", item.Key, r.Body, body)
		}
		if _, twice := held[item.Key]; twice {
			return nil, fmt.Errorf("%v was handed out twice", item.Key)
		}
		held[item.Key] = string(r.Body)
	}
	return held, nil
}

func TestNothingAcknowledgedIsLostByACrashAtAnyCall(t *testing.T) {
	t.Parallel()
	dry := crashfs.New(crashfs.Options{})
	ops := map[int]crashfs.Op{}
	dry.Plan(func(c crashfs.Call) crashfs.Fault { ops[c.N] = c.Op; return crashfs.Fault{} })
	w := newWitness(t, dry)
	must(t, script(w, dry.Process()))
	if len(w.acked) < 4 || len(w.buried) < 2 {
		t.Fatalf("the script leaves %d entries and %d done: too little to lose", len(w.acked), len(w.buried))
	}
	states := 0
	for n := 1; n <= len(ops); n++ {
		if !ops[n].Changes() && !thorough {
			continue // as the call before it, but for what was answered
		}
		whens := []struct {
			when crashfs.When
			keep int
		}{{crashfs.Before, 0}, {crashfs.After, 0}}
		if ops[n] == crashfs.OpWrite {
			for i, keep := range []int{1, 511, 512, 513, 1100, 4095, 4096, 4097} {
				if !thorough && (i+n)%4 != 0 {
					continue
				}
				whens = append(whens, struct {
					when crashfs.When
					keep int
				}{crashfs.Inside, keep})
			}
		}
		for _, at := range whens {
			d := crashfs.New(crashfs.Options{})
			d.Plan(crashfs.CrashAt(n, at.when, at.keep))
			w := newWitness(t, d)
			if err := script(w, d.Process()); !errors.Is(err, crashfs.ErrCrashed) {
				t.Fatalf("call %d (%s): %v, want ErrCrashed", n, ops[n], err)
			}
			for i, policy := range policies(d, n+at.keep) {
				states++
				if err := w.check(d.After(policy)); err != nil {
					t.Fatalf("crash %d at call %d (%s), keep %d, policy %d: %v", at.when, n, ops[n], at.keep, i, err)
				}
			}
		}
	}
	t.Logf("%d calls, %d crash states", len(ops), states)
}

func TestNothingAcknowledgedIsLostByAKillAtAnyCall(t *testing.T) {
	t.Parallel()
	dry := crashfs.New(crashfs.Options{})
	ops := map[int]crashfs.Op{}
	dry.Plan(func(c crashfs.Call) crashfs.Fault { ops[c.N] = c.Op; return crashfs.Fault{} })
	must(t, script(newWitness(t, dry), dry.Process()))
	eio := errors.New("input/output error")
	plans := map[string]func(n int) crashfs.Plan{
		"before": func(n int) crashfs.Plan { return crashfs.KillAt(n, crashfs.Before, 0) },
		"inside": func(n int) crashfs.Plan { return crashfs.KillAt(n, crashfs.Inside, 900) },
		"after":  func(n int) crashfs.Plan { return crashfs.KillAt(n, crashfs.After, 0) },
		// The sync failed, and nobody lived to say so.
		"failed sync": func(n int) crashfs.Plan {
			return func(c crashfs.Call) crashfs.Fault {
				if c.N != n {
					return crashfs.Fault{}
				}
				return crashfs.Fault{Kill: crashfs.After, Err: eio}
			}
		},
	}
	for name, plan := range plans {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for n := 1; n <= len(ops); n++ {
				if !ops[n].Changes() || (name == "failed sync" && ops[n] != crashfs.OpSync) {
					continue
				}
				d := crashfs.New(crashfs.Options{})
				d.Plan(plan(n))
				w := newWitness(t, d)
				if err := script(w, d.Process()); !errors.Is(err, crashfs.ErrKilled) {
					t.Fatalf("call %d (%s): %v, want ErrKilled", n, ops[n], err)
				}
				d.Plan(nil)
				// The next process finds the page cache as it was left.
				if err := w.check(d); err != nil {
					t.Fatalf("killed at call %d (%s): %v", n, ops[n], err)
				}
			}
		})
	}
}

// TestWhatIsLeftOfABatchIsAllOrUnacknowledged crashes the sync of several
// entries that are written together, of which any may arrive.
func TestWhatIsLeftOfABatchIsAllOrUnacknowledged(t *testing.T) {
	t.Parallel()
	d := crashfs.New(crashfs.Options{})
	w := newWitness(t, d)
	b := open(t, d.Process(), small)
	must(t, w.record(b, mail{id: 1, body: text("acknowledged")}))
	var requests []*request
	for i := range uint64(4) {
		m := mail{id: 10 + i, body: bytes.Repeat([]byte{'a' + byte(i)}, 1000)}
		a := m.accepted(t)
		w.sent[a.Key()] = string(m.body)
		requests = append(requests, &request{
			typ: frameEntry, meta: appendMeta(nil, recordedOf(a, headers, m.body)), body: m.body,
			entry: &entry{key: a.Key(), binding: a.Binding(), log: b.own, state: flying},
		})
	}
	d.Plan(func(c crashfs.Call) crashfs.Fault {
		if c.Op == crashfs.OpSync {
			return crashfs.Fault{Crash: crashfs.Before}
		}
		return crashfs.Fault{}
	})
	b.own.await(b.own.join(requests...))
	if !d.Crashed() {
		t.Fatal("there was no sync")
	}
	all := []crashfs.Policy{crashfs.LoseAll, crashfs.KeepAll}
	for i := range d.Unsynced() {
		all = append(all, crashfs.LoseOne(i), crashfs.KeepOne(i))
	}
	for seed := range uint64(200) {
		all = append(all, crashfs.Random(seed))
	}
	for i, policy := range all {
		if err := w.check(d.After(policy)); err != nil {
			t.Fatalf("policy %d: %v", i, err)
		}
	}
}

func TestNothingIsWrittenOverAWriteThatFailed(t *testing.T) {
	t.Parallel()
	d := crashfs.New(crashfs.Options{})
	b := open(t, d.Process(), small)
	record(t, b, mail{id: 1, body: text("first")}, Accepted)
	eio := errors.New("input/output error")
	failed := crashfs.Call{}
	d.Plan(func(c crashfs.Call) crashfs.Fault {
		switch {
		case c.Op != crashfs.OpWrite:
		case failed.N == 0:
			failed = c
			return crashfs.Fault{Err: eio, Keep: 100}
		case c.Name == failed.Name && c.Off+int64(c.Len) > failed.Off:
			t.Errorf("%d bytes were written at %d, behind the failed write at %d", c.Len, c.Off, failed.Off)
		}
		return crashfs.Fault{}
	})
	m := mail{id: 2, body: text("second")}
	if _, err := b.Record(t.Context(), m.accepted(t), headers, m.body); !errors.Is(err, eio) {
		t.Fatalf("Record = %v, want the injected error", err)
	}
	record(t, b, m, Accepted)
	must(t, b.tidy(t.Context()))
	must(t, b.Close())
}

// thorough runs every combination of call, tear and loss in the crash tests;
// without it each call gets some, others for each.
var thorough = os.Getenv("FENCEPOST_THOROUGH") != ""

// policies are ways to lose what was not synced at crash number n.
func policies(d *crashfs.Disk, n int) []crashfs.Policy {
	all := []crashfs.Policy{crashfs.LoseAll, crashfs.KeepAll}
	units := d.Unsynced()
	switch {
	case units == 0:
		return all
	case !thorough:
		return append(all, crashfs.LoseOne(n%units), crashfs.KeepOne(n%units), crashfs.Random(uint64(n)))
	}
	for i := range units {
		all = append(all, crashfs.LoseOne(i), crashfs.KeepOne(i))
	}
	for seed := range uint64(64) {
		all = append(all, crashfs.Random(seed))
	}
	return all
}

func TestNoFaultAtAnyCallLosesWhatWasAcknowledged(t *testing.T) {
	t.Parallel()
	dry := crashfs.New(crashfs.Options{})
	ops := map[int]crashfs.Op{}
	dry.Plan(func(c crashfs.Call) crashfs.Fault { ops[c.N] = c.Op; return crashfs.Fault{} })
	must(t, script(newWitness(t, dry), dry.Process()))
	eio := errors.New("input/output error")
	lostAnswer := func(n int) crashfs.Plan {
		return func(c crashfs.Call) crashfs.Fault {
			if c.N != n {
				return crashfs.Fault{}
			}
			return crashfs.Fault{Err: eio, Done: true}
		}
	}
	short := func(n int) crashfs.Plan {
		return func(c crashfs.Call) crashfs.Fault {
			if c.N != n {
				return crashfs.Fault{}
			}
			return crashfs.Fault{Err: eio, Keep: 700}
		}
	}
	plans := map[string]func(n int) crashfs.Plan{
		"EIO once":         func(n int) crashfs.Plan { return crashfs.FailAt(n, eio) },
		"EIO from then on": func(n int) crashfs.Plan { return crashfs.FailFrom(n, eio) },
		"ENOSPC once":      func(n int) crashfs.Plan { return crashfs.FailAt(n, durable.ErrNoSpace) },
		"answer lost":      lostAnswer,
		"short write":      short,
	}
	for name, plan := range plans {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for n := 1; n <= len(ops); n++ {
				if !ops[n].Changes() && n%5 != 0 && !thorough {
					continue // most are looks at the poison mark
				}
				d := crashfs.New(crashfs.Options{})
				d.Plan(plan(n))
				w := newWitness(t, d)
				p := d.Process()
				_ = script(w, p) // whatever failed was not acknowledged
				d.Plan(nil)
				d.Crash()
				for i, policy := range []crashfs.Policy{crashfs.LoseAll, crashfs.KeepAll} {
					if !thorough && i != n%2 {
						continue
					}
					after := d.After(policy)
					if err := durable.ClearPoison(after.Process()); err != nil {
						t.Fatal(err)
					}
					if err := w.check(after); err != nil {
						t.Fatalf("fault at call %d: %v", n, err)
					}
				}
			}
		})
	}
}
