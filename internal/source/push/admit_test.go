package push_test

import (
	"crypto/sha256"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/source"
	"github.com/fencepost/fencepost/internal/source/push"
)

const (
	headSHA  = "ec26c3e57ca3a959ca5aad62de7213c562f8c821"
	otherSHA = "f95f852bd8fca8fcc58a9a2d6c842781e32a215e"
	zeroSHA  = "0000000000000000000000000000000000000000"
)

// onGitHub is a push in the shape of GitHub's published examples, by an App's
// webhook to an organization's repository.
const onGitHub = `{"ref":"refs/heads/main","before":"` + otherSHA + `","after":"` + headSHA + `",
	"repository":{"id":1296270,"node_id":"MDEw","name":"handbook","full_name":"acme/handbook","private":true,
		"owner":{"name":"acme","email":null,"login":"acme","id":583230,"node_id":"MDEy","type":"Organization","site_admin":false},
		"html_url":"https://github.com/acme/handbook","description":null,"fork":false,"created_at":1557933565,
		"updated_at":"2019-05-15T15:20:41Z","pushed_at":1557933657,"default_branch":"main","master_branch":"main","organization":"acme"},
	"pusher":{"name":"octocat","email":"octocat@github.com"},
	"organization":{"login":"acme","id":583230},
	"sender":{"login":"octocat","id":583231,"node_id":"MDQ6","type":"User","site_admin":false},
	"installation":{"id":67890,"node_id":"MDIz"},
	"created":false,"deleted":false,"forced":false,"base_ref":null,"compare":"https://github.com/acme/handbook/compare/f95f852bd8fc...ec26c3e57ca3",
	"commits":[{"id":"` + headSHA + `","tree_id":"f9d2a07e9488b91af2641b26b9407fe22a451433","distinct":true,"message":"m","timestamp":"2019-05-15T15:20:30Z",
		"url":"u","author":{"name":"n","email":"e","username":"octocat"},"committer":{"name":"n","email":"e","username":"octocat"},"added":[],"removed":[],"modified":["a.md"]}],
	"head_commit":{"id":"` + headSHA + `","tree_id":"f9d2a07e9488b91af2641b26b9407fe22a451433","message":"m"},"new_field":[1,{"a":null}]}`

// onGitea is one in the shape of Gitea's and Forgejo's; their JSON is indented.
const onGitea = `{
  "ref": "refs/heads/main",
  "before": "` + otherSHA + `",
  "after": "` + headSHA + `",
  "compare_url": "https://gitea.example/acme/handbook/compare/f95f852...ec26c3e",
  "commits": [{"id": "` + headSHA + `", "message": "m\n", "url": "u", "author": {"name": "n", "email": "e", "username": "octocat"},
    "committer": {"name": "n", "email": "e", "username": "octocat"}, "verification": null, "timestamp": "2026-11-30T12:00:00Z",
    "added": [], "removed": [], "modified": ["a.md"]}],
  "total_commits": 1,
  "head_commit": {"id": "` + headSHA + `", "message": "m\n", "verification": null},
  "repository": {"id": 1296270, "owner": {"id": 583230, "login": "acme", "username": "acme", "email": ""}, "name": "handbook",
    "full_name": "acme/handbook", "private": true, "default_branch": "main", "archived": false, "object_format_name": "sha1"},
  "pusher": {"id": 583231, "login": "octocat", "username": "octocat"},
  "sender": {"id": 583231, "login": "octocat", "username": "octocat"}
}`

func policy(change ...func(*push.Policy)) push.Policy {
	p := push.Policy{
		RepositoryID: 1296270, OwnerID: 583230, FullName: "acme/handbook", Ref: "refs/heads/main",
		Senders: []push.Sender{{ID: 7, Login: "hubot"}, {ID: 583231, Login: "octocat"}},
	}
	for _, c := range change {
		c(&p)
	}
	return p
}

func anyWriter(p *push.Policy) { p.AnyWriter, p.Senders = true, nil }

func installed(p *push.Policy) { p.Installation = 67890 }

// A maker makes an admitter.
type maker func(push.Policy) (*push.Admitter, error)

func admitter(tb testing.TB, of maker, change ...func(*push.Policy)) *push.Admitter {
	tb.Helper()
	a, err := of(policy(change...))
	if err != nil {
		tb.Fatal(err)
	}
	return a
}

// headers are pairs of name and value.
func headers(pairs ...string) fencepost.Headers {
	var all []fencepost.Header
	for i := 0; i < len(pairs); i += 2 {
		all = append(all, fencepost.Header{Name: pairs[i], Value: pairs[i+1]})
	}
	return fencepost.NewHeaders(all)
}

var (
	gitHubPush = []string{"X-GitHub-Event", "push", "X-GitHub-Delivery", "d1"}
	giteaPush  = []string{
		"X-Gitea-Event", "push", "X-Gitea-Event-Type", "push", "X-Gitea-Delivery", "d1",
		"X-Gogs-Event", "push", "X-Gogs-Delivery", "d1", "X-GitHub-Event", "push", "X-GitHub-Delivery", "d1",
	}
)

func commit(tb testing.TB, s string) fencepost.CommitID {
	tb.Helper()
	id, err := fencepost.ParseCommitID(s)
	if err != nil {
		tb.Fatal(err)
	}
	return id
}

type row struct {
	name   string
	header []string // nil: of a push
	body   string
	policy []func(*push.Policy)
	want   fencepost.Reason
}

func judge(t *testing.T, of maker, usual []string, rows []row) {
	t.Helper()
	for _, tc := range rows {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			if tc.header == nil {
				tc.header = usual
			}
			got, err := admitter(t, of, tc.policy...).Admit(headers(tc.header...), []byte(tc.body))
			if why := fencepost.ReasonOf(err); why != tc.want {
				t.Fatalf("reason %q, want %q: %v", why, tc.want, err)
			}
			if err == nil {
				want := push.Push{Commit: commit(t, headSHA), ID: got.ID, Body: sha256.Sum256([]byte(tc.body))}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("push (-want +got):\n%s", diff)
				}
				return
			}
			if got != (push.Push{}) {
				t.Errorf("a refused delivery gives %+v", got)
			}
			for _, foreign := range []string{"octocat", "acme", headSHA, "main"} {
				if strings.Contains(err.Error(), foreign) {
					t.Errorf("the error %q holds %q", err, foreign)
				}
			}
		})
	}
}

// shared are the rows that both providers' pushes have to pass; changes are
// made to the payload by edit.
func shared(edit func(pairs ...string) string) []row {
	return []row{
		{name: "agrees in everything", body: edit()},
		{name: "any writer", body: edit(`"id":583231`, `"id":4`, `"octocat"`, `"mona"`), policy: []func(*push.Policy){anyWriter}},
		{name: "any writer, nobody named", body: edit(`"sender"`, `"ignored"`), policy: []func(*push.Policy){anyWriter}},
		{name: "a new branch", body: edit(`"before":"`+otherSHA, `"before":"`+zeroSHA)},
		{name: "announces no change", body: edit(`"before":"`+otherSHA, `"before":"`+headSHA)},

		{name: "another branch", body: edit("refs/heads/main", "refs/heads/main-2"), want: fencepost.ReasonEventNotHandled},
		{name: "a branch whose name begins alike", body: edit("refs/heads/main", "refs/heads/mai"), want: fencepost.ReasonEventNotHandled},
		{name: "a short ref", body: edit("refs/heads/main", "main"), want: fencepost.ReasonEventNotHandled},
		{name: "a tag of that name", body: edit("refs/heads/main", "refs/tags/main"), want: fencepost.ReasonEventNotHandled},
		{name: "another letter case", body: edit("refs/heads/main", "refs/heads/Main"), want: fencepost.ReasonEventNotHandled},
		{name: "another branch, by somebody else", body: edit("refs/heads/main", "refs/heads/x", `"id":583231`, `"id":4`), want: fencepost.ReasonEventNotHandled},

		{name: "another repository", body: edit(`"id":1296270`, `"id":1296271`), want: fencepost.ReasonUnauthorized},
		{name: "another repository's other branch", body: edit(`"id":1296270`, `"id":1296271`, "refs/heads/main", "refs/heads/x"), want: fencepost.ReasonUnauthorized},
		{name: "another owner", body: edit(`"id":583230`, `"id":583229`), want: fencepost.ReasonUnauthorized},
		{name: "renamed", body: edit(`"acme/handbook"`, `"acme/manual"`, `"name":"handbook"`, `"name":"manual"`), want: fencepost.ReasonUnauthorized},
		{name: "full name alone differs", body: edit(`"acme/handbook"`, `"acme/manual"`), want: fencepost.ReasonUnauthorized},
		{name: "name alone differs", body: edit(`"name":"handbook"`, `"name":"manual"`), want: fencepost.ReasonUnauthorized},
		{name: "letter case of the name", body: edit(`"acme/handbook"`, `"Acme/handbook"`), want: fencepost.ReasonUnauthorized},
		{name: "owner's name alone differs", body: edit(`"login":"acme"`, `"login":"evil"`), want: fencepost.ReasonUnauthorized},
		{name: "head_commit is another", body: edit(`"head_commit":{"id":"`+headSHA, `"head_commit":{"id":"`+otherSHA), want: fencepost.ReasonUnauthorized},
		{name: "sender not on the list", body: edit(`"id":583231`, `"id":583232`), want: fencepost.ReasonUnauthorized},
		{name: "sender's id with another's login", body: edit(`"id":583231`, `"id":7`), want: fencepost.ReasonUnauthorized},
		{name: "sender renamed", body: edit(`"octocat"`, `"mona"`), want: fencepost.ReasonUnauthorized},
		{name: "sender's login in other letters", body: edit(`"octocat"`, `"Octocat"`), want: fencepost.ReasonUnauthorized},
		{name: "no sender", body: edit(`"sender"`, `"ignored"`), want: fencepost.ReasonUnauthorized},
		{name: "null sender", body: edit(`"sender":{`, `"sender":null,"ignored":{`), want: fencepost.ReasonUnauthorized},
		{name: "a deletion", body: edit(`"ref":`, `"deleted":true,"ref":`, `"deleted":false,`, ``), want: fencepost.ReasonUnauthorized},

		{name: "no ref", body: edit(`"ref":"refs/heads/main",`, ``), want: fencepost.ReasonMalformed},
		{name: "no after", body: edit(`"after":"`+headSHA+`",`, ``), want: fencepost.ReasonMalformed},
		{name: "null after", body: edit(`"after":"`+headSHA+`"`, `"after":null`), want: fencepost.ReasonMalformed},
		{name: "upper-case after", body: edit(headSHA, strings.ToUpper(headSHA)), want: fencepost.ReasonMalformed},
		{name: "short after", body: edit(headSHA, headSHA[:39]), want: fencepost.ReasonMalformed},
		{name: "SHA-256 after", body: edit(headSHA, headSHA+headSHA[:24]), want: fencepost.ReasonMalformed},
		{name: "zero after", body: edit(headSHA, zeroSHA), want: fencepost.ReasonMalformed},
		{name: "after is a number", body: edit(`"after":"`+headSHA+`"`, `"after":1`), want: fencepost.ReasonMalformed},
		{name: "no head_commit", body: edit(`"head_commit"`, `"ignored"`), want: fencepost.ReasonMalformed},
		{name: "null head_commit", body: edit(`"head_commit":{`, `"head_commit":null,"ignored":{`), want: fencepost.ReasonMalformed},
		{name: "head_commit without id", body: edit(`"head_commit":{"id":"`+headSHA+`",`, `"head_commit":{`), want: fencepost.ReasonMalformed},
		{name: "no repository", body: edit(`"repository"`, `"ignored"`), want: fencepost.ReasonMalformed},
		{name: "null repository", body: edit(`"repository":{`, `"repository":null,"ignored":{`), want: fencepost.ReasonMalformed},
		{name: "no repository id", body: edit(`"id":1296270,`, ``), want: fencepost.ReasonMalformed},
		{name: "repository id is a text", body: edit(`"id":1296270`, `"id":"1296270"`), want: fencepost.ReasonMalformed},
		{name: "repository id is a float", body: edit(`"id":1296270`, `"id":1296270.0`), want: fencepost.ReasonMalformed},
		{name: "no owner", body: edit(`"owner"`, `"ignored"`), want: fencepost.ReasonMalformed},
		{name: "no owner id", body: edit(`"id":583230,`, ``), want: fencepost.ReasonMalformed},
		{name: "no full name", body: edit(`"full_name"`, `"ignored"`), want: fencepost.ReasonMalformed},
		{name: "no name", body: edit(`"name":"handbook",`, ``), want: fencepost.ReasonMalformed},
		{name: "sender without login", body: edit(`"sender":{`, `"sender":{"id":583231},"ignored":{`), want: fencepost.ReasonMalformed},
		{name: "a key twice", body: edit(`"ref":`, `"ref":"refs/heads/main","ref":`), want: fencepost.ReasonMalformed},
		{name: "a key in other letters", body: edit(`"ref":`, `"Ref":`), want: fencepost.ReasonMalformed},
		{name: "bytes after it", body: edit() + `{}`, want: fencepost.ReasonMalformed},
		{name: "form encoding", body: `payload=%7B%7D`, want: fencepost.ReasonMalformed},
		{name: "no bytes", body: ``, want: fencepost.ReasonMalformed},
		{name: "not UTF-8", body: edit(`"ref":`, "\"x\":\"\xff\",\"ref\":"), want: fencepost.ReasonMalformed},
		{name: "too deep", body: edit(`"ref":`, `"x":`+strings.Repeat(`[`, 65)+strings.Repeat(`]`, 65)+`,"ref":`), want: fencepost.ReasonMalformed},
	}
}

// editor changes a payload and fails where there is nothing to change.
func editor(t *testing.T, payload string) func(pairs ...string) string {
	t.Helper()
	return func(pairs ...string) string {
		for i := 0; i < len(pairs); i += 2 {
			if !strings.Contains(payload, pairs[i]) {
				// Gitea's pushes have no deleted to take away.
				if pairs[i] == `"deleted":false,` {
					continue
				}
				t.Fatalf("the payload has no %s", pairs[i])
			}
		}
		return strings.NewReplacer(pairs...).Replace(payload)
	}
}

// tight is a payload without the blanks after colons.
func tight(payload string) string { return strings.ReplaceAll(payload, `": `, `":`) }

func TestGitHubPushes(t *testing.T) {
	t.Parallel()
	edit := editor(t, onGitHub)
	app := []func(*push.Policy){installed}
	rows := append(shared(edit), []row{
		{name: "of our installation", body: edit(), policy: app},
		{name: "of the repository's own webhook", body: edit(`"installation"`, `"ignored"`), policy: app},
		{name: "of another installation", body: edit(`"id":67890`, `"id":67891`), policy: app, want: fencepost.ReasonUnauthorized},
		{name: "of an installation without id", body: edit(`"installation":{`, `"installation":{},"ignored":{`), policy: app, want: fencepost.ReasonMalformed},
		{name: "a user's repository", body: edit(`"organization":{"login":"acme","id":583230},`, ``)},
		{name: "forced", body: edit(`"forced":false`, `"forced":true`)},
		{name: "does not say whether it deleted", body: edit(`"deleted":false,`, ``), want: fencepost.ReasonMalformed},
		{name: "GitHub's whole deletion", body: edit(`"deleted":false`, `"deleted":true`, `"after":"`+headSHA, `"after":"`+zeroSHA, `"head_commit":{`, `"head_commit":null,"ignored":{`), want: fencepost.ReasonUnauthorized},
		{name: "a deploy key has a pusher of another name", body: edit(`"pusher":{"name":"octocat"`, `"pusher":{"name":"acme"`)},

		{name: "ping", header: []string{"X-GitHub-Event", "ping"}, body: `{"zen":"z","hook_id":1,"hook":{"id":1}}`, want: fencepost.ReasonEventNotHandled},
		{name: "ping of the repository's webhook", header: []string{"X-GitHub-Event", "ping"}, body: `{"zen":"z","repository":{"id":1296270,"name":"handbook","owner":{"id":583230}}}`, want: fencepost.ReasonEventNotHandled},
		{name: "ping of another's", header: []string{"X-GitHub-Event", "ping"}, body: `{"zen":"z","repository":{"id":9,"owner":{"id":583230}}}`, want: fencepost.ReasonUnauthorized},
		{name: "the installation's own event", header: []string{"X-GitHub-Event", "installation"}, body: `{"action":"suspend","installation":{"id":67890}}`, policy: app, want: fencepost.ReasonEventNotHandled},
		{name: "another installation's own event", header: []string{"X-GitHub-Event", "installation"}, body: `{"action":"suspend","installation":{"id":1}}`, policy: app, want: fencepost.ReasonUnauthorized},
		{name: "the rename itself", header: []string{"X-GitHub-Event", "repository"}, body: `{"action":"renamed","repository":{"id":1296270,"full_name":"acme/manual","owner":{"id":583230}}}`, want: fencepost.ReasonEventNotHandled},
		{name: "a pull request", header: []string{"X-GitHub-Event", "pull_request"}, body: `{"action":"opened","repository":{"id":1296270,"owner":{"id":583230}}}`, want: fencepost.ReasonEventNotHandled},
		{name: "another event whose repository has no owner", header: []string{"X-GitHub-Event", "create"}, body: `{"repository":{"id":1296270}}`, want: fencepost.ReasonMalformed},
		{name: "another event that is no JSON", header: []string{"X-GitHub-Event", "create"}, body: `{`, want: fencepost.ReasonMalformed},
		{name: "push named by Gitea's header alone", header: []string{"X-Gitea-Event", "push"}, body: edit(), want: fencepost.ReasonMalformed},
		{name: "no event header", header: []string{"X-GitHub-Delivery", "d1"}, body: edit(), want: fencepost.ReasonMalformed},
		{name: "two event headers", header: []string{"X-GitHub-Event", "push", "x-github-event", "push"}, body: edit(), want: fencepost.ReasonMalformed},
		{name: "two delivery headers", header: []string{"X-GitHub-Event", "push", "X-GitHub-Delivery", "d1", "X-GitHub-Delivery", "d1"}, body: edit(), want: fencepost.ReasonMalformed},
		{name: "event header of another kind of body", body: `{"zen":"z","hook_id":1}`, want: fencepost.ReasonMalformed},
	}...)
	judge(t, push.GitHub, gitHubPush, rows)
}

func TestGiteaPushes(t *testing.T) {
	t.Parallel()
	edit := editor(t, tight(onGitea))
	rows := append(shared(edit), []row{
		{name: "as it is sent, indented", body: onGitea},
		{name: "Forgejo's headers as well", body: onGitea, header: append([]string{"X-Forgejo-Event", "push", "X-Forgejo-Delivery", "d1"}, giteaPush...)},
		{name: "pusher and sender are two", body: edit(`"pusher":{"id":583231`, `"pusher":{"id":4`), want: fencepost.ReasonUnauthorized},
		{name: "pusher and sender are two, any writer", body: edit(`"pusher":{"id":583231`, `"pusher":{"id":4`), policy: []func(*push.Policy){anyWriter}, want: fencepost.ReasonUnauthorized},
		{name: "a repository of SHA-256", body: edit(`"object_format_name":"sha1"`, `"object_format_name":"sha256"`), want: fencepost.ReasonUnauthorized},
		{name: "an older server without the format", body: edit(`, "object_format_name":"sha1"`, ``)},

		{name: "branch created", header: []string{"X-Gitea-Event", "create"}, body: `{"sha":"` + headSHA + `","ref":"main","ref_type":"branch","repository":{"id":1296270,"owner":{"id":583230}}}`, want: fencepost.ReasonEventNotHandled},
		{name: "branch deleted", header: []string{"X-Gitea-Event", "delete"}, body: `{"ref":"main","ref_type":"branch","pusher_type":"user","repository":{"id":1296270,"owner":{"id":583230}}}`, want: fencepost.ReasonEventNotHandled},
		{name: "another repository's deletion", header: []string{"X-Gitea-Event", "delete"}, body: `{"ref":"main","repository":{"id":3,"owner":{"id":583230}}}`, want: fencepost.ReasonUnauthorized},
		{name: "push named by GitHub's header alone", header: []string{"X-GitHub-Event", "push"}, body: onGitea, want: fencepost.ReasonMalformed},
		{name: "two delivery headers", header: []string{"X-Gitea-Event", "push", "X-Gitea-Delivery", "d1", "X-Gitea-Delivery", "d2"}, body: onGitea, want: fencepost.ReasonMalformed},
	}...)
	judge(t, push.Gitea, giteaPush, rows)
}

func TestTheDeliveryIDIsOnlyADigest(t *testing.T) {
	t.Parallel()
	a := admitter(t, push.GitHub)
	id := func(header ...string) source.Digest {
		t.Helper()
		got, err := a.Admit(headers(append([]string{"X-GitHub-Event", "push"}, header...)...), []byte(onGitHub))
		if err != nil {
			t.Fatal(err)
		}
		return got.ID
	}
	one, again := id("X-GitHub-Delivery", "d1"), id("x-github-delivery", "d1")
	switch {
	case one.IsZero() || one != again:
		t.Errorf("digests %x and %x of one id", one, again)
	case one == id("X-GitHub-Delivery", "d2"):
		t.Error("two ids have one digest")
	case one == sha256.Sum256([]byte("d1")):
		t.Error("the digest is of no domain")
	case !id().IsZero() || !id("X-GitHub-Delivery", "").IsZero():
		t.Error("no delivery id has a digest")
	}
}

func TestPoliciesThatAreNone(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*push.Policy){
		"no repository id":   func(p *push.Policy) { p.RepositoryID = 0 },
		"no owner id":        func(p *push.Policy) { p.OwnerID = -1 },
		"no owner":           func(p *push.Policy) { p.FullName = "/handbook" },
		"no slash":           func(p *push.Policy) { p.FullName = "handbook" },
		"two slashes":        func(p *push.Policy) { p.FullName = "a/b/c" },
		"short ref":          func(p *push.Policy) { p.Ref = "main" },
		"a tag":              func(p *push.Policy) { p.Ref = "refs/tags/v1" },
		"no branch":          func(p *push.Policy) { p.Ref = "refs/heads/" },
		"nobody may push":    func(p *push.Policy) { p.Senders = nil },
		"all and some":       func(p *push.Policy) { p.AnyWriter = true },
		"sender without id":  func(p *push.Policy) { p.Senders[0].ID = 0 },
		"sender, no login":   func(p *push.Policy) { p.Senders[1].Login = "" },
		"installation below": func(p *push.Policy) { p.Installation = -1 },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, of := range []maker{push.GitHub, push.Gitea} {
				if _, err := of(policy(change)); !isMalformed(err) {
					t.Errorf("error %v, want one that matches ErrMalformed", err)
				}
			}
		})
	}
}
