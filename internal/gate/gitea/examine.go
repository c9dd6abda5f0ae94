package gitea

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/forge"
	"github.com/fencepost/fencepost/internal/forge/gitea"
	"github.com/fencepost/fencepost/internal/gate"
)

// Examine implements [gate.Examiner].
func (l *Lane) Examine(ctx context.Context) []gate.Finding {
	e := examination{lane: l}
	e.product(ctx)
	name, ok := e.repository(ctx)
	if !ok {
		return e.Findings
	}
	e.reviewer(ctx, name)
	e.tokens(ctx, name)
	e.rule(ctx, name)
	e.webhook(ctx, name)
	return e.Findings
}

// An examination is one look at a gate's provider.
type examination struct {
	gate.Examination
	lane *Lane
}

// product tells Forgejo from Gitea: what lets administrators past a rule is
// named differently, and read as the configuration says.
func (e *examination) product(ctx context.Context) {
	const name, op = "server.product", "get version"
	l := e.lane
	var got versionAnswer
	if err := l.readInto(ctx, l.config.Reviews, op, "/version", &got); err != nil {
		e.Need(name, string(l.config.Kind), gate.Told(err), "see that api is the instance's /api/v1, and that it can be reached from here")
		return
	}
	kind := Gitea
	if strings.Contains(got.Version, "+gitea-") {
		kind = Forgejo
	}
	e.Need(name, string(l.config.Kind), string(kind), "set provider: "+string(kind))
}

// A repositoryAnswer is a repository, as far as a gate depends on its settings.
type repositoryAnswer struct {
	Archived    bool  `json:"archived"`
	Pulls       *bool `json:"has_pull_requests"`
	ManualMerge *bool `json:"allow_manual_merge"`
	Permissions *struct {
		Admin bool `json:"admin"`
		Push  bool `json:"push"`
	} `json:"permissions"`
}

// repository proves whose repository it is, and looks at its settings.
func (e *examination) repository(ctx context.Context) (name string, ok bool) {
	l := e.lane
	want := l.config.Repository
	ids := fmt.Sprintf("%d of owner %d", want.ID, want.OwnerID)
	name, err := l.identity(ctx)
	if err != nil {
		mend := "see that the reviewer's token is valid, and that the reviewer may read the repository"
		if fencepost.ReasonOf(err) == fencepost.ReasonIdentity {
			mend = "the repository was transferred: put the new owner's id into repository.owner_id if it is meant"
		}
		e.Need("repository", ids, gate.Told(err), mend)
		return "", false
	}
	e.Need("repository", ids, ids, "")
	e.Advise("repository.name", want.Name, name, "the repository was renamed: put the new name into repository.name")
	var got repositoryAnswer
	if err := l.readInto(ctx, l.config.Reviews, "get repository", "/repos/"+name, &got); err != nil {
		e.Need("repository.archived", "false", gate.Told(err), "")
		return name, true
	}
	e.Need("repository.archived", "false", strconv.FormatBool(got.Archived), "unarchive the repository")
	e.Need("repository.pull_requests", "true", shown(got.Pulls), "turn pull requests on in the repository's settings")
	e.Advise("repository.manual_merge", "not true", notTrue(got.ManualMerge),
		"turn \"mark pull request as manually merged\" off in the repository's settings: it marks without any check")
	return name, true
}

// reviewer looks at the dedicated account as an administrator sees it.
func (e *examination) reviewer(ctx context.Context, name string) {
	l := e.lane
	want := l.config.Reviewer
	var got struct {
		Permission string `json:"permission"`
		User       *struct {
			ID int64 `json:"id"`
		} `json:"user"`
	}
	err := l.readInto(ctx, l.config.Rules, "get reviewer's permission", "/repos/"+name+"/collaborators/"+url.PathEscape(want.Login)+"/permission", &got)
	id := strconv.FormatInt(want.ID, 10)
	switch {
	case err != nil:
		e.Need("reviewer.account", id, gate.Told(err), "see that reviewer.login is an account, and that rule_token belongs to an administrator of the repository")
		return
	case got.User == nil:
		e.Need("reviewer.account", id, "absent", "put the account's id into reviewer.id")
		return
	}
	e.Need("reviewer.account", id, strconv.FormatInt(got.User.ID, 10), "put the account's id into reviewer.id, and see that it is the dedicated one")
	mend := "give the reviewer write access to the repository: without it, it can't set the status"
	if got.Permission == "admin" || got.Permission == "owner" {
		e.Advise("reviewer.permission", "write", got.Permission, "take the reviewer's rights back to write: more is of no use to the gate")
		return
	}
	e.Need("reviewer.permission", "write", oneOf(got.Permission, "write", "read", "none"), mend)
}

// oneOf keeps what a server says to the words that it may be.
func oneOf(s string, known ...string) string {
	if slices.Contains(known, s) {
		return s
	}
	return "something else"
}

// tokens looks at what the two tokens are good for. A write to a request that
// can't exist tells whether one may write at all: number 0 is never given.
func (e *examination) tokens(ctx context.Context, name string) {
	l := e.lane
	const yes, no = "may write", "may not write"
	writes := func(c *gitea.Client) (seen string, known bool) {
		_, err := c.Post(ctx, "try to write", reviewsOf(name, 0), map[string]any{"event": "COMMENT", "body": "nothing"})
		switch code := statusOf(err); {
		case code == http.StatusNotFound:
			return yes, true
		case code == http.StatusForbidden:
			return no, true
		}
		return gate.Told(err), false
	}
	seen, _ := writes(l.config.Reviews)
	e.Need("reviewer.token", yes, seen, "make a token of the reviewer with the scope write:repository")
	if seen, known := writes(l.config.Rules); known {
		e.Advise("rule_token.writes", no, seen, "make the token anew with the scope read:repository alone")
	} else {
		e.Need("rule_token.writes", no, seen, "make a token of an administrator of the repository with the scope read:repository")
	}
	var got repositoryAnswer
	err := l.readInto(ctx, l.config.Rules, "get repository", "/repos/"+name, &got)
	const admin = "administrator of the repository"
	mend := "make the account behind rule_token an administrator of the repository: nobody else is shown the rule"
	switch {
	case err != nil:
		e.Need("rule_token", admin, gate.Told(err), mend)
	case got.Permissions == nil || !got.Permissions.Admin:
		e.Need("rule_token", admin, "no administrator", mend)
	default:
		e.Need("rule_token", admin, admin, "")
	}
	for _, t := range []struct {
		field, scope string
		client       *gitea.Client
	}{{"reviewer.token", "write:repository", l.config.Reviews}, {"rule_token", "read:repository", l.config.Rules}} {
		field := t.field + ".scope"
		a, err := t.client.Get(ctx, "try another scope", "/user", "")
		switch {
		case statusOf(err) == http.StatusForbidden:
			e.Advise(field, t.scope+" alone", t.scope+" alone", "")
		case err == nil && a.Status == http.StatusOK:
			e.Advise(field, t.scope+" alone", "more", "make the token anew with the scope "+t.scope+" alone")
		default:
			e.Skip(field, "it could not be tried")
		}
	}
}

// mends are what puts a setting of the rule right.
var mends = map[string]string{
	"enable_push":                  "turn pushes off, or list nobody who may push",
	"enable_force_push":            "turn force pushes off",
	"enable_status_check":          "turn status checks on",
	"status_check_contexts":        "add the gate's check to the required status checks, spelt out",
	"required_approvals":           "require 1 approval",
	"enable_approvals_whitelist":   "restrict approvals to listed users",
	"approvals_whitelist_username": "list the reviewer, and nobody else, among those whose approval counts",
	"approvals_whitelist_teams":    "take the teams off the approvals list",
	"block_on_rejected_reviews":    "turn \"block merge on rejected reviews\" on",
	"dismiss_stale_approvals":      "turn \"dismiss stale approvals\" on",
	"ignore_stale_approvals":       "turn \"ignore stale approvals\" on",
	"block_on_outdated_branch":     "turn \"block merge if pull request is outdated\" on",
	"unprotected_file_patterns":    "empty the unprotected file patterns",
	"apply_to_admins":              "turn \"enforce this rule for repository admins\" on",
	"block_admin_merge_override":   "turn \"administrators must follow branch protection rules\" on",
	"enable_bypass_allowlist":      "turn the bypass list off",
}

// rule reads the rule of the base branch.
func (e *examination) rule(ctx context.Context, name string) {
	l := e.lane
	_, effective, err := l.readBase(ctx, name)
	if err != nil {
		e.Need("base", l.branch, gate.Told(err), "see that base names a branch of the repository")
		return
	}
	e.Need("base", l.branch, l.branch, "")
	r, err := l.readRule(ctx, name, effective)
	if err != nil {
		e.Need("rule", "present", gate.Told(err), "see that rule_token belongs to an administrator of the repository and has the scope read:repository")
		return
	}
	for _, f := range r.facts() {
		mend := mends[strings.TrimPrefix(f.Name, "rule.")]
		if f.Name == "rule" {
			mend = "protect the branch as docs/gates-gitea.md says; if it is protected, see that rule_token belongs to an administrator"
		}
		e.Need(f.Name, f.Expected, f.Observed, mend)
	}
}

// A hookAnswer is a webhook of the repository, as far as it is looked at.
type hookAnswer struct {
	Type   string `json:"type"`
	Active bool   `json:"active"`
	Config struct {
		URL         string `json:"url"`
		ContentType string `json:"content_type"`
	} `json:"config"`
	Events []string `json:"events"`
}

// webhook looks for the repository's own. One of the organization or of the
// instance does as well, and can't be seen.
func (e *examination) webhook(ctx context.Context, name string) {
	l := e.lane
	const fact, want = "webhook", "active, JSON, pull_request and pull_request_sync"
	path := "/hooks/" + string(l.config.Gate)
	var hooks []hookAnswer
	if err := l.readInto(ctx, l.config.Rules, "list webhooks", "/repos/"+name+"/hooks?limit="+strconv.Itoa(pageSize), &hooks); err != nil {
		e.Skip(fact, "the webhooks can't be read: "+gate.Told(err))
		return
	}
	mine := slices.DeleteFunc(hooks, func(h hookAnswer) bool {
		u, err := url.Parse(h.Config.URL)
		return err != nil || strings.TrimSuffix(u.Path, "/") != path
	})
	mend := "make a webhook of the repository whose URL ends in " + path + ", with the trust set's secret, application/json and the event Pull Request; " +
		"if one of the organization does it, this is no fault"
	if len(mine) == 0 {
		e.Advise(fact, want, "none of the repository's leads to "+path, mend)
		return
	}
	var wrong []string
	for _, h := range mine {
		flaw := h.flaw()
		if flaw == "" {
			e.Advise(fact, want, want, "")
			e.address(h.Config.URL)
			return
		}
		wrong = append(wrong, flaw)
	}
	e.Advise(fact, want, strings.Join(wrong, "; "), "put the webhook right: active, POST, application/json, the event Pull Request")
}

// address tells of a webhook that the server sends to by default only where its
// own configuration, which nobody is shown, lets it: the operator sees deliveries
// that failed and no more. contracts/gitea.md, trap 26
func (e *examination) address(hook string) {
	const public = "a public one"
	seen := public
	if u, err := url.Parse(hook); err != nil || private(u.Hostname()) {
		seen = "loopback, or of a private network"
	}
	e.Advise("webhook.address", public, seen, "see that the instance's webhook.ALLOWED_HOST_LIST names it: by default nothing is delivered there")
}

// private reports whether a host is certainly not one of the public network, or
// named as none is.
func private(host string) bool {
	if ip, err := netip.ParseAddr(host); err == nil {
		ip = ip.Unmap()
		return ip.IsPrivate() || ip.IsLoopback() || ip.IsLinkLocalUnicast() || ip.IsUnspecified()
	}
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	last := host[strings.LastIndexByte(host, '.')+1:]
	return last == host || slices.Contains([]string{"localhost", "local", "internal", "lan"}, last)
}

// flaw is what keeps a webhook from being of use, or "".
func (h hookAnswer) flaw() string {
	switch {
	case h.Type != "gitea" && h.Type != "forgejo":
		return "it is of another type"
	case !h.Active:
		return "it is off"
	case h.Config.ContentType != "json":
		return "its content type is not application/json"
	case !slices.Contains(h.Events, "pull_request"):
		return "it does not send pull_request"
	case !slices.Contains(h.Events, "pull_request_sync"):
		return "it does not send pull_request_sync"
	}
	return ""
}

// readInto asks for one value, which must be there.
func (l *Lane) readInto(ctx context.Context, c *gitea.Client, op, path string, into any) error {
	a, err := c.Get(ctx, op, path, "")
	if err != nil {
		return err
	}
	if a.Status == http.StatusNotFound {
		return forge.Fail(op, fencepost.ReasonProvider, &forge.StatusError{Code: a.Status})
	}
	return forge.Decode(op, a.Body, into)
}

// statusOf is the HTTP status that an error is about; 0: none.
func statusOf(err error) int {
	if e, ok := errors.AsType[*forge.StatusError](err); ok {
		return e.Code
	}
	return 0
}
