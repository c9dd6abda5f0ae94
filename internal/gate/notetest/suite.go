package notetest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/gate"
)

// A Book is one process's view of a notebook.
type Book interface {
	gate.Notes
	gate.Standings
}

// A Harness is one fresh notebook and the levers that a case needs over it.
type Harness struct {
	// Open opens the notebook as one more process, until the test ends.
	Open func(t testing.TB) Book
	// Elapse lets time pass, so that what is looked at later is.
	Elapse func()
	// Damage spoils every note.
	Damage func(t testing.TB)
}

// Bounds are how many notes and heads one of 64 parts may hold; zero leaves
// that to the implementation.
type Bounds struct{ Notes, Heads int }

var epoch = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

// Run runs the suite; fresh makes a notebook within bounds for each case.
func Run(t *testing.T, fresh func(t *testing.T, bounds Bounds) Harness) {
	for _, c := range []struct {
		name   string
		bounds Bounds
		do     func(t *testing.T, h Harness)
	}{
		{"a note is kept until it is forgotten", Bounds{}, noteKept},
		{"the job that asked is kept with its request", Bounds{}, jobKept},
		{"a note that finds no room is refused", Bounds{Notes: 2}, noteRefused},
		{"the newest standing stands", Bounds{}, newestStands},
		{"known is what was entered", Bounds{}, known},
		{"a subject that left is unknown and its head keeps its standing", Bounds{}, subjectLeft},
		{"heads that were looked at longest ago make room", Bounds{Heads: 2}, headsMakeRoom},
		{"processes do not lose each other's changes", Bounds{}, together},
		{"damage is told", Bounds{}, damage},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.do(t, fresh(t, c.bounds))
		})
	}
}

func key(b ...byte) (k fencepost.DeliveryKey) {
	copy(k[:], b)
	return k
}

func subject(number int64, pair string) gate.Subject {
	id, err := fencepost.ParseCommitID(strings.Repeat(pair, 20))
	if err != nil {
		panic(err)
	}
	return gate.Subject{Number: number, Head: id, BaseRef: "refs/heads/main"}
}

func must[T any](t testing.TB) func(T, error) T {
	t.Helper()
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func look(t testing.TB, b Book, k fencepost.DeliveryKey) gate.Note {
	t.Helper()
	return must[gate.Note](t)(b.Change(t.Context(), k, func(*gate.Note) {}))
}

func start(ctx context.Context, b Book, k fencepost.DeliveryKey) error {
	_, err := b.Change(ctx, k, func(n *gate.Note) { n.Starts++ })
	return err
}

func noteKept(t *testing.T, h Harness) {
	b := h.Open(t)
	want := gate.Note{
		Starts: 3, Failures: 2, Reason: fencepost.ReasonProvider, Sent: epoch.Add(time.Nanosecond), Written: "41000000001",
		Entered: subject(7, "11"),
	}
	got := must[gate.Note](t)(b.Change(t.Context(), key(1), func(n *gate.Note) { *n = want }))
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("changed (-want +got):\n%s", diff)
	}
	if err := start(t.Context(), b, key(1, 1)); err != nil {
		t.Fatal(err)
	}
	again := h.Open(t)
	if diff := cmp.Diff(want, look(t, again, key(1))); diff != "" {
		t.Errorf("opened again (-want +got):\n%s", diff)
	}
	must[gate.Note](t)(again.Change(t.Context(), key(1), func(n *gate.Note) { *n = gate.Note{Starts: 4} }))
	if got := look(t, b, key(1)); got != (gate.Note{Starts: 4}) {
		t.Errorf("changed to %+v, want what the other process made of it", got)
	}
	for range 2 {
		if err := again.Forget(t.Context(), key(1)); err != nil {
			t.Fatal(err)
		}
	}
	if got := look(t, b, key(1)); got != (gate.Note{}) {
		t.Errorf("forgotten, but %+v", got)
	}
	if got := look(t, b, key(1, 1)); got.Starts != 1 {
		t.Errorf("the neighbour is %+v", got)
	}
}

func jobKept(t *testing.T, h Harness) {
	b := h.Open(t)
	s := subject(7, "11")
	s.Job = gate.Job{
		ID: 1<<62 + 1, Pipeline: 574, Source: "pipeline_execution_policy",
		PolicyURL: "https://gitlab.example.com/a/b/-/blob/c0ffee/policy.yml", PolicyCommit: "c0ffee",
	}
	for _, want := range []gate.Note{{Starts: 1, Entered: s}, {Starts: 1, Entered: subject(7, "11")}, {Starts: 1, Entered: s}} {
		got := must[gate.Note](t)(b.Change(t.Context(), key(1), func(n *gate.Note) { *n = want }))
		if got != want {
			t.Errorf("changed to %+v, want %+v", got, want)
		}
		if got := look(t, h.Open(t), key(1)); got != want {
			t.Errorf("opened again: %+v, want %+v", got, want)
		}
	}
}

func noteRefused(t *testing.T, h Harness) {
	b := h.Open(t)
	change := func(k fencepost.DeliveryKey) error { return start(t.Context(), b, k) }
	if err := errors.Join(change(key(1, 0)), change(key(1, 1))); err != nil {
		t.Fatal(err)
	}
	if err := change(key(1, 9)); fencepost.ReasonOf(err) != fencepost.ReasonFull {
		t.Errorf("error %v, want full", err)
	}
	if err := errors.Join(change(key(1, 0)), change(key(2, 0))); err != nil {
		t.Errorf("what is there, or has room, is refused: %v", err)
	}
	if err := errors.Join(b.Forget(t.Context(), key(1, 0)), change(key(1, 9))); err != nil {
		t.Errorf("with room again: %v", err)
	}
}

func newestStands(t *testing.T, h Harness) {
	b := h.Open(t)
	s := subject(7, "11")
	at := func(ns int, k byte) gate.Standing {
		return gate.Standing{Received: epoch.Add(time.Duration(ns)), Delivery: key(k)}
	}
	enter := func(g gate.Name, s gate.Subject) gate.Standing {
		return must[gate.Standing](t)(b.Enter(t.Context(), g, s))
	}
	if got := enter("docs", s); got != (gate.Standing{}) {
		t.Errorf("entered: %+v", got)
	}
	for _, step := range []struct{ try, want gate.Standing }{
		{at(5, 1), at(5, 1)},
		{at(3, 2), at(5, 1)}, // older
		{at(5, 1), at(5, 1)}, // itself
		{at(5, 3), at(5, 3)}, // the same time, a later key
		{at(5, 2), at(5, 3)},
		{at(6, 1), at(6, 1)}, // a nanosecond later
	} {
		if got := must[gate.Standing](t)(b.Advance(t.Context(), "docs", s, step.try)); got != step.want {
			t.Errorf("advance %+v: %+v, want %+v", step.try, got, step.want)
		}
		if got := must[gate.Standing](t)(h.Open(t).Newest(t.Context(), "docs", s)); got != step.want {
			t.Errorf("newest after %+v: %+v, want %+v", step.try, got, step.want)
		}
	}
	if got := enter("docs", s); got != at(6, 1) {
		t.Errorf("entered: %+v", got)
	}
	// Another request with the same head shares it; another head or gate does not.
	if got := enter("docs", subject(8, "11")); got != at(6, 1) {
		t.Errorf("same head, another request: %+v", got)
	}
	if got := must[gate.Standing](t)(b.Advance(t.Context(), "docs", subject(7, "22"), at(1, 1))); got != at(1, 1) {
		t.Errorf("another head: %+v", got)
	}
	if got := must[gate.Standing](t)(b.Newest(t.Context(), "other", s)); got != (gate.Standing{}) {
		t.Errorf("newest of another gate: %+v", got)
	}
	if must[bool](t)(b.Known(t.Context(), "other", s)) {
		t.Error("to look at a standing entered its subject")
	}
	if got := enter("other", s); got != (gate.Standing{}) {
		t.Errorf("another gate: %+v", got)
	}
}

func known(t *testing.T, h Harness) {
	b := h.Open(t)
	is := func(s gate.Subject) bool { return must[bool](t)(b.Known(t.Context(), "docs", s)) }
	if is(subject(7, "11")) {
		t.Error("known before")
	}
	for number := range int64(40) {
		must[gate.Standing](t)(b.Enter(t.Context(), "docs", subject(number, "11")))
		if !is(subject(number, "11")) {
			t.Errorf("request %d is not known", number)
		}
	}
	if is(subject(0, "11")) || !is(subject(39, "11")) || is(subject(39, "22")) {
		t.Error("not the newest requests of the head are known")
	}
}

func subjectLeft(t *testing.T, h Harness) {
	b := h.Open(t)
	s, other := subject(7, "11"), subject(8, "11")
	st := gate.Standing{Received: epoch, Delivery: key(1)}
	for _, in := range []gate.Subject{s, other} {
		must[gate.Standing](t)(b.Enter(t.Context(), "docs", in))
	}
	must[gate.Standing](t)(b.Advance(t.Context(), "docs", s, st))
	for range 2 {
		if err := b.Leave(t.Context(), "docs", s); err != nil {
			t.Fatal(err)
		}
	}
	if must[bool](t)(b.Known(t.Context(), "docs", s)) || !must[bool](t)(b.Known(t.Context(), "docs", other)) {
		t.Error("the one that left must be unknown, the other of the same head known")
	}
	if got := must[gate.Standing](t)(b.Enter(t.Context(), "docs", s)); got != st {
		t.Errorf("standing %+v, want %+v", got, st)
	}
}

func headsMakeRoom(t *testing.T, h Harness) {
	b := h.Open(t)
	const many = 300
	for i := range int64(many) {
		h.Elapse()
		must[gate.Standing](t)(b.Enter(t.Context(), gate.Name(fmt.Sprint(i)), subject(7, "11")))
	}
	left := 0
	for i := range int64(many) {
		if must[bool](t)(b.Known(t.Context(), gate.Name(fmt.Sprint(i)), subject(7, "11"))) {
			left++
		} else if i == many-1 {
			t.Error("the newest went")
		}
	}
	if left > 128 || left < 90 {
		t.Errorf("%d of %d left, want about 2 in each of 64 parts", left, many)
	}
}

func together(t *testing.T, h Harness) {
	const processes, workers, times = 3, 4, 5
	s := subject(7, "11")
	var wg sync.WaitGroup
	for p := range processes {
		b := h.Open(t)
		for w := range workers {
			wg.Go(func() {
				for i := range times {
					at := epoch.Add(time.Duration(p*workers*times + w*times + i))
					_, err := b.Advance(t.Context(), "docs", s, gate.Standing{Received: at, Delivery: key(1)})
					if err := errors.Join(err, start(t.Context(), b, key(1))); err != nil {
						t.Error(err)
					}
				}
			})
		}
	}
	wg.Wait()
	b := h.Open(t)
	const all = processes * workers * times
	if got := look(t, b, key(1)); got.Starts != all {
		t.Errorf("%d of %d changes", got.Starts, all)
	}
	if got := must[gate.Standing](t)(b.Newest(t.Context(), "docs", s)); !got.Received.Equal(epoch.Add(all - 1)) {
		t.Errorf("the newest of all is %+v", got)
	}
}

func damage(t *testing.T, h Harness) {
	b := h.Open(t)
	must[gate.Note](t)(b.Change(t.Context(), key(1), func(n *gate.Note) { n.Entered = subject(7, "11") }))
	h.Damage(t)
	if err := start(t.Context(), b, key(1)); fencepost.ReasonOf(err) != fencepost.ReasonCorrupt {
		t.Errorf("error %v, want corrupt", err)
	}
	if err := start(t.Context(), b, key(2)); err != nil {
		t.Errorf("another note: %v", err)
	}
}
