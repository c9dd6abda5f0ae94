package app

import (
	"testing"
	"time"

	"github.com/fencepost/fencepost/internal/source"
	"github.com/fencepost/fencepost/internal/source/sourcedb"
)

func TestADisabledSourceHasNoNextLook(t *testing.T) {
	t.Parallel()
	due := time.Unix(1700000000, 0)
	for _, enabled := range []bool{true, false} {
		s := sourcedb.State{SourceRow: source.SourceRow{Enabled: enabled, NextCheck: due}}
		if got := NextLook(s); got.Equal(due) != enabled || got.IsZero() == enabled {
			t.Errorf("enabled %t: the next look is at %s", enabled, got)
		}
	}
}

func TestSizesAreShownInTheLargestUnitThatFits(t *testing.T) {
	t.Parallel()
	for bytes, want := range map[int64]string{
		0: "0 B", 1023: "1023 B", 1024: "1.0 KiB", 1536: "1.5 KiB", 1 << 20: "1.0 MiB", 4 << 30: "4.0 GiB", 1 << 62: "4096.0 PiB",
	} {
		if got := sizeText(bytes); got != want {
			t.Errorf("sizeText(%d) = %q, want %q", bytes, got, want)
		}
	}
}
