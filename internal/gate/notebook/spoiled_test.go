package notebook_test

import (
	"testing"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/durable"
	"github.com/fencepost/fencepost/internal/durable/crashfs"
	"github.com/fencepost/fencepost/internal/gate"
	"github.com/fencepost/fencepost/internal/gate/notebook"
)

// TestWhatADiskSpoilsIsSaid: bits, sectors and ends of a file, lost, repeated,
// swapped or misplaced, are told as damage; no other note is ever read.
func TestWhatADiskSpoilsIsSaid(t *testing.T) {
	t.Parallel()
	disk := crashfs.New(crashfs.Options{})
	n := open(t, disk.Process(), notebook.Limits{})
	const notes = 4 // of one file: the first byte of a key says which
	for i := range byte(notes) {
		must[gate.Note](t)(n.Change(t.Context(), key(1, i), func(n *gate.Note) { n.Starts = int(i) + 1 }))
	}
	must[gate.Note](t)(n.Change(t.Context(), key(2), func(n *gate.Note) { n.Starts = 9 }))
	data := must[[]byte](t)(durable.ReadFile(disk.Process(), "notes/01", 1<<20))
	foreign := must[[]byte](t)(durable.ReadFile(disk.Process(), "notes/02", 1<<20))
	damages := 0
	for d := range crashfs.Damages(data, foreign, 3) {
		damages++
		spoiled := disk.After(crashfs.KeepAll)
		if err := d.Spoil(spoiled.Process(), "notes/01"); err != nil {
			t.Fatal(err)
		}
		n := open(t, spoiled.Process(), notebook.Limits{})
		got, err := n.Change(t.Context(), key(1, 0), func(*gate.Note) {})
		if fencepost.ReasonOf(err) != fencepost.ReasonCorrupt {
			t.Errorf("%s: read %+v, %v; want it told as corrupt", d.Name, got, err)
		}
	}
	t.Logf("%d damages of %d bytes", damages, len(data))
}
