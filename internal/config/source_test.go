package config

import (
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/fencepost/fencepost"
)

// sourced is a configuration with one source, that of the design's shape.
const sourced = `version: 1
data_dir: ./data
trust:
  acme:
    - {id: 2026-q4, secret: file:secrets/acme}
sources:
  handbook:
    id: 5a0e3a4e-6b0c-4f0e-9d7b-0c1f5f1c9a11
    provider: github
    trust: acme
    repository: {id: 1296270, owner_id: 1, name: acme/handbook}
    ref: refs/heads/main
    senders: [{id: 583231, login: octocat}]
    unannounced_heads: accept
    credential: {app: {id: 1, installation: 2, key: file:secrets/app.pem}}
    sink: {kind: directory, path: /srv/handbook, include: ["docs/**"]}
`

// rowsSource is a second source to put beside it.
const rowsSource = `  courses:
    id: 5a0e3a4e-6b0c-4f0e-9d7b-0c1f5f1c9a12
    provider: gitea
    api: https://git.example.org/api/v1
    git: https://git.example.org
    trust: acme
    repository: {id: 7, owner_id: 3, name: acme/courses, visibility: private}
    ref: refs/heads/live
    any_writer: true
    force_push: accept
    credential: {username: reader, token: env:COURSES}
    fetch: {wire: 512MiB}
    timings: {reconcile: 1m, checkout: 45s}
    sink:
      kind: rows
      database: env:ROWS
      table: courses
      mount: site/courses
      exclude: ["**/*.draft.md"]
      require: [index.md, "units/**"]
      text: utf8
`

// programSource is a third.
const programSource = `  publish:
    id: 5a0e3a4e-6b0c-4f0e-9d7b-0c1f5f1c9a13
    provider: forgejo
    api: https://forge.example.org/api/v1
    git: https://forge.example.org
    hosts: ["https://mirror.example.org", "https://cdn.example.org"]
    trust: acme
    repository: {id: 8, owner_id: 3, name: acme/site, visibility: public}
    ref: refs/heads/main
    senders: [{id: 9, login: "robot[bot]"}, {id: 4, login: ada_l}]
    unannounced_heads: refuse
    credential: {anonymous: true}
    enabled: false
    alerts: {run_partial: ignore}
    fetch: {redirects: 1, total: 50s}
    sink:
      kind: program
      plan:
        action: {url: "https://github.com/acme/publish.git", commit: 1234567890123456789012345678901234567890}
        program: bin/publish
        sha256: 00000000000000000000000000000000000000000000000000000000000000fe
`

func parseSources(t testing.TB, text string) []Source {
	t.Helper()
	c, err := Parse("/etc/fencepost/fencepost.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return c.Sources
}

func compareSource(t *testing.T, got, want Source) {
	t.Helper()
	if diff := cmp.Diff(want, got, cmp.Options{
		cmp.AllowUnexported(SecretRef{}, Database{}), cmpopts.IgnoreFields(Source{}, "Contracts", "Digest", "Fetch"),
		cmp.Comparer(func(a, b *url.URL) bool { return a.String() == b.String() }),
	}); diff != "" {
		t.Errorf("source (-want +got):\n%s", diff)
	}
	if got.Digest.IsZero() || got.Contracts == [32]byte{} {
		t.Error("a digest is zero")
	}
	if err := got.Timings.Validate(); err != nil {
		t.Errorf("timings were taken that are not valid: %v", err)
	}
}

func mustURL(t *testing.T, text string) *url.URL {
	t.Helper()
	u, err := url.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

func mustSourceID(t *testing.T, text string) fencepost.SourceID {
	t.Helper()
	id, err := fencepost.ParseSourceID(text)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func TestParseReadsTheSourceOfTheDesign(t *testing.T) {
	t.Parallel()
	all := parseSources(t, sourced)
	if len(all) != 1 {
		t.Fatalf("%d sources, want 1", len(all))
	}
	compareSource(t, all[0], Source{
		Route: "handbook", ID: mustSourceID(t, "5a0e3a4e-6b0c-4f0e-9d7b-0c1f5f1c9a11"), Provider: GitHub,
		API: mustURL(t, "https://api.github.com"), Git: mustURL(t, "https://github.com"), Trust: "acme",
		Repository: Repository{ID: 1296270, OwnerID: 1, Owner: "acme", Name: "handbook"},
		Visibility: AnyVisibility, ObjectFormat: "sha1", Ref: "refs/heads/main",
		Senders: []Sender{{583231, "octocat"}}, AcceptUnannounced: true,
		Credential: SourceCredential{App: &App{ID: 1, Installation: 2, Key: SecretRef{kind: secretFile, name: "secrets/app.pem", dir: "/etc/fencepost"}}},
		Content:    Content{Symlinks: "refuse", Gitlinks: "refuse", Names: "portable"},
		Timings:    fencepost.DefaultTimings,
		Alerts:     AlertPolicy{RunFailed: true, RunPartial: true},
		Sink: Sink{Kind: SinkDirectory, Include: []string{"docs/**"}, Directory: &DirectorySink{
			Path: "/srv/handbook", Keep: 3, Grace: time.Minute, Most: 64, Reserve: 256 * MiB, Mode: 0o755,
		}},
		Enabled: true,
	})
	if f := all[0].Fetch; f.Total != time.Minute || f.Wire != 256*MiB || f.Redirects != 0 {
		t.Errorf("budgets = %+v, want the configuration's", f)
	}
}

func TestParseReadsEverySinkAndProvider(t *testing.T) {
	t.Parallel()
	all := parseSources(t, sourced+rowsSource+programSource)
	if len(all) != 3 {
		t.Fatalf("%d sources, want 3", len(all))
	}
	timings := fencepost.DefaultTimings
	timings.Reconcile, timings.Checkout = time.Minute, 45*time.Second
	compareSource(t, all[0], Source{
		Route: "courses", ID: mustSourceID(t, "5a0e3a4e-6b0c-4f0e-9d7b-0c1f5f1c9a12"), Provider: Gitea,
		API: mustURL(t, "https://git.example.org/api/v1"), Git: mustURL(t, "https://git.example.org"), Trust: "acme",
		Repository: Repository{ID: 7, OwnerID: 3, Owner: "acme", Name: "courses"},
		Visibility: Private, ObjectFormat: "sha1", Ref: "refs/heads/live",
		AnyWriter: true, AcceptUnannounced: true, AcceptForced: true,
		Credential: SourceCredential{Basic: Credential{"reader", SecretRef{kind: secretEnv, name: "COURSES", dir: "/etc/fencepost"}}},
		Content:    Content{Symlinks: "refuse", Gitlinks: "refuse", Names: "portable"},
		Timings:    timings,
		Alerts:     AlertPolicy{RunFailed: true, RunPartial: true},
		Sink: Sink{
			Kind: SinkRows, Mount: "site/courses", Exclude: []string{"**/*.draft.md"}, Require: []string{"index.md", "units/**"},
			Rows: &RowsSink{Database: Database{ref: SecretRef{kind: secretEnv, name: "ROWS", dir: "/etc/fencepost"}}, Table: "courses", MaxRow: MiB, Text: true},
		},
		Enabled: true,
	})
	if f := all[0].Fetch; f.Total != 45*time.Second || f.Wire != 512*MiB || f.Objects != 200_000 {
		t.Errorf("budgets = %+v, want the source's wire, a total of its checkout, and the rest of the configuration", f)
	}
	commit, err := fencepost.ParseCommitID("1234567890123456789012345678901234567890")
	if err != nil {
		t.Fatal(err)
	}
	sum := [32]byte{31: 0xfe}
	compareSource(t, all[2], Source{
		Route: "publish", ID: mustSourceID(t, "5a0e3a4e-6b0c-4f0e-9d7b-0c1f5f1c9a13"), Provider: Forgejo,
		API: mustURL(t, "https://forge.example.org/api/v1"), Git: mustURL(t, "https://forge.example.org"), Trust: "acme",
		Hosts:      []*url.URL{mustURL(t, "https://cdn.example.org"), mustURL(t, "https://mirror.example.org")},
		Repository: Repository{ID: 8, OwnerID: 3, Owner: "acme", Name: "site"},
		Visibility: Public, ObjectFormat: "sha1", Ref: "refs/heads/main",
		Senders:    []Sender{{4, "ada_l"}, {9, "robot[bot]"}},
		Credential: SourceCredential{Anonymous: true},
		Content:    Content{Symlinks: "refuse", Gitlinks: "refuse", Names: "portable"},
		Timings:    fencepost.DefaultTimings,
		Alerts:     AlertPolicy{RunFailed: true},
		Sink: Sink{Kind: SinkProgram, Program: &Plan{
			Action: Action{URL: mustURL(t, "https://github.com/acme/publish.git"), Commit: commit}, Program: "bin/publish", SHA256: sum,
			Limits: PlanLimits{
				Wall: 90 * time.Second, CPU: 3 * time.Minute, Memory: 512 * MiB, Processes: 64, OpenFiles: 256,
				FileSize: 64 * MiB, Scratch: 128 * MiB, ScratchFiles: 8192, ProgramSize: 64 * MiB,
			},
		}},
	})
	if f := all[2].Fetch; f.Redirects != 1 || f.Total != 50*time.Second {
		t.Errorf("budgets = %+v, want one redirect and 50 s", f)
	}
}

func TestAnonymousContradictsAPrivateRepository(t *testing.T) {
	t.Parallel()
	text := edit(t, sourced+programSource, "visibility: public", "visibility: private")
	_, err := Parse("f.yaml", []byte(text))
	wantFaults(t, err, []string{"f.yaml:28:18: sources.publish.credential.anonymous: contradicts repository.visibility"})
}

// sourceLine puts lines in the place of one line of sourced.
func sourceLine(t testing.TB, old, lines string) string {
	t.Helper()
	return edit(t, sourced, "    "+old+"\n", lines)
}

const (
	senders    = "senders: [{id: 583231, login: octocat}]"
	credential = "credential: {app: {id: 1, installation: 2, key: file:secrets/app.pem}}"
	sinkLine   = `sink: {kind: directory, path: /srv/handbook, include: ["docs/**"]}`
)

func TestParseNamesEachFaultOfASource(t *testing.T) {
	t.Parallel()
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name, old, lines string
		want             []string
	}{
		{"no id", "id: 5a0e3a4e-6b0c-4f0e-9d7b-0c1f5f1c9a11", "", []string{"f.yaml:7:3: sources.handbook.id: missing: add it, such as id: 5a0e"}},
		{"id in capitals", "id: 5a0e3a4e-6b0c-4f0e-9d7b-0c1f5f1c9a11", "    id: 5A0E3A4E-6B0C-4F0E-9D7B-0C1F5F1C9A11\n", []string{"f.yaml:8:5: sources.handbook.id: must be a UUID in lower case"}},
		{"id of zeros", "id: 5a0e3a4e-6b0c-4f0e-9d7b-0c1f5f1c9a11", "    id: 00000000-0000-0000-0000-000000000000\n", []string{"sources.handbook.id: must be a UUID in lower case, not all zero"}},
		{"unknown field", "ref: refs/heads/main", "    ref: refs/heads/main\n    branch: main\n", []string{"f.yaml:13:5: sources.handbook.branch: unknown field; known here: id, provider, api, git, hosts, trust, "}},
		{"duplicate field", "ref: refs/heads/main", "    ref: refs/heads/main\n    ref: refs/heads/next\n", []string{"f.yaml:13:5: sources.handbook.ref: is set already in line 12"}},
		{"unknown provider", "provider: github", "    provider: bitbucket\n", []string{"sources.handbook.provider: must be one of github, gitlab, gitea, forgejo"}},
		{"gitea without addresses", "provider: github", "    provider: gitea\n", []string{
			"f.yaml:7:3: sources.handbook.api: missing: gitea has no address of its own", "f.yaml:7:3: sources.handbook.git: missing: gitea has no address of its own",
			"f.yaml:15:18: sources.handbook.credential.app: has no meaning for gitea; use token"}},
		{"github with half of its addresses", "provider: github", "    provider: github\n    api: https://ghe.example.org/api/v3\n", []string{"f.yaml:7:3: sources.handbook.git: missing: api is given, so this must be too, such as git: https://ghe.example.org"}},
		{"github with the other half", "provider: github", "    provider: github\n    git: https://ghe.example.org\n", []string{"sources.handbook.api: missing: git is given, so this must be too"}},
		{"plain http", "provider: github", "    provider: github\n    api: http://127.0.0.1:1\n    git: http://127.0.0.1:2\n", []string{
			"f.yaml:10:5: sources.handbook.api: must be https, is http; where that is meant, such as on loopback, set sources.handbook.allow_http: true", "f.yaml:11:5: sources.handbook.git: must be https"}},
		{"host with a path", "provider: github", "    provider: github\n    hosts: [\"https://a.example.org/x\"]\n", []string{"f.yaml:10:13: sources.handbook.hosts[0]: must be scheme and host alone"}},
		{"host twice", "provider: github", "    provider: github\n    hosts: [\"https://a.example.org\", \"https://A.example.org\"]\n", []string{"sources.handbook.hosts[1]: is listed already"}},
		{"unknown trust set", "trust: acme", "    trust: acne\n", []string{"f.yaml:10:5: sources.handbook.trust: names no trust set; known are: acme"}},
		{"sha256 repository", "repository: {id: 1296270, owner_id: 1, name: acme/handbook}", "    repository: {id: 1296270, owner_id: 1, name: acme/handbook, object_format: sha256}\n",
			[]string{"f.yaml:11:65: sources.handbook.repository.object_format: sha256 is not yet supported in this version"}},
		{"unknown visibility", "repository: {id: 1296270, owner_id: 1, name: acme/handbook}", "    repository: {id: 1296270, owner_id: 1, name: acme/handbook, visibility: secret}\n",
			[]string{"sources.handbook.repository.visibility: must be one of any, public, private"}},
		{"no owner", "repository: {id: 1296270, owner_id: 1, name: acme/handbook}", "    repository: {id: 1296270, name: acme/handbook}\n", []string{"f.yaml:11:5: sources.handbook.repository.owner_id: missing"}},
		{"tag for a branch", "ref: refs/heads/main", "    ref: refs/tags/v1\n", []string{"sources.handbook.ref: must be a full branch ref"}},
		{"pattern for a branch", "ref: refs/heads/main", "    ref: refs/heads/*\n", []string{"sources.handbook.ref: must be a full branch ref"}},
		{"neither senders nor any_writer", senders, "", []string{"f.yaml:7:3: sources.handbook.senders: missing: list the accounts whose pushes are taken"}},
		{"any_writer false", senders, "    any_writer: false\n", []string{"sources.handbook.senders: missing"}},
		{"both", senders, "    " + senders + "\n    any_writer: true\n", []string{"f.yaml:14:5: sources.handbook.any_writer: contradicts senders"}},
		{"no sender in the list", senders, "    senders: []\n", []string{"f.yaml:13:5: sources.handbook.senders: must have 1 to 1000 entries, has 0"}},
		{"sender twice", senders, "    senders: [{id: 1, login: a}, {id: 1, login: b}, {id: 2, login: A}]\n", []string{
			"sources.handbook.senders[1].id: is listed already in line 13", "sources.handbook.senders[2].login: is listed already in line 13"}},
		{"sender without an id", senders, "    senders: [{login: a}]\n", []string{"sources.handbook.senders[0].id: missing"}},
		{"senders without unannounced_heads", "unannounced_heads: accept", "", []string{"f.yaml:7:3: sources.handbook.unannounced_heads: missing: beside senders say accept"}},
		{"unknown word for heads", "unannounced_heads: accept", "    unannounced_heads: allow\n", []string{"sources.handbook.unannounced_heads: must be one of accept, refuse"}},
		{"unknown word for forced pushes", "ref: refs/heads/main", "    ref: refs/heads/main\n    force_push: \"yes\"\n", []string{"sources.handbook.force_push: must be one of refuse, accept"}},
		{"no credential", credential, "", []string{"f.yaml:7:3: sources.handbook.credential: missing: add it, such as credential: {token: file:secrets/read-token}"}},
		{"empty credential", credential, "    credential: {}\n", []string{"f.yaml:15:5: sources.handbook.credential: names none: give app or token, or spell out anonymous: true"}},
		{"anonymous false", credential, "    credential: {anonymous: false}\n", []string{"sources.handbook.credential: names none"}},
		{"two credentials", credential, "    credential: {anonymous: true, token: env:T}\n", []string{"sources.handbook.credential: must be one of app, token and anonymous, has 2 of them"}},
		{"user name alone", credential, "    credential: {app: {id: 1, installation: 2, key: env:K}, username: me}\n", []string{"f.yaml:15:61: sources.handbook.credential.username: has no meaning without token"}},
		{"anonymous on github", credential, "    credential: {anonymous: true}\n", []string{"f.yaml:15:18: sources.handbook.credential.anonymous: is not enough for github, which answers 60 anonymous requests an hour"}},
		{"token in the place of its reference", credential, "    credential: {token: ghp_0123456789}\n", []string{"sources.handbook.credential.token: must be a secret reference"}},
		{"no sink", sinkLine, "", []string{"f.yaml:7:3: sources.handbook.sink: missing"}},
		{"unknown kind", sinkLine, "    sink: {kind: bucket}\n", []string{"f.yaml:16:12: sources.handbook.sink.kind: must be one of directory, rows, program"}},
		{"directory without a path", sinkLine, "    sink: {kind: directory}\n", []string{"f.yaml:16:5: sources.handbook.sink.path: missing: add where the content is to be"}},
		{"directory inside the data directory, by its absolute path", sinkLine, "    sink: {kind: directory, path: " + here + "/data/site}\n", []string{"sources.handbook.sink.path: lies inside data_dir"}},
		{"directory at the root", sinkLine, "    sink: {kind: directory, path: /}\n", []string{"f.yaml:16:29: sources.handbook.sink.path: must be below a directory"}},
		{"directory inside the data directory", sinkLine, "    sink: {kind: directory, path: data/site}\n", []string{"f.yaml:16:29: sources.handbook.sink.path: lies inside data_dir"}},
		{"the data directory itself", sinkLine, "    sink: {kind: directory, path: ./data/x/..}\n", []string{"sources.handbook.sink.path: lies inside data_dir"}},
		{"directory around the data directory", sinkLine, "    sink: {kind: directory, path: .}\n", []string{"sources.handbook.sink.path: would hold data_dir"}},
		{"fields of another kind", sinkLine, "    sink: {kind: directory, path: /srv/x, table: t, plan: {action: {url: \"https://a.example/a\", commit: 1234567890123456789012345678901234567890}, program: p, sha256: 00000000000000000000000000000000000000000000000000000000000000fe}}\n",
			[]string{"sources.handbook.sink.table: has no meaning for kind directory; take it out, or say kind: rows", "sources.handbook.sink.plan: has no meaning for kind directory"}},
		{"rows without what they need", sinkLine, "    sink: {kind: rows, path: /srv/x}\n", []string{
			"f.yaml:16:5: sources.handbook.sink.table: missing", "f.yaml:16:5: sources.handbook.sink.database: missing", "f.yaml:16:24: sources.handbook.sink.path: has no meaning for kind rows"}},
		{"rows in the data directory", sinkLine, "    sink: {kind: rows, table: t, database: data/rows.db}\n", []string{"sources.handbook.sink.database: lies inside data_dir"}},
		{"table with a capital", sinkLine, "    sink: {kind: rows, table: Handbook, database: env:R}\n", []string{"sources.handbook.sink.table: must be a table name"}},
		{"table of the database's own", sinkLine, "    sink: {kind: rows, table: sqlite_master, database: env:R}\n", []string{"sources.handbook.sink.table: must not begin with sqlite_"}},
		{"program without a plan", sinkLine, "    sink: {kind: program}\n", []string{"f.yaml:16:5: sources.handbook.sink.plan: missing: add the program"}},
		{"program with a mount", sinkLine, "    sink: {kind: program, mount: x, plan: {action: {url: \"https://a.example/a\", commit: 1234567890123456789012345678901234567890}, program: p, sha256: 00000000000000000000000000000000000000000000000000000000000000fe, wall: 2m}}\n    timings: {sink: 100s}\n",
			[]string{"sources.handbook.sink.mount: has no meaning for kind program", "sources.handbook.sink.plan.wall: must be at most timings.sink (1m40s), is 2m"}},
		{"mount that leaves the sink", sinkLine, "    sink: {kind: directory, path: /srv/x, mount: ../y}\n", []string{"sources.handbook.sink.mount: must be a directory of the repository"}},
		{"absolute mount", sinkLine, "    sink: {kind: directory, path: /srv/x, mount: /y}\n", []string{"sources.handbook.sink.mount: must be a directory of the repository"}},
		{"pattern that leaves the repository", sinkLine, "    sink: {kind: directory, path: /srv/x, include: [\"../**\"]}\n", []string{"f.yaml:16:53: sources.handbook.sink.include[0]: must be a pattern of paths"}},
		{"pattern with brackets", sinkLine, "    sink: {kind: directory, path: /srv/x, include: [\"[a-z].md\"]}\n", []string{"sources.handbook.sink.include[0]: must be a pattern of paths"}},
		{"** within a part", sinkLine, "    sink: {kind: directory, path: /srv/x, require: [\"docs/**.md\"]}\n", []string{"sources.handbook.sink.require[0]: must be a pattern of paths"}},
		{"pattern twice", sinkLine, "    sink: {kind: directory, path: /srv/x, include: [a, a]}\n", []string{"sources.handbook.sink.include[1]: is listed already"}},
		{"all taken out", sinkLine, "    sink: {kind: directory, path: /srv/x, exclude: [\"**\"]}\n", []string{"sources.handbook.sink.exclude[0]: takes out all that include names"}},
		{"in and out", sinkLine, "    sink: {kind: directory, path: /srv/x, include: [a], exclude: [b, a]}\n", []string{"sources.handbook.sink.exclude[1]: takes out all that include names"}},
		{"no tree to keep", sinkLine, "    sink: {kind: directory, path: /srv/x, keep: 0}\n", []string{"sources.handbook.sink.keep: must be 1 to 1000, is 0"}},
		{"more to keep than there may be", sinkLine, "    sink: {kind: directory, path: /srv/x, keep: 64}\n", []string{"sources.handbook.sink.most: must be more than keep (64), is 64"}},
		{"unknown readers", sinkLine, "    sink: {kind: directory, path: /srv/x, readers: \"0755\"}\n", []string{"sources.handbook.sink.readers: must be one of all, group, owner"}},
		{"budget over the checkout", "ref: refs/heads/main", "    ref: refs/heads/main\n    fetch: {total: 61s}\n", []string{"f.yaml:13:13: sources.handbook.fetch.total: must be at most timings.checkout (1m0s), is 1m1s"}},
		{"budget against the configuration's", "ref: refs/heads/main", "    ref: refs/heads/main\n    fetch: {inflated: 99MiB}\n", []string{"f.yaml:13:13: sources.handbook.fetch.inflated: must be at least fetch.file (100MiB), is 99MiB"}},
		{"silence that breaks the promise", "ref: refs/heads/main", "    ref: refs/heads/main\n    alerts: {run_failed: ignore}\n    timings: {attempts: 2, alert_after: 14m}\n",
			[]string{"f.yaml:13:14: sources.handbook.alerts.run_failed: must be raise, since the path to the alert (14m40s) does not keep timings.target (14m0s)"}},
		{"unknown alert", "ref: refs/heads/main", "    ref: refs/heads/main\n    alerts: {freshness: ignore}\n", []string{"f.yaml:13:14: sources.handbook.alerts.freshness: unknown field; known here: run_failed, run_partial"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, err := Parse("f.yaml", []byte(sourceLine(t, tt.old, tt.lines)))
			wantFaults(t, err, tt.want)
			if text := err.Error(); strings.Contains(text, "ghp_") {
				t.Errorf("the fault repeats what may be a secret: %s", text)
			}
		})
	}
}
