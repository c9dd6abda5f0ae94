package fileledger

import (
	"strings"
	"testing"

	"github.com/fencepost/fencepost/internal/durable/crashfs"
)

// TestWhatADiskSpoilsIsDetectedOrHarmless: bits, sectors and ends of each file,
// lost, repeated, swapped or misplaced: the ledger says what it said before,
// or that something is wrong.
func TestWhatADiskSpoilsIsDetectedOrHarmless(t *testing.T) {
	t.Parallel()
	s := store(t)
	files := s.files(t)
	foreign := readFile(t, s.disk.Process(), testName+"/shard-00/000000000001.seg")
	for name := range files {
		t.Run(strings.TrimPrefix(name, testName+"/"), func(t *testing.T) {
			t.Parallel()
			data := readFile(t, s.disk.Process(), name)
			step := 1 + len(data)/20
			if exhaustive {
				step = 1
			}
			detected, harmless := 0, 0
			for d := range crashfs.Damages(data, foreign, step) {
				disk := s.disk.After(crashfs.KeepAll)
				if err := d.Spoil(disk.Process(), name); err != nil {
					t.Fatal(err)
				}
				found, err := s.readBack(t, disk.Process())
				if err != nil {
					t.Errorf("%s: %v", d.Name, err)
				}
				if found {
					detected++
				} else {
					harmless++
				}
			}
			t.Logf("%d bytes: %d damages detected, %d harmless", len(data), detected, harmless)
		})
	}
}
