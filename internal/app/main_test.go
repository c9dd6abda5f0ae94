package app

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/fencepost/fencepost/internal/config"
	"github.com/fencepost/fencepost/runner"
)

// entry is what the test binary got as a controller would.
var entry runner.Entry

func TestMain(m *testing.M) {
	entry = runner.Init()
	goleak.VerifyTestMain(m)
}

// appKey is one App key for all tests: making one is slow.
var appKey = sync.OnceValues(func() ([]byte, error) {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)}), nil
})

const (
	// hookSecret signs deliveries to every controller of these tests.
	hookSecret = "a webhook secret of a test"
	// readerToken is what gates at GitLab read with.
	readerToken = "canary-of-a-reader"
)

// writeSecrets writes what configurations of these tests refer to.
func writeSecrets(t *testing.T, dir string) {
	t.Helper()
	key, err := appKey()
	if err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string][]byte{"secret": []byte(hookSecret), "app.pem": key, "token": []byte(readerToken)} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// settings are a configuration whose provider is not there.
const settings = `version: 1
data_dir: data
listen: 127.0.0.1:0
ops_listen: 127.0.0.1:0
runner: {sandbox: best_effort}
trust:
  acme:
    - {id: one, secret: "file:secret"}
gates:
  docs:
    provider: github
    api: http://127.0.0.1:1
    git: http://127.0.0.1:1
    allow_http: true
    trust: acme
    app: {id: 1, installation: 2, key: "file:app.pem"}
    repository: {id: 1296269, owner_id: 1, name: acme/docs}
    base: refs/heads/main
    check: fencepost/docs
    plan:
      action: {url: "http://127.0.0.1:1/acme/checks.git", commit: "1234567890123456789012345678901234567890"}
      program: bin/check
      sha256: "00000000000000000000000000000000000000000000000000000000000000ff"
`

// A stage is a controller on a configuration of its own.
type stage struct {
	*App
	file string
	log  *lines
}

// lines is a log that may be read while it is written.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer // guarded by mu
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// newStage opens a controller. It is closed when the test ends.
func newStage(t *testing.T) *stage {
	t.Helper()
	return stageOf(t, settings)
}

// stageOf opens a controller on a configuration. It is closed when the test
// ends.
func stageOf(t *testing.T, text string) *stage {
	t.Helper()
	s := unopened(t, text)
	s.open(t)
	t.Cleanup(func() {
		// What a poisoned root says at its end is not what a test is about.
		_ = s.Close()
	})
	return s
}

// unopened is a configuration and what it refers to, without a controller.
func unopened(t *testing.T, text string) *stage {
	t.Helper()
	s := &stage{file: filepath.Join(t.TempDir(), "fencepost.yaml"), log: &lines{}}
	writeSecrets(t, filepath.Dir(s.file))
	s.write(t, filepath.Base(s.file), text)
	return s
}

// open opens the controller, which the caller closes.
func (s *stage) open(t *testing.T) {
	t.Helper()
	var err error
	s.App, err = Open(t.Context(), Options{
		Config: s.load(t), LookupEnv: os.LookupEnv, Now: time.Now, Entry: entry,
		Log: slog.New(slog.NewTextHandler(s.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	})
	if err != nil {
		t.Fatal(err)
	}
}

func (s *stage) load(t *testing.T) *config.Config {
	t.Helper()
	c, err := config.Load(s.file, os.LookupEnv)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// rewrite changes the configuration's text and loads it again.
func (s *stage) rewrite(t *testing.T, from, to string) *config.Config {
	t.Helper()
	text, err := os.ReadFile(s.file)
	if err != nil {
		t.Fatal(err)
	}
	changed := strings.Replace(string(text), from, to, 1)
	if changed == string(text) {
		t.Fatalf("%s holds no %q", s.file, from)
	}
	if err := os.WriteFile(s.file, []byte(changed), 0o600); err != nil {
		t.Fatal(err)
	}
	return s.load(t)
}

// write writes a file beside the configuration.
func (s *stage) write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(filepath.Dir(s.file), name), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// run runs the controller until the test ends, and returns where its end is
// told.
func (s *stage) run(t *testing.T) <-chan error {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	var wg sync.WaitGroup
	wg.Go(func() { ended <- s.Run(ctx) })
	t.Cleanup(func() {
		cancel()
		wg.Wait()
	})
	return ended
}
