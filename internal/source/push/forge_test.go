package push_test

import (
	"encoding/json"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/forgesim"
	"github.com/fencepost/fencepost/internal/forgesim/gitea"
	"github.com/fencepost/fencepost/internal/forgesim/githubspec"
	"github.com/fencepost/fencepost/internal/source/push"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func oneFile(name string) forgesim.Change {
	return forgesim.Change{Files: map[string]string{name: name}}
}

// sent is a delivery as it left a forge.
type sent struct {
	header http.Header
	body   []byte
}

// wantAdmitted holds that exactly these commits are announced by deliveries to
// a, in order, and that nothing is refused but as not handled.
func wantAdmitted(t *testing.T, a *push.Admitter, all []sent, want ...string) {
	t.Helper()
	for _, d := range all {
		got, err := a.Admit(fencepost.HeadersFromMap(d.header), d.body)
		switch why := fencepost.ReasonOf(err); {
		case why == fencepost.ReasonEventNotHandled:
		case err != nil:
			t.Errorf("refused: %v", err)
		case len(want) == 0 || got.Commit.String() != want[0] || got.ID.IsZero():
			t.Errorf("admitted %v, want %v", got.Commit, want)
		default:
			want = want[1:]
		}
	}
	if len(want) > 0 {
		t.Errorf("not announced: %v", want)
	}
}

func TestWhatGitHubSendsIsAdmitted(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	forge, err := forgesim.New(ctx, forgesim.Config{Dir: filepath.Join(t.TempDir(), "forge"), Now: time.Now})
	must(t, err)
	repo, err := forge.ImportRepository(ctx, forgesim.Import{Owner: "acme", Name: "handbook", Files: map[string]string{"a": "a"}})
	must(t, err)
	inst, err := forge.App().Install(repo)
	must(t, err)
	forge.App().Ping()
	repo.AddHook("", nil)
	var heads []string
	for _, p := range []forgesim.Push{
		{Change: oneFile("b")}, {Branch: "side", Change: oneFile("c")}, {Change: oneFile("d")},
		{To: repo.Ref("refs/heads/main")}, // forced back to where it began
	} {
		head, err := repo.Push(ctx, p)
		must(t, err)
		if p.Branch == "" {
			heads = append(heads, head, head) // the App's and the repository's
		}
	}
	must(t, repo.DeleteBranch(ctx, "side"))
	a, err := push.GitHub(push.Policy{
		RepositoryID: repo.ID(), OwnerID: repo.OwnerID(), FullName: "acme/handbook", Ref: "refs/heads/main",
		AnyWriter: true, Installation: inst.ID(),
	})
	must(t, err)
	var all []sent
	for _, d := range forge.TakeOutbox() {
		r, err := forge.Request(ctx, d, "http://127.0.0.1:1/")
		must(t, err)
		all = append(all, sent{r.Header, d.Body})
	}
	wantAdmitted(t, a, all, heads...)

	must(t, repo.Rename("manual"))
	_, err = repo.Push(ctx, forgesim.Push{Change: oneFile("e")})
	must(t, err)
	for _, d := range forge.TakeOutbox() {
		r, err := forge.Request(ctx, d, "http://127.0.0.1:1/")
		must(t, err)
		if _, err := a.Admit(fencepost.HeadersFromMap(r.Header), d.Body); fencepost.ReasonOf(err) != fencepost.ReasonUnauthorized {
			t.Errorf("a push after the rename: %v, want unauthorized", err)
		}
	}
}

func TestThePublishedPushesAreUnderstood(t *testing.T) {
	t.Parallel()
	examples, err := githubspec.Load(t).Examples("push")
	must(t, err)
	seen := map[fencepost.Reason]int{}
	for _, body := range examples {
		var says struct {
			Ref        string `json:"ref"`
			After      string `json:"after"`
			Deleted    bool   `json:"deleted"`
			Repository struct {
				ID       int64  `json:"id"`
				FullName string `json:"full_name"`
				Owner    struct {
					ID int64 `json:"id"`
				} `json:"owner"`
			} `json:"repository"`
			Sender struct {
				ID    int64  `json:"id"`
				Login string `json:"login"`
			} `json:"sender"`
		}
		must(t, json.Unmarshal(body, &says))
		branch := strings.HasPrefix(says.Ref, "refs/heads/")
		p := push.Policy{
			RepositoryID: says.Repository.ID, OwnerID: says.Repository.Owner.ID, FullName: says.Repository.FullName, Ref: says.Ref,
			Senders: []push.Sender{{ID: says.Sender.ID, Login: says.Sender.Login}},
		}
		if !branch {
			p.Ref = "refs/heads/main"
		}
		a, err := push.GitHub(p)
		must(t, err)
		got, err := a.Admit(headers(gitHubPush...), body)
		want := fencepost.ReasonNone
		switch {
		case !branch:
			want = fencepost.ReasonEventNotHandled
		case says.Deleted:
			want = fencepost.ReasonUnauthorized
		}
		seen[want]++
		if why := fencepost.ReasonOf(err); why != want || err == nil && got.Commit.String() != says.After {
			t.Errorf("%s: %v, reason %q, want %q: %v", says.Ref, got.Commit, why, want, err)
		}
	}
	if len(examples) < 3 || seen[fencepost.ReasonNone] == 0 {
		t.Errorf("%d examples, judged %v", len(examples), seen)
	}
}

func TestWhatGiteaAndForgejoSendIsAdmitted(t *testing.T) {
	t.Parallel()
	for name, forgejo := range map[string]bool{"Gitea": false, "Forgejo": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx := t.Context()
			forge, err := gitea.New(ctx, gitea.Config{Dir: filepath.Join(t.TempDir(), "forge"), Now: time.Now, Forgejo: forgejo})
			must(t, err)
			repo, err := forge.CreateRepository(ctx, gitea.Create{Owner: "acme", Name: "handbook", Files: map[string]string{"a": "a"}})
			must(t, err)
			hook := repo.AddHook(gitea.HookConfig{Secret: []byte("secret"), Events: []string{"push", "create", "delete"}, Forgejo: forgejo})
			var heads []string
			for _, p := range []forgesim.Push{{Change: oneFile("b")}, {Branch: "side", Change: oneFile("c")}, {Change: oneFile("d")}} {
				head, err := repo.Push(ctx, p)
				must(t, err)
				if p.Branch == "" {
					heads = append(heads, head)
				}
			}
			must(t, repo.DeleteBranch(ctx, "side"))
			must(t, hook.Test("refs/heads/main"))
			must(t, hook.Test("main")) // a short ref is none
			a, err := push.Gitea(push.Policy{
				RepositoryID: repo.ID(), OwnerID: repo.OwnerID(), FullName: "acme/handbook", Ref: "refs/heads/main", AnyWriter: true,
			})
			must(t, err)
			var all []sent
			for _, d := range forge.TakeOutbox() {
				r, err := forge.Request(ctx, d, "http://127.0.0.1:1/")
				must(t, err)
				all = append(all, sent{r.Header, d.Body})
			}
			wantAdmitted(t, a, all, append(heads, heads[len(heads)-1])...)
		})
	}
}
