package forgesim

import (
	"net/http"
	"strings"
)

// A route is one operation of the API.
type route struct {
	forge     *Forge
	operation string // as the API's description writes it
	// app: the App itself asks, with its JWT. Otherwise an installation token
	// or nobody does.
	app bool
	// permission and level are what the token must grant; "" is none.
	permission, level string
	// public: readable without the permission where the repository is public.
	public bool
	// anyone may ask, with whatever valid credential or none.
	anyone bool
	// free: not counted against the rate limit.
	free  bool
	serve func(*Forge, *call) answer
}

// repositoryPrefix begins every operation on a repository. Each is also served
// below /repositories/{id}, where redirects of renamed repositories lead.
const repositoryPrefix = "/repos/{owner}/{repo}"

// routes builds the table of operations.
func (f *Forge) routes() *http.ServeMux {
	mux := http.NewServeMux()
	for _, r := range operations() {
		r.forge = f
		method, path, _ := strings.Cut(r.operation, " ")
		path = pathPattern(path)
		handler := http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
			f.serveOperation(w, request, &r)
		})
		mux.Handle(method+" "+path, handler)
		if rest, ok := strings.CutPrefix(path, repositoryPrefix); ok {
			mux.Handle(method+" /repositories/{repository_id}"+rest, handler)
		}
	}
	unknown := route{forge: f, serve: func(*Forge, *call) answer { return notFound() }}
	mux.HandleFunc("/", func(w http.ResponseWriter, request *http.Request) {
		f.serveOperation(w, request, &unknown)
	})
	return mux
}

// pathPattern lets the parameters that can hold slashes do so.
func pathPattern(path string) string {
	for _, wide := range []string{"/git/ref/{ref}", "/git/matching-refs/{ref}"} {
		if strings.HasSuffix(path, wide) {
			return strings.TrimSuffix(path, "}") + "...}"
		}
	}
	return path
}

// operations lists what the simulated API can do.
func operations() []route {
	var all []route
	for _, group := range [][]route{appOperations(), repositoryOperations(), pullOperations(), checkOperations(), hookOperations()} {
		all = append(all, group...)
	}
	return all
}

// read makes the route of a GET on a repository.
func read(path, permission string, serve func(*Forge, *call) answer) route {
	return route{
		operation: "GET " + repositoryPrefix + path, permission: permission, level: "read", public: true, serve: serve,
	}
}

// write makes the route of a change to a repository.
func write(method, path, permission string, serve func(*Forge, *call) answer) route {
	return route{operation: method + " " + repositoryPrefix + path, permission: permission, level: "write", serve: serve}
}
