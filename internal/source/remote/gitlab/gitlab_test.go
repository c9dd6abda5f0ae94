package gitlab_test

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
	"github.com/fencepost/fencepost/internal/forge/gitlab"
	"github.com/fencepost/fencepost/internal/forgesim"
	forge "github.com/fencepost/fencepost/internal/forgesim/gitlab"
	"github.com/fencepost/fencepost/internal/source"
	"github.com/fencepost/fencepost/internal/source/remote"
	remotegitlab "github.com/fencepost/fencepost/internal/source/remote/gitlab"
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

const path = "acme/books/handbook"

// A bench is one source at a simulated instance.
type bench struct {
	t       *testing.T
	forge   *forge.Forge
	project *forge.Project
	token   string
	now     time.Time
	asked   *remotegitlab.Project
	remote  *remote.Remote
}

func newBench(t *testing.T) *bench {
	t.Helper()
	b := &bench{t: t, now: time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)}
	now := func() time.Time { return b.now }
	var err error
	b.forge, err = forge.New(t.Context(), forge.Config{Dir: filepath.Join(t.TempDir(), "forge"), Now: now})
	must(t, err)
	t.Cleanup(func() { must(t, b.forge.Close()) })
	b.project, err = b.forge.CreateProject(t.Context(), forge.Create{Namespace: "acme/books", Name: "handbook", Files: map[string]string{"a.md": "a\n"}})
	must(t, err)
	b.token = b.forge.NewToken("reader", forge.Reporter, "read_api", "read_repository")
	server, err := b.forge.Start(t.Context())
	must(t, err)
	t.Cleanup(func() { must(t, server.Close()) })
	client, err := gitlab.New(gitlab.Config{
		API: parseURL(t, server.API), AllowHTTP: true, Now: now,
		Token: func(context.Context) (fencepost.Secret, error) { return fencepost.NewSecret([]byte(b.token)), nil },
	})
	must(t, err)
	t.Cleanup(client.Close)
	b.asked, err = remotegitlab.New(client, b.project.ID(), path)
	must(t, err)
	b.remote, err = remote.New(remote.Config{
		Repository: remote.Repository{ID: b.project.ID(), OwnerID: b.project.NamespaceID(), FullName: path, Visibility: remote.Private},
		Ref:        "refs/heads/main", Git: parseURL(t, server.Git), AllowHTTP: true, Credential: client.GitCredential,
		Identity: b.asked, Ancestries: []remote.Ancestry{b.asked}, Now: now,
	})
	must(t, err)
	return b
}

func (b *bench) push(p forgesim.Push, name string) fencepost.CommitID {
	b.t.Helper()
	p.Change = forgesim.Change{Files: map[string]string{name: name}}
	head, err := b.project.Push(b.t.Context(), p)
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
		if o.Head.String() != b.project.Ref("refs/heads/main") {
			t.Errorf("observed %v", o.Head)
		}
		b.push(forgesim.Push{}, fmt.Sprint("b", i))
	}
	for _, r := range b.forge.Journal() {
		if r.By != "reader" || strings.Contains(r.Query, b.token) || strings.Contains(r.Path, b.token) {
			t.Errorf("%s %s was asked for by %s", r.Method, r.Path, r.By)
		}
	}
	if n := b.forge.GitRefused(); n != 0 {
		t.Errorf("%d requests of git came without a credential", n)
	}
}

func TestWhatEndsAnObservation(t *testing.T) {
	t.Parallel()
	replace := func(b *bench) error {
		_, err := b.forge.CreateProject(b.t.Context(), forge.Create{Namespace: "acme/books", Name: "handbook", Files: map[string]string{"evil": "evil"}})
		return err
	}
	for _, tc := range []struct {
		name   string
		change func(*bench) error
		want   fencepost.Reason
	}{
		{"renamed", func(b *bench) error { return b.project.Rename("manual") }, fencepost.ReasonIdentity},
		{"renamed in letter case alone", func(b *bench) error { return b.project.Rename("Handbook") }, fencepost.ReasonIdentity},
		{"renamed, and the path taken", func(b *bench) error { return errors.Join(b.project.Rename("manual"), replace(b)) }, fencepost.ReasonIdentity},
		{"transferred", func(b *bench) error { return b.project.Transfer("elsewhere") }, fencepost.ReasonIdentity},
		{"deleted", func(b *bench) error { b.project.Delete(); return nil }, fencepost.ReasonCommitGone},
		{"deleted and made anew", func(b *bench) error { b.project.Delete(); return replace(b) }, fencepost.ReasonIdentity},
		{"made public", func(b *bench) error { b.project.SetVisibility("public"); return nil }, fencepost.ReasonIdentity},
		{"of another object format", func(b *bench) error {
			b.project.Set(func(s *forge.Settings) { s.ObjectFormat = "sha256" })
			return nil
		}, fencepost.ReasonIdentity},
		{"branch deleted", func(b *bench) error { return b.project.DeleteBranch(b.t.Context(), "main") }, fencepost.ReasonCommitGone},
		{"token revoked", func(b *bench) error { b.forge.RevokeToken(b.token); return nil }, fencepost.ReasonCredential},
		{"token of another scope", func(b *bench) error {
			b.token = b.forge.NewToken("reader", forge.Reporter, "read_repository")
			return nil
		}, fencepost.ReasonCredential},
		{"token emptied", func(b *bench) error { b.token = ""; return nil }, fencepost.ReasonCredential},
		{"down", func(b *bench) error { b.forge.SetDown(true); return nil }, fencepost.ReasonAcquisition},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			must(t, tc.change(b))
			o, err := b.remote.Observe(t.Context())
			wantReason(t, err, tc.want)
			if !o.Head.IsZero() {
				t.Errorf("with an error there is the head %v", o.Head)
			}
			for _, r := range b.forge.Journal() {
				if r.By == "anonymous" {
					t.Errorf("%s %s was asked for by nobody", r.Method, r.Path)
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
		answer *forge.Answer
		want   fencepost.Reason
	}{
		{"API down", &forge.Answer{}, fencepost.ReasonProvider},
		{"API fails", forge.Broken(), fencepost.ReasonProvider},
		{"API asks to wait", b.forge.TooMany(time.Minute), fencepost.ReasonRateLimited},
		{"API answers a page", &forge.Answer{Status: 200, Body: "<html>"}, fencepost.ReasonProvider},
		{"API answers too little", &forge.Answer{Status: 200, Body: `{"id":1}`}, fencepost.ReasonProvider},
		{"API redirects to a login", &forge.Answer{Status: 302, Header: http.Header{"Location": {"http://elsewhere.invalid/"}}}, fencepost.ReasonIdentity},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b.forge.Interfere(func(r *http.Request) *forge.Answer {
				if strings.HasPrefix(r.URL.Path, forge.APIPrefix) {
					return tc.answer
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

func TestAncestryByTheMergeBase(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	first := commit(t, b.project.Ref("refs/heads/main"))
	second := b.push(forgesim.Push{}, "b")
	third := b.push(forgesim.Push{}, "d")
	aside := b.push(forgesim.Push{Branch: "side", Onto: first.String()}, "c")
	gone := commit(t, strings.Repeat("ab", 20))
	for _, tc := range []struct {
		name        string
		head, other fencepost.CommitID
		want        source.Ancestry
	}{
		{"same", second, second, source.Same}, {"ahead", second, first, source.Ahead}, {"two ahead", third, first, source.Ahead},
		{"behind", first, second, source.Behind}, {"apart", second, aside, source.Apart}, {"gone", second, gone, source.Unknown},
	} {
		before := len(b.forge.Journal())
		if got, err := b.asked.Ancestry(t.Context(), tc.head, tc.other); err != nil || got != tc.want {
			t.Errorf("%s: %v, %v, want %v", tc.name, got, err, tc.want)
		}
		if asked := len(b.forge.Journal()) - before; asked > 1 {
			t.Errorf("%s: %d requests", tc.name, asked)
		}
	}
	for body, want := range map[string]fencepost.Reason{`{"message":"x"}`: fencepost.ReasonProvider, `[`: fencepost.ReasonProvider} {
		b.forge.Interfere(func(*http.Request) *forge.Answer { return &forge.Answer{Status: 200, Body: body} })
		_, err := b.asked.Ancestry(t.Context(), second, first)
		wantReason(t, err, want)
	}
	b.forge.Interfere(func(*http.Request) *forge.Answer { return &forge.Answer{Status: 404, Body: "{}"} })
	if got, err := b.asked.Ancestry(t.Context(), second, first); err != nil || got != source.Unknown {
		t.Errorf("without a merge base: %v, %v", got, err)
	}
}

func TestProjectsThatAreNone(t *testing.T) {
	t.Parallel()
	client, err := gitlab.New(gitlab.Config{API: parseURL(t, "https://gitlab.example/api/v4"), Now: time.Now, Anonymous: true})
	must(t, err)
	for _, tc := range []struct {
		id   int64
		path string
	}{{0, path}, {1, ""}, {1, "acme"}, {1, "acme/.."}, {1, "acme/a?token=x"}, {1, "/a"}, {1, "a//b"}} {
		if _, err := remotegitlab.New(client, tc.id, tc.path); !errors.Is(err, fencepost.ErrMalformed) {
			t.Errorf("project %d %q: %v, want ErrMalformed", tc.id, tc.path, err)
		}
	}
}
