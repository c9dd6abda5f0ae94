package config

import (
	"bytes"
	"errors"
	"strings"
	"testing"
)

// FuzzParse holds that no file makes the parser panic, that every refusal
// consists of faults that name a place inside the file, and that what is
// accepted is accepted alike again.
func FuzzParse(f *testing.F) {
	f.Add([]byte(whole))
	f.Add([]byte(whole + second))
	f.Add([]byte(sourced))
	f.Add([]byte(sourced + rowsSource + programSource))
	for _, seed := range []string{
		"", "\ufeffversion: 1\n", "version: 1\r\ndata_dir: x\r\n", "\t", "- a\n", "a", "? a\n: b\n", "a: &a [*a]\n", "{version: 1, data_dir: .}",
		"version: 1\nledger: {lease: 2s}\n", "version: 1\n---\nversion: 1\n", "a: |\n  b\n", "a: >-\n\n", "\"a\": 'b'\n", "a: \"\\x", "a: !!str b\n",
		"trust: {a: [{id: a, secret: env:A, until: 2026-10-01T00:00:00Z}]}", strings.Repeat("[", 100), strings.Repeat("a:\n ", 50), "a: \xff\n",
		"gates: {a: {plan: {action: {}}}}", "ingress: {max_body: 9223372036854775807TiB}", "%YAML 1.2\n---\nversion: 1\n", "<<: {a: 1}\n", "null: 1\n",
		"sources: {a: {sink: {kind: rows, plan: {action: {}}}, senders: [{}], fetch: {total: 2h}, timings: {alert_after: 14m}}}",
		"sources: {a: {sink: {kind: directory, path: /, include: [\"**\"], exclude: [\"**\"]}, api: http://[::1]/, hosts: [\"https://a/b\"]}}",
		"database: postgres://a:b@c/d\nsources: {a: {sink: {kind: rows, database: \"postgres://[::1/\", table: t}}, b: {sink: {kind: rows, database: x, table: t}}}",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		c, err := Parse("f.yaml", text)
		if err == nil {
			again, err := Parse("f.yaml", bytes.Clone(text))
			if err != nil || len(again.Gates) != len(c.Gates) || len(again.Sources) != len(c.Sources) {
				t.Fatalf("accepted once, then: %v", err)
			}
			for i := range c.Gates {
				if c.Gates[i].Digest != again.Gates[i].Digest {
					t.Fatalf("gate %s has two digests", c.Gates[i].Route)
				}
			}
			for i, s := range c.Sources {
				if s.Digest != again.Sources[i].Digest {
					t.Fatalf("source %s has two digests", s.Route)
				}
				if err := s.Timings.Validate(); err != nil {
					t.Fatalf("source %s: timings were taken that are not valid: %v", s.Route, err)
				}
			}
			return
		}
		joined, ok := err.(interface{ Unwrap() []error })
		if !ok || c != nil {
			t.Fatalf("err = %T %v with %v, want joined faults alone", err, err, c)
		}
		lines := bytes.Count(text, []byte("\n")) + bytes.Count(text, []byte("\r")) + 1
		for _, e := range joined.Unwrap() {
			fault, ok := errors.AsType[*Fault](e)
			if !ok {
				t.Fatalf("%T %v is no fault", e, e)
			}
			if fault.Line < 0 || fault.Line > lines || strings.ContainsAny(fault.Error(), "\n\r") {
				t.Fatalf("fault %q: line %d of %d", fault, fault.Line, lines)
			}
		}
	})
}
