package artifact_test

import (
	"bytes"
	"errors"
	"testing"

	"github.com/fencepost/fencepost/internal/artifact"
	"github.com/fencepost/fencepost/internal/durable"
	"github.com/fencepost/fencepost/internal/durable/crashfs"
)

// TestWhatADiskSpoilsIsNeverBelieved: bits, sectors and ends of an artifact,
// lost, repeated, swapped or misplaced, are told as damage.
func TestWhatADiskSpoilsIsNeverBelieved(t *testing.T) {
	t.Parallel()
	disk := crashfs.New(crashfs.Options{})
	fsys := disk.Process()
	s := open(t, fsys, artifact.Limits{}, &clock{noon})
	var text bytes.Buffer
	for i := range 2000 {
		text.WriteByte(byte(i * i >> 3))
	}
	ref := put(t, s, text.String())
	const day = "2026-11-30"
	infos, err := fsys.ReadDir(day)
	if err != nil || len(infos) != 1 {
		t.Fatalf("files = %v, %v, want one", infos, err)
	}
	name := day + "/" + infos[0].Name
	data, err := durable.ReadFile(fsys, name, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	damages := 0
	for d := range crashfs.Damages(data, []byte("something else"), 5) {
		damages++
		if err := d.Spoil(fsys, name); err != nil {
			t.Fatal(err)
		}
		if got, err := s.Get(t.Context(), ref); !errors.Is(err, artifact.ErrDamaged) {
			t.Errorf("%s: Get = %d bytes, %v; want ErrDamaged", d.Name, len(got), err)
		}
	}
	t.Logf("%d damages of %d bytes", damages, len(data))
}
