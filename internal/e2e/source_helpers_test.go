package e2e

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/forgesim"
	"github.com/fencepost/fencepost/internal/source"
	"github.com/fencepost/fencepost/internal/source/sourcedb"
	"github.com/fencepost/fencepost/internal/store"
	"github.com/fencepost/fencepost/internal/trial/world"
)

// convergeWithin bounds how long a source may take to be what its branch is,
// on a busy machine, restarts and the recovery of dead workers included.
const convergeWithin = 120 * time.Second

// swift are timings of seconds instead of minutes. What bounds work is longer
// than a busy machine needs for it.
const swift = "{target: 5m, alert_after: 30s, reconcile: 2s, observe: 5s, queue_age: 2s, lease: 4s, renew: 1s, " +
	"checkout: 20s, sink: 20s, attempts: 2, backoff: 200ms, evaluate: 500ms}"

// newField makes a field whose controllers run.
func newField(t testing.TB, config world.FieldConfig) *world.Field {
	t.Helper()
	f := fallowField(t, config)
	var starts sync.WaitGroup
	for _, c := range f.Controllers {
		starts.Go(func() {
			// The process outlives the test's context: cleanup stops it.
			if _, err := c.Start(context.Background()); err != nil {
				t.Error(err)
			}
		})
	}
	starts.Wait()
	if t.Failed() {
		t.FailNow()
	}
	return f
}

// fallowField makes a field whose controllers are not started.
func fallowField(t testing.TB, config world.FieldConfig) *world.Field {
	t.Helper()
	config.Binary, config.Now, config.Dir = fencepostBinary, time.Now, t.TempDir()
	if config.Timings == "" {
		config.Timings = swift
	}
	// Whoever dies at a look has claimed its batch for as long as all of it may
	// take.
	if config.YAML == "" {
		config.YAML = "source_work: {batch: 16}\n"
	}
	f, err := world.NewField(context.Background(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			for _, c := range f.Controllers {
				dumpLog(t, c.Log)
			}
		}
	})
	return f
}

// handbook is a field of one source, of branch main of one repository.
func handbook(config world.FieldConfig) world.FieldConfig {
	config.Repositories = map[string]forgesim.Import{"handbook": {Files: edition(0)}}
	if config.Sources == nil {
		config.Sources = []world.FieldSource{{Key: "handbook", Repository: "handbook"}}
	}
	return config
}

// edition is content that says in each of its files which one it is, so that a
// mixture shows.
func edition(n int) map[string]string {
	text := fmt.Sprintf("edition %d\n", n)
	return map[string]string{
		"README.md": text, "docs/a.md": text + "a\n", "docs/deep/b.md": text + "b\n", "bin/run": "#!/bin/sh\necho " + text,
	}
}

func pushEdition(t testing.TB, f *world.Field, n int) string {
	t.Helper()
	return pushTo(t, f, forgesim.Push{Change: forgesim.Change{Files: edition(n), Modes: map[string]string{"bin/run": "100755"}}})
}

func pushTo(t testing.TB, f *world.Field, p forgesim.Push) string {
	t.Helper()
	commit, err := f.Repositories["handbook"].Push(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	return commit
}

// A tree is what stands at each path: its mode for Git, a space, its bytes.
type tree map[string]string

// digest names a tree.
func (tr tree) digest() string {
	h := sha256.New()
	for _, path := range slices.Sorted(maps.Keys(tr)) {
		fmt.Fprintf(h, "%d %s%d %s", len(path), path, len(tr[path]), tr[path])
	}
	return hex.EncodeToString(h.Sum(nil))
}

// committed is the tree of a commit as Git itself has it.
func committed(ctx context.Context, gitDir, commit string) (tree, error) {
	cmd := exec.CommandContext(ctx, "git", "--git-dir", gitDir, "-c", "tar.umask=0", "archive", "--format=tar", commit)
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null")
	var text bytes.Buffer
	cmd.Stderr = &text
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("git archive %s: %w: %s", commit, err, &text)
	}
	tr := tree{}
	archive := tar.NewReader(bytes.NewReader(out))
	for {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return tr, nil
		}
		if err != nil {
			return nil, err
		}
		if h.Typeflag != tar.TypeReg {
			continue
		}
		data, err := io.ReadAll(archive)
		if err != nil {
			return nil, err
		}
		tr[h.Name] = gitMode(fs.FileMode(h.Mode)) + " " + string(data)
	}
}

func gitMode(m fs.FileMode) string {
	if m&0o100 != 0 {
		return "100755"
	}
	return "100644"
}

// served is the tree that a reader finds who opens the link once.
func served(link string) (target string, tr tree, err error) {
	root, err := filepath.EvalSymlinks(link)
	if err != nil {
		return "", nil, err
	}
	tr = tree{}
	err = filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		if !info.Mode().IsRegular() {
			return fmt.Errorf("%s is %s", d.Name(), info.Mode())
		}
		data, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		path, err := filepath.Rel(root, name)
		tr[filepath.ToSlash(path)] = gitMode(info.Mode()) + " " + string(data)
		return err
	})
	return root, tr, err
}

// wantServed holds what is served against what Git has, byte for byte.
func wantServed(t *testing.T, f *world.Field, key, commit string) {
	t.Helper()
	var repository string
	for _, s := range f.Sources {
		if s.Key == key {
			repository = s.Repository
		}
	}
	want, err := committed(t.Context(), f.Repositories[repository].GitDir(), commit)
	if err != nil {
		t.Fatal(err)
	}
	_, got, err := served(f.Served(key))
	if err != nil {
		t.Errorf("%s: %v", key, err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s is not what %.7s is (-want +got):\n%s", key, commit, diff)
	}
}

// A ledger looks at what the controllers of a field keep.
type ledger struct {
	t    testing.TB
	db   *store.DB
	rows *sourcedb.Store
}

func lookInto(t testing.TB, f *world.Field) ledger {
	t.Helper()
	db, err := f.Database(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return ledger{t: t, db: db, rows: sourcedb.New(db, nil, sourcedb.Hooks{})}
}

// states are those of all sources by key.
func (l ledger) states() map[string]sourcedb.State {
	l.t.Helper()
	all, err := l.rows.Sources(l.t.Context(), "")
	if err != nil {
		l.t.Fatal(err)
	}
	states := map[string]sourcedb.State{}
	for _, s := range all.Sources {
		states[string(s.Key)] = s
	}
	return states
}

func (l ledger) state(key string) sourcedb.State {
	l.t.Helper()
	return l.states()[key]
}

// runs are those of a source, the newest first.
func (l ledger) runs(key string) []source.RunRow {
	l.t.Helper()
	runs, err := l.rows.Runs(l.t.Context(), sourcedb.RunFilter{Source: l.state(key).ID}, sourcedb.MaxListed)
	if err != nil {
		l.t.Fatal(err)
	}
	return runs
}

// count is the number that a query gives.
func (l ledger) count(query string) (n int64) {
	l.t.Helper()
	if err := l.db.Reader().QueryRowContext(l.t.Context(), query).Scan(&n); err != nil {
		l.t.Fatalf("%s: %v", query, err)
	}
	return n
}

// await waits until a look finds what it looks for.
func await(t testing.TB, what string, look func() bool) {
	t.Helper()
	if _, err := world.Await(t.Context(), convergeWithin, func() (struct{}, bool, error) {
		return struct{}{}, look(), nil
	}); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

// awaitApplied waits until a source has a commit, and has nothing open.
func (l ledger) awaitApplied(key, commit string) sourcedb.State {
	l.t.Helper()
	want, err := fencepost.ParseCommitID(commit)
	if err != nil {
		l.t.Fatal(err)
	}
	var s sourcedb.State
	if _, err := world.Await(l.t.Context(), convergeWithin, func() (struct{}, bool, error) {
		s = l.state(key)
		return struct{}{}, s.Applied == want && s.Run == nil && !s.FollowUp, nil
	}); err != nil {
		l.t.Fatalf("%s has %s, want %s with nothing open: %v; its runs: %s", key, s.Applied, want, err, l.story(key))
	}
	return s
}

// awaitQuiet waits until nobody looks at a source with calm timings, nor will
// soon: the next requests are those of a run.
func (l ledger) awaitQuiet(key string) {
	l.t.Helper()
	await(l.t, "nobody looks at "+key, func() bool {
		s, now := l.state(key), time.Now()
		return s.Run == nil && !s.Applied.IsZero() && s.CheckUntil.Before(now) && s.NextCheck.After(now.Add(time.Minute))
	})
}

// awaitEnd waits until a run that was queued after a moment has ended as
// wanted, and returns it.
func (l ledger) awaitEnd(key string, after time.Time, want source.Status, why fencepost.Reason) source.RunRow {
	l.t.Helper()
	run, err := world.Await(l.t.Context(), convergeWithin, func() (source.RunRow, bool, error) {
		for _, r := range l.runs(key) {
			if r.QueuedAt.After(after) && r.Status == want && r.Reason == why {
				return r, true, nil
			}
		}
		return source.RunRow{}, false, nil
	})
	if err != nil {
		l.t.Fatalf("no run of %s ended %s (%s): %v; its runs: %s", key, want, why, err, l.story(key))
	}
	return run
}

func (l ledger) awaitAlert(key string, code source.AlertCode, open bool) {
	l.t.Helper()
	await(l.t, fmt.Sprintf("alert %s of %s open: %t", code, key, open), func() bool {
		return slices.ContainsFunc(l.state(key).Alerts, func(a sourcedb.Alert) bool { return a.Code == code }) == open
	})
}

// story tells the last runs of a source.
func (l ledger) story(key string) string {
	var b strings.Builder
	runs := l.runs(key)
	for _, r := range runs[:min(len(runs), 12)] {
		fmt.Fprintf(&b, "\n  %s by %s %.20s: %s %s %s, %d attempts, head %.7s", r.QueuedAt.Format("05.000"), r.Trigger.Kind, r.Trigger.ID,
			r.Status, r.Reason, r.Detail, r.Attempts, r.Head)
	}
	return b.String()
}

// wantSound holds what was written down against what must be true of every
// history.
func (l ledger) wantSound() {
	l.t.Helper()
	for what, query := range map[string]string{
		"releases with more than one follow-up": `select count(*) from (select source, trigger_id from source_runs
			where trigger_kind = 'follow_up' group by source, trigger_id having count(*) > 1) as more`,
		"follow-ups of a run that has not ended": `select count(*) from source_runs f join source_runs r on r.id = f.trigger_id
			where f.trigger_kind = 'follow_up' and r.ended_at = 0`,
		"runs recovered more than once": `select count(*) from (select recovers from source_runs
			where recovers <> '' group by recovers having count(*) > 1) as more`,
		"runs that began before the one before them ended": `select count(*) from source_runs a join source_runs b
			on a.source = b.source and a.id <> b.id
			where a.started_at <> 0 and b.started_at <> 0 and a.started_at <= b.started_at
			and (a.ended_at = 0 or a.ended_at > b.started_at) and (a.started_at < b.started_at or a.id < b.id)`,
		"bodies with more than one delivery": `select count(*) from (select namespace, body from source_deliveries
			group by namespace, body having count(*) > 1) as more`,
	} {
		if n := l.count(query); n != 0 {
			l.t.Errorf("%d %s", n, what)
		}
	}
}

// deliverTo sends what waits in the outbox of a field with manual delivery to
// a URL, and returns the answers.
func deliverTo(t *testing.T, f *world.Field, to string) (answers []world.Answer) {
	t.Helper()
	for _, d := range f.Forge.TakeOutbox() {
		req, err := f.Forge.Request(t.Context(), d, to)
		if err != nil {
			t.Fatal(err)
		}
		_, a := exchange(t, f, req)
		answers = append(answers, a)
	}
	return answers
}

// exchange sends a request and reads the answer.
func exchange(t *testing.T, f *world.Field, req *http.Request) (int, world.Answer) {
	t.Helper()
	resp, err := f.Client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, 1<<16))
	if err != nil {
		t.Fatal(err)
	}
	a, err := world.ReadAnswer(text)
	if err != nil {
		t.Fatalf("%d %q: %v", resp.StatusCode, text, err)
	}
	return resp.StatusCode, a
}
