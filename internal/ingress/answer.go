package ingress

import (
	"net/http"
	"strconv"

	"github.com/fencepost/fencepost"
)

// An answer is what a request is told.
type answer struct {
	status   int
	outcome  Outcome
	reason   fencepost.Reason
	delivery fencepost.DeliveryID
	// job says that the path was a job's.
	job bool
	// secret is the poll secret that a job is given. It goes nowhere but into
	// the answer.
	secret string
	// result is what a job is told with OutcomeResult.
	result *Result
}

func refusal(status int, reason fencepost.Reason) answer {
	return answer{status: status, outcome: OutcomeRejected, reason: reason}
}

// The answers that say nothing of a delivery (DESIGN §4).
func refusedMethod() answer {
	return refusal(http.StatusMethodNotAllowed, fencepost.ReasonMethod)
}
func refusedHeaders() answer {
	return refusal(http.StatusRequestHeaderFieldsTooLarge, fencepost.ReasonHeaders)
}
func refusedMediaType() answer {
	return refusal(http.StatusUnsupportedMediaType, fencepost.ReasonMediaType)
}
func refusedSize() answer {
	return refusal(http.StatusRequestEntityTooLarge, fencepost.ReasonTooLarge)
}
func refusedAuthentication() answer {
	return refusal(http.StatusUnauthorized, fencepost.ReasonUnauthenticated)
}
func refusedService(why fencepost.Reason) answer {
	return refusal(http.StatusServiceUnavailable, why)
}

// recordedAnswer is the answer to a recording, or unavailable for a value
// that is none.
func recordedAnswer(r Recording, d fencepost.AcceptedDelivery, plainOK bool) answer {
	a := answer{status: http.StatusOK, delivery: d.ID()}
	switch r {
	case Accepted:
		a.outcome = OutcomeAccepted
		if !plainOK {
			a.status = http.StatusAccepted
		}
	case Replayed:
		a.outcome = OutcomeReplayed
	case Coalesced:
		a.outcome = OutcomeCoalesced
	case Conflict:
		a.status, a.outcome, a.reason = http.StatusConflict, OutcomeRejected, fencepost.ReasonDeliveryConflict
	default:
		return refusedService(fencepost.ReasonUnavailable)
	}
	return a
}

// Header values are shared by all answers: net/http only reads them.
type fixedHeaders struct {
	contentType, cacheControl, robots, sniff, allow, allowJobs, retryAfter, closing []string
}

func newFixedHeaders(cfg Config) *fixedHeaders {
	seconds := int((cfg.RetryAfter + 999_999_999) / 1_000_000_000)
	return &fixedHeaders{
		contentType:  []string{"application/json"},
		cacheControl: []string{"private, no-store"},
		robots:       []string{"noindex"},
		sniff:        []string{"nosniff"},
		allow:        []string{http.MethodPost},
		allowJobs:    []string{http.MethodGet + ", " + http.MethodPost},
		retryAfter:   []string{strconv.Itoa(seconds)},
		closing:      []string{"close"},
	}
}

// write sends a. All of its values but those of a result are words of our own,
// which need no escaping.
func (f *fixedHeaders) write(w http.ResponseWriter, a answer, closing bool) {
	h := w.Header()
	h["Content-Type"] = f.contentType
	h["Cache-Control"] = f.cacheControl
	h["X-Robots-Tag"] = f.robots
	h["X-Content-Type-Options"] = f.sniff
	switch a.status {
	case http.StatusMethodNotAllowed:
		h["Allow"] = f.allow
		if a.job {
			h["Allow"] = f.allowJobs
		}
	case http.StatusServiceUnavailable:
		h["Retry-After"] = f.retryAfter
	}
	if closing {
		h["Connection"] = f.closing
	}
	var room [256]byte
	b := append(room[:0], `{"outcome":"`...)
	b = append(b, a.outcome...)
	b = append(b, `","reason":"`...)
	b = append(b, a.reason...)
	b = append(b, `","delivery":"`...)
	b = append(b, a.delivery...)
	b = append(b, '"')
	if a.secret != "" {
		b = append(b, `,"poll":"`...)
		b = append(b, a.secret...)
		b = append(b, '"')
	}
	b = append(a.result.append(b), "}\n"...)
	w.WriteHeader(a.status)
	// A client that is gone misses its answer; there is nobody to tell.
	_, _ = w.Write(b)
}
