package config

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/fencepost/fencepost"
)

// whole is a configuration that sets what has no default.
const whole = `version: 1
data_dir: ./data
trust:
  acme:
    - {id: 2026-q4, secret: file:secrets/acme, from: 2026-10-01T00:00:00Z, until: 2027-02-01T00:00:00Z}
gates:
  docs:
    provider: github
    trust: acme
    app: {id: 1, installation: 2, key: file:secrets/app.pem}
    repository: {id: 1296269, owner_id: 1, name: acme/docs}
    base: refs/heads/main
    check: fencepost/docs
    plan:
      action: {url: "https://github.com/acme/checks.git", commit: 1234567890123456789012345678901234567890}
      program: bin/check
      sha256: 00000000000000000000000000000000000000000000000000000000000000ff
      wall: 75s
`

func TestParseReadsTheShapeOfTheDesign(t *testing.T) {
	t.Parallel()
	c, err := Parse("/etc/fencepost/fencepost.yaml", []byte(whole))
	if err != nil {
		t.Fatal(err)
	}
	if got, want := c.DataDir, "/etc/fencepost/data"; got != want {
		t.Errorf("DataDir = %q, want %q", got, want)
	}
	if c.Listen != "127.0.0.1:8080" || c.OpsListen != "127.0.0.1:8081" {
		t.Errorf("listeners = %q, %q, want the defaults of the design", c.Listen, c.OpsListen)
	}
	if c.Replay != fencepost.DefaultReplayWindow {
		t.Errorf("Replay = %v, want %v", c.Replay, fencepost.DefaultReplayWindow)
	}
	if want := (Ledger{Lease: time.Minute, Capacity: 1_000_000}); c.Ledger != want {
		t.Errorf("Ledger = %+v, want %+v", c.Ledger, want)
	}
	if c.Ingress.MaxBody != 25*MiB || c.Ingress.MaxHeaders != 128 || c.Ingress.MaxHeaderBytes != 64*KiB {
		t.Errorf("Ingress = %+v, want the defaults of the design", c.Ingress)
	}
	if want := (JSON{Depth: 64, Values: 200_000, String: MiB}); c.Ingress.JSON != want {
		t.Errorf("JSON = %+v, want %+v", c.Ingress.JSON, want)
	}
	set, ok := c.TrustSet("acme")
	if !ok || len(set.Anchors) != 1 {
		t.Fatalf("trust set = %+v, %v, want one anchor", set, ok)
	}
	a := set.Anchors[0]
	if a.ID != "2026-q4" || a.Secret.String() != "file:secrets/acme" ||
		!a.From.Equal(time.Date(2026, 10, 1, 0, 0, 0, 0, time.UTC)) || !a.Until.Equal(time.Date(2027, 2, 1, 0, 0, 0, 0, time.UTC)) {
		t.Errorf("anchor = %+v", a)
	}
	if len(c.Warnings) != 0 {
		t.Errorf("Warnings = %q, want none", c.Warnings)
	}
	checkGate(t, c)
}

func checkGate(t *testing.T, c *Config) {
	t.Helper()
	if len(c.Gates) != 1 {
		t.Fatalf("%d gates, want 1", len(c.Gates))
	}
	g := c.Gates[0]
	commit, err := fencepost.ParseCommitID("1234567890123456789012345678901234567890")
	if err != nil {
		t.Fatal(err)
	}
	var sum [32]byte
	sum[31] = 0xff
	want := Gate{
		Route: "docs", Provider: GitHub, Trust: "acme",
		App:        App{ID: 1, Installation: 2, Key: SecretRef{kind: secretFile, name: "secrets/app.pem", dir: "/etc/fencepost"}},
		Repository: Repository{ID: 1296269, OwnerID: 1, Owner: "acme", Name: "docs"},
		Base:       "refs/heads/main", Check: "fencepost/docs",
		Plan: Plan{
			Action: Action{Commit: commit}, Program: "bin/check", SHA256: sum,
			Limits: PlanLimits{
				Wall: 75 * time.Second, CPU: 3 * time.Minute, Memory: 512 * MiB, Processes: 64, OpenFiles: 256,
				FileSize: 64 * MiB, Scratch: 128 * MiB, ScratchFiles: 8192, ProgramSize: 64 * MiB,
			},
		},
		Content: Content{Symlinks: "as_data", Gitlinks: "skip", Names: "portable"},
	}
	opts := cmp.Options{
		cmp.AllowUnexported(SecretRef{}), cmpopts.IgnoreFields(Gate{}, "API", "Git", "Digest"),
		cmpopts.IgnoreFields(Action{}, "URL"),
	}
	if diff := cmp.Diff(want, g, opts); diff != "" {
		t.Errorf("gate (-want +got):\n%s", diff)
	}
	for got, want := range map[string]string{
		g.API.String():             "https://api.github.com",
		g.Git.String():             "https://github.com",
		g.Plan.Action.URL.String(): "https://github.com/acme/checks.git",
	} {
		if got != want {
			t.Errorf("URL = %q, want %q", got, want)
		}
	}
}

// edit replaces one occurrence, and fails if there is none: a test whose
// edit misses would test nothing.
func edit(t testing.TB, text, old, new string) string {
	t.Helper()
	if !strings.Contains(text, old) {
		t.Fatalf("%q is not in the text", old)
	}
	return strings.Replace(text, old, new, 1)
}

func TestParseNamesEachFault(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, old, new string
		want           []string
	}{
		{"unknown field", "data_dir: ./data", "data_dir: ./data\nlegder: {}",
			[]string{"f.yaml:3:1: legder: unknown field; known here: version, data_dir, database, listen, "}},
		{"unknown field in a gate", "check: fencepost/docs", "check: fencepost/docs\n    checks: x",
			[]string{"f.yaml:14:5: gates.docs.checks: unknown field; known here: provider, api, git, trust, app, "}},
		{"duplicate field", "data_dir: ./data", "data_dir: ./data\ndata_dir: ./other",
			[]string{"f.yaml:3:1: data_dir: is set already in line 2; keep one of the two"}},
		{"duplicate gate", "gates:\n", "gates:\n  docs: {provider: github}\n",
			[]string{
				"f.yaml:7:3: gates.docs.trust: missing", "f.yaml:7:3: gates.docs.repository: missing",
				"f.yaml:7:3: gates.docs.base: missing", "f.yaml:7:3: gates.docs.check: missing", "f.yaml:7:3: gates.docs.plan: missing",
				"f.yaml:7:3: gates.docs.app: missing", "f.yaml:8:3: gates.docs: is set already in line 7",
			}},
		{"missing at the top", "version: 1\n", "", []string{"f.yaml:1:1: version: missing: add it, such as version: 1"}},
		{"missing in a gate", "    base: refs/heads/main\n", "",
			[]string{"f.yaml:7:3: gates.docs.base: missing: add it, such as base: refs/heads/main"}},
		{"missing in a list", "id: 2026-q4, ", "", []string{"f.yaml:5:7: trust.acme[0].id: missing"}},
		{"other version", "version: 1", "version: 2", []string{"f.yaml:1:1: version: must be 1, is 2"}},
		{"lease below its range", "data_dir: ./data", "data_dir: ./data\nledger:\n  lease: 2s",
			[]string{"f.yaml:4:3: ledger.lease: must be 5s to 10m, is 2s"}},
		{"lease in flow style", "data_dir: ./data", "data_dir: ./data\nledger: {lease: 2s}",
			[]string{"f.yaml:3:10: ledger.lease: must be 5s to 10m, is 2s"}},
		{"duration without a unit", "wall: 75s", "wall: 75",
			[]string{"f.yaml:18:7: gates.docs.plan.wall: must be a duration with a unit"}},
		{"wall over two minutes", "wall: 75s", "wall: 3m", []string{"gates.docs.plan.wall: must be 1s to 120s, is 3m"}},
		{"size without a unit", "data_dir: ./data", "data_dir: ./data\ningress: {max_body: 1000000}",
			[]string{"ingress.max_body: must be a size with a unit"}},
		{"text for a number", "id: 1296269", "id: many", []string{"gates.docs.repository.id: must be a whole number"}},
		{"quoted number", "id: 1296269", `id: "1296269"`, []string{"gates.docs.repository.id: must be a whole number in decimal digits, without quotes"}},
		{"octal number", "id: 1296269", "id: 0777", []string{"gates.docs.repository.id: must be a whole number in decimal digits"}},
		{"hexadecimal number", "id: 1296269", "id: 0x1F", []string{"gates.docs.repository.id: must be a whole number in decimal digits"}},
		{"id zero", "id: 1296269", "id: 0", []string{"gates.docs.repository.id: must be 1 or more, is 0"}},
		{"list for a section", "app: {id: 1, installation: 2, key: file:secrets/app.pem}", "app: [1]",
			[]string{"gates.docs.app: must be a mapping of fields, is a list"}},
		{"mapping for a list", "    - {id: 2026-q4, secret: file:secrets/acme, from: 2026-10-01T00:00:00Z, until: 2027-02-01T00:00:00Z}",
			"    id: x", []string{"f.yaml:4:3: trust.acme: must be a list, is a mapping"}},
		{"no value", "data_dir: ./data", "data_dir:", []string{"f.yaml:2:1: data_dir: has no value"}},
		{"short commit", "commit: 1234567890123456789012345678901234567890", "commit: 1234567",
			[]string{"gates.docs.plan.action.commit: must be a full commit id of 40 lower-case hexadecimal digits"}},
		{"upper-case digest", "ff\n", "FF\n", []string{"gates.docs.plan.sha256: must be 64 lower-case hexadecimal digits"}},
		{"branch for a ref", "base: refs/heads/main", "base: main", []string{"gates.docs.base: must be a full branch ref"}},
		{"program that leaves its tree", "program: bin/check", "program: ../check", []string{"gates.docs.plan.program: must be a path inside"}},
		{"absolute program", "program: bin/check", "program: /bin/sh", []string{"gates.docs.plan.program: must be a path inside"}},
		{"repository without owner", "name: acme/docs", "name: docs", []string{"gates.docs.repository.name: must be owner/name"}},
		{"route with a capital", "  docs:\n", "  Docs:\n", []string{"f.yaml:7:3: gates.Docs: must be a name of 1 to 63 characters"}},
		{"unknown trust set", "    trust: acme", "    trust: acne", []string{"f.yaml:9:5: gates.docs.trust: names no trust set; known are: acme"}},
		{"unknown provider", "provider: github", "provider: bitbucket", []string{"gates.docs.provider: must be one of github, gitlab, gitea, forgejo"}},
		{"gitlab as GitHub", "provider: github", "provider: gitlab", []string{
			"f.yaml:7:3: gates.docs.api: missing: gitlab has no address of its own: add it, such as api: https://git.example.org/api/v4",
			"f.yaml:7:3: gates.docs.git: missing", "f.yaml:7:3: gates.docs.audience: missing", "f.yaml:7:3: gates.docs.token: missing",
			"f.yaml:7:3: gates.docs.policy: missing", "f.yaml:9:5: gates.docs.trust: names a set of secrets",
			"f.yaml:10:5: gates.docs.app: has no meaning for gitlab, which knows a gate by its policy"}},
		{"groups within groups at GitHub", "name: acme/docs", "name: acme/handbooks/docs", []string{"gates.docs.repository.name: must be owner/name: github has no groups"}},
		{"fields of gitlab at GitHub", "provider: github", "provider: github\n    issuer: https://git.example.org\n    audience: a\n    token: env:T\n    policy: {project: 31, path: a/b, commits: [1234567890123456789012345678901234567890], job: j}", []string{
			"gates.docs.issuer: has no meaning for github, which knows a gate by its App", "gates.docs.audience: has no meaning",
			"gates.docs.token: has no meaning", "gates.docs.policy: has no meaning"}},
		{"database that is no URL", "data_dir: ./data", "data_dir: ./data\ndatabase: state.db", []string{"f.yaml:3:1: database: must be empty, a PostgreSQL URL, or a reference to one"}},
		{"database of another make", "data_dir: ./data", "data_dir: ./data\ndatabase: mysql://u:p@h/d", []string{"f.yaml:3:1: database: must be empty, a PostgreSQL URL, or a reference to one"}},
		{"signed age on github", "provider: github", "provider: github\n    max_signed_age: 1m", []string{"gates.docs.max_signed_age: has no meaning for github"}},
		{"plain http", "provider: github", "provider: github\n    api: http://127.0.0.1:1\n    git: https://git.example.org", []string{"gates.docs.api: must be https, is http; where that is meant, such as on loopback, set gates.docs.allow_http: true"}},
		{"one address of two", "provider: github", "provider: github\n    api: https://ghe.example.org/api/v3", []string{"gates.docs.git: missing: api is given, so this must be too"}},
		{"gitea as GitHub", "provider: github", "provider: gitea", []string{
			"f.yaml:7:3: gates.docs.api: missing: gitea has no address of its own", "f.yaml:7:3: gates.docs.git: missing",
			"f.yaml:7:3: gates.docs.reviewer: missing", "f.yaml:7:3: gates.docs.rule_token: missing",
			"f.yaml:10:5: gates.docs.app: has no meaning for gitea, which knows a gate by its reviewer"}},
		{"a reviewer at GitHub", "provider: github", "provider: github\n    reviewer: {id: 7, login: gatekeeper, token: env:T}\n    rule_token: env:R", []string{
			"gates.docs.reviewer: has no meaning for github", "gates.docs.rule_token: has no meaning for github"}},
		{"plain http action", `url: "https:`, `url: "http:`, []string{"gates.docs.plan.action.url: must be https, is http"}},
		{"user in a URL", `url: "https://`, `url: "https://me:pw@`, []string{"gates.docs.plan.action.url: must be an https URL without user"}},
		{"query in a URL", "checks.git", "checks.git?x=1", []string{"gates.docs.plan.action.url: must be an https URL without user, query and fragment"}},
		{"other scheme", "https://github.com/acme", "ssh://github.com/acme", []string{"gates.docs.plan.action.url: must be an https URL"}},
		{"window without a moment", "until: 2027-02-01", "until: 2026-10-01", []string{"f.yaml:5:76: trust.acme[0].until: must be later than from"}},
		{"time without a zone", "until: 2027-02-01T00:00:00Z", "until: 2027-02-01", []string{"trust.acme[0].until: must be a time in RFC 3339"}},
		{"secret in the place of its reference", "secret: file:secrets/acme", "secret: 0123456789abcdef0123", []string{"trust.acme[0].secret: must be a secret reference: file:PATH, env:NAME or cred:NAME; the secret itself does not belong"}},
		{"public port for operations", "data_dir: ./data", "data_dir: ./data\nops_listen: 0.0.0.0:8080", []string{"f.yaml:3:1: ops_listen: has the port of listen"}},
		{"address without a port", "data_dir: ./data", "data_dir: ./data\nlisten: localhost", []string{"f.yaml:3:1: listen: must be an address with a port"}},
		{"budget below one body", "data_dir: ./data", "data_dir: ./data\ningress: {body_memory: 1MiB}", []string{"ingress.body_memory: must be at least ingress.max_body (25MiB), is 1MiB"}},
		{"timeout over half the lease", "data_dir: ./data", "data_dir: ./data\nprovider: {timeout: 40s}", []string{"provider.timeout: must be at most half of ledger.lease (30s), is 40s"}},
		{"list item out of its kind", "data_dir: ./data", "data_dir: ./data\nrunner:\n  system_dirs:\n    - /usr\n    - bin", []string{"f.yaml:6:7: runner.system_dirs[1]: must be an absolute path"}},
		{"alias", "data_dir: ./data", "data_dir: &d ./data\nlisten: *d", []string{"f.yaml:2:1: data_dir: uses a YAML anchor", "f.yaml:3:1: listen: uses a YAML anchor"}},
		{"merge key", "provider: github", "<<: {provider: github}", []string{"f.yaml:7:3: gates.docs.provider: missing", "f.yaml:8:5: gates.docs: has a key that is no plain name"}},
		{"tag", "version: 1", "version: !!int 1", []string{"f.yaml:1:1: version: uses a YAML anchor, alias or tag"}},
		{"second document", "gates:\n", "---\ngates:\n", []string{"f.yaml:6:1: must be one YAML document"}},
		{"unclosed bracket", "{id: 1,", "{id: [1,", []string{"is not well-formed YAML at this place"}},
		{"boolean for text", "check: fencepost/docs", "check: true", []string{"gates.docs.check: must be a check name of 1 to 100 printable ASCII characters, no space at its ends; put true or false in quotes"}},
		{"text for a boolean", "provider: github", "provider: github\n    allow_http: yes", []string{"gates.docs.allow_http: must be true or false, without quotes"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, err := Parse("f.yaml", []byte(edit(t, whole, tt.old, tt.new)))
			wantFaults(t, err, tt.want)
		})
	}
}

// TestAGateOfGitea: what each kind of provider asks for, and that it is part of
// the policy.
func TestAGateOfGitea(t *testing.T) {
	t.Parallel()
	text := edit(t, whole, "provider: github", "provider: forgejo\n    api: https://git.example.org/api/v1\n    git: https://git.example.org")
	text = edit(t, text, "app: {id: 1, installation: 2, key: file:secrets/app.pem}",
		"reviewer: {id: 7, login: gatekeeper, token: env:REVIEWER}\n    rule_token: env:RULES")
	c, err := Parse("f.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	g := c.Gates[0]
	if g.Provider != Forgejo || g.Reviewer.ID != 7 || g.Reviewer.Login != "gatekeeper" || g.Reviewer.Token.String() != "env:REVIEWER" ||
		g.RuleToken.String() != "env:RULES" || g.API.String() != "https://git.example.org/api/v1" {
		t.Errorf("%+v", g)
	}
	for _, other := range []string{
		edit(t, text, "login: gatekeeper", "login: keeper"), edit(t, text, "{id: 7,", "{id: 8,"), edit(t, text, "provider: forgejo", "provider: gitea"),
		edit(t, text, "env:RULES", "env:RULE"),
	} {
		c, err := Parse("f.yaml", []byte(other))
		if err != nil {
			t.Fatal(err)
		}
		if c.Gates[0].Digest == g.Digest {
			t.Errorf("another policy has the same digest:\n%s", other)
		}
	}
	_, err = Parse("f.yaml", []byte(edit(t, text, "check: fencepost/docs", "check: fencepost/*")))
	wantFaults(t, err, []string{"gates.docs.check: must have no character that is special in the rule's patterns"})
}

// gitlabGate is a gate at GitLab, in the place of the one of whole.
func gitlabGate(t testing.TB) string {
	t.Helper()
	text := edit(t, whole, "provider: github", "provider: gitlab\n    api: https://git.example.org/api/v4\n    git: https://git.example.org")
	text = edit(t, text, "app: {id: 1, installation: 2, key: file:secrets/app.pem}", "audience: https://fencepost.example.org\n    token: env:READER\n"+
		"    policy: {project: 31, path: acme/security/policies, commits: [1111111111222222222233333333334444444444, aaaaaaaaaabbbbbbbbbbccccccccccdddddddddd], job: fencepost}\n"+
		"    max_signed_age: 1m")
	text = edit(t, text, "secret: file:secrets/acme", "jwk: file:secrets/acme.jwk")
	return edit(t, text, "name: acme/docs", "name: acme/handbooks/docs")
}

// TestAGateOfGitLab: what it asks for, and that all of it is part of the
// policy.
func TestAGateOfGitLab(t *testing.T) {
	t.Parallel()
	text := gitlabGate(t)
	c, err := Parse("f.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	g := c.Gates[0]
	l := g.GitLab
	if g.Provider != GitLab || g.Repository.FullName() != "acme/handbooks/docs" || g.MaxSignedAge != time.Minute ||
		l.Issuer.String() != "https://git.example.org" || l.Audience != "https://fencepost.example.org" || l.Token.String() != "env:READER" ||
		l.Policy.Project != 31 || l.Policy.Path != "acme/security/policies" || l.Policy.Job != "fencepost" ||
		len(l.Policy.Commits) != 2 || l.Policy.Commits[1].String() != "aaaaaaaaaabbbbbbbbbbccccccccccdddddddddd" {
		t.Errorf("%+v", g)
	}
	for _, swap := range [][2]string{
		{"audience: https://f", "audience: https://g"}, {"env:READER", "env:OTHER"}, {"project: 31", "project: 32"},
		{"acme/security/policies", "acme/policies"}, {"[1111111111222222222233333333334444444444, ", "["}, {"job: fencepost", "job: gate"},
		{"max_signed_age: 1m", "max_signed_age: 2m"}, {"provider: gitlab\n", "provider: gitlab\n    issuer: https://gitlab.example.org\n"},
	} {
		c, err := Parse("f.yaml", []byte(edit(t, text, swap[0], swap[1])))
		if err != nil {
			t.Fatal(err)
		}
		if c.Gates[0].Digest == g.Digest {
			t.Errorf("%q in place of %q has the same digest", swap[1], swap[0])
		}
	}
	for _, tt := range []struct {
		old, new string
		want     []string
	}{
		{"project: 31", "project: 1296269", []string{"gates.docs.policy.project: is the gated repository itself"}},
		{"aaaaaaaaaabbbbbbbbbbccccccccccdddddddddd", "1111111111222222222233333333334444444444", []string{"gates.docs.policy.commits[1]: is listed already"}},
		{"[1111111111222222222233333333334444444444, aaaaaaaaaabbbbbbbbbbccccccccccdddddddddd]", "[]", []string{"gates.docs.policy.commits: must have 1 to 16 entries, has 0"}},
		{"aaaaaaaaaabbbbbbbbbbccccccccccdddddddddd", "main", []string{"gates.docs.policy.commits[1]: must be a full commit id"}},
		{"job: fencepost", "job: ' fencepost'", []string{"gates.docs.policy.job: must be a job's name"}},
		{"path: acme/security/policies", "path: policies", []string{"gates.docs.policy.path: must be owner/name"}},
		{"name: acme/handbooks/docs", "name: acme/../docs", []string{"gates.docs.repository.name: must be owner/name, or with gitlab the path with all groups"}},
		{"audience: https://fencepost.example.org", "audience: two words", []string{"gates.docs.audience: must be 1 to 255 printable ASCII characters without spaces"}},
		{"provider: gitlab\n", "provider: gitlab\n    issuer: http://git.example.org\n", []string{"gates.docs.issuer: must be https, is http"}},
		{"provider: gitlab\n", "provider: gitlab\n    reviewer: {id: 7, login: gatekeeper, token: env:T}\n", []string{"gates.docs.reviewer: has no meaning for gitlab, which knows a gate by its policy"}},
		{"jwk: file:secrets/acme.jwk", "secret: file:secrets/acme", []string{"gates.docs.trust: names a set of secrets"}},
	} {
		_, err := Parse("f.yaml", []byte(edit(t, text, tt.old, tt.new)))
		wantFaults(t, err, tt.want)
	}
}

// wantFaults holds err against the faults that it must join: each wanted
// text is part of one line, in this order.
func wantFaults(t *testing.T, err error, want []string) {
	t.Helper()
	if !errors.Is(err, ErrInvalid) {
		t.Fatalf("err = %v, want one that matches ErrInvalid", err)
	}
	lines := strings.Split(err.Error(), "\n")
	if len(lines) != len(want) {
		t.Fatalf("faults:\n%s\nwant %d of them", err, len(want))
	}
	for i, w := range want {
		if !strings.Contains(lines[i], w) {
			t.Errorf("fault %d:\n got %s\nwant %s", i, lines[i], w)
		}
	}
}

func TestEachPartOfAProjectsPathIsBounded(t *testing.T) {
	t.Parallel()
	part, long := strings.Repeat("a", 100), strings.Repeat("a", 101)
	for text, want := range map[string]bool{
		part + "/" + part: true, part + "/" + part + "/" + part: true,
		long + "/docs": false, "acme/" + long: false, "acme/" + long + "/docs": false,
	} {
		var p projectPath
		if err := p.UnmarshalText([]byte(text)); (err == nil) != want {
			t.Errorf("%s: %v, want legal = %v", text, err, want)
		}
	}
}
