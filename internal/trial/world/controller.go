package world

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Bounds of a [Controller].
const (
	// ReadyWithin bounds a start of the controller.
	ReadyWithin = 20 * time.Second
	// stopWithin bounds a stop, after which the process is killed.
	stopWithin = 20 * time.Second
	pollEvery  = 10 * time.Millisecond
)

// ErrController is matched by errors about a controller that did not start,
// or did not end as it was told to.
var ErrController = errors.New("controller")

// A Controller is a `fencepost serve` in a process of its own, started and
// killed again and again over one data directory. Its methods are called one
// at a time.
type Controller struct {
	// Log is the file that the process's output is appended to.
	Log string
	// HookURL is where it takes webhooks.
	HookURL string

	// Within bounds a start; zero means [ReadyWithin].
	Within time.Duration
	// Env is added to the environment of the next process.
	Env []string

	binary, config string
	args           []string
	attr           *syscall.SysProcAttr
	ready          string
	client         *http.Client
	now            func() time.Time

	// Set while a process runs.
	cmd  *exec.Cmd
	done chan error
}

// A ControllerConfig says what [NewController] makes.
type ControllerConfig struct {
	// Binary is the fencepost executable, File its configuration, Log where its
	// output goes. Required.
	Binary, File, Log string
	// HookURL is where it takes webhooks, OpsURL the root of its operations
	// listener. Required.
	HookURL, OpsURL string
	// Client asks whether it is ready; Now is the clock. Required.
	Client *http.Client
	Now    func() time.Time
}

// NewController is a controller outside of a world: over a forge that is no
// simulation. It is not started yet.
func NewController(c ControllerConfig) *Controller {
	return &Controller{
		Log: c.Log, HookURL: c.HookURL, binary: c.Binary, config: c.File, ready: c.OpsURL + "/readyz", client: c.Client, now: c.Now,
	}
}

// URL is the root of its public listener.
func (c *Controller) URL() string { return rootOf(c.HookURL) }

// rootOf is the root of the server of a URL.
func rootOf(address string) string {
	scheme, rest, _ := strings.Cut(address, "://")
	host, _, _ := strings.Cut(rest, "/")
	return scheme + "://" + host
}

// another makes one more controller, the nth, whose configuration differs from
// this one's in its ports, and in texts: each is followed by what stands in its
// place.
func (c *Controller) another(ctx context.Context, n int, texts ...string) (*Controller, error) {
	free, err := freeAddresses(ctx, 2)
	if err != nil {
		return nil, err
	}
	text, err := os.ReadFile(c.config)
	if err != nil {
		return nil, err
	}
	public, ops := rootOf(c.HookURL), rootOf(c.ready)
	place := strings.NewReplacer(append(texts,
		"\nlisten: "+strings.TrimPrefix(public, "http://"), "\nlisten: "+free[0],
		"\nops_listen: "+strings.TrimPrefix(ops, "http://"), "\nops_listen: "+free[1],
	)...)
	other, dir := *c, filepath.Dir(c.config)
	other.cmd, other.done = nil, nil
	other.config, other.Log = filepath.Join(dir, fmt.Sprintf("fencepost-%d.yaml", n)), filepath.Join(dir, fmt.Sprintf("serve-%d.log", n))
	other.HookURL = "http://" + free[0] + strings.TrimPrefix(c.HookURL, public)
	other.ready = "http://" + free[1] + strings.TrimPrefix(c.ready, ops)
	return &other, os.WriteFile(other.config, []byte(place.Replace(string(text))), 0o600)
}

// elsewhere makes one more controller, the nth, as on another machine: with a
// data directory of its own, over the database of a URL.
func (c *Controller) elsewhere(ctx context.Context, n int, database string) (*Controller, error) {
	secret := fmt.Sprintf("database-%d", n)
	if err := os.WriteFile(filepath.Join(filepath.Dir(c.config), "secrets", secret), []byte(database), 0o600); err != nil {
		return nil, err
	}
	return c.another(ctx, n, "\ndata_dir: data\n", fmt.Sprintf("\ndata_dir: data-%d\n", n), "file:secrets/database\"", "file:secrets/"+secret+"\"")
}

// Start starts the process and waits until it says that it is ready. It
// returns how long that took.
func (c *Controller) Start(ctx context.Context) (time.Duration, error) {
	began := c.now()
	log, err := os.OpenFile(c.Log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return 0, err
	}
	// The process has its own copy of the descriptor.
	defer log.Close()
	info, err := log.Stat()
	if err != nil {
		return 0, err
	}
	cmd := exec.CommandContext(ctx, c.binary, append([]string{"serve", "--config", c.config}, c.args...)...)
	cmd.Stdout, cmd.Stderr, cmd.SysProcAttr = log, log, c.attr
	cmd.Env = append(cmd.Environ(), c.Env...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = stopWithin
	if err := cmd.Start(); err != nil {
		return 0, fmt.Errorf("%w: start: %w", ErrController, err)
	}
	done := make(chan error, 1)
	c.cmd, c.done = cmd, done
	// Owned by this Controller: Kill, Stop or waitReady receive from done.
	go func() { done <- cmd.Wait() }()
	if err := c.waitReady(ctx); err != nil {
		return 0, fmt.Errorf("%w%s; its log is %s", err, c.lastWords(info.Size()), c.Log)
	}
	return c.now().Sub(began), nil
}

func (c *Controller) waitReady(ctx context.Context) error {
	within := cmp.Or(c.Within, ReadyWithin)
	ctx, cancel := context.WithTimeout(ctx, within)
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
			return fmt.Errorf("%w: ended before it was ready: %w", ErrController, err)
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("%w: not ready within %s", ErrController, within), c.Kill())
		case <-ticker.C:
		}
	}
}

// tailBytes bounds how much of the end of a log is looked at.
const tailBytes = 8 << 10

// lastWords is the last line that was logged after an offset, to be put behind
// an error: the log itself may be removed before anyone reads it.
func (c *Controller) lastWords(after int64) string {
	f, err := os.Open(c.Log)
	if err != nil {
		return ""
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return ""
	}
	from := max(after, info.Size()-tailBytes)
	tail := make([]byte, max(0, info.Size()-from))
	if n, err := f.ReadAt(tail, from); err != nil && !errors.Is(err, io.EOF) {
		return ""
	} else {
		tail = tail[:n]
	}
	text := strings.TrimSpace(string(tail))
	if line := text[strings.LastIndexByte(text, '\n')+1:]; line != "" {
		return ": " + saying(line)
	}
	return ""
}

// saying is what a line of a log says: message and reason of a structured one.
func saying(line string) string {
	var entry struct{ Msg, Reason string }
	if err := json.Unmarshal([]byte(line), &entry); err != nil || entry.Msg == "" {
		return line
	}
	if entry.Reason == "" {
		return entry.Msg
	}
	return entry.Msg + ": " + entry.Reason
}

func (c *Controller) isReady(ctx context.Context) bool {
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

// PID is the process's id; 0 when none runs.
func (c *Controller) PID() int {
	if c.cmd == nil {
		return 0
	}
	return c.cmd.Process.Pid
}

// Signal sends a signal to the process.
func (c *Controller) Signal(s os.Signal) error {
	if c.cmd == nil {
		return fmt.Errorf("%w: no process runs", ErrController)
	}
	return c.cmd.Process.Signal(s)
}

// Kill ends the process with SIGKILL and waits for it.
func (c *Controller) Kill() error {
	if err := c.Signal(os.Kill); err != nil {
		return fmt.Errorf("kill: %w", err)
	}
	err := <-c.done
	c.cmd = nil
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && !exit.Exited() {
		return nil
	}
	return fmt.Errorf("%w: killed, but it ended with %w; its log is %s", ErrController, err, c.Log)
}

// Stop ends the process with SIGTERM, if there is one, and waits for it. Any
// exit status but 0 is an error.
func (c *Controller) Stop() error {
	if c.cmd == nil {
		return nil
	}
	if err := c.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("stop: %w", err)
	}
	timer := time.NewTimer(stopWithin)
	defer timer.Stop()
	select {
	case err := <-c.done:
		c.cmd = nil
		if err != nil {
			return fmt.Errorf("%w: ended with %w; its log is %s", ErrController, err, c.Log)
		}
		return nil
	case <-timer.C:
		return errors.Join(fmt.Errorf("%w: did not end within %s", ErrController, stopWithin), c.Kill())
	}
}

// Ports are looked for below those that systems give to outgoing connections:
// otherwise one of these may have a killed controller's port when it starts
// again.
const lowestPort, highestPort = 15_000, 32_000

// freeAddresses finds n loopback addresses that nobody listens on now.
func freeAddresses(ctx context.Context, n int) (addresses []string, err error) {
	var listening net.ListenConfig
	var all []net.Listener
	defer func() {
		// Together, so that none is found twice.
		for _, l := range all {
			err = errors.Join(err, l.Close())
		}
	}()
	const tries = 100
	for failures := 0; len(addresses) < n; {
		port := lowestPort + rand.IntN(highestPort-lowestPort)
		l, err := listening.Listen(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err == nil {
			all, addresses = append(all, l), append(addresses, l.Addr().String())
		} else if failures++; failures == tries {
			return nil, fmt.Errorf("find a free port: %w", err)
		}
	}
	return addresses, nil
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
