package gitlab_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/fencepost/fencepost"
	forge "github.com/fencepost/fencepost/internal/forgesim/gitlab"
)

const signingToken = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="

func TestWhatIsWrongWithAWebhook(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	_, err := b.asked.Webhooks(t.Context())
	wantReason(t, err, fencepost.ReasonCredential) // a reporter's token
	b.token = b.forge.NewToken("owner", forge.Maintainer, "read_api")
	const url = "http://127.0.0.1:1/hooks/handbook"
	for _, c := range []forge.HookConfig{
		{URL: url, SigningToken: signingToken},
		{URL: url},
		{URL: url, SigningToken: signingToken, Token: "plain"},
		{URL: url, SigningToken: signingToken, Requests: true},
		{URL: url + "?a=b", SigningToken: signingToken},
		{URL: "http://127.0.0.1:1/hooks/other", SigningToken: signingToken},
	} {
		_, err := b.project.AddHook(c)
		must(t, err)
	}
	hooks, err := b.asked.Webhooks(t.Context())
	must(t, err)
	want := []string{"", "no signing token", "secret token beside", "not told of pushes", ""}
	for i, hook := range hooks {
		if leads := hook.LeadsTo("/hooks/handbook"); leads != (i < len(want)) {
			t.Errorf("webhook %d leads to the source: %t", i, leads)
		}
		if i < len(want) {
			if seen, mend := hook.Flaw(); !strings.Contains(seen, want[i]) || (seen == "") != (want[i] == "") || (mend == "") != (seen == "") {
				t.Errorf("webhook %d: %q, %q, want %q", i, seen, mend, want[i])
			}
		}
	}
	for body, want := range map[string]string{
		`[{"url":"u","push_events":true,"alert_status":"executable"}]`:                                                                                         "older than 19.0",
		`[{"url":"u","push_events":true,"alert_status":"temporarily_disabled","signing_token_present":true,"token_present":false}]`:                            "for a while",
		`[{"url":"u","push_events":true,"alert_status":"temporarily_disabled","disabled_until":"2026-12-01T01:10:00.000+01:00","signing_token_present":true}]`: "off until 2026-12-01T00:10:00Z",
		`[{"url":"u","push_events":true,"alert_status":"executable","disabled_until":null,"signing_token_present":true}]`:                                      "",
		`[{"url":"u","push_events":true,"alert_status":"disabled","signing_token_present":true}]`:                                                              "it is switched off",
	} {
		b.forge.Interfere(func(*http.Request) *forge.Answer { return &forge.Answer{Status: 200, Body: body} })
		hooks, err := b.asked.Webhooks(t.Context())
		must(t, err)
		if seen, _ := hooks[0].Flaw(); !strings.Contains(seen, want) {
			t.Errorf("%s: %q, want %q", body, seen, want)
		}
	}
	b.forge.Interfere(func(*http.Request) *forge.Answer { return &forge.Answer{Status: 404, Body: "{}"} })
	_, err = b.asked.Webhooks(t.Context())
	wantReason(t, err, fencepost.ReasonCredential)
}
