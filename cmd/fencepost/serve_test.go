package main

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/fencepost/fencepost/internal/app"
	"github.com/fencepost/fencepost/internal/config"
)

// Invariant 16: a log holds no path of the host, and so nothing of what a
// configuration's errors tell a person.
func TestAFailedReloadIsLoggedWithoutPaths(t *testing.T) {
	t.Parallel()
	const path = "/srv/secrets/webhook"
	fault := func(line int, field string) error {
		return &config.Fault{File: "/srv/fencepost.yaml", Line: line, Column: 7, Path: field, Problem: path + ": others can read it"}
	}
	for name, tc := range map[string]struct {
		err  error
		want []string
	}{
		"one fault": {fault(4, "trust.acme"), []string{"line=4 column=7 field=trust.acme"}},
		"several": {
			fmt.Errorf("load: %w", errors.Join(fault(4, "trust.acme"), fault(9, "gates.docs.app.key"))),
			[]string{"line=4 column=7 field=trust.acme", "line=9 column=7 field=gates.docs.app.key"},
		},
		"no file": {&config.Fault{File: path, Problem: "there is no such file"}, []string{"line=0 column=0"}},
		"restart": {fmt.Errorf("the policy of gate docs changed: %w", app.ErrRestart), []string{"the policy of gate docs changed"}},
		"other":   {fmt.Errorf("trust.acme: key one: open %s: %w", path, config.ErrSecret), []string{"reason=unavailable"}},
		"none":    {nil, []string{"level=INFO", "keys were reloaded"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var text strings.Builder
			logReload(t.Context(), slog.New(slog.NewTextHandler(&text, nil)), tc.err)
			for _, want := range tc.want {
				if !strings.Contains(text.String(), want) {
					t.Errorf("the log lacks %q:\n%s", want, &text)
				}
			}
			if strings.Contains(text.String(), "/srv") {
				t.Errorf("the log holds a path:\n%s", &text)
			}
		})
	}
}
