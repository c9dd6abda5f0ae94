package githubspec_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/fencepost/fencepost/internal/forgesim/githubspec"
)

func webhookHeader(event string) http.Header {
	h := http.Header{}
	for name, value := range map[string]string{
		"User-Agent": "GitHub-Hookshot/x", "X-GitHub-Hook-ID": "1", "X-GitHub-Event": event,
		"X-GitHub-Hook-Installation-Target-ID": "1", "X-GitHub-Hook-Installation-Target-Type": "integration",
		"X-GitHub-Delivery": "x", "X-Hub-Signature-256": "sha256=x",
	} {
		h.Set(name, value)
	}
	return h
}

func TestWebhooksAreHeldAgainstTheDescription(t *testing.T) {
	t.Parallel()
	spec := githubspec.Load(t)
	ping := `{"zen":"z","hook_id":1}`
	without := webhookHeader("ping")
	without.Del("X-GitHub-Delivery")
	for _, test := range []struct {
		name   string
		header http.Header
		body   string
		want   string
	}{
		{"a ping", webhookHeader("ping"), ping, ""},
		{"a missing header", without, ping, "header X-GitHub-Delivery"},
		{"an unknown event", webhookHeader("pong"), ping, "pong is not in the description"},
		{"an unknown action", webhookHeader("pull_request"), `{"action":"admired"}`, "pull-request-admired is not in the description"},
		{"a missing field", webhookHeader("pull_request"), `{"action":"opened"}`, "pull_request"},
		{"a field of another type", webhookHeader("ping"), `{"zen":7}`, "zen"},
		{"an unknown field", webhookHeader("ping"), `{"zen":"z","mood":"good"}`, "/mood is not in the description"},
		{"no JSON", webhookHeader("ping"), `{`, "webhook ping"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			err := spec.CheckWebhook(test.header, []byte(test.body))
			if test.want == "" && err != nil {
				t.Fatalf("error %v, want none", err)
			}
			if test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
				t.Fatalf("error %v, want one with %q", err, test.want)
			}
		})
	}
}

func TestPayloadsAreComparedWithExamples(t *testing.T) {
	t.Parallel()
	spec := githubspec.Load(t)
	for _, test := range []struct{ name, event, body, want string }{
		{"a missing member", "push", `{}`, "/ref is in every example"},
		{"another type", "push", `{"ref":7}`, "/ref is json.Number"},
		{"no example", "pong", `{}`, "no example of pong"},
	} {
		err := spec.Compare(test.event, "", []byte(test.body))
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: error %v, want one with %q", test.name, err, test.want)
		}
	}
}
