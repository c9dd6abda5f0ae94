package github

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/gate"
)

var _ gate.Examiner = (*Lane)(nil)

// Examine implements [gate.Examiner].
func (l *Lane) Examine(ctx context.Context) []gate.Finding {
	e := examination{lane: l}
	if e.app(ctx) && e.installation(ctx) {
		e.repository(ctx)
	}
	return e.Findings
}

// An examination is one look at a gate's provider.
type examination struct {
	gate.Examination
	lane *Lane
}

// ask sends a read as the App itself.
func (e *examination) ask(ctx context.Context, op, path string, into any) error {
	_, err := e.lane.client.do(ctx, call{op: op, method: http.MethodGet, path: path, as: asApp, fresh: true}, into)
	return err
}

// app proves the key, and looks at the App's webhook.
func (e *examination) app(ctx context.Context) bool {
	want := strconv.FormatInt(e.lane.client.app.ID, 10)
	var got struct {
		ID int64 `json:"id"`
	}
	if err := e.ask(ctx, "get App", "/app", &got); err != nil {
		e.Need("app", want, gate.Told(err), "see that app.id and app.key belong together, that the clock is right, and that api can be reached from here")
		return false
	}
	e.Need("app", want, strconv.FormatInt(got.ID, 10), "put the App's id into app.id")
	e.webhook(ctx)
	return true
}

// webhook looks at the App's one webhook. A repository's own one does as well,
// and can't be seen with the permissions of a gate.
func (e *examination) webhook(ctx context.Context) {
	const fact, want = "webhook", "JSON over verified TLS"
	path := "/hooks/" + string(e.lane.config.Gate)
	var got struct {
		URL         string `json:"url"`
		ContentType string `json:"content_type"`
		InsecureSSL string `json:"insecure_ssl"`
	}
	if err := e.ask(ctx, "get webhook", "/app/hook/config", &got); err != nil {
		e.Skip(fact, "the App's webhook can't be read: "+gate.Told(err))
		return
	}
	u, err := url.Parse(got.URL)
	switch {
	case err != nil || strings.TrimSuffix(u.Path, "/") != path:
		e.Advise(fact, want, "the App's does not lead to "+path, "set the URL of the App's webhook to https://your.host"+path+
			"; if a webhook of the repository does it, this is no fault")
	case got.ContentType != "json":
		e.Advise(fact, want, "its content type is not application/json", "set the webhook's content type to application/json")
	case got.InsecureSSL != "0" && u.Scheme == "https":
		e.Advise(fact, want, "TLS is not verified", "turn SSL verification of the webhook on")
	default:
		e.Advise(fact, want, want, "")
	}
}

// installation looks at what the App may do on the account.
func (e *examination) installation(ctx context.Context) bool {
	app := e.lane.client.app
	want := strconv.FormatInt(app.Installation, 10)
	var got struct {
		ID          int64             `json:"id"`
		AppID       int64             `json:"app_id"`
		Permissions map[string]string `json:"permissions"`
		Events      []string          `json:"events"`
		Suspended   *time.Time        `json:"suspended_at"`
	}
	if err := e.ask(ctx, "get installation", "/app/installations/"+want, &got); err != nil {
		e.Need("installation", want, gate.Told(err), "put the id of the App's installation on the account into app.installation")
		return false
	}
	e.Need("installation", want, strconv.FormatInt(got.ID, 10), "put the id of the App's installation on the account into app.installation")
	e.Need("installation.active", "true", strconv.FormatBool(got.Suspended == nil), "have an owner of the account unsuspend the installation")
	e.permissions(got.Permissions)
	e.Need("installation.events", "pull_request", among(got.Events, "pull_request"), "subscribe the App to the event Pull request")
	return got.Suspended == nil
}

// among is a word if it is listed.
func among(words []string, word string) string {
	if slices.Contains(words, word) {
		return word
	}
	return "absent"
}

// permissions holds each one that a gate needs against what was granted.
func (e *examination) permissions(got map[string]string) {
	need := gatePermissions.asMap()
	for _, name := range slices.Sorted(maps.Keys(need)) {
		want, seen := need[name], "none"
		switch level := got[name]; level {
		case "read", "write":
			seen = level
		case "admin":
			seen = "write"
		}
		if want == "read" && seen == "write" {
			e.Advise("permission."+name, want, seen, "read is enough for "+name+": take the App's permission back")
			continue
		}
		e.Need("permission."+name, want, seen, "grant the App "+name+": "+want+", and have the account's owner accept it")
	}
	more := 0
	for name := range got {
		if _, needed := need[name]; !needed {
			more++
		}
	}
	e.Advise("permission.others", "0", strconv.Itoa(more), "take back what the App may do beyond "+string(gatePermissions))
}

// repository proves the repository, and reads branch and rule.
func (e *examination) repository(ctx context.Context) {
	l := e.lane
	want := l.config.Repository
	ids := fmt.Sprintf("%d of owner %d", want.ID, want.OwnerID)
	name, err := l.repository(ctx)
	if err != nil {
		mend := "install the App on the repository, and see that repository.id is its id"
		if fencepost.ReasonOf(err) == fencepost.ReasonIdentity {
			mend = "another repository has that name: correct repository.id, owner_id and name"
		}
		e.Need("repository", ids, gate.Told(err), mend)
		return
	}
	e.Need("repository", ids, ids, "")
	e.Advise("repository.name", want.Name, name, "the repository was renamed: put the new name into repository.name")
	if _, err := l.tip(ctx, name); err != nil {
		e.Need("base", l.branch, gate.Told(err), "see that base names a branch of the repository")
		return
	}
	e.Need("base", l.branch, l.branch, "")
	r, err := l.readRule(ctx, name)
	if err != nil {
		e.Need("rule.required_check", "present", gate.Told(err), "see that the App may read the repository's metadata")
		return
	}
	mends := map[string]string{
		"rule.required_check": "make an active ruleset for the branch that requires the check, from this App, with \"require branches to be up to date\" on",
		"rule.merge_queue":    "take the merge queue off the branch: a gate can't answer for its merges",
	}
	for _, f := range r.facts(l.config.Check, l.client.app.ID) {
		e.Need(f.Name, f.Expected, f.Observed, mends[f.Name])
	}
}
