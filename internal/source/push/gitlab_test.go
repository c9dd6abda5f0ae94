package push_test

import (
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/forgesim"
	"github.com/fencepost/fencepost/internal/forgesim/gitlab"
	"github.com/fencepost/fencepost/internal/source/push"
)

// onGitLab is one in the shape of GitLab's.
const onGitLab = `{"object_kind":"push","event_name":"push","before":"` + otherSHA + `","after":"` + headSHA + `","ref":"refs/heads/main",
	"ref_protected":true,"checkout_sha":"` + headSHA + `","message":null,"user_id":583231,"user_username":"octocat","user_name":"Octo Cat",
	"user_email":"","user_avatar":null,"project_id":1296270,
	"project":{"id":1296270,"name":"handbook","description":"","web_url":"u","avatar_url":null,"git_ssh_url":"s","git_http_url":"h",
		"namespace":"The Acme","visibility_level":0,"path_with_namespace":"acme/handbook","default_branch":"main","ci_config_path":null},
	"commits":[],"total_commits_count":0,"push_options":{},"repository":{"name":"handbook","url":"s","description":"","homepage":"u"}}`

var gitLabPush = []string{"X-Gitlab-Event", "Push Hook", "webhook-id", "m1", "webhook-timestamp", "1764500000", "Idempotency-Key", "m1"}

func replaced(pairs ...string) string { return strings.NewReplacer(pairs...).Replace(onGitLab) }

func TestWhatAGitLabPushMustSay(t *testing.T) {
	t.Parallel()
	const (
		admitted     = fencepost.ReasonNone
		malformed    = fencepost.ReasonMalformed
		unauthorized = fencepost.ReasonUnauthorized
		ignored      = fencepost.ReasonEventNotHandled
	)
	kind := func(of string) []string { return []string{"X-Gitlab-Event", of, "webhook-id", "m1"} }
	change := func(c ...func(*push.Policy)) []func(*push.Policy) { return c }
	for _, tc := range []row{
		{name: "as it is", body: onGitLab, want: admitted},
		{name: "of anybody who may write", body: replaced("583231", "1", "octocat", "mallory"), policy: change(anyWriter), want: admitted},
		{name: "without a pusher, of anybody", body: replaced(`"user_id":583231,"user_username":"octocat",`, ""), policy: change(anyWriter), want: admitted},
		{name: "without a checkout", body: replaced(`"checkout_sha":"`+headSHA+`"`, `"checkout_sha":null`), want: admitted},
		{name: "a group within a group", body: replaced("acme/handbook", "acme/books/handbook"),
			policy: change(func(p *push.Policy) { p.FullName = "acme/books/handbook" }), want: admitted},

		{name: "another project", body: replaced("1296270", "1296271"), want: unauthorized},
		{name: "another project in one place", body: replaced(`"project_id":1296270`, `"project_id":1296271`), want: unauthorized},
		{name: "another path", body: replaced("acme/handbook", "acme/manual"), want: unauthorized},
		{name: "another letter case", body: replaced("acme/handbook", "Acme/handbook"), want: unauthorized},
		{name: "a path below", body: replaced("acme/handbook", "acme/handbook/sub"), want: unauthorized},
		{name: "another pusher", body: replaced("583231", "583232"), want: unauthorized},
		{name: "another login", body: replaced("octocat", "Octocat"), want: unauthorized},
		{name: "two commits", body: replaced(`"checkout_sha":"`+headSHA, `"checkout_sha":"`+otherSHA), want: unauthorized},
		{name: "deleted", body: replaced(`"after":"`+headSHA, `"after":"`+zeroSHA, `"checkout_sha":"`+headSHA+`"`, `"checkout_sha":null`), want: unauthorized},
		{name: "deleted, of another format", body: replaced(`"after":"`+headSHA, `"after":"`+zeroSHA+zeroSHA[:24]), want: unauthorized},
		{name: "another object format", body: replaced(headSHA, headSHA+headSHA[:24]), want: unauthorized},
		{name: "another event within", body: replaced(`"event_name":"push"`, `"event_name":"tag_push"`), want: unauthorized},
		{name: "another kind within", body: replaced(`"object_kind":"push"`, `"object_kind":"tag_push"`), want: unauthorized},
		{name: "a push under another header", header: kind("Tag Push Hook"), body: onGitLab, want: unauthorized},

		{name: "another branch", body: replaced("refs/heads/main", "refs/heads/side"), want: ignored},
		{name: "another branch deleted", body: replaced("refs/heads/main", "refs/heads/side", headSHA, zeroSHA), want: ignored},
		{name: "a tag", header: kind("Tag Push Hook"), body: replaced(`"push"`, `"tag_push"`), want: ignored},
		{name: "a merge request", header: kind("Merge Request Hook"), body: `{"object_kind":"merge_request","project":{"id":1296270}}`, want: ignored},
		{name: "a job", header: kind("Job Hook"), body: `{"object_kind":"build","project_id":1296270}`, want: ignored},
		{name: "of a group", header: kind("Subgroup Hook"), body: `{"event_name":"subgroup_create","group_id":5}`, want: ignored},
		{name: "another's merge request", header: kind("Merge Request Hook"), body: `{"object_kind":"merge_request","project":{"id":7}}`, want: unauthorized},

		{name: "no event", header: []string{"webhook-id", "m1"}, body: onGitLab, want: malformed},
		{name: "two events", header: append(kind("Push Hook"), "X-Gitlab-Event", "Push Hook"), body: onGitLab, want: malformed},
		{name: "no id", header: []string{"X-Gitlab-Event", "Push Hook"}, body: onGitLab, want: malformed},
		{name: "no JSON", body: "{", want: malformed},
		{name: "a key twice", body: replaced(`"ref_protected":true`, `"ref":"refs/heads/side"`), want: malformed},
		{name: "another event, no JSON", header: kind("Note Hook"), body: "{", want: malformed},
		{name: "no project", body: replaced(`"project_id":1296270,`, "", `"id":1296270,`, ""), want: malformed},
		{name: "no path", body: replaced(`"path_with_namespace":"acme/handbook",`, ""), want: malformed},
		{name: "no ref", body: replaced(`"ref":"refs/heads/main",`, ""), want: malformed},
		{name: "no after", body: replaced(`"after":"`+headSHA+`",`, ""), want: malformed},
		{name: "a short commit", body: replaced(headSHA, headSHA[:39]), want: malformed},
		{name: "a commit in capitals", body: replaced(headSHA, strings.ToUpper(headSHA)), want: malformed},
		{name: "no pusher", body: replaced(`"user_id":583231,`, ""), want: malformed},
		{name: "an id as text", body: replaced(`"project_id":1296270`, `"project_id":"1296270"`), want: malformed},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			if tc.header == nil {
				tc.header = gitLabPush
			}
			got, err := admitter(t, push.GitLab, tc.policy...).Admit(headers(tc.header...), []byte(tc.body))
			if why := fencepost.ReasonOf(err); why != tc.want {
				t.Fatalf("reason %q, want %q: %v", why, tc.want, err)
			}
			if err == nil != (got.Commit == commit(t, headSHA)) {
				t.Errorf("the commit is %v", got.Commit)
			}
		})
	}
}

func TestAGitLabDeliveryIsKnownByItsSignedID(t *testing.T) {
	t.Parallel()
	a := admitter(t, push.GitLab)
	admit := func(id, body string) push.Push {
		t.Helper()
		p, err := a.Admit(headers("X-Gitlab-Event", "Push Hook", "webhook-id", id), []byte(body))
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	one, again, other := admit("m1", onGitLab), admit("m1", onGitLab), admit("m2", onGitLab)
	changed := admit("m1", replaced(`"user_name":"Octo Cat"`, `"user_name":"Octo"`))
	if one != again {
		t.Error("the same delivery is two")
	}
	if one.ID == other.ID || one.Body == other.Body {
		t.Error("the same change made again is the first")
	}
	if one.ID != changed.ID || one.Body == changed.Body {
		t.Error("other bytes under an id are not told")
	}
}

func TestWhatGitLabSendsIsAdmitted(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	forge, err := gitlab.New(ctx, gitlab.Config{Dir: filepath.Join(t.TempDir(), "forge"), Now: time.Now})
	must(t, err)
	t.Cleanup(func() { must(t, forge.Close()) })
	project, err := forge.CreateProject(ctx, gitlab.Create{Namespace: "acme/books", Name: "handbook", Files: map[string]string{"a": "a"}})
	must(t, err)
	hook, err := project.AddHook(gitlab.HookConfig{Pushes: true, TagPushes: true, Requests: true})
	must(t, err)
	var heads []string
	for _, p := range []forgesim.Push{{Change: oneFile("b")}, {Branch: "side", Change: oneFile("c")}, {Change: oneFile("d")}} {
		head, err := project.Push(ctx, p)
		must(t, err)
		if p.Branch == "" {
			heads = append(heads, head)
		}
	}
	_, err = project.OpenRequest(ctx, gitlab.Open{Source: "side"})
	must(t, err)
	must(t, project.DeleteBranch(ctx, "side"))
	must(t, hook.Test(ctx))
	a, err := push.GitLab(push.Policy{
		RepositoryID: project.ID(), OwnerID: project.NamespaceID(), FullName: "acme/books/handbook", Ref: "refs/heads/main", AnyWriter: true,
	})
	must(t, err)
	var all []sent
	for _, d := range forge.TakeOutbox() {
		r, err := forge.SignedRequest(ctx, d, "http://127.0.0.1:1/")
		must(t, err)
		all = append(all, sent{http.Header(r.Header), d.Body})
	}
	wantAdmitted(t, a, all, append(heads, heads[len(heads)-1])...)
}

func FuzzGitLab(f *testing.F) {
	f.Add("Push Hook", []byte(onGitLab))
	f.Add("Push Hook", []byte(replaced(headSHA, zeroSHA)))
	f.Add("Push Hook", []byte(replaced(`"project_id":1296270`, `"project_id":null`)))
	f.Add("Merge Request Hook", []byte(`{"object_kind":"merge_request","project":{"id":1296270}}`))
	a := admitter(f, push.GitLab)
	f.Fuzz(func(t *testing.T, kind string, body []byte) {
		got, err := a.Admit(headers("X-Gitlab-Event", kind, "webhook-id", "m1"), body)
		switch fencepost.ReasonOf(err) {
		case fencepost.ReasonNone:
			if kind != "Push Hook" || got.Commit.IsZero() || got.ID.IsZero() || !strings.Contains(string(body), "1296270") {
				t.Errorf("admitted %q as %+v", kind, got)
			}
		case fencepost.ReasonEventNotHandled, fencepost.ReasonMalformed, fencepost.ReasonUnauthorized:
			if got != (push.Push{}) {
				t.Errorf("refused with %+v", got)
			}
		default:
			t.Errorf("error %v", err)
		}
	})
}
