package main

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"

	_ "embed"

	"github.com/spf13/cobra"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/durable"
)

//go:embed starter.yaml
var starter string

// Files that init makes, relative to its directory.
const (
	starterFile   = "fencepost.yaml"
	starterSecret = "secrets/webhook"
)

// secretBytes is how much chance goes into a secret.
const secretBytes = 32

// starterID stands in starter.yaml where each file gets an id of its own.
const starterID = "00000000-0000-4000-8000-000000000000"

func (m Main) initCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "init [DIR]",
		Short: "Write a starter configuration with a fresh webhook secret",
		Long: `Write fencepost.yaml and secrets/webhook into DIR, the current directory unless
it is named. The secret is new, random, and readable by you alone. Nothing that
is there already is overwritten.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			dir := "."
			if len(args) == 1 {
				dir = args[0]
			}
			return m.writeStarter(dir)
		},
	}
}

func (m Main) writeStarter(dir string) error {
	if err := makeDir(dir); err != nil {
		return fmt.Errorf("init: %w", err)
	}
	fsys := durable.OS(dir)
	// All is looked at before anything is written: half a configuration
	// would be in the way of the next try.
	for _, name := range []string{starterFile, starterSecret} {
		switch _, err := fsys.Stat(name); {
		case err == nil:
			return usagef("init: %s exists already and is not overwritten: move it away, or name another directory", filepath.Join(dir, name))
		case !errors.Is(err, fs.ErrNotExist):
			return fmt.Errorf("init: %w", err)
		}
	}
	secret := make([]byte, secretBytes)
	if _, err := rand.Read(secret); err != nil {
		return fmt.Errorf("init: %w", err)
	}
	id, err := newSourceID()
	if err != nil {
		return fmt.Errorf("init: %w", err)
	}
	if err := durable.MkdirAll(fsys, filepath.Dir(starterSecret)); err != nil {
		return fmt.Errorf("init: %w", err)
	}
	files := []struct {
		name string
		data []byte
	}{
		{starterSecret, []byte(hex.EncodeToString(secret) + "\n")},
		{starterFile, []byte(strings.ReplaceAll(starter, starterID, id.String()))},
	}
	clear(secret)
	for _, f := range files {
		if err := durable.PublishFile(fsys, f.name+durable.TempSuffix, f.name, f.data); err != nil {
			return fmt.Errorf("init: write %s: %w", filepath.Join(dir, f.name), err)
		}
	}
	_, err = fmt.Fprintf(m.Out, `wrote %[1]s
wrote %[2]s (mode 0600)

next:
  1. Make a GitHub App with the permissions checks: write; contents, metadata,
     pull requests and commit statuses: read; and the event pull_request.
     Install it on the repository, and put its private key into
     %[3]s (mode 0600).
  2. Give the App the webhook URL https://YOUR-HOST/hooks/docs, content type
     application/json, and what is in %[2]s as its secret.
  3. Fill in the gate, or the source, in %[1]s, and take its # away.
  4. fencepost check --config %[1]s
  5. fencepost serve --config %[1]s

1 and 2 are for a gate; a source takes a repository's own webhook and a token as
well. docs/gates.md and docs/sources.md tell each step at length. To see
everything at work on this machine first: fencepost try
`, filepath.Join(dir, starterFile), filepath.Join(dir, starterSecret), filepath.Join(dir, "secrets", "app.pem"))
	return err
}

// newSourceID draws a random UUID (RFC 9562 §5.4).
func newSourceID() (id fencepost.SourceID, err error) {
	if _, err := rand.Read(id[:]); err != nil {
		return fencepost.SourceID{}, err
	}
	id[6] = id[6]&0x0f | 0x40
	id[8] = id[8]&0x3f | 0x80
	return id, nil
}

// makeDir makes dir and what is missing above it.
func makeDir(dir string) error {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	top := filepath.VolumeName(abs) + string(filepath.Separator)
	below := filepath.ToSlash(strings.TrimPrefix(abs, top))
	if below == "" {
		return nil
	}
	return durable.MkdirAll(durable.OS(top), below)
}
