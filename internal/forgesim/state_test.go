package forgesim_test

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fencepost/fencepost/internal/forgesim"
)

func TestWhatTestsReadOfTheState(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	pr := b.open("change")
	must(t, b.repo.PostStatus(t.Context(), forgesim.Status{SHA: pr.Head(), State: "success"}))
	b.get("/repos/acme/docs")
	got := map[string]any{
		"base": pr.Base(), "repository": pr.Repository().FullName(), "owner": b.repo.OwnerID() > 0, "id": pr.ID() > 1<<31,
		"same request": b.repo.PullRequest(1) == pr, "no request": b.repo.PullRequest(2) == nil,
		"head": b.repo.Refs()["refs/heads/change"] == pr.Head(), "status": b.repo.Statuses("")[0].Context,
		"counts": b.forge.Counts()["GET /repos/{owner}/{repo}"], "slug": b.forge.App().Slug(),
	}
	want := map[string]any{
		"base": "main", "repository": "acme/docs", "owner": true, "id": true, "same request": true, "no request": true,
		"head": true, "status": "default", "counts": 1, "slug": "fencepost",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("state (-want +got):\n%s", diff)
	}
	block, _ := pem.Decode(b.forge.App().KeyPEM())
	key, err := x509.ParsePKCS1PrivateKey(block.Bytes)
	if err != nil || !key.Equal(b.forge.App().Key()) {
		t.Errorf("the PEM holds another key, or none: %v", err)
	}
}

func TestTwoAppsDiffer(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for _, config := range []forgesim.AppConfig{{ID: ours, Slug: "other"}, {ID: 7, Slug: "fencepost"}, {ID: 7}, {Slug: "other"}} {
		config.Key = appKey()
		if _, err := b.forge.AddApp(config); !errors.Is(err, forgesim.ErrConfig) {
			t.Errorf("App %d %q: error %v, want ErrConfig", config.ID, config.Slug, err)
		}
	}
}

func TestTheJournalIsBoundedAndCountsGoOn(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(c *forgesim.Config) { c.JournalLimit = 3 })
	for range 5 {
		b.get("/repos/acme/docs")
	}
	journal := b.forge.Journal()
	if len(journal) != 3 || journal[0].Seq != 3 || b.forge.Count("GET /repos/{owner}/{repo}") != 5 {
		t.Errorf("%d exchanges from %d, %d counted; want 3 from 3 of 5", len(journal), journal[0].Seq, b.forge.Count("GET /repos/{owner}/{repo}"))
	}
}

func TestBodiesAreBounded(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	_, err := b.ask("POST", "/repos/acme/docs/check-runs", b.token, strings.Repeat(" ", 4<<20+1))
	if !errors.Is(err, forgesim.ErrDropped) {
		t.Errorf("error %v, want ErrDropped", err)
	}
	b.want(http.StatusUnprocessableEntity, "POST", "/repos/acme/docs/check-runs", strings.Repeat(" ", 1<<20)+"{}")
}

// A hook that gets its URL late gets what waited for it.
func TestANewHookGetsWhatWaited(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	server, err := b.forge.Start(t.Context())
	must(t, err)
	b.forge.App().Ping()
	r, url := newReceiver(t)
	b.forge.App().SetHook(url, nil)
	<-r.arrived
	must(t, server.Close())
}
