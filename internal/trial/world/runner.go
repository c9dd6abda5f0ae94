package world

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os/exec"
	"slices"
	"sync"
	"time"

	"github.com/fencepost/fencepost/internal/forgesim/gitlab"
	"github.com/fencepost/fencepost/internal/jobclient"
)

// lingers is how long a job's process goes on after the job was cancelled: a
// runner hears of that late.
const lingers = 20 * time.Second

// maxJobBody bounds an answer to a job.
const maxJobBody = 1 << 20

// A JobRun is one run of the real `fencepost gitlab-job`.
type JobRun struct {
	// Job is GitLab's side.
	Job *gitlab.Job
	// Token is the job's.
	Token string
	// Ended says whether the process has; what follows is set by then.
	Ended bool
	// Exit is its exit status; Report what it printed, zero where it printed
	// none; Said its other output.
	Exit   int
	Report jobclient.Report
	Said   string
}

// A Runner starts the policy's job as GitLab's runner does: as a process with
// the job's variables. Requests of its jobs pass through an address of its own,
// where answers can be lost, and requests sent to one controller or another.
type Runner struct {
	binary, url string
	to          *url.URL // the controller
	server      *http.Server
	served      chan error

	mu sync.Mutex
	// Guarded by mu:
	runs  []*JobRun
	spoil func(*http.Request, []byte) bool
	route func(*http.Request) string
}

// newRunner starts what stands between the jobs and a controller.
func newRunner(ctx context.Context, binary, controller string) (*Runner, error) {
	to, err := url.Parse(controller)
	if err != nil {
		return nil, err
	}
	var listening net.ListenConfig
	listener, err := listening.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	r := &Runner{binary: binary, url: "http://" + listener.Addr().String(), to: to, served: make(chan error, 1)}
	transport := &http.Transport{DisableKeepAlives: true}
	proxy := &httputil.ReverseProxy{
		Rewrite:        func(p *httputil.ProxyRequest) { p.SetURL(r.target(p.In)) },
		Transport:      transport,
		ModifyResponse: r.pass,
		// Nobody there is answered by nothing, as it would be without a proxy.
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
	}
	r.server = &http.Server{Handler: proxy, ReadHeaderTimeout: 10 * time.Second, ErrorLog: quiet}
	go func() { r.served <- r.server.Serve(listener) }()
	return r, nil
}

// target is the controller that a request goes to.
func (r *Runner) target(req *http.Request) *url.URL {
	r.mu.Lock()
	route := r.route
	r.mu.Unlock()
	if route == nil {
		return r.to
	}
	// What is no URL is answered by nobody, as a request without a host is.
	to, err := url.Parse(route(req))
	if err != nil {
		return &url.URL{}
	}
	return to
}

// Route has each request of a job go to the controller whose [Controller.URL]
// is returned for it, as a load balancer does.
func (r *Runner) Route(route func(*http.Request) string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.route = route
}

// pass passes an answer on, unless it is to be lost.
func (r *Runner) pass(resp *http.Response) error {
	var whole bytes.Buffer
	_, err := whole.ReadFrom(io.LimitReader(resp.Body, maxJobBody))
	if err := errors.Join(err, resp.Body.Close()); err != nil {
		return err
	}
	body := whole.Bytes()
	resp.Body = io.NopCloser(bytes.NewReader(body))
	r.mu.Lock()
	spoil := r.spoil
	r.mu.Unlock()
	if spoil != nil && spoil(resp.Request, body) {
		return errLost
	}
	return nil
}

var errLost = errors.New("lost on the way")

// Lose has each answer to a job judged before it is passed on: the ones that it
// says true of are lost. Nil ends it.
func (r *Runner) Lose(spoil func(*http.Request, []byte) bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.spoil = spoil
}

// Runs returns the runs that there were, oldest first.
func (r *Runner) Runs() []JobRun {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := make([]JobRun, 0, len(r.runs))
	for _, run := range r.runs {
		out = append(out, *run)
	}
	return out
}

// Run returns the nth run of a merge request's job, from 0 for the first that
// was started.
func (r *Runner) Run(request int64, n int) (JobRun, bool) {
	all := slices.DeleteFunc(r.Runs(), func(run JobRun) bool { return run.Job.Request().IID() != request })
	if n >= len(all) {
		return JobRun{}, false
	}
	return all[n], true
}

// run runs a job to its end.
func (r *Runner) run(ctx context.Context, j *gitlab.Job) error {
	environment, err := j.Environment()
	if err != nil {
		return err
	}
	run := &JobRun{Job: j, Token: Token(environment)}
	r.mu.Lock()
	r.runs = append(r.runs, run)
	r.mu.Unlock()
	cmd := exec.CommandContext(ctx, r.binary, "gitlab-job", "--controller", r.url+"/jobs/"+Gate, "--allow-http", "--json", "--timeout", "2m")
	cmd.Env = environment
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	// It is told nothing: what it says of a train that moved is its own.
	cmd.Cancel, cmd.WaitDelay = func() error { return nil }, lingers
	err = cmd.Run()
	r.mu.Lock()
	defer r.mu.Unlock()
	run.Ended, run.Exit, run.Said = true, -1, said.String()
	if cmd.ProcessState != nil {
		run.Exit = cmd.ProcessState.ExitCode()
	}
	// A job that was refused reports nothing.
	if line := bytes.TrimSpace(out.Bytes()); len(line) > 0 {
		if broken := json.Unmarshal(line, &run.Report); broken != nil {
			return fmt.Errorf("what the job printed: %w", broken)
		}
	}
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && exit.Exited() {
		return fmt.Errorf("exit status %d", exit.ExitCode())
	}
	return err
}

// close ends what stands between; the jobs have ended before.
func (r *Runner) close() error {
	err := r.server.Close()
	if served := <-r.served; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	return err
}

// quiet has nobody to tell of connections that were cut on purpose.
var quiet = log.New(io.Discard, "", 0)
