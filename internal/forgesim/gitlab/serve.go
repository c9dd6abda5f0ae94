package gitlab

import (
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/fencepost/fencepost/internal/forgesim"
)

// An Answer is what a request gets in place of the usual.
type Answer = forgesim.Answer

// Interfere lets decide answer every request that it does not return nil for;
// a status of zero closes the connection. Nil ends it.
func (f *Forge) Interfere(decide func(*http.Request) *Answer) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.interfere = decide
}

// TooMany is the answer of a rate limit that ends after a time.
func (f *Forge) TooMany(after time.Duration) *Answer {
	seconds := strconv.Itoa(int(after / time.Second))
	return &Answer{Status: http.StatusTooManyRequests, Body: "Retry later\n", Header: http.Header{
		"Retry-After": {seconds}, "Ratelimit-Limit": {"2000"}, "Ratelimit-Remaining": {"0"}, "Ratelimit-Observed": {"2001"},
		"Ratelimit-Reset": {strconv.FormatInt(f.config.Now().Add(after).Unix(), 10)}, "Content-Type": {"text/plain"},
	}}
}

// Broken is the answer of a server that failed.
func Broken() *Answer {
	return &Answer{Status: http.StatusInternalServerError, Body: `{"message":"500 Internal Server Error"}`,
		Header: http.Header{"Content-Type": {"application/json"}}}
}

// SetLag lets so many reads pass before a new pipeline, job, car's pipeline or
// request's diff_refs are there, from now on.
func (f *Forge) SetLag(reads int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.lag = reads
}

// Quietly does what a request asks for and answers nobody; it is for what
// [Forge.Interfere] decides about writes whose answer is to be lost.
func (f *Forge) Quietly(r *http.Request) { f.api.ServeHTTP(forgesim.Silence{}, r) }

// reply answers with a JSON value.
func reply(w http.ResponseWriter, status int, value any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "max-age=0, private, must-revalidate")
	w.WriteHeader(status)
	if err := json.NewEncoder(w).Encode(value); err != nil {
		panic(http.ErrAbortHandler)
	}
}

// failure answers in the form of most errors.
func failure(w http.ResponseWriter, status int, more string) {
	text := strconv.Itoa(status) + " " + http.StatusText(status)
	if more != "" {
		text = strconv.Itoa(status) + " " + more
	}
	reply(w, status, object{"message": text})
}

// ServeHTTP serves the API below [APIPrefix], the issuer's documents, and git
// elsewhere.
func (f *Forge) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	t, invalid := f.identify(r)
	by := "anonymous"
	switch {
	case invalid:
		by = "invalid"
	case t != nil:
		by = t.user
	}
	if len(f.journal) < maxJournal {
		f.journal = append(f.journal, Request{r.Method, r.URL.Path, r.URL.RawQuery, by})
	}
	down, interfere := f.down, f.interfere
	f.mu.Unlock()
	if down {
		panic(http.ErrAbortHandler)
	}
	if interfere != nil {
		if a := interfere(r); a != nil {
			a.Write(w)
			return
		}
	}
	api := strings.HasPrefix(r.URL.Path, APIPrefix+"/")
	switch {
	case r.URL.Path == "/oauth/discovery/keys" && r.Method == http.MethodGet:
		f.keySet(w, r)
	case r.URL.Path == "/.well-known/openid-configuration" && r.Method == http.MethodGet:
		f.discovery(w, r)
	case api && (invalid || t != nil && t.job != nil):
		failure(w, http.StatusUnauthorized, "")
	case api && t != nil && !t.allows(scopesOf(r)...):
		reply(w, http.StatusForbidden, object{
			"error": "insufficient_scope", "scope": strings.Join(scopesOf(r), " "),
			"error_description": "The request requires higher privileges than provided by the access token.",
		})
	case api:
		f.api.ServeHTTP(w, r)
	default:
		f.serveGit(w, r, t, invalid)
	}
}

// scopesOf are those of which a request needs one.
func scopesOf(r *http.Request) []string {
	if r.Method == http.MethodGet {
		return []string{"api", "read_api"}
	}
	return []string{"api"}
}

// A call is one request of the API about a project that its caller may see.
type call struct {
	http.ResponseWriter
	*http.Request
	project *Project
	level   Level
	by      string
}

// fail answers with an error.
func (c *call) fail(status int, more string) { failure(c.ResponseWriter, status, more) }

// reply answers with a value.
func (c *call) reply(value any) { reply(c.ResponseWriter, http.StatusOK, value) }

// number reads a path's number; 0 for none.
func (c *call) number(name string) int64 {
	n, err := strconv.ParseInt(c.PathValue(name), 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// on serves what is about a project, with mu held.
func (f *Forge) on(serve func(*call)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		f.mu.Lock()
		defer f.mu.Unlock()
		t, _ := f.identify(r)
		id := r.PathValue("id")
		var p *Project
		moved := false
		if n, err := strconv.ParseInt(id, 10, 64); err == nil {
			p = f.byID(n)
		} else {
			p, moved = f.find(id)
		}
		switch {
		case p == nil || p.visibility != "public" && t == nil:
			failure(w, http.StatusNotFound, "Project Not Found")
			return
		case moved:
			tail := strings.TrimPrefix(r.URL.EscapedPath(), APIPrefix+"/projects/"+escape(id))
			to := f.base + APIPrefix + "/projects/" + strconv.FormatInt(p.id, 10) + tail
			if r.URL.RawQuery != "" {
				to += "?" + r.URL.RawQuery
			}
			w.Header().Set("Location", to)
			reply(w, http.StatusMovedPermanently, object{"message": "This resource has been moved permanently to " + to})
			return
		}
		c := &call{ResponseWriter: w, Request: r, project: p}
		if t != nil {
			c.level, c.by = t.level, t.user
		}
		serve(c)
	}
}

// routes builds the table of operations.
func (f *Forge) routes() *http.ServeMux {
	mux := http.NewServeMux()
	const project = APIPrefix + "/projects/{id}"
	for pattern, serve := range map[string]func(*call){
		"GET " + project:                                          getProject,
		"GET " + project + "/merge_requests":                      listRequests,
		"GET " + project + "/merge_requests/{iid}":                onRequest(getRequest),
		"GET " + project + "/merge_requests/{iid}/merge_ref":      onRequest(getMergeRef),
		"PUT " + project + "/merge_requests/{iid}/merge":          onRequest(putMerge),
		"GET " + project + "/merge_trains":                        listCars,
		"GET " + project + "/merge_trains/{branch}":               listCars,
		"GET " + project + "/merge_trains/merge_requests/{iid}":   onRequest(getCar),
		"POST " + project + "/merge_trains/merge_requests/{iid}":  onRequest(postCar),
		"GET " + project + "/pipelines/{pipeline}":                getPipeline,
		"GET " + project + "/jobs/{job}":                          getJob,
		"GET " + project + "/protected_branches":                  listProtected,
		"GET " + project + "/protected_branches/{name}":           getProtected,
		"GET " + project + "/repository/branches/{branch}":        getBranch,
		"GET " + project + "/repository/commits/{sha}":            getCommit,
		"GET " + project + "/repository/compare":                  compare,
		"GET " + project + "/repository/merge_base":               mergeBase,
		"GET " + project + "/repository/tree":                     getTree,
		"GET " + project + "/repository/files/{path}":             getFile,
		"GET " + project + "/repository/files/{path}/raw":         getRaw,
		"GET " + project + "/hooks":                               listHooks,
		"POST " + project + "/hooks":                              postHook,
		"GET " + project + "/hooks/{hook}":                        onHook(getHook),
		"GET " + project + "/hooks/{hook}/events":                 onHook(listEvents),
		"POST " + project + "/hooks/{hook}/events/{event}/resend": onHook(resend),
		"POST " + project + "/hooks/{hook}/test/push_events":      onHook(testHook),
	} {
		mux.HandleFunc(pattern, f.on(serve))
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) { failure(w, http.StatusNotFound, "") })
	return mux
}

// page answers with a page of a list, by offset. contracts/gitlab.md §8
func page(c *call, all []object) {
	number := func(name string, most, otherwise int) int {
		n, err := strconv.Atoi(c.URL.Query().Get(name))
		if err != nil || n < 1 {
			return otherwise
		}
		return min(n, most)
	}
	size, at := number("per_page", 100, 20), number("page", 1<<20, 1)
	total := max(1, (len(all)+size-1)/size)
	h := c.ResponseWriter.Header()
	h.Set("X-Page", strconv.Itoa(at))
	h.Set("X-Per-Page", strconv.Itoa(size))
	h.Set("X-Total", strconv.Itoa(len(all)))
	h.Set("X-Total-Pages", strconv.Itoa(total))
	next := ""
	if at < total {
		next = strconv.Itoa(at + 1)
		query := c.URL.Query()
		query.Set("page", next)
		query.Set("per_page", strconv.Itoa(size))
		to := url.URL{Path: c.URL.Path, RawPath: c.URL.RawPath, RawQuery: query.Encode()}
		h.Set("Link", "<"+c.project.forge.base+to.String()+`>; rel="next"`)
	}
	h.Set("X-Next-Page", next)
	c.reply(append([]object{}, all[min(len(all), (at-1)*size):min(len(all), at*size)]...))
}

// GitRefused is how many requests of git came without a credential that is
// valid: each counts against an address. contracts/gitlab.md §9
func (f *Forge) GitRefused() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.gitRefused
}

// serveGit serves git smart HTTP through the inner forge.
func (f *Forge) serveGit(w http.ResponseWriter, r *http.Request, t *token, invalid bool) {
	path, tail, ok := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), ".git/")
	f.mu.Lock()
	var p *Project
	moved := false
	if ok {
		p, moved = f.find(path)
	}
	refused := invalid || t == nil && (p == nil || p.visibility != "public")
	to := ""
	if refused {
		f.gitRefused++
	} else if moved {
		to = p.web() + ".git/" + tail
	}
	f.mu.Unlock()
	switch {
	case refused:
		w.Header().Set("WWW-Authenticate", `Basic realm="GitLab"`)
		http.Error(w, "HTTP Basic: Access denied.", http.StatusUnauthorized)
	case p == nil:
		http.Error(w, "The project you were looking for could not be found.", http.StatusNotFound)
	case t != nil && !t.allows("read_repository", "api"):
		http.Error(w, "Access denied.", http.StatusForbidden)
	case moved:
		if r.URL.RawQuery != "" {
			to += "?" + r.URL.RawQuery
		}
		w.Header().Set("Location", to)
		w.WriteHeader(http.StatusMovedPermanently)
	default:
		inner := r.Clone(r.Context())
		inner.URL.Path, inner.URL.RawPath = "/"+p.under.FullName()+".git/"+tail, ""
		inner.Header.Del("PRIVATE-TOKEN")
		inner.SetBasicAuth("x-access-token", p.door)
		f.under.ServeHTTP(w, inner)
	}
}
