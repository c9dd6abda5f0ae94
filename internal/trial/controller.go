package trial

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"text/template"
	"time"
)

// A controller is a `fencepost serve` in a process of its own, started and
// killed again and again over one data directory.
type controller struct {
	binary, config, log string
	ready               string
	client              *http.Client
	now                 func() time.Time

	// Set while a process runs.
	cmd  *exec.Cmd
	done chan error
}

// settings are what differs from trial to trial in the configuration.
type settings struct {
	Listen, Ops  string
	Installation int64
	Action       action
}

var configuration = template.Must(template.New("fencepost.yaml").Parse(`# Written by fencepost try.
version: 1
data_dir: data
listen: {{.Listen}}
ops_listen: {{.Ops}}
trust:
  acme:
    - {id: trial, secret: "file:secrets/webhook"}
gates:
  {{.Gate}}:
    provider: github
    api: {{.API}}
    git: {{.Git}}
    allow_http: true   # the simulated forge is on loopback
    trust: acme
    app: {id: {{.App}}, installation: {{.Installation}}, key: "file:secrets/app.pem"}
    repository: {id: {{.Repository}}, owner_id: {{.Owner}}, name: {{.Name}}}
    base: refs/heads/main
    check: {{.Check}}
    plan:
      action: {url: "{{.Action.URL}}", commit: "{{.Action.Commit}}"}
      program: {{.Program}}
      sha256: "{{.Action.SHA256}}"
      wall: 60s
`))

// newController writes configuration and secrets below the trial's directory.
func newController(t *trial, s settings) (*controller, error) {
	var text bytes.Buffer
	err := configuration.Execute(&text, struct {
		settings
		Gate, API, Git, Name, Check, Program string
		App, Repository, Owner               int64
	}{
		settings: s, Gate: gateName, API: t.server.API, Git: t.server.Git, Name: t.repository.FullName(),
		Check: checkName, Program: program,
		App: t.forge.App().ID(), Repository: t.repository.ID(), Owner: t.repository.OwnerID(),
	})
	if err != nil {
		return nil, fmt.Errorf("write configuration: %w", err)
	}
	secrets := filepath.Join(t.Dir, "secrets")
	if err := os.Mkdir(secrets, 0o700); err != nil {
		return nil, err
	}
	config := filepath.Join(t.Dir, "fencepost.yaml")
	for name, data := range map[string][]byte{
		config:                            text.Bytes(),
		filepath.Join(secrets, "webhook"): []byte(t.secret),
		filepath.Join(secrets, "app.pem"): t.forge.App().KeyPEM(),
	} {
		if err := os.WriteFile(name, data, 0o600); err != nil {
			return nil, err
		}
	}
	return &controller{
		binary: t.Binary, config: config, log: filepath.Join(t.Dir, "serve.log"),
		ready: "http://" + s.Ops + "/readyz", client: t.client, now: t.Now,
	}, nil
}

// start starts the process and waits until it says that it is ready.
func (c *controller) start(ctx context.Context) (time.Duration, error) {
	began := c.now()
	log, err := os.OpenFile(c.log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return 0, err
	}
	// The process has its own copy of the descriptor.
	defer log.Close()
	c.cmd = exec.CommandContext(ctx, c.binary, "serve", "--config", c.config)
	c.cmd.Stdout, c.cmd.Stderr = log, log
	c.cmd.Cancel = func() error { return c.cmd.Process.Signal(syscall.SIGTERM) }
	c.cmd.WaitDelay = 10 * time.Second
	if err := c.cmd.Start(); err != nil {
		c.cmd = nil
		return 0, fmt.Errorf("start the controller: %w", err)
	}
	done := make(chan error, 1)
	c.done = done
	go func(cmd *exec.Cmd) { done <- cmd.Wait() }(c.cmd)
	if err := c.waitReady(ctx); err != nil {
		return 0, fmt.Errorf("%w; its log is %s", err, c.log)
	}
	return c.now().Sub(began), nil
}

func (c *controller) waitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readyWithin)
	defer cancel()
	ticker := time.NewTicker(pollEvery)
	defer ticker.Stop()
	for {
		if c.isReady(ctx) {
			return nil
		}
		select {
		case err := <-c.done:
			c.cmd = nil
			return fmt.Errorf("%w: the controller ended before it was ready: %w", ErrStory, err)
		case <-ctx.Done():
			return fmt.Errorf("%w: the controller was not ready within %s", ErrStory, readyWithin)
		case <-ticker.C:
		}
	}
}

func (c *controller) isReady(ctx context.Context) bool {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.ready, nil)
	if err != nil {
		return false
	}
	resp, err := c.client.Do(req)
	if err != nil {
		return false
	}
	defer resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}

func (c *controller) pid() int { return c.cmd.Process.Pid }

// kill ends the process with SIGKILL and waits for it.
func (c *controller) kill() error {
	if err := c.cmd.Process.Kill(); err != nil {
		return fmt.Errorf("kill the controller: %w", err)
	}
	err := <-c.done
	c.cmd = nil
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && !exit.Exited() {
		return nil
	}
	return fmt.Errorf("%w: a killed controller ended with %w", ErrStory, err)
}

// stop ends the process with SIGTERM, if there is one, and waits for it.
func (c *controller) stop() error {
	if c.cmd == nil {
		return nil
	}
	if err := c.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("stop the controller: %w", err)
	}
	err := <-c.done
	c.cmd = nil
	if err != nil {
		return fmt.Errorf("the controller ended with %w; its log is %s", err, c.log)
	}
	return nil
}

// freeAddress finds a loopback address that nobody listens on now.
func freeAddress(ctx context.Context) (string, error) {
	var listening net.ListenConfig
	l, err := listening.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("find a free port: %w", err)
	}
	return l.Addr().String(), l.Close()
}

// copyExecutable copies a program and returns its SHA-256 in hexadecimal.
func copyExecutable(from, to string) (sum string, err error) {
	in, err := os.Open(from)
	if err != nil {
		return "", err
	}
	defer in.Close()
	if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
		return "", err
	}
	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o700)
	if err != nil {
		return "", err
	}
	h := sha256.New()
	_, err = io.Copy(io.MultiWriter(out, h), in)
	return hex.EncodeToString(h.Sum(nil)), errors.Join(err, out.Close())
}
