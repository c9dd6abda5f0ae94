package ingress

import (
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/webhook"
)

// ServeHTTP implements [http.Handler]: the order of work of DESIGN §4.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	x := exchange{server: s, w: w, r: r, started: s.now()}
	defer x.recover()
	a, err := x.work()
	if err != nil {
		// There is nobody to answer, or nothing that could be answered.
		x.report(answer{outcome: OutcomeAborted})
		panic(http.ErrAbortHandler)
	}
	x.answer(a)
}

// An exchange is one request on its way to its answer.
type exchange struct {
	server  *Server
	w       http.ResponseWriter
	r       *http.Request
	started time.Time

	headers  fencepost.Headers
	route    fencepost.RouteName
	job      bool // the path is a job's
	poll     bool // it asks for a result
	anchor   fencepost.AnchorID
	body     int  // bytes read
	read     bool // nothing of the body is left unread
	answered bool
}

// work does all that comes before the answer. Its error is [errBroken].
func (x *exchange) work() (answer, error) {
	s, r := x.server, x.r
	path := r.URL.EscapedPath()
	x.job = strings.HasPrefix(path, jobs)
	x.poll = x.job && r.Method == http.MethodGet
	if r.Method != http.MethodPost && !x.poll {
		return refusedMethod(), nil
	}
	table := s.table.acquire()
	defer table.release()
	side, below := table.side(path)
	if x.poll {
		return x.ask(side, below), nil
	}
	most := s.cfg.MaxBody
	if x.job {
		most = min(most, maxHint)
	}
	route := side.named(below)
	x.named(side, route)
	x.headers = webhook.RequestHeaders(r)
	switch {
	// A trailer's values come after the headers that were counted.
	case x.headers.Len() > s.cfg.MaxHeaders, x.headers.Size() > s.cfg.MaxHeaderBytes, len(r.Trailer) > 0:
		return refusedHeaders(), nil
	case !webhook.IsJSON(x.headers):
		return refusedMediaType(), nil
	case r.ContentLength > most:
		return refusedSize(), nil
	case !s.flight.enter():
		return refusedService(fencepost.ReasonDraining), nil
	}
	defer s.flight.leave()
	body, room, err := s.read(x.w, r, most)
	defer room.release()
	switch {
	case errors.Is(err, errTooLarge):
		return refusedSize(), nil
	case errors.Is(err, errNoRoom):
		return refusedService(fencepost.ReasonFull), nil
	case err != nil:
		return answer{}, errBroken
	}
	x.body, x.read = len(body), true
	if len(r.Trailer) > 0 {
		return refusedHeaders(), nil
	}
	return x.judge(side, route, body), nil
}

// named keeps the name of a route that there is, for observer and log.
func (x *exchange) named(side *side, route *Route) {
	if route != &side.unknown {
		x.route = route.Rule.Route
	}
}

// judge authenticates the request and has it admitted and recorded.
func (x *exchange) judge(side *side, route *Route, body []byte) answer {
	verifier := route.Verifier
	if ambiguous(x.headers, route.Headers) {
		verifier = side.unknown.Verifier
	}
	check := fencepost.NewIngressCheck(route.Rule.Route, x.headers, body, x.server.now())
	delivery, err := fencepost.Receive(check, verifier, route.Rule)
	if err != nil {
		return x.unauthenticated(err)
	}
	x.anchor = delivery.Anchor()
	if err := route.Admission.Admit(x.headers, body); err != nil {
		return x.notAdmitted(err, route.PlainOK)
	}
	ctx, cancel := x.server.recordContext(x.r)
	defer cancel()
	recording, err := route.Recorder.Record(ctx, delivery, x.headers.Select(route.Headers...), body)
	switch {
	case err == nil:
		a := recordedAnswer(recording, delivery, route.PlainOK)
		if route.Job != nil && (a.outcome == OutcomeAccepted || a.outcome == OutcomeReplayed) {
			a.secret = route.Job.secret(string(route.Rule.Route), string(a.delivery))
		}
		return a
	case fencepost.ReasonOf(err) == fencepost.ReasonFull:
		return refusedService(fencepost.ReasonFull)
	}
	return refusedService(fencepost.ReasonUnavailable)
}

// unauthenticated is the one answer to all that could not be authenticated.
// What is no refusal, such as keys that were dropped under a verifier, is a
// fault of ours, and the sender may try again.
func (x *exchange) unauthenticated(err error) answer {
	if errors.Is(err, fencepost.ErrUnauthenticated) || errors.Is(err, fencepost.ErrSignedTime) {
		return refusedAuthentication()
	}
	return refusedService(fencepost.ReasonUnavailable)
}

func (x *exchange) notAdmitted(err error, plainOK bool) answer {
	reason := fencepost.ReasonOf(err)
	ignored := answer{status: http.StatusOK, outcome: OutcomeIgnored, reason: reason}
	switch reason {
	case fencepost.ReasonEventNotHandled:
		return ignored
	case fencepost.ReasonMalformed:
		return refusal(http.StatusBadRequest, reason)
	case fencepost.ReasonUnauthorized:
		if plainOK {
			return ignored
		}
		return refusal(http.StatusForbidden, reason)
	}
	return refusedService(fencepost.ReasonUnavailable)
}

// answer sends a, and decides whether the connection lives on.
func (x *exchange) answer(a answer) {
	s := x.server
	closing := a.reason == fencepost.ReasonDraining || s.conns.crowded()
	switch {
	case x.read:
	case x.poll:
		closing = x.unread() || closing
	case !s.discard(x.w, x.r):
		closing = true
	}
	x.answered = true
	a.job = x.job
	s.fixed.write(x.w, a, closing)
	x.report(a)
}

// report tells observer and log.
func (x *exchange) report(a answer) {
	took := x.server.now().Sub(x.started)
	x.server.observer.Answered(Answered{
		Route: x.route, Poll: x.poll, Status: a.status, Outcome: a.outcome, Reason: a.reason,
		Anchor: x.anchor, Body: x.body, Took: took,
	})
	x.server.log.answered(x.r.Context(), x.what(), x.route, a, took)
}

// what is the kind of the request, for the log.
func (x *exchange) what() string {
	switch {
	case x.poll:
		return "poll"
	case x.job:
		return "job"
	}
	return "webhook"
}

// recover answers for code that panicked.
func (x *exchange) recover() {
	what := recover()
	switch {
	case what == nil:
		return
	case what == http.ErrAbortHandler, x.answered:
		panic(http.ErrAbortHandler)
	}
	// The panic's value may hold something of the request, so it is not
	// logged; where it came from is.
	x.server.log.panicked(x.r.Context(), x.route)
	x.answer(refusedService(fencepost.ReasonUnavailable))
}

// ambiguous reports whether one of the named headers stands more than once.
func ambiguous(h fencepost.Headers, names []string) bool {
	for _, name := range names {
		if _, ok := h.Only(name); !ok && len(h.Values(name)) > 1 {
			return true
		}
	}
	return false
}
