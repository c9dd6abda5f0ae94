package forgesim

import (
	"bytes"
	"maps"
	"net/http"
)

// SetDown makes every request end without an answer, and holds webhooks back,
// until it is up again. What [Repository.Push] and the like change still
// happens: an outage seen from outside.
func (f *Forge) SetDown(down bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.down = down
	if !down {
		f.wake()
	}
}

func (f *Forge) isDown() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.down
}

// FreezeRefs makes Git's ls-refs show the repository's refs as they are at this
// moment, however they move, until [InjectedFault.End]: a replica that lags.
func (r *Repository) FreezeRefs() *InjectedFault {
	return r.forge.Inject(Fault{On: GitFetch, Repository: r.id, Times: -1, Effect: StaleRefs{Refs: r.Refs()}})
}

// isListing reports whether a command of protocol v2 lists refs.
func isListing(body []byte) bool { return bytes.Contains(body, []byte("command=ls-refs")) }

// answerStale lets git list the refs and puts the old ids in the place of the
// present ones. Both are of one length, so that the packets stay whole.
func (f *Forge) answerStale(out *gitWriter, inner *http.Request, old map[string]string) {
	now := out.call.repo.Refs()
	kept := recorder{header: http.Header{}}
	f.backend(inner).ServeHTTP(&kept, inner)
	body := kept.body.Bytes()
	for name, id := range old {
		// Either the line ends, or attributes follow.
		for _, end := range []string{"\n", " "} {
			body = bytes.ReplaceAll(body, []byte(now[name]+" "+name+end), []byte(id+" "+name+end))
		}
	}
	maps.Copy(out.Header(), kept.header)
	out.Header().Del("Content-Length")
	out.WriteHeader(kept.status)
	if _, err := out.Write(body); err != nil {
		panic(http.ErrAbortHandler)
	}
}
