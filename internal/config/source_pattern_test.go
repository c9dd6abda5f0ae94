package config

import (
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/fencepost/fencepost"
)

func TestMatchPath(t *testing.T) {
	t.Parallel()
	tests := []struct {
		pattern, name string
		want          bool
	}{
		{"a.md", "a.md", true},
		{"a.md", "x/a.md", false},
		{"*.md", "a.md", true},
		{"*.md", "x/a.md", false},
		{"**", "a", true},
		{"**", "a/b/c", true},
		{"**/*.md", "a.md", true},
		{"**/*.md", "x/y/a.md", true},
		{"**/*.md", "x/y/a.txt", false},
		{"docs/**", "docs/a/b", true},
		{"docs/**", "docs", true},
		{"docs/**", "docs2/a", false},
		{"docs/*", "docs/a", true},
		{"docs/*", "docs/a/b", false},
		{"a/**/b", "a/b", true},
		{"a/**/b", "a/x/y/b", true},
		{"a/**/b", "a/x/y/c", false},
		{"**/x/**/y", "x/y", true},
		{"**/x/**/y", "a/x/x/b/y", true},
		{"?.md", "é.md", true},
		{"?.md", "ab.md", false},
		{"a?c", "a/c", false},
		{"a-b", "a-b", true},
		{"^a", "a", false},
	}
	for _, tt := range tests {
		if got := MatchPath(tt.pattern, tt.name); got != tt.want {
			t.Errorf("MatchPath(%q, %q) = %v, want %v", tt.pattern, tt.name, got, tt.want)
		}
	}
}

// TestMatchPathIsCheap: the worst pattern on the longest path of a budget.
func TestMatchPathIsCheap(t *testing.T) {
	t.Parallel()
	name := strings.Repeat("a/", 63) + "b"
	if MatchPath("**/a/**/a/**/a/**/c", name) {
		t.Error("it names what it doesn't")
	}
	if !MatchPath("**/a/**/a/**/a/**/b", name) {
		t.Error("it doesn't name what it does")
	}
}

// TestLegalPatternsAreAlwaysUnderstood: what the file may hold never makes
// matching fail, so that no path is left out for a reason that nobody sees.
func TestLegalPatternsAreAlwaysUnderstood(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringMatching(`[a-c*?\[\]\\/.{}!^-]{1,12}`).Draw(t, "pattern")
		var g globText
		if g.UnmarshalText([]byte(text)) != nil {
			return
		}
		// Its own text without wildcards is a path that it names.
		name := strings.NewReplacer("**", "x/y", "*", "x", "?", "x").Replace(text)
		if !MatchPath(string(g), name) {
			t.Fatalf("%q does not name %q", g, name)
		}
	})
}

func TestDatabaseTexts(t *testing.T) {
	t.Parallel()
	tests := []struct {
		text     string
		legal    bool
		postgres bool
		shown    string
	}{
		{"rows.db", true, false, "rows.db"},
		{"/srv/rows.db", true, false, "/srv/rows.db"},
		{"postgres://u:pw@h/d", true, true, "[redacted]"},
		{"postgresql://h:5432/d?sslmode=verify-full", true, true, "[redacted]"},
		{"postgres:///d?host=/run/postgresql", true, true, "[redacted]"},
		{"file:secrets/url", true, true, "file:secrets/url"},
		{"env:URL", true, true, "env:URL"},
		{"cred:url", true, true, "cred:url"},
		{"env:not a name", false, false, ""},
		{"postgres://h", false, false, ""},
		{"postgres://h/", false, false, ""},
		{"postgres:///d", false, false, ""},
		{"postgres:h/d", false, false, ""},
		{"postgres://u:p w@h/d", false, false, ""},
		{"postgres://h/d#x", false, false, ""},
		{"mysql://h/d", false, false, ""},
		{"sqlite:///x", false, false, ""},
		{"rows.db?mode=ro", false, false, ""},
		{"", false, false, ""},
	}
	for _, tt := range tests {
		t.Run(tt.text, func(t *testing.T) {
			t.Parallel()
			var d databaseText
			err := d.UnmarshalText([]byte(tt.text))
			if (err == nil) != tt.legal {
				t.Fatalf("err = %v, want legal = %v", err, tt.legal)
			}
			if err != nil {
				if !d.IsZero() {
					t.Errorf("refused, and holds %v", d.Database)
				}
				if tt.text != "" && strings.Contains(err.Error(), tt.text) {
					t.Errorf("the error repeats the text: %v", err)
				}
				return
			}
			if d.IsZero() || d.IsPostgres() != tt.postgres || d.String() != tt.shown {
				t.Errorf("postgres = %v, shown as %s; want %v, %s", d.IsPostgres(), d, tt.postgres, tt.shown)
			}
			var p postgresText
			if err := p.UnmarshalText([]byte(tt.text)); (err == nil) != tt.postgres {
				t.Errorf("as the state's database: %v, want legal = %v", err, tt.postgres)
			}
		})
	}
}

func TestDatabaseNeverPrintsItsURL(t *testing.T) {
	t.Parallel()
	const canary = "canary-hunter2"
	var d databaseText
	if err := d.UnmarshalText([]byte("postgres://me:" + canary + "@h/d")); err != nil {
		t.Fatal(err)
	}
	sink := Sink{Kind: SinkRows, Rows: &RowsSink{Database: d.Database}}
	text, err := d.MarshalText()
	if err != nil {
		t.Fatal(err)
	}
	printed := string(text)
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
		printed += fmt.Sprintf(verb, d.Database) + fmt.Sprintf(verb, &d.Database) + fmt.Sprintf(verb, sink) + fmt.Sprintf(verb, *sink.Rows)
	}
	if strings.Contains(printed, canary) || strings.Contains(printed, fmt.Sprintf("%x", canary)) {
		t.Errorf("the password is printed: %s", printed)
	}
	url, err := d.URL(func(string) (string, bool) { return "", false })
	if err != nil || !url.Equal(fencepost.NewSecret([]byte("postgres://me:"+canary+"@h/d"))) {
		t.Errorf("URL: %v", err)
	}
	// Zeroing what was handed out takes nothing away from the configuration.
	url.Zero()
	if again, err := d.URL(nil); err != nil || again.Len() == 0 {
		t.Errorf("URL again: %v, %d bytes", err, again.Len())
	}
}
