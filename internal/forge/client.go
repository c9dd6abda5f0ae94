package forge

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/fencepost/fencepost"
)

// A Config says whom a [Client] talks to, and as whom.
type Config struct {
	// API is the base URL: https://HOST/api/v1 at Gitea and Forgejo,
	// https://HOST/api/v4 at GitLab.
	API *url.URL
	// AllowHTTP permits a plain HTTP API URL; meant for loopback.
	AllowHTTP bool
	// Token returns an access token. It is asked for at each request, so that
	// a changed secret counts.
	Token func(ctx context.Context) (fencepost.Secret, error)
	// Anonymous sends no token, where the policy spells that out.
	Anonymous bool
	// Transport sends requests; nil is one of the client's own.
	Transport http.RoundTripper
	// UserAgent names us; default "fencepost".
	UserAgent string
	// Limits bound everything.
	Limits Limits
	// Now is our clock.
	Now func() time.Time
}

// A Header is the one that a token travels in: its name, and what stands before
// the token.
type Header struct{ Name, Prefix string }

// A Client speaks to one instance with one token. It is safe for concurrent
// use, and starts no goroutine but those of its connections.
type Client struct {
	config Config
	header Header
	base   string
	http   *http.Client

	mu sync.Mutex
	// Guarded by mu: no request leaves before.
	quiet time.Time
}

// Bounds of a connection; a request has its own.
const (
	idleConnections  = 16
	dialTimeout      = 5 * time.Second
	handshakeTimeout = 5 * time.Second
	// idleTimeout outlasts the pause between two observations of one source.
	idleTimeout = 3 * time.Minute
)

// New makes a client whose token travels in the header. It sends nothing. Its
// error matches [fencepost.ErrMalformed] or [fencepost.ErrZeroValue].
func New(c Config, token Header) (*Client, error) {
	switch {
	case c.API == nil || c.API.Host == "" || c.API.User != nil || c.API.RawQuery != "" || c.API.Fragment != "":
		return nil, fmt.Errorf("api: want an absolute URL without user, query or fragment: %w", fencepost.ErrMalformed)
	case c.API.Scheme != "https" && (c.API.Scheme != "http" || !c.AllowHTTP):
		return nil, fmt.Errorf("api: want https (or allow_http: true for plain HTTP on loopback): %w", fencepost.ErrMalformed)
	case (c.Token == nil) != c.Anonymous || c.Now == nil:
		return nil, fmt.Errorf("token and clock: %w", fencepost.ErrZeroValue)
	}
	if err := c.Limits.Validate(); err != nil {
		return nil, err
	}
	c.Limits = c.Limits.withDefaults()
	if c.UserAgent == "" {
		c.UserAgent = "fencepost"
	}
	if c.Transport == nil {
		dialer := &net.Dialer{Timeout: dialTimeout, KeepAlive: dialTimeout}
		c.Transport = &http.Transport{
			// A controller behind an egress proxy is told so by its environment.
			Proxy: http.ProxyFromEnvironment, DialContext: dialer.DialContext, ForceAttemptHTTP2: true,
			TLSHandshakeTimeout: handshakeTimeout, IdleConnTimeout: idleTimeout,
			MaxIdleConns: 4 * idleConnections, MaxIdleConnsPerHost: idleConnections,
		}
	}
	return &Client{
		config: c, header: token, base: strings.TrimRight(c.API.String(), "/"),
		http: &http.Client{
			Transport:     c.Transport,
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}, nil
}

// API returns the base URL of the instance's API, without a slash at its end.
func (c *Client) API() string { return c.base }

// MaxPages returns how many pages of one list are to be read.
func (c *Client) MaxPages() int { return c.config.Limits.MaxPages }

// Close closes the connections that no request uses.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// GitCredential returns the user and secret by which Git reads what the token
// reaches: the token is the password, the user's name is of no account, but
// there must be one.
func (c *Client) GitCredential(ctx context.Context) (user string, secret fencepost.Secret, err error) {
	secret, err = c.token(ctx)
	return "fencepost", secret, err
}

func (c *Client) token(ctx context.Context) (fencepost.Secret, error) {
	token, err := c.config.Token(ctx)
	switch {
	case err != nil:
		return fencepost.Secret{}, Fail("read token", fencepost.ReasonCredential, errors.New("the secret could not be resolved"))
	case token.Len() == 0:
		return fencepost.Secret{}, Fail("read token", fencepost.ReasonCredential, errors.New("the token is empty"))
	}
	return token, nil
}

// A Request is one call.
type Request struct {
	// Op names it in errors.
	Op string
	// Method is GET or POST.
	Method string
	// Path is below the base URL, escaped, with its query.
	Path string
	// ETag makes a GET conditional; "" for not.
	ETag string
	// Body is the JSON of a POST.
	Body []byte
}

func (q Request) writes() bool { return q.Method == http.MethodPost }

// A Response is one that was read to its end.
type Response struct {
	Status int
	Header http.Header
	Body   []byte
}

// Do asks once. The status of a GET is 200, 304 where that was asked for, or
// 404; that of a POST 200 or 201. Anything else is a [*fencepost.Error]. That of
// a POST matches [ErrUnanswered] where it is open whether it was done, and there
// is a [*WaitError] around it where the server asks, or asked before, to be left
// alone.
func (c *Client) Do(ctx context.Context, q Request) (Response, error) {
	if until := c.quietUntil(); c.config.Now().Before(until) {
		return Response{}, &WaitError{Until: until, Err: Fail(q.Op, fencepost.ReasonRateLimited, errors.New("held back: the server asked us to wait"))}
	}
	ctx, cancel := context.WithTimeout(ctx, c.config.Limits.RequestTimeout)
	defer cancel()
	req, err := c.request(ctx, q)
	if err != nil {
		return Response{}, err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return Response{}, broken(q, err)
	}
	body, err := readBounded(resp.Body, c.config.Limits.MaxAnswer)
	if err := errors.Join(err, resp.Body.Close()); err != nil {
		return Response{}, broken(q, err)
	}
	if err := c.judge(q, resp.StatusCode, resp.Header); err != nil {
		return Response{}, err
	}
	return Response{Status: resp.StatusCode, Header: resp.Header, Body: body}, nil
}

func (c *Client) request(ctx context.Context, q Request) (*http.Request, error) {
	var send io.Reader = http.NoBody
	if q.writes() {
		send = bytes.NewReader(q.Body)
	}
	req, err := http.NewRequestWithContext(ctx, q.Method, c.base+q.Path, send)
	if err != nil {
		return nil, Fail(q.Op, fencepost.ReasonUnavailable, fencepost.ErrMalformed)
	}
	req.Header.Set("Accept", "application/json")
	req.Header.Set("User-Agent", c.config.UserAgent)
	if q.writes() {
		req.Header.Set("Content-Type", "application/json")
	}
	if q.ETag != "" {
		req.Header.Set("If-None-Match", q.ETag)
	}
	if c.config.Anonymous {
		return req, nil
	}
	token, err := c.token(ctx)
	if err != nil {
		return nil, err
	}
	req.Header.Set(c.header.Name, c.header.Prefix+string(token.Reveal()))
	return req, nil
}

// readBounded reads to the end, or fails when that is beyond limit bytes.
func readBounded(r io.Reader, limit int64) ([]byte, error) {
	var buf bytes.Buffer
	n, err := buf.ReadFrom(io.LimitReader(r, limit+1))
	if err != nil {
		return nil, err
	}
	if n > limit {
		return nil, fmt.Errorf("answer above %d bytes: %w", limit, fencepost.ErrTooLarge)
	}
	return buf.Bytes(), nil
}

// Decode reads one JSON value strictly: no duplicate names, valid UTF-8, names
// in their exact case, nothing after it. Unknown fields are allowed. Its error
// has [fencepost.ReasonProvider].
func Decode(op string, body []byte, into any) error {
	if err := json.Unmarshal(body, into); err != nil {
		return Fail(op, fencepost.ReasonProvider, &brokenError{text: "the answer is not the JSON that was to come", cause: err})
	}
	return nil
}
