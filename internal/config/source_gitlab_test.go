package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// atGitLab is sourced with its source at GitLab.
func atGitLab(t testing.TB) string {
	t.Helper()
	return edit(t, edit(t, edit(t, sourced,
		"provider: github", "provider: gitlab\n    api: https://gitlab.example.org/api/v4\n    git: https://gitlab.example.org"),
		"acme/handbook", "acme/books/handbook"),
		"{app: {id: 1, installation: 2, key: file:secrets/app.pem}}", "{token: file:secrets/read}")
}

func TestASourceAtGitLab(t *testing.T) {
	t.Parallel()
	c, err := Parse("f.yaml", []byte(atGitLab(t)))
	if err != nil {
		t.Fatal(err)
	}
	s := c.Sources[0]
	if s.Provider != GitLab || s.Repository.FullName() != "acme/books/handbook" || s.API.String() != "https://gitlab.example.org/api/v4" {
		t.Errorf("the source is %+v", s)
	}
	if !c.Trust[0].Standard || c.Trust[0].Public() {
		t.Errorf("the trust set is %+v", c.Trust[0])
	}
	plain, err := Parse("f.yaml", []byte(sourced))
	if err != nil {
		t.Fatal(err)
	}
	if plain.Trust[0].Standard {
		t.Error("the trust set of a source at GitHub is one of signing tokens")
	}
}

func TestWhatASourceAtGitLabMayNotBe(t *testing.T) {
	t.Parallel()
	second := strings.NewReplacer("  handbook:", "  zweitens:", "9a11", "9a99", "1296270", "1296271", "acme/handbook", "acme/zweitens", "/srv/handbook", "/srv/zweitens").
		Replace(sourced[strings.Index(sourced, "  handbook:"):])
	for _, tt := range []struct{ name, text, want string }{
		{"by an App", edit(t, atGitLab(t), "{token: file:secrets/read}", "{app: {id: 1, installation: 2, key: file:secrets/app.pem}}"),
			"sources.handbook.credential.app: has no meaning for gitlab; use token"},
		{"without an API", edit(t, atGitLab(t), "    api: https://gitlab.example.org/api/v4\n", ""),
			"sources.handbook.api: missing: gitlab has no address of its own: add it, such as api: https://git.example.org/api/v4"},
		{"groups within groups at GitHub", edit(t, sourced, "acme/handbook", "acme/books/handbook"),
			"sources.handbook.repository.name: must be owner/name: github has no groups within groups"},
		{"a path out of its group", edit(t, atGitLab(t), "acme/books/handbook", "acme/../handbook"), "sources.handbook.repository.name: must be owner/name"},
		{"the trust set of a source at GitHub", atGitLab(t) + second,
			"sources.zweitens.trust: is the trust set of sources.handbook too, whose webhooks are signed otherwise: gitlab has signing tokens"},
		{"a trust set of jobs", edit(t, atGitLab(t), "{id: 2026-q4, secret: file:secrets/acme}", "{id: 2026-q4, thumbprint: NzbLsXh8uDCcd-6MNwXF4W_7noWXFZAfHkxZsRGC9Xs}"),
			"sources.handbook.trust: names a set of public keys"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if _, err := Parse("f.yaml", []byte(tt.text)); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error = %v, want one with %q", err, tt.want)
			}
		})
	}
}

// signingToken is 32 bytes of our own.
const signingToken = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="

func TestSigningTokensOfGitLab(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, secret, want string }{
		{"a signing token", signingToken + "\n", ""},
		{"a secret token, which goes in plain text", "0123456789abcdef0123456789abcdef", "X-Gitlab-Token, is not supported: give the webhook a signing token"},
		{"a signing token without its prefix", strings.TrimPrefix(signingToken, "whsec_"), "is no signing token of GitLab (whsec_"},
		{"one that is too short", "whsec_AAECAwQFBgcICQoLDA0ODw==", "is no signing token of GitLab (whsec_"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			for name, text := range map[string]string{"f.yaml": atGitLab(t), "acme": tt.secret, "read": "token"} {
				if name != "f.yaml" {
					name = filepath.Join("secrets", name)
				}
				if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			c, err := Load(filepath.Join(dir, "f.yaml"), os.LookupEnv)
			if tt.want != "" {
				if err == nil || !strings.Contains(err.Error(), ":5:21: trust.acme[0].secret: file:secrets/acme: ") || !strings.Contains(err.Error(), tt.want) {
					t.Errorf("error = %v, want one with %q", err, tt.want)
				} else if strings.Contains(err.Error(), strings.TrimSpace(tt.secret)) {
					t.Errorf("the error %q holds the secret", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			key, err := c.Trust[0].Key(c.Trust[0].Anchors[0], os.LookupEnv)
			if err != nil || key.Len() != 32 || key.Reveal()[31] != 0x1f {
				t.Errorf("the key has %d bytes, %v", key.Len(), err)
			}
		})
	}
}
