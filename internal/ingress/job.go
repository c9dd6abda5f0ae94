package ingress

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"strings"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/webhook"
)

const (
	// maxHint is the largest body of a job, in bytes: what proves it is in a
	// header.
	maxHint = 4 << 10
	// pollKeyBytes is the size of a key of poll secrets.
	pollKeyBytes = 32
	// authorization is the header of a poll secret; bearer is before it.
	authorization = "authorization"
	bearer        = "Bearer "
)

// A Job is what a route has for jobs that wait for their results: accepted and
// replayed ones are given a poll secret, with which GET /jobs/ with the names of
// route and delivery tells them what became of it (DESIGN §4).
type Job struct {
	// Key is what poll secrets are made from: a repeat of a delivery, after a
	// restart or at another process, is given the same secret as long as the
	// key is the same.
	Key fencepost.Secret
	// Results tells what became of a delivery.
	Results Results
}

// Results tells what became of the deliveries of a route.
type Results interface {
	// Result returns what is told of a delivery: the zero Result as long as
	// nothing is. Its error is answered unavailable. It returns soon after ctx
	// ends, and is safe for concurrent use.
	Result(ctx context.Context, d fencepost.DeliveryID) (Result, error)
}

// A Result is what a job is told of its delivery. The zero Result is none yet.
type Result struct {
	// Conclusion is "success" or "failure"; empty where there is no result.
	Conclusion string
	// Title and Summary are its report. They are told as they are: whoever
	// shows them cleans them.
	Title, Summary string
	// Ended is set for a delivery that ended without a result, for Reason.
	Ended  bool
	Reason fencepost.Reason
}

// append appends the members of a result to an answer; nil has none.
func (r *Result) append(b []byte) []byte {
	if r == nil {
		return b
	}
	for _, m := range [...]struct{ name, value string }{
		{"conclusion", r.Conclusion}, {"title", r.Title}, {"summary", r.Summary},
	} {
		text, err := json.Marshal(m.value)
		if err != nil {
			text = []byte(`""`) // a string always has a form
		}
		b = append(b, `,"`...)
		b = append(b, m.name...)
		b = append(b, `":`...)
		b = append(b, text...)
	}
	return b
}

// secret is the poll secret of a delivery: the HMAC-SHA256, by the key, of the
// digest of domain "fencepost.poll/v1", route and delivery, in base64url
// without padding.
func (j *Job) secret(route, delivery string) string {
	named := fencepost.NewEncoder("fencepost.poll/v1").Text(route).Text(delivery).Sum()
	mac := hmac.New(sha256.New, j.Key.Reveal())
	mac.Write(named[:])
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

// nobodysJob is the job of no route: its key is known to nobody.
func nobodysJob() *Job {
	key := make([]byte, pollKeyBytes)
	_, _ = rand.Read(key) // never fails
	defer clear(key)
	return &Job{Key: fencepost.NewSecret(key)}
}

// ask answers a poll: nothing of a body is read, and nothing is looked up for
// a request that has not the delivery's own secret.
func (x *exchange) ask(side *side, below string) answer {
	s, r := x.server, x.r
	name, delivery, _ := strings.Cut(below, "/")
	route := side.named(name)
	x.named(side, route)
	x.headers = webhook.RequestHeaders(r)
	switch {
	case x.headers.Len() > s.cfg.MaxHeaders, x.headers.Size() > s.cfg.MaxHeaderBytes, len(r.Trailer) > 0:
		return refusedHeaders()
	case r.ContentLength != 0:
		return refusedSize()
	case !s.flight.enter():
		return refusedService(fencepost.ReasonDraining)
	}
	defer s.flight.leave()
	if !x.mayAsk(route.Job, name, delivery) {
		return refusedAuthentication()
	}
	ctx, cancel := context.WithTimeout(r.Context(), s.cfg.RecordTimeout)
	defer cancel()
	result, err := route.Job.Results.Result(ctx, fencepost.DeliveryID(delivery))
	if err != nil {
		return refusedService(fencepost.ReasonUnavailable)
	}
	a := answer{status: http.StatusOK, outcome: OutcomeWaiting, delivery: fencepost.DeliveryID(delivery), result: &result}
	switch {
	case result.Ended:
		a.outcome, a.reason = OutcomeEnded, result.Reason
	case result.Conclusion != "":
		a.outcome = OutcomeResult
	}
	return a
}

// mayAsk reports whether the request has the secret of the delivery. It does
// the same work for a wrong secret, for a route or a delivery that is none, and
// for no secret at all.
func (x *exchange) mayAsk(job *Job, route, delivery string) bool {
	_, err := fencepost.ParseDeliveryID(delivery)
	if err != nil {
		delivery = string(fencepost.DeliveryKey{}.ID())
	}
	want := bearer + job.secret(route, delivery)
	got, _ := x.headers.Only(authorization)
	same := subtle.ConstantTimeCompare([]byte(got), []byte(want)) == 1
	return same && err == nil
}

// unread makes sure that nothing is read of what a poll has for a body, and
// reports whether it has one.
func (x *exchange) unread() bool {
	if x.r.ContentLength == 0 {
		return false
	}
	// A writer without connection, as in tests, has no deadline to move.
	_ = http.NewResponseController(x.w).SetReadDeadline(longAgo)
	return true
}
