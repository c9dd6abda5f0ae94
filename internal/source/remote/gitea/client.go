package gitea

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/fencepost/fencepost"
)

// Limits bound what a [Client] does. The zero value of a field is its default.
type Limits struct {
	// RequestTimeout bounds one request with its answer; 100 ms to 2 min,
	// default 5 s.
	RequestTimeout time.Duration
	// MaxAnswer is the largest answer in bytes; 64 KiB to 256 MiB, default
	// 8 MiB. A larger one is [fencepost.ReasonProvider].
	MaxAnswer int64
	// MaxQuiet is the longest that the server can ask us to leave it alone;
	// 1 s to 1 h, default 10 min.
	MaxQuiet time.Duration
}

func (l Limits) withDefaults() Limits {
	if l.RequestTimeout == 0 {
		l.RequestTimeout = 5 * time.Second
	}
	if l.MaxAnswer == 0 {
		l.MaxAnswer = 8 << 20
	}
	if l.MaxQuiet == 0 {
		l.MaxQuiet = 10 * time.Minute
	}
	return l
}

// Validate reports every value out of range; its error matches
// [fencepost.ErrMalformed]. Zero fields are their defaults.
func (l Limits) Validate() error {
	l = l.withDefaults()
	var errs []error
	check := func(ok bool, field, want string) {
		if !ok {
			errs = append(errs, fmt.Errorf("limits.%s must be %s: %w", field, want, fencepost.ErrMalformed))
		}
	}
	check(l.RequestTimeout >= 100*time.Millisecond && l.RequestTimeout <= 2*time.Minute, "request_timeout", "100ms to 2m")
	check(l.MaxAnswer >= 64<<10 && l.MaxAnswer <= 256<<20, "max_answer", "64 KiB to 256 MiB")
	check(l.MaxQuiet >= time.Second && l.MaxQuiet <= time.Hour, "max_quiet", "1s to 1h")
	return errors.Join(errs...)
}

// A Config says whom a [Client] talks to, and as whom.
type Config struct {
	// API is the base URL: https://HOST/api/v1.
	API *url.URL
	// AllowHTTP permits a plain HTTP API URL; meant for loopback.
	AllowHTTP bool
	// Token returns an access token with read:repository. It is asked for at
	// each request, so that a changed secret counts.
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

// A Client speaks to one instance with one token. It is safe for concurrent
// use, and starts no goroutine but those of its connections.
type Client struct {
	config Config
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
	// usualQuiet is how long a server is left alone that asks for it without
	// saying how long.
	usualQuiet = time.Minute
)

// New makes a client. It sends nothing. Its error matches
// [fencepost.ErrMalformed] or [fencepost.ErrZeroValue].
func New(c Config) (*Client, error) {
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
		config: c, base: strings.TrimRight(c.API.String(), "/"),
		http: &http.Client{
			Transport:     c.Transport,
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}, nil
}

// Close closes the connections that no request uses.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// GitCredential returns the user and secret by which Git reads what the token
// reaches: the token is the password, the user's name is of no account.
func (c *Client) GitCredential(ctx context.Context) (user string, secret fencepost.Secret, err error) {
	secret, err = c.token(ctx)
	return "fencepost", secret, err
}

func (c *Client) token(ctx context.Context) (fencepost.Secret, error) {
	token, err := c.config.Token(ctx)
	switch {
	case err != nil:
		return fencepost.Secret{}, fail("read token", fencepost.ReasonCredential, errors.New("the secret could not be resolved"))
	case token.Len() == 0:
		return fencepost.Secret{}, fail("read token", fencepost.ReasonCredential, errors.New("the token is empty"))
	}
	return token, nil
}

// An answer is a response that was read to its end.
type answer struct {
	status int
	etag   string
	body   []byte
}

// get asks once. The path is below the base URL, escaped; an etag that is not
// empty makes the request conditional. The answer's status is 200, 304 where
// that was asked for, or 404; anything else is an error.
func (c *Client) get(ctx context.Context, op, path, etag string) (answer, error) {
	if c.config.Now().Before(c.quietUntil()) {
		return answer{}, fail(op, fencepost.ReasonRateLimited, errors.New("held back: the server asked us to wait"))
	}
	var token fencepost.Secret
	var err error
	if !c.config.Anonymous {
		token, err = c.token(ctx)
	}
	if err != nil {
		return answer{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, c.config.Limits.RequestTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.base+path, http.NoBody)
	if err != nil {
		return answer{}, fail(op, fencepost.ReasonUnavailable, fencepost.ErrMalformed)
	}
	req.Header.Set("Accept", "application/json")
	req.Header.Set("User-Agent", c.config.UserAgent)
	if !c.config.Anonymous {
		req.Header.Set("Authorization", "token "+string(token.Reveal()))
	}
	if etag != "" {
		req.Header.Set("If-None-Match", etag)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return answer{}, broken(op, err)
	}
	a := answer{status: resp.StatusCode, etag: resp.Header.Get("Etag")}
	a.body, err = readBounded(resp.Body, c.config.Limits.MaxAnswer)
	if err := errors.Join(err, resp.Body.Close()); err != nil {
		return answer{}, broken(op, err)
	}
	return a, c.judge(op, a.status, resp.Header, etag != "")
}

// judge turns a status into an error with a reason. contracts/gitea.md §4
func (c *Client) judge(op string, status int, h http.Header, conditional bool) error {
	answered := &StatusError{Code: status}
	wait, asked := retryAfter(h)
	switch {
	case status == http.StatusOK, status == http.StatusNotFound, status == http.StatusNotModified && conditional:
		return nil
	case status == http.StatusTooManyRequests, status == http.StatusServiceUnavailable && asked:
		if !asked {
			wait = usualQuiet
		}
		c.beQuiet(wait)
		return fail(op, fencepost.ReasonRateLimited, answered)
	case status == http.StatusUnauthorized, status == http.StatusForbidden:
		return fail(op, fencepost.ReasonCredential, answered)
	case status >= 300 && status < 400:
		return fail(op, fencepost.ReasonIdentity, errors.New("the name leads to another: renamed or transferred"))
	}
	return fail(op, fencepost.ReasonProvider, answered)
}

// A StatusError is an answer that was not the one hoped for.
type StatusError struct {
	// Code is the HTTP status.
	Code int
}

// Error names the status.
func (e *StatusError) Error() string { return fmt.Sprintf("answered %d", e.Code) }

func (c *Client) quietUntil() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.quiet
}

func (c *Client) beQuiet(d time.Duration) {
	until := c.config.Now().Add(min(d, c.config.Limits.MaxQuiet))
	c.mu.Lock()
	defer c.mu.Unlock()
	if until.After(c.quiet) {
		c.quiet = until
	}
}

// retryAfter reads the header of that name, where it says seconds.
func retryAfter(h http.Header) (time.Duration, bool) {
	n, err := strconv.ParseUint(h.Get("Retry-After"), 10, 31)
	if err != nil {
		return 0, false
	}
	return time.Duration(n) * time.Second, true
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

// A brokenError is a request without a usable answer. Its text is our own: a
// library's could hold URLs and addresses.
type brokenError struct {
	text  string
	cause error
}

// Error returns our own text.
func (e *brokenError) Error() string { return e.text }

// Unwrap returns the library's error.
func (e *brokenError) Unwrap() error { return e.cause }

func broken(op string, err error) error {
	e := &brokenError{text: "the connection failed", cause: err}
	switch {
	case errors.Is(err, fencepost.ErrTooLarge):
		e.text = "the answer is too large"
	case errors.Is(err, context.DeadlineExceeded):
		e.text = "no answer in time"
	case errors.Is(err, context.Canceled):
		e.text = "canceled"
	}
	return fail(op, fencepost.ReasonProvider, e)
}

func fail(op string, why fencepost.Reason, err error) error {
	return &fencepost.Error{Op: op, Reason: why, Err: err}
}
