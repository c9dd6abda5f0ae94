package crashfs

import (
	"bytes"
	"errors"
	"fmt"
	"iter"
	"os"
	"slices"

	"github.com/fencepost/fencepost/internal/durable"
)

// A Damage is what a file may come back as from a disk that is at fault.
type Damage struct {
	// Name says what was done, for messages.
	Name string
	Data []byte
}

// Spoil gives a file the damaged content, as a disk does: in place.
func (d Damage) Spoil(fsys durable.FS, name string) error {
	f, err := fsys.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(d.Data, 0)
	return errors.Join(err, f.Truncate(int64(len(d.Data))), f.Sync(), f.Close())
}

// Damages are the ways in which data may come back: with any one bit flipped,
// with a sector that is zeroed, that stands over its neighbour as well, that
// is swapped with it, or that was meant for another place, of which foreign is
// an example; and cut off after any of its bytes. Where nothing would change,
// there is none. Of bits and of ends each step-th is taken; 1 takes all.
func Damages(data, foreign []byte, step int) iter.Seq[Damage] {
	return func(yield func(Damage) bool) {
		give := func(damaged []byte, format string, args ...any) bool {
			return bytes.Equal(damaged, data) || yield(Damage{fmt.Sprintf(format, args...), damaged})
		}
		for bit := 0; bit < 8*len(data); bit += step {
			b := slices.Clone(data)
			b[bit/8] ^= 1 << (bit % 8)
			if !give(b, "bit %d of byte %d flipped", bit%8, bit/8) {
				return
			}
		}
		for end := 0; end < len(data); end += step {
			if !give(data[:end:end], "cut off after %d bytes", end) {
				return
			}
		}
		for at := 0; at < len(data); at += SectorSize {
			for _, d := range sectorDamages(data, foreign, at) {
				if !give(d.Data, "%s", d.Name) {
					return
				}
			}
		}
	}
}

func sectorDamages(data, foreign []byte, at int) []Damage {
	end := min(at+SectorSize, len(data))
	zeroed := slices.Clone(data)
	clear(zeroed[at:end])
	misplaced := slices.Clone(data)
	copy(misplaced[at:end], foreign[min(at, len(foreign)):])
	all := []Damage{
		{fmt.Sprintf("sector at %d zeroed", at), zeroed},
		{fmt.Sprintf("sector at %d is of another file", at), misplaced},
	}
	if end+SectorSize <= len(data) {
		twice := slices.Clone(data)
		copy(twice[end:end+SectorSize], data[at:end])
		swapped := slices.Clone(twice)
		copy(swapped[at:end], data[end:end+SectorSize])
		all = append(all, Damage{fmt.Sprintf("sector at %d twice", at), twice}, Damage{fmt.Sprintf("sector at %d swapped with the next", at), swapped})
	}
	return all
}
