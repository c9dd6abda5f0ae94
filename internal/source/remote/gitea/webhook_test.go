package gitea_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/fencepost/fencepost"
	forge "github.com/fencepost/fencepost/internal/forgesim/gitea"
)

func TestWhatIsWrongWithAWebhook(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	_, err := b.asked.Webhooks(t.Context())
	wantReason(t, err, fencepost.ReasonCredential) // a reader's token
	b.repo.Grant("owner", forge.Admin)
	b.token = b.forge.NewToken("owner", "read:repository")
	const url = "http://127.0.0.1:1/hooks/handbook"
	for _, c := range []forge.HookConfig{
		{URL: url, Secret: []byte("a")},
		{URL: url + "/?a=b", Secret: []byte("a"), Forgejo: true},
		{URL: url, Secret: []byte("a"), Events: []string{"pull_request"}},
		{URL: "http://127.0.0.1:1/hooks/other", Secret: []byte("a")},
	} {
		b.repo.AddHook(c)
	}
	hooks, err := b.asked.Webhooks(t.Context())
	must(t, err)
	want := []string{"", "", "not told of pushes"}
	for i, hook := range hooks {
		if leads := hook.LeadsTo("/hooks/handbook"); leads != (i < len(want)) {
			t.Errorf("webhook %d leads to the source: %t", i, leads)
		}
		if i < len(want) {
			if seen, mend := hook.Flaw("main"); !strings.Contains(seen, want[i]) || (seen == "") != (want[i] == "") || (mend == "") != (seen == "") {
				t.Errorf("webhook %d: %q, %q, want %q", i, seen, mend, want[i])
			}
		}
	}
	hook := func(kind, active, media, filter string) string {
		return `[{"type":"` + kind + `","active":` + active + `,"branch_filter":"` + filter + `","config":{"url":"u","content_type":"` + media + `"},"events":["push"]}]`
	}
	for body, want := range map[string]string{
		hook("gitea", "true", "json", "*"):              "",
		hook("gitea", "true", "json", "{main,next}"):    "",
		hook("slack", "true", "json", ""):               "another type",
		hook("gitea", "false", "json", ""):              "switched off",
		hook("gitea", "true", "form", ""):               "content type",
		hook("forgejo", "true", "json", "release-[12]"): "does not name main",
	} {
		b.forge.Interfere(func(*http.Request) *forge.Answer { return &forge.Answer{Status: 200, Body: body} })
		hooks, err := b.asked.Webhooks(t.Context())
		must(t, err)
		if seen, mend := hooks[0].Flaw("main"); !strings.Contains(seen, want) || (want == "") != (seen == "") || (mend == "") != (seen == "") {
			t.Errorf("%s: %q, %q, want %q", body, seen, mend, want)
		}
	}
	for status, want := range map[int]fencepost.Reason{404: fencepost.ReasonCredential, 200: fencepost.ReasonProvider} {
		b.forge.Interfere(func(*http.Request) *forge.Answer { return &forge.Answer{Status: status, Body: "{"} })
		_, err = b.asked.Webhooks(t.Context())
		wantReason(t, err, want)
	}
}
