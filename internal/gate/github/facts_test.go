package github_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/forgesim"
	"github.com/fencepost/fencepost/internal/gate/github"
)

// sourceClient is a client of the bench's App, or with a token.
func (b *bench) sourceClient(token func() string) (*github.Client, github.Repository) {
	b.t.Helper()
	config := github.ClientConfig{
		API: parseURL(b.t, "http://forge.invalid/api/v3"), AllowHTTP: true, Transport: b.forge.RoundTripper(), Limits: quick(), Now: time.Now,
	}
	if token != nil {
		config.Token = func(context.Context) (fencepost.Secret, error) { return fencepost.NewSecret([]byte(token())), nil }
	} else {
		config.App = github.App{ID: b.forge.App().ID(), Installation: b.inst.ID(), Key: keyOf(pkcs1(appKey()))}
	}
	client, err := github.NewClient(config)
	must(b.t, err)
	return client, github.Repository{ID: b.repo.ID(), OwnerID: b.repo.OwnerID(), Name: "acme/docs"}
}

func TestRepositoryFactsAreOneConditionalRequest(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"App", "token"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			var token func() string
			if how == "token" {
				mine, err := b.repo.PersonalToken("mona", nil)
				must(t, err)
				token = func() string { return mine }
			}
			client, r := b.sourceClient(token)
			want := github.RepositoryFacts{ID: r.ID, OwnerID: r.OwnerID, FullName: "acme/docs", Private: true}
			for i := range 3 {
				before := len(b.forge.Journal())
				got, err := client.RepositoryFacts(t.Context(), r)
				must(t, err)
				if got != want {
					t.Errorf("facts %+v, want %+v", got, want)
				}
				if asked := b.forge.Journal()[before:]; i > 0 && (len(asked) != 1 || asked[0].Status != http.StatusNotModified) {
					t.Errorf("look %d: %d exchanges, the first answered %d", i, len(asked), asked[0].Status)
				}
			}
			b.repo.SetPublic(true)
			want.Private = false
			if got, err := client.RepositoryFacts(t.Context(), r); err != nil || got != want {
				t.Errorf("facts %+v, %v, want %+v", got, err, want)
			}
		})
	}
}

func TestARepositoryThatIsHidden(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		change func(*bench)
		want   fencepost.Reason
	}{
		"moved":       {func(b *bench) { must(b.t, b.repo.Rename("manual")) }, fencepost.ReasonIdentity},
		"transferred": {func(b *bench) { must(b.t, b.repo.Transfer("elsewhere")) }, fencepost.ReasonIdentity},
		"deleted":     {func(b *bench) { b.repo.Delete() }, fencepost.ReasonCommitGone},
		"taken out":   {func(b *bench) { b.inst.Remove(b.repo) }, fencepost.ReasonCommitGone},
		"suspended":   {func(b *bench) { b.inst.Suspend(true) }, fencepost.ReasonCredential},
		"uninstalled": {func(b *bench) { b.inst.Uninstall() }, fencepost.ReasonCredential},
		"hidden today": {func(b *bench) {
			b.forge.Inject(forgesim.Fault{On: "GET /repos/{owner}/{repo}", Effect: forgesim.Fail{Code: 404}})
		}, fencepost.ReasonProvider},
		"no metadata": {func(b *bench) {
			b.inst.SetPermissions(forgesim.Permissions{"checks": "write"})
			b.forge.RevokeTokens()
		}, fencepost.ReasonCredential},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			client, r := b.sourceClient(nil)
			_, err := client.RepositoryFacts(t.Context(), r)
			must(t, err)
			tc.change(b)
			_, err = client.RepositoryFacts(t.Context(), r)
			wantReason(t, err, tc.want)
			wantClean(t, err, "acme", "ghs_")
		})
	}
}

func TestATokenIsReadAnewAndCantSpeakAsAnApp(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	mine, err := b.repo.PersonalToken("mona", nil)
	must(t, err)
	client, r := b.sourceClient(func() string { return mine })
	_, err = client.RepositoryFacts(t.Context(), r)
	must(t, err)
	old := mine
	mine, err = b.repo.PersonalToken("mona", nil)
	must(t, err)
	b.forge.RevokeToken(old)
	_, err = client.RepositoryFacts(t.Context(), r)
	must(t, err)
	if user, secret, err := client.GitCredential(t.Context(), r); err != nil || user != "x-access-token" || string(secret.Reveal()) != mine {
		t.Errorf("git's credential is of %q, %v", user, err)
	}
	mine = ""
	_, err = client.RepositoryFacts(t.Context(), r)
	wantReason(t, err, fencepost.ReasonCredential)
	if _, err := github.NewLane(client, github.LaneConfig{Gate: "docs"}); !errors.Is(err, fencepost.ErrMalformed) || !strings.Contains(err.Error(), "App") {
		t.Errorf("a gate with a token: %v, want one that says it needs an App", err)
	}
	_, err = github.NewClient(github.ClientConfig{
		API: parseURL(t, "https://api.example"), Now: fixedNow, App: github.App{ID: 1},
		Token: func(context.Context) (fencepost.Secret, error) { return fencepost.Secret{}, nil },
	})
	if !errors.Is(err, fencepost.ErrMalformed) {
		t.Errorf("App and token: %v, want ErrMalformed", err)
	}
}

func TestCompareTellsHowCommitsStand(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	client, r := b.sourceClient(nil)
	push := func(p forgesim.Push) fencepost.CommitID {
		t.Helper()
		id, err := b.repo.Push(t.Context(), p)
		must(t, err)
		return parseCommit(t, id)
	}
	first := parseCommit(t, b.repo.Ref("refs/heads/main"))
	second := push(forgesim.Push{Change: forgesim.Change{Files: map[string]string{"a": "a"}}})
	aside := push(forgesim.Push{Branch: "side", Onto: first.String(), Change: forgesim.Change{Files: map[string]string{"b": "b"}}})
	for _, tc := range []struct {
		head, other fencepost.CommitID
		want        github.Comparison
	}{
		{second, second, github.Identical}, {second, first, github.Ahead}, {first, second, github.Behind},
		{second, aside, github.Diverged}, {second, parseCommit(t, strings.Repeat("ab", 20)), github.NotComparable},
	} {
		if got, err := client.Compare(t.Context(), r, tc.head, tc.other); err != nil || got != tc.want {
			t.Errorf("%v to %v: %v, %v, want %v", tc.head, tc.other, got, err, tc.want)
		}
	}
	must(t, b.repo.Rename("manual"))
	_, err := client.Compare(t.Context(), r, second, first)
	wantReason(t, err, fencepost.ReasonIdentity)
}

func parseCommit(t *testing.T, s string) fencepost.CommitID {
	t.Helper()
	id, err := fencepost.ParseCommitID(s)
	must(t, err)
	return id
}
