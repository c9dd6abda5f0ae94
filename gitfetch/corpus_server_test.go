package gitfetch_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/gitfetch"
)

// against returns the scene of one handwritten host.
func against(build func(commit fencepost.ObjectID, pack []byte) *host, change ...func(*gitfetch.Request)) func(*testing.T) []scene {
	return func(t *testing.T) []scene {
		commit, pack := good()
		s := scene{url: build(commit, pack).start(t), commit: commit}
		if len(change) > 0 {
			s.change = change[0]
		}
		return []scene{s}
	}
}

// sockets returns the scene of a server that gets the bare connection, after
// the client's request where there is one to read.
func sockets(talk func(net.Conn)) func(*testing.T) []scene {
	return func(t *testing.T) []scene {
		commit, _ := good()
		return []scene{{url: "http://" + listen(t, talk) + "/r.git", commit: commit}}
	}
}

// listen serves bare connections until the test ends.
func listen(t *testing.T, talk func(net.Conn)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	var mu sync.Mutex
	var open []net.Conn
	all.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			open = append(open, conn)
			mu.Unlock()
			all.Go(func() {
				defer conn.Close()
				talk(conn)
			})
		}
	})
	t.Cleanup(func() {
		l.Close()
		mu.Lock()
		for _, c := range open {
			c.Close()
		}
		mu.Unlock()
		all.Wait()
	})
	return l.Addr().String()
}

// says answers every request with the same bytes, and closes.
func says(text string) func(net.Conn) {
	return func(c net.Conn) {
		readRequest(c)
		_, _ = io.WriteString(c, text)
	}
}

// readRequest reads what a client sends before it waits.
func readRequest(c net.Conn) {
	buf := make([]byte, 4<<10)
	_, _ = c.Read(buf)
}

// onAndOn answers with first and then the same bytes until the client goes.
func onAndOn(first, rest string, pause time.Duration) func(net.Conn) {
	return func(c net.Conn) {
		readRequest(c)
		_, err := io.WriteString(c, first)
		for err == nil {
			_, err = io.WriteString(c, rest)
			time.Sleep(pause)
		}
	}
}

// headed is a good host whose headers are changed, of the first answer or of
// both.
func headed(change func(http.Header)) func(fencepost.ObjectID, []byte) *host {
	return func(commit fencepost.ObjectID, pack []byte) *host {
		return &host{advertisement: advertisement(), result: answerWith(commit, pack), head: change}
	}
}

// second is a good host whose second answer is written by hand.
func second(write func(commit fencepost.ObjectID, pack []byte, w http.ResponseWriter, r *http.Request)) func(fencepost.ObjectID, []byte) *host {
	return func(commit fencepost.ObjectID, pack []byte) *host {
		return &host{advertisement: advertisement(), write: func(w http.ResponseWriter, r *http.Request) { write(commit, pack, w, r) }}
	}
}

// answers is a scene in which every request gets the same answer.
func answers(handle http.HandlerFunc, change ...func(*gitfetch.Request)) func(*testing.T) []scene {
	return func(t *testing.T) []scene {
		server := httptest.NewServer(handle)
		t.Cleanup(server.Close)
		s := scene{url: server.URL + "/r.git", commit: fencepost.ObjectID{1}}
		if len(change) > 0 {
			s.change = change[0]
		}
		return []scene{s}
	}
}

func coded(code int, headers ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		for i := 0; i < len(headers); i += 2 {
			w.Header().Set(headers[i], headers[i+1])
		}
		w.WriteHeader(code)
		if code >= 200 && code != http.StatusNoContent {
			_, _ = io.WriteString(w, serverWords)
		}
	}
}

func hops(n int) func(*gitfetch.Request) {
	return func(r *gitfetch.Request) { r.Budgets.Redirects = n }
}

func httpAttacks() []attack {
	const (
		rfc  = "RFC 9112"
		v2   = "gitprotocol-http"
		tail = "/info/refs?service=git-upload-pack"
	)
	set := func(name, value string) func(http.Header) { return func(h http.Header) { h.Set(name, value) } }
	onResult := func(name, value string) func(http.Header) {
		return func(h http.Header) {
			if h.Get("Content-Type") == typeResult {
				h.Set(name, value)
			}
		}
	}
	refs := "HTTP/1.1 200 OK\r\nContent-Type: " + typeAdvertisement + "\r\n"
	return []attack{
		{"a login page in place of the refs", v2, fails(gitfetch.ErrNotV2), against(headed(set("Content-Type", "text/html")))},
		{"a dumb server", v2, fails(gitfetch.ErrNotV2), against(headed(set("Content-Type", "text/plain")))},
		{"refs without a media type", v2, fails(gitfetch.ErrNotV2), against(headed(set("Content-Type", "")))},
		{"a media type that only begins well", v2, fails(gitfetch.ErrNotV2), against(headed(set("Content-Type", typeAdvertisement+"x")))},
		{"a login page in place of the pack", v2, fails(gitfetch.ErrProtocol), against(headed(onResult("Content-Type", "text/html")))},
		{"refs for a pack", v2, fails(gitfetch.ErrProtocol), against(headed(onResult("Content-Type", typeAdvertisement)))},
		{"a compressed answer", "transfer budget", fails(gitfetch.ErrProtocol), against(headed(set("Content-Encoding", "gzip")))},
		{"a compressed pack", "transfer budget", fails(gitfetch.ErrProtocol), against(headed(onResult("Content-Encoding", "deflate")))},
		{"a content length that is too large", rfc, fails(gitfetch.ErrConnection), against(second(func(c fencepost.ObjectID, p []byte, w http.ResponseWriter, _ *http.Request) {
			body := answerWith(c, p)
			w.Header().Set("Content-Length", fmt.Sprint(len(body)+1))
			_, _ = w.Write(body)
		}))},
		{"a content length that is too small", rfc, fails(gitfetch.ErrProtocol), against(second(func(c fencepost.ObjectID, p []byte, w http.ResponseWriter, _ *http.Request) {
			body := answerWith(c, p)
			w.Header().Set("Content-Length", fmt.Sprint(len(body)-5))
			_, _ = w.Write(body[:len(body)-5])
		}))},
		{"a content length that is no number", rfc, fails(gitfetch.ErrProtocol), sockets(says(refs + "Content-Length: " + serverWords + "\r\n\r\n"))},
		{"two content lengths", rfc, fails(gitfetch.ErrProtocol), sockets(says(refs + "Content-Length: 4\r\nContent-Length: 9\r\n\r\n0000"))},
		{"a chunk whose size is no number", rfc, fails(gitfetch.ErrProtocol), sockets(says(refs + "Transfer-Encoding: chunked\r\n\r\n" + serverWords + "\r\n"))},
		{"a chunk that is cut short", rfc, fails(gitfetch.ErrConnection), sockets(says(refs + "Transfer-Encoding: chunked\r\n\r\nff\r\n000eversion 2\n"))},
		{"a chunk with an endless extension", rfc, fails(gitfetch.ErrProtocol), sockets(onAndOn(refs+"Transfer-Encoding: chunked\r\n\r\n4;", strings.Repeat("x", 4<<10), 0))},
		{"an unknown transfer coding", rfc, fails(gitfetch.ErrProtocol), sockets(says(refs + "Transfer-Encoding: " + serverWords + "\r\n\r\n0000"))},
		{"no HTTP at all", rfc, fails(gitfetch.ErrProtocol), sockets(says("SSH-2.0-" + serverWords + "\r\n"))},
		{"a status that is no number", rfc, fails(gitfetch.ErrProtocol), sockets(says("HTTP/1.1 " + serverWords + "\r\n\r\n"))},
		{"a header line without a colon", rfc, fails(gitfetch.ErrProtocol), sockets(says("HTTP/1.1 200 OK\r\n" + serverWords + "\r\n\r\n"))},
		{"endless headers", rfc, fails(gitfetch.ErrProtocol), sockets(onAndOn("HTTP/1.1 200 OK\r\n", "X-A: "+strings.Repeat("x", 1000)+"\r\n", 0))},
		{"one endless header", rfc, fails(gitfetch.ErrProtocol), sockets(onAndOn("HTTP/1.1 200 OK\r\nX: ", strings.Repeat("x", 1000), 0))},
		{"endless interim answers", rfc, fails(gitfetch.ErrProtocol), sockets(onAndOn("", "HTTP/1.1 103 Early Hints\r\nX-A: "+strings.Repeat("x", 1000)+"\r\n\r\n", 0))},
		{"another protocol, switched to", rfc, status(101), sockets(says("HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n" + serverWords))},
		{"a connection closed before the answer", rfc, fails(gitfetch.ErrConnection), sockets(says(""))},
		{"a connection closed within the headers", rfc, fails(gitfetch.ErrProtocol), sockets(says("HTTP/1.1 200 OK\r\nContent-Ty"))},
		{"a connection that is reset", rfc, fails(gitfetch.ErrConnection), sockets(func(c net.Conn) {
			readRequest(c)
			_ = c.(*net.TCPConn).SetLinger(0)
		})},
		{"nobody there", rfc, fails(gitfetch.ErrConnection), func(t *testing.T) []scene {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			at := l.Addr().String()
			l.Close()
			return []scene{{url: "http://" + at + "/r.git", commit: fencepost.ObjectID{1}}}
		}},
		{"a server of HTTP/2 alone", "RFC 9113", anyError(), func(t *testing.T) []scene {
			var only http.Protocols
			only.SetUnencryptedHTTP2(true)
			server := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
			server.Config.Protocols = &only
			server.Start()
			t.Cleanup(server.Close)
			return []scene{{url: server.URL + "/r.git", commit: fencepost.ObjectID{1}}}
		}},
		{"resets and goodbyes of HTTP/2", "RFC 9113", fails(gitfetch.ErrProtocol), sockets(says("\x00\x00\x00\x04\x00\x00\x00\x00\x00" + "\x00\x00\x04\x03\x00\x00\x00\x00\x01\x00\x00\x00\x08" + "\x00\x00\x08\x07\x00\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x0b"))},
		{"no content", v2, status(204), answers(coded(204))},
		{"a part of the content", v2, status(206), answers(coded(206, "Content-Range", "bytes 0-3/10"))},
		{"an error of the server", v2, status(500), answers(coded(500, "Content-Type", "text/plain"))},
		{"an error with an endless text", "transfer budget", status(500), sockets(onAndOn("HTTP/1.1 500 No\r\nContent-Type: text/plain\r\n\r\n", strings.Repeat("x", 1000), 0))},
		{"a wish for a credential", v2, fails(gitfetch.ErrCredential).because(fencepost.ReasonCredential), answers(coded(401, "WWW-Authenticate", "Basic realm="+serverWords))},
		{"a forbidden repository", v2, fails(gitfetch.ErrCredential).because(fencepost.ReasonCredential), answers(coded(403))},
		{"a repository that is not there", v2, fails(gitfetch.ErrNotFound), answers(coded(404))},
		{"a repository that is gone", v2, fails(gitfetch.ErrNotFound), answers(coded(410))},
		{"a limit of the host's", "RFC 6585", fails(gitfetch.ErrRateLimited).because(fencepost.ReasonRateLimited), answers(coded(429, "Retry-After", "99999999999"))},
		{"a server that is down for a while", "RFC 9110", fails(gitfetch.ErrRateLimited).because(fencepost.ReasonRateLimited), answers(coded(503, "Retry-After", "1"))},
		{"a redirect, where none is allowed", "http.followRedirects", fails(gitfetch.ErrRedirect), answers(coded(302, "Location", "/x"+tail))},
		{"endless redirects", "http.followRedirects", over(gitfetch.BudgetRedirects), answers(coded(302, "Location", "/x"+tail), hops(20))},
		{"a redirect to another port", "CVE-2026-41506", fails(gitfetch.ErrRedirect), answers(coded(307, "Location", "http://127.0.0.1:1/r.git"+tail), hops(5))},
		{"a redirect to where clouds keep secrets", "server-side request forgery", fails(gitfetch.ErrRedirect), answers(coded(302, "Location", "http://169.254.169.254/latest"+tail), hops(5))},
		{"a redirect to a file", "t/t5812", fails(gitfetch.ErrRedirect), answers(coded(302, "Location", "file:///etc"+tail), hops(5))},
		{"a redirect to a helper", "t/t5812", fails(gitfetch.ErrRedirect), answers(coded(302, "Location", "ext::sh%20-c%20id"+tail), hops(5))},
		{"a redirect with a user in it", "t/t5551", fails(gitfetch.ErrRedirect), answers(coded(302, "Location", "http://u:p@127.0.0.1/r.git"+tail), hops(5))},
		{"a redirect without the tail", "t/t5551", fails(gitfetch.ErrRedirect), answers(coded(302, "Location", "/login"), hops(5))},
		{"a redirect to nowhere", "t/t5551", fails(gitfetch.ErrRedirect), answers(coded(302), hops(5))},
		{"a redirect to no URL", "t/t5551", fails(gitfetch.ErrRedirect), answers(coded(302, "Location", "http://[::1"+serverWords), hops(5))},
		{"a redirected command", "t/t5551", fails(gitfetch.ErrRedirect), against(second(func(_ fencepost.ObjectID, _ []byte, w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "/other/git-upload-pack", http.StatusTemporaryRedirect)
		}), hops(5))},
		{"a redirect from https to http", "RFC 9110", fails(gitfetch.ErrRedirect), func(t *testing.T) []scene {
			server := httptest.NewTLSServer(coded(302, "Location", "http://127.0.0.1:1/r.git"+tail))
			t.Cleanup(server.Close)
			return []scene{{url: server.URL + "/r.git", commit: fencepost.ObjectID{1}, change: func(r *gitfetch.Request) {
				r.RootCAs = x509.NewCertPool()
				r.RootCAs.AddCert(server.Certificate())
				r.RedirectOrigins = []string{"http://127.0.0.1:1"}
				r.Budgets.Redirects = 5
			}}}
		}},
	}
}

// secured returns the scene of an https server with that configuration, to
// which the client is led by name. trusted says whether its certificate is.
func secured(name string, cert tls.Certificate, trusted bool, config *tls.Config) func(*testing.T) []scene {
	return func(t *testing.T) []scene {
		config := config.Clone()
		config.Certificates = []tls.Certificate{cert}
		at := listen(t, func(c net.Conn) {
			server := tls.Server(c, config)
			if server.Handshake() == nil {
				says("HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n")(server)
			}
		})
		_, port, err := net.SplitHostPort(at)
		if err != nil {
			t.Fatal(err)
		}
		return []scene{{url: "https://" + net.JoinHostPort(name, port) + "/r.git", commit: fencepost.ObjectID{1}, change: func(r *gitfetch.Request) {
			r.RootCAs = x509.NewCertPool()
			if trusted {
				r.RootCAs.AddCert(cert.Leaf)
			}
		}}}
	}
}

// certificate makes one for loopback by address and for a name of the
// server's choice, which ends at that time.
func certificate(end time.Time, usage x509.ExtKeyUsage) tls.Certificate {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: end.Add(-time.Hour), NotAfter: end, IsCA: true, BasicConstraintsValid: true,
		DNSNames: []string{serverWords + ".example"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, ExtKeyUsage: []x509.ExtKeyUsage{usage},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		panic(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		panic(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}
}

func tlsAttacks() []attack {
	const rfc = "RFC 8446"
	now := time.Now()
	good := certificate(now.Add(time.Minute), x509.ExtKeyUsageServerAuth)
	over443 := func(talk func(net.Conn)) func(*testing.T) []scene {
		return func(t *testing.T) []scene {
			return []scene{{url: "https://" + listen(t, talk) + "/r.git", commit: fencepost.ObjectID{1}}}
		}
	}
	return []attack{
		{"a certificate of its own making", rfc, fails(gitfetch.ErrTLS), secured("127.0.0.1", good, false, &tls.Config{})},
		{"a certificate for another name", rfc, fails(gitfetch.ErrTLS), secured("localhost", good, true, &tls.Config{})},
		{"a certificate that has ended", rfc, fails(gitfetch.ErrTLS), secured("127.0.0.1", certificate(now.Add(-time.Minute), x509.ExtKeyUsageServerAuth), true, &tls.Config{})},
		{"a certificate that is no server's", rfc, fails(gitfetch.ErrTLS), secured("127.0.0.1", certificate(now.Add(time.Minute), x509.ExtKeyUsageClientAuth), true, &tls.Config{})},
		{"an old version of TLS", "RFC 8996", fails(gitfetch.ErrTLS), secured("127.0.0.1", good, true, &tls.Config{MaxVersion: tls.VersionTLS11})},
		{"HTTP/2 alone, over TLS", "RFC 7301", fails(gitfetch.ErrTLS), secured("127.0.0.1", good, true, &tls.Config{GetConfigForClient: func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
			return nil, fmt.Errorf("offered %q, not h2", hello.SupportedProtos)
		}})},
		{"plain HTTP where TLS belongs", rfc, fails(gitfetch.ErrTLS), over443(says("HTTP/1.1 400 " + serverWords + "\r\n\r\n"))},
		{"a handshake that is closed", rfc, fails(gitfetch.ErrConnection), over443(says(""))},
		{"a handshake that is reset", rfc, fails(gitfetch.ErrConnection), over443(func(c net.Conn) {
			readRequest(c)
			_ = c.(*net.TCPConn).SetLinger(0)
		})},
		{"an alert in place of a handshake", rfc, fails(gitfetch.ErrTLS), over443(says("\x15\x03\x03\x00\x02\x02\x28"))},
		{"a handshake that never goes on", "connect budget", over(gitfetch.BudgetConnect), func(t *testing.T) []scene {
			s := over443(func(c net.Conn) { _, _ = io.Copy(io.Discard, c) })(t)
			s[0].change = func(r *gitfetch.Request) { r.Budgets.Connect = 50 * time.Millisecond }
			return s
		}},
	}
}
