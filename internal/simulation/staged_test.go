package simulation

import (
	"testing"

	"github.com/fencepost/fencepost"
)

// TestOnlyTheSameValueIsStagedToAnOlderFence is about a request to stage whose
// answer was lost: the ledger has its value, and answers everybody who brings
// the same one of the same evaluation that it is staged (DESIGN §5).
func TestOnlyTheSameValueIsStagedToAnOlderFence(t *testing.T) {
	t.Parallel()
	eval := fencepost.EvaluationID{1}
	grant := func(slot int, fence uint64, step int) event {
		return event{kind: evAcquired, slot: slot, fence: fence, eval: eval, sent: step, step: step}
	}
	ask := func(slot int, fence uint64, step int, text string) event {
		return event{kind: evStageAsked, slot: slot, fence: fence, eval: eval, sent: step, step: step, text: text}
	}
	told := func(slot int, fence uint64, step int, text string) event {
		return event{kind: evStaged, slot: slot, fence: fence, eval: eval, sent: step, step: step + 1, text: text}
	}
	tests := map[string]struct {
		story  []event
		broken int
	}{
		"a newer holder asked for the same":         {[]event{grant(0, 1, 1), grant(1, 2, 5), ask(1, 2, 7, "v"), ask(0, 1, 9, "v"), told(0, 1, 9, "v")}, 0},
		"a newer holder asked for another":          {[]event{grant(0, 1, 1), grant(1, 2, 5), ask(1, 2, 7, "w"), ask(0, 1, 9, "v"), told(0, 1, 9, "v")}, 1},
		"nobody else asked":                         {[]event{grant(0, 1, 1), grant(1, 2, 5), ask(0, 1, 9, "v"), told(0, 1, 9, "v")}, 1},
		"one that was overtaken as well had asked":  {[]event{grant(0, 1, 1), grant(1, 2, 5), grant(0, 3, 6), ask(1, 2, 7, "v"), ask(0, 1, 9, "v"), told(0, 1, 9, "v")}, 2},
		"the newer holder asked before it was late": {[]event{grant(0, 1, 1), grant(1, 2, 5), ask(1, 2, 6, "v"), grant(0, 3, 7), ask(0, 1, 9, "v"), told(0, 1, 9, "v")}, 0},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &Sim{phases: map[[2]int]Phase{}, oracles: []*oracle{{attempts: map[int]*attempt{}, announced: map[int]int{}}}}
			for _, e := range test.story {
				s.judge(e)
			}
			if len(s.violations) != test.broken {
				t.Errorf("violations %v, want %d", s.violations, test.broken)
			}
		})
	}
}
