package gitfetch

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"syscall"
)

// A dialer makes the connections of one conversation, each within the
// connect budget, to addresses that the request allows.
type dialer struct {
	t     *target
	dials sync.WaitGroup
}

// transport returns a transport whose dials each run under the context that
// bind makes of theirs. What the transport itself hands to a dial is detached
// from the request, so that a dial could outlive what it is for.
func (d *dialer) transport(conns int, bind func(context.Context) (context.Context, func())) *http.Transport {
	var onlyHTTP1 http.Protocols
	// HTTP/2 would add frames that no budget counts, and gains nothing for
	// requests one after the other.
	onlyHTTP1.SetHTTP1(true)
	return &http.Transport{
		Proxy: nil, // not from the environment either
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			ctx, release := bind(ctx)
			defer release()
			return d.limited(ctx, func(ctx context.Context) (net.Conn, error) {
				return d.connect(ctx, network, address)
			})
		},
		DialTLSContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			ctx, release := bind(ctx)
			defer release()
			return d.limited(ctx, func(ctx context.Context) (net.Conn, error) {
				return d.connectTLS(ctx, network, address)
			})
		},
		MaxIdleConnsPerHost:    conns,
		MaxConnsPerHost:        conns,
		DisableCompression:     true,
		MaxResponseHeaderBytes: headerBytes,
		ReadBufferSize:         64 << 10,
		Protocols:              &onlyHTTP1,
	}
}

func (d *dialer) connectTLS(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := d.connect(ctx, network, address)
	if err != nil {
		return nil, err
	}
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	secure := tls.Client(conn, &tls.Config{
		ServerName: host,
		RootCAs:    d.t.RootCAs,
		MinVersion: tls.VersionTLS12,
		NextProtos: []string{"http/1.1"},
	})
	if err := secure.HandshakeContext(ctx); err != nil {
		_ = conn.Close() // of a connection that never was one
		return nil, tlsError(err)
	}
	return secure, nil
}

// limited runs one dial within the connect budget.
func (d *dialer) limited(ctx context.Context, dial func(context.Context) (net.Conn, error)) (net.Conn, error) {
	d.dials.Add(1)
	defer d.dials.Done()
	limit := d.t.Budgets.Connect
	ctx, cancel := context.WithTimeoutCause(ctx, limit, &BudgetError{Budget: BudgetConnect, Limit: int64(limit)})
	defer cancel()
	conn, err := dial(ctx)
	if err != nil {
		return nil, causeOf(ctx, err)
	}
	return conn, nil
}

func (d *dialer) connect(ctx context.Context, network, address string) (net.Conn, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	nd := net.Dialer{ControlContext: func(_ context.Context, _, resolved string, _ syscall.RawConn) error {
		return d.allow(host, resolved)
	}}
	return nd.DialContext(ctx, network, address)
}

// allow judges the address that a host's name led to, right before the
// connection is made to it, so that no second look-up can change it.
func (d *dialer) allow(host, resolved string) error {
	at, err := netip.ParseAddrPort(resolved)
	if err != nil {
		return fmt.Errorf("%w: not an IP address", ErrAddress)
	}
	if spelledOut(host) {
		return nil
	}
	addr := at.Addr().Unmap().WithZone("")
	switch {
	case isPublic(addr):
		return nil
	case d.t.AllowPrivate && isPrivate(addr):
		return nil
	case d.t.AllowHTTP && addr.IsLoopback():
		return nil
	}
	return fmt.Errorf("%w: the name leads to a private or special address; allow private addresses to use it", ErrAddress)
}

// spelledOut reports whether a host stands for an address by itself.
func spelledOut(host string) bool {
	if _, err := netip.ParseAddr(host); err == nil {
		return true
	}
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	return host == "localhost" || strings.HasSuffix(host, ".localhost")
}

// isPrivate reports whether addr belongs to this machine or to a network of
// its owner's. RFC 1918, RFC 4193, RFC 6598.
func isPrivate(addr netip.Addr) bool {
	shared := netip.PrefixFrom(netip.AddrFrom4([4]byte{100, 64}), 10)
	return addr.IsLoopback() || addr.IsPrivate() || shared.Contains(addr)
}

// isPublic reports whether addr is one of the public Internet. What the
// IANA registries of special-purpose addresses hold is not.
func isPublic(addr netip.Addr) bool {
	if !addr.IsGlobalUnicast() || isPrivate(addr) {
		return false
	}
	for _, special := range []string{
		"0.0.0.0/8", "192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "198.18.0.0/15",
		"198.51.100.0/24", "203.0.113.0/24", "240.0.0.0/4",
		// These hold an IPv4 address, which may be a private one.
		"64:ff9b::/96", "64:ff9b:1::/48", "2002::/16", "2001::/32", "::/96",
		"100::/64", "2001:db8::/32", "fec0::/10",
	} {
		if netip.MustParsePrefix(special).Contains(addr) {
			return false
		}
	}
	return true
}
