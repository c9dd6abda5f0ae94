package gitea_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/forge/gitea"
	"github.com/fencepost/fencepost/internal/forgesim"
	forge "github.com/fencepost/fencepost/internal/forgesim/gitea"
	"github.com/fencepost/fencepost/internal/source"
	"github.com/fencepost/fencepost/internal/source/remote"
	remotegitea "github.com/fencepost/fencepost/internal/source/remote/gitea"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wantReason(t *testing.T, err error, want fencepost.Reason) {
	t.Helper()
	if got := fencepost.ReasonOf(err); got != want {
		t.Fatalf("reason %q, want %q: %v", got, want, err)
	}
}

func parseURL(t *testing.T, s string) *url.URL {
	t.Helper()
	u, err := url.Parse(s)
	must(t, err)
	return u
}

// A bench is one source at a simulated instance.
type bench struct {
	t      *testing.T
	forge  *forge.Forge
	repo   *forge.Repository
	token  string
	now    time.Time
	client *gitea.Client
	asked  *remotegitea.Repository
	remote *remote.Remote
}

func newBench(t *testing.T) *bench {
	t.Helper()
	b := &bench{t: t, now: time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)}
	var err error
	b.forge, err = forge.New(t.Context(), forge.Config{Dir: filepath.Join(t.TempDir(), "forge"), Now: func() time.Time { return b.now }})
	must(t, err)
	b.repo, err = b.forge.CreateRepository(t.Context(), forge.Create{Owner: "acme", Name: "handbook", Files: map[string]string{"a.md": "a\n"}})
	must(t, err)
	b.token = b.forge.NewToken("reader", "read:repository")
	server, err := b.forge.Start(t.Context())
	must(t, err)
	t.Cleanup(func() { must(t, server.Close()) })
	b.client, err = gitea.New(gitea.Config{
		API: parseURL(t, server.API), AllowHTTP: true, Now: func() time.Time { return b.now },
		Token: func(context.Context) (fencepost.Secret, error) { return fencepost.NewSecret([]byte(b.token)), nil },
	})
	must(t, err)
	t.Cleanup(b.client.Close)
	b.asked, err = remotegitea.New(b.client, b.repo.ID(), "acme/handbook")
	must(t, err)
	b.remote, err = remote.New(remote.Config{
		Repository: remote.Repository{ID: b.repo.ID(), OwnerID: b.repo.OwnerID(), FullName: "acme/handbook", Visibility: remote.Private},
		Ref:        "refs/heads/main", Git: parseURL(t, server.Git), AllowHTTP: true, Credential: b.client.GitCredential,
		Identity: b.asked, Ancestries: []remote.Ancestry{b.asked}, Now: func() time.Time { return b.now },
	})
	must(t, err)
	return b
}

func (b *bench) push(p forgesim.Push, name string) fencepost.CommitID {
	b.t.Helper()
	p.Change = forgesim.Change{Files: map[string]string{name: name}}
	head, err := b.repo.Push(b.t.Context(), p)
	must(b.t, err)
	return commit(b.t, head)
}

func commit(t *testing.T, s string) fencepost.CommitID {
	t.Helper()
	id, err := fencepost.ParseCommitID(s)
	must(t, err)
	return id
}

func TestTheHeadIsObserved(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for i := range 2 {
		o, err := b.remote.Observe(t.Context())
		must(t, err)
		if o.Head.String() != b.repo.Ref("refs/heads/main") {
			t.Errorf("observed %v", o.Head)
		}
		b.push(forgesim.Push{}, fmt.Sprint("b", i))
	}
	for _, r := range b.forge.Journal() {
		// Git makes its first request without asking whether it may.
		if r.By != "reader" || strings.Contains(r.Query, b.token) || strings.Contains(r.Path, b.token) {
			t.Errorf("%s %s was asked for by %s", r.Method, r.Path, r.By)
		}
	}
}

func TestWhatEndsAnObservation(t *testing.T) {
	t.Parallel()
	replace := func(b *bench) error {
		_, err := b.forge.CreateRepository(b.t.Context(), forge.Create{Owner: "acme", Name: "handbook", Files: map[string]string{"evil": "evil"}})
		return err
	}
	for _, tc := range []struct {
		name   string
		change func(*bench) error
		want   fencepost.Reason
	}{
		{"renamed", func(b *bench) error { return b.repo.Rename("manual") }, fencepost.ReasonIdentity},
		{"renamed in letter case alone", func(b *bench) error { return b.repo.Rename("Handbook") }, fencepost.ReasonIdentity},
		{"renamed, and the name taken", func(b *bench) error { return errors.Join(b.repo.Rename("manual"), replace(b)) }, fencepost.ReasonIdentity},
		{"transferred", func(b *bench) error { return b.repo.Transfer("elsewhere") }, fencepost.ReasonIdentity},
		{"deleted", func(b *bench) error { b.repo.Delete(); return nil }, fencepost.ReasonCommitGone},
		{"deleted and made anew", func(b *bench) error { b.repo.Delete(); return replace(b) }, fencepost.ReasonIdentity},
		{"made public", func(b *bench) error { b.repo.SetPrivate(false); return nil }, fencepost.ReasonIdentity},
		{"branch deleted", func(b *bench) error { return b.repo.DeleteBranch(b.t.Context(), "main") }, fencepost.ReasonCommitGone},
		{"token revoked", func(b *bench) error { b.forge.RevokeToken(b.token); return nil }, fencepost.ReasonCredential},
		{"token revoked, repository public", func(b *bench) error {
			b.repo.SetPrivate(false)
			b.forge.RevokeToken(b.token)
			return nil
		}, fencepost.ReasonCredential},
		{"token of another scope", func(b *bench) error { b.token = b.forge.NewToken("reader", "read:issue"); return nil }, fencepost.ReasonCredential},
		{"token emptied", func(b *bench) error { b.token = ""; return nil }, fencepost.ReasonCredential},
		{"down", func(b *bench) error { b.forge.SetDown(true); return nil }, fencepost.ReasonAcquisition},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			_, err := b.remote.Observe(t.Context())
			must(t, err)
			must(t, tc.change(b))
			before := len(b.forge.Journal())
			o, err := b.remote.Observe(t.Context())
			wantReason(t, err, tc.want)
			if !o.Head.IsZero() {
				t.Errorf("with an error there is the head %v", o.Head)
			}
			for _, r := range b.forge.Journal()[before:] {
				ours := strings.HasPrefix(r.Path, "/acme/handbook.git/") || strings.HasPrefix(r.Path, "/api/v1/repos/acme/handbook") ||
					r.Path == fmt.Sprintf("/api/v1/repositories/%d", b.repo.ID())
				if r.By == "anonymous" || !ours {
					t.Errorf("%s %s was asked for by %s", r.Method, r.Path, r.By)
				}
			}
			for _, secret := range []string{b.token, "acme", "127.0.0.1"} {
				if secret != "" && strings.Contains(err.Error(), secret) {
					t.Errorf("the error %q holds %q", err, secret)
				}
			}
		})
	}
}

func TestWhatFailsAnObservation(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for _, tc := range []struct {
		name   string
		answer forge.Answer
		want   fencepost.Reason
	}{
		{"API down", forge.Answer{}, fencepost.ReasonProvider},
		{"API fails", forge.Answer{Status: 500}, fencepost.ReasonProvider},
		{"API asks to wait", forge.Answer{Status: 429}, fencepost.ReasonRateLimited},
		{"API in maintenance", forge.Answer{Status: 503, Header: http.Header{"Retry-After": {"60"}}}, fencepost.ReasonRateLimited},
		{"API without a reason", forge.Answer{Status: 503}, fencepost.ReasonProvider},
		{"API answers a page", forge.Answer{Status: 200, Body: "<html>"}, fencepost.ReasonProvider},
		{"API answers too little", forge.Answer{Status: 200, Body: `{"id":1}`}, fencepost.ReasonProvider},
		{"API answers a key twice", forge.Answer{Status: 200, Body: `{"id":1,"id":1,"owner":{"id":1},"full_name":"acme/handbook","private":true}`}, fencepost.ReasonProvider},
		{"API answers without end", forge.Answer{Status: 200, Body: strings.Repeat(" ", 9<<20)}, fencepost.ReasonProvider},
		{"API redirects to a login", forge.Answer{Status: 302, Header: http.Header{"Location": {"http://elsewhere.invalid/"}}}, fencepost.ReasonIdentity},
		{"API says unchanged, unasked", forge.Answer{Status: 304}, fencepost.ReasonIdentity},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b.forge.Interfere(func(r *http.Request) *forge.Answer {
				if strings.HasPrefix(r.URL.Path, forge.APIPrefix) {
					return &tc.answer
				}
				return nil
			})
			_, err := b.remote.Observe(t.Context())
			wantReason(t, err, tc.want)
			b.forge.Interfere(nil)
			b.now = b.now.Add(time.Hour)
			_, err = b.remote.Observe(t.Context())
			must(t, err)
		})
	}
}

func TestAServerThatAsksForItIsLeftAlone(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	calls := 0
	after := http.Header{"Retry-After": {"40"}}
	b.forge.Interfere(func(*http.Request) *forge.Answer {
		calls++
		return &forge.Answer{Status: 429, Header: after}
	})
	ask := func() int {
		t.Helper()
		calls = 0
		_, err := b.asked.Identity(t.Context())
		wantReason(t, err, fencepost.ReasonRateLimited)
		return calls
	}
	if first, second := ask(), ask(); first != 1 || second != 0 {
		t.Errorf("%d requests, and %d more after it asked to wait", first, second)
	}
	b.now = b.now.Add(40 * time.Second)
	after = nil
	if ask() != 1 {
		t.Error("it is left alone for longer than it asked for")
	}
	b.now = b.now.Add(59 * time.Second)
	if ask() != 0 {
		t.Error("a server that does not say how long is asked within a minute")
	}
	b.forge.Interfere(nil)
	b.now = b.now.Add(time.Second)
	_, err := b.asked.Identity(t.Context())
	must(t, err)
}

func TestAConditionalServerIsAskedConditionally(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	body := fmt.Sprintf(`{"id":%d,"owner":{"id":%d},"full_name":"acme/handbook","private":true,"object_format_name":"sha1"}`, b.repo.ID(), b.repo.OwnerID())
	tag, unchanged := `"one"`, 0
	b.forge.Interfere(func(r *http.Request) *forge.Answer {
		if r.Header.Get("If-None-Match") == tag {
			unchanged++
			return &forge.Answer{Status: http.StatusNotModified}
		}
		return &forge.Answer{Status: 200, Header: http.Header{"Etag": {tag}}, Body: body}
	})
	want := remote.Facts{ID: b.repo.ID(), OwnerID: b.repo.OwnerID(), FullName: "acme/handbook", Private: true, ObjectFormat: "sha1"}
	ask := func(n int) {
		t.Helper()
		got, err := b.asked.Identity(t.Context())
		must(t, err)
		if got != want || unchanged != n {
			t.Errorf("facts %+v after %d answers of no change, want %+v after %d", got, unchanged, want, n)
		}
	}
	ask(0)
	ask(1)
	ask(2)
	tag, body, want.FullName = `"two"`, strings.Replace(body, "handbook", "manual", 1), "acme/manual"
	ask(2)
	ask(3)
}

func TestAncestryByCounting(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	first := commit(t, b.repo.Ref("refs/heads/main"))
	second := b.push(forgesim.Push{}, "b")
	aside := b.push(forgesim.Push{Branch: "side", Onto: first.String()}, "c")
	for _, tc := range []struct {
		name        string
		head, other fencepost.CommitID
		want        source.Ancestry
	}{
		{"same", second, second, source.Same}, {"ahead", second, first, source.Ahead}, {"behind", first, second, source.Behind},
		{"apart", second, aside, source.Apart},
	} {
		if got, err := b.asked.Ancestry(t.Context(), tc.head, tc.other); err != nil || got != tc.want {
			t.Errorf("%s: %v, %v, want %v", tc.name, got, err, tc.want)
		}
	}
	third := b.push(forgesim.Push{}, "d")
	if got, err := b.asked.Ancestry(t.Context(), third, first); err != nil || got != source.Ahead {
		t.Errorf("two ahead: %v, %v", got, err)
	}
	if got, err := b.asked.Ancestry(t.Context(), second, commit(t, strings.Repeat("ab", 20))); err != nil || got != source.Unknown {
		t.Errorf("gone: %v, %v", got, err)
	}
	if got, err := b.remote.Contains(t.Context(), second, commit(t, strings.Repeat("ab", 20))); err != nil || got != source.Unknown {
		t.Errorf("gone, as Git says: %v, %v", got, err)
	}

	answer := func(body string) (source.Ancestry, error) {
		b.forge.Interfere(func(*http.Request) *forge.Answer { return &forge.Answer{Status: 200, Body: body} })
		defer b.forge.Interfere(nil)
		return b.asked.Ancestry(t.Context(), second, first)
	}
	_, err := answer(`{"commits":[]}`)
	wantReason(t, err, fencepost.ReasonProvider)
	if got, err := answer(`{"total_commits":2,"commits":[{"parents":null}]}`); err != nil || got != source.Unknown {
		t.Errorf("a list that is not whole: %v, %v", got, err)
	}
	// Some versions list what either has: the child of the other is among it.
	if got, err := answer(`{"total_commits":2,"commits":[{"parents":[{"sha":"` + aside.String() + `"}]},{"parents":[{"sha":"` + first.String() + `"}]}]}`); err != nil || got != source.Ahead {
		t.Errorf("a list of both sides: %v, %v", got, err)
	}
	must(t, b.repo.Rename("manual"))
	_, err = b.asked.Ancestry(t.Context(), second, first)
	wantReason(t, err, fencepost.ReasonIdentity)
}

func TestConfigurationsThatAreNone(t *testing.T) {
	t.Parallel()
	good := gitea.Config{
		API: parseURL(t, "https://git.example/api/v1"), Now: time.Now,
		Token: func(context.Context) (fencepost.Secret, error) { return fencepost.Secret{}, errors.New("/etc/secret") },
	}
	for name, tc := range map[string]struct {
		change func(*gitea.Config)
		want   error
	}{
		"no api":          {func(c *gitea.Config) { c.API = nil }, fencepost.ErrMalformed},
		"a user in it":    {func(c *gitea.Config) { c.API = parseURL(t, "https://u:p@git.example") }, fencepost.ErrMalformed},
		"a query token":   {func(c *gitea.Config) { c.API = parseURL(t, "https://git.example?token=x") }, fencepost.ErrMalformed},
		"plain HTTP":      {func(c *gitea.Config) { c.API = parseURL(t, "http://git.example") }, fencepost.ErrMalformed},
		"no token":        {func(c *gitea.Config) { c.Token = nil }, fencepost.ErrZeroValue},
		"no clock":        {func(c *gitea.Config) { c.Now = nil }, fencepost.ErrZeroValue},
		"a tiny answer":   {func(c *gitea.Config) { c.Limits.MaxAnswer = 1 }, fencepost.ErrMalformed},
		"an endless wait": {func(c *gitea.Config) { c.Limits.RequestTimeout = time.Hour }, fencepost.ErrMalformed},
		"endless silence": {func(c *gitea.Config) { c.Limits.MaxQuiet = 24 * time.Hour }, fencepost.ErrMalformed},
	} {
		t.Run(name, func(t *testing.T) {
			c := good
			tc.change(&c)
			if _, err := gitea.New(c); !errors.Is(err, tc.want) {
				t.Errorf("error %v, want one that matches %v", err, tc.want)
			}
		})
	}
	client, err := gitea.New(good)
	must(t, err)
	for _, name := range []string{"", "acme", "acme/..", "acme/a/b", "acme/a?token=x", "/a"} {
		if _, err := remotegitea.New(client, 1, name); !errors.Is(err, fencepost.ErrMalformed) {
			t.Errorf("repository %q: %v, want ErrMalformed", name, err)
		}
	}
	_, _, err = client.GitCredential(t.Context())
	wantReason(t, err, fencepost.ReasonCredential)
	if strings.Contains(err.Error(), "/etc") {
		t.Errorf("the error %q holds a path of the host", err)
	}
}
