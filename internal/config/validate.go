package config

import (
	"fmt"
	"net"
	"net/url"
	"path/filepath"
	"strings"

	"github.com/fencepost/fencepost"
)

// A validator compares fields with each other, and turns the document into a
// [Config]. It is pure: it reads no file, clock or environment.
type validator struct {
	*decoder
	// dir is what relative paths are relative to, abs the same made absolute.
	dir, abs string
	// dataDir is the data directory, made absolute.
	dataDir string
	cfg     *Config
	// refs are the secrets that the document refers to, to be tried, databases
	// likewise.
	refs      []secretUse
	databases []databaseUse
	// repositories are those of gates and sources: by id, and by name.
	repositories struct{ byID, byName map[string]string }
	// trusted are the trust sets that a gate or a source uses.
	trusted map[name]bool
	// pinned says where a key stands that is known by its thumbprint.
	pinned map[pin]string
	// issuers are those whose keys a trust set holds.
	issuers map[name]string
	// schemes are how the senders of webhooks sign with a set's secrets.
	schemes map[name]schemeUse
}

// A secretUse is one reference with what the secret must be.
type secretUse struct {
	path string
	ref  SecretRef
	as   secretForm
	// set is the trust set, whose secrets must differ.
	set string
}

type secretForm uint8

const (
	asHMAC secretForm = iota + 1
	asAppKey
	asToken
	asJWK
)

func (v *validator) refuse(path, format string, args ...any) {
	v.fault(v.at(path), format, args...)
}

func (v *validator) warn(path, format string, args ...any) {
	p := v.at(path)
	f := Fault{File: v.file, Line: p.line, Column: p.column, Path: path, Problem: fmt.Sprintf(format, args...)}
	v.cfg.Warnings = append(v.cfg.Warnings, f.Error())
}

func (v *validator) config(doc *document) {
	c := v.cfg
	c.DataDir = string(doc.DataDir)
	if !filepath.IsAbs(c.DataDir) {
		c.DataDir = filepath.Join(v.dir, c.DataDir)
	}
	v.dataDir = absoluteIn(v.abs, string(doc.DataDir))
	c.Listen, c.OpsListen = string(doc.Listen), string(doc.OpsListen)
	c.Replay = fencepost.ReplayWindow{MaxSignedAge: doc.Replay.MaxSignedAge, MaxQueueAge: doc.Replay.MaxQueueAge}
	c.Ledger, c.Ingress, c.Inbox, c.Work = doc.Ledger, doc.Ingress, doc.Inbox, doc.Work
	c.Provider, c.Fetch, c.Runner = doc.Provider, doc.Fetch, doc.Runner
	c.Artifacts, c.Results, c.Receipts = doc.Artifacts, doc.Results, doc.Receipts
	c.Healing, c.SourceWork = doc.Healing, doc.SourceWork
	c.Alerts = Alerts{Alertmanager: doc.Alerts.Alertmanager.url, AlertLimits: doc.Alerts.AlertLimits}
	v.secure("alerts.alertmanager", doc.Alerts.Alertmanager, doc.Alerts.AllowHTTP, "alerts.allow_http")
	v.listeners()
	v.bounds()
	c.Database = v.store("database", doc.Database.Database, "")
	v.trust(doc)
	v.gates(doc)
	v.sources(doc)
	v.schemed()
	v.purpose(doc)
}

// purpose warns of what nothing uses.
func (v *validator) purpose(doc *document) {
	if len(doc.Gates) == 0 && len(doc.Sources) == 0 {
		v.warn("", "has no gates and no sources, so nothing would be served; add one under gates or sources")
	}
	for _, set := range sortedKeys(doc.Trust) {
		if !v.trusted[set] {
			v.warn("trust."+string(set), "is the trust set of no gate and no source")
		}
	}
}

func (v *validator) listeners() {
	c := v.cfg
	host, port, err := net.SplitHostPort(c.OpsListen)
	if err != nil {
		return // reported already
	}
	_, public, _ := net.SplitHostPort(c.Listen)
	if port == public && port != "0" {
		v.refuse("ops_listen", "has the port of listen; the operations page is never served in public: give it another")
	}
	if ip := net.ParseIP(host); host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		v.warn("ops_listen", "is not a loopback address, and the operations page asks for no password: keep the network around it private")
	}
}

// bounds compares limits that make no sense together.
func (v *validator) bounds() {
	c := v.cfg
	rules := []struct {
		broken      bool
		path, other string
		problem     string
	}{
		{c.Ingress.BodyMemory < c.Ingress.MaxBody, "ingress.body_memory", "ingress.max_body",
			fmt.Sprintf("must be at least ingress.max_body (%s), is %s", c.Ingress.MaxBody, c.Ingress.BodyMemory)},
		{c.Ingress.StallTimeout > c.Ingress.BodyTimeout, "ingress.stall_timeout", "ingress.body_timeout",
			fmt.Sprintf("must be at most ingress.body_timeout (%s), is %s", c.Ingress.BodyTimeout, c.Ingress.StallTimeout)},
		{c.Ingress.WriteTimeout < c.Ingress.BodyWait+c.Ingress.BodyTimeout+c.Ingress.RecordTimeout, "ingress.write_timeout", "ingress.body_timeout",
			fmt.Sprintf("must be at least body_wait, body_timeout and record_timeout together (%s), is %s",
				c.Ingress.BodyWait+c.Ingress.BodyTimeout+c.Ingress.RecordTimeout, c.Ingress.WriteTimeout)},
		{c.Inbox.MaxBytes < c.Ingress.MaxBody+2*MiB, "inbox.max_bytes", "ingress.max_body",
			fmt.Sprintf("must be at least ingress.max_body and 2MiB (%s), is %s", c.Ingress.MaxBody+2*MiB, c.Inbox.MaxBytes)},
		{c.Inbox.MaxBytes < 2*c.Inbox.Segment, "inbox.max_bytes", "inbox.segment",
			fmt.Sprintf("must be at least two segments (%s), is %s", 2*c.Inbox.Segment, c.Inbox.MaxBytes)},
		{c.Work.MaxBackoff < c.Work.Backoff, "work.max_backoff", "work.backoff",
			fmt.Sprintf("must be at least work.backoff (%s), is %s", c.Work.Backoff, c.Work.MaxBackoff)},
		{c.Work.Starts < c.Work.Attempts, "work.starts", "work.attempts",
			fmt.Sprintf("must be at least work.attempts (%d), is %d", c.Work.Attempts, c.Work.Starts)},
		{c.Provider.Timeout > c.Ledger.Lease/2, "provider.timeout", "ledger.lease",
			fmt.Sprintf("must be at most half of ledger.lease (%s), is %s", c.Ledger.Lease/2, c.Provider.Timeout)},
		{c.Artifacts.MaxTotal < c.Artifacts.MaxSize, "artifacts.max_total", "artifacts.max_size",
			fmt.Sprintf("must be at least artifacts.max_size (%s), is %s", c.Artifacts.MaxSize, c.Artifacts.MaxTotal)},
	}
	for _, r := range rules {
		// A value that is out of its own range is compared with nothing.
		if r.broken && !v.faulty(r.path) && !v.faulty(r.other) {
			v.refuse(r.path, "%s", r.problem)
		}
	}
	v.fetchBounds("fetch", c.Fetch)
}

// fetchBounds compares the budgets of one acquisition.
func (v *validator) fetchBounds(path string, f Fetch) {
	rules := []struct {
		broken      bool
		field       string
		other       string
		least, most fmt.Stringer
	}{
		{f.Connect > f.Total, "total", "connect", f.Connect, f.Total},
		{f.Idle > f.Total, "total", "idle", f.Idle, f.Total},
		{f.File > f.Inflated, "inflated", "file", f.File, f.Inflated},
		{f.File > f.Output, "output", "file", f.File, f.Output},
	}
	for _, r := range rules {
		if r.broken && !v.faulty(path+"."+r.field) && !v.faulty(path+"."+r.other) {
			v.refuse(path+"."+r.field, "must be at least fetch.%s (%s), is %s", r.other, r.least, r.most)
		}
	}
}

// secure holds a URL against its section's allow_http.
func (v *validator) secure(path string, l location, allowed bool, unless string) *url.URL {
	if l.url != nil && l.url.Scheme == "http" && !allowed {
		v.refuse(path, "must be https, is http; where that is meant, such as on loopback, set %s: true", unless)
	}
	return l.url
}

// use notes a reference to be tried, and ties it to the file's directory.
func (v *validator) use(path string, ref SecretRef, as secretForm, set string) SecretRef {
	if ref.IsZero() {
		return ref
	}
	ref.dir, ref.public = v.dir, as == asJWK
	v.refs = append(v.refs, secretUse{path: path, ref: ref, as: as, set: set})
	return ref
}

func (v *validator) gates(doc *document) {
	checks, reviewed := map[string]string{}, map[string]string{}
	for _, key := range sortedKeys(doc.Gates) {
		section := doc.Gates[key]
		path := "gates." + string(key)
		v.trusts(doc, path, section.Trust, ProviderKind(section.Provider) == GitLab)
		if ProviderKind(section.Provider) != GitLab {
			v.signs(path, section.Trust, ProviderKind(section.Provider))
		}
		g, whole := v.gate(path, key, section)
		if !whole {
			continue
		}
		v.issued(path, section.Trust, g)
		repo := v.same(path, g.API, g.Repository)
		v.distinct(checks, path, ".check", repo+"\x00"+strings.ToLower(g.Check), path,
			"is the check of %s too, in the same repository; give each gate its own")
		if g.Provider == Gitea || g.Provider == Forgejo {
			// The rule must list one reviewer alone, and a new approval by it
			// takes the weight off the one before: contracts/gitea.md §6.
			v.distinct(reviewed, path, ".base", repo+"\x00"+g.Base, path,
				"is the base of %s too, in the same repository: a branch's rule can count one gate's approvals only; "+
					"make one gate of the two, whose program checks both")
		}
		g.Digest = g.policyDigest()
		v.cfg.Gates = append(v.cfg.Gates, g)
	}
}

// same holds a repository against those of all other sections, and returns
// what names it.
func (v *validator) same(path string, api *url.URL, r Repository) string {
	instance := strings.ToLower(api.Host)
	repo := fmt.Sprintf("%s/%d", instance, r.ID)
	is := fmt.Sprintf("%d %s", r.OwnerID, strings.ToLower(r.FullName()))
	v.agrees(v.repositories.byID, path, ".repository", repo, is,
		"has the id of another gate's or source's repository, but another owner_id or name; one of the two is wrong")
	v.agrees(v.repositories.byName, path, ".repository", instance+"/"+strings.ToLower(r.FullName()), repo,
		"has the name of another gate's or source's repository, but another id; one of the two is wrong")
	return repo
}

// distinct refuses a key that was seen; format names where.
func (v *validator) distinct(seen map[string]string, path, field, key, here, format string) {
	if there, twice := seen[key]; twice {
		v.refuse(path+field, format, there)
		return
	}
	seen[key] = here
}

// agrees refuses a key that was seen with another value.
func (v *validator) agrees(seen map[string]string, path, field, key, value, problem string) {
	if before, known := seen[key]; known && before != value {
		v.refuse(path+field, "%s", problem)
	}
	seen[key] = value
}

// addresses are those of a provider. GitHub alone has any of its own.
func (v *validator) addresses(path string, p ProviderKind, api, git location, allowHTTP bool) (apiURL, gitURL *url.URL) {
	hasAPI, hasGit := v.given(path+".api"), v.given(path+".git")
	switch {
	case p == GitHub && !hasAPI && !hasGit:
		api, git = mustLocation(gitHubAPI), mustLocation(gitHubGit)
	case p == "" || hasAPI && hasGit:
	case p == GitHub:
		there, missing, example := "api", "git", "https://ghe.example.org"
		if hasGit {
			there, missing, example = "git", "api", "https://ghe.example.org/api/v3"
		}
		v.refuse(path+"."+missing, "missing: %s is given, so this must be too, such as %s: %s", there, missing, example)
	default:
		if !hasAPI {
			version := "v1"
			if p == GitLab {
				version = "v4"
			}
			v.refuse(path+".api", "missing: %s has no address of its own: add it, such as api: https://git.example.org/api/%s", p, version)
		}
		if !hasGit {
			v.refuse(path+".git", "missing: %s has no address of its own: add it, such as git: https://git.example.org", p)
		}
	}
	unless := path + ".allow_http"
	return v.secure(path+".api", api, allowHTTP, unless), v.secure(path+".git", git, allowHTTP, unless)
}

// gate turns one section into a policy. whole is false where something that
// the comparison of gates needs is missing; that is reported already.
func (v *validator) gate(path string, key name, s gateSection) (g Gate, whole bool) {
	kind := ProviderKind(s.Provider)
	if kind == "" || v.faulty(path+".provider") {
		return Gate{}, false
	}
	if s.MaxSignedAge != 0 && kind != GitLab {
		v.refuse(path+".max_signed_age", "has no meaning for %s, which signs no time; take it out", kind)
	}
	g = Gate{
		Route: fencepost.RouteName(key), Provider: kind,
		Trust: fencepost.TrustSetName(s.Trust), Base: string(s.Base), Check: string(s.Check),
		MaxSignedAge: s.MaxSignedAge, AllowHTTP: s.AllowHTTP, AllowPrivate: s.AllowPrivate, Content: s.Content,
	}
	g.API, g.Git = v.addresses(path, kind, s.API, s.Git, s.AllowHTTP)
	v.identity(path, s, &g)
	if s.Repository != nil {
		if kind != GitLab && s.Repository.Name.nested() {
			v.refuse(path+".repository.name", "must be owner/name: %s has no groups within groups", kind)
		}
		g.Repository = Repository{ID: s.Repository.ID, OwnerID: s.Repository.OwnerID}
		g.Repository.Owner, g.Repository.Name, _ = strings.Cut(string(s.Repository.Name), "/")
	}
	if s.Plan != nil {
		g.Plan = v.plan(path+".plan", *s.Plan, s.AllowHTTP, path+".allow_http")
	}
	whole = s.Repository != nil && s.Repository.ID != 0 && s.Repository.Name != "" && g.Check != "" &&
		g.API != nil && g.Git != nil && g.Plan.Action.URL != nil && (kind != GitLab || g.GitLab.Issuer != nil)
	return g, whole
}

func (v *validator) plan(path string, s planSection, allowHTTP bool, unless string) Plan {
	p := Plan{
		Program: string(s.Program), SHA256: s.SHA256,
		ExternalVerification: s.ExternalVerification, Limits: s.PlanLimits,
	}
	if s.Action == nil {
		return p
	}
	p.Action = Action{URL: v.secure(path+".action.url", s.Action.URL, allowHTTP, unless), Commit: s.Action.Commit.id}
	if c := s.Action.Credential; c != nil {
		p.Action.Credential = Credential{
			Username: c.Username,
			Token:    v.use(path+".action.credential.token", c.Token, asToken, ""),
		}
	}
	return p
}

// faulty reports whether the field has a fault of its own already.
func (v *validator) faulty(path string) bool { return v.broken[path] }

// faultyWithin reports whether the section, or something in it, has one.
func (v *validator) faultyWithin(path string) bool {
	_, broken := v.broken[path]
	return broken
}

// given reports whether the field was written.
func (v *validator) given(path string) bool {
	_, ok := v.places[path]
	return ok
}

func listed[T ~string](names []T) string {
	texts := make([]string, len(names))
	for i, n := range names {
		texts[i] = string(n)
	}
	return strings.Join(texts, ", ")
}
