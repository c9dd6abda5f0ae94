package pgtest

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// owner owns everything in the server.
const owner = "fencepost"

// startTries is how often another port is tried; startTime and stopTime bound
// the wait for the server.
const (
	startTries = 5
	startTime  = 60 * time.Second
	stopTime   = 20 * time.Second
)

// A Server is one PostgreSQL server, started by its first use. The zero
// Server is ready. It is safe for concurrent use.
type Server struct {
	// Fast leaves out what only the loss of power needs (fsync): for tests
	// that don't kill.
	Fast bool

	mu       sync.Mutex
	started  bool
	err      error
	bin, dir string
	password string
	port     int
	cmd      *exec.Cmd
	exited   chan struct{}
	log      bytes.Buffer
	made     int
}

// Run runs the tests, stops the server, and returns the exit code. Each of
// after is called when the server is gone, and says what is wrong.
func Run(m *testing.M, s *Server, after ...func() error) int {
	code := m.Run()
	errs := []error{s.Stop()}
	for _, f := range after {
		errs = append(errs, f())
	}
	if err := errors.Join(errs...); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = max(code, 1)
	}
	return code
}

// Database makes an empty database, and returns its URL, in which there is a
// password. It is dropped when the test ends.
func (s *Server) Database(t testing.TB) string {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.ensure(t.Context()); err != nil {
		t.Fatalf("PostgreSQL for tests: %v", err)
	}
	s.made++
	name := "test_" + strconv.Itoa(s.made)
	if err := s.admin(t.Context(), "create database "+name); err != nil {
		t.Fatalf("make database: %v", err)
	}
	t.Cleanup(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.cmd == nil {
			// A test killed it for good.
			return
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), startTime)
		defer cancel()
		if err := s.admin(ctx, "drop database "+name+" with (force)"); err != nil {
			t.Errorf("drop database: %v", err)
		}
	})
	return s.url(name)
}

// Exec runs SQL on a database that [Server.Database] made.
func (s *Server) Exec(t testing.TB, database, sql string) {
	t.Helper()
	if err := execute(t.Context(), database, sql); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

// Dump brings the contents of one database into another, which has none of
// it, as an administrator does: by pg_dump and psql.
func (s *Server) Dump(t testing.TB, from, to string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), startTime)
	defer cancel()
	script, err := exec.CommandContext(ctx, filepath.Join(s.bin, "pg_dump"), "--no-owner", from).Output()
	if err != nil {
		t.Fatalf("pg_dump: %v", err)
	}
	load := exec.CommandContext(ctx, filepath.Join(s.bin, "psql"), "--quiet", "--set=ON_ERROR_STOP=1", to)
	load.Stdin = bytes.NewReader(script)
	if out, err := load.CombinedOutput(); err != nil {
		t.Fatalf("psql: %v: %s", err, tail(out))
	}
}

// Restart stops the server as an administrator would, breaking all
// connections, and starts it again.
func (s *Server) Restart(t testing.TB) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.ensure(t.Context()); err != nil {
		t.Fatalf("PostgreSQL for tests: %v", err)
	}
	if err := errors.Join(s.halt(syscall.SIGINT), s.start(t.Context())); err != nil {
		t.Fatalf("restart: %v", err)
	}
}

// Kill kills the server's main process as kill -9 does, calls meanwhile, and
// starts the server again, which recovers from its log.
func (s *Server) Kill(t testing.TB, meanwhile func()) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.ensure(t.Context()); err != nil {
		t.Fatalf("PostgreSQL for tests: %v", err)
	}
	if err := s.halt(syscall.SIGKILL); err != nil {
		t.Fatalf("kill: %v", err)
	}
	meanwhile()
	ctx, cancel := context.WithTimeout(t.Context(), startTime)
	defer cancel()
	err := s.start(ctx)
	// Its processes end by themselves, and keep its memory until then.
	for err != nil && ctx.Err() == nil && strings.Contains(err.Error(), "shared memory") {
		err = s.start(ctx)
	}
	if err != nil {
		t.Fatalf("start after a kill: %v", err)
	}
}

// Stop stops the server, if it runs, and removes its files.
func (s *Server) Stop() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.dir == "" {
		return nil
	}
	err := errors.Join(s.halt(syscall.SIGINT), os.RemoveAll(s.dir))
	s.dir = ""
	return err
}

// ensure starts the server once; what went wrong then goes wrong for all.
func (s *Server) ensure(ctx context.Context) error {
	if !s.started {
		s.started = true
		if s.err = s.create(ctx); s.err == nil {
			s.err = s.start(ctx)
		}
	}
	return s.err
}

// find looks for the server's programs, the newest version first.
func find() (bin string, err error) {
	dirs, err := filepath.Glob("/usr/lib/postgresql/*/bin")
	if err != nil {
		return "", err
	}
	version := func(dir string) int {
		n, _ := strconv.Atoi(filepath.Base(filepath.Dir(dir)))
		return n
	}
	slices.SortFunc(dirs, func(a, b string) int { return version(b) - version(a) })
	for _, name := range append(dirs, filepath.SplitList(os.Getenv("PATH"))...) {
		if executable(filepath.Join(name, "initdb")) && executable(filepath.Join(name, "postgres")) {
			return name, nil
		}
	}
	return "", errors.New("there is no initdb and postgres in /usr/lib/postgresql/*/bin or PATH; `make deps` installs them")
}

func executable(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0
}

// create makes the data directory.
func (s *Server) create(ctx context.Context) (err error) {
	if s.bin, err = find(); err != nil {
		return err
	}
	if s.dir, err = os.MkdirTemp("", "fencepost-pg-"); err != nil {
		return err
	}
	var secret [16]byte
	if _, err := rand.Read(secret[:]); err != nil {
		return err
	}
	s.password = hex.EncodeToString(secret[:])
	file := filepath.Join(s.dir, "password")
	if err := os.WriteFile(file, []byte(s.password), 0o600); err != nil {
		return err
	}
	attr, uid, gid, err := account()
	if err != nil {
		return err
	}
	if uid >= 0 {
		if err := errors.Join(os.Chown(s.dir, uid, gid), os.Chown(file, uid, gid)); err != nil {
			return err
		}
	}
	args := []string{"-D", s.data(), "-U", owner, "--auth=scram-sha-256", "--pwfile=" + file, "--encoding=UTF8", "--locale=C", "--no-sync", "--no-instructions"}
	cmd := exec.CommandContext(ctx, filepath.Join(s.bin, "initdb"), args...)
	cmd.Dir, cmd.SysProcAttr, cmd.Env = s.dir, attr, environment(s.dir)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("initdb: %w: %s", err, bytes.TrimSpace(out))
	}
	return os.Remove(file)
}

func environment(home string) []string {
	return []string{"PATH=" + os.Getenv("PATH"), "HOME=" + home, "LC_ALL=C", "TZ=UTC"}
}

func (s *Server) data() string { return filepath.Join(s.dir, "data") }

// start starts the server on a port that is free, and waits until it answers.
// A server that ran before keeps its port, as its URLs are known.
func (s *Server) start(ctx context.Context) (err error) {
	for range startTries {
		if s.port == 0 {
			if s.port, err = freePort(ctx); err != nil {
				return err
			}
		}
		if err = s.launch(ctx); err == nil {
			return nil
		}
		if !strings.Contains(s.log.String(), "could not bind") {
			break
		}
		if s.made == 0 {
			s.port = 0
		}
	}
	return fmt.Errorf("start: %w: %s", err, tail(s.log.Bytes()))
}

func freePort(ctx context.Context) (int, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}

// launch runs the server as a child, and returns when it answers.
func (s *Server) launch(ctx context.Context) error {
	attr, _, _, err := account()
	if err != nil {
		return err
	}
	onOff := "on"
	if s.Fast {
		onOff = "off"
	}
	args := []string{"-D", s.data(), "-p", strconv.Itoa(s.port), "-k", s.dir}
	for _, setting := range []string{
		"listen_addresses=127.0.0.1", "max_connections=300", "shared_buffers=64MB", "log_min_messages=fatal",
		"fsync=" + onOff, "full_page_writes=" + onOff, "max_wal_size=256MB",
	} {
		args = append(args, "-c", setting)
	}
	s.log.Reset()
	// It outlives the test that started it.
	cmd := exec.Command(filepath.Join(s.bin, "postgres"), args...)
	cmd.Dir, cmd.SysProcAttr, cmd.Env = s.dir, attr, environment(s.dir)
	cmd.Stdout, cmd.Stderr = &s.log, &s.log
	cmd.WaitDelay = stopTime
	exited, err := supervise(cmd)
	if err != nil {
		return err
	}
	s.cmd, s.exited = cmd, exited
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	for {
		if err = s.admin(ctx, "select 1"); err == nil {
			return nil
		}
		select {
		case <-exited:
			return errors.New("the server ended at once")
		case <-ctx.Done():
			return errors.Join(err, s.halt(syscall.SIGQUIT))
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// halt ends the server by signal, and by force if that takes too long.
func (s *Server) halt(signal syscall.Signal) error {
	if s.cmd == nil {
		return nil
	}
	cmd := s.cmd
	s.cmd = nil
	for _, sig := range []syscall.Signal{signal, syscall.SIGQUIT, syscall.SIGKILL} {
		if err := cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
			return fmt.Errorf("stop PostgreSQL: %w", err)
		}
		select {
		case <-s.exited:
			return nil
		case <-time.After(stopTime):
		}
	}
	return errors.New("PostgreSQL does not end")
}

// tail is the end of a log.
func tail(b []byte) []byte { return bytes.TrimSpace(b[max(0, len(b)-2000):]) }

func (s *Server) url(database string) string {
	u := url.URL{
		Scheme: "postgres", User: url.UserPassword(owner, s.password),
		Host: net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port)), Path: database, RawQuery: "sslmode=disable",
	}
	return u.String()
}

// admin runs one statement on the server's own database.
func (s *Server) admin(ctx context.Context, sql string) error {
	return execute(ctx, s.url("postgres"), sql)
}

func execute(ctx context.Context, database, sql string) (err error) {
	conn, err := pgx.Connect(ctx, database)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close(ctx)) }()
	// The simple protocol takes several statements at once.
	_, err = conn.Exec(ctx, sql, pgx.QueryExecModeSimpleProtocol)
	return err
}
