package jobs_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/fencepost/fencepost/internal/source"
	"github.com/fencepost/fencepost/internal/source/jobs"
)

// victimEnv makes a process of this test the victim of one: it names the
// database.
const victimEnv = "FENCEPOST_TEST_JOBS_VICTIM"

// thorough runs what takes longer than a test should.
var thorough = os.Getenv("FENCEPOST_THOROUGH") != ""

// TestVictim is a process that says when it leads, works, or carries out a
// round, and never ends.
func TestVictim(t *testing.T) {
	database := os.Getenv(victimEnv)
	if database == "" {
		t.Skip("this is the other process of TestKilled")
	}
	f := reach(t, database)
	say := func(word string) { fmt.Println(word) }
	err := f.queue(t).Run(t.Context(), map[string]jobs.Worker{"source.run": workerFunc(
		func(context.Context, source.JobPayload) (time.Time, error) {
			say("works")
			select {}
		},
	)}, []jobs.Periodic{tick(func() { say("leads") })})
	t.Fatalf("the victim ended: %v", err)
}

func tick(do func()) jobs.Periodic {
	return jobs.Periodic{Name: "reconcile", Every: time.Second, Timeout: time.Second, Run: func(context.Context) error {
		do()
		return nil
	}}
}

// reach opens a database by its path or URL.
func reach(t *testing.T, database string) fixture {
	t.Helper()
	if filepath.IsAbs(database) {
		f := sqliteFixture(t)
		f.DB = openSQLite(t, database)
		return f
	}
	return connect(t, database)
}

// victim starts the other process, and returns what kills it as nothing can
// be prepared for, once it has said all of the words.
func victim(t *testing.T, database string, words ...string) (kill func()) {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^TestVictim$", "-test.timeout=2m")
	cmd.Env = append(os.Environ(), victimEnv+"="+database)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var dead bool
	kill = func() {
		if dead {
			return
		}
		dead = true
		if err := cmd.Process.Kill(); err != nil {
			t.Error(err)
		}
		if err := cmd.Wait(); err == nil {
			t.Error("the victim ended by itself")
		}
	}
	t.Cleanup(kill)
	missing := map[string]bool{}
	for _, w := range words {
		missing[w] = true
	}
	for scan := bufio.NewScanner(out); len(missing) > 0 && scan.Scan(); {
		delete(missing, scan.Text())
	}
	if len(missing) > 0 {
		t.Fatalf("the victim ended before it said %v", missing)
	}
	return kill
}

// TestKilled kills a process that leads and works.
func TestKilled(t *testing.T) {
	t.Parallel()
	for name, database := range map[string]func(t *testing.T) string{
		"sqlite": func(t *testing.T) string { return filepath.Join(t.TempDir(), "jobs.db") },
		"postgres": func(t *testing.T) string {
			return postgres.Database(t)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			at := database(t)
			f := reach(t, at)
			f.migrate(t)
			f.Timeout, f.Rescue, f.Backoff = 2*time.Second, time.Second, 10*time.Millisecond
			q := f.queue(t)
			put(t, f, q, jobRow(1), jobRow(2))
			kill := victim(t, at, "leads", "works")
			kill()
			killed := time.Now()
			until(t, q, jobs.Depth{Running: 2})

			if f.Dialect == jobs.PostgreSQL && !thorough {
				// Its term is 15 s: shortened, so that the test is.
				if _, err := f.DB.ExecContext(t.Context(), `update river_leader set expires_at = now() + interval '1 second'`); err != nil {
					t.Fatal(err)
				}
			}
			age(t, f)
			r, rounds := newRecorder(), make(chan struct{}, 1000)
			run(t, q, r, tick(func() { rounds <- struct{}{} }))
			// What is put in again waits for nobody.
			put(t, f, q, jobRow(1))
			expect(t, r, jobRow(1))
			t.Logf("put in again: worked %v after the kill", time.Since(killed))
			next(t, rounds)
			t.Logf("periodic work went on %v after the kill", time.Since(killed))
			// What isn't is rescued.
			expect(t, r, jobRow(1), jobRow(2))
			t.Logf("rescued %v after the kill, when it was old enough at once", time.Since(killed))
			settled(t, q)
		})
	}
}

// age makes what runs as old as a rescue takes.
func age(t *testing.T, f fixture) {
	t.Helper()
	statement := `update river_job set attempted_at = datetime(attempted_at, 'subsec', '-1 hour') where state = 'running' and kind = 'fencepost_job'`
	if f.Dialect == jobs.PostgreSQL {
		statement = `update river_job set attempted_at = attempted_at - interval '1 hour' where state = 'running' and kind = 'fencepost_job'`
	}
	if _, err := f.DB.ExecContext(t.Context(), statement); err != nil {
		t.Fatal(err)
	}
}
