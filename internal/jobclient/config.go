package jobclient

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"path"
	"strings"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/webhook"
)

// Bounds of a run.
const (
	// MaxTimeout is the longest that a run may wait.
	MaxTimeout = 24 * time.Hour
	// maxToken is the longest token that the controller takes, in bytes.
	maxToken = webhook.MaxTokenBytes
	// maxAnswer is the largest answer: a title of 120 characters and a summary
	// of 8 KiB, with every byte escaped, and room to spare.
	maxAnswer = 128 << 10
	// maxHeaders bounds the headers of an answer, in bytes.
	maxHeaders = 64 << 10
	// requestTimeout is how long one request may take, its answer included.
	requestTimeout = 30 * time.Second
	// firstPause is the pause before the second try or the second look; each
	// later one is half as long again, up to lastPause.
	firstPause = time.Second
	lastPause  = 10 * time.Second
	// sayEvery is how often it is said that the result is waited for.
	sayEvery = time.Minute
)

// A Config is what a run is given. All but Route, Roots, Say and Transport is
// required.
type Config struct {
	// Controller is the controller's public URL: https, without user, query or
	// fragment. It may be that of the gate's jobs, …/jobs/ROUTE.
	Controller string
	// Route is the gate's; empty where Controller has it.
	Route fencepost.RouteName
	// Token is the job's ID token.
	Token fencepost.Secret
	// MergeRequest is the number of the merge request in its project.
	MergeRequest int64
	// Timeout is how long to wait for a result at most, up to [MaxTimeout].
	Timeout time.Duration
	// AllowHTTP permits plain HTTP to this machine itself.
	AllowHTTP bool
	// Roots are the authorities that may vouch for the controller; nil takes
	// those of the system.
	Roots *x509.CertPool
	// Now is the wall clock, for a Retry-After that is a date.
	Now func() time.Time
	// Say is told how it goes, in one line each, for people; nil is nobody.
	Say func(line string)
	// Transport carries the requests; nil is one of the package's own.
	Transport http.RoundTripper
}

// errConfig is matched by every error of a [Config].
var errConfig = errors.New("configuration")

// IsConfig reports whether err is about what [Run] was given.
func IsConfig(err error) bool { return errors.Is(err, errConfig) }

type configError struct{ text string }

func (e *configError) Error() string        { return e.text }
func (e *configError) Is(target error) bool { return target == errConfig }

func configf(format string, args ...any) error { return &configError{fmt.Sprintf(format, args...)} }

// endpoint checks all of the configuration, and returns where jobs go.
func (c Config) endpoint() (*url.URL, error) {
	u, err := url.Parse(c.Controller)
	switch {
	// What could not be parsed is not told: a token may stand in the wrong place.
	case err != nil || u.Host == "" || u.Opaque != "" || u.User != nil || u.RawQuery != "" || u.ForceQuery || u.Fragment != "" || u.RawPath != "" || u.Scheme != "https" && u.Scheme != "http":
		return nil, configf("the controller's URL must be https://HOST without user, query or fragment")
	case u.Scheme == "http" && !c.AllowHTTP:
		return nil, configf("the controller's URL is plain http, which would give the token away; use https")
	case u.Scheme == "http" && !isLoopback(u.Hostname()):
		return nil, configf("plain http is for this machine itself alone: the controller's host must be localhost or a loopback address")
	}
	at, err := c.jobs(u)
	switch {
	case err != nil:
		return nil, err
	case !isToken(c.Token):
		return nil, configf("the token must be an ID token of the job: three parts of base64url with dots between, %d bytes at most", maxToken)
	case c.MergeRequest < 1:
		return nil, configf("the merge request must be its number in the project, 1 or more")
	case c.Timeout <= 0 || c.Timeout > MaxTimeout:
		return nil, configf("the timeout must be more than 0 and at most %s", MaxTimeout)
	case c.Now == nil:
		return nil, configf("the clock is missing")
	}
	return at, nil
}

// jobs is where the jobs of the gate go, whose name stands in the controller's
// URL or beside it.
func (c Config) jobs(u *url.URL) (*url.URL, error) {
	route, named, at := string(c.Route), "", *u
	at.Path = strings.TrimSuffix(u.Path, "/")
	if dir, last := path.Split(at.Path); path.Base(dir) == "jobs" {
		named = last
	}
	switch {
	case route == "" && named == "":
		return nil, configf("it is not said which gate: the controller's URL must end in /jobs/NAME, or the route be given; NAME is the gate's in the controller's configuration")
	case route != "" && named != "" && route != named:
		// What was meant can't be known: nothing of it is told.
		return nil, configf("the controller's URL names another gate than the route; give one of them")
	case named == "":
		named, at.Path = route, at.Path+"/jobs/"+route
	}
	if !isRouteName(named) {
		return nil, configf("the route must be the gate's name in the controller's configuration: 1 to 63 of a-z, 0-9 and single -")
	}
	return &at, nil
}

func isLoopback(host string) bool {
	addr, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && addr.IsLoopback()
}

func isRouteName(s string) bool {
	if len(s) < 1 || len(s) > 63 || s[0] == '-' || s[len(s)-1] == '-' || strings.Contains(s, "--") {
		return false
	}
	return !strings.ContainsFunc(s, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '-'
	})
}

// isToken reports whether t has the form of a token, without looking into it.
func isToken(t fencepost.Secret) bool {
	if t.Len() < 1 || t.Len() > maxToken {
		return false
	}
	parts := strings.Split(string(t.Reveal()), ".")
	if len(parts) != 3 {
		return false
	}
	for _, p := range parts {
		if p == "" || strings.ContainsFunc(p, func(r rune) bool { return !isBase64URL(r) }) {
			return false
		}
	}
	return true
}

func isBase64URL(r rune) bool {
	return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '_'
}

// newTransport makes the transport of a run: verified TLS, and nothing that
// outlives the run.
func newTransport(roots *x509.CertPool) *http.Transport {
	dialer := &net.Dialer{Timeout: requestTimeout}
	return &http.Transport{
		Proxy:                  http.ProxyFromEnvironment,
		DialContext:            dialer.DialContext,
		TLSClientConfig:        &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots},
		TLSHandshakeTimeout:    requestTimeout,
		ResponseHeaderTimeout:  requestTimeout,
		IdleConnTimeout:        2 * lastPause,
		MaxResponseHeaderBytes: maxHeaders,
		MaxConnsPerHost:        1,
		DisableCompression:     true,
	}
}
