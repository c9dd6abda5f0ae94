package doctor

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/fencepost/fencepost/internal/durable"
)

// Space holds what is free on a volume against what must stay free, and
// against what may yet be written; both in bytes.
func Space(v durable.Volume, reserve, growth int64) Check {
	c := Check{Subject: "data_dir", Name: "space", Status: OK, Seen: size(v.Free) + " free", Want: size(reserve+growth) + " for all that may be kept"}
	switch {
	case v.Free < reserve:
		c.Status, c.Mend = Fail, "free space: below "+size(reserve)+" no delivery is taken"
	case v.Free < reserve+growth:
		c.Status, c.Mend = Warn, "use a larger volume, or lower inbox.max_bytes, artifacts.max_total or receipts.max_total"
	}
	return c
}

// size is a number of bytes for people.
func size(n int64) string {
	const step = 1024
	if n < step {
		return fmt.Sprintf("%d bytes", n)
	}
	units := []string{"KiB", "MiB", "GiB", "TiB"}
	f, i := float64(n)/step, 0
	for f >= step && i < len(units)-1 {
		f, i = f/step, i+1
	}
	return fmt.Sprintf("%.1f %s", f, units[i])
}

// What syncs take: no disk is faster than the first, and with slower ones than
// the second deliveries wait.
const (
	syncFastest = 5 * time.Microsecond
	syncSlowest = 100 * time.Millisecond
	syncs       = 7
)

// Syncs writes a file in a directory, syncs it some times, and removes it. It
// can't prove that a disk keeps what it says: only that it does not say so too
// soon.
func Syncs(dir string, now func() time.Time) Check {
	c := Check{Subject: "data_dir", Name: "sync"}
	took, err := timeSyncs(dir, now)
	if err != nil {
		c.Status, c.Seen = Fail, "a file could not be written and synced"
		c.Mend = "see the kernel's log for errors of the disk, and that the user of the service may write to data_dir"
		return c
	}
	return judgeSyncs(c, took)
}

func judgeSyncs(c Check, took time.Duration) Check {
	c.Status, c.Seen = OK, "a sync takes "+took.Round(time.Microsecond).String()
	switch {
	case took < syncFastest:
		c.Status, c.Mend = Warn, "no disk is that fast: see that nothing below turns syncs into nothing (libeatmydata, a volatile cache, a virtual disk with cache=unsafe)"
	case took > syncSlowest:
		c.Status, c.Mend = Warn, "each delivery waits for syncs: use a faster disk, or take other load off it"
	}
	return c
}

// timeSyncs is the middle one of several.
func timeSyncs(dir string, now func() time.Time) (_ time.Duration, err error) {
	f, err := os.CreateTemp(dir, ".doctor-*"+durable.TempSuffix)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, f.Close(), os.Remove(f.Name())) }()
	var took []time.Duration
	block := make([]byte, 4096)
	for range syncs {
		if _, err := f.Write(block); err != nil {
			return 0, err
		}
		began := now()
		if err := f.Sync(); err != nil {
			return 0, err
		}
		took = append(took, now().Sub(began))
	}
	slices.Sort(took)
	return took[len(took)/2], nil
}
