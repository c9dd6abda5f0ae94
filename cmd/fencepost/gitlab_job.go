package main

import (
	"context"
	"crypto/x509"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/jobclient"
)

const (
	// tokenVariable is where a job has its token unless told otherwise.
	tokenVariable = "FENCEPOST_ID_TOKEN"
	// requestVariable is GitLab's own for the number of the merge request.
	requestVariable = "CI_MERGE_REQUEST_IID"
	// maxAuthorities bounds a file of certificates, in bytes.
	maxAuthorities = 1 << 20
)

// A jobRun is the command line of `gitlab-job`.
type jobRun struct {
	controller, route, tokenEnv, mergeRequest, authorities string
	timeout                                                time.Duration
	allowHTTP, asJSON                                      bool
}

func (m Main) gitlabJobCommand() *cobra.Command {
	var j jobRun
	cmd := &cobra.Command{
		Use:   "gitlab-job --controller URL/jobs/NAME",
		Short: "In a GitLab policy job: ask the controller, wait, and pass only if the gate does",
		Long: `In the job of a pipeline execution policy: send the job's ID token to the
controller, wait for the result of its gate, and print the report. The exit code
is the gate: 0 for a pass of exactly this job's delivery, 1 for everything else:
a block, a train that moved on, a refusal, a timeout, any doubt.

The gate is the one that the controller's URL names, or --route; never one that
the environment names, since who sets a project's variables would choose it.

The token is read from an environment variable and is never printed. Certificates
are those of the system and of --ca; SSL_CERT_FILE and SSL_CERT_DIR are not
heeded, since who sets a project's variables would choose them.`,
		Example: "  fencepost gitlab-job --controller https://fencepost.example.org/jobs/docs",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return m.gitlabJob(cmd.Context(), j) },
	}
	fl := cmd.Flags()
	fl.StringVar(&j.controller, "controller", "", "the controller's public URL, followed by /jobs/ and the gate's name")
	fl.StringVar(&j.route, "route", "", "the gate's name in the controller's configuration, where the URL does not have it")
	fl.StringVar(&j.tokenEnv, "token-env", tokenVariable, "the environment variable that has the job's ID token")
	fl.StringVar(&j.mergeRequest, "merge-request", "", "the merge request's number; $"+requestVariable+" unless given")
	fl.DurationVar(&j.timeout, "timeout", 30*time.Minute, "how long to wait for the result at most")
	fl.StringVar(&j.authorities, "ca", "", "a PEM file of further authorities that may vouch for the controller")
	fl.BoolVar(&j.allowHTTP, "allow-http", false, "take a URL of plain http to this machine itself, for tests")
	jsonFlag(cmd, &j.asJSON)
	return cmd
}

func (m Main) gitlabJob(ctx context.Context, j jobRun) error {
	config, err := m.jobConfig(j)
	if err != nil {
		return err
	}
	report, err := jobclient.Run(ctx, config)
	switch {
	case jobclient.IsConfig(err):
		return usage(err)
	case err != nil:
		return err
	}
	if err := m.printJob(j, report); err != nil {
		return err
	}
	if report.Passed() {
		return nil
	}
	if j.asJSON {
		return errSilent
	}
	return fmt.Errorf("%s: %s", report.Delivery, failing(report))
}

// failing says why a report is no pass, and the mend.
func failing(r jobclient.Report) string {
	switch {
	case r.Outcome == "result":
		return "the gate blocks; see the report above"
	case r.Reason == fencepost.ReasonSuperseded, r.Reason == fencepost.ReasonClosed:
		return fmt.Sprintf("it ended without a result (%s): the merge train moved on; GitLab starts a new pipeline for what is still in it", r.Reason)
	case r.Reason == fencepost.ReasonNone:
		return "it ended without a result that is kept; retry the job"
	}
	return fmt.Sprintf("it ended without a result (%s); docs/reasons.md has the mend", r.Reason)
}

func (m Main) jobConfig(j jobRun) (jobclient.Config, error) {
	var none jobclient.Config
	if j.controller == "" {
		return none, usagef("gitlab-job needs --controller: https://HOST/jobs/NAME, where NAME is the gate's in the controller's configuration")
	}
	token, ok := m.LookupEnv(j.tokenEnv)
	if !ok || token == "" {
		return none, usagef("$%s is not set; give the job id_tokens: {%s: {aud: …}}, or name the variable with --token-env", j.tokenEnv, j.tokenEnv)
	}
	text := j.mergeRequest
	if text == "" {
		text, _ = m.LookupEnv(requestVariable)
	}
	number, err := strconv.ParseInt(text, 10, 64)
	if err != nil || number < 1 {
		return none, usagef("the merge request's number is missing: run the job in pipelines of merge requests, where GitLab sets $%s, or give --merge-request", requestVariable)
	}
	config := jobclient.Config{
		Controller: j.controller, Route: fencepost.RouteName(j.route), Token: fencepost.NewSecret([]byte(token)),
		MergeRequest: number, Timeout: j.timeout, AllowHTTP: j.allowHTTP, Now: m.Now,
		Say: func(line string) { fmt.Fprintf(m.Err, "fencepost: %s\n", line) },
	}
	config.Roots, err = authorities(j.authorities)
	return config, err
}

// authorities are those of a file and of the system; nil, where no file is
// named, are those of the system alone. What the environment names is left out:
// a project's variables are set by people whom the gate is to hold.
func authorities(file string) (*x509.CertPool, error) {
	for _, name := range [...]string{"SSL_CERT_FILE", "SSL_CERT_DIR"} {
		if err := os.Unsetenv(name); err != nil {
			return nil, fmt.Errorf("leave $%s out: %w", name, err)
		}
	}
	if file == "" {
		return nil, nil
	}
	roots, err := x509.SystemCertPool()
	if err != nil {
		roots = x509.NewCertPool() // an image may have none
	}
	f, err := os.Open(file)
	if err != nil {
		return nil, usage(fmt.Errorf("--ca: %w", err))
	}
	defer f.Close()
	pem, err := readAtMost(f, maxAuthorities, file)
	if err != nil {
		return nil, usage(fmt.Errorf("--ca: %w", err))
	}
	if !roots.AppendCertsFromPEM(pem) {
		return nil, usagef("--ca: %s holds no certificate in PEM", file)
	}
	return roots, nil
}

func (m Main) printJob(j jobRun, r jobclient.Report) error {
	if j.asJSON {
		return printJSON(m.Out, r)
	}
	if r.Outcome != "result" {
		return nil
	}
	verdict := "block"
	if r.Passed() {
		verdict = "pass"
	}
	_, err := fmt.Fprintf(m.Out, "%s: %s\n", verdict, r.Title)
	if summary := strings.TrimSpace(r.Summary); err == nil && summary != "" {
		_, err = fmt.Fprintf(m.Out, "\n%s\n", summary)
	}
	if err != nil {
		return fmt.Errorf("print: %w", err)
	}
	return nil
}
