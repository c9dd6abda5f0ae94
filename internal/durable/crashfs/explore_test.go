package crashfs_test

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/fencepost/fencepost/internal/durable"
	"github.com/fencepost/fencepost/internal/durable/crashfs"
)

// A note is a program that is to keep one of two texts in a file, whole.
type note struct {
	write func(fsys durable.FS, name string, data []byte) error
	// told is what was answered to be written; asked, what was begun.
	told, asked string
}

func (n note) live(d *crashfs.Disk) (crashfs.Check, error) {
	p := d.Process()
	b, err := durable.ReadFile(p, "note", 4096)
	switch {
	case errors.Is(err, crashfs.ErrCrashed), errors.Is(err, crashfs.ErrKilled):
		return n.live, err
	case err != nil && !(errors.Is(err, os.ErrNotExist) && n.told == ""):
		return n.live, err
	case string(b) != n.told && string(b) != n.asked:
		return n.live, fmt.Errorf("the note says %.20q, told was %.20q", b, n.told)
	}
	n.told = string(b)
	n.asked = strings.Repeat(fmt.Sprint(len(n.told), " "), 400)
	if err := n.write(p, "note", []byte(n.asked)); err != nil {
		return n.live, err
	}
	n.told = n.asked
	return n.live, nil
}

func explorer(faults func(crashfs.Call) []crashfs.Fault) *crashfs.Explorer {
	return &crashfs.Explorer{
		Faults: faults, Depth: 2,
		Policies: func(_, unsynced, state int) []crashfs.Policy { return crashfs.EveryLoss(unsynced, state, 4) },
	}
}

func TestExplorerFindsNothingWhereNothingIs(t *testing.T) {
	t.Parallel()
	for name, faults := range map[string]func(crashfs.Call) []crashfs.Fault{
		"crash": crashfs.EveryCrash(1, 512), "kill": crashfs.EveryKill(errors.New("input/output error"), 1, 512),
	} {
		e := explorer(faults)
		if err := e.Explore(crashfs.New(crashfs.Options{}), note{write: durable.WriteFile}.live); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if e.States[0] < 5 || e.States[1] < 50 {
			t.Errorf("%s: %v states, want some of each level", name, e.States)
		}
	}
}

// TestExplorerFindsWhatIsLeftOut: each program leaves out one thing.
func TestExplorerFindsWhatIsLeftOut(t *testing.T) {
	t.Parallel()
	temp := func(fsys durable.FS, name string, data []byte, sync bool) error {
		f, err := fsys.OpenFile(name+".tmp", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
		if err != nil {
			return err
		}
		_, err = f.WriteAt(data, 0)
		if err == nil && sync {
			err = f.Sync()
		}
		return errors.Join(err, f.Close())
	}
	for name, write := range map[string]func(durable.FS, string, []byte) error{
		"in place": func(fsys durable.FS, name string, data []byte) error {
			f, err := fsys.OpenFile(name, os.O_WRONLY|os.O_CREATE, 0o600)
			if err != nil {
				return err
			}
			_, err = f.WriteAt(data, 0)
			return errors.Join(err, f.Sync(), f.Close(), fsys.SyncDir("."))
		},
		"no sync of the file": func(fsys durable.FS, name string, data []byte) error {
			return errors.Join(temp(fsys, name, data, false), fsys.Rename(name+".tmp", name), fsys.SyncDir("."))
		},
		"no sync of the directory": func(fsys durable.FS, name string, data []byte) error {
			return errors.Join(temp(fsys, name, data, true), fsys.Rename(name+".tmp", name))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := explorer(crashfs.EveryCrash(1, 512)).Explore(crashfs.New(crashfs.Options{}), note{write: write}.live)
			f, ok := errors.AsType[*crashfs.Finding](err)
			if !ok || len(f.Crashes) == 0 || !strings.Contains(err.Error(), "call ") {
				t.Errorf("found %v, want a finding that tells its crashes", err)
			}
		})
	}
}
