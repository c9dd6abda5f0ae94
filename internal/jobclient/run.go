package jobclient

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/fencepost/fencepost"
)

// A Report is what became of the job's delivery.
type Report struct {
	// Delivery is its name; empty where the controller took none.
	Delivery fencepost.DeliveryID `json:"delivery"`
	// Outcome is "result", or "ended" for a delivery that ended without one.
	Outcome string `json:"outcome"`
	// Conclusion is "success" or "failure"; empty without a result.
	Conclusion string `json:"conclusion"`
	// Reason is why there is no result.
	Reason fencepost.Reason `json:"reason"`
	// Title and Summary are the result's report, without control characters.
	Title   string `json:"title"`
	Summary string `json:"summary"`
}

// Passed reports whether the gate is open. Nothing else opens it.
func (r Report) Passed() bool {
	return r.Outcome == "result" && r.Conclusion == "success" && r.Delivery != "" && r.Reason == ""
}

// An Error is why there is no report: what is the matter, where, and the mend.
type Error struct{ What, Where, Mend string }

// Error says it in one line.
func (e *Error) Error() string { return e.Where + ": " + e.What + "; " + e.Mend }

// errTimeout is the cause of the end of a run that took longer than it may.
var errTimeout = errors.New("timeout")

// Run sends the job's token and returns what became of it. Where it returns an
// error, the gate is closed: [IsConfig] tells those of c, an [*Error] says what
// else there is, and the end of ctx is its cause.
func Run(ctx context.Context, c Config) (Report, error) {
	endpoint, err := c.endpoint()
	if err != nil {
		return Report{}, err
	}
	if c.Say == nil {
		c.Say = func(string) {}
	}
	transport := c.Transport
	if transport == nil {
		own := newTransport(c.Roots)
		defer own.CloseIdleConnections()
		transport = own
	}
	ctx, cancel := context.WithTimeoutCause(ctx, c.Timeout, errTimeout)
	defer cancel()
	token := string(c.Token.Reveal())
	r := &run{config: c, endpoint: endpoint, client: &http.Client{
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
	// Without its signature a token proves nothing.
	r.hide(token, token[strings.LastIndexByte(token, '.')+1:])
	report, err := r.run(ctx)
	if cause := context.Cause(ctx); err != nil && err == cause {
		err = r.over(cause)
	}
	return report, err
}

// A run is one job's wait.
type run struct {
	config   Config
	endpoint *url.URL
	client   *http.Client
	// secrets are kept out of every text.
	secrets []string
	// last is the trouble that the run is in, if it is.
	last string
}

func (r *run) run(ctx context.Context) (Report, error) {
	taken, err := r.send(ctx)
	if err != nil {
		return Report{}, err
	}
	r.hide(taken.Poll)
	r.say("accepted as " + taken.Delivery + "; waiting for the result")
	return r.wait(ctx, taken)
}

// send brings the token to the controller until that has it.
func (r *run) send(ctx context.Context) (answer, error) {
	hint := fmt.Sprintf(`{"merge_request":%d}`, r.config.MergeRequest)
	r.say(fmt.Sprintf("sending the job's token to %s for merge request !%d", r.endpoint, r.config.MergeRequest))
	a, err := r.persist(ctx, func(ctx context.Context) (answer, error) {
		return r.request(ctx, http.MethodPost, r.endpoint, r.config.Token.Reveal(), strings.NewReader(hint))
	})
	switch {
	case err != nil:
		return answer{}, err
	case (a.status == http.StatusOK || a.status == http.StatusAccepted) && a.took():
		return a, nil
	}
	return answer{}, r.refused(a)
}

// wait asks for the result until there is one.
func (r *run) wait(ctx context.Context, taken answer) (Report, error) {
	at := r.endpoint.JoinPath(taken.Delivery)
	pause := firstPause
	var waited, said time.Duration
	for {
		a, err := r.persist(ctx, func(ctx context.Context) (answer, error) {
			return r.request(ctx, http.MethodGet, at, []byte(taken.Poll), nil)
		})
		switch {
		case err != nil:
			return Report{}, err
		case a.status == http.StatusUnauthorized:
			return Report{}, r.fault("the controller does not know its own delivery any more (401)", "see that its data directory or database is the one that took the job; then retry the job")
		case a.status != http.StatusOK, a.Delivery != taken.Delivery:
			return Report{}, r.foreign()
		case a.Outcome == "result" && (a.Conclusion == "success" || a.Conclusion == "failure") && a.Reason == "",
			a.Outcome == "ended" && a.Conclusion == "":
			return r.report(a), nil
		case a.Outcome != "waiting":
			return Report{}, r.foreign()
		}
		slept, err := sleep(ctx, pause)
		if err != nil {
			return Report{}, err
		}
		if waited += slept; waited-said >= sayEvery {
			said = waited
			r.say("still waiting for " + taken.Delivery)
		}
		pause = longer(pause)
	}
}

// persist does a request until it is answered, with growing pauses.
func (r *run) persist(ctx context.Context, do func(context.Context) (answer, error)) (answer, error) {
	for pause := firstPause; ; pause = longer(pause) {
		limited, cancel := context.WithTimeout(ctx, requestTimeout)
		a, err := do(limited)
		cancel()
		trouble, may := errors.AsType[*passing](err)
		if !may {
			if err == nil {
				r.last = ""
			}
			return a, err
		}
		if ctx.Err() != nil {
			return answer{}, context.Cause(ctx)
		}
		wait := max(pause, trouble.after)
		if trouble.text != r.last {
			r.say(fmt.Sprintf("%s: %s; trying again", r.endpoint, trouble.text))
		}
		r.last = trouble.text
		if _, err := sleep(ctx, wait); err != nil {
			return answer{}, err
		}
	}
}

// longer is the pause after a pause.
func longer(d time.Duration) time.Duration { return min(d+d/2, lastPause) }

// sleep waits for d and up to a fifth more, by chance, so that jobs that began
// together do not ask together. It returns how long it was, or the cause of the
// end of ctx.
func sleep(ctx context.Context, d time.Duration) (time.Duration, error) {
	d += rand.N(d/5 + 1)
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return d, nil
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
}

// request sends one request with a secret.
func (r *run) request(ctx context.Context, method string, at *url.URL, secret []byte, body io.Reader) (answer, error) {
	req, err := http.NewRequestWithContext(ctx, method, at.String(), body)
	if err != nil {
		return answer{}, r.fault("it can't be asked", "see that the URL is the controller's public one")
	}
	req.Header.Set("Authorization", "Bearer "+string(secret))
	req.Header.Set("User-Agent", "fencepost-gitlab-job")
	req.Header.Set("Accept", "application/json")
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	return r.do(req)
}

// report is what is told of a result or an end.
func (r *run) report(a answer) Report {
	return Report{
		Delivery: fencepost.DeliveryID(a.Delivery), Outcome: a.Outcome, Conclusion: a.Conclusion,
		Reason: fencepost.Reason(r.line(a.Reason)), Title: r.line(a.Title), Summary: r.clean(a.Summary),
	}
}

// refused says why the controller did not take the job, as far as its answer
// tells.
func (r *run) refused(a answer) error {
	switch {
	case a.status == http.StatusUnauthorized:
		return r.fault("the job's token is not accepted (401)",
			"compare the gate's name, the token's aud and the GitLab instance with the gate's issuer, audience and trust set, and send the token soon after the job began")
	case a.status == http.StatusForbidden:
		return r.fault("the job is not of the project that the gate names (403)",
			"see that the gate's repository id is the project in which the pipeline runs, which for a fork's request may be the fork, and that GitLab is 18.3 or newer, whose tokens say it")
	case a.status == http.StatusConflict:
		return r.fault("this token was sent with another merge request before (409)", "send each token once; a retried job has a new one")
	case a.status == http.StatusBadRequest:
		return r.fault("the token has a claim that the gate can't use, or the hint is malformed (400)",
			"see that the project's commits are SHA-1, and that this program and the controller are of the same version")
	case a.status == http.StatusOK && a.Outcome == "ignored":
		return r.fault("the gate does not handle this job's pipeline", "run the job in pipelines of merge requests alone")
	case a.Outcome == "rejected":
		return r.fault(fmt.Sprintf("the request is refused (%d %s)", a.status, r.line(a.Reason)), "see that no proxy changes requests on their way to the controller")
	}
	return r.foreign()
}

// over is the error of a run that was ended: by its timeout, or from outside.
func (r *run) over(cause error) error {
	if cause != errTimeout {
		return fmt.Errorf("%s: stopped before there was a result: %w", r.endpoint, cause)
	}
	what := fmt.Sprintf("no result within %s", r.config.Timeout)
	if r.last != "" {
		what += " (at the end: " + r.last + ")"
	}
	return r.fault(what, "look at the delivery with `fencepost deliveries show` at the controller, give a longer --timeout and the job one that is longer still")
}

func (r *run) fault(what, mend string) error {
	return &Error{What: what, Where: r.endpoint.String(), Mend: mend}
}

func (r *run) say(line string) { r.config.Say(r.line(line)) }
