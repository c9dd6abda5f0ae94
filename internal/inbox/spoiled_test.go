package inbox

import (
	"errors"
	"fmt"
	"testing"

	"github.com/fencepost/fencepost/internal/durable"
	"github.com/fencepost/fencepost/internal/durable/crashfs"
	"github.com/fencepost/fencepost/internal/durable/frame"
)

// TestWhatADiskSpoilsIsReportedOrHarmless: bits, sectors and ends of each
// file, lost, repeated, swapped or misplaced: each entry reads as it was sent,
// or its loss is reported.
func TestWhatADiskSpoilsIsReportedOrHarmless(t *testing.T) {
	t.Parallel()
	whole, w := damagedInbox(t)
	p := whole.Process()
	names := []string{formatName, durable.HealthName}
	for _, dir := range []string{logsDir, slotsDir} {
		infos, err := p.ReadDir(dir)
		must(t, err)
		for _, info := range infos {
			names = append(names, dir+"/"+info.Name)
		}
	}
	const limit = 1 << 20
	foreign, err := durable.ReadFile(p, names[2], limit)
	must(t, err)
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			data, err := durable.ReadFile(p, name, limit)
			must(t, err)
			step := 1 + len(data)/20
			if thorough {
				step = 1
			}
			noticed, harmless := 0, 0
			for d := range crashfs.Damages(data, foreign, step) {
				spoiled := whole.After(crashfs.KeepAll)
				must(t, d.Spoil(spoiled.Process(), name))
				saw, err := w.look(t, spoiled)
				if err != nil {
					t.Errorf("%s: %v", d.Name, err)
				}
				if saw {
					noticed++
				} else {
					harmless++
				}
			}
			t.Logf("%d bytes: %d damages noticed, %d harmless", len(data), noticed, harmless)
		})
	}
}

// look reports whether an inbox says of itself that it is damaged, and fails
// if it is and does not.
func (w *witness) look(t *testing.T, d *crashfs.Disk) (noticed bool, err error) {
	t.Helper()
	damage := 0
	cfg := small
	cfg.OnDamage = func(*frame.CorruptError) { damage++ }
	b, err := Open(t.Context(), d.Process(), cfg)
	if err != nil {
		return true, nil // it believes nothing at all
	}
	held, err := w.contents(b)
	if err == nil && (b.Health() == nil) != (damage == 0) {
		err = fmt.Errorf("health is %v with %d damages", b.Health(), damage)
	}
	for key := range w.acked {
		if _, ok := held[key]; !ok && damage == 0 && err == nil {
			err = fmt.Errorf("%v is missing without a word", key)
		}
	}
	return damage > 0, errors.Join(err, b.Close())
}
