package config

import (
	"cmp"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/fencepost/fencepost"
)

// What a source on GitHub itself need not write.
const (
	gitHubAPI = "https://api.github.com"
	gitHubGit = "https://github.com"
)

func (v *validator) sources(doc *document) {
	ids := map[fencepost.SourceID]string{}
	sinks := newSinks(v)
	for _, key := range sortedKeys(doc.Sources) {
		section := doc.Sources[key]
		path := "sources." + string(key)
		v.trusts(doc, path, section.Trust, false)
		v.signs(path, section.Trust, ProviderKind(section.Provider))
		if _, taken := doc.Gates[key]; taken {
			v.refuse(path, "is the name of a gate too (line %d), and would have its webhook URL; rename one of the two", v.at("gates."+string(key)).line)
		}
		if there, twice := ids[section.ID.id]; twice && !section.ID.id.IsZero() {
			v.refuse(path+".id", "is the id of %s too; `uuidgen` makes another", there)
		}
		ids[section.ID.id] = path
		s := v.source(path, key, section)
		sinks.add(path+".sink", s.Sink)
		if v.faultyWithin(path) {
			continue
		}
		v.same(path, s.API, s.Repository)
		s.Contracts = s.contractsDigest()
		s.Digest = s.policyDigest()
		v.cfg.Sources = append(v.cfg.Sources, s)
	}
	sinks.apart()
}

// source turns one section into a policy. What it returns is whole only if
// nothing in the section is faulty.
func (v *validator) source(path string, key name, section sourceSection) Source {
	s := Source{
		Route: fencepost.RouteName(key), ID: section.ID.id, Provider: ProviderKind(section.Provider),
		Trust: fencepost.TrustSetName(section.Trust), Ref: string(section.Ref),
		AllowHTTP: section.AllowHTTP, AllowPrivate: section.AllowPrivate, Content: Content(section.Content),
		AcceptForced: section.ForcePush == "accept", Enabled: section.Enabled,
		Alerts: AlertPolicy{RunFailed: section.Alerts.RunFailed == "raise", RunPartial: section.Alerts.RunPartial == "raise"},
	}
	if v.faulty(path + ".provider") {
		s.Provider = "" // and what depends on it is not judged
	}
	v.servers(path, section, &s)
	if r := section.Repository; r != nil {
		if s.Provider != GitLab && s.Provider != "" && r.Name.nested() {
			v.refuse(path+".repository.name", "must be owner/name: %s has no groups within groups", s.Provider)
		}
		s.Repository = Repository{ID: r.ID, OwnerID: r.OwnerID}
		s.Repository.Owner, s.Repository.Name, _ = strings.Cut(string(r.Name), "/")
		s.Visibility, s.ObjectFormat = Visibility(r.Visibility), r.ObjectFormat
		if r.ObjectFormat == "sha256" {
			v.refuse(path+".repository.object_format", "sha256 is not yet supported in this version; only repositories with sha1 are")
		}
	}
	v.writers(path, section, &s)
	if c := section.Credential; c != nil && !v.faultyWithin(path+".credential") {
		s.Credential = v.credential(path+".credential", *c, s)
	}
	s.Timings = v.timings(path+".timings", section.Timings)
	if alert := fencepost.Total(s.Timings.Sums().Alert); !s.Alerts.RunFailed && alert > s.Timings.Target && !v.faultyWithin(path+".timings") {
		v.refuse(path+".alerts.run_failed", "must be raise, since the path to the alert (%s) does not keep timings.target (%s): a failed run may be all that is heard", alert, s.Timings.Target)
	}
	s.Fetch = v.sourceFetch(path+".fetch", section.Fetch, s.Timings)
	if len(s.Hosts) > 0 && s.Fetch.Redirects == 0 {
		v.warn(path+".hosts", "has no effect while fetch.redirects is 0, which follows none")
	}
	if section.Sink != nil {
		s.Sink = v.sink(path+".sink", *section.Sink, s)
	}
	return s
}

// servers fills in where the repository is.
func (v *validator) servers(path string, section sourceSection, s *Source) {
	unless := path + ".allow_http"
	s.API, s.Git = v.addresses(path, s.Provider, section.API, section.Git, s.AllowHTTP)
	seen := map[string]bool{}
	for i, h := range section.Hosts {
		at := fmt.Sprintf("%s.hosts[%d]", path, i)
		u := v.secure(at, h, s.AllowHTTP, unless)
		switch {
		case u == nil:
			continue
		case u.Path != "":
			v.refuse(at, "must be scheme and host alone, such as https://mirror.example.org")
		case seen[u.String()]:
			v.refuse(at, "is listed already; take it out")
		}
		seen[u.String()] = true
		s.Hosts = append(s.Hosts, u)
	}
	slices.SortFunc(s.Hosts, func(a, b *url.URL) int { return cmp.Compare(a.String(), b.String()) })
}

// mustLocation is a location of ours.
func mustLocation(text string) location {
	var l location
	if err := l.UnmarshalText([]byte(text)); err != nil {
		panic("config: location " + text)
	}
	return l
}

// writers fills in whose pushes are taken, and what heads that nobody named
// come to.
func (v *validator) writers(path string, section sourceSection, s *Source) {
	hasSenders := v.given(path + ".senders")
	switch {
	case hasSenders && section.AnyWriter:
		v.refuse(path+".any_writer", "contradicts senders; keep the one that is meant")
	case !hasSenders && !section.AnyWriter:
		v.refuse(path+".senders", "missing: list the accounts whose pushes are taken, such as senders: [{id: 583231, login: octocat}], or spell out any_writer: true")
	case hasSenders && section.UnannouncedHeads == "" && !v.faulty(path+".unannounced_heads"):
		v.refuse(path+".unannounced_heads", "missing: beside senders say accept, which applies a head found by looking whoever pushed it, or refuse, which alerts instead")
	}
	s.AnyWriter = section.AnyWriter
	s.AcceptUnannounced = section.UnannouncedHeads != "refuse"
	ids, logins := map[int64]int{}, map[string]int{}
	for i, w := range section.Senders {
		at := fmt.Sprintf("%s.senders[%d]", path, i)
		if line, twice := ids[w.ID]; twice && w.ID != 0 {
			v.refuse(at+".id", "is listed already in line %d; take one out", line)
		}
		login := strings.ToLower(string(w.Login))
		if line, twice := logins[login]; twice && login != "" {
			v.refuse(at+".login", "is listed already in line %d; take one out", line)
		}
		ids[w.ID], logins[login] = v.at(at+".id").line, v.at(at+".login").line
		s.Senders = append(s.Senders, Sender{ID: w.ID, Login: string(w.Login)})
	}
	slices.SortFunc(s.Senders, func(a, b Sender) int { return cmp.Compare(a.ID, b.ID) })
}

// credential takes the one of the three that is given.
func (v *validator) credential(path string, c sourceCredentialSection, s Source) SourceCredential {
	given := 0
	for _, is := range []bool{c.App != nil, !c.Token.IsZero(), c.Anonymous} {
		if is {
			given++
		}
	}
	switch {
	case given == 0:
		v.refuse(path, "names none: give app or token, or spell out anonymous: true where a public repository is read without one")
	case given > 1:
		v.refuse(path, "must be one of app, token and anonymous, has %d of them; nothing is ever tried with another one", given)
	case c.Token.IsZero() && v.given(path+".username"):
		v.refuse(path+".username", "has no meaning without token; take it out")
	case c.App != nil && s.Provider != GitHub && s.Provider != "":
		v.refuse(path+".app", "has no meaning for %s; use token", s.Provider)
	case c.Anonymous && s.Provider == GitHub:
		// Unauthenticated, its API answers 60 requests an hour to one address,
		// conditional ones included.
		v.refuse(path+".anonymous", "is not enough for github, which answers 60 anonymous requests an hour; give app or token")
	case c.Anonymous && s.Visibility == Private:
		v.refuse(path+".anonymous", "contradicts repository.visibility: a private repository can't be read without a credential")
	}
	switch {
	case c.App != nil:
		return SourceCredential{App: &App{ID: c.App.ID, Installation: c.App.Installation, Key: v.use(path+".app.key", c.App.Key, asAppKey, "")}}
	case !c.Token.IsZero():
		return SourceCredential{Basic: Credential{Username: c.Username, Token: v.use(path+".token", c.Token, asToken, "")}}
	}
	return SourceCredential{Anonymous: c.Anonymous}
}

// sourceFetch is the configuration's budgets with the source's own.
func (v *validator) sourceFetch(path string, own *Fetch, t fencepost.Timings) Fetch {
	f := v.cfg.Fetch
	if own != nil {
		f = v.overlaid(path, f, *own)
	}
	switch {
	case !v.given(path + ".total"):
		// The attempt has no more time than that.
		f.Total = min(f.Total, t.Checkout)
	case f.Total > t.Checkout:
		v.refuse(path+".total", "must be at most timings.checkout (%s), is %s", t.Checkout, f.Total)
	}
	if !v.given(path + ".connect") {
		f.Connect = min(f.Connect, f.Total)
	}
	if !v.given(path + ".idle") {
		f.Idle = min(f.Idle, f.Total)
	}
	if !v.faultyWithin("fetch") {
		v.fetchBounds(path, f)
	}
	return f
}
