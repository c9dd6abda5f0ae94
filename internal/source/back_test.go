package source_test

import (
	"testing"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/source"
)

// On SQLite the clock is the process's, which may be earlier than that of the
// process before. What was planned for times that lie ahead then is not waited
// for.
func TestAStartWithAnEarlierClockWaitsForNoPlan(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		// leave brings the source into a state in which its process dies.
		leave func(s *story, p *running)
		why   fencepost.Reason
	}{
		{"between two attempts", func(s *story, p *running) {
			s.set(func(o *outside) { o.why = fencepost.ReasonProvider })
			p.push()
			time.Sleep(2 * time.Second)
		}, fencepost.ReasonProvider},
		{"in the middle of one", func(s *story, p *running) {
			s.set(func(o *outside) { o.slow = time.Hour })
			p.push()
			time.Sleep(2 * time.Second)
			s.away.Store(true) // so that its end is not stored
		}, ""},
		{"idle", func(*story, *running) {}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			tell(t, func(s *story) {
				p := s.process(options{})
				p.settled()
				s.moved()
				tt.leave(s, p)
				p.end()
				s.away.Store(false)
				s.set(func(o *outside) { o.why, o.slow = "", 0 })
				s.step.Store(int64(-6 * time.Hour))
				p = s.process(options{})
				defer p.end()
				p.complete(5 * time.Minute)
				if s.isOpen(source.AlertFreshness) {
					t.Error("the freshness alert is open")
				}
			})
		})
	}
}
