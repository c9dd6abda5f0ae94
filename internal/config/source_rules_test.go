package config

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fencepost/fencepost"
)

// withTimings is sourced with a timings section in line 16.
func withTimings(t testing.TB, timings string) string {
	t.Helper()
	return sourceLine(t, sinkLine, "    timings: {"+timings+"}\n    "+sinkLine+"\n")
}

func TestTimingsMustKeepTheTarget(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, timings string
		want          string
	}{
		{"neither sum", "alert_after: 14m", "f.yaml:16:5: sources.handbook.timings: the freshness target of 14m0s is kept neither by the path to complete, " +
			"reconcile 2m0s + observe 8×10s + queue_age 3×30s + checkout 3×1m0s + sink 3×2m0s + backoff 10s + backoff 20s + lease 1m0s + evaluate 30s = 15m50s, " +
			"nor by the path to the alert, observe 10s + alert_after 14m0s + evaluate 30s = 14m40s; shorten alert_after or evaluate"},
		{"a shorter target", "target: 13m", "f.yaml:16:5: sources.handbook.timings: the freshness target of 13m0s is kept neither"},
		{"a target over the promise", "target: 15m", "f.yaml:16:15: sources.handbook.timings.target: must be 100ms to 14m, is 15m"},
		{"an alert in every pause", "alert_after: 140s", "f.yaml:16:15: sources.handbook.timings.alert_after: must be more than timings.reconcile and two timings.observe (2m20s), or every pause raises the alert; is 2m20s"},
		{"renewals too far apart", "lease: 30s", "sources.handbook.timings.renew: must be at most half of timings.lease (15s), is 20s"},
		{"no attempt", "attempts: 0", "f.yaml:16:15: sources.handbook.timings.attempts: must be 1 to 10, is 0"},
		{"a duration without a unit", "sink: 90", "f.yaml:16:15: sources.handbook.timings.sink: must be a duration with a unit"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, err := Parse("f.yaml", []byte(withTimings(t, tt.timings)))
			wantFaults(t, err, []string{tt.want})
		})
	}
}

func TestTimingsThatKeepTheTargetAreTaken(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, timings string
		// warning is the beginning of the one that is wanted.
		warning string
	}{
		{"by the alert", "sink: 10m, attempts: 1, alert_after: 13m20s", "f.yaml:16:5: sources.handbook.timings: lets one attempt take 14m10s after a lost webhook, which is more than alert_after (13m20s)"},
		{"by the path to complete alone", "attempts: 2, alert_after: 14m", "f.yaml:16:5: sources.handbook.timings: keeps the freshness target of 14m0s by the path to complete alone (11m40s); the path to the alert takes 14m40s"},
		{"by both", "attempts: 2", ""},
		{"scaled down", "target: 8400ms, alert_after: 7800ms, reconcile: 1200ms, observe: 100ms, queue_age: 300ms, lease: 600ms, renew: 200ms, checkout: 600ms, sink: 1200ms, backoff: 100ms, evaluate: 300ms", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c, err := Parse("f.yaml", []byte(withTimings(t, tt.timings)))
			if err != nil {
				t.Fatal(err)
			}
			if err := c.Sources[0].Timings.Validate(); err != nil {
				t.Errorf("taken, and not valid: %v", err)
			}
			wantWarning(t, c, tt.warning)
		})
	}
}

// wantWarning holds the warnings against the one that is wanted; empty for
// none.
func wantWarning(t *testing.T, c *Config, want string) {
	t.Helper()
	if want == "" && len(c.Warnings) == 0 {
		return
	}
	if want == "" || len(c.Warnings) != 1 || !strings.HasPrefix(c.Warnings[0], want) {
		t.Errorf("warnings = %q, want %q", c.Warnings, want)
	}
}

func TestWarningsOfSources(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, text, want string }{
		{"hosts that nothing leads to", sourceLine(t, "provider: github", "    provider: github\n    hosts: [\"https://a.example.org\"]\n"), "f.yaml:10:5: sources.handbook.hosts: has no effect while fetch.redirects is 0"},
		{"a password in the file", sourceLine(t, sinkLine, "    sink: {kind: rows, table: t, database: \"postgres://me:hunter2@db.example.org/rows\"}\n"), "f.yaml:16:34: sources.handbook.sink.database: holds a password"},
		{"a password in a parameter", edit(t, sourced, "data_dir: ./data", "data_dir: ./data\ndatabase: \"postgres://db.example.org/fencepost?user=me&password=hunter2\""), "f.yaml:3:1: database: holds a password"},
		{"a URL without one", edit(t, sourced, "data_dir: ./data", "data_dir: ./data\ndatabase: \"postgres://me@db.example.org/fencepost\""), ""},
		{"no gates", sourced, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c, err := Parse("f.yaml", []byte(tt.text))
			if err != nil {
				t.Fatal(err)
			}
			wantWarning(t, c, tt.want)
			if strings.Contains(fmt.Sprintf("%+v %#v %s", *c, *c, c.Warnings), "hunter2") {
				t.Error("the password is printed")
			}
		})
	}
}

// beside is sourced with a second source that differs in key, id and
// repository, and has the given sink.
func beside(t testing.TB, first, second string) string {
	t.Helper()
	a := sourceLine(t, sinkLine, "    sink: "+first+"\n")
	b := sourceLine(t, sinkLine, "    sink: "+second+"\n")
	b = b[strings.Index(b, "  handbook:"):]
	return a + strings.NewReplacer("  handbook:", "  zweitens:", "9a11", "9a99", "1296270", "1296271", "acme/handbook", "acme/zweitens").Replace(b)
}

func TestSinksAreApart(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, first, second string
		want                string
	}{
		{"the same directory", "{kind: directory, path: /srv/a}", "{kind: directory, path: /srv/x/../a}", "f.yaml:26:29: sources.zweitens.sink.path: is the place of sources.handbook.sink too"},
		{"one inside the other", "{kind: directory, path: /srv/a}", "{kind: directory, path: /srv/a/b}", "f.yaml:26:29: sources.zweitens.sink.path: lies inside that of sources.handbook.sink"},
		{"the other way", "{kind: directory, path: /srv/a/b}", "{kind: directory, path: /srv/a}", "f.yaml:16:29: sources.handbook.sink.path: lies inside that of sources.zweitens.sink"},
		{"one in the trees of the other", "{kind: directory, path: /srv/a}", "{kind: directory, path: /srv/.a.fencepost/b}", "sources.zweitens.sink.path: lies inside that of sources.handbook.sink"},
		{"names that begin alike", "{kind: directory, path: /srv/a}", "{kind: directory, path: /srv/a-b}", ""},
		{"a database in a directory", "{kind: directory, path: /srv/a}", "{kind: rows, table: t, database: /srv/a/rows.db}", "f.yaml:26:34: sources.zweitens.sink.database: lies inside that of sources.handbook.sink"},
		{"a database at the place of a directory", "{kind: directory, path: /srv/a}", "{kind: rows, table: t, database: /srv/a}", "sources.zweitens.sink.database: is the place of sources.handbook.sink too"},
		{"one table", "{kind: rows, table: t, database: /srv/a.db}", "{kind: rows, table: t, database: /srv/./a.db}", "f.yaml:26:24: sources.zweitens.sink.table: is the table of sources.handbook.sink too"},
		{"two tables of one file", "{kind: rows, table: t, database: /srv/a.db}", "{kind: rows, table: u, database: /srv/a.db}", ""},
		{"one table of one server, written in two ways", `{kind: rows, table: t, database: "postgres://a:b@db.example.org/x?sslmode=require"}`, `{kind: rows, table: t, database: "postgresql://DB.example.org:5432/x"}`, "sources.zweitens.sink.table: is the table of sources.handbook.sink too"},
		{"one table in two schemas", `{kind: rows, table: t, database: "postgres://db.example.org/x?search_path=a"}`, `{kind: rows, table: t, database: "postgres://db.example.org/x?search_path=b"}`, ""},
		{"one table by one reference", "{kind: rows, table: t, database: env:R}", "{kind: rows, table: t, database: env:R}", "sources.zweitens.sink.table: is the table of sources.handbook.sink too"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, err := Parse("f.yaml", []byte(beside(t, tt.first, tt.second)))
			if tt.want == "" {
				if err != nil {
					t.Fatal(err)
				}
				return
			}
			wantFaults(t, err, []string{tt.want})
		})
	}
}

func TestSourcesAndGatesShareNoRouteAndContradictNoRepository(t *testing.T) {
	t.Parallel()
	both := whole + sourced[strings.Index(sourced, "sources:"):]
	if _, err := Parse("f.yaml", []byte(both)); err != nil {
		t.Fatal(err)
	}
	tests := []struct{ name, text, want string }{
		{"route", edit(t, both, "  handbook:", "  docs:"), "f.yaml:20:3: sources.docs: is the name of a gate too (line 7), and would have its webhook URL"},
		{"id of two sources", sourced + edit(t, rowsSource, "9a12", "9a11"), "f.yaml:7:3: sources.handbook.id: is the id of sources.courses too"},
		{"repository id of a gate", edit(t, both, "id: 1296270", "id: 1296269"), "f.yaml:24:5: sources.handbook.repository: has the id of another gate's or source's repository"},
		{"repository name of a gate", edit(t, both, "acme/handbook", "acme/docs"), "f.yaml:24:5: sources.handbook.repository: has the name of another gate's or source's repository"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if _, err := Parse("f.yaml", []byte(tt.text)); err == nil || !strings.Contains(err.Error(), strings.TrimPrefix(tt.want, "f.yaml:7:3: ")) {
				t.Fatalf("err = %v, want %s", err, tt.want)
			}
		})
	}
	t.Run("a source may read a gate's repository", func(t *testing.T) {
		t.Parallel()
		if _, err := Parse("f.yaml", []byte(edit(t, edit(t, both, "id: 1296270", "id: 1296269"), "acme/handbook", "acme/docs"))); err != nil {
			t.Fatal(err)
		}
	})
}

func TestLoadTriesTheSecretsOfSources(t *testing.T) {
	t.Parallel()
	const url = "postgres://me:hunter2@db.example.org/rows"
	text := beside(t, "{kind: rows, table: t, database: env:ONE}", "{kind: rows, table: t, database: env:TWO}")
	text = strings.ReplaceAll(text, credential, "credential: {token: env:TOKEN}")
	text = edit(t, text, "file:secrets/acme", "env:ACME")
	withOwn := edit(t, text, "data_dir: ./data", "data_dir: ./data\ndatabase: env:OWN")
	env := map[string]string{
		"ACME": "0123456789abcdef", "TOKEN": "token-hunter2", "ONE": url, "TWO": "postgres://db.example.org/other", "OWN": "postgres://db.example.org/own",
	}
	tests := []struct {
		name, text string
		set        map[string]string
		want       []string
	}{
		{"all there", withOwn, nil, nil},
		{"no token", text, map[string]string{"TOKEN": ""}, []string{"sources.handbook.credential.token: env:TOKEN: it is empty", "sources.zweitens.credential.token: env:TOKEN: it is empty"}},
		{"no URL", text, map[string]string{"ONE": "hunter2"}, []string{"sources.handbook.sink.database: env:ONE: must be a PostgreSQL URL"}},
		{"another scheme", text, map[string]string{"ONE": "mysql://me:hunter2@h/d"}, []string{"env:ONE: must be a PostgreSQL URL"}},
		{"no database in it", text, map[string]string{"ONE": "postgres://me:hunter2@h/"}, []string{"env:ONE: must be a PostgreSQL URL that names a database"}},
		{"no host in it", text, map[string]string{"ONE": "postgres:///d"}, []string{"env:ONE: must be a PostgreSQL URL that names a host"}},
		{"one table by two references", text, map[string]string{"TWO": "postgresql://you@DB.EXAMPLE.ORG:5432/rows"}, []string{"sources.zweitens.sink.table: is the table of sources.handbook.sink too, in the same database"}},
		{"the state's own database", withOwn, map[string]string{"OWN": url}, []string{"sources.handbook.sink.database: is the database that Fencepost keeps its own state in"}},
		{"no URL for the state", withOwn, map[string]string{"OWN": "hunter2 with spaces"}, []string{"f.yaml:3:1: database: env:OWN: must be a PostgreSQL URL"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			file := filepath.Join(t.TempDir(), "f.yaml")
			if err := os.WriteFile(file, []byte(tt.text), 0o600); err != nil {
				t.Fatal(err)
			}
			c, err := Load(file, func(name string) (string, bool) {
				if v, ok := tt.set[name]; ok {
					return v, true
				}
				v, ok := env[name]
				return v, ok
			})
			if tt.want != nil {
				wantFaults(t, err, tt.want)
				if strings.Contains(err.Error(), "hunter2") {
					t.Errorf("the secret is in the error: %v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if len(c.Sources) != 2 || !c.Database.IsPostgres() {
				t.Errorf("config = %+v", c)
			}
		})
	}
}

func TestManySourcesAreRead(t *testing.T) {
	t.Parallel()
	const n = 200
	var b strings.Builder
	b.WriteString(sourced[:strings.Index(sourced, "  handbook:")])
	section := sourced[strings.Index(sourced, "  handbook:"):]
	for i := range n {
		b.WriteString(strings.NewReplacer(
			"  handbook:", fmt.Sprintf("  s%d:", i), "5a0e3a4e", fmt.Sprintf("%08x", i+1), "id: 1296270", fmt.Sprintf("id: %d", i+1),
			"acme/handbook", fmt.Sprintf("acme/s%d", i), "/srv/handbook", fmt.Sprintf("/srv/s%d", i),
		).Replace(section))
	}
	all := parseSources(t, b.String())
	if len(all) != n {
		t.Fatalf("%d sources, want %d", len(all), n)
	}
	digests := map[fencepost.SourceRevision]bool{}
	for _, s := range all {
		digests[s.Digest] = true
	}
	if len(digests) != n {
		t.Errorf("%d digests of %d sources", len(digests), n)
	}
}
