package gitfetch

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/fencepost/fencepost/gitfetch/internal/pktline"
)

const (
	// agent is what we call ourselves: with the prefix that some hosts want
	// before they let a client through.
	agent = "git/fencepost"

	typeAdvertisement = "application/x-git-upload-pack-advertisement"
	typeRequest       = "application/x-git-upload-pack-request"
	typeResult        = "application/x-git-upload-pack-result"

	refsTail    = "/info/refs"
	refsQuery   = "service=git-upload-pack"
	commandTail = "/git-upload-pack"

	errorText     = 4 << 10  // most of an error's text that is kept
	headerBytes   = 64 << 10 // most of an answer's headers
	maxRetryAfter = 24 * time.Hour
)

// A client holds one conversation with one server. Not safe for concurrent
// use.
type client struct {
	t     *target
	rt    *http.Transport
	known *servers // nil: nothing is remembered
	base  *url.URL // where to send commands, after redirects
	watch *watchdog
	auth  string // the header's value, once it is known
	wire  int64  // bytes of bodies so far
	meta  int64  // bytes of them that were not pack
	lines int64  // packets of them that were not pack
}

// newClient begins a conversation. stop ends its connections, and waits for
// what may still dial; ctx should have ended by then.
func newClient(ctx context.Context, t *target, watch *watchdog) (_ *client, stop func()) {
	c := &client{t: t, base: t.base, watch: watch}
	if t.Transport != nil {
		c.known = &t.Transport.servers
		if c.rt = t.Transport.pool(t); c.rt != nil {
			return c, func() {}
		}
	}
	d := &dialer{t: t}
	c.rt = d.transport(1, func(context.Context) (context.Context, func()) { return ctx, func() {} })
	return c, func() {
		c.rt.CloseIdleConnections()
		d.dials.Wait()
	}
}

// converseAlone begins a conversation that nothing else belongs to: in the
// transport, where there is one, and watched. stop ends all of it, and the
// context.
func converseAlone(ctx context.Context, t *target) (_ context.Context, c *client, stop func(), err error) {
	leave := func() {}
	if t.Transport != nil {
		if leave, err = t.Transport.enter(); err != nil {
			return nil, nil, nil, err
		}
	}
	ctx, dog, cancel := watch(ctx, t.Budgets)
	c, hangUp := newClient(ctx, t, dog)
	return ctx, c, func() {
		cancel()
		hangUp()
		leave()
	}, nil
}

// A watchdog ends a fetch that makes no progress.
type watchdog struct {
	timer *time.Timer
	limit time.Duration
}

// watch returns a context that ends, with the cause, when the fetch takes
// longer than it may, or waits longer. stop ends the watch for idleness, and
// leaves the context.
func watch(ctx context.Context, b Budgets) (_ context.Context, _ *watchdog, cancel func()) {
	ctx, stopTotal := context.WithTimeoutCause(ctx, b.Total, &BudgetError{Budget: BudgetTotal, Limit: int64(b.Total)})
	ctx, stopIdle := context.WithCancelCause(ctx)
	w := &watchdog{limit: b.Idle}
	w.timer = time.AfterFunc(b.Idle, func() { stopIdle(&BudgetError{Budget: BudgetIdle, Limit: int64(b.Idle)}) })
	return ctx, w, func() {
		w.stop()
		stopIdle(context.Canceled)
		stopTotal()
	}
}

// progress starts the wait anew.
func (w *watchdog) progress() { w.timer.Reset(w.limit) }

func (w *watchdog) stop() { w.timer.Stop() }

// causeOf returns why ctx ended where it did, and err otherwise.
func causeOf(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil {
		return stopped(ctx)
	}
	return err
}

// stopped returns why ctx ended: a budget, or the caller's own reason, which
// says nothing about the server.
func stopped(ctx context.Context) error {
	cause := context.Cause(ctx)
	if isBudget(cause) || errors.Is(cause, errHost) {
		return cause
	}
	return &hostError{"stopped", cause}
}

// stopper returns what says why ctx ended, once it has.
func stopper(ctx context.Context) func() error {
	return func() error {
		if ctx.Err() != nil {
			return stopped(ctx)
		}
		return nil
	}
}

// An answer is the body of one good answer, metered.
type answer struct {
	c    *client
	body io.ReadCloser
	pkt  *pktline.Reader
}

// Read charges each byte to the wire budget.
func (a *answer) Read(p []byte) (int, error) {
	left := a.c.t.Budgets.WireBytes - a.c.wire
	if int64(len(p)) > left {
		p = p[:left+1] // the one byte that shows there is more
	}
	n, err := a.body.Read(p)
	a.c.wire += int64(n)
	if int64(n) > left {
		return n, &BudgetError{Budget: BudgetWire, Limit: a.c.t.Budgets.WireBytes}
	}
	if err != io.EOF {
		err = wireError(err)
	}
	return n, err
}

func (a *answer) close() error { return a.body.Close() }

// next returns the next packet outside the pack. A packet of text that
// begins with "ERR " is an error, wherever it stands.
func (a *answer) next() (pktline.Packet, error) {
	p, err := a.pkt.Next()
	if err != nil {
		return p, err
	}
	if err := a.c.charge(p); err != nil {
		return p, err
	}
	a.c.watch.progress()
	if text, isErr := bytes.CutPrefix(p.Data, []byte("ERR ")); p.Kind == pktline.Data && isErr {
		return p, remoteError(string(text))
	}
	return p, nil
}

// charge counts one packet that is not of the pack.
func (c *client) charge(p pktline.Packet) error {
	b := &c.t.Budgets
	c.lines++
	c.meta += int64(len(p.Data))
	switch {
	case c.lines > b.MetadataLines:
		return &BudgetError{Budget: BudgetMetadataLines, Limit: b.MetadataLines}
	case c.meta > b.MetadataBytes:
		return &BudgetError{Budget: BudgetMetadata, Limit: b.MetadataBytes}
	}
	return nil
}

// text returns the next packet, which must be data, as text.
func (a *answer) text() (string, error) {
	p, err := a.next()
	if err != nil {
		return "", cutShort(err)
	}
	if p.Kind != pktline.Data {
		return "", fmt.Errorf("%w: %s packet where text belongs", ErrProtocol, p.Kind)
	}
	return p.Text(), nil
}

// firstText is text for the first packet of an answer. Git's servers answer
// a request that they reject with 200 and nothing else.
func (a *answer) firstText() (string, error) {
	if err := a.pkt.End(); err == nil {
		return "", ErrRejected
	} else if !errors.Is(err, pktline.ErrTrailing) {
		return "", err
	}
	return a.text()
}

// cutShort turns a clean end where more must come into a protocol error.
func cutShort(err error) error {
	if err == io.EOF {
		return fmt.Errorf("%w: cut short: %w", ErrProtocol, io.ErrUnexpectedEOF)
	}
	return err
}

// remoteError makes an error of what the server said.
func remoteError(text string) error {
	// Git's upload-pack has no code for it, only this phrase.
	gone := strings.HasPrefix(text, "upload-pack: not our ref ")
	return &RemoteError{Text: clean(text, errorText), notOurRef: gone}
}

// advertise makes the first request, follows its redirects, and returns the
// answer's body.
func (c *client) advertise(ctx context.Context) (*answer, error) {
	at := under(c.base, refsTail)
	at.RawQuery = refsQuery
	for hops := 0; ; hops++ {
		resp, err := c.do(ctx, http.MethodGet, at, nil)
		if err != nil {
			return nil, err
		}
		switch resp.StatusCode {
		case http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther, http.StatusTemporaryRedirect, http.StatusPermanentRedirect:
			next, err := c.redirect(at, resp, hops)
			if err := c.discard(resp, err); err != nil {
				return nil, err
			}
			at = next
			continue
		}
		return c.accept(resp, typeAdvertisement)
	}
}

// under returns base with a longer path.
func under(base *url.URL, tail string) *url.URL {
	u := *base
	u.Path += tail
	if u.RawPath != "" {
		u.RawPath += tail
	}
	return &u
}

// redirect returns where resp leads to, if that is allowed, and moves the
// base of later requests there. git http.followRedirects=initial: the new
// base is the target less the tail of the first request.
func (c *client) redirect(from *url.URL, resp *http.Response, hops int) (*url.URL, error) {
	if hops >= c.t.Budgets.Redirects {
		return nil, &redirectBudgetError{
			BudgetError{Budget: BudgetRedirects, Limit: int64(c.t.Budgets.Redirects)},
			StatusError{Status: resp.StatusCode},
		}
	}
	refuse := func(why string) (*url.URL, error) {
		return nil, fmt.Errorf("%w: %s", ErrRedirect, why)
	}
	location, err := url.Parse(resp.Header.Get("Location"))
	if err != nil || resp.Header.Get("Location") == "" {
		return refuse("no usable location")
	}
	to := from.ResolveReference(location)
	path, tail := strings.CutSuffix(to.Path, refsTail)
	rawPath, rawTail := strings.CutSuffix(to.RawPath, refsTail)
	switch {
	case to.Scheme != "https" && (to.Scheme != "http" || !c.t.AllowHTTP):
		return refuse("not to https")
	case to.Scheme == "http" && from.Scheme == "https":
		return refuse("from https to http")
	case to.User != nil:
		return refuse("with a user in it")
	case !c.allowed(originOf(to)):
		return refuse("to an origin that is not allowed")
	case !tail || to.RawPath != "" && !rawTail || to.RawQuery != refsQuery || to.Fragment != "":
		return refuse("to something else than a repository's refs")
	}
	base := *to
	base.Path, base.RawPath, base.RawQuery = path, rawPath, ""
	c.base = &base
	return to, nil
}

// A redirectBudgetError is a redirect over the budget: it matches
// [ErrRedirect] too, for those who allow none.
type redirectBudgetError struct {
	budget BudgetError
	status StatusError
}

func (e *redirectBudgetError) Error() string   { return e.status.Error() + ": " + e.budget.Error() }
func (e *redirectBudgetError) Unwrap() []error { return []error{&e.budget, &e.status} }

func (c *client) allowed(o origin) bool {
	if o == c.t.origin {
		return true
	}
	for _, other := range c.t.further {
		if o == other {
			return true
		}
	}
	return false
}

// command sends one command of protocol v2 and returns the answer's body.
func (c *client) command(ctx context.Context, body []byte) (*answer, error) {
	resp, err := c.do(ctx, http.MethodPost, under(c.base, commandTail), body)
	if err != nil {
		return nil, err
	}
	return c.accept(resp, typeResult)
}

// do sends one request. The transport is used without [http.Client], which
// would follow redirects and keep cookies.
func (c *client) do(ctx context.Context, method string, at *url.URL, body []byte) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, at.String(), bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("%w: url", ErrRequest)
	}
	req.Header.Set("User-Agent", agent)
	req.Header.Set("Git-Protocol", "version=2")
	req.Header.Set("Accept-Encoding", "identity")
	req.Header.Set("Pragma", "no-cache")
	req.Header.Set("Accept", "*/*")
	if method == http.MethodPost {
		req.Header.Set("Content-Type", typeRequest)
		req.Header.Set("Accept", typeResult)
		// Not sent. It tells the transport that all we post only asks, and may
		// be asked again where a kept connection turns out to be gone.
		req.Header["Idempotency-Key"] = nil
	}
	if err := c.authorize(ctx, req); err != nil {
		return nil, err
	}
	resp, err := c.rt.RoundTrip(req)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", strings.ToLower(method), causeOf(ctx, wireError(err)))
	}
	c.watch.progress()
	return resp, nil
}

// authorize adds the credential, to requests of the configured origin alone.
func (c *client) authorize(ctx context.Context, req *http.Request) error {
	if c.t.Credential == nil || originOf(req.URL) != c.t.origin {
		return nil
	}
	if c.auth == "" {
		user, secret, err := c.t.Credential(ctx)
		if err != nil {
			return fmt.Errorf("%w: %w", ErrCredential, causeOf(ctx, err))
		}
		if strings.Contains(user, ":") || hasControl([]byte(user)) || hasControl(secret.Reveal()) {
			return fmt.Errorf("%w: user or secret holds what a header can't", ErrCredential)
		}
		pair := append([]byte(user+":"), secret.Reveal()...)
		c.auth = "Basic " + base64.StdEncoding.EncodeToString(pair)
		clear(pair)
	}
	req.Header.Set("Authorization", c.auth)
	return nil
}

func hasControl(b []byte) bool {
	return bytes.ContainsFunc(b, func(r rune) bool { return r < ' ' || r == 0x7f })
}

// accept returns the body of a good answer of that media type, and otherwise
// what is wrong with it.
func (c *client) accept(resp *http.Response, want string) (*answer, error) {
	if resp.StatusCode != http.StatusOK {
		return nil, c.statusError(resp)
	}
	// Parameters after the type are ignored, as Git does.
	got, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if err != nil || got != want {
		reason := fmt.Errorf("%w: answer is not of type %s", ErrProtocol, want)
		if want == typeAdvertisement {
			// A login page, a dumb server, or no Git server at all.
			reason = fmt.Errorf("%w: %w", ErrNotV2, reason)
		}
		return nil, c.discard(resp, reason)
	}
	if enc := resp.Header.Get("Content-Encoding"); enc != "" && !strings.EqualFold(enc, "identity") {
		return nil, c.discard(resp, fmt.Errorf("%w: answer is compressed", ErrProtocol))
	}
	a := &answer{c: c, body: resp.Body}
	a.pkt = pktline.NewReader(a)
	return a, nil
}

// statusError reads what a bad answer says.
func (c *client) statusError(resp *http.Response) error {
	e := &StatusError{Status: resp.StatusCode, RetryAfter: retryAfter(resp.Header)}
	if kind, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type")); err == nil && kind == "text/plain" {
		a := &answer{c: c, body: resp.Body}
		// What can't be read of an error's text is no error of its own.
		var text strings.Builder
		_, _ = io.CopyN(&text, a, errorText)
		e.Text = clean(text.String(), errorText)
	}
	return c.discard(resp, e)
}

// discard reads a little of what is left of an answer, so that the
// connection can serve the next request, and closes it. It returns err.
func (c *client) discard(resp *http.Response, err error) error {
	a := &answer{c: c, body: resp.Body}
	// A connection that does not end soon is not worth keeping.
	_, _ = io.CopyN(io.Discard, a, errorText)
	_ = resp.Body.Close()
	return err
}

// retryAfter reads the header of that name: seconds, or a time, which is
// taken against the answer's own date. RFC 9110 §10.2.3.
func retryAfter(h http.Header) time.Duration {
	value := h.Get("Retry-After")
	if seconds, err := strconv.ParseUint(value, 10, 31); err == nil {
		return min(time.Duration(seconds)*time.Second, maxRetryAfter)
	}
	at, err := http.ParseTime(value)
	if err != nil {
		return 0
	}
	now, err := http.ParseTime(h.Get("Date"))
	if err != nil {
		return 0
	}
	return min(max(at.Sub(now), 0), maxRetryAfter)
}
