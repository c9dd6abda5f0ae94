package config

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/fencepost/fencepost"
)

func env(pairs ...string) Lookup {
	return func(name string) (string, bool) {
		for i := 0; i < len(pairs); i += 2 {
			if pairs[i] == name {
				return pairs[i+1], true
			}
		}
		return "", false
	}
}

func write(t *testing.T, path, text string, mode fs.FileMode) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
	return path
}

func ref(t *testing.T, text, dir string) SecretRef {
	t.Helper()
	r, err := ParseSecretRef(text, dir)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestResolveReadsEachKindOfReference(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, filepath.Join(dir, "plain"), "s3cret-of-a-file", 0o600)
	write(t, filepath.Join(dir, "line"), "s3cret-of-a-file\n", 0o400)
	write(t, filepath.Join(dir, "crlf"), "s3cret-of-a-file\r\n", 0o600)
	write(t, filepath.Join(dir, "two"), "s3cret-of-a-file\n\n", 0o600)
	write(t, filepath.Join(dir, "creds", "acme"), "s3cret-of-a-file", 0o440)
	if err := os.Symlink("plain", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	e := env("NAME", "s3cret-of-a-file", "CREDENTIALS_DIRECTORY", filepath.Join(dir, "creds"))
	for text, want := range map[string]string{
		"file:plain":                          "s3cret-of-a-file",
		"file:" + filepath.Join(dir, "plain"): "s3cret-of-a-file",
		"file:line":                           "s3cret-of-a-file",
		"file:crlf":                           "s3cret-of-a-file",
		"file:two":                            "s3cret-of-a-file\n",
		"file:link":                           "s3cret-of-a-file",
		"env:NAME":                            "s3cret-of-a-file",
		"cred:acme":                           "s3cret-of-a-file",
	} {
		got, err := ref(t, text, dir).Resolve(e)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if string(got.Reveal()) != want {
			t.Errorf("%s: got %q, want %q", text, got.Reveal(), want)
		}
	}
}

func TestResolveRefusesWithTheMend(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, filepath.Join(dir, "world"), "s3cret-of-a-file", 0o604)
	write(t, filepath.Join(dir, "group"), "s3cret-of-a-file", 0o640)
	write(t, filepath.Join(dir, "it's"), "s3cret-of-a-file", 0o644)
	write(t, filepath.Join(dir, "empty"), "\n", 0o600)
	write(t, filepath.Join(dir, "huge"), strings.Repeat("x", maxSecretBytes+1), 0o600)
	if err := syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{
		"file:world":  "others may read it (mode 0604): chmod 600 " + filepath.Join(dir, "world"),
		"file:group":  "others may read it (mode 0640): chmod 600 " + filepath.Join(dir, "group"),
		"file:it's":   "chmod 600 '" + filepath.Join(dir, `it'\''s`) + "'",
		"file:none":   "there is no such file",
		"file:.":      "",
		"file:empty":  "it is empty",
		"file:huge":   "it is larger than 64 KiB",
		"file:pipe":   "it is not a regular file",
		"env:NOTHING": "the variable is not set",
		"cred:acme":   "$CREDENTIALS_DIRECTORY is not set",
	} {
		r, err := ParseSecretRef(text, dir)
		if err == nil {
			_, err = r.Resolve(env())
			if !errors.Is(err, ErrSecret) {
				t.Errorf("%s: err = %v, want one that matches ErrSecret", text, err)
			}
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: err = %v, want %s", text, err, want)
		}
		if err != nil && strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: the error holds the secret: %v", text, err)
		}
	}
}

func TestResolveRefusesAFileOfAnotherUser(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("only root can give a file away")
	}
	path := write(t, filepath.Join(t.TempDir(), "theirs"), "s3cret-of-a-file", 0o600)
	if err := os.Chown(path, 4242, 4242); err != nil {
		t.Fatal(err)
	}
	_, err := ref(t, "file:"+path, "").Resolve(env())
	if want := "it belongs to user 4242, not to this user 0: chown 0 " + path; err == nil || !strings.Contains(err.Error(), want) {
		t.Fatalf("err = %v, want %s", err, want)
	}
}

func TestParseSecretRefNeverRepeatsTheText(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"hunter2-hunter2-hunter2", "File:x", "env:hunter2-x y", "cred:../hunter2", "cred:..", "file:", "env:", "file:hunter2\n"} {
		_, err := ParseSecretRef(text, "")
		if err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%q: err = %v, want a refusal without the text", text, err)
		}
	}
}

func pemOf(t *testing.T, kind string, der []byte) fencepost.Secret {
	t.Helper()
	return fencepost.NewSecret(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
}

func TestParseAppKey(t *testing.T) {
	t.Parallel()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for kind, der := range map[string][]byte{"RSA PRIVATE KEY": x509.MarshalPKCS1PrivateKey(key), "PRIVATE KEY": pkcs8} {
		got, err := ParseAppKey(pemOf(t, kind, der))
		if err != nil || !got.Equal(key) {
			t.Errorf("%s: err = %v, or another key", kind, err)
		}
	}
	curve, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	ecDER, err := x509.MarshalPKCS8PrivateKey(curve)
	if err != nil {
		t.Fatal(err)
	}
	both := append(pemOf(t, "PRIVATE KEY", pkcs8).Reveal(), pemOf(t, "PRIVATE KEY", pkcs8).Reveal()...)
	for want, secret := range map[string]fencepost.Secret{
		"there is no PEM block in it":      fencepost.NewSecret([]byte("not a key")),
		"there is more than one PEM block": fencepost.NewSecret(both),
		"its PEM block is damaged":         pemOf(t, "PRIVATE KEY", pkcs8[:len(pkcs8)-1]),
		"its PEM block is no private key":  pemOf(t, "CERTIFICATE", pkcs8),
		"it is encrypted":                  pemOf(t, "ENCRYPTED PRIVATE KEY", pkcs8),
		"it is not an RSA key":             pemOf(t, "PRIVATE KEY", ecDER),
	} {
		if _, err := ParseAppKey(secret); !errors.Is(err, ErrAppKey) || !strings.Contains(err.Error(), want) {
			t.Errorf("err = %v, want %s", err, want)
		}
	}
}

func TestLoadTriesEverySecret(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := write(t, filepath.Join(dir, "fencepost.yaml"), edit(t, whole, "gates:\n",
		"    - {id: short, secret: env:SHORT}\n    - {id: copy, secret: env:COPY}\n    - {id: none, secret: file:secrets/none}\ngates:\n"), 0o644)
	write(t, filepath.Join(dir, "secrets", "acme"), "0123456789abcdef\n", 0o644)
	write(t, filepath.Join(dir, "secrets", "app.pem"), "no key", 0o600)
	_, err := Load(file, env("SHORT", "0123456789abcde", "COPY", "0123456789abcdef"))
	wantFaults(t, err, []string{
		file + ":5:21: trust.acme[0].secret: file:secrets/acme: others may read it (mode 0644): chmod 600 " + filepath.Join(dir, "secrets", "acme"),
		file + ":6:19: trust.acme[1].secret: env:SHORT: must be 16 bytes or more, is 15",
		file + ":8:18: trust.acme[3].secret: file:secrets/none: there is no such file",
		file + ":13:35: gates.docs.app.key: file:secrets/app.pem: there is no PEM block in it",
	})
	if err := os.Chmod(filepath.Join(dir, "secrets", "acme"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err = Load(file, env("SHORT", "0123456789abcde", "COPY", "0123456789abcdef"))
	if err == nil || !strings.Contains(err.Error(), "trust.acme[2].secret: env:COPY: is the same secret as trust.acme[0].secret") {
		t.Errorf("err = %v, want the refusal of the same secret twice", err)
	}
}

func TestLoadNamesAMissingFile(t *testing.T) {
	t.Parallel()
	_, err := Load(filepath.Join(t.TempDir(), "fencepost.yaml"), env())
	if !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), "there is no such file; `fencepost init` writes") {
		t.Fatalf("err = %v", err)
	}
}

// TestNoFaultRepeatsAValue puts a secret in the place of each value of a
// whole configuration in turn, as somebody may by mistake.
func TestNoFaultRepeatsAValue(t *testing.T) {
	t.Parallel()
	const canary = "hunter2 CANARY"
	values := regexp.MustCompile(`: ("[^"]*"|[^{}\[\],\s]+)`).FindAllStringSubmatchIndex(whole, -1)
	if len(values) < 15 {
		t.Fatalf("found %d values", len(values))
	}
	for _, v := range values {
		for _, put := range []string{canary, `"` + canary + `\n"`, "{" + canary + ": x}", "[" + canary + "]"} {
			text := whole[:v[2]] + put + whole[v[3]:]
			_, err := Parse("f.yaml", []byte(text))
			if err == nil {
				continue // a value that may be anything, such as a check's name
			}
			// A key is named: that is how its place is found.
			if !strings.HasPrefix(put, "{") && strings.Contains(err.Error(), "CANARY") {
				t.Errorf("%s in the place of %s: the error repeats it:\n%s", put, whole[v[2]:v[3]], err)
			}
		}
	}
}
