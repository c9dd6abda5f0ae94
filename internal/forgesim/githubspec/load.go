package githubspec

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// Places below testdata/npm/node_modules.
const (
	apiFile      = "@octokit/openapi/generated/api.github.com.json"
	webhooksFile = "@octokit/openapi-webhooks/generated/api.github.com.json"
	examplesFile = "@octokit/webhooks-examples/api.github.com/index.json"
)

// A Description is GitHub's description of its API and webhooks. It is safe for
// concurrent use.
type Description struct {
	api, webhooks *schemas
	api2026       func() (*schemas, error) // made when it is first asked for
	operations    []operation
	events        map[string]any
	examples      []example
}

// loaded reads the description once for a process: it is 18 MB of JSON.
var loaded = sync.OnceValues(func() (*Description, error) {
	dir, err := modules()
	if err != nil {
		return nil, err
	}
	return open(dir)
})

// Load returns the description. Where it is not installed the test is skipped
// with a line that says what to do, or fails where CI is set.
func Load(tb testing.TB) *Description {
	tb.Helper()
	d, err := loaded()
	if err != nil {
		absent(tb, err, os.Getenv("CI") != "")
	}
	return d
}

// absent ends a test that has no description.
func absent(tb testing.TB, err error, ci bool) {
	tb.Helper()
	if !errors.Is(err, fs.ErrNotExist) {
		tb.Fatalf("GitHub's API description: %v", err)
	}
	const mend = "GitHub's API description is not installed: run `make deps`"
	if ci {
		tb.Fatal(mend)
	}
	tb.Skip(mend)
}

// modules finds the folder of npm packages of this module, from the directory
// that the test runs in upwards.
func modules() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return filepath.Join(dir, "internal/forgesim/githubspec/testdata/npm/node_modules"), nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", fmt.Errorf("no go.mod above the test: %w", fs.ErrNotExist)
		}
		dir = parent
	}
}

// open reads the three files.
func open(dir string) (*Description, error) {
	api, err := readObject(filepath.Join(dir, apiFile))
	if err != nil {
		return nil, err
	}
	webhooks, err := readObject(filepath.Join(dir, webhooksFile))
	if err != nil {
		return nil, err
	}
	examples, err := readExamples(filepath.Join(dir, examplesFile))
	if err != nil {
		return nil, err
	}
	d := &Description{examples: examples}
	if err := amend(api); err != nil {
		return nil, err
	}
	if d.operations, err = readOperations(api); err != nil {
		return nil, err
	}
	if d.events, err = member(webhooks, "webhooks"); err != nil {
		return nil, err
	}
	if d.api, err = newSchemas("https://api.github.invalid/description", convert(api)); err != nil {
		return nil, err
	}
	d.api2026 = sync.OnceValues(func() (*schemas, error) {
		return newSchemas("https://api.github.invalid/2026-03-10", without(d.api.document, removed2026()))
	})
	d.webhooks, err = newSchemas("https://api.github.invalid/webhooks", convert(webhooks))
	return d, err
}

// readObject reads a JSON object with its numbers as they are written.
func readObject(path string) (map[string]any, error) {
	v, err := readJSON(path)
	if err != nil {
		return nil, err
	}
	o, ok := v.(map[string]any)
	if !ok {
		return nil, fmt.Errorf("%s is not a JSON object", filepath.Base(path))
	}
	return o, nil
}

func readJSON(path string) (any, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return jsonschema.UnmarshalJSON(file)
}

// member returns an object's member that is an object.
func member(o map[string]any, path ...string) (map[string]any, error) {
	for _, name := range path {
		next, ok := o[name].(map[string]any)
		if !ok {
			return nil, fmt.Errorf("description has no %s in %v", name, path)
		}
		o = next
	}
	return o, nil
}
