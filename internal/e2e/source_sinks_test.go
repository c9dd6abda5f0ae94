package e2e

import (
	"database/sql"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	_ "modernc.org/sqlite"

	"github.com/fencepost/fencepost/internal/forgesim"
	"github.com/fencepost/fencepost/internal/source"
	"github.com/fencepost/fencepost/internal/trial/world"
)

// pushHandbook pushes a change and waits until its run has ended.
func pushHandbook(t *testing.T, w *world.World, files map[string]string) source.RunRow {
	t.Helper()
	// A push joins a run that has not ended, and then makes no further one.
	before, err := world.Await(t.Context(), time.Minute, func() ([]source.RunRow, bool, error) {
		_, runs, err := w.State(t.Context())
		return runs, err == nil && len(runs) > 0 && runs[0].Status.Ended(), err
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Handbook.Push(t.Context(), forgesim.Push{Change: forgesim.Change{Files: files}}); err != nil {
		t.Fatal(err)
	}
	run, err := world.Await(t.Context(), time.Minute, func() (source.RunRow, bool, error) {
		_, runs, err := w.State(t.Context())
		if err != nil || len(runs) <= len(before) || !runs[0].Status.Ended() {
			return source.RunRow{}, false, err
		}
		return runs[0], true, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return run
}

// firstRun waits for the run that a new source begins with.
func firstRun(t *testing.T, w *world.World) source.RunRow {
	t.Helper()
	run, err := world.Await(t.Context(), time.Minute, func() (source.RunRow, bool, error) {
		_, runs, err := w.State(t.Context())
		if err != nil || len(runs) == 0 || !runs[len(runs)-1].Status.Ended() {
			return source.RunRow{}, false, err
		}
		return runs[len(runs)-1], true, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return run
}

func TestRowsOfASource(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "rows.db")
	w := newWorld(t, world.Config{YAML: quick, Source: &world.SourceConfig{
		Repository: forgesim.Import{Files: map[string]string{"a": "one", "b": "two", "skip/c": "three"}},
		Sink:       fmt.Sprintf("{kind: rows, database: %q, table: handbook, text: utf8, max_row: 16B, exclude: [\"skip/**\"]}", file),
	}})
	if run := firstRun(t, w); run.Status != source.Complete || run.Counts.Added != 2 {
		t.Fatalf("the first run: %+v", run)
	}
	if run := pushHandbook(t, w, map[string]string{"a": "changed", "d": "four"}); run.Status != source.Complete || run.Counts.Added != 1 || run.Counts.Changed != 1 {
		t.Fatalf("after a push: %+v", run)
	}
	run := pushHandbook(t, w, map[string]string{"b": "far too large for a row", "e": "not text \xff"})
	if run.Status != source.Partial || len(run.Refused) != 2 {
		t.Fatalf("with rows that are refused: %+v", run)
	}
	db, err := sql.Open("sqlite", "file:"+file+"?mode=ro")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	var content string
	if err := db.QueryRowContext(t.Context(), "select content from handbook where path = 'a' and deleted_at is null").Scan(&content); err != nil || content != "changed" {
		t.Errorf("row a is %q, %v", content, err)
	}
}

func TestProgramOfASource(t *testing.T) {
	t.Parallel()
	var w *world.World
	config := world.Config{YAML: quick, Source: &world.SourceConfig{
		Repository: forgesim.Import{Files: map[string]string{"behaviour": "pass\n"}},
	}}
	config.SinkOf = func(w *world.World, commit, digest string) string {
		return fmt.Sprintf("{kind: program, plan: {action: {url: %q, commit: %q}, program: %s, sha256: %q, wall: 20s}}",
			w.Server.Git+"/"+w.Checks.FullName()+".git", commit, world.Program, digest)
	}
	w = newWorld(t, config)
	if run := firstRun(t, w); run.Status != source.Complete {
		t.Fatalf("the first run: %+v", run)
	}
	if run := pushHandbook(t, w, map[string]string{"behaviour": "block\n"}); run.Status != source.Failed || run.Reason != "refused" {
		t.Fatalf("a program that says no: %+v", run)
	}
	if s, _, err := w.State(t.Context()); err != nil || s.UnmetSince.IsZero() {
		t.Errorf("refused content counts as applied: %+v, %v", s.SourceRow, err)
	}
}
