package ingress

import (
	"net"
	"sync"
	"sync/atomic"
)

// slots are as many tokens as there may be connections.
type slots struct {
	tokens chan struct{}
	open   atomic.Int64 // connections, without the one that is waited for
}

// crowded reports whether more than three quarters of the connections are
// open: then each is closed with its answer, so that idle ones keep nobody
// out.
func (s *slots) crowded() bool {
	most := int64(cap(s.tokens))
	return s.open.Load() > most-most/4
}

// A listener accepts a connection only when there is a token for it.
type listener struct {
	net.Listener
	slots  *slots
	closed chan struct{}
	once   sync.Once
}

func newListener(ln net.Listener, s *slots) *listener {
	return &listener{Listener: ln, slots: s, closed: make(chan struct{})}
}

// Accept waits for a token first.
func (l *listener) Accept() (net.Conn, error) {
	select {
	case l.slots.tokens <- struct{}{}:
	case <-l.closed:
		return nil, net.ErrClosed
	}
	c, err := l.Listener.Accept()
	if err != nil {
		<-l.slots.tokens
		return nil, err
	}
	l.slots.open.Add(1)
	return &slotConn{Conn: c, slots: l.slots}, nil
}

// Close ends a waiting Accept, too.
func (l *listener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return l.Listener.Close()
}

// A slotConn gives its token back when it is closed.
type slotConn struct {
	net.Conn
	slots *slots
	once  sync.Once
}

// Close implements [net.Conn].
func (c *slotConn) Close() error {
	c.once.Do(func() {
		c.slots.open.Add(-1)
		<-c.slots.tokens
	})
	return c.Conn.Close()
}

// CloseWrite lets net/http end its side first, so that a client still sending
// reads its answer.
func (c *slotConn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}
