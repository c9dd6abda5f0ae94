package gitea_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/forgesim"
	forge "github.com/fencepost/fencepost/internal/forgesim/gitea"
	"github.com/fencepost/fencepost/internal/gate"
	"github.com/fencepost/fencepost/internal/gate/gitea"
)

func TestAProvenGate(t *testing.T) {
	t.Parallel()
	for _, kind := range []gitea.Kind{gitea.Gitea, gitea.Forgejo} {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			b := newBench(t, kind)
			_, s := b.open()
			got := b.refresh(s)
			if got.State != fencepost.ReasonNone || got.Head.ID != s.Head || got.Candidate != got.Head || got.Base.ID.String() != b.repo.Ref("refs/heads/main") {
				t.Fatalf("%+v", got)
			}
			for _, f := range got.Facts {
				if !f.Met() {
					t.Errorf("fact %s: %q, want %q", f.Name, f.Observed, f.Expected)
				}
			}
			if again := b.refresh(s); again.Revision != got.Revision {
				t.Error("nothing changed, and the revision is another")
			}
			if other := b.newLane(); other != nil {
				b.lane = other
				if again := b.refresh(s); again.Revision != got.Revision {
					t.Error("a new process sees another revision")
				}
			}
		})
	}
}

// TestASettingThatLetsSomebodyPast changes one setting of a proven rule at a
// time: each must leave the gate unproven and change the revision.
func TestASettingThatLetsSomebodyPast(t *testing.T) {
	t.Parallel()
	type proven struct {
		*bench
		asked  gate.Subject
		proven fencepost.GateRevision
	}
	benches := map[gitea.Kind]proven{}
	for _, kind := range []gitea.Kind{gitea.Gitea, gitea.Forgejo} {
		b := newBench(t, kind)
		_, s := b.open()
		benches[kind] = proven{b, s, b.refresh(s).Revision}
	}
	for name, tc := range map[string]struct {
		kind   gitea.Kind
		change func(r *forge.Rule)
	}{
		"no rule":                         {gitea.Gitea, func(r *forge.Rule) { *r = forge.Rule{} }},
		"a rule of another branch":        {gitea.Gitea, func(r *forge.Rule) { r.Name = "stable" }},
		"pushes":                          {gitea.Gitea, func(r *forge.Rule) { r.Push = true }},
		"pushes by some":                  {gitea.Gitea, func(r *forge.Rule) { r.Push, r.PushWhitelist, r.PushUsers = true, true, []string{"somebody"} }},
		"forced pushes":                   {gitea.Gitea, func(r *forge.Rule) { r.ForcePush = true }},
		"no status":                       {gitea.Gitea, func(r *forge.Rule) { r.StatusCheck = false }},
		"another status":                  {gitea.Gitea, func(r *forge.Rule) { r.Contexts = []string{"fencepost/*"} }},
		"no approval":                     {gitea.Gitea, func(r *forge.Rule) { r.Approvals = 0 }},
		"approvals by all":                {gitea.Gitea, func(r *forge.Rule) { r.Whitelist = false }},
		"two approvers":                   {gitea.Gitea, func(r *forge.Rule) { r.Approvers = append(r.Approvers, "somebody") }},
		"another approver":                {gitea.Gitea, func(r *forge.Rule) { r.Approvers = []string{"somebody"} }},
		"an approving team":               {gitea.Gitea, func(r *forge.Rule) { r.ApproverTeams = []string{"owners"} }},
		"rejected merges":                 {gitea.Gitea, func(r *forge.Rule) { r.BlockOnRejected = false }},
		"outdated merges":                 {gitea.Gitea, func(r *forge.Rule) { r.BlockOnOutdated = false }},
		"approvals stay":                  {gitea.Gitea, func(r *forge.Rule) { r.DismissStale = false }},
		"stale ones count":                {gitea.Gitea, func(r *forge.Rule) { r.IgnoreStale = false }},
		"unprotected files":               {gitea.Gitea, func(r *forge.Rule) { r.UnprotectedFiles = "*.md" }},
		"administrators":                  {gitea.Gitea, func(r *forge.Rule) { r.BlockAdmins = false }},
		"administrators of Forgejo":       {gitea.Forgejo, func(r *forge.Rule) { r.BlockAdmins = false }},
		"who may pass":                    {gitea.Gitea, func(r *forge.Rule) { r.Bypass = true }},
		"the field is not sent":           {gitea.Gitea, func(r *forge.Rule) { r.Leave = []string{"block_admin_merge_override"} }},
		"the field is not sent: Forgejo":  {gitea.Forgejo, func(r *forge.Rule) { r.Leave = []string{"apply_to_admins"} }},
		"forced pushes are not sent":      {gitea.Gitea, func(r *forge.Rule) { r.Leave = []string{"enable_force_push"} }},
		"who may pass is not sent":        {gitea.Gitea, func(r *forge.Rule) { r.Leave = []string{"enable_bypass_allowlist"} }},
		"the list is not sent":            {gitea.Gitea, func(r *forge.Rule) { r.Leave = []string{"approvals_whitelist_username"} }},
		"the pattern is not sent":         {gitea.Gitea, func(r *forge.Rule) { r.Leave = []string{"unprotected_file_patterns"} }},
		"whether to push is not sent":     {gitea.Gitea, func(r *forge.Rule) { r.Leave = []string{"enable_push"} }},
		"whether stale ones: is not sent": {gitea.Gitea, func(r *forge.Rule) { r.Leave = []string{"ignore_stale_approvals"} }},
	} {
		b := benches[tc.kind]
		rule := forge.GateRule("main", reviewer, check)
		tc.change(&rule)
		b.repo.Protect(rule)
		got := b.refresh(b.asked)
		if got.State != fencepost.ReasonGateUnproven || got.Revision == b.proven || got.Revision.IsZero() {
			t.Errorf("%s: state %q, revision changed: %t", name, got.State, got.Revision != b.proven)
		}
		if !slices.ContainsFunc(got.Facts, func(f gate.Fact) bool { return !f.Met() }) {
			t.Errorf("%s: no fact says what is wrong", name)
		}
	}
}

// TestAServerThatHasNoBypassList: one that is older than the list leaves it out,
// and is taken at its word where it says so.
func TestAServerThatHasNoBypassList(t *testing.T) {
	t.Parallel()
	b := newBench(t, gitea.Gitea)
	_, s := b.open()
	rule := forge.GateRule("main", reviewer, check)
	rule.Leave = []string{"enable_bypass_allowlist"}
	b.repo.Protect(rule)
	answer, asked := forge.Answer{}, 0
	b.forge.Interfere(func(r *http.Request) *forge.Answer {
		if !strings.HasSuffix(r.URL.Path, "/version") {
			return nil
		}
		asked++
		return &answer
	})
	for version, want := range map[string]fencepost.Reason{
		"1.26.3": fencepost.ReasonNone, "1.26.0+dev-12-gabcdef": fencepost.ReasonNone, "1.9.0": fencepost.ReasonNone,
		"1.27.0": fencepost.ReasonGateUnproven, "1.27.0-rc0": fencepost.ReasonGateUnproven, "1.100.1": fencepost.ReasonGateUnproven,
		"2.0.0": fencepost.ReasonGateUnproven, "nightly": fencepost.ReasonGateUnproven, "": fencepost.ReasonGateUnproven,
	} {
		asked, answer = 0, forge.Answer{Status: http.StatusOK, Body: fmt.Sprintf(`{"version":%q}`, version)}
		if got := b.refresh(s); got.State != want || asked != 1 {
			t.Errorf("%q: state %q after %d questions, want %q after one", version, got.State, asked, want)
		}
	}
	answer = forge.Answer{Status: http.StatusInternalServerError}
	_, err := b.lane.Refresh(t.Context(), s)
	wantReason(t, err, fencepost.ReasonProvider)
}

// TestTheReviewersTokenCantProveTheRule: only an administrator is told which
// rule is in effect.
func TestTheReviewersTokenCantProveTheRule(t *testing.T) {
	t.Parallel()
	b := newBench(t, gitea.Gitea)
	_, s := b.open()
	c := b.config()
	c.Rules = c.Reviews
	var err error
	b.lane, err = gitea.New(c)
	must(t, err)
	if got := b.refresh(s); got.State != fencepost.ReasonGateUnproven {
		t.Errorf("state %q", got.State)
	}
}

// TestFetchedCommitsDecideWhatAHeadContains: what the API says of how two commits
// stand is neither believed nor needed. Trap 4
func TestFetchedCommitsDecideWhatAHeadContains(t *testing.T) {
	t.Parallel()
	b := newBench(t, gitea.Gitea)
	p, s := b.open()
	lies := func(mergeBase string, commits int) {
		b.forge.Interfere(func(r *http.Request) *forge.Answer {
			if strings.Contains(r.URL.Path, "/compare/") {
				return &forge.Answer{Status: http.StatusOK, Body: fmt.Sprintf(`{"total_commits":%d,"commits":[]}`, commits)}
			}
			if !strings.HasSuffix(r.URL.Path, "/pulls/1") {
				return nil
			}
			return &forge.Answer{Status: http.StatusOK, Body: fmt.Sprintf(`{"number":1,"state":"open","draft":false,"mergeable":%t,"merge_base":%q,`+
				`"user":{"id":1},"head":{"sha":%q},"base":{"ref":"main","sha":%q,"repo_id":%d}}`,
				commits == 0, mergeBase, p.Head(), b.repo.Ref("refs/heads/main"), b.repo.ID())}
		})
	}
	// It contains the base, and the API says that it does not.
	lies(strings.Repeat("0", 40), 7)
	if got := b.refresh(s); got.State != fencepost.ReasonNone || got.Candidate != got.Head {
		t.Errorf("a head that contains the base: %+v", got)
	}
	// It does not any more, and the API says that it does.
	_, err := b.repo.Push(t.Context(), forgesim.Push{Change: forgesim.Change{Files: map[string]string{"other.md": "x\n"}}})
	must(t, err)
	lies(b.repo.Ref("refs/heads/main"), 0)
	if got := b.refresh(s); got.State != fencepost.ReasonNotMergeable || got.Candidate != (gate.Commit{}) {
		t.Errorf("a head that is behind: %+v", got)
	}
}

func TestWhatTheHeadMustBe(t *testing.T) {
	t.Parallel()
	b := newBench(t, gitea.Gitea)
	ctx := t.Context()
	p, s := b.open()
	first := b.refresh(s)

	// The base moves on: the head does not contain it any more, and the request
	// can't be judged until it does.
	_, err := b.repo.Push(ctx, forgesim.Push{Change: forgesim.Change{Files: map[string]string{"other.md": "x\n"}}})
	must(t, err)
	behind := b.refresh(s)
	if behind.State != fencepost.ReasonNotMergeable || behind.Candidate != (gate.Commit{}) || behind.Revision == first.Revision {
		t.Errorf("outdated: %+v", behind)
	}

	must(t, p.SetTitle(ctx, "WIP: not yet"))
	if got := b.refresh(s); got.State != fencepost.ReasonDraft || !got.Revision.IsZero() {
		t.Errorf("draft: %+v", got)
	}
	must(t, p.SetTitle(ctx, "Now"))
	must(t, p.Close(ctx))
	if got := b.refresh(s); got.State != fencepost.ReasonClosed {
		t.Errorf("closed: %+v", got)
	}
	must(t, p.Reopen(ctx))
	_, err = p.Push(ctx, forgesim.Change{Files: map[string]string{"guide.md": "2\n"}})
	must(t, err)
	if got := b.refresh(s); got.State != fencepost.ReasonSuperseded || !got.Revision.IsZero() {
		t.Errorf("moved: %+v", got)
	}
}

// asGit answers what the lane asks of Git, where answer returns a body: it is
// told whether a chain of commits is asked for, or one commit alone.
func (b *bench) asGit(answer func(chain bool) string) {
	b.forge.Interfere(func(r *http.Request) *forge.Answer {
		if r.Method != http.MethodPost || !strings.HasSuffix(r.URL.Path, "/git-upload-pack") {
			return nil
		}
		asked, err := io.ReadAll(io.LimitReader(r.Body, 1<<16))
		if err != nil {
			b.t.Error(err)
		}
		r.Body = io.NopCloser(bytes.NewReader(asked))
		body := answer(!bytes.Contains(asked, []byte("deepen 1\n")))
		if body == "" {
			return nil
		}
		return &forge.Answer{
			Status: http.StatusOK, Header: http.Header{"Content-Type": {"application/x-git-upload-pack-result"}}, Body: body,
		}
	})
}

func line(text string) string { return fmt.Sprintf("%04x%s", len(text)+4, text) }

// TestACommitThatIsNotThereYet: the API names a head that Git does not have,
// such as one that is still being copied from its fork.
func TestACommitThatIsNotThereYet(t *testing.T) {
	t.Parallel()
	b := newBench(t, gitea.Gitea)
	_, s := b.open()
	for name, hides := range map[string]func(chain bool) bool{
		"for both":             func(bool) bool { return true },
		"for the one commit":   func(chain bool) bool { return !chain },
		"for the chain of two": func(chain bool) bool { return chain },
	} {
		b.lane = b.newLane()
		b.asGit(func(chain bool) string {
			if !hides(chain) {
				return ""
			}
			return line("ERR upload-pack: not our ref " + s.Head.String())
		})
		_, err := b.lane.Refresh(t.Context(), s)
		if !errors.Is(err, gate.ErrNotYet) || fencepost.ReasonOf(err) != fencepost.ReasonProvider {
			t.Errorf("%s: %v, want ErrNotYet", name, err)
		}
	}
	b.forge.Interfere(nil)
	if got := b.refresh(s); got.State != fencepost.ReasonNone {
		t.Errorf("once it is there: %+v", got)
	}
}

// TestWhatCantBeToldWithinTheBudgets: a chain that is longer than may be read
// says nothing of whether the head contains the base.
func TestWhatCantBeToldWithinTheBudgets(t *testing.T) {
	t.Parallel()
	b := newBench(t, gitea.Gitea)
	_, s := b.open()
	c := b.config()
	c.Budgets.WireBytes = 8 << 10
	var err error
	b.lane, err = gitea.New(c)
	must(t, err)
	b.asGit(func(chain bool) string {
		if !chain {
			return ""
		}
		return line("shallow-info\n") + "0001" + line("packfile\n") + line("\x02"+strings.Repeat("counting ", 1<<10))
	})
	_, err = b.lane.Refresh(t.Context(), s)
	wantReason(t, err, fencepost.ReasonProvider)
	if !strings.Contains(err.Error(), "can't be told within the budgets") {
		t.Errorf("error %v", err)
	}
}

func TestForeignWords(t *testing.T) {
	t.Parallel()
	b := newBench(t, gitea.Gitea)
	p, s := b.open()
	b.repo.SetStatus("somebody", p.Head(), "other/check", "success")
	if got := b.refresh(s); got.State != fencepost.ReasonNone {
		t.Fatalf("another context: %q", got.State)
	}
	p.Review("somebody", "APPROVED", "fine")
	if got := b.refresh(s); got.State != fencepost.ReasonNone {
		t.Fatalf("another user's approval: %q", got.State)
	}
	own := p.Review(reviewer, "APPROVED", "it is me, the person")
	if got := b.refresh(s); got.State != fencepost.ReasonForeignStatus {
		t.Fatalf("an approval by hand: %q", got.State)
	}
	p.Dismiss(own.ID)
	if got := b.refresh(s); got.State != fencepost.ReasonNone {
		t.Fatalf("a dismissed one: %q", got.State)
	}
	b.repo.SetStatus("somebody", p.Head(), "Fencepost/Docs", "success")
	if got := b.refresh(s); got.State != fencepost.ReasonForeignStatus {
		t.Fatalf("somebody else's status: %q", got.State)
	}
}

func TestARepositoryIsItsIDs(t *testing.T) {
	t.Parallel()
	b := newBench(t, gitea.Gitea)
	_, s := b.open()
	first := b.refresh(s)
	must(t, b.repo.Rename("manual"))
	renamed := b.refresh(s)
	if renamed.Revision != first.Revision || renamed.Repository != "acme/manual" {
		t.Errorf("renamed: %+v", renamed)
	}
	if source, err := b.lane.Source(renamed); err != nil || !strings.HasSuffix(source.URL, "/acme/manual.git") {
		t.Errorf("source %+v, %v", source, err)
	}
	must(t, b.repo.Transfer("rival"))
	_, err := b.lane.Refresh(t.Context(), s)
	wantReason(t, err, fencepost.ReasonIdentity)
	b.repo.Delete()
	_, err = b.lane.Refresh(t.Context(), s)
	wantReason(t, err, fencepost.ReasonCredential)
}

func TestWhatCantBeLearntIsAnError(t *testing.T) {
	t.Parallel()
	b := newBench(t, gitea.Gitea)
	_, s := b.open()
	for _, tc := range []struct {
		part   string
		answer forge.Answer
		want   fencepost.Reason
	}{
		{"/pulls/1", forge.Answer{Status: http.StatusInternalServerError}, fencepost.ReasonProvider},
		{"/pulls/1", forge.Answer{Status: http.StatusOK, Body: `{"number":1}`}, fencepost.ReasonProvider},
		{"/branches/main", forge.Answer{Status: http.StatusNotFound}, fencepost.ReasonProvider},
		{"/branch_protections/main", forge.Answer{Status: http.StatusForbidden}, fencepost.ReasonCredential},
		{"/branch_protections/main", forge.Answer{Status: http.StatusOK, Body: `{"rule_name":"other"}`}, fencepost.ReasonProvider},
		{"/statuses", forge.Answer{Status: http.StatusOK, Body: `{}`}, fencepost.ReasonProvider},
		{"/reviews", forge.Answer{}, fencepost.ReasonProvider},
		{"/repositories/", forge.Answer{Status: http.StatusTooManyRequests, Header: http.Header{"Retry-After": {"40"}}}, fencepost.ReasonRateLimited},
		{"git-upload-pack", forge.Answer{Status: http.StatusInternalServerError}, fencepost.ReasonAcquisition},
	} {
		b.lane = b.newLane()
		b.forge.Interfere(func(r *http.Request) *forge.Answer {
			if strings.Contains(r.URL.Path, tc.part) {
				return &tc.answer
			}
			return nil
		})
		_, err := b.lane.Refresh(t.Context(), s)
		if err == nil || fencepost.ReasonOf(err) != tc.want {
			t.Errorf("%s answered %d: %v with reason %q, want %q", tc.part, tc.answer.Status, err, fencepost.ReasonOf(err), tc.want)
		}
		limited := tc.want == fencepost.ReasonRateLimited
		if wait, ok := errors.AsType[*gate.WaitError](err); ok != limited || limited && !wait.Until.Equal(b.now.Add(40*time.Second)) {
			t.Errorf("%s answered %d: %v, want to be told to ask again in 40 s: %v", tc.part, tc.answer.Status, err, limited)
		}
	}
}
