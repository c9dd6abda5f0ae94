package gate_test

import (
	"fmt"
	"testing"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/gate"
)

func overtaken() error {
	return &fencepost.Error{Op: "publish", Reason: fencepost.ReasonSuperseded, Err: gate.ErrOvertaken}
}

// TestAResultThatWasOvertakenEndsWithoutAnother: whoever is told so first, a
// write, the look-up after it, or the one of a later attempt.
func TestAResultThatWasOvertakenEndsWithoutAnother(t *testing.T) {
	t.Parallel()
	for name, prepare := range map[string]func(p *provider){
		"by the write": func(p *provider) {
			p.onCreate = func(int) (error, error) { return overtaken(), nil }
		},
		"by the look-up after a lost answer": func(p *provider) {
			p.onCreate = func(int) (error, error) { return unknown(), nil }
			p.onFind = func() error {
				if p.creates > 0 {
					return overtaken()
				}
				return nil
			}
		},
		"by the first look-up": func(p *provider) { p.onFind = overtaken },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inWorld(t, func(t *testing.T, w *world) {
				w.provider.set(prepare)
				w.deliver(7, w.provider.head.ID)
				w.run()
				w.wantRuns()
				w.wantEnd(gate.KindEnded, fencepost.ReasonSuperseded)
				if n := w.provider.writes(); n > 1 {
					t.Errorf("%d writes, want one at most", n)
				}
			})
		})
	}
}

// TestWhatWasShownInPartIsTakenBack: an attempt may have shown a part of its
// result, and the gate moved before the next. It ends when that is taken back,
// and not before.
func TestWhatWasShownInPartIsTakenBack(t *testing.T) {
	t.Parallel()
	for _, failures := range []int{0, 2} {
		t.Run(fmt.Sprintf("after %d failures", failures), func(t *testing.T) {
			t.Parallel()
			inWorld(t, func(t *testing.T, w *world) {
				w.provider.set(func(p *provider) {
					p.onCreate = func(int) (error, error) {
						p.rule++ // the gate is another one from here on
						return unknown(), nil
					}
					p.onRetract = func(n int) error {
						if n <= failures {
							return &fencepost.Error{Op: "retract", Reason: fencepost.ReasonProvider}
						}
						return nil
					}
				})
				w.deliver(7, w.provider.head.ID)
				w.run()
				w.wantRuns()
				w.wantEnd(gate.KindEnded, fencepost.ReasonSuperseded)
				if w.provider.writes() != 1 || w.provider.retracts != failures+1 {
					t.Errorf("%d writes and %d retractions, want 1 and %d", w.provider.writes(), w.provider.retracts, failures+1)
				}
			})
		})
	}
}

// TestWhatWasNeverSentIsNotTakenBack: before the first write there is nothing.
func TestWhatWasNeverSentIsNotTakenBack(t *testing.T) {
	t.Parallel()
	inWorld(t, func(t *testing.T, w *world) {
		w.deliver(7, w.provider.head.ID)
		w.killAt("stage", false)
		w.provider.set(func(p *provider) { p.rule++ })
		w.run()
		w.wantEnd(gate.KindEnded, fencepost.ReasonSuperseded)
		if w.provider.writes() != 0 || w.provider.retracts != 0 {
			t.Errorf("%d writes and %d retractions, want none", w.provider.writes(), w.provider.retracts)
		}
	})
}
