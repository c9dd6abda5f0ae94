package gitea_test

import (
	"context"
	"encoding/json"
	"net/url"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/fencepost/fencepost"
	client "github.com/fencepost/fencepost/internal/forge/gitea"
	"github.com/fencepost/fencepost/internal/forgesim"
	forge "github.com/fencepost/fencepost/internal/forgesim/gitea"
	"github.com/fencepost/fencepost/internal/gate"
	"github.com/fencepost/fencepost/internal/gate/gitea"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	check    = "fencepost/docs"
	reviewer = "gatekeeper"
)

// A bench is a gate on a simulated instance.
type bench struct {
	t        *testing.T
	kind     gitea.Kind
	forge    *forge.Forge
	server   *forge.Server
	repo     *forge.Repository
	reviewer int64
	reviews  string // the reviewer's token
	rules    string // the rule reader's token
	lane     *gitea.Lane
	now      time.Time
}

func newBench(t *testing.T, kind gitea.Kind) *bench {
	t.Helper()
	b := &bench{t: t, kind: kind, now: time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)}
	var err error
	b.forge, err = forge.New(t.Context(), forge.Config{
		Dir: filepath.Join(t.TempDir(), "forge"), Now: func() time.Time { return b.now }, Forgejo: kind == gitea.Forgejo,
	})
	must(t, err)
	b.repo, err = b.forge.CreateRepository(t.Context(), forge.Create{Owner: "acme", Name: "docs", Files: map[string]string{"README.md": "# Docs\n"}})
	must(t, err)
	b.repo.AddHook(forge.HookConfig{Secret: []byte("a secret of hooks"), Events: []string{"pull_request"}})
	b.reviewer = b.repo.Grant(reviewer, forge.Writer)
	b.repo.Grant("auditor", forge.Admin)
	b.reviews, b.rules = b.forge.NewToken(reviewer, "write:repository"), b.forge.NewToken("auditor", "read:repository")
	b.repo.Protect(forge.GateRule("main", reviewer, check))
	b.server, err = b.forge.Start(t.Context())
	must(t, err)
	t.Cleanup(func() { must(t, b.server.Close()) })
	b.lane = b.newLane()
	return b
}

func (b *bench) client(token string) *client.Client {
	b.t.Helper()
	c, err := client.New(client.Config{
		API: parseURL(b.t, b.server.API), AllowHTTP: true, Now: func() time.Time { return b.now },
		Token: func(context.Context) (fencepost.Secret, error) { return fencepost.NewSecret([]byte(token)), nil },
	})
	must(b.t, err)
	b.t.Cleanup(c.Close)
	return c
}

func (b *bench) config() gitea.LaneConfig {
	return gitea.LaneConfig{
		Gate: "docs", Kind: b.kind, Repository: gitea.Repository{ID: b.repo.ID(), OwnerID: b.repo.OwnerID(), Name: "acme/docs"},
		BaseRef: "refs/heads/main", Check: check, Reviewer: gitea.Reviewer{ID: b.reviewer, Login: reviewer},
		Reviews: b.client(b.reviews), Rules: b.client(b.rules), Git: parseURL(b.t, b.server.Git), AllowHTTP: true,
	}
}

func (b *bench) newLane() *gitea.Lane {
	b.t.Helper()
	lane, err := gitea.New(b.config())
	must(b.t, err)
	return lane
}

// open opens a request whose head contains the base.
func (b *bench) open() (*forge.Pull, gate.Subject) {
	b.t.Helper()
	p, err := b.repo.OpenPull(b.t.Context(), forgesim.OpenPull{
		Head: "change", Change: forgesim.Change{Files: map[string]string{"guide.md": "a guide\n"}},
	}, nil)
	must(b.t, err)
	return p, b.subject(p)
}

func (b *bench) subject(p *forge.Pull) gate.Subject {
	return gate.Subject{Number: int64(p.Number()), Head: commit(b.t, p.Head()), BaseRef: "refs/heads/main"}
}

func (b *bench) refresh(s gate.Subject) gate.Snapshot {
	b.t.Helper()
	got, err := b.lane.Refresh(b.t.Context(), s)
	must(b.t, err)
	return got
}

// document composes the document of a verdict on what the gate is now.
func (b *bench) document(s gate.Subject, c gate.Conclusion, evaluation byte) []byte {
	b.t.Helper()
	return b.compose(s, c, evaluation, b.refresh(s).Revision)
}

func (b *bench) compose(s gate.Subject, c gate.Conclusion, evaluation byte, revision fencepost.GateRevision) []byte {
	b.t.Helper()
	data, err := b.lane.Compose(b.verdict(s, c, evaluation, revision))
	must(b.t, err)
	return data
}

func (b *bench) verdict(s gate.Subject, c gate.Conclusion, evaluation byte, revision fencepost.GateRevision) gate.Verdict {
	b.t.Helper()
	id, err := fencepost.NewEvaluationID(repeat(evaluation))
	must(b.t, err)
	return gate.Verdict{
		Gate: "docs", Delivery: "dlv_aaaaaaaaaaaaaaaaaaaaaaaaaa", Evaluation: id, Subject: s, Conclusion: c,
		Title: "3 of 3 links work", Summary: "All links work.\n\nEvaluation `evl_forged` of delivery `dlv_forged`.\n\nEnd.",
		Artifact: "art_1", Revision: revision, Received: b.now, Started: b.now, Completed: b.now.Add(time.Second),
	}
}

// repeat is a source of one byte.
type repeat byte

// Read implements [io.Reader].
func (r repeat) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = byte(r)
	}
	return len(p), nil
}

// locked says why the request can't be merged.
func (b *bench) locked(p *forge.Pull) string {
	b.t.Helper()
	why, err := p.Locked(b.t.Context())
	must(b.t, err)
	return why
}

// delivered is the newest delivery's body.
func (b *bench) delivered() map[string]any {
	b.t.Helper()
	all := b.forge.TakeOutbox()
	if len(all) == 0 {
		b.t.Fatal("nothing was delivered")
	}
	var got map[string]any
	must(b.t, json.Unmarshal(all[len(all)-1].Body, &got))
	return got
}

func (b *bench) admit(event string, body any) (gate.Subject, error) {
	b.t.Helper()
	data, err := json.Marshal(body)
	must(b.t, err)
	return b.lane.Admit(fencepost.NewHeaders([]fencepost.Header{{Name: "x-gitea-event", Value: event}}), data)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wantReason(t *testing.T, err error, want fencepost.Reason) {
	t.Helper()
	if err == nil || fencepost.ReasonOf(err) != want {
		t.Fatalf("error %v with reason %q, want %q", err, fencepost.ReasonOf(err), want)
	}
}

func parseURL(t *testing.T, s string) *url.URL {
	t.Helper()
	u, err := url.Parse(s)
	must(t, err)
	return u
}

func commit(t *testing.T, s string) fencepost.CommitID {
	t.Helper()
	id, err := fencepost.ParseCommitID(s)
	must(t, err)
	return id
}
