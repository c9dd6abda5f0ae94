package config

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/fencepost/fencepost"
)

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
	var buried struct{ db Database }
	buried.db = d.Database
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
		printed += fmt.Sprintf(verb, d.Database) + fmt.Sprintf(verb, &d.Database) + fmt.Sprintf(verb, sink) + fmt.Sprintf(verb, *sink.Rows) + fmt.Sprintf(verb, buried) + fmt.Sprintf(verb, &buried)
	}
	asJSON, err := json.Marshal([]any{d.Database, &d.Database, sink})
	if err != nil {
		t.Fatal(err)
	}
	printed += string(asJSON)
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

// TestReadingAgainGivesAnEqualConfiguration: a reload compares all but the
// keys, so nothing in the value may be unequal to itself.
func TestReadingAgainGivesAnEqualConfiguration(t *testing.T) {
	t.Parallel()
	text := edit(t, sourced+rowsSource+programSource, "data_dir: ./data", "data_dir: ./data\ndatabase: \"postgres://me:pw@db.example.org/fencepost\"")
	text = edit(t, text, "database: env:ROWS", `database: "postgres://me:pw@db.example.org/rows"`)
	read := func(text string) *Config {
		c, err := Parse("f.yaml", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	if !reflect.DeepEqual(read(text), read(text)) {
		t.Error("the same text gives two configurations")
	}
	if reflect.DeepEqual(read(text), read(edit(t, text, "me:pw@db.example.org/fencepost", "me:pw2@db.example.org/fencepost"))) {
		t.Error("another password gives the same configuration")
	}
}
