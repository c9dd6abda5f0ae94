package github

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/gate"
)

// APIVersion is the version of the REST API that every request names.
// contracts/github.md, trap 1
const APIVersion = "2022-11-28"

// A ClientConfig says whom a [Client] talks to, and as whom.
type ClientConfig struct {
	// API is the base URL of the REST API: https://api.github.com, or
	// https://HOST/api/v3 of a GitHub Enterprise Server.
	API *url.URL
	// AllowHTTP permits a plain HTTP API URL; meant for loopback.
	AllowHTTP bool
	// App is who we are.
	App App
	// Token, in place of App, is a person's fine-grained token: enough for a
	// source, while a gate needs an App. It is asked for at each request, so
	// that a changed secret counts.
	Token func(ctx context.Context) (fencepost.Secret, error)
	// Transport sends requests; nil is one of the client's own, like
	// [http.DefaultTransport], that keeps the connections of a refresh open.
	Transport http.RoundTripper
	// UserAgent names us; default "fencepost".
	UserAgent string
	// Limits bound everything.
	Limits Limits
	// Now is our clock.
	Now func() time.Time
}

// A Client speaks as one installation of one App, or with one token. All gates
// and sources of an installation share one, because GitHub counts by installation. It is safe
// for concurrent use, and starts no goroutine but those of its connections.
type Client struct {
	base   *url.URL
	app    App
	token  func(context.Context) (fencepost.Secret, error) // nil: the App's
	facts  facts
	http   *http.Client
	agent  string
	limits Limits
	now    func() time.Time

	signer *signer
	wallet *wallet
	pace   *pacer
	cache  *cache
	// One standing per identity: the App itself, and its installation.
	appRate, rate *limiter
}

// NewClient makes a client. It sends nothing. Its error matches
// [fencepost.ErrMalformed].
func NewClient(c ClientConfig) (*Client, error) {
	if err := c.validate(); err != nil {
		return nil, err
	}
	if c.Transport == nil {
		c.Transport = newTransport()
	}
	limits := c.Limits.withDefaults()
	setDefault(&c.UserAgent, "fencepost")
	base := *c.API
	base.Path, base.RawPath = trimSlash(base.Path), trimSlash(base.RawPath)
	client := &Client{
		base: &base, app: c.App, token: c.Token, agent: c.UserAgent, limits: limits, now: c.Now,
		http: &http.Client{
			Transport:     c.Transport,
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
		signer:  &signer{app: c.App, now: c.Now},
		pace:    newPacer(limits.WriteInterval, c.Now),
		cache:   newCache(limits.CacheEntries, limits.CacheBytes),
		appRate: &limiter{now: c.Now, reserve: limits.Reserve},
		rate:    &limiter{now: c.Now, reserve: limits.Reserve},
	}
	client.wallet = &wallet{client: client, purses: map[grant]*purse{}}
	return client, nil
}

// idleConnections is how many connections stay open for the next refresh,
// which sends up to eight requests at once; over HTTP/2 one carries them all.
const idleConnections = 16

// Bounds of a connection; a request has its own.
const (
	dialTimeout      = 10 * time.Second
	handshakeTimeout = 10 * time.Second
	idleTimeout      = 90 * time.Second
)

func newTransport() http.RoundTripper {
	dialer := &net.Dialer{Timeout: dialTimeout, KeepAlive: dialTimeout}
	return &http.Transport{
		// A controller behind an egress proxy is told so by its environment.
		Proxy: http.ProxyFromEnvironment, DialContext: dialer.DialContext, ForceAttemptHTTP2: true,
		TLSHandshakeTimeout: handshakeTimeout, IdleConnTimeout: idleTimeout,
		MaxIdleConns: 4 * idleConnections, MaxIdleConnsPerHost: idleConnections,
	}
}

// Close closes the connections that no request uses.
func (c *Client) Close() { c.http.CloseIdleConnections() }

func (c ClientConfig) validate() error {
	switch {
	case c.API == nil || c.API.Host == "" || c.API.User != nil || c.API.RawQuery != "" || c.API.Fragment != "":
		return fmt.Errorf("api: want an absolute URL without user, query or fragment: %w", fencepost.ErrMalformed)
	case c.API.Scheme != "https" && (c.API.Scheme != "http" || !c.AllowHTTP):
		return fmt.Errorf("api: want https (or allow_http: true for plain HTTP on loopback): %w", fencepost.ErrMalformed)
	case c.Token != nil && (c.App.ID != 0 || c.App.Installation != 0 || c.App.Key != nil):
		return fmt.Errorf("credential: want an app or a token, not both: %w", fencepost.ErrMalformed)
	case c.Token == nil && (c.App.ID <= 0 || c.App.Installation <= 0):
		return fmt.Errorf("app: id and installation must be above 0: %w", fencepost.ErrMalformed)
	case (c.Token == nil && c.App.Key == nil) || c.Now == nil:
		return fmt.Errorf("app key and clock: %w", fencepost.ErrZeroValue)
	}
	return c.Limits.Validate()
}

func trimSlash(s string) string {
	for len(s) > 0 && s[len(s)-1] == '/' {
		s = s[:len(s)-1]
	}
	return s
}

// An identity is as whom a request is sent.
type identity uint8

const (
	asApp identity = iota + 1
	asInstallation
)

// A call is one request of the API.
type call struct {
	// op says what it does, for errors: "get pull request".
	op     string
	method string
	// path is below the base URL, escaped; or next is a whole URL that a
	// Link header gave.
	path  string
	query url.Values
	next  *url.URL
	body  []byte
	as    identity
	grant grant // with asInstallation
	// again permits to repeat the request where it may have been taken.
	again bool
	// fresh forbids to ask whether a kept answer still holds.
	fresh bool
	// etag names the answer that the caller keeps by itself; unchanged is set
	// where it still holds, and nothing is decoded then.
	etag      string
	unchanged *bool
	// background requests leave the reserve of the hour to live work.
	background bool
	// secret has the answer zeroed once it is decoded.
	secret bool
}

// do sends a call, as often as the call and the limits permit, and decodes a
// 2xx answer into into, which may be nil. It returns the answer's headers.
func (c *Client) do(ctx context.Context, k call, into any) (http.Header, error) {
	wait := c.limits.ReadPause
	renewed, waited := false, false
	for attempt := 1; ; attempt++ {
		a, err := c.send(ctx, k)
		if err == nil {
			err = a.decode(k, into)
		}
		switch refused, _ := errors.AsType[*tokenRefusedError](err); {
		case err == nil:
			c.keep(k, a)
			return a.header, nil
		case refused != nil && !renewed:
			// It may have ended in mid-flow: GitHub's clock, or a revocation.
			renewed = true
			c.forget(k, refused)
			continue
		case !waited && c.worthWaiting(k, err) > 0:
			waited = true
			if err := pause(ctx, c.worthWaiting(k, err)); err != nil {
				return nil, transportError(k, err)
			}
			continue
		case !k.repeatable() || !passing(err) || attempt >= c.limits.ReadAttempts:
			return nil, err
		}
		if err := pause(ctx, wait); err != nil {
			return nil, transportError(k, err)
		}
		wait *= 2
	}
}

// keep keeps an answer that was understood, to ask whether it has changed. One
// that was cut off on its way would otherwise be believed for as long as
// GitHub says that it has not.
func (c *Client) keep(k call, a *answer) {
	if k.method == http.MethodGet && !k.fresh {
		c.cache.put(&cached{url: a.url, etag: a.header.Get("Etag"), header: a.header, body: a.body})
	}
}

func (k call) repeatable() bool { return k.again || k.method == http.MethodGet }

// worthWaiting is how long to wait for the end of a rate limit before a call
// is sent once more; 0 for not at all. A limited write was not taken.
func (c *Client) worthWaiting(k call, err error) time.Duration {
	until, ok := errors.AsType[*gate.WaitError](err)
	if !ok || k.background || fencepost.ReasonOf(err) != fencepost.ReasonRateLimited {
		return 0
	}
	if wait := until.Until.Sub(c.now()); wait <= c.limits.MaxRateLimitWait {
		return max(wait, time.Millisecond)
	}
	return 0
}

// passing reports whether err may be gone a moment later: a failing server or
// connection that did not say when to come back.
func passing(err error) bool {
	_, brief := errors.AsType[*briefError](err)
	return brief
}

// forget drops the credential that a call used.
func (c *Client) forget(k call, refused *tokenRefusedError) {
	switch {
	case c.token != nil:
		return // it is read anew each time
	case k.as == asApp:
		c.signer.refused(refused.date)
		return
	}
	c.wallet.forget(k.grant, refused.token)
}

// send sends a call once.
func (c *Client) send(ctx context.Context, k call) (*answer, error) {
	rate := c.rate
	if k.as == asApp {
		rate = c.appRate
	}
	if err := rate.admit(k.op, k.background); err != nil {
		return nil, err
	}
	token, err := c.bearer(ctx, k)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, c.limits.RequestTimeout)
	defer cancel()
	req, held, err := c.request(ctx, k, token)
	if err != nil {
		return nil, err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, transportError(k, err)
	}
	a, err := c.read(k, resp)
	if err != nil {
		return nil, err
	}
	limited := rate.learn(a.status, a.header)
	return c.judge(k, a, held, token, limited)
}

func (c *Client) bearer(ctx context.Context, k call) (fencepost.Secret, error) {
	switch {
	case c.token != nil && k.as == asInstallation:
		return c.ownToken(ctx)
	case c.token != nil:
		return fencepost.Secret{}, credentialError(k.op, errors.New("a token can't speak as an App"))
	case k.as == asApp:
		return c.signer.bearer(ctx)
	}
	return c.wallet.token(ctx, k.grant)
}

// request builds the request, and returns the kept answer that it asks about.
func (c *Client) request(ctx context.Context, k call, token fencepost.Secret) (*http.Request, *cached, error) {
	target := k.next
	if target == nil {
		u, err := url.Parse(c.base.String() + k.path)
		if err != nil {
			return nil, nil, fmt.Errorf("%s: path: %w", k.op, fencepost.ErrMalformed)
		}
		u.RawQuery = k.query.Encode()
		target = u
	}
	var body io.Reader
	if k.body != nil {
		body = bytes.NewReader(k.body)
	}
	req, err := http.NewRequestWithContext(ctx, k.method, target.String(), body)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: request: %w", k.op, fencepost.ErrMalformed)
	}
	req.Header.Set("Accept", "application/vnd.github+json")
	req.Header.Set("X-GitHub-Api-Version", APIVersion)
	req.Header.Set("User-Agent", c.agent)
	req.Header.Set("Authorization", "Bearer "+string(token.Reveal()))
	if k.body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if k.etag != "" {
		req.Header.Set("If-None-Match", k.etag)
	}
	if k.method != http.MethodGet || k.fresh {
		return req, nil, nil
	}
	held := c.cache.get(target.String())
	if held != nil {
		req.Header.Set("If-None-Match", held.etag)
	}
	return req, held, nil
}

// read takes the whole answer within its bound.
func (c *Client) read(k call, resp *http.Response) (*answer, error) {
	body, err := readBounded(resp.Body, c.limits.MaxAnswer)
	if closeErr := resp.Body.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return nil, transportError(k, err)
	}
	return &answer{url: resp.Request.URL.String(), status: resp.StatusCode, header: resp.Header, body: body}, nil
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
