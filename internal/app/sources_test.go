package app

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost/internal/alert"
	"github.com/fencepost/fencepost/internal/config"
	"github.com/fencepost/fencepost/internal/store"
)

// sourceSettings are a configuration with a source whose provider is not
// there. Its arguments are the sink's path and the ref.
const sourceSettings = `version: 1
data_dir: data
listen: 127.0.0.1:0
ops_listen: 127.0.0.1:0
runner: {sandbox: best_effort}
alerts: {max_open: 5000}
trust:
  acme:
    - {id: one, secret: "file:secret"}
sources:
  handbook:
    id: 5a0e3a4e-6b0c-4f0e-9d7b-0c1f5f1c9a11
    provider: gitea
    api: http://127.0.0.1:1/api/v1
    git: http://127.0.0.1:1
    allow_http: true
    trust: acme
    repository: {id: 1296270, owner_id: 1, name: acme/handbook}
    ref: %[2]s
    any_writer: true
    credential: {anonymous: true}
    sink: {kind: directory, path: %[1]s}
`

// openSourced opens a controller of a source in dir.
func openSourced(t *testing.T, dir, served, ref string) (*App, error) {
	t.Helper()
	file := filepath.Join(dir, "fencepost.yaml")
	for name, text := range map[string]string{
		file: fmt.Sprintf(sourceSettings, served, ref), filepath.Join(dir, "secret"): hookSecret,
	} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c, err := config.Load(file, os.LookupEnv)
	if err != nil {
		t.Fatal(err)
	}
	return Open(t.Context(), Options{
		Config: c, LookupEnv: os.LookupEnv, Now: time.Now, Entry: entry, Log: slog.New(slog.DiscardHandler),
	})
}

// What the database has open is open here, however much of it there is.
func TestTheBookMirrorsAllAlertsOfSources(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	a, err := openSourced(t, dir, filepath.Join(dir, "site"), "refs/heads/main")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := a.Close(); err != nil {
			t.Error(err)
		}
	})
	const sources = 1200
	// In small transactions: one of all would take longer than one may, on a busy
	// machine.
	const batch = 60
	for first := 0; first < sources; first += batch {
		if err := a.sourcing.db.Write(t.Context(), "prepare test", func(ctx context.Context, tx *store.Tx) error {
			for i := first; i < first+batch; i++ {
				id := fmt.Sprintf("00000000-0000-4000-8000-%012d", i)
				for _, insert := range []string{
					`insert into sources (id, key, revision, enabled, version, registered_at, next_check) values (?, ?, '', 0, 1, 1, 1)`,
					`insert into source_locks (source) values (?)`,
					`insert into source_alerts (source, code, subject, since, raised) values (?, 'freshness', ?, 1, 1)`,
				} {
					args := []any{id, fmt.Sprintf("s%d", i)}
					if _, err := tx.Exec(ctx, insert, args[:strings.Count(insert, "?")]...); err != nil {
						return err
					}
				}
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	// One that nothing in the database stands for.
	if err := a.alerts.Raise(alert.Freshness, alert.SourceSubject("gone")); err != nil {
		t.Fatal(err)
	}
	open := func() (n int) {
		for _, al := range a.alerts.Alerts() {
			if key, ok := alert.SourceOf(al.Subject); ok && al.Status == alert.Open {
				n++
				if key == "gone" {
					t.Error("an alert is open here alone")
				}
			}
		}
		return n
	}
	for range 2 {
		a.sourcesWatched(t.Context())
		if n := open(); n != sources {
			t.Fatalf("%d alerts are open, want %d", n, sources)
		}
	}
}

// A start that is refused changes nothing: processes that have the policy of
// before go on with it.
func TestARefusedStartBringsNoPolicyIntoForce(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	a, err := openSourced(t, dir, filepath.Join(dir, "site"), "refs/heads/main")
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	revision := func() string {
		db, err := store.Open(t.Context(), store.Options{Path: filepath.Join(dir, "data", stateFile), Now: time.Now, Existing: true})
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		var text string
		if err := db.Read(t.Context(), "look", func(ctx context.Context, tx *store.Tx) error {
			_, err := tx.One(ctx, "select revision from sources", nil, &text)
			return err
		}); err != nil {
			t.Fatal(err)
		}
		return text
	}
	before := revision()
	if before == "" {
		t.Fatal("no policy is in force")
	}
	if a, err := openSourced(t, dir, filepath.Join(dir, "nowhere", "site"), "refs/heads/next"); err == nil {
		t.Fatal("a sink that can't work was taken", a.Close())
	}
	if after := revision(); after != before {
		t.Error("the policy of a start that was refused is in force")
	}
}

// Taking out the last source ends what is open of it, too.
func TestTheLastSourceCanBeTakenOut(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	a, err := openSourced(t, dir, filepath.Join(dir, "site"), "refs/heads/main")
	if err != nil {
		t.Fatal(err)
	}
	if err := a.alerts.Raise(alert.Freshness, alert.SourceSubject("handbook")); err != nil {
		t.Fatal(err)
	}
	if err := a.sourcing.db.Write(t.Context(), "prepare test", func(ctx context.Context, tx *store.Tx) error {
		_, err := tx.Exec(ctx, `insert into source_alerts (source, code, subject, since, raised)
			select id, 'freshness', key, 1, 1 from sources`)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "fencepost.yaml")
	without, _, _ := strings.Cut(sourceSettings, "sources:\n")
	if err := os.WriteFile(file, []byte(without), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := config.Load(file, os.LookupEnv)
	if err != nil {
		t.Fatal(err)
	}
	if a, err = Open(t.Context(), Options{
		Config: c, LookupEnv: os.LookupEnv, Now: time.Now, Entry: entry, Log: slog.New(slog.DiscardHandler),
	}); err != nil {
		t.Fatal(err)
	}
	for _, al := range a.alerts.Alerts() {
		if al.Status == alert.Open {
			t.Errorf("%s of %s is open", al.Code, al.Subject)
		}
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
}

// Start judges freshness before any other work: the time in which no process
// watched counts (DESIGN §10).
func TestAStartJudgesTheTimeInWhichNobodyWatched(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	served := filepath.Join(dir, "site")
	a, err := openSourced(t, dir, served, "refs/heads/main")
	if err != nil {
		t.Fatal(err)
	}
	hourAgo := store.Micros(time.Now().Add(-time.Hour))
	if err := a.sourcing.db.Write(t.Context(), "prepare test", func(ctx context.Context, tx *store.Tx) error {
		_, err := tx.Exec(ctx, `update sources set registered_at = ?, unmet_since = ?, version = version + 1`, hourAgo, hourAgo)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	// Opened, and not run: nothing else can have raised it.
	if a, err = openSourced(t, dir, served, "refs/heads/main"); err != nil {
		t.Fatal(err)
	}
	raised := false
	for _, al := range a.alerts.Alerts() {
		raised = raised || al.Code == alert.Freshness && al.Subject == alert.SourceSubject("handbook") && al.Status == alert.Open
	}
	if !raised {
		t.Error("the start raised no freshness alert for an hour without a process")
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
}
