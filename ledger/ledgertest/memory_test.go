package ledgertest

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/fencepost/fencepost"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestMemoryConforms(t *testing.T) {
	t.Parallel()
	Run(t, func(testing.TB) Harness { return memoryHarness(hooks{}) })
}

// memoryHarness is over a Memory whose set hooks replace the right ones.
func memoryHarness(broken hooks) Harness {
	clock := NewClock()
	const rows = 64
	m := NewMemory(MemoryConfig{Capacity: rows, Now: clock.Now, Instant: clock.Instant})
	if broken.decide != nil {
		m.hook.decide = broken.decide
	}
	if broken.check != nil {
		m.hook.check = broken.check
	}
	if broken.removable != nil {
		m.hook.removable = broken.removable
	}
	m.hook.removed, m.hook.noLock = broken.removed, broken.noLock
	same := func() fencepost.Ledger { return m }
	return Harness{
		Ledger: m, Lease: m.cfg.Lease, Window: m.cfg.Window, Capacity: rows,
		Now: clock.Now, Elapse: clock.Elapse, Frozen: true, StepWall: clock.StepWall,
		Reopen: same, Peer: same, CleanUp: m.CleanUp,
		Restart: func() fencepost.Ledger { clock.Restart(); return m },
	}
}

func TestMemoryHasTheProperties(t *testing.T) {
	t.Parallel()
	Properties(t, func(testing.TB) Harness { return memoryHarness(hooks{}) })
}
