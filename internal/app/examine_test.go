package app

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost/internal/config"
	"github.com/fencepost/fencepost/internal/doctor"
	"github.com/fencepost/fencepost/runner"
)

// examined is what is found of a configuration in a directory of its own, into
// which change may reach.
func examined(t *testing.T, change func(dir string, yaml *string), now time.Time) doctor.Report {
	t.Helper()
	dir, yaml := t.TempDir(), settings
	writeSecrets(t, dir)
	if err := os.Mkdir(filepath.Join(dir, "data"), 0o700); err != nil {
		t.Fatal(err)
	}
	change(dir, &yaml)
	file := filepath.Join(dir, "fencepost.yaml")
	if err := os.WriteFile(file, []byte(yaml), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := config.LoadWithoutSecrets(file)
	if err != nil {
		t.Fatal(err)
	}
	secrets, err := config.TrySecrets(file, os.LookupEnv)
	if err != nil {
		t.Fatal(err)
	}
	report, err := Examine(t.Context(), Options{
		Config: c, LookupEnv: os.LookupEnv, Now: func() time.Time { return now }, Log: slog.New(slog.DiscardHandler), Entry: entry,
	}, secrets)
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(report)
	if err != nil {
		t.Fatal(err)
	}
	for _, secret := range []string{hookSecret, readerToken, "PRIVATE KEY"} {
		if strings.Contains(string(text), secret) {
			t.Errorf("the report tells %q", secret)
		}
	}
	for _, c := range report.Checks {
		if (c.Status == doctor.Fail || c.Status == doctor.Warn) && c.Mend == "" {
			t.Errorf("%+v has no mend", c)
		}
	}
	return report
}

// status is what a check came to; "" where there is none.
func status(r doctor.Report, subject, name string) doctor.Status {
	i := slices.IndexFunc(r.Checks, func(c doctor.Check) bool { return c.Subject == subject && c.Name == name })
	if i < 0 {
		return ""
	}
	return r.Checks[i].Status
}

func TestWhatAnExaminationFinds(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	replace := func(old, by string) func(string, *string) {
		return func(_ string, yaml *string) {
			if !strings.Contains(*yaml, old) {
				t.Fatalf("the configuration has no %q", old)
			}
			*yaml = strings.Replace(*yaml, old, by, 1)
		}
	}
	key, published := publicKey(t, 0)
	pinned := fmt.Sprintf("    - {id: first, thumbprint: %s}\n", key.Thumbprint)
	instance := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(`{"keys":[` + published + `]}`))
	}))
	defer instance.Close()
	window := func(text string) func(string, *string) {
		return replace(`secret: "file:secret"}`, `secret: "file:secret", `+text+`}`)
	}
	for name, tc := range map[string]struct {
		change        func(dir string, yaml *string)
		subject, name string
		want          doctor.Status
	}{
		"the file":             {func(string, *string) {}, "configuration", "file", doctor.OK},
		"the file's warnings":  {replace("trust:\n", "trust:\n  unused:\n    - {id: one, secret: \"file:app.pem\"}\n"), "configuration", "warning", doctor.Warn},
		"a secret":             {func(string, *string) {}, "secret trust.acme[0].secret", "usable", doctor.OK},
		"a secret that is not": {func(dir string, _ *string) { ensure(t, os.Remove(filepath.Join(dir, "secret"))) }, "secret trust.acme[0].secret", "usable", doctor.Fail},
		"a short one": {func(dir string, _ *string) {
			ensure(t, os.WriteFile(filepath.Join(dir, "secret"), []byte("short"), 0o600))
		},
			"secret trust.acme[0].secret", "usable", doctor.Fail},
		"one for all to read": {func(dir string, _ *string) { ensure(t, os.Chmod(filepath.Join(dir, "secret"), 0o644)) }, "secret trust.acme[0].secret", "usable", doctor.Fail},
		"an App key that is none": {func(dir string, _ *string) {
			ensure(t, os.WriteFile(filepath.Join(dir, "app.pem"), []byte("no key"), 0o600))
		},
			"secret gates.docs.app.key", "usable", doctor.Fail},
		"a key for ever":               {func(string, *string) {}, "trust acme", "keys", doctor.OK},
		"a key for long":               {window("until: 2027-11-30T00:00:00Z"), "trust acme", "keys", doctor.OK},
		"a key for some days":          {window("until: 2026-12-05T00:00:00Z"), "trust acme", "keys", doctor.Warn},
		"a key that is over":           {window("until: 2026-11-05T00:00:00Z"), "trust acme", "keys", doctor.Fail},
		"a key that is not yet":        {window("from: 2026-12-05T00:00:00Z"), "trust acme", "keys", doctor.Fail},
		"no data directory":            {func(dir string, _ *string) { ensure(t, os.Remove(filepath.Join(dir, "data"))) }, "data_dir", "place", doctor.Skipped},
		"a data directory in nowhere":  {replace("data_dir: data", "data_dir: nowhere/data"), "data_dir", "place", doctor.Warn},
		"a data directory for all":     {func(dir string, _ *string) { ensure(t, os.Chmod(filepath.Join(dir, "data"), 0o755)) }, "data_dir", "owner and mode", doctor.Fail},
		"a data directory of others":   {func(dir string, _ *string) { ensure(t, os.WriteFile(filepath.Join(dir, "data", "x"), nil, 0o600)) }, "data_dir", "ours", doctor.Fail},
		"a data directory that is not": {replace("data_dir: data", "data_dir: secret"), "data_dir", "place", doctor.Fail},
		"no ledger yet":                {func(string, *string) {}, "ledger", "rows", doctor.Skipped},
		"a damaged ledger": {func(dir string, _ *string) {
			ensure(t, os.Mkdir(filepath.Join(dir, "data", "ledger"), 0o700))
			ensure(t, os.WriteFile(filepath.Join(dir, "data", "ledger", "x"), []byte("x"), 0o600))
		}, "ledger", "rows", doctor.Fail},
		"a provider that is away": {func(string, *string) {}, "provider 127.0.0.1:1", "reach", doctor.Fail},
		"a gate of it":            {func(string, *string) {}, "gate docs", "app", doctor.Fail},
		"an Alertmanager that is away": {func(_ string, yaml *string) {
			*yaml += "alerts: {alertmanager: \"http://127.0.0.1:1\", allow_http: true}\n"
		}, "alertmanager", "reach", doctor.Fail},
		"the keys of an instance that is away": {func(_ string, yaml *string) {
			*yaml = withJobGate("http://127.0.0.1:1", pinned)
		}, "trust jobs", "issuer.keys", doctor.Fail},
		"the keys of an instance": {func(_ string, yaml *string) {
			*yaml = withJobGate(instance.URL, pinned)
		}, "trust jobs", "issuer.keys", doctor.OK},
		"a key of it that is pinned": {func(_ string, yaml *string) {
			*yaml = withJobGate(instance.URL, pinned)
		}, "trust jobs", "issuer.key", doctor.OK},
		"a key of it that is not": {func(_ string, yaml *string) {
			*yaml = withJobGate(instance.URL, "    - {id: first, thumbprint: NzbLsXh8uDCcd-6MNwXF4W_7noWXFZAfHkxZsRGC9Xs}\n")
		}, "trust jobs", "issuer.trust", doctor.Fail},
		"a database that is away": {func(_ string, yaml *string) {
			*yaml += "database: \"postgres://nobody:" + "pass" + "@127.0.0.1:1/none?sslmode=disable\"\n"
		}, "database", "open", doctor.Fail},
	} {
		r := examined(t, tc.change, now)
		if got := status(r, tc.subject, tc.name); got != tc.want {
			t.Errorf("%s: %s of %s is %q, want %q; in\n%+v", name, tc.name, tc.subject, got, tc.want, r.Checks)
		}
	}
}

// TestAnExaminationOfASandbox names each protection that the machine lacks: as
// a failure only where the configuration can't do without.
func TestAnExaminationOfASandbox(t *testing.T) {
	t.Parallel()
	for mode, want := range map[string]doctor.Status{"required": doctor.Fail, "best_effort": doctor.Warn} {
		a := &App{Options: Options{Config: &config.Config{DataDir: t.TempDir()}, Now: time.Now, Entry: entry}}
		a.Config.Runner.Sandbox = mode
		for _, c := range a.examineSandbox(t.Context(), false) {
			if c.Status != doctor.OK && c.Status != want || c.Status != doctor.OK && !strings.HasPrefix(c.Name, "sandbox.") {
				t.Errorf("%s: %+v", mode, c)
			}
		}
		ensure(t, a.Close())
	}
	a := &App{Options: Options{Config: &config.Config{DataDir: t.TempDir()}, Now: time.Now, Entry: runner.Entry{}}}
	if got := a.examineSandbox(t.Context(), false); len(got) != 1 || got[0].Status != doctor.Fail {
		t.Errorf("without an entry: %+v", got)
	}
	ensure(t, a.Close())
}

func ensure(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
