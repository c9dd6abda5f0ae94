package config

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/fencepost/fencepost/webhook"
)

// Of RFC 7638 §3.1.
const (
	jwkText       = `{"kty":"RSA","n":"0vx7agoebGcQSuuPiLJXZptN9nndrQmbXEps2aiAFbWhM78LhWx4cbbfAAtVT86zwu1RK7aPFFxuhDR1L6tSoc_BJECPebWKRXjBZCiFV4n3oknjhMstn64tZ_2W-5JsGY4Hc5n9yBXArwl93lqt7_RN5w6Cf0h4QyQ5v-65YGjQR0_FDW2QvzqY368QQMicAtaSqzs8KJZgnYb9c7d0zgdAZHzu6qMQvRL5hajrn1n91CbOpbISD08qNLyrdkt-bFTWhAI4vMQFh6WeZu0fM4lFd2NcRwr3XPksINHaQ-G_xBniIqbw0Ls1jF44-csFCur-kEgU8awapJzKnqDKgw","e":"AQAB"}`
	jwkThumbprint = "NzbLsXh8uDCcd-6MNwXF4W_7noWXFZAfHkxZsRGC9Xs"
)

// jobSet is a configuration of nothing but a trust set of these anchors.
func jobSet(anchors ...string) string {
	return "version: 1\ndata_dir: d\ntrust:\n  gitlab:\n    - " + strings.Join(anchors, "\n    - ") + "\n"
}

func TestTrustSetsOfPublicKeys(t *testing.T) {
	t.Parallel()
	c, err := Parse("/etc/f.yaml", []byte(jobSet("{id: a, jwk: file:a.json, until: 2027-01-01T00:00:00Z}", "{id: b, thumbprint: "+jwkThumbprint+"}")))
	if err != nil {
		t.Fatal(err)
	}
	set, ok := c.TrustSet("gitlab")
	if !ok || !set.Public() || len(set.Anchors) != 2 {
		t.Fatalf("trust set %+v", set)
	}
	if a, b := set.Anchors[0], set.Anchors[1]; a.JWK.String() != "file:a.json" || a.Until.Year() != 2027 || a.Thumbprint != (webhook.Thumbprint{}) ||
		b.Thumbprint.String() != jwkThumbprint || !b.JWK.IsZero() {
		t.Errorf("anchors %+v and %+v", a, b)
	}
	if c, err := Parse("f.yaml", []byte(whole)); err != nil || c.Trust[0].Public() {
		t.Errorf("a set of secrets is one of public keys, err = %v", err)
	}
	for name, tt := range map[string]struct{ text, want string }{
		"no key":             {jobSet("{id: a}"), "f.yaml:5:7: trust.gitlab[0]: has no key: add secret: file:… for webhooks, or jwk"},
		"two keys":           {jobSet("{id: a, jwk: env:A, thumbprint: " + jwkThumbprint + "}"), "f.yaml:5:27: trust.gitlab[0].thumbprint: is a second key of this anchor"},
		"secret and jwk":     {jobSet("{id: a, secret: env:A, jwk: env:B}"), "trust.gitlab[0].jwk: is a second key of this anchor"},
		"secret among keys":  {jobSet("{id: a, jwk: env:A}", "{id: b, secret: env:B}"), "f.yaml:6:15: trust.gitlab[1].secret: is not of the kind of the set's first anchor"},
		"key among secrets":  {jobSet("{id: a, secret: env:A}", "{id: b, thumbprint: "+jwkThumbprint+"}"), "f.yaml:6:15: trust.gitlab[1].thumbprint: is not of the kind of the set's first anchor"},
		"a reference twice":  {jobSet("{id: a, jwk: env:A}", "{id: b, jwk: env:A}"), "f.yaml:6:15: trust.gitlab[1].jwk: is the jwk of another anchor of this set too (line 5)"},
		"a thumbprint twice": {jobSet("{id: a, thumbprint: "+jwkThumbprint+"}", "{id: b, thumbprint: "+jwkThumbprint+"}"), "trust.gitlab[1].thumbprint: is the thumbprint of another anchor of this set too (line 5)"},
		"short thumbprint":   {jobSet("{id: a, thumbprint: abc}"), "f.yaml:5:15: trust.gitlab[0].thumbprint: must be an RFC 7638 thumbprint"},
		"hex thumbprint":     {jobSet("{id: a, thumbprint: " + strings.Repeat("0", 64) + "}"), "trust.gitlab[0].thumbprint: must be an RFC 7638 thumbprint"},
		"spare bits":         {jobSet("{id: a, thumbprint: " + jwkThumbprint[:42] + "t}"), "trust.gitlab[0].thumbprint: must be an RFC 7638 thumbprint"},
		"a key written out":  {jobSet("{id: a, jwk: '{\"kty\":\"RSA\"}'}"), "trust.gitlab[0].jwk: must be a secret reference"},
		"of a github gate":   {edit(t, whole, "secret: file:secrets/acme", "jwk: file:acme.json"), "f.yaml:9:5: gates.docs.trust: names a set of public keys (line 4), with which no webhook is verified"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := Parse("f.yaml", []byte(tt.text))
			if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("err = %v, want %s alone", err, tt.want)
			}
		})
	}
}

func TestLoadTriesPublicKeys(t *testing.T) {
	t.Parallel()
	load := func(t *testing.T, anchors []string, files map[string]string, e ...string) error {
		t.Helper()
		dir := t.TempDir()
		for name, text := range files {
			write(t, filepath.Join(dir, name), text, 0o644)
		}
		file := write(t, filepath.Join(dir, "f.yaml"), jobSet(anchors...), 0o644)
		_, err := Load(file, env(e...))
		// Tried one by one, they are found to be the same.
		trials, failed := TrySecrets(file, env(e...))
		if failed != nil {
			t.Fatal(failed)
		}
		good := true
		for _, one := range trials {
			good = good && one.Problem == ""
			if one.Problem != "" && (err == nil || !strings.Contains(err.Error(), one.Path+": "+one.Problem)) {
				t.Errorf("tried alone, %s: %s; together, %v", one.Path, one.Problem, err)
			}
		}
		if good != (err == nil) {
			t.Errorf("tried alone, %+v; together, %v", trials, err)
		}
		return err
	}
	// A public key may be read by all.
	if err := load(t, []string{"{id: a, jwk: file:a.json}"}, map[string]string{"a.json": jwkText + "\n"}); err != nil {
		t.Error(err)
	}
	if err := load(t, []string{"{id: a, jwk: env:KEY}"}, nil, "KEY", jwkText); err != nil {
		t.Error(err)
	}
	for name, tt := range map[string]struct {
		anchors []string
		text    string
		want    string
	}{
		"no file":              {[]string{"{id: a, jwk: file:b.json}"}, "", "trust.gitlab[0].jwk: file:b.json: there is no such file"},
		"no key":               {[]string{"{id: a, jwk: file:a.json}"}, "{}", "trust.gitlab[0].jwk: file:a.json: webhook: key is not a JSON Web Key"},
		"a private key":        {[]string{"{id: a, jwk: file:a.json}"}, strings.Replace(jwkText, `"e"`, `"d":"AQAB","e"`, 1), "private or a shared key"},
		"one key by two names": {[]string{"{id: a, jwk: file:a.json}", "{id: b, jwk: env:KEY}"}, jwkText, "trust.gitlab[1].jwk: env:KEY: is the same key as trust.gitlab[0].jwk"},
		"a key and its pin":    {[]string{"{id: a, jwk: file:a.json}", "{id: b, thumbprint: " + jwkThumbprint + "}"}, jwkText, "trust.gitlab[0].jwk: file:a.json: is the same key as trust.gitlab[1].thumbprint"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := load(t, tt.anchors, map[string]string{"a.json": tt.text}, "KEY", jwkText)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("err = %v, want %s", err, tt.want)
			}
		})
	}
	// But not written.
	dir := t.TempDir()
	write(t, filepath.Join(dir, "a.json"), jwkText, 0o664)
	_, err := Load(write(t, filepath.Join(dir, "f.yaml"), jobSet("{id: a, jwk: file:a.json}"), 0o600), env())
	if err == nil || !strings.Contains(err.Error(), "others may write it (mode 0664): chmod go-w") {
		t.Errorf("err = %v", err)
	}
}
