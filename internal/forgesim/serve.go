package forgesim

import (
	"context"
	"fmt"
	"mime"
	"net/http"
	"path"
	"strconv"
	"strings"
	"time"
)

// ServeHTTP serves REST below [APIPrefix] and git elsewhere.
func (f *Forge) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if f.isDown() {
		panic(http.ErrAbortHandler)
	}
	rest, ok := strings.CutPrefix(r.URL.EscapedPath(), APIPrefix)
	if !ok {
		f.serveGit(w, r)
		return
	}
	inner := r.Clone(r.Context())
	inner.URL.Path = strings.TrimPrefix(r.URL.Path, APIPrefix)
	inner.URL.RawPath = joinSegments(rest)
	whole := rest
	if strings.Contains(rest, "/git/matching-refs/") {
		whole = strings.TrimSuffix(rest, "/") // of a prefix, it means something
	}
	if whole == "" || whole != path.Clean(whole) {
		// The mux would redirect; GitHub knows no such path.
		inner.URL.Path, inner.URL.RawPath = "/-", ""
	}
	f.api.ServeHTTP(w, inner)
}

// joinSegments escapes the slashes of a branch or another ref in the middle of a
// path, which GitHub takes as they are.
func joinSegments(escaped string) string {
	for _, before := range []string{"/commits/", "/branches/"} {
		head, rest, ok := strings.Cut(escaped, before)
		if !ok || strings.HasSuffix(head, "/git") {
			continue
		}
		tail := ""
		for _, after := range []string{"/check-runs", "/check-suites", "/status", "/statuses", "/protection"} {
			if ref, ok := strings.CutSuffix(rest, after); ok {
				rest, tail = ref, after
				break
			}
		}
		return head + before + strings.ReplaceAll(rest, "/", "%2F") + tail
	}
	return escaped
}

// serveOperation answers one REST call: faults before, the operation, faults
// after, the journal.
func (f *Forge) serveOperation(w http.ResponseWriter, r *http.Request, rt *route) {
	c := &call{ctx: r.Context(), request: r, route: rt, query: r.URL.Query()}
	e := f.arrive(r, rt.operation)
	body, err := readBody(r, maxRequestBody)
	if err != nil {
		// The client went away or sends without end: there is nobody to answer.
		f.leave(e, 0, 0)
		panic(http.ErrAbortHandler)
	}
	c.body, e.RequestBytes = body, int64(len(body))
	a := f.decide(c, e)
	if f.config.Observer != nil {
		f.config.Observer(r, body, a.status, a.header, a.body)
	}
	if err := afterwards(c.ctx, c.effects); err != nil {
		a = failure(http.StatusInternalServerError, "Server Error")
	}
	f.send(w, c, e, a)
}

// arrive begins an exchange.
func (f *Forge) arrive(r *http.Request, operation string) *Exchange {
	f.mu.Lock()
	defer f.mu.Unlock()
	return &Exchange{
		Seq: f.journal.next(), Operation: operation, Method: r.Method, Path: r.URL.EscapedPath(),
		Query: r.URL.RawQuery, Arrived: f.now(),
	}
}

// leave ends an exchange.
func (f *Forge) leave(e *Exchange, status int, size int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	e.Status, e.AnswerBytes, e.Answered = status, size, f.now()
	f.journal.add(*e)
}

// decide finds the answer to a call, by a fault or by the operation.
func (f *Forge) decide(c *call, e *Exchange) answer {
	f.mu.Lock()
	repo, _ := f.target(c)
	if repo != nil {
		e.Repository = repo.id
	}
	e.By = f.identify(c.request).String()
	f.mu.Unlock()
	c.effects = f.meet(c.route.operation, e.Repository)
	e.Faults = effectNames(c.effects)
	if err := beforehand(c.ctx, c.effects); err != nil {
		return failure(http.StatusInternalServerError, "Server Error")
	}
	if has[DropRequest](c.effects) {
		f.leave(e, 0, 0)
		panic(http.ErrAbortHandler)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.answerTo(c)
}

// answerTo applies the conventions of all calls and then the operation's
// rules. Called with mu held.
func (f *Forge) answerTo(c *call) answer {
	if has[ExpireToken](c.effects) {
		f.expireToken(c.request)
	}
	c.who = f.identify(c.request)
	allowed := f.allowanceOf(c.who)
	a, counted := f.conventions(c, allowed)
	if counted && !c.route.free {
		allowed.used++
	}
	if a.status == http.StatusOK && c.request.Method == http.MethodGet {
		a = f.conditional(c, a, allowed)
	}
	// A primary limit that a fault claims writes its own numbers.
	if a.header.Get("X-RateLimit-Limit") == "" {
		allowed.write(a.header)
	}
	setDefault(&c.version, version2022)
	a.header.Set("X-GitHub-Api-Version-Selected", c.version)
	a.header.Set("X-GitHub-Media-Type", "github.v3; format=json")
	a.header.Set("X-GitHub-Request-Id", fmt.Sprintf("F0:%08X", f.journal.seq))
	a.header.Set("Vary", "Accept, Authorization, X-GitHub-Api-Version")
	return a
}

// conventions says also whether the request counts against the rate limit.
func (f *Forge) conventions(c *call, allowed *allowance) (answer, bool) {
	h := c.request.Header
	if h.Get("User-Agent") == "" {
		return failure(http.StatusForbidden, "A request needs a User-Agent header"), false
	}
	c.version = h.Get("X-GitHub-Api-Version")
	setDefault(&c.version, version2022)
	if c.version != version2022 && c.version != version2026 {
		c.version = version2022
		return failure(http.StatusBadRequest, "This API version is not supported"), false
	}
	if !accepts(h.Values("Accept")) {
		return failure(http.StatusUnsupportedMediaType, "Unsupported Accept header"), false
	}
	if a, ok := f.interfere(c); ok {
		return a, true
	}
	if c.who.invalid {
		return failure(http.StatusUnauthorized, c.who.reason), false
	}
	if !c.route.free && allowed.remaining() == 0 {
		return exhausted(http.StatusForbidden), false
	}
	if c.request.Method == http.MethodGet && f.mood.chance(f.mood.ServerError) {
		return failure(http.StatusBadGateway+f.mood.upTo(1), "Server Error"), false
	}
	a := f.operate(c)
	if c.request.Method != http.MethodGet && a.status/100 == 2 && f.mood.chance(f.mood.LostWrite) {
		a = failure(http.StatusBadGateway, "Server Error")
	}
	return a, true
}

// operate checks who may ask and asks the operation.
func (f *Forge) operate(c *call) answer {
	if c.route.app {
		if c.who.app == nil {
			return failure(http.StatusUnauthorized, errJWTForm.Error())
		}
	} else if c.who.app != nil && !c.route.anyone {
		return failure(http.StatusUnauthorized, "Bad credentials")
	}
	if c.who.token != nil && c.who.token.person != nil && strings.Contains(c.route.operation, " /installation/") {
		return failure(http.StatusForbidden, "Resource not accessible by personal access token")
	}
	if c.needsRepository() {
		repo, moved := f.target(c)
		if a, ok := f.admit(c, repo); !ok {
			return a
		}
		if moved {
			return f.movedTo(c, repo)
		}
		c.repo = repo
	}
	return c.route.serve(f, c)
}

func (c *call) needsRepository() bool {
	return strings.Contains(c.route.operation, repositoryPrefix)
}

// target finds the repository that a path names; moved where by an old name.
// Called with mu held.
func (f *Forge) target(c *call) (r *Repository, moved bool) {
	if id := c.number("repository_id"); id != 0 {
		r = f.repository(id)
	} else {
		r, moved = f.find(c.path("owner"), c.path("repo"))
	}
	if r != nil && r.deleted {
		return nil, false
	}
	return r, moved
}

// find finds a repository by a present or an old name. Called with mu held.
func (f *Forge) find(owner, name string) (r *Repository, moved bool) {
	if r := f.named(owner, name); r != nil {
		return r, false
	}
	if id, ok := f.moved[strings.ToLower(owner+"/"+name)]; ok {
		return f.repository(id), true
	}
	return nil, false
}

// admit says whether the caller may do this to the repository: what it may not
// see is not there, what it sees but may not do is forbidden.
func (f *Forge) admit(c *call, r *Repository) (answer, bool) {
	if r == nil {
		return notFound(), false
	}
	if c.route.app {
		return answer{}, true
	}
	reaches := c.who.token != nil && c.who.token.reaches(r)
	if !reaches && !r.public {
		return notFound(), false
	}
	switch {
	case r.public && c.route.public:
		return answer{}, true
	case reaches && c.who.token.allows(c.route.permission, c.route.level):
		return answer{}, true
	}
	a := failure(http.StatusForbidden, "Resource not accessible by integration")
	a.header.Set("X-Accepted-GitHub-Permissions", c.route.permission+"="+c.route.level)
	return a, false
}

// movedTo redirects to the path by id: 301 for reads, 307 for the rest.
func (f *Forge) movedTo(c *call, r *Repository) answer {
	code := http.StatusMovedPermanently
	if c.request.Method != http.MethodGet {
		code = http.StatusTemporaryRedirect
	}
	rest := strings.SplitN(c.request.URL.EscapedPath(), "/", 5) // "", repos, owner, repo, rest
	to := f.apiURL("/repositories/%d", r.id)
	if len(rest) == 5 {
		to += "/" + rest[4]
	}
	if c.request.URL.RawQuery != "" {
		to += "?" + c.request.URL.RawQuery
	}
	a := reply(code, object{"message": "Moved Permanently", "url": to, "documentation_url": docsURL})
	a.header.Set("Location", to)
	return a
}

// conditional turns an answer that the client has already into 304, which is
// not counted for those who said who they are.
func (f *Forge) conditional(c *call, a answer, allowed *allowance) answer {
	key := c.request.URL.RequestURI()
	if len(f.answers) >= maxStaleAnswers {
		clear(f.answers)
	}
	f.answers[key] = answer{status: a.status, header: a.header.Clone(), body: a.body}
	if c.route.free {
		return a
	}
	tag := a.etag()
	a.header.Set("ETag", tag)
	a.header.Set("Cache-Control", "private, max-age=60, s-maxage=60")
	if none := c.request.Header.Get("If-None-Match"); none != "" && matches(none, tag) {
		if c.who.app != nil || c.who.token != nil {
			allowed.used--
		}
		a.header.Del("Content-Type")
		return answer{status: http.StatusNotModified, header: a.header}
	}
	return a
}

// maxStaleAnswers bounds what [Stale] can draw on.
const maxStaleAnswers = 1024

// accepts reports whether one of the Accept headers takes JSON.
func accepts(headers []string) bool {
	if len(headers) == 0 {
		return true
	}
	for part := range strings.SplitSeq(strings.Join(headers, ","), ",") {
		kind, _, err := mime.ParseMediaType(part)
		if err != nil {
			continue
		}
		switch kind {
		case "*/*", "application/*", "application/json", "application/vnd.github+json", "application/vnd.github.v3+json":
			return true
		}
	}
	return false
}

// send writes the answer as the faults leave it, and the journal's entry.
func (f *Forge) send(w http.ResponseWriter, c *call, e *Exchange, a answer) {
	if err := wait(c.ctx, delayOf(c.effects)); err != nil || has[DropAnswer](c.effects) {
		f.leave(e, 0, 0)
		panic(http.ErrAbortHandler)
	}
	for name, values := range a.header {
		w.Header()[name] = values
	}
	body, whole := deform(c.effects, a.body)
	if a.status != http.StatusNotModified && a.status != http.StatusNoContent {
		length := len(body)
		if !whole {
			length = len(a.body)
		}
		w.Header().Set("Content-Length", strconv.Itoa(length))
	}
	// The journal is complete before the client can act on the answer.
	f.leave(e, a.status, int64(len(body)))
	w.WriteHeader(a.status)
	if _, err := w.Write(body); err != nil || !whole {
		panic(http.ErrAbortHandler)
	}
}

// wait waits for d or the end of the request.
func wait(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// expireToken ends the token of a request. Called with mu held.
func (f *Forge) expireToken(r *http.Request) {
	if text, ok := credential(r, r.Header.Get("Authorization")); ok {
		delete(f.tokens, text)
	}
}
