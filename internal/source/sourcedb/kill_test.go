package sourcedb_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost/internal/source"
	"github.com/fencepost/fencepost/internal/source/sourcedb"
	"github.com/fencepost/fencepost/internal/source/storetest"
	"github.com/fencepost/fencepost/internal/store"
)

// victimEnv makes this test's binary the process that is killed: it names the
// database.
const victimEnv = "FENCEPOST_TEST_SOURCEDB_VICTIM"

// victim makes runs and ends them for ever, and says on its output which ones
// it was told are stored.
func victim(path string) int {
	ctx := context.Background()
	db, err := store.Open(ctx, store.Options{Path: path, Now: time.Now})
	if err != nil {
		fmt.Println("error", err)
		return 1
	}
	s := sourcedb.New(db, &storetest.Queue{}, sourcedb.Hooks{})
	first, err := strconv.Atoi(os.Getenv(victimEnv + "_FROM"))
	for n := first; err == nil; n++ {
		err = s.Change(ctx, storetest.ID(1), source.Lookup{}, func(snap source.Snapshot) (source.Change, error) {
			// As one step: the end of the run before, a new one with its job and
			// delivery, an alert.
			row := snap.Source
			row.Announcements++
			run := storetest.Log(n, 1, snap.Now)
			d := storetest.Delivery(n, 1, storetest.Commit(n))
			d.Run, d.Received = run.ID, snap.Now
			c := source.Change{Source: &row, Insert: run, Job: storetest.Job(run), Delivery: &d}
			if snap.Open != nil {
				ended := *snap.Open
				ended.Status, ended.EndedAt = source.Failed, snap.Now
				c.Update = &ended
			}
			return c, nil
		})
		if err == nil {
			fmt.Println("stored", n)
		}
	}
	fmt.Println("error", err)
	return 1
}

// TestKilledBetweenStatements: whatever moment a process is killed at, what it
// was told is there, and of each change all or nothing.
func TestKilledBetweenStatements(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "test.db")
	db, err := store.Open(t.Context(), store.Options{Path: path, Now: time.Now})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	s := sourcedb.New(db, &storetest.Queue{}, sourcedb.Hooks{})
	if err := db.Write(t.Context(), "prepare test", func(ctx context.Context, tx *store.Tx) error {
		_, err := tx.Exec(ctx, storetest.QueueTable)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	enable(t, s, 1)
	next := 1
	for kill := range 5 {
		acknowledged := killed(t, path, next, 3+7*kill)
		snap := see(t, s, 1)
		stored := int(snap.Source.Announcements)
		if stored != acknowledged && stored != acknowledged+1 {
			t.Fatalf("kill %d: %d changes are there, %d were acknowledged", kill, stored, acknowledged)
		}
		if snap.Open == nil || snap.Open.ID != storetest.RunID(stored) {
			t.Fatalf("kill %d: open %v after %d changes", kill, snap.Open, stored)
		}
		want := map[string]int64{
			"source_runs": int64(stored), "source_deliveries": int64(stored), "source_jobs": int64(stored), "test_queue": int64(stored),
			"source_runs where status = 'queued'": 1,
		}
		for what, n := range want {
			if got := count(t, db, what); got != n {
				t.Errorf("kill %d: %d of %s, want %d", kill, got, what, n)
			}
		}
		next = stored + 1
	}
}

// killed runs a victim from change first on, kills it once it has stored some,
// and returns the last change that it was told is stored.
func killed(t *testing.T, path string, first, some int) (last int) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self, "-test.run=^$")
	cmd.Env = append(os.Environ(), victimEnv+"="+path, victimEnv+"_FROM="+strconv.Itoa(first))
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for lines := bufio.NewScanner(out); lines.Scan(); {
		rest, ok := strings.CutPrefix(lines.Text(), "stored ")
		n, err := strconv.Atoi(rest)
		if !ok || err != nil {
			t.Errorf("the victim says %q", lines.Text())
			break
		}
		if last = n; last == first+some {
			// It goes on meanwhile: the kill comes anywhere in a change.
			if err := cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := cmd.Wait(); err == nil || cmd.ProcessState.ExitCode() != -1 {
		t.Fatalf("the victim ended by itself: %v", err)
	}
	return last
}

func count(t *testing.T, db *store.DB, what string) (n int64) {
	t.Helper()
	if err := db.Read(t.Context(), "count", func(ctx context.Context, tx *store.Tx) error {
		_, err := tx.One(ctx, "select count(*) from "+what, nil, &n)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return n
}
