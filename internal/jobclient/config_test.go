package jobclient_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/jobclient"
	"github.com/fencepost/fencepost/webhook"
)

func TestWhatIsMissingOrUnsafeIsRefusedBeforeAnythingIsSent(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*jobclient.Config){
		"no controller":      func(c *jobclient.Config) { c.Controller = "" },
		"a host alone":       func(c *jobclient.Config) { c.Controller = "controller.example" },
		"plain http":         func(c *jobclient.Config) { c.Controller = "http://controller.example" },
		"http of loopback":   func(c *jobclient.Config) { c.Controller = "http://127.0.0.1:8080" },
		"http of another":    func(c *jobclient.Config) { c.Controller, c.AllowHTTP = "http://controller.example", true },
		"http of a look-a":   func(c *jobclient.Config) { c.Controller, c.AllowHTTP = "http://localhost.example", true },
		"another scheme":     func(c *jobclient.Config) { c.Controller = "ftp://controller.example" },
		"with a user":        func(c *jobclient.Config) { c.Controller = "https://a:" + canary + "@controller.example" },
		"with a query":       func(c *jobclient.Config) { c.Controller = "https://controller.example/?a=" + canary },
		"with a fragment":    func(c *jobclient.Config) { c.Controller = "https://controller.example/#" + canary },
		"with an escape":     func(c *jobclient.Config) { c.Controller = "https://controller.example/a%2fb" },
		"no URL at all":      func(c *jobclient.Config) { c.Controller = "https://" + canary + "\x7f" },
		"no route":           func(c *jobclient.Config) { c.Route = "" },
		"jobs of no route":   func(c *jobclient.Config) { c.Controller, c.Route = "https://controller.example/jobs/", "" },
		"hooks of a route":   func(c *jobclient.Config) { c.Controller, c.Route = "https://controller.example/hooks/docs", "" },
		"two routes":         func(c *jobclient.Config) { c.Controller = "https://controller.example/jobs/other" },
		"no name in the URL": func(c *jobclient.Config) { c.Controller, c.Route = "https://controller.example/jobs/Docs_"+canary, "" },
		"dots in the URL":    func(c *jobclient.Config) { c.Controller, c.Route = "https://controller.example/jobs/..", "" },
		"a route with slash": func(c *jobclient.Config) { c.Route = "../hooks/docs" },
		"no token":           func(c *jobclient.Config) { c.Token = fencepost.Secret{} },
		"no token's form":    func(c *jobclient.Config) { c.Token = fencepost.NewSecret([]byte(canary)) },
		"a line end in it":   func(c *jobclient.Config) { c.Token = fencepost.NewSecret([]byte(token + "\n")) },
		"an empty part":      func(c *jobclient.Config) { c.Token = fencepost.NewSecret([]byte("a.." + canary)) },
		"a large token": func(c *jobclient.Config) {
			c.Token = fencepost.NewSecret([]byte(token + strings.Repeat("a", webhook.MaxTokenBytes)))
		},
		"no merge request": func(c *jobclient.Config) { c.MergeRequest = 0 },
		"no timeout":       func(c *jobclient.Config) { c.Timeout = 0 },
		"a long timeout":   func(c *jobclient.Config) { c.Timeout = 25 * time.Hour },
		"no clock":         func(c *jobclient.Config) { c.Now = nil },
	} {
		c := config(&controller{t: t}, &said{})
		change(&c)
		report, err := jobclient.Run(t.Context(), c)
		if !jobclient.IsConfig(err) || report.Passed() {
			t.Errorf("%s: %+v, %v; want a refusal", name, report, err)
			continue
		}
		quiet(t, err.Error())
	}
}

// The gate may be named by the controller's URL, or beside it, or by both.
func TestTheGateIsNamedOnce(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		controller string
		route      fencepost.RouteName
		want       string
	}{
		{"https://controller.example", "docs", "/jobs/docs"},
		{"https://controller.example/", "docs", "/jobs/docs"},
		{"https://controller.example/jobs", "docs", "/jobs/jobs/docs"},
		{"https://controller.example/jobs/docs", "", "/jobs/docs"},
		{"https://controller.example/jobs/docs/", "", "/jobs/docs"},
		{"https://controller.example/jobs/docs", "docs", "/jobs/docs"},
		{"https://controller.example/gates", "docs", "/gates/jobs/docs"},
		{"https://controller.example/gates/jobs/docs", "", "/gates/jobs/docs"},
	} {
		asked := ""
		c := config(tripper(func(r *http.Request) (*http.Response, error) {
			asked = r.URL.Path
			return &http.Response{StatusCode: http.StatusNotFound, Body: http.NoBody, Request: r}, nil
		}), &said{})
		c.Controller, c.Route = tc.controller, tc.route
		if _, err := jobclient.Run(t.Context(), c); err == nil || asked != tc.want {
			t.Errorf("%s with %q: asked %q (%v), want %q", tc.controller, tc.route, asked, err, tc.want)
		}
	}
}

// A tripper answers requests.
type tripper func(*http.Request) (*http.Response, error)

func (f tripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
