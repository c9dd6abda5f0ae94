package forgesim

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// first returns the first effect of one kind.
func first[E Effect](effects []Effect) (E, bool) {
	for _, effect := range effects {
		if e, ok := effect.(E); ok {
			return e, true
		}
	}
	var none E
	return none, false
}

// effectNames are the effects' types.
func effectNames(effects []Effect) []string {
	var names []string
	for _, effect := range effects {
		names = append(names, strings.TrimPrefix(fmt.Sprintf("%T", effect), "forgesim."))
	}
	return names
}

func has[E Effect](effects []Effect) bool {
	_, ok := first[E](effects)
	return ok
}

// beforehand runs the functions of [Before].
func beforehand(ctx context.Context, effects []Effect) error {
	if before, ok := first[Before](effects); ok {
		return before.Do(ctx)
	}
	return nil
}

// afterwards runs the functions of [After].
func afterwards(ctx context.Context, effects []Effect) error {
	if after, ok := first[After](effects); ok {
		return after.Do(ctx)
	}
	return nil
}

// delayOf adds the delays up.
func delayOf(effects []Effect) time.Duration {
	var sum time.Duration
	for _, effect := range effects {
		if d, ok := effect.(Delay); ok {
			sum += d.For
		}
	}
	return sum
}

// interfere answers instead of the operation where an effect says so. Called
// with mu held.
func (f *Forge) interfere(c *call) (answer, bool) {
	if a, ok := f.instead(c.effects); ok {
		return a, true
	}
	if has[NotYet](c.effects) {
		return noCommit(c, "the commit"), true
	}
	if a, ok := f.answers[c.request.URL.RequestURI()]; ok && has[Stale](c.effects) {
		return answer{status: a.status, header: a.header.Clone(), body: a.body}, true
	}
	return answer{}, false
}

// instead is the answer of the first effect that needs nothing of the request.
// Called with mu held.
func (f *Forge) instead(effects []Effect) (answer, bool) {
	for _, effect := range effects {
		switch e := effect.(type) {
		case Fail:
			a := failure(e.Code, http.StatusText(e.Code))
			setRetryAfter(a.header, e.RetryAfter)
			return a, true
		case SecondaryLimit:
			setDefault(&e.Code, http.StatusForbidden)
			a := failure(e.Code, "You have exceeded a secondary rate limit")
			setRetryAfter(a.header, e.RetryAfter)
			return a, true
		case PrimaryLimit:
			setDefault(&e.Code, http.StatusForbidden)
			a := exhausted(e.Code)
			used := &allowance{limit: f.config.RateLimit, used: f.config.RateLimit, reset: f.now().Add(e.In)}
			used.write(a.header)
			return a, true
		case Redirect:
			setDefault(&e.Code, http.StatusFound)
			a := reply(e.Code, object{"message": http.StatusText(e.Code), "url": e.Location, "documentation_url": docsURL})
			a.header.Set("Location", e.Location)
			return a, true
		case Delay, DropRequest, DropAnswer, Truncate, Garble, Stale, HideRuns, NotYet, ExpireToken, StaleRefs, Before, After:
		}
	}
	return answer{}, false
}

// deform cuts a body as the effects say, and says whether the connection
// survives.
func deform(effects []Effect, body []byte) (rest []byte, whole bool) {
	if t, ok := first[Truncate](effects); ok && len(body) > 0 {
		setDefault(&t.Bytes, len(body)/2)
		return body[:min(t.Bytes, len(body)-1)], false
	}
	if has[Garble](effects) {
		return body[:len(body)/2], true
	}
	return body, true
}

// noCommit is how the call answers that a commit is not there.
func noCommit(c *call, sha string) answer {
	if c.request.Method == http.MethodGet && !strings.Contains(c.route.operation, "/commits/{ref}/") {
		return notFound()
	}
	return invalid("No commit found for SHA: " + sha)
}

var errBodyTooLarge = errors.New("request body too large")

// readBody reads a request's body up to a limit.
func readBody(r *http.Request, limit int64) ([]byte, error) {
	if r.Body == nil {
		return nil, nil
	}
	var b bytes.Buffer
	n, err := io.Copy(&b, io.LimitReader(r.Body, limit+1))
	if err != nil {
		return nil, err
	}
	if n > limit {
		return nil, errBodyTooLarge
	}
	return b.Bytes(), nil
}
