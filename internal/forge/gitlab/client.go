package gitlab

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
	// API is the base URL: https://HOST/api/v4.
	API *url.URL
	// AllowHTTP permits a plain HTTP API URL; meant for loopback.
	AllowHTTP bool
	// Token returns an access token with read_api, and read_repository for
	// [Client.GitCredential]. It is asked for at each request, so that a
	// changed secret counts.
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
// reaches: the token is the password, the user's name is of no account, but
// there must be one. contracts/gitlab.md §9
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
	// Status is the HTTP status: 200, 304 or 404.
	Status int
	// ETag makes a later request conditional; "" where there is none.
	ETag string
	Body []byte
	// next is the path of the next page, as the Link header has it.
	next string
}

// Found reports whether there was what was asked for.
func (a Answer) Found() bool { return a.Status != http.StatusNotFound }

// Get asks once. The path is below the base URL, escaped; an etag that is not
// empty makes the request conditional. The answer's status is 200, 304 where
// that was asked for, or 404, which is also what a token gets that does not
// reach the thing; anything else is a [*fencepost.Error].
func (c *Client) Get(ctx context.Context, op, path, etag string) (Answer, error) {
	if c.config.Now().Before(c.quietUntil()) {
		return Answer{}, Fail(op, fencepost.ReasonRateLimited, errors.New("held back: the server asked us to wait"))
	}
	ctx, cancel := context.WithTimeout(ctx, c.config.Limits.RequestTimeout)
	defer cancel()
	req, err := c.request(ctx, op, path, etag)
	if err != nil {
		return Answer{}, err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return Answer{}, broken(op, err)
	}
	a := Answer{Status: resp.StatusCode, ETag: resp.Header.Get("Etag")}
	a.Body, err = readBounded(resp.Body, c.config.Limits.MaxAnswer)
	if err := errors.Join(err, resp.Body.Close()); err != nil {
		return Answer{}, broken(op, err)
	}
	if err := c.judge(op, a.Status, resp.Header, etag != ""); err != nil {
		return Answer{}, err
	}
	a.next, err = c.nextPage(op, resp.Header)
	return a, err
}

func (c *Client) request(ctx context.Context, op, path, etag string) (*http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.base+path, http.NoBody)
	if err != nil {
		return nil, Fail(op, fencepost.ReasonUnavailable, fencepost.ErrMalformed)
	}
	req.Header.Set("Accept", "application/json")
	req.Header.Set("User-Agent", c.config.UserAgent)
	if etag != "" {
		req.Header.Set("If-None-Match", etag)
	}
	if c.config.Anonymous {
		return req, nil
	}
	token, err := c.token(ctx)
	if err != nil {
		return nil, err
	}
	req.Header.Set("PRIVATE-TOKEN", string(token.Reveal()))
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
