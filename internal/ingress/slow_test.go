package ingress_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/ingress"
)

// pipes is a listener without a network, so that time can be a bubble's.
type pipes struct {
	conns  chan net.Conn
	closed chan struct{}
}

func newPipes() *pipes { return &pipes{make(chan net.Conn), make(chan struct{})} }

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	close(p.closed)
	return nil
}

func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipes"} }

// dial returns the client's end of a new connection, or nil if nobody accepts
// it any more.
func (p *pipes) dial() net.Conn {
	client, server := net.Pipe()
	select {
	case p.conns <- server:
		return client
	case <-p.closed:
		return nil
	}
}

// bubble runs f with a server that listens on pipes, and stops the server. It
// returns what Run returned.
func bubble(t *testing.T, cfg ingress.Config, f func(w *world, p *pipes, stop func())) (err error) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, cfg, time.Now)
		// In a bubble it is the year 2000.
		w.keys = keyring(t, anchorA)
		w.Swap(w.table(t, nil))
		p := newPipes()
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- w.Run(ctx, p) }()
		f(w, p, stop)
		stop()
		err = <-ended
	})
	return err
}

// wire is the request as it goes over a connection, in parts: all but the
// body, and the body.
func (r *request) wire() (head, body string) {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s HTTP/1.1\r\nHost: hooks.example\r\n", r.method, r.target)
	if r.chunked {
		b.WriteString("Transfer-Encoding: chunked\r\n")
	} else {
		fmt.Fprintf(&b, "Content-Length: %d\r\n", len(r.body))
	}
	for name, values := range r.header {
		for _, v := range values {
			fmt.Fprintf(&b, "%s: %s\r\n", name, v)
		}
	}
	b.WriteString("\r\n")
	return b.String(), r.body
}

// exchange sends text and reads one answer, which may come before all is
// sent. It returns its status.
func exchange(conn net.Conn, text string) (int, error) {
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		// A server that has heard enough does not read on.
		_, _ = io.WriteString(conn, text)
	}()
	status, err := 0, error(nil)
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err == nil {
		status = resp.StatusCode
		_, err = io.Copy(io.Discard, resp.Body)
	}
	_ = conn.SetWriteDeadline(time.Unix(1, 0))
	<-sent
	_ = conn.SetWriteDeadline(time.Time{})
	return status, err
}

// untilClosed waits for the server to close conn, while writing piece every
// interval if it is not empty, and returns how long that took.
func untilClosed(conn net.Conn, piece string, every time.Duration) time.Duration {
	begin := time.Now()
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		_, _ = io.Copy(io.Discard, conn)
	}()
	for {
		select {
		case <-gone:
			conn.Close()
			return time.Since(begin)
		case <-time.After(every):
			// Once the server is gone, so is the reader.
			_, _ = io.WriteString(conn, piece)
		}
	}
}

const never = 1000 * time.Hour

func TestSlowClientsEndAtTheirTimeouts(t *testing.T) {
	t.Parallel()
	const mib = 1 << 20
	tests := map[string]struct {
		begin func(head, body string) string // what is sent at once
		size  int                            // of the body; 0 for a small good one
		piece int                            // bytes that follow
		every time.Duration
		want  time.Duration
		abort bool // whether a request was begun
	}{
		"silent from the start":          {begin: func(string, string) string { return "" }, every: never, want: 10 * time.Second},
		"stops within its headers":       {begin: func(head, _ string) string { return head[:40] }, every: never, want: 10 * time.Second},
		"a header byte a second":         {begin: func(head, _ string) string { return head[:len(head)-2] + "X: " }, piece: 1, every: time.Second, want: 10 * time.Second},
		"stops before its body":          {begin: func(head, _ string) string { return head }, every: never, want: 10 * time.Second, abort: true},
		"stops within its body":          {begin: func(head, body string) string { return head + body[:3] }, every: never, want: 10 * time.Second, abort: true},
		"a body byte a second":           {begin: func(head, _ string) string { return head }, piece: 1, every: time.Second, want: 10 * time.Second, abort: true},
		"a large body in small pieces":   {begin: func(head, _ string) string { return head }, size: 20 * mib, piece: 1 << 10, every: time.Second, want: 10 * time.Second, abort: true},
		"a large body just fast enough":  {begin: func(head, _ string) string { return head }, size: 20 * mib, piece: 256 << 10, every: 9 * time.Second, want: 30 * time.Second, abort: true},
		"stops after a large part":       {begin: func(head, _ string) string { return head }, size: 20 * mib, piece: 256 << 10, every: 9*time.Second + time.Nanosecond, want: 30 * time.Second, abort: true},
		"silent after being answered":    {begin: func(head, body string) string { return head + body }, every: never, want: 60 * time.Second},
		"an unwanted body byte a second": {begin: func(head, _ string) string { return strings.Replace(head, "application/json", "text/plain", 1) }, piece: 1, every: time.Second, want: 10 * time.Second},
		"stops before an unwanted body":  {begin: func(head, _ string) string { return strings.Replace(head, "application/json", "text/plain", 1) }, every: never, want: 10 * time.Second},
		"waits for word to send a bad body": {begin: func(head, _ string) string {
			return strings.Replace(head, "application/json", "text/plain\r\nExpect: 100-continue", 1)
		}, every: never, want: 0},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := bubble(t, ingress.Config{}, func(w *world, p *pipes, _ func()) {
				r := w.docs(t, goodBody)
				if test.size > 0 {
					r.body = strings.Repeat(" ", test.size)
				}
				conn := p.dial()
				begin := time.Now()
				if _, err := io.WriteString(conn, test.begin(r.wire())); err != nil {
					t.Fatal(err)
				}
				untilClosed(conn, strings.Repeat(" ", test.piece), test.every)
				if took := time.Since(begin); took != test.want {
					t.Errorf("cut off after %v, want %v", took, test.want)
				}
				synctest.Wait()
				if s := w.Stats(); s != (ingress.Stats{}) {
					t.Errorf("something is left over: %+v", s)
				}
				said := w.journal.answers()
				aborted := len(said) == 1 && said[0].Outcome == ingress.OutcomeAborted && said[0].Status == 0
				if aborted != test.abort {
					t.Errorf("the observer was told %+v", said)
				}
			})
			if err != nil {
				t.Errorf("Run: %v", err)
			}
		})
	}
}

// What comes after the body is bound by no proof.
func TestTrailersAreRefused(t *testing.T) {
	t.Parallel()
	err := bubble(t, ingress.Config{}, func(w *world, p *pipes, _ func()) {
		r := w.docs(t, goodBody)
		r.chunked = true
		for _, test := range []struct {
			announce, trailer string
			want              int
		}{
			{"", "", 202}, {"", "X-GitHub-Event: push\r\n", 431},
			{"Trailer: X-GitHub-Event\r\n", "", 431}, {"Trailer: X-GitHub-Event\r\n", "X-GitHub-Event: push\r\n", 431},
		} {
			head, body := r.wire()
			conn := p.dial()
			status, err := exchange(conn, head[:len(head)-2]+test.announce+"\r\n"+fmt.Sprintf("%x\r\n%s\r\n0\r\n%s\r\n", len(body), body, test.trailer))
			if status != test.want || err != nil {
				t.Errorf("announced %q, sent %q: status %d, err = %v; want %d", test.announce, test.trailer, status, err, test.want)
			}
			conn.Close()
		}
	})
	if err != nil {
		t.Errorf("Run: %v", err)
	}
}

// A client that doesn't read its answers is cut off, and holds no room
// meanwhile.
func TestClientThatDoesNotReadIsCutOff(t *testing.T) {
	t.Parallel()
	err := bubble(t, ingress.Config{}, func(w *world, p *pipes, _ func()) {
		conn := p.dial()
		head, body := w.docs(t, goodBody).wire()
		if _, err := io.WriteString(conn, head+body); err != nil {
			t.Fatal(err)
		}
		time.Sleep(59 * time.Second)
		if s := w.Stats(); s.Connections != 1 || s.BodyBytes != 0 || s.Requests != 0 {
			t.Errorf("after 59s: %+v, want a connection alone", s)
		}
		time.Sleep(2 * time.Second)
		if s := w.Stats(); s.Connections != 0 {
			t.Errorf("after 61s: %+v, want nothing", s)
		}
		conn.Close()
	})
	if err != nil {
		t.Errorf("Run: %v", err)
	}
}

func TestConnectionsAreCapped(t *testing.T) {
	t.Parallel()
	err := bubble(t, ingress.Config{MaxConnections: 4}, func(w *world, p *pipes, _ func()) {
		var idle []net.Conn
		for range 4 {
			idle = append(idle, p.dial())
		}
		fifth := make(chan net.Conn)
		go func() { fifth <- p.dial() }()
		synctest.Wait()
		select {
		case <-fifth:
			t.Error("a fifth connection was accepted")
		default:
		}
		// A connection that is answered while there is a crowd is closed, and
		// makes room.
		head, body := w.docs(t, goodBody).wire()
		if status, err := exchange(idle[0], head+body); status != 202 || err != nil {
			t.Errorf("status %d, err = %v", status, err)
		}
		begin := time.Now()
		conn := <-fifth
		if status, err := exchange(conn, head+body); status != 200 || err != nil || time.Since(begin) != 0 {
			t.Errorf("fifth: status %d after %v, err = %v; want 200 at once", status, time.Since(begin), err)
		}
		for _, c := range append(idle, conn) {
			c.Close()
		}
	})
	if err != nil {
		t.Errorf("Run: %v", err)
	}
}

// A body waits for room, and is refused when there is none in time.
func TestBodiesWaitForRoom(t *testing.T) {
	t.Parallel()
	const mib = 1 << 20
	err := bubble(t, ingress.Config{MaxBody: 4 * mib, BodyMemory: 4 * mib, RecordTimeout: time.Minute}, func(w *world, p *pipes, _ func()) {
		hold := make(chan struct{})
		w.recorder.before = func(context.Context) { <-hold }
		large := func() *request { return w.docs(t, goodBody+strings.Repeat(" ", 2*mib)) }
		type result struct {
			status int
			after  time.Duration
		}
		results := make(chan result)
		send := func(r *request) {
			begin := time.Now()
			conn := p.dial()
			head, body := r.wire()
			if r.chunked {
				body = fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(body), body)
			}
			status, _ := exchange(conn, head+body)
			conn.Close()
			results <- result{status, time.Since(begin)}
		}
		go send(large())
		synctest.Wait()
		if s := w.Stats(); s.Requests != 1 || s.BodyBytes != 4*mib || s.Waiting != 0 {
			t.Errorf("with one body: %+v", s)
		}
		go send(large())
		chunked := large()
		chunked.chunked = true
		go send(chunked)
		synctest.Wait()
		if s := w.Stats(); s.Requests != 3 || s.BodyBytes != 4*mib || s.Waiting != 2 {
			t.Errorf("with three: %+v", s)
		}
		for range 2 {
			if got := <-results; got != (result{503, 5 * time.Second}) {
				t.Errorf("%+v, want 503 after 5s", got)
			}
		}
		go send(large())
		time.Sleep(4 * time.Second)
		close(hold)
		got := []result{<-results, <-results}
		if diff := cmp.Diff([]int{202, 200}, []int{got[0].status, got[1].status}); diff != "" {
			t.Errorf("statuses (-want +got):\n%s", diff)
		}
	})
	if err != nil {
		t.Errorf("Run: %v", err)
	}
}

// A body whose length nobody knows waits for room when it turns out large; its
// client's time does not pass meanwhile, and all room is given back.
func TestGrowingBodiesWaitForRoom(t *testing.T) {
	t.Parallel()
	const mib = 1 << 20
	err := bubble(t, ingress.Config{MaxBody: 4 * mib, BodyMemory: 6 * mib, BodyWait: time.Minute, RecordTimeout: time.Minute}, func(w *world, p *pipes, _ func()) {
		hold := make(chan struct{})
		w.recorder.before = func(context.Context) { <-hold }
		large := w.docs(t, goodBody+strings.Repeat(" ", 2*mib))
		statuses := make(chan int)
		send := func(chunked bool) {
			r := *large
			r.chunked = chunked
			head, body := r.wire()
			if chunked {
				body = fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(body), body)
			}
			conn := p.dial()
			status, err := exchange(conn, head+body)
			if err != nil {
				t.Error(err)
			}
			conn.Close()
			statuses <- status
		}
		go send(false)
		synctest.Wait()
		go send(true)
		synctest.Wait()
		if s := w.Stats(); s.Waiting != 1 || s.BodyBytes != 5*mib {
			t.Errorf("%+v, want one waiting with 1 MiB of 5", s)
		}
		// Longer than a stall and than a whole body may take.
		time.Sleep(40 * time.Second)
		close(hold)
		if diff := cmp.Diff([]int{202, 200}, []int{<-statuses, <-statuses}); diff != "" {
			t.Errorf("statuses (-want +got):\n%s", diff)
		}
		synctest.Wait()
		if s := w.Stats(); s != (ingress.Stats{}) {
			t.Errorf("something is left over: %+v", s)
		}
	})
	if err != nil {
		t.Errorf("Run: %v", err)
	}
}

// Nothing is answered by net/http instead of by us.
func TestOptionsOfTheServerAreNoSpecialCase(t *testing.T) {
	t.Parallel()
	err := bubble(t, ingress.Config{}, func(_ *world, p *pipes, _ func()) {
		conn := p.dial()
		if status, err := exchange(conn, "OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n"); status != 405 || err != nil {
			t.Errorf("status %d, err = %v, want 405", status, err)
		}
		conn.Close()
	})
	if err != nil {
		t.Errorf("Run: %v", err)
	}
}

// Large bodies, however slow, keep no ordinary one waiting.
func TestLargeBodiesLeaveRoomForOrdinaryOnes(t *testing.T) {
	t.Parallel()
	const mib = 1 << 20
	err := bubble(t, ingress.Config{MaxBody: 8 * mib, BodyMemory: 16 * mib, MaxConnections: 100}, func(w *world, p *pipes, _ func()) {
		var slow []net.Conn
		head, _ := w.docs(t, strings.Repeat(" ", 8*mib)).wire()
		for range 20 {
			conn := p.dial()
			if _, err := io.WriteString(conn, head); err != nil {
				t.Fatal(err)
			}
			slow = append(slow, conn)
		}
		synctest.Wait()
		if s := w.Stats(); s.Waiting != 19 {
			t.Errorf("%+v, want 19 waiting", s)
		}
		begin := time.Now()
		for i := range 10 {
			conn := p.dial()
			r := w.docs(t, fmt.Sprintf(`{"repository":{"id":1},"n":%d}`, i))
			head, body := r.wire()
			if status, err := exchange(conn, head+body); status != 202 || err != nil || time.Since(begin) != 0 {
				t.Errorf("ordinary body: status %d after %v, err = %v", status, time.Since(begin), err)
			}
			conn.Close()
		}
		for _, c := range slow {
			c.Close()
		}
	})
	if err != nil {
		t.Errorf("Run: %v", err)
	}
}

func TestRecordingEndsInTime(t *testing.T) {
	t.Parallel()
	err := bubble(t, ingress.Config{}, func(w *world, p *pipes, _ func()) {
		w.recorder.before = func(ctx context.Context) { <-ctx.Done() }
		begin := time.Now()
		conn := p.dial()
		head, body := w.docs(t, goodBody).wire()
		status, err := exchange(conn, head+body)
		if status != 503 || err != nil || time.Since(begin) != 8*time.Second {
			t.Errorf("status %d after %v, err = %v; want 503 after 8s", status, time.Since(begin), err)
		}
		conn.Close()
	})
	if err != nil {
		t.Errorf("Run: %v", err)
	}
}

func TestDraining(t *testing.T) {
	t.Parallel()
	err := bubble(t, ingress.Config{RecordTimeout: time.Minute}, func(w *world, p *pipes, stop func()) {
		hold := make(chan struct{})
		w.recorder.before = func(context.Context) { <-hold }
		head, body := w.docs(t, goodBody).wire()
		idle, busy := p.dial(), p.dial()
		answered := make(chan int)
		go func() {
			status, _ := exchange(busy, head+body)
			answered <- status
		}()
		synctest.Wait()
		stop()
		synctest.Wait()
		// New requests, on old connections and new ones, are told so, and the
		// connection ends.
		for name, conn := range map[string]net.Conn{"old": idle, "new": p.dial()} {
			if status, err := exchange(conn, head+body); status != 503 || err != nil {
				t.Errorf("%s connection: status %d, err = %v", name, status, err)
			}
			if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
				t.Errorf("%s connection lives on: err = %v", name, err)
			}
			conn.Close()
		}
		if s := w.Stats(); !s.Draining || s.Requests != 1 {
			t.Errorf("%+v, want one request and draining", s)
		}
		time.Sleep(14 * time.Second)
		close(hold)
		if status := <-answered; status != 202 {
			t.Errorf("the request in flight: status %d, want 202", status)
		}
		busy.Close()
		synctest.Wait()
		time.Sleep(time.Second)
		if p.dial() != nil {
			t.Error("somebody still listens")
		}
		for _, a := range w.journal.answers() {
			if a.Status == 503 && a.Reason != fencepost.ReasonDraining {
				t.Errorf("reason %q, want draining", a.Reason)
			}
		}
	})
	if err != nil {
		t.Errorf("Run: %v", err)
	}
}

// Draining ends, whatever requests do: a body that does not come and a
// recording that does not end are cut off.
func TestDrainingIsBounded(t *testing.T) {
	t.Parallel()
	var took time.Duration
	err := bubble(t, ingress.Config{Drain: 3 * time.Second, BodyTimeout: time.Hour, StallTimeout: time.Hour, RecordTimeout: 20 * time.Second},
		func(w *world, p *pipes, stop func()) {
			w.recorder.before = func(ctx context.Context) { <-ctx.Done() }
			head, body := w.docs(t, goodBody).wire()
			slow, stuck := p.dial(), p.dial()
			for conn, text := range map[net.Conn]string{slow: head, stuck: head + body} {
				if _, err := io.WriteString(conn, text); err != nil {
					t.Fatal(err)
				}
			}
			synctest.Wait()
			begin := time.Now()
			stop()
			<-p.closed
			took = time.Since(begin)
			for _, conn := range []net.Conn{slow, stuck} {
				if _, err := io.Copy(io.Discard, conn); err != nil {
					t.Errorf("the connection did not just end: %v", err)
				}
				conn.Close()
			}
		})
	if !errors.Is(err, ingress.ErrCutOff) || took != 3*time.Second {
		t.Errorf("Run: %v, closed after %v; want ErrCutOff after 3s", err, took)
	}
}

func TestRunReportsAListenerThatFails(t *testing.T) {
	t.Parallel()
	w := newWorld(t, ingress.Config{}, time.Now)
	p := newPipes()
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	if err := w.Run(t.Context(), brokenListener{p}); !errors.Is(err, net.ErrClosed) {
		t.Errorf("err = %v, want net.ErrClosed", err)
	}
}

type brokenListener struct{ *pipes }

func (brokenListener) Close() error { return nil }
