package config

import (
	"bytes"
	"encoding/hex"
	"reflect"
	"strings"
	"testing"

	"github.com/fencepost/fencepost"
)

// golden holds the revisions of three policies: work is queued under a
// revision, and content is known to be applied under it, so that another
// digest of the same policy runs every source once more.
func golden() map[string]string {
	return map[string]string{
		"courses":  "aaa499e7a9e450fb421b6135b85696b4da74bf3b6d2b1a8ff5cb3d75d84618b8",
		"handbook": "08bccf6f2e6fb0527197248b92509fb30162c527f22171f46fda77cbf720f841",
		"publish":  "f52449adad576fdd5568c885b2891edeb073c2f56b8d2483c6747f40590f4505",
	}
}

func TestSourceDigestsStayAsTheyAre(t *testing.T) {
	t.Parallel()
	all := parseSources(t, sourced+rowsSource+programSource)
	if len(all) != len(golden()) {
		t.Fatalf("%d sources, want %d", len(all), len(golden()))
	}
	for _, s := range all {
		if got, want := s.Digest.String(), golden()[string(s.Route)]; got != want {
			t.Errorf("digest of %s = %s, want %s", s.Route, got, want)
		}
	}
}

// TestContractsDigestIsThatOfItsNames computes one by hand, from the encoding
// that docs/encoding.md gives.
func TestContractsDigestIsThatOfItsNames(t *testing.T) {
	t.Parallel()
	want := fencepost.NewEncoder("fencepost.source-contracts/v1").
		Text("fencepost.push-rules/v1").Text("fencepost.fetch-rules/v1").Text("fencepost.directory-rules/v1").Sum()
	if got := parseSources(t, sourced)[0].Contracts; got != want {
		t.Errorf("contracts = %x, want %x", got, want)
	}
	seen := map[[32]byte]bool{}
	for _, s := range parseSources(t, sourced+rowsSource+programSource) {
		seen[s.Contracts] = true
	}
	if len(seen) != 3 {
		t.Errorf("%d digests of the contracts of three kinds of sinks", len(seen))
	}
}

// digestEdits are changes of one field each, by the text that they replace in
// the source of that name.
func digestEdits() map[string]map[string][2]string {
	after := func(line, more string) [2]string { return [2]string{line, line + "\n    " + more} }
	const ref, plan = "ref: refs/heads/main", "program: bin/publish"
	handbook := map[string][2]string{
		"route": {"  handbook:", "  wiki:"}, "id": {"9a11", "9a77"},
		"addresses": after("provider: github", "api: https://ghe.example.org/api/v3\n    git: https://ghe.example.org"),
		"trust set": {"trust: acme", "trust: other"}, "repository": {"id: 1296270", "id: 1296271"}, "owner": {"owner_id: 1", "owner_id: 2"},
		"name": {"acme/handbook", "acme/manual"}, "visibility": {"name: acme/handbook", "name: acme/handbook, visibility: public"},
		"ref": {"refs/heads/main", "refs/heads/next"}, "sender": {"id: 583231", "id: 583232"}, "login": {"login: octocat", "login: octodog"},
		"one more sender": {"login: octocat}", "login: octocat}, {id: 5, login: e}"},
		"any writer":      {senders, "any_writer: true"},
		"heads":           {"unannounced_heads: accept", "unannounced_heads: refuse"}, "forced pushes": after(ref, "force_push: accept"),
		"app": {"{id: 1, installation: 2,", "{id: 3, installation: 2,"}, "installation": {"installation: 2", "installation: 3"},
		"key": {"app.pem", "app2.pem"}, "token": {"{app: {id: 1, installation: 2, key: file:secrets/app.pem}}", "{token: env:T}"},
		"user name": {"{app: {id: 1, installation: 2, key: file:secrets/app.pem}}", "{token: env:T, username: me}"},
		"http":      after(ref, "allow_http: true"), "private": after(ref, "allow_private: true"),
		"symlinks": after(ref, "content: {symlinks: inside}"), "gitlinks": after(ref, "content: {gitlinks: skip}"), "names": after(ref, "content: {names: posix}"),
		"run failed": after(ref, "alerts: {run_failed: ignore}"), "run partial": after(ref, "alerts: {run_partial: ignore}"),
		"enabled": after(ref, "enabled: false"),
		"path":    {"path: /srv/handbook", "path: /srv/manual"}, "keep": {"kind: directory", "kind: directory, keep: 5"}, "grace": {"kind: directory", "kind: directory, grace: 2m"}, "most": {"kind: directory", "kind: directory, most: 65"},
		"reserve": {"kind: directory", "kind: directory, reserve: 1GiB"}, "readers": {"kind: directory", "kind: directory, readers: group"}, "mount": {"kind: directory", "kind: directory, mount: x"},
		"include": {"docs/**", "doc/**"}, "exclude": {"kind: directory", "kind: directory, exclude: [x]"}, "require": {"kind: directory", "kind: directory, require: [x]"},
	}
	for field, value := range map[string]string{
		"connect": "9s", "idle": "29s", "total": "59s", "redirects": "1", "wire": "255MiB", "metadata": "2MiB", "metadata_lines": "19999",
		"inflated": "2GiB", "objects": "199999", "delta_chain": "255", "commit": "2MiB", "tree": "15MiB", "file": "99MiB", "entries": "199999", "repeats": "49999",
		"depth": "63", "component": "254B", "path": "4095B", "links": "9999", "output": "2GiB",
	} {
		handbook["fetch."+field] = after(ref, "fetch: {"+field+": "+value+"}")
	}
	for field, value := range map[string]string{
		"target": "13m59s", "alert_after": "12m", "reconcile": "1m", "observe": "9s", "queue_age": "29s", "lease": "61s", "renew": "19s",
		"sink": "119s", "attempts": "2", "backoff": "11s", "evaluate": "29s",
	} {
		handbook["timings."+field] = after(ref, "timings: {"+field+": "+value+"}")
	}
	// A shorter checkout shortens the budget's total as well.
	handbook["timings.checkout"] = after(ref, "timings: {checkout: 61s}")
	return map[string]map[string][2]string{
		"handbook": handbook,
		"courses": {
			"database": {"env:ROWS", "env:ROWS2"}, "table": {"table: courses", "table: courses2"}, "row": {"text: utf8", "text: utf8\n      max_row: 2MiB"}, "text": {"text: utf8", "text: any"},
			"provider": {"provider: gitea", "provider: forgejo"}, "api": {"org/api/v1", "org/x/api/v1"}, "git": {"git: https://git.example.org", "git: https://git.example.org/x"},
			"file": {"database: env:ROWS", "database: /srv/rows.db"}, "URL": {"database: env:ROWS", `database: "postgres://a.example.org/x"`}, "another URL": {"database: env:ROWS", `database: "postgres://a.example.org/y"`},
		},
		"publish": {
			"anonymous": {"{anonymous: true}", "{token: env:T}"}, "host": {"https://cdn.", "https://cdn2."}, "fewer hosts": {`, "https://cdn.example.org"`, ""}, "action": {"publish.git", "other.git"}, "commit": {"commit: 1", "commit: 2"},
			"credential": {"567890}", "567890, credential: {token: env:A}}"}, "program": {"bin/publish", "bin/other"}, "sha256": {"fe\n", "fd\n"},
			"wall": after(plan, "    wall: 80s"), "cpu": after(plan, "    cpu: 61s"), "memory": after(plan, "    memory: 511MiB"), "processes": after(plan, "    processes: 65"),
			"open files": after(plan, "    open_files: 9"), "file size": after(plan, "    file_size: 3MiB"), "scratch": after(plan, "    scratch: 64MiB"),
			"scratch files": after(plan, "    scratch_files: 100"), "program size": after(plan, "    program_size: 1MiB"),
		},
	}
}

func TestSourceDigestCoversEveryFieldOfAPolicy(t *testing.T) {
	t.Parallel()
	texts := map[string]string{"handbook": sourced, "courses": sourced + rowsSource, "publish": sourced + programSource}
	for source, edits := range digestEdits() {
		t.Run(source, func(t *testing.T) {
			t.Parallel()
			digest := func(text string) fencepost.SourceRevision {
				text = edit(t, text, "sources:\n", "  other: [{id: a, secret: env:A}]\nsources:\n")
				for _, s := range parseSources(t, text) {
					if s.Route == fencepost.RouteName(source) || s.Route == "wiki" {
						return s.Digest
					}
				}
				t.Fatalf("no source %s", source)
				return fencepost.SourceRevision{}
			}
			whole := texts[source]
			begin := strings.Index(whole, "  "+source+":")
			seen := map[fencepost.SourceRevision]string{digest(whole): "nothing"}
			for what, e := range edits {
				after := digest(whole[:begin] + edit(t, whole[begin:], e[0], e[1]))
				if other, twice := seen[after]; twice {
					t.Errorf("a change of %s gives the digest of a change of %s", what, other)
				}
				seen[after] = what
			}
		})
	}
}

// TestDigestsKnowEveryField fails when a type that a policy consists of gets a
// field: it must go into the digest, and into digestEdits.
func TestDigestsKnowEveryField(t *testing.T) {
	t.Parallel()
	for typ, want := range map[reflect.Type]int{
		reflect.TypeFor[Source](): 26, reflect.TypeFor[Sink](): 8, reflect.TypeFor[DirectorySink](): 6, reflect.TypeFor[RowsSink](): 4,
		reflect.TypeFor[SourceCredential](): 3, reflect.TypeFor[AlertPolicy](): 2, reflect.TypeFor[Sender](): 2,
		reflect.TypeFor[Fetch](): 20, reflect.TypeFor[fencepost.Timings](): 12, reflect.TypeFor[Plan](): 5, reflect.TypeFor[PlanLimits](): 9,
		reflect.TypeFor[Action](): 3, reflect.TypeFor[Repository](): 4, reflect.TypeFor[Content](): 3,
	} {
		if got := typ.NumField(); got != want {
			t.Errorf("%s has %d fields, and its digest was written for %d", typ, got, want)
		}
	}
}

func TestSourceDigestIgnoresWhatChangesNoPolicy(t *testing.T) {
	t.Parallel()
	digest := func(text string) string {
		d := parseSources(t, text)[0].Digest
		return hex.EncodeToString(d[:])
	}
	before := digest(sourced)
	two := edit(t, sourced, senders, "senders: [{id: 1, login: a}, {id: 2, login: b}]")
	for what, pair := range map[string][2]string{
		"another anchor":               {before, digest(edit(t, sourced, "{id: 2026-q4, secret: file:secrets/acme}", "{id: next, secret: env:NEXT}"))},
		"a default spelt out":          {before, digest(edit(t, sourced, "ref: refs/heads/main", "ref: refs/heads/main\n    force_push: refuse\n    timings: {reconcile: 120s}\n    fetch: {wire: 256MiB}"))},
		"a path written otherwise":     {before, digest(edit(t, sourced, "path: /srv/handbook", "path: ../../srv/./handbook"))},
		"senders in another order":     {digest(two), digest(edit(t, two, "{id: 1, login: a}, {id: 2, login: b}", "{id: 2, login: b}, {id: 1, login: a}"))},
		"what another section is like": {before, digest(edit(t, sourced, "data_dir: ./data", "data_dir: ./data\nwork: {workers: 9}\ningress: {max_body: 1MiB}"))},
	} {
		if pair[0] != pair[1] {
			t.Errorf("%s changes the digest", what)
		}
	}
	if bytes.Equal([]byte(before), []byte(digest(edit(t, sourced, "data_dir: ./data", "data_dir: ./data\nfetch: {wire: 255MiB}")))) {
		t.Error("a budget that the source takes from the configuration is not in its digest")
	}
}
