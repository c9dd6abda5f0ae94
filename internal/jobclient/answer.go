package jobclient

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/strictjson"
)

// An answer is a status and what the controller says with it.
type answer struct {
	status int
	message
}

// A message is outcome, reason and delivery, for every request; with a poll
// secret to a job that was taken, and with a result to one that polls.
type message struct {
	Outcome    string `json:"outcome"`
	Reason     string `json:"reason"`
	Delivery   string `json:"delivery"`
	Poll       string `json:"poll" strict:"optional"`
	Conclusion string `json:"conclusion" strict:"optional"`
	Title      string `json:"title" strict:"optional"`
	Summary    string `json:"summary" strict:"optional"`
}

var answerDecoder = strictjson.NewClosedDecoder[message](strictjson.Limits{Depth: 4, Values: 32, StringBytes: maxAnswer})

// A passing is trouble that may pass by itself: after is how long the controller
// asked to wait, 0 where it did not.
type passing struct {
	text  string
	after time.Duration
}

func (p *passing) Error() string { return p.text }

// pollSecretLength is that of 32 bytes in base64url.
const pollSecretLength = 43

// took reports whether the controller took the job on.
func (a answer) took() bool {
	if (a.Outcome != "accepted" && a.Outcome != "replayed") || len(a.Poll) != pollSecretLength {
		return false
	}
	for _, r := range a.Poll {
		if !isBase64URL(r) {
			return false
		}
	}
	_, err := fencepost.ParseDeliveryID(a.Delivery)
	return err == nil
}

// do sends a request and reads its answer. Its error is a [*passing] where it
// makes sense to ask again, else a [*Error].
func (r *run) do(req *http.Request) (answer, error) {
	resp, err := r.client.Do(req)
	if err != nil {
		return answer{}, r.unsent(err)
	}
	defer resp.Body.Close()
	switch s := resp.StatusCode; {
	case s >= 300 && s < 400:
		return answer{}, r.fault("it answers with a redirect, which is never followed", "give the URL at which the controller itself answers")
	case s == http.StatusRequestTimeout, s == http.StatusTooManyRequests, s >= 500:
		return answer{}, &passing{"status " + strconv.Itoa(s), r.retryAfter(resp.Header)}
	}
	var body bytes.Buffer
	n, err := body.ReadFrom(io.LimitReader(resp.Body, maxAnswer+1))
	switch {
	case err != nil:
		return answer{}, &passing{text: "its answer broke off"}
	case n > maxAnswer:
		return answer{}, r.foreign()
	}
	m, err := answerDecoder.Decode(body.Bytes())
	if err != nil {
		return answer{}, r.foreign()
	}
	return answer{resp.StatusCode, m}, nil
}

// foreign is the error of an answer that is none of the controller's.
func (r *run) foreign() error {
	return r.fault("what answers there is no controller", "see that the URL is the controller's public one, and that no proxy answers in its place")
}

// unsent tells trouble of the network, which may pass, from a certificate that
// is not believed, which does not.
func (r *run) unsent(err error) error {
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return r.fault("its certificate is not one that this machine trusts", "give the file of its authority with --ca")
	}
	if e, ok := errors.AsType[*url.Error](err); ok && e.Timeout() {
		return &passing{text: "no answer in time"}
	}
	return &passing{text: "no connection"}
}

// retryAfter is how long the controller asks to wait.
//
// RFC 9110 §10.2.3
func (r *run) retryAfter(h http.Header) time.Duration {
	value := h.Get("Retry-After")
	if seconds, err := strconv.ParseUint(value, 10, 31); err == nil {
		return time.Duration(seconds) * time.Second
	}
	if at, err := http.ParseTime(value); err == nil {
		return max(0, at.Sub(r.config.Now()))
	}
	return 0
}
