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

	"github.com/go-json-experiment/json"

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

// API returns the base URL of the instance's API, without a slash at its end.
func (c *Client) API() string { return c.base }

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
		return fencepost.Secret{}, Fail("read token", fencepost.ReasonCredential, errors.New("the secret could not be resolved"))
	case token.Len() == 0:
		return fencepost.Secret{}, Fail("read token", fencepost.ReasonCredential, errors.New("the token is empty"))
	}
	return token, nil
}

// An Answer is a response that was read to its end.
type Answer struct {
	// Status is the HTTP status: one that the call allows, or 404.
	Status int
	// ETag makes a later request conditional; "" where there is none.
	ETag string
	// Total is the length of a whole list of which this is a page; -1 where
	// the server does not say.
	Total int
	Body  []byte
}

// Get asks once. The path is below the base URL, escaped; an etag that is not
// empty makes the request conditional. The answer's status is 200, 304 where
// that was asked for, or 404; anything else is a [*fencepost.Error].
func (c *Client) Get(ctx context.Context, op, path, etag string) (Answer, error) {
	return c.do(ctx, op, http.MethodGet, path, etag, nil)
}

// Post has the server make something, once. The answer's status is 200 or 201;
// an error that matches [ErrUnanswered] leaves open whether it was made.
func (c *Client) Post(ctx context.Context, op, path string, body any) (Answer, error) {
	data, err := json.Marshal(body)
	if err != nil {
		return Answer{}, Fail(op, fencepost.ReasonUnavailable, fencepost.ErrMalformed)
	}
	return c.do(ctx, op, http.MethodPost, path, "", data)
}

func (c *Client) do(ctx context.Context, op, method, path, etag string, body []byte) (Answer, error) {
	if c.config.Now().Before(c.quietUntil()) {
		return Answer{}, Fail(op, fencepost.ReasonRateLimited, errors.New("held back: the server asked us to wait"))
	}
	ctx, cancel := context.WithTimeout(ctx, c.config.Limits.RequestTimeout)
	defer cancel()
	req, err := c.request(ctx, op, method, path, etag, body)
	if err != nil {
		return Answer{}, err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return Answer{}, broken(op, method, err)
	}
	a := Answer{Status: resp.StatusCode, ETag: resp.Header.Get("Etag"), Total: -1}
	if n, err := strconv.ParseUint(resp.Header.Get("X-Total-Count"), 10, 31); err == nil {
		a.Total = int(n)
	}
	a.Body, err = readBounded(resp.Body, c.config.Limits.MaxAnswer)
	if err := errors.Join(err, resp.Body.Close()); err != nil {
		return Answer{}, broken(op, method, err)
	}
	return a, c.judge(op, method, a.Status, resp.Header, etag != "")
}

func (c *Client) request(ctx context.Context, op, method, path, etag string, body []byte) (*http.Request, error) {
	var token fencepost.Secret
	var err error
	if !c.config.Anonymous {
		token, err = c.token(ctx)
	}
	if err != nil {
		return nil, err
	}
	var send io.Reader = http.NoBody
	if body != nil {
		send = bytes.NewReader(body)
	}
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, send)
	if err != nil {
		return nil, Fail(op, fencepost.ReasonUnavailable, fencepost.ErrMalformed)
	}
	req.Header.Set("Accept", "application/json")
	req.Header.Set("User-Agent", c.config.UserAgent)
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if !c.config.Anonymous {
		req.Header.Set("Authorization", "token "+string(token.Reveal()))
	}
	if etag != "" {
		req.Header.Set("If-None-Match", etag)
	}
	return req, nil
}

// judge turns a status into an error with a reason. contracts/gitea.md §4
func (c *Client) judge(op, method string, status int, h http.Header, conditional bool) error {
	answered := &StatusError{Code: status}
	wait, asked := retryAfter(h)
	writes := method == http.MethodPost
	switch {
	case status == http.StatusOK, status == http.StatusCreated && writes:
		return nil
	case status == http.StatusNotFound && !writes, status == http.StatusNotModified && conditional:
		return nil
	case status == http.StatusTooManyRequests, status == http.StatusServiceUnavailable && asked:
		if !asked {
			wait = usualQuiet
		}
		c.beQuiet(wait)
		return Fail(op, fencepost.ReasonRateLimited, answered)
	case status == http.StatusUnauthorized, status == http.StatusForbidden:
		return Fail(op, fencepost.ReasonCredential, answered)
	case status >= 300 && status < 400:
		return Fail(op, fencepost.ReasonIdentity, errors.New("the name leads to another: renamed or transferred"))
	}
	if writes && status >= http.StatusInternalServerError {
		return Fail(op, fencepost.ReasonProvider, fmt.Errorf("%w: %w", ErrUnanswered, answered))
	}
	return Fail(op, fencepost.ReasonProvider, answered)
}

// ErrUnanswered: a write was sent, and whether it was done is not known.
var ErrUnanswered = errors.New("the write may have been done")

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

func broken(op, method string, err error) error {
	e := &brokenError{text: "the connection failed", cause: err}
	switch {
	case errors.Is(err, fencepost.ErrTooLarge):
		e.text = "the answer is too large"
	case errors.Is(err, context.DeadlineExceeded):
		e.text = "no answer in time"
	case errors.Is(err, context.Canceled):
		e.text = "canceled"
	}
	if method == http.MethodPost {
		return Fail(op, fencepost.ReasonProvider, fmt.Errorf("%w: %w", ErrUnanswered, e))
	}
	return Fail(op, fencepost.ReasonProvider, e)
}

// Fail is the error of a call, with its public reason.
func Fail(op string, why fencepost.Reason, err error) error {
	return &fencepost.Error{Op: op, Reason: why, Err: err}
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

// ValidName reports whether s can be an owner or a repository: what
// AlphaDashDot allows.
func ValidName(s string) bool {
	return s != "" && s != "." && s != ".." && len(s) <= 100 && !strings.ContainsFunc(s, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("-_.", r)
	})
}
