package main

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/app"
	"github.com/fencepost/fencepost/internal/config"
	"github.com/fencepost/fencepost/internal/store/pgtest"
	"github.com/fencepost/fencepost/ledger"
	"github.com/fencepost/fencepost/ledger/fileledger"
	"github.com/fencepost/fencepost/ledger/ledgertest"
)

// postgres is the server of this package's tests, if one asks for it. It is
// not fast: the program refuses a server without fsync.
var postgres pgtest.Server

// withPostgres stops the server when the tests have ended.
type withPostgres struct{ *testing.M }

func (w withPostgres) Run() int { return pgtest.Run(w.M, &postgres) }

// ledgerConfig is a configuration with a database.
const ledgerConfig = `version: 1
data_dir: DIR/data
database: env:STATE_URL
trust:
  acme:
    - {id: one, secret: "file:DIR/webhook"}
gates:
  docs:
    provider: github
    api: http://127.0.0.1:1
    git: http://127.0.0.1:1
    allow_http: true
    trust: acme
    app: {id: 1, installation: 2, key: "file:DIR/app.pem"}
    repository: {id: 1296269, owner_id: 1, name: acme/docs}
    base: refs/heads/main
    check: fencepost/docs
    plan:
      action: {url: "http://127.0.0.1:1/acme/checks.git", commit: 1234567890123456789012345678901234567890}
      program: bin/check
      sha256: 00000000000000000000000000000000000000000000000000000000000000ff
`

func TestMigrateCarriesRowsToPostgresAndBack(t *testing.T) {
	t.Parallel()
	dir, url := t.TempDir(), postgres.Database(t)
	file := filepath.Join(dir, "fencepost.yaml")
	if err := os.WriteFile(file, []byte(strings.ReplaceAll(ledgerConfig, "DIR", dir)), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "data"), 0o700); err != nil {
		t.Fatal(err)
	}
	var out, errs strings.Builder
	m := Main{Out: &out, Err: &errs, Now: time.Now, LookupEnv: func(name string) (string, bool) { return url, name == "STATE_URL" }}
	say := func(want int, answer any, args ...string) {
		t.Helper()
		out.Reset()
		errs.Reset()
		code := m.Run(context.WithoutCancel(t.Context()), append(append([]string{"ledger"}, args...), "--config", file))
		if code != want {
			t.Fatalf("%v: exit code %d, want %d: %s", args, code, want, &errs)
		}
		if answer == nil {
			return
		}
		if err := json.Unmarshal([]byte(out.String()), answer); err != nil {
			t.Fatalf("%v: %v in %q", args, err, &out)
		}
	}
	c, err := config.LoadWithoutSecrets(file)
	if err != nil {
		t.Fatal(err)
	}
	files := app.LedgerConfig(c, time.Now)
	files.Maintain = -1
	l, err := fileledger.Open(t.Context(), files)
	if err != nil {
		t.Fatal(err)
	}
	f := fillLedger(t, l, time.Now(), files.Window)
	rows, _ := still(t, l)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}

	var there, back moved
	var verified struct {
		OK bool `json:"ok"`
	}
	say(exitDone, &there, "migrate", "--from", "files", "--to", "database", "--json")
	if there.Rows != len(rows) {
		t.Errorf("%d rows went to the database, want %d", there.Rows, len(rows))
	}
	say(exitDone, &verified, "verify", "--at", "database", "--json")
	if !verified.OK {
		t.Errorf("verify of the database: %s", &out)
	}
	say(exitFailed, nil, "stat", "--at", "files")
	if !strings.Contains(errs.String(), ledger.ErrMoved.Error()) {
		t.Errorf("what was moved says %q", &errs)
	}
	if err := os.Rename(files.Dir, filepath.Join(dir, "before")); err != nil {
		t.Fatal(err)
	}
	say(exitDone, &back, "migrate", "--from", "database", "--to", "files", "--json")
	if back.Rows != there.Rows || back.Digest != there.Digest {
		t.Errorf("back came %+v, want %+v", back, there)
	}
	say(exitFailed, nil, "stat", "--at", "database")
	if !strings.Contains(errs.String(), ledger.ErrMoved.Error()) {
		t.Errorf("the database that it was moved from says %q", &errs)
	}

	got, _ := still(t, openLedger(t, files))
	if len(got) != len(rows) {
		t.Errorf("%d rows are back, want %d", len(got), len(rows))
	}
	for key, want := range rows {
		r := got[key]
		// Time went on since the rows were read.
		if r.RunningEnd > want.RunningEnd {
			t.Errorf("row %s ends %v from now, and %v when it left", key, r.RunningEnd, want.RunningEnd)
		}
		r.RunningEnd = want.RunningEnd
		if !r.Equal(want) {
			t.Errorf("row %s is %+v, want %+v", key, r, want)
		}
	}
	claim, err := openLedger(t, files).Claim(t.Context(), ledgertest.Deliver(t, ledgertest.Spec{ID: "new"}))
	if a, ok := claim.(fencepost.Acquired); err != nil || !ok || a.Lease.Fence().Uint64() <= f.fence {
		t.Errorf("a new claim is answered %+v, %v; want a fence above %d", claim, err, f.fence)
	}
}
