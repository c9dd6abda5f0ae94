package config

import (
	"encoding/hex"
	"strings"
	"testing"
)

// second is a gate to put beside the one of whole.
const second = `  wiki:
    provider: github
    trust: acme
    app: {id: 1, installation: 2, key: file:secrets/app.pem}
    repository: {id: 1296270, owner_id: 1, name: acme/wiki}
    base: refs/heads/main
    check: fencepost/docs
    plan:
      action: {url: "https://github.com/acme/checks.git", commit: 1234567890123456789012345678901234567890}
      program: bin/check
      sha256: 00000000000000000000000000000000000000000000000000000000000000ff
`

func TestGatesMustNotContradictEachOther(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, old, new, want string
	}{
		{"same repository and check", "{id: 1296270, owner_id: 1, name: acme/wiki}", "{id: 1296269, owner_id: 1, name: acme/docs}",
			"f.yaml:25:5: gates.wiki.check: is the check of gates.docs too, in the same repository"},
		{"same check but for case", "{id: 1296270, owner_id: 1, name: acme/wiki}\n    base: refs/heads/main\n    check: fencepost/docs",
			"{id: 1296269, owner_id: 1, name: acme/docs}\n    base: refs/heads/main\n    check: Fencepost/Docs",
			"f.yaml:25:5: gates.wiki.check: is the check of gates.docs too"},
		{"same id, other name", "id: 1296270", "id: 1296269", "f.yaml:23:5: gates.wiki.repository: has the id of another gate's or source's repository"},
		{"same name, other id", "name: acme/wiki", "name: acme/docs", "f.yaml:23:5: gates.wiki.repository: has the name of another gate's or source's repository"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, err := Parse("f.yaml", []byte(whole+edit(t, second, tt.old, tt.new)))
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Fatalf("err = %v, want %s", err, tt.want)
			}
		})
	}
	t.Run("other repositories may share a check name", func(t *testing.T) {
		t.Parallel()
		c, err := Parse("f.yaml", []byte(whole+second))
		if err != nil {
			t.Fatal(err)
		}
		if len(c.Gates) != 2 || c.Gates[0].Route != "docs" || c.Gates[1].Route != "wiki" {
			t.Fatalf("gates = %+v, want docs and wiki in this order", c.Gates)
		}
	})
}

// TestABranchOfGiteaHasOneGate: the branch's rule counts the approvals of one
// reviewer alone, and of its approvals only the newest.
func TestABranchOfGiteaHasOneGate(t *testing.T) {
	t.Parallel()
	other := edit(t, edit(t, second, "{id: 1296270, owner_id: 1, name: acme/wiki}", "{id: 1296269, owner_id: 1, name: acme/docs}"),
		"check: fencepost/docs", "check: fencepost/wiki")
	gitea := func(text string) string {
		text = edit(t, text, "provider: github", "provider: gitea\n    api: https://git.example.org/api/v1\n    git: https://git.example.org")
		return edit(t, text, "app: {id: 1, installation: 2, key: file:secrets/app.pem}",
			"reviewer: {id: 7, login: gatekeeper, token: env:REVIEWER}\n    rule_token: env:RULES")
	}
	const want = "gates.wiki.base: is the base of gates.docs too"
	for name, text := range map[string]string{
		"one reviewer":       gitea(other),
		"another reviewer":   edit(t, gitea(other), "{id: 7, login: gatekeeper,", "{id: 8, login: doorkeeper,"),
		"another API's path": edit(t, gitea(other), "org/api/v1", "org/api/v1/"),
	} {
		_, err := Parse("f.yaml", []byte(gitea(whole)+text))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: err = %v, want %s", name, err, want)
		}
	}
	for name, text := range map[string]string{
		"two gates of GitHub": whole + other,
		"another branch":      gitea(whole) + edit(t, gitea(other), "refs/heads/main", "refs/heads/stable"),
		"another repository":  gitea(whole) + gitea(second),
		"another instance":    gitea(whole) + edit(t, gitea(other), "https://git.example.org/api", "https://git.example.net/api"),
	} {
		if _, err := Parse("f.yaml", []byte(text)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestAllFaultsAreReportedAtOnceInOrder(t *testing.T) {
	t.Parallel()
	text := edit(t, whole, "data_dir: ./data", "data_dir: ./data\nledger: {lease: 2s, capacity: none}\nlisten: here\nreplay: {max_queue_age: 1s}")
	text = edit(t, text, "base: refs/heads/main", "base: main")
	text = edit(t, text, "wall: 75s", "wal: 75s")
	_, err := Parse("f.yaml", []byte(text))
	wantFaults(t, err, []string{
		"f.yaml:3:10: ledger.lease: must be 5s to 10m, is 2s",
		"f.yaml:3:21: ledger.capacity: must be a whole number",
		"f.yaml:4:1: listen: must be an address",
		"f.yaml:5:10: replay.max_queue_age: must be 1m to 720h, is 1s",
		"gates.docs.base: must be a full branch ref",
		"gates.docs.plan.wal: unknown field; known here: action, program, sha256, external_verification, wall",
	})
}

func TestAnchorsOfASetAreDistinct(t *testing.T) {
	t.Parallel()
	more := func(item string) string { return edit(t, whole, "gates:\n", "    - "+item+"\ngates:\n") }
	tests := []struct{ name, text, want string }{
		{"same id", more("{id: 2026-q4, secret: file:secrets/other}"), "f.yaml:6:8: trust.acme[1].id: is the id of another anchor of this set too (line 5)"},
		{"same reference", more("{id: other, secret: file:secrets/acme}"), "f.yaml:6:19: trust.acme[1].secret: is the secret of another anchor of this set too (line 5)"},
		{"none", "version: 1\ndata_dir: d\ntrust: {acme: []}\n", "f.yaml:3:9: trust.acme: must have 1 to 8 entries, has 0"},
		{"nine", "version: 1\ndata_dir: d\ntrust: {acme: [" + strings.TrimSuffix(strings.Repeat("{id: a, secret: env:A}, ", 9), ", ") + "]}\n",
			"f.yaml:3:9: trust.acme: must have 1 to 8 entries, has 9"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, err := Parse("f.yaml", []byte(tt.text))
			wantFaults(t, err, []string{tt.want})
		})
	}
}

func TestPolicyDigestCoversEveryFieldOfAGate(t *testing.T) {
	t.Parallel()
	digest := func(t *testing.T, text string) string {
		t.Helper()
		c, err := Parse("f.yaml", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		return hex.EncodeToString(c.Gates[0].Digest[:])
	}
	before := digest(t, whole)
	if again := digest(t, whole); again != before {
		t.Fatalf("digest of the same text = %s, then %s", before, again)
	}
	gate := func(line string) [2]string {
		return [2]string{"    provider: github", "    provider: github\n    " + line}
	}
	plan := func(line string) [2]string {
		return [2]string{"      wall: 75s", "      wall: 75s\n      " + line}
	}
	edits := map[string][2]string{
		"route":         {"  docs:", "  wiki:"},
		"api":           gate("api: https://ghe.example.org/api/v3\n    git: https://github.com"),
		"git":           gate("api: https://api.github.com\n    git: https://ghe.example.org"),
		"app":           {"{id: 1, installation: 2,", "{id: 3, installation: 2,"},
		"installation":  {"installation: 2", "installation: 3"},
		"key":           {"app.pem", "app2.pem"},
		"repository":    {"id: 1296269", "id: 1296270"},
		"owner":         {"owner_id: 1", "owner_id: 2"},
		"name":          {"acme/docs", "acme/wiki"},
		"base":          {"refs/heads/main", "refs/heads/next"},
		"check":         {"fencepost/docs", "fencepost/wiki"},
		"action":        {"checks.git", "check.git"},
		"commit":        {"commit: 1", "commit: 2"},
		"credential":    {"567890}", "567890, credential: {token: env:T}}"},
		"program":       {"bin/check", "bin/other"},
		"sha256":        {"ff\n", "fe\n"},
		"verification":  plan("external_verification: true"),
		"wall":          {"75s", "76s"},
		"cpu":           plan("cpu: 61s"),
		"memory":        plan("memory: 511MiB"),
		"processes":     plan("processes: 65"),
		"file size":     plan("file_size: 32MiB"),
		"open files":    plan("open_files: 100"),
		"scratch":       plan("scratch: 64MiB"),
		"scratch files": plan("scratch_files: 100"),
		"program size":  plan("program_size: 1MiB"),
		"allow_http":    gate("allow_http: true"),
		"allow_private": gate("allow_private: true"),
		"symlinks":      gate("content: {symlinks: inside}"),
		"gitlinks":      gate("content: {gitlinks: refuse}"),
		"names":         gate("content: {names: posix}"),
		"trust set":     {"  acme:\n", "  acme2:\n"},
	}
	seen := map[string]string{before: "nothing"}
	for what, e := range edits {
		text := edit(t, whole, e[0], e[1])
		if what == "trust set" {
			text = edit(t, text, "trust: acme", "trust: acme2")
		}
		after := digest(t, text)
		if other, twice := seen[after]; twice {
			t.Errorf("a change of %s gives the digest of a change of %s", what, other)
		}
		seen[after] = what
	}
	rotated := edit(t, whole, "{id: 2026-q4, secret: file:secrets/acme", "{id: 2027-q1, secret: file:secrets/new")
	if after := digest(t, rotated); after != before {
		t.Errorf("rotating a key changed the digest")
	}
}

func TestWarningsNameWhatIsProbablyNotMeant(t *testing.T) {
	t.Parallel()
	c, err := Parse("f.yaml", []byte("version: 1\ndata_dir: d\nops_listen: 0.0.0.0:9\ntrust: {acme: [{id: a, secret: env:A}]}\n"))
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"f.yaml:3:1: ops_listen: is not a loopback address",
		"f.yaml:1:1: has no gates",
		"f.yaml:4:9: trust.acme: is the trust set of no gate",
	}
	if len(c.Warnings) != len(want) {
		t.Fatalf("warnings = %q, want %d", c.Warnings, len(want))
	}
	for i, w := range want {
		if !strings.HasPrefix(c.Warnings[i], w) {
			t.Errorf("warning %d = %s, want %s", i, c.Warnings[i], w)
		}
	}
}

func TestBoundsMustMakeSenseTogether(t *testing.T) {
	t.Parallel()
	for section, want := range map[string]string{
		"ingress: {body_memory: 1MiB}":                       "ingress.body_memory: must be at least ingress.max_body (25MiB), is 1MiB",
		"ingress: {stall_timeout: 31s}":                      "ingress.stall_timeout: must be at most ingress.body_timeout (30s), is 31s",
		"ingress: {write_timeout: 42s}":                      "ingress.write_timeout: must be at least body_wait, body_timeout and record_timeout together (43s), is 42s",
		"inbox: {max_bytes: 26MiB, segment: 1MiB}":           "inbox.max_bytes: must be at least ingress.max_body and 2MiB (27MiB), is 26MiB",
		"inbox: {max_bytes: 100MiB}":                         "inbox.max_bytes: must be at least two segments (128MiB), is 100MiB",
		"work: {backoff: 10s, max_backoff: 9s}":              "work.max_backoff: must be at least work.backoff (10s), is 9s",
		"work: {attempts: 20, starts: 19}":                   "work.starts: must be at least work.attempts (20), is 19",
		"provider: {timeout: 31s}":                           "provider.timeout: must be at most half of ledger.lease (30s), is 31s",
		"fetch: {connect: 50s, total: 40s}":                  "fetch.total: must be at least fetch.connect (50s), is 40s",
		"fetch: {idle: 50s, total: 40s}":                     "fetch.total: must be at least fetch.idle (50s), is 40s",
		"fetch: {inflated: 99MiB}":                           "fetch.inflated: must be at least fetch.file (100MiB), is 99MiB",
		"fetch: {output: 99MiB}":                             "fetch.output: must be at least fetch.file (100MiB), is 99MiB",
		"artifacts: {max_size: 4MiB, max_total: 3MiB}":       "artifacts.max_total: must be at least artifacts.max_size (4MiB), is 3MiB",
		"alerts: {alertmanager: \"http://127.0.0.1:9093\"}":  "alerts.alertmanager: must be https, is http; where that is meant, such as on loopback, set alerts.allow_http: true",
		"ledger: {lease: 1s}\nprovider: {timeout: 1m}":       "ledger.lease: must be 5s to 10m, is 1s",
		"listen: 127.0.0.1:9000\nops_listen: localhost:9000": "ops_listen: has the port of listen",
		"listen: \"[::1]:70000\"":                            "listen: must be an address with a port",
		"runner: {system_dirs: [/usr, /usr/../etc]}":         "runner.system_dirs[1]: must be an absolute path",
		"runner: {sandbox: sometimes}":                       "runner.sandbox: must be one of required, best_effort",
		"fetch: {file: 9223372036854775807TiB}":              "fetch.file: must be a size with a unit",
		"ledger: {lease: -5s}":                               "ledger.lease: must be a duration with a unit",
		"ingress: {max_headers: 99999999999999999999999}":    "ingress.max_headers: must be a whole number in decimal digits",
		"ingress: {max_headers: 1e3}":                        "ingress.max_headers: must be a whole number in decimal digits, without quotes",
		"ingress: {json: {depth: 2}}":                        "ingress.json.depth: must be 4 to 1000, is 2",
	} {
		t.Run(section, func(t *testing.T) {
			t.Parallel()
			_, err := Parse("f.yaml", []byte(edit(t, whole, "trust:\n", section+"\ntrust:\n")))
			wantFaults(t, err, []string{want})
		})
	}
}
