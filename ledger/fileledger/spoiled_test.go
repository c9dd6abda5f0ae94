package fileledger

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/fencepost/fencepost/internal/durable"
	"github.com/fencepost/fencepost/internal/durable/crashfs"
)

// spoil gives a file other content.
func spoil(tb testing.TB, fsys durable.FS, name string, data []byte) {
	tb.Helper()
	f, err := fsys.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		tb.Fatal(err)
	}
	_, err = f.WriteAt(data, 0)
	if err := errors.Join(err, f.Truncate(int64(len(data))), f.Sync(), f.Close()); err != nil {
		tb.Fatal(err)
	}
}

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
				spoil(t, disk.Process(), name, d.Data)
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
