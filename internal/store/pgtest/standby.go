package pgtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// standbyName is what a primary knows its standby by.
const standbyName = "fencepost_standby"

// A Standby is a server that has a copy of all that its primary commits, and
// that the primary waits for before it answers a commit.
type Standby struct {
	server, primary *Server
	link            *link
}

// Standby makes a synchronous standby of a server, with all the databases that
// it has, and returns when commits wait for it. It is stopped when the test
// ends; then the primary, if it is still there, waits for nobody.
func (s *Server) Standby(t testing.TB) *Standby {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	ctx, cancel := context.WithTimeout(t.Context(), startTime)
	defer cancel()
	if err := s.ensure(ctx); err != nil {
		t.Fatalf("PostgreSQL for tests: %v", err)
	}
	b := &Standby{primary: s, server: &Server{Fast: s.Fast, started: true, bin: s.bin, password: s.password}}
	t.Cleanup(func() {
		if err := b.stop(context.WithoutCancel(t.Context())); err != nil {
			t.Errorf("stop the standby: %v", err)
		}
	})
	if err := b.create(ctx); err != nil {
		t.Fatalf("make a standby: %v", err)
	}
	return b
}

func (b *Standby) create(ctx context.Context) (err error) {
	if b.link, err = newLink(ctx, net.JoinHostPort("127.0.0.1", strconv.Itoa(b.primary.port))); err != nil {
		return err
	}
	r := b.server
	if r.dir, err = os.MkdirTemp("", "fencepost-pg-"); err != nil {
		return err
	}
	attr, uid, gid, err := account()
	if err != nil {
		return err
	}
	if uid >= 0 {
		if err := os.Chown(r.dir, uid, gid); err != nil {
			return err
		}
	}
	_, port, err := net.SplitHostPort(b.link.listener.Addr().String())
	if err != nil {
		return err
	}
	from := fmt.Sprintf("host=127.0.0.1 port=%s user=%s password=%s application_name=%s", port, owner, r.password, standbyName)
	cmd := exec.CommandContext(ctx, filepath.Join(r.bin, "pg_basebackup"),
		"-D", r.data(), "-d", from, "-X", "stream", "-R", "-c", "fast", "--no-sync", "--no-manifest")
	cmd.Dir, cmd.SysProcAttr, cmd.Env = r.dir, attr, environment(r.dir)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("pg_basebackup: %w: %s", err, bytes.TrimSpace(out))
	}
	if err := r.start(ctx); err != nil {
		return err
	}
	return b.waitFor(ctx, standbyName, "select count(*) from pg_stat_replication where sync_state = 'sync'")
}

// waitFor has commits wait for the standbys of these names, and returns when
// the query says 1.
func (b *Standby) waitFor(ctx context.Context, names, query string) error {
	for _, sql := range []string{"alter system set synchronous_standby_names = '" + names + "'", "select pg_reload_conf()"} {
		if err := b.primary.admin(ctx, sql); err != nil {
			return err
		}
	}
	return b.primary.await(ctx, query)
}

// await returns when a query's number is 1.
func (s *Server) await(ctx context.Context, query string) (err error) {
	conn, err := pgx.Connect(ctx, s.url("postgres"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close(context.WithoutCancel(ctx))) }()
	for {
		var n int
		if err := conn.QueryRow(ctx, query).Scan(&n); err != nil || n == 1 {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s: %w", query, context.Cause(ctx))
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// URL is the standby's of a database of the primary's.
func (b *Standby) URL(database string) string { return b.server.url(name(database)) }

// Exec runs SQL on the standby, once it was promoted.
func (b *Standby) Exec(t testing.TB, database, sql string) {
	t.Helper()
	b.server.Exec(t, b.URL(database), sql)
}

// Cut cuts the way between the two: what was not sent before never arrives.
// Commits on the primary wait from then on.
func (b *Standby) Cut() { b.link.cut() }

// Reconnect undoes Cut. The standby tries again within a few seconds.
func (b *Standby) Reconnect() { b.link.reconnect() }

// Detach has the primary wait for no standby any more, as an operator may.
func (b *Standby) Detach(t testing.TB) {
	t.Helper()
	if err := b.waitFor(t.Context(), "", "select count(*) from pg_settings where name = 'synchronous_standby_names' and setting = ''"); err != nil {
		t.Fatalf("detach the standby: %v", err)
	}
}

// EndWaiting waits until a session waits for the standby in its commit, and
// ends the session, or if only is true only its wait.
func (b *Standby) EndWaiting(t testing.TB, only bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), startTime)
	defer cancel()
	end := "pg_terminate_backend"
	if only {
		end = "pg_cancel_backend"
	}
	err := b.primary.await(ctx, "select least(count("+end+"(pid)), 1) from pg_stat_activity where wait_event = 'SyncRep' and backend_type = 'client backend'")
	if err != nil {
		t.Fatalf("end the wait for the standby: %v", err)
	}
}

// Promote kills the primary as the loss of its machine does, and makes the
// standby the primary.
func (b *Standby) Promote(t testing.TB) {
	t.Helper()
	b.primary.mu.Lock()
	defer b.primary.mu.Unlock()
	if err := b.primary.halt(syscall.SIGKILL); err != nil {
		t.Fatalf("kill the primary: %v", err)
	}
	if err := b.server.admin(t.Context(), "select pg_promote()"); err != nil {
		t.Fatalf("promote the standby: %v", err)
	}
}

func (b *Standby) stop(ctx context.Context) error {
	var errs []error
	if b.primary.cmd != nil {
		errs = append(errs, b.waitFor(ctx, "", "select 1"))
	}
	errs = append(errs, b.server.Stop())
	if b.link != nil {
		errs = append(errs, b.link.close())
	}
	return errors.Join(errs...)
}

// A link is the way from a standby to its primary.
type link struct {
	listener net.Listener
	to       string
	group    sync.WaitGroup

	mu   sync.Mutex
	down bool
	open map[net.Conn]struct{}
}

func newLink(ctx context.Context, to string) (*link, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	l := &link{listener: listener, to: to, open: map[net.Conn]struct{}{}}
	l.group.Go(func() {
		for {
			in, err := listener.Accept()
			if err != nil {
				return
			}
			l.group.Go(func() { l.carry(in) })
		}
	})
	return l, nil
}

// carry forwards one connection until one side, or the link, ends it.
func (l *link) carry(in net.Conn) {
	defer in.Close()
	out, err := net.DialTimeout("tcp", l.to, startTime)
	if err != nil {
		return
	}
	defer out.Close()
	if !l.keep(in, out) {
		return
	}
	var both sync.WaitGroup
	both.Go(func() { _, _ = io.Copy(out, in); out.Close() })
	both.Go(func() { _, _ = io.Copy(in, out); in.Close() })
	both.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.open, in)
	delete(l.open, out)
}

func (l *link) keep(conns ...net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range conns {
		if !l.down {
			l.open[c] = struct{}{}
		}
	}
	return !l.down
}

func (l *link) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.down = true
	for c := range l.open {
		c.Close()
	}
}

func (l *link) reconnect() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.down = false
}

func (l *link) close() error {
	err := l.listener.Close()
	l.cut()
	l.group.Wait()
	return err
}
