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
		{"same id, other name", "id: 1296270", "id: 1296269", "f.yaml:23:5: gates.wiki.repository: has the id of another gate's repository"},
		{"same name, other id", "name: acme/wiki", "name: acme/docs", "f.yaml:23:5: gates.wiki.repository: has the name of another gate's repository"},
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
		"api":           gate("api: https://ghe.example.org/api/v3"),
		"git":           gate("git: https://ghe.example.org"),
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
		"memory":        plan("memory: 512MiB"),
		"processes":     plan("processes: 65"),
		"file size":     plan("file_size: 32MiB"),
		"open files":    plan("open_files: 100"),
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
