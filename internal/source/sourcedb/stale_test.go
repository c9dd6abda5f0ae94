package sourcedb_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/fencepost/fencepost/internal/source"
	"github.com/fencepost/fencepost/internal/source/sourcedb"
	"github.com/fencepost/fencepost/internal/source/storetest"
	"github.com/fencepost/fencepost/internal/store"
)

// enable registers source 1 and puts its policy in force.
func enable(t *testing.T, s *sourcedb.Store, all ...int) {
	t.Helper()
	var regs []source.Registration
	for _, n := range all {
		regs = append(regs, storetest.Registration(n))
	}
	if _, err := s.Register(t.Context(), regs); err != nil {
		t.Fatal(err)
	}
	for _, n := range all {
		change(t, s, n, func(snap source.Snapshot) source.Change {
			row := snap.Source
			row.Revision, row.Enabled = storetest.Revision(1), true
			return source.Change{Source: &row}
		})
	}
}

func change(t *testing.T, s *sourcedb.Store, n int, decide func(source.Snapshot) source.Change) {
	t.Helper()
	if err := s.Change(t.Context(), storetest.ID(n), source.Lookup{}, func(snap source.Snapshot) (source.Change, error) {
		return decide(snap), nil
	}); err != nil {
		t.Fatal(err)
	}
}

func see(t *testing.T, s *sourcedb.Store, n int) (snap source.Snapshot) {
	t.Helper()
	change(t, s, n, func(now source.Snapshot) source.Change {
		snap = now
		return source.Change{}
	})
	return snap
}

// start queues run n of source 1, and begins it.
func start(t *testing.T, s *sourcedb.Store, n int) {
	t.Helper()
	change(t, s, 1, func(snap source.Snapshot) source.Change {
		run := storetest.Log(n, 1, snap.Now)
		return source.Change{Insert: run, Job: storetest.Job(run)}
	})
	change(t, s, 1, func(snap source.Snapshot) source.Change {
		row, log := snap.Source, *snap.Open
		row.LastFence++
		log.Status, log.Token, log.Attempts = source.Running, storetest.Token(n), 1
		return source.Change{Source: &row, Update: &log, Lock: &source.LockRow{
			Owner: source.Owner(storetest.Token(1)), Token: log.Token, Fence: row.LastFence, Run: log.ID,
			Acquired: snap.Now, Renewed: snap.Now, Expires: snap.Now.Add(time.Minute),
		}}
	})
}

// end ends the open run of source 1.
func end(t *testing.T, s *sourcedb.Store) {
	t.Helper()
	change(t, s, 1, func(snap source.Snapshot) source.Change {
		log := *snap.Open
		log.Status, log.Token, log.EndedAt = source.Failed, source.Token{}, snap.Now
		return source.Change{Update: &log, Lock: &source.LockRow{Fence: snap.Lock.Fence}}
	})
}

// TestEveryStatementCompares: each statement that changes a row refuses by
// itself what was decided on a row that is another now, whatever else was
// compared before it.
func TestEveryStatementCompares(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		s, _ := w.open(t, sourcedb.Hooks{})
		enable(t, s, 1)
		start(t, s, 1)
		now := see(t, s, 1)
		row, log := now.Source, *now.Open
		free := &source.LockRow{Fence: now.Lock.Fence}
		for name, c := range map[string]struct {
			stale  func(*source.Snapshot)
			change source.Change
		}{
			"source version":            {func(s *source.Snapshot) { s.Source.Version-- }, source.Change{Source: &row}},
			"source version, otherwise": {func(s *source.Snapshot) { s.Source.Version++ }, source.Change{Lock: free}},
			"lock token":                {func(s *source.Snapshot) { s.Lock.Token = storetest.Token(9) }, source.Change{Lock: free}},
			"lock token, none":          {func(s *source.Snapshot) { s.Lock.Token = source.Token{} }, source.Change{Lock: free}},
			"lock fence":                {func(s *source.Snapshot) { s.Lock.Fence-- }, source.Change{Lock: free}},
			"lock expiry":               {func(s *source.Snapshot) { s.Lock.Expires = s.Lock.Expires.Add(-time.Second) }, source.Change{Lock: free}},
			"run version":               {func(s *source.Snapshot) { s.Open.Version-- }, source.Change{Update: &log}},
			"run token":                 {func(s *source.Snapshot) { s.Open.Token = storetest.Token(9) }, source.Change{Update: &log}},
			"run id":                    {func(s *source.Snapshot) { s.Open.ID = storetest.RunID(9) }, source.Change{Update: &log}},
		} {
			stale, open := now, *now.Open
			stale.Open = &open
			c.stale(&stale)
			if err := sourcedb.StoreStale(t.Context(), s, stale, c.change); !errors.Is(err, sourcedb.ErrMissed) {
				t.Errorf("%s: err = %v, want that the row is another", name, err)
			}
		}
		lower := row
		lower.LastFence = 0
		if err := sourcedb.StoreStale(t.Context(), s, now, source.Change{Source: &lower}); !errors.Is(err, sourcedb.ErrMissed) {
			t.Errorf("a lower fence: err = %v, want a refusal", err)
		}
		end(t, s)
		after := see(t, s, 1)
		after.Open = now.Open
		after.Open.Version, after.Open.Token = 3, source.Token{}
		if err := sourcedb.StoreStale(t.Context(), s, after, source.Change{Update: &log}); !errors.Is(err, sourcedb.ErrMissed) {
			t.Errorf("an ended log: err = %v, want a refusal", err)
		}
	})
}

// TestTheDatabaseRefusesByItself: constraints and triggers hold without this
// program's help.
func TestTheDatabaseRefusesByItself(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		s, db := w.open(t, sourcedb.Hooks{})
		enable(t, s, 1, 2)
		start(t, s, 1)
		end(t, s)
		start(t, s, 2)
		id := "'" + storetest.ID(1).String() + "'"
		other := "'" + storetest.ID(2).String() + "'"
		columns := `(id, source, revision, trigger_kind, trigger_id, announced, fence, version, status, token, queued_at, not_before, ended_at)`
		log := func(source, kind, fence, status, token, ended string) string {
			return `insert into source_runs ` + columns + ` values ('run_x', ` + source + `, 'r', '` + kind + `', 'x', '', '` + fence + `', 1, '` + status + `', '` + token + `', 1, 1, ` + ended + `)`
		}
		long := "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
		for name, query := range map[string]string{
			"an ended log that changes":        `update source_runs set reason = 'x' where ended_at <> 0`,
			"an ended log that is open again":  `update source_runs set status = 'queued', ended_at = 0 where ended_at <> 0`,
			"a second open log":                log(id, "push", long, "queued", "", "0"),
			"an unknown status":                log(other, "push", long, "done", "", "0"),
			"an unknown trigger":               log(other, "cron", long, "queued", "", "0"),
			"a short fence":                    log(other, "push", "abc", "queued", "", "0"),
			"a queued log with a token":        log(other, "push", long, "queued", "t", "0"),
			"a running log without a token":    log(other, "push", long, "running", "", "0"),
			"an ended log without an end":      log(other, "push", long, "failed", "", "0"),
			"an open log with an end":          log(other, "push", long, "queued", "", "5"),
			"a complete log without a head":    log(other, "push", long, "complete", "", "5"),
			"a log of no source":               log("'x'", "push", long, "queued", "", "0"),
			"a lock with a token and no owner": `update source_locks set token = 't', run = 'r', fence = 1, expires_at = 1 where source = ` + other,
			"a lock without an expiry":         `update source_locks set token = 't', run = 'r', owner = 'o', fence = 1 where source = ` + other,
			"a second lock":                    `insert into source_locks (source) values (` + id + `)`,
			"a second alert":                   `insert into source_alerts (source, code, subject, since, raised) values (` + id + `, 'x', 'x', 1, 1), (` + id + `, 'x', 'x', 2, 1)`,
			"a source that is half enabled":    `update sources set enabled = 2`,
			"an applied commit without a tree": `update sources set applied = 'x'`,
		} {
			err := db.Write(t.Context(), "break in", func(ctx context.Context, tx *store.Tx) error {
				_, err := tx.Exec(ctx, query)
				return err
			})
			if !errors.Is(err, store.ErrConstraint) {
				t.Errorf("%s: err = %v, want a constraint's refusal", name, err)
			}
		}
	})
}
