package forgesim_test

import (
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost/internal/forgesim"
	"github.com/fencepost/fencepost/internal/forgesim/githubspec"
)

func TestARepositorysOwnHookIsThePublishedOne(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.inst.Uninstall()
	ctx, spec, secret := t.Context(), githubspec.Load(t), []byte("secret of the repository")
	hook := b.repo.AddHook("http://127.0.0.1:1/hook", secret)
	_, err := b.repo.Push(ctx, forgesim.Push{Change: files("a")})
	must(t, err)
	_, err = b.repo.Push(ctx, forgesim.Push{Branch: "side", Change: files("b")})
	must(t, err)
	_, err = b.repo.Push(ctx, forgesim.Push{Branch: "side", Onto: b.repo.Ref("refs/heads/main"), Change: files("c")})
	must(t, err)
	must(t, b.repo.DeleteBranch(ctx, "side"))
	var seen []string
	for _, d := range b.forge.TakeOutbox() {
		request, err := b.forge.Request(ctx, d, "http://127.0.0.1:1/hook")
		must(t, err)
		if err := spec.CheckWebhook(request.Header, d.Body); err != nil {
			t.Errorf("%v", err)
		}
		if unlike := spec.Compare(d.Event, d.Action, withInstallation(t, d.Body)); unlike != nil {
			t.Errorf("%s: %v", d.Event, unlike)
		}
		if strings.Contains(string(d.Body), `"installation":`) {
			t.Errorf("%s names an installation", d.Event)
		}
		if request.Header.Get("X-Hub-Signature-256") != "sha256="+forgesim.Sign(secret, d.Body) ||
			request.Header.Get("X-GitHub-Hook-Installation-Target-Type") != "repository" {
			t.Errorf("%s has the headers %v", d.Event, request.Header)
		}
		seen = append(seen, d.Event)
	}
	if want := []string{"ping", "push", "push", "push", "push"}; !slices.Equal(seen, want) {
		t.Errorf("deliveries %v, want %v", seen, want)
	}
	r, url := newReceiver(t)
	hook.Set(url, secret)
	_, err = b.repo.Push(ctx, forgesim.Push{Change: files("d")})
	must(t, err)
	must(t, b.forge.Deliver(ctx))
	if n := len(r.got()); n != 1 {
		t.Errorf("%d requests arrived, want one", n)
	}
}

// withInstallation adds what each published example of an App's hook has.
func withInstallation(t *testing.T, body []byte) []byte {
	t.Helper()
	var o map[string]any
	must(t, json.Unmarshal(body, &o))
	o["installation"] = map[string]any{"id": 1, "node_id": "x"}
	made, err := json.Marshal(o)
	must(t, err)
	return made
}

func TestLostWebhooksAreInTheLogAlone(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(c *forgesim.Config) { c.Hostility = forgesim.Hostility{Seed: 3, Lose: 0.3} })
	r, url := newReceiver(t)
	b.forge.App().SetHook(url, nil)
	for range 60 {
		b.forge.App().Ping()
	}
	must(t, b.forge.Deliver(t.Context()))
	lost := 0
	for _, d := range b.forge.Deliveries() {
		if d.StatusCode == 0 {
			lost++
		}
	}
	if got := len(r.got()); lost < 6 || lost > 40 || got+lost != 60 {
		t.Errorf("%d arrived and %d are lost of 60", got, lost)
	}
}

func TestLateWebhooksWaitForTheirTime(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(c *forgesim.Config) {
		c.Hostility = forgesim.Hostility{Seed: 5, Late: 0.5, LateBy: time.Minute}
	})
	r, url := newReceiver(t)
	b.forge.App().SetHook(url, nil)
	for range 40 {
		b.forge.App().Ping()
	}
	must(t, b.forge.Deliver(t.Context()))
	early := len(r.got())
	if early == 0 || early == 40 || len(b.forge.Outbox()) != 40-early {
		t.Fatalf("%d of 40 arrived at once, %d wait", early, len(b.forge.Outbox()))
	}
	b.clock.Advance(time.Minute)
	must(t, b.forge.Deliver(t.Context()))
	if n := len(r.got()); n != 40 {
		t.Errorf("%d of 40 arrived in the end", n)
	}
}

func TestWhileDownNothingIsAnsweredOrSent(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	r, url := newReceiver(t)
	b.forge.App().SetHook(url, nil)
	b.forge.SetDown(true)
	if _, err := b.ask("GET", "/repos/acme/docs", b.token, ""); !errors.Is(err, forgesim.ErrDropped) {
		t.Errorf("a call to a forge that is down: %v, want ErrDropped", err)
	}
	_, err := b.repo.Push(t.Context(), forgesim.Push{Change: files("a")})
	must(t, err)
	must(t, b.forge.Deliver(t.Context()))
	if n := len(r.got()); n != 0 {
		t.Errorf("%d webhooks left a forge that is down", n)
	}
	b.forge.SetDown(false)
	b.get("/repos/acme/docs")
	must(t, b.forge.Deliver(t.Context()))
	if n := len(r.got()); n != 1 {
		t.Errorf("%d webhooks arrived after it, want the push", n)
	}
}

func TestFrozenRefsAreThoseOfYesterday(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	ctx := t.Context()
	_, err := b.repo.Push(ctx, forgesim.Push{Branch: "main-2", To: b.repo.Ref("refs/heads/main")})
	must(t, err)
	server := b.start()
	list := func() map[string]string {
		t.Helper()
		refs := map[string]string{}
		for line := range strings.SplitSeq(strings.TrimSpace(git(t, t.TempDir(), "-c", "protocol.version=2", "-c", basic(b.token)[1],
			"ls-remote", server.Git+"/acme/docs.git", "refs/heads/*")), "\n") {
			id, name, _ := strings.Cut(line, "\t")
			refs[name] = id
		}
		return refs
	}
	before := list()
	frozen := b.repo.FreezeRefs()
	now, err := b.repo.Push(ctx, forgesim.Push{Change: files("a")})
	must(t, err)
	if got := list(); !maps.Equal(got, before) {
		t.Errorf("frozen refs are %v, want %v", got, before)
	}
	frozen.End()
	before["refs/heads/main"] = now
	if got := list(); !maps.Equal(got, before) {
		t.Errorf("refs are %v, want %v", got, before)
	}
}

func TestComparisonsTellAncestry(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	ctx := t.Context()
	first := b.repo.Ref("refs/heads/main")
	second, err := b.repo.Push(ctx, forgesim.Push{Change: files("a")})
	must(t, err)
	third, err := b.repo.Push(ctx, forgesim.Push{Change: files("b")})
	must(t, err)
	aside, err := b.repo.Push(ctx, forgesim.Push{Branch: "side", Onto: second, Change: files("c")})
	must(t, err)
	for _, test := range []struct {
		base, head, status string
		ahead, behind      float64
	}{
		{first, third, "ahead", 2, 0},
		{third, first, "behind", 0, 2},
		{third, third, "identical", 0, 0},
		{third, aside, "diverged", 1, 1},
		{"main", "side", "diverged", 1, 1},
	} {
		got := b.get("/repos/acme/docs/compare/" + test.base + "..." + test.head + "?per_page=1").object(t)
		if got["status"] != test.status || got["ahead_by"] != test.ahead || got["behind_by"] != test.behind || got["total_commits"] != test.ahead ||
			len(got["commits"].([]any)) > 1 {
			t.Errorf("%.7s...%.7s: %v, %v ahead, %v behind", test.base, test.head, got["status"], got["ahead_by"], got["behind_by"])
		}
	}
	b.want(404, "GET", "/repos/acme/docs/compare/"+strings.Repeat("ab", 20)+"..."+third, "")
	b.want(404, "GET", "/repos/acme/docs/compare/"+third, "")
}

func TestAPersonsTokenReadsOneRepository(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	other, err := b.forge.ImportRepository(t.Context(), forgesim.Import{Owner: "acme", Name: "other", Files: map[string]string{"a": "a"}})
	must(t, err)
	mine, err := b.repo.PersonalToken("mona", nil)
	must(t, err)
	if _, err := b.repo.PersonalToken("mona", forgesim.Permissions{"checks": "write"}); !errors.Is(err, forgesim.ErrConfig) {
		t.Errorf("a token that writes: %v, want ErrConfig", err)
	}
	b.wantAs(mine, 200, "GET", "/repos/acme/docs", "")
	b.wantAs(mine, 200, "GET", "/repos/acme/docs/git/ref/heads/main", "")
	b.wantAs(mine, 403, "GET", "/repos/acme/docs/pulls", "")
	b.wantAs(mine, 403, "GET", "/installation/repositories", "")
	b.wantAs(mine, 404, "GET", "/repos/"+other.FullName(), "")
	other.SetPublic(true)
	b.wantAs(mine, 200, "GET", "/repos/"+other.FullName(), "")
	must(t, b.repo.Transfer("elsewhere"))
	b.wantAs(mine, 404, "GET", "/repos/elsewhere/docs", "")
	b.forge.RevokeToken(mine)
	b.wantAs(mine, 401, "GET", "/repos/acme/other", "")
}

func TestAnUninstalledAppIsOutside(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.inst.Uninstall()
	b.wantAs(b.token, 401, "GET", "/repos/acme/docs", "")
	b.wantAs(b.jwt(), 404, "GET", "/repos/acme/docs/installation", "")
	_, err := b.repo.Push(t.Context(), forgesim.Push{Change: files("a")})
	must(t, err)
	if n := len(b.forge.Outbox()); n != 0 {
		t.Errorf("%d deliveries were made for an App that is not installed", n)
	}
}

func TestAStartedForgeSendsWhatIsLateByItself(t *testing.T) {
	t.Parallel()
	forge, err := forgesim.New(t.Context(), forgesim.Config{
		Dir: t.TempDir() + "/forge", Now: time.Now, App: forgesim.AppConfig{Key: appKey()},
		Hostility: forgesim.Hostility{Late: 1, LateBy: 50 * time.Millisecond},
	})
	must(t, err)
	r, url := newReceiver(t)
	forge.App().SetHook(url, nil)
	server, err := forge.Start(t.Context())
	must(t, err)
	for range 3 {
		forge.App().Ping()
	}
	for range 3 {
		<-r.arrived
	}
	must(t, server.Close())
	for _, d := range forge.Deliveries() {
		if !d.Due.After(d.Made) || d.DeliveredAt.Before(d.Due) {
			t.Errorf("a delivery due %v after it was made left %v after that", d.Due.Sub(d.Made), d.DeliveredAt.Sub(d.Made))
		}
	}
}
