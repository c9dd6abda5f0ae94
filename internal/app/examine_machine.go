package app

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/fencepost/fencepost/internal/doctor"
	"github.com/fencepost/fencepost/internal/durable"
	"github.com/fencepost/fencepost/internal/store"
	"github.com/fencepost/fencepost/ledger"
	"github.com/fencepost/fencepost/ledger/fileledger"
	"github.com/fencepost/fencepost/ledger/sqlledger"
	"github.com/fencepost/fencepost/runner"
)

const dataDir = "data_dir"

// examineDataDir looks at the data directory. mine is set where it is there
// and this user's, so that things may be tried in it.
func (a *App) examineDataDir() (mine bool, all []doctor.Check) {
	dir := a.Config.DataDir
	place := doctor.Check{Subject: dataDir, Name: "place", Status: doctor.OK, Seen: dir}
	switch info, err := os.Stat(dir); {
	case errors.Is(err, fs.ErrNotExist):
		place.Status, place.Seen = doctor.Skipped, dir+" is not there yet; `serve` makes it"
		if _, err := os.Stat(filepath.Dir(filepath.Clean(dir))); err != nil {
			place.Status, place.Seen = doctor.Warn, dir+" is not there yet, nor is what it lies in"
			place.Mend = "make it, owned by the service's user (install -d -m 0700 -o USER DIR)"
		}
		return false, append(all, place)
	case err != nil || !info.IsDir():
		place.Status, place.Seen, place.Mend = doctor.Fail, dir+" is no directory that can be read", "name an empty or missing directory as data_dir"
		return false, append(all, place)
	}
	all = append(all, place)
	exposed := doctor.Check{Subject: dataDir, Name: "owner and mode", Status: doctor.OK, Seen: "this user's alone"}
	if err := checkExposure(dir); err != nil {
		exposed.Status, exposed.Seen = doctor.Fail, err.Error()
		exposed.Mend = "run doctor and serve as the service's user, and keep others out (chmod 700)"
		return false, append(all, exposed)
	}
	all = append(all, exposed, a.examineMarker(dir))
	volume := doctor.Check{Subject: dataDir, Name: "volume", Status: doctor.OK}
	v, err := durable.CheckVolume(durable.OS(dir), dir, false)
	if err != nil {
		volume.Status, volume.Seen, volume.Mend = doctor.Fail, err.Error(), "use a directory on a local ext4, XFS, btrfs or ZFS that takes writes"
		return true, append(all, volume)
	}
	volume.Seen = v.Type
	if v.Note != "" {
		volume.Status, volume.Seen, volume.Mend = doctor.Warn, v.Note, "give the data directory a volume of its own"
	}
	c := a.Config
	growth := int64(c.Inbox.MaxBytes) + int64(c.Artifacts.MaxTotal) + int64(c.Receipts.MaxTotal)
	return true, append(all, volume, doctor.Space(v, int64(c.Inbox.MinFree), growth), doctor.Syncs(dir, a.Now))
}

// examineMarker looks whose directory it is.
func (a *App) examineMarker(dir string) doctor.Check {
	c := doctor.Check{Subject: dataDir, Name: "ours", Status: doctor.OK, Seen: strings.TrimSpace(markerText)}
	text, err := durable.ReadFile(durable.OS(dir), markerName, markerLimit)
	switch {
	case err == nil && string(text) == markerText:
		return c
	case errors.Is(err, fs.ErrNotExist):
		if entries, err := os.ReadDir(dir); err == nil && onlyTemporary(entries) {
			c.Seen = "empty; `serve` makes it one"
			return c
		}
		c.Seen = "not empty, and without the file " + markerName
	default:
		c.Seen = "of another version, or of something else"
	}
	c.Status, c.Mend = doctor.Fail, "name an empty or missing directory as data_dir, or start the version that made it"
	return c
}

// examineLedger opens the ledger beside whoever has it open.
func (a *App) examineLedger(ctx context.Context, mine bool) doctor.Check {
	c := doctor.Check{Subject: "ledger", Name: "rows", Status: doctor.OK}
	config := LedgerConfig(a.Config, a.Now)
	config.Maintain = -1
	if _, err := os.Stat(config.Dir); !mine || errors.Is(err, fs.ErrNotExist) {
		c.Status, c.Seen = doctor.Skipped, "there is none yet, or it is another user's"
		return c
	}
	l, err := fileledger.Open(ctx, config)
	if err != nil {
		return unusable(c, err)
	}
	st, err := l.Stat(ctx)
	var ages ledger.Ages
	if err == nil {
		ages, err = ledger.CountAges(l.Rows(ctx), a.Now())
	}
	if err = errors.Join(err, l.Close()); err != nil {
		return unusable(c, err)
	}
	return fullness(c, st.Rows(), st.Capacity, st.Full > 0, ages.PerDay(a.Now()), a.Config.Alerts.LedgerFullWithin)
}

func unusable(c doctor.Check, err error) doctor.Check {
	c.Status, c.Seen = doctor.Fail, err.Error()
	c.Mend = "see what `fencepost ledger verify` says, and that ledger.* is as when the ledger was made"
	return c
}

// fullness judges how long a ledger will have room.
func fullness(c doctor.Check, rows, capacity int, full bool, perDay float64, within time.Duration) doctor.Check {
	c.Seen = fmt.Sprintf("%d of %d", rows, capacity)
	const mend = "raise ledger.capacity with `fencepost ledger migrate`, or shorten replay.max_queue_age; docs/operations.md says how"
	switch {
	case full:
		c.Status, c.Mend = doctor.Fail, mend
	case ledger.NearFull(rows, capacity, perDay, within):
		c.Status, c.Mend = doctor.Warn, mend
	}
	return c
}

// examineDatabase looks at the PostgreSQL that several machines share.
func (a *App) examineDatabase(ctx context.Context) []doctor.Check {
	ctx, cancel := context.WithTimeout(ctx, lookWithin)
	defer cancel()
	c := doctor.Check{Subject: "database", Name: "open", Status: doctor.OK, Seen: "it answers, and its schema is this version's"}
	o, err := StateOptions(a.Config, a.LookupEnv, a.Now)
	if err != nil {
		c.Status, c.Seen = doctor.Skipped, "its URL can't be read"
		return []doctor.Check{c}
	}
	o.Existing, o.Wait = true, 10*time.Second
	db, err := store.Open(ctx, o)
	if err != nil {
		c.Status, c.Seen, c.Mend = doctor.Fail, err.Error(), "see that the server is up and reached from here, and that the URL's user may use the schema"
		if errors.Is(err, store.ErrOlderSchema) {
			c.Status, c.Mend = doctor.Warn, "start `fencepost serve` of this version once: it brings the schema up to date"
		}
		return []doctor.Check{c}
	}
	a.opened(db.Close)
	all := []doctor.Check{c}
	durability := doctor.Check{Subject: "database", Name: "durability", Status: doctor.OK, Seen: "a commit is on stable storage before it is answered"}
	if err := db.CheckDurable(ctx); err != nil {
		durability.Status, durability.Seen, durability.Mend = doctor.Fail, err.Error(), "take synchronous_commit out of the URL"
	}
	return append(all, durability, a.examineSettings(ctx, db), a.examineDatabaseClock(ctx, db), a.examineSharedLedger(ctx, db))
}

// examineSharedLedger looks at the ledger in the database.
func (a *App) examineSharedLedger(ctx context.Context, db *store.DB) doctor.Check {
	c := doctor.Check{Subject: "ledger", Name: "rows", Status: doctor.OK}
	l, err := sqlledger.OpenOn(ctx, db, sqlledger.Config{
		Lease: a.Config.Ledger.Lease, Capacity: int(a.Config.Ledger.Capacity), Window: a.Config.Replay, Now: a.Now,
	})
	if err != nil {
		return unusable(c, err)
	}
	a.opened(l.Close)
	st, err := l.Stat(ctx)
	if err != nil {
		return unusable(c, err)
	}
	now := a.Now()
	ages, err := l.Ages(ctx, now)
	if err != nil {
		c.Status, c.Seen = doctor.Warn, "how fast it fills could not be read: "+err.Error()
		c.Mend = "look again when the database is less busy: all rows are read for that"
		return c
	}
	return fullness(c, st.Rows(), st.Capacity, st.Full > 0, ages.PerDay(now), a.Config.Alerts.LedgerFullWithin)
}

// examineSettings looks at what makes PostgreSQL forget what it said was safe:
// nobody's connection string can put that right.
func (a *App) examineSettings(ctx context.Context, db *store.DB) doctor.Check {
	c := doctor.Check{Subject: "database", Name: "settings", Status: doctor.OK, Seen: "fsync and full_page_writes are on"}
	bad, err := db.Undurable(ctx, "read settings")
	if err != nil {
		c.Status, c.Seen = doctor.Skipped, "they can't be read"
		return c
	}
	var off []string
	for _, s := range bad {
		if s.Server {
			off = append(off, s.Name)
		}
	}
	if len(off) > 0 {
		c.Status, c.Seen, c.Mend = doctor.Fail, strings.Join(off, " and ")+" off", "turn them on in the server's configuration: a crash of its machine loses what was answered"
	}
	return c
}

func (a *App) examineDatabaseClock(ctx context.Context, db *store.DB) doctor.Check {
	const most = 5 * time.Second
	c := doctor.Check{Subject: "database", Name: "clock", Status: doctor.OK, Seen: "within " + most.String() + " of this machine's"}
	theirs, err := db.Now(ctx)
	if err != nil {
		c.Status, c.Seen = doctor.Skipped, "it can't be read"
		return c
	}
	if by := a.Now().Sub(theirs).Abs(); by > most {
		c.Status, c.Seen, c.Mend = doctor.Warn, by.Round(time.Second).String()+" from this machine's", "synchronize both clocks"
	}
	return c
}

// examineSandbox builds the sandbox as `serve` does at its start.
func (a *App) examineSandbox(ctx context.Context, mine bool) []doctor.Check {
	c := doctor.Check{Subject: "machine", Name: "sandbox", Status: doctor.OK, Seen: fmt.Sprintf("%d protections can be had", len(runner.Protections()))}
	scratch := filepath.Join(a.Config.DataDir, "run")
	if _, err := os.Stat(scratch); err != nil || !mine {
		dir, err := os.MkdirTemp("", "fencepost-doctor-")
		if err != nil {
			c.Status, c.Seen = doctor.Skipped, "there is no place to try it in"
			return []doctor.Check{c}
		}
		a.opened(func() error { return os.RemoveAll(dir) })
		scratch = filepath.Join(dir, "run")
	}
	scratch, err := filepath.Abs(scratch)
	if err != nil {
		c.Status, c.Seen = doctor.Skipped, "there is no place to try it in"
		return []doctor.Check{c}
	}
	var dirs []string
	for _, d := range a.Config.Runner.SystemDirs {
		dirs = append(dirs, string(d))
	}
	// What can't be had is to be named also where it may be missing.
	r, err := runner.Open(ctx, runner.Config{Entry: a.Entry, Scratch: scratch, Sandbox: runner.Required, SystemDirs: dirs, Now: a.Now})
	if err == nil {
		a.opened(r.Close)
		return []doctor.Check{c}
	}
	c.Status, c.Seen, c.Mend = doctor.Fail, err.Error(), "docs/operations.md says under Install what the machine needs"
	lacking, ok := errors.AsType[*runner.SandboxError](err)
	if !ok {
		return []doctor.Check{c}
	}
	var all []doctor.Check
	for _, m := range lacking.Missing {
		one := c
		one.Name, one.Seen = "sandbox."+string(m.Protection), m.Err.Error()
		if a.Config.Runner.Sandbox == runner.BestEffort.String() {
			one.Status = doctor.Warn
		}
		all = append(all, one)
	}
	return all
}
