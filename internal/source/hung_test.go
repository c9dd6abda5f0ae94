package source_test

import (
	"testing"
	"time"

	"github.com/fencepost/fencepost/internal/source"
)

// A sink that hangs, deaf to the end of its time, holds one attempt of a process
// and not one more with each window.
func TestASinkThatHangsHoldsOneAttempt(t *testing.T) {
	long(t)
	t.Parallel()
	tell(t, func(s *story) {
		p := s.process(options{})
		defer p.end()
		p.settled()
		s.moved()
		before := 0
		s.set(func(o *outside) { o.hang, before = true, o.tries })
		p.push()
		time.Sleep(15 * time.Minute)
		s.set(func(o *outside) {
			if hung := o.tries - before; hung != 1 {
				s.Errorf("%d attempts hang after a quarter of an hour, want 1", hung)
			}
		})
		if !s.isOpen(source.AlertFreshness) {
			s.Error("the freshness alert is not open")
		}
		s.set(func(o *outside) { o.hang = false })
		p.recovered()
	})
}
