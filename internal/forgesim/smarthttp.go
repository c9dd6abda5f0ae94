package forgesim

import (
	"bytes"
	"io"
	"log"
	"maps"
	"net/http"
	"net/http/cgi"
	"strconv"
	"strings"
)

// servicePreamble begins an advertisement as github.com sends it.
const servicePreamble = "001e# service=git-upload-pack\n0000"

// serveGit serves git smart HTTP, of upload-pack alone.
func (f *Forge) serveGit(w http.ResponseWriter, r *http.Request) {
	owner, name, tail := splitGitPath(r.URL.Path)
	operation := ""
	switch {
	case r.Method == http.MethodGet && tail == "info/refs" && r.URL.RawQuery == "service=git-upload-pack":
		operation = GitAdvertise
	case r.Method == http.MethodPost && tail == "git-upload-pack":
		operation = GitFetch
	}
	e := f.arrive(r, operation)
	f.mu.Lock()
	repo, moved := f.find(owner, name)
	if repo != nil && repo.deleted {
		repo = nil
	}
	if repo != nil {
		e.Repository = repo.id
	}
	e.By = f.identify(r).String()
	f.mu.Unlock()
	c := &call{ctx: r.Context(), request: r, route: &route{forge: f, operation: operation}, repo: repo}
	c.effects = f.meet(operation, e.Repository)
	e.Faults = effectNames(c.effects)
	if err := beforehand(c.ctx, c.effects); err != nil {
		f.send(w, c, e, gitFailure(http.StatusInternalServerError))
		return
	}
	if has[DropRequest](c.effects) {
		f.leave(e, 0, 0)
		panic(http.ErrAbortHandler)
	}
	if a, ok := f.gitAnswer(c, moved, tail); ok {
		f.send(w, c, e, a)
		return
	}
	f.serveBackend(w, c, e, tail)
}

// splitGitPath takes "/owner/name.git/tail" apart.
func splitGitPath(path string) (owner, name, tail string) {
	parts := strings.SplitN(strings.TrimPrefix(path, "/"), "/", 3)
	if len(parts) < 3 {
		return "", "", ""
	}
	return parts[0], strings.TrimSuffix(parts[1], ".git"), parts[2]
}

// gitFailure answers as git servers do: with a line of text.
func gitFailure(status int) answer {
	return answer{
		status: status, header: http.Header{"Content-Type": {"text/plain; charset=utf-8"}},
		body: []byte(http.StatusText(status) + "\n"),
	}
}

// gitAnswer answers what does not come from git itself.
func (f *Forge) gitAnswer(c *call, moved bool, tail string) (answer, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if has[ExpireToken](c.effects) {
		f.expireToken(c.request)
	}
	if a, ok := f.instead(c.effects); ok {
		return a, true
	}
	c.who = f.identify(c.request)
	challenge := gitFailure(http.StatusUnauthorized)
	challenge.header.Set("WWW-Authenticate", `Basic realm="GitHub"`)
	if c.who.invalid || c.who.app != nil {
		return challenge, true
	}
	if c.repo == nil || c.route.operation == "" {
		return gitFailure(http.StatusNotFound), true
	}
	allowed := c.repo.public || c.who.token != nil && c.who.token.reaches(c.repo) && c.who.token.allows("contents", "read")
	switch {
	case !allowed && c.who.token == nil:
		return challenge, true
	case !allowed:
		return gitFailure(http.StatusNotFound), true
	case moved:
		a := gitFailure(http.StatusMovedPermanently)
		to := f.webURL("/%s.git/%s", c.repo.fullName(), tail)
		if c.request.URL.RawQuery != "" {
			to += "?" + c.request.URL.RawQuery
		}
		a.header.Set("Location", to)
		return a, true
	}
	return answer{}, false
}

// serveBackend lets git http-backend answer.
func (f *Forge) serveBackend(w http.ResponseWriter, c *call, e *Exchange, tail string) {
	body, err := readBody(c.request, maxGitBody)
	if err != nil {
		f.leave(e, 0, 0)
		panic(http.ErrAbortHandler)
	}
	e.RequestBytes = int64(len(body))
	inner := c.request.Clone(c.ctx)
	inner.Body, inner.ContentLength, inner.TransferEncoding = io.NopCloser(bytes.NewReader(body)), int64(len(body)), nil
	// The backend sees the repository's directory, and no credential.
	inner.URL.Path = "/" + strconv.FormatInt(c.repo.id, 10) + ".git/" + tail
	inner.Header.Del("Authorization")
	out := &gitWriter{ResponseWriter: w, forge: f, call: c, exchange: e}
	if c.route.operation == GitAdvertise && f.mood.ServicePreamble {
		out.preamble = servicePreamble
	}
	if t, ok := first[Truncate](c.effects); ok {
		out.cut = max(t.Bytes, 1)
	}
	defer func() { f.leave(e, out.status, out.sent) }()
	f.answerGit(out, inner, body)
	if err := afterwards(c.ctx, c.effects); err != nil || has[DropAnswer](c.effects) {
		out.status = 0
		panic(http.ErrAbortHandler)
	}
}

// answerGit answers from memory where it may, and else has git answer.
func (f *Forge) answerGit(out *gitWriter, inner *http.Request, body []byte) {
	if stale, ok := first[StaleRefs](out.call.effects); ok && isListing(body) {
		f.answerStale(out, inner, stale.Refs)
		return
	}
	q, same := gitQuestion(out.call, body)
	if !same || !f.config.RememberGit {
		f.backend(inner).ServeHTTP(out, inner)
		return
	}
	if a, ok := f.recall(q); ok {
		maps.Copy(out.Header(), a.header)
		out.WriteHeader(a.status)
		if _, err := out.Write(a.body); err != nil {
			panic(http.ErrAbortHandler)
		}
		return
	}
	var kept recorder
	kept.header = http.Header{}
	f.backend(inner).ServeHTTP(&kept, inner)
	f.memorize(q, kept.status, kept.header, kept.body.Bytes())
	maps.Copy(out.Header(), kept.header)
	out.WriteHeader(kept.status)
	if _, err := out.Write(kept.body.Bytes()); err != nil {
		panic(http.ErrAbortHandler)
	}
}

// backend is git http-backend in the sealed environment of all git commands.
func (f *Forge) backend(r *http.Request) *cgi.Handler {
	env := append([]string(nil), f.git.env...)
	env = append(env, "GIT_PROJECT_ROOT="+f.config.Dir, "GIT_HTTP_EXPORT_ALL=1")
	if r.Header.Get("Git-Protocol") == "version=2" {
		env = append(env, "GIT_PROTOCOL=version=2")
	}
	return &cgi.Handler{
		Path: f.git.backend, Root: "/", Dir: f.config.Dir, Env: env,
		Logger: log.New(io.Discard, "", 0), Stderr: io.Discard,
	}
}

// A gitWriter passes git's answer on as the faults leave it. An answer that is
// to be dropped or delayed waits for it before its first byte.
type gitWriter struct {
	http.ResponseWriter
	forge    *Forge
	call     *call
	exchange *Exchange
	preamble string
	cut      int // bytes after which the connection ends; 0: never
	status   int
	sent     int64
}

// WriteHeader begins the answer.
func (w *gitWriter) WriteHeader(status int) {
	if err := wait(w.call.ctx, delayOf(w.call.effects)); err != nil || has[DropAnswer](w.call.effects) {
		panic(http.ErrAbortHandler)
	}
	w.status = status
	w.ResponseWriter.WriteHeader(status)
	if w.preamble != "" && status == http.StatusOK {
		if _, err := w.pass([]byte(w.preamble)); err != nil {
			panic(http.ErrAbortHandler)
		}
	}
}

// pass hands bytes on and counts them.
func (w *gitWriter) pass(p []byte) (int, error) {
	n, err := w.ResponseWriter.Write(p)
	w.sent += int64(n)
	return n, err
}

// Write passes bytes on until the cut.
func (w *gitWriter) Write(p []byte) (int, error) {
	if w.status == 0 {
		w.WriteHeader(http.StatusOK)
	}
	room := int64(w.cut) - w.sent
	if w.cut == 0 || int64(len(p)) <= room {
		return w.pass(p)
	}
	if _, err := w.pass(p[:max(room, 0)]); err == nil {
		if flusher, ok := w.ResponseWriter.(http.Flusher); ok {
			flusher.Flush()
		}
	}
	panic(http.ErrAbortHandler)
}
