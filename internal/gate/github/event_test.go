package github_test

import (
	"strings"
	"testing"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/forgesim"
	"github.com/fencepost/fencepost/internal/gate"
)

const headSHA = "ec26c3e57ca3a959ca5aad62de7213c562f8c821"

const opened = `{"action":"opened","number":2,
	"pull_request":{"number":2,"state":"open","draft":false,
		"head":{"ref":"change","sha":"` + headSHA + `","repo":{"id":5,"owner":{"id":6}}},
		"base":{"ref":"main","sha":"f95f852bd8fca8fcc58a9a2d6c842781e32a215e","repo":{"id":1296269,"owner":{"id":583231}}}},
	"repository":{"id":1296269,"full_name":"acme/docs","owner":{"id":583231,"login":"acme"}},
	"sender":{"id":1,"login":"octocat","type":"User"},"installation":{"id":67890},"new_field":[1,{"a":null}]}`

func headers(event ...string) fencepost.Headers {
	pairs := []fencepost.Header{{Name: "X-GitHub-Delivery", Value: "g"}}
	for _, e := range event {
		pairs = append(pairs, fencepost.Header{Name: "X-GitHub-Event", Value: e})
	}
	return fencepost.NewHeaders(pairs)
}

func TestAdmit(t *testing.T) {
	t.Parallel()
	edit := func(pairs ...string) string { return strings.NewReplacer(pairs...).Replace(opened) }
	pr := []string{"pull_request"}
	for _, tc := range []struct {
		name  string
		event []string
		body  string
		want  fencepost.Reason
	}{
		{"opened", pr, opened, ""},
		{"synchronize", pr, edit(`"opened"`, `"synchronize","before":"x","after":"`+headSHA+`"`), ""},
		{"reopened", pr, edit(`"opened"`, `"reopened"`), ""},
		{"ready for review", pr, edit(`"opened"`, `"ready_for_review"`), ""},
		{"edited with another base", pr, edit(`"opened"`, `"edited","changes":{"base":{"ref":{"from":"old"},"sha":{"from":"x"}}}`), ""},
		{"a draft is told by the refresh", pr, edit(`"draft":false`, `"draft":true`), ""},
		{"deleted fork", pr, edit(`"repo":{"id":5,"owner":{"id":6}}}`, `"repo":null}`), ""},
		{"repository's own hook, without an installation", pr, edit(`,"installation":{"id":67890}`, ``), ""},
		{"renamed, same id", pr, edit(`"full_name":"acme/docs"`, `"full_name":"acme/handbook"`), ""},

		{"edited title", pr, edit(`"opened"`, `"edited","changes":{"title":{"from":"old"}}`), fencepost.ReasonEventNotHandled},
		{"edited without changes", pr, edit(`"opened"`, `"edited"`), fencepost.ReasonEventNotHandled},
		{"closed", pr, edit(`"opened"`, `"closed"`), fencepost.ReasonEventNotHandled},
		{"unknown action", pr, edit(`"opened"`, `"frobnicated"`), fencepost.ReasonEventNotHandled},
		{"another base", pr, edit(`"ref":"main"`, `"ref":"release"`), fencepost.ReasonEventNotHandled},
		{"base as a full ref", pr, edit(`"ref":"main"`, `"ref":"refs/heads/main"`), fencepost.ReasonEventNotHandled},
		{"ping", []string{"ping"}, `{"zen":"z","hook_id":1,"hook":{"id":1}}`, fencepost.ReasonEventNotHandled},
		{"our own check run", []string{"check_run"}, `{"action":"completed","check_run":{"id":1,"app":{"id":12345}},"repository":{"id":1296269,"owner":{"id":583231}},"installation":{"id":67890}}`, fencepost.ReasonEventNotHandled},
		{"check suite", []string{"check_suite"}, `{"action":"requested","repository":{"id":1296269,"owner":{"id":583231}}}`, fencepost.ReasonEventNotHandled},
		{"push", []string{"push"}, `{"ref":"refs/heads/main","repository":{"id":1296269,"owner":{"id":583231,"name":"acme"}}}`, fencepost.ReasonEventNotHandled},
		{"the installation's own event", []string{"installation"}, `{"action":"created","installation":{"id":67890}}`, fencepost.ReasonEventNotHandled},

		{"another repository", pr, edit(`"repository":{"id":1296269`, `"repository":{"id":1296270`), fencepost.ReasonUnauthorized},
		{"another owner", pr, edit(`"owner":{"id":583231,"login"`, `"owner":{"id":583232,"login"`), fencepost.ReasonUnauthorized},
		{"same name, another repository", pr, edit(`"repository":{"id":1296269`, `"repository":{"id":9`), fencepost.ReasonUnauthorized},
		{"base in another repository", pr, edit(`"repo":{"id":1296269`, `"repo":{"id":1296270`), fencepost.ReasonUnauthorized},
		{"another installation", pr, edit(`"id":67890`, `"id":67891`), fencepost.ReasonUnauthorized},
		{"two numbers", pr, edit(`"number":2,
	"pull`, `"number":3,
	"pull`), fencepost.ReasonUnauthorized},
		{"two heads", pr, edit(`"opened"`, `"synchronize","after":"f95f852bd8fca8fcc58a9a2d6c842781e32a215e"`), fencepost.ReasonUnauthorized},
		{"another repository's ping", []string{"ping"}, `{"zen":"z","repository":{"id":9,"owner":{"id":1}}}`, fencepost.ReasonUnauthorized},
		{"another repository's push", []string{"push"}, `{"repository":{"id":9,"owner":{"id":1}}}`, fencepost.ReasonUnauthorized},

		{"no event header", nil, opened, fencepost.ReasonMalformed},
		{"two event headers", []string{"pull_request", "pull_request"}, opened, fencepost.ReasonMalformed},
		{"event header of another kind of body", pr, `{"zen":"z","hook_id":1}`, fencepost.ReasonMalformed},
		{"no head", pr, edit(`"sha":"`+headSHA+`",`, ``), fencepost.ReasonMalformed},
		{"null head", pr, edit(`"sha":"`+headSHA+`"`, `"sha":null`), fencepost.ReasonMalformed},
		{"upper-case head", pr, edit(headSHA, strings.ToUpper(headSHA)), fencepost.ReasonMalformed},
		{"short head", pr, edit(headSHA, headSHA[:39]), fencepost.ReasonMalformed},
		{"zero head", pr, edit(headSHA, strings.Repeat("0", 40)), fencepost.ReasonMalformed},
		{"no pull request", pr, `{"action":"opened","number":2,"repository":{"id":1296269,"owner":{"id":583231}}}`, fencepost.ReasonMalformed},
		{"number as a float", pr, edit(`"number":2,"state"`, `"number":2.0,"state"`), fencepost.ReasonMalformed},
		{"id as a text", pr, edit(`"repository":{"id":1296269`, `"repository":{"id":"1296269"`), fencepost.ReasonMalformed},
		{"id beyond 64 bits", pr, edit(`"id":67890`, `"id":99999999999999999999`), fencepost.ReasonMalformed},
		{"number zero", pr, edit(`"number":2`, `"number":0`), fencepost.ReasonMalformed},
		{"a key twice", pr, edit(`"action":"opened"`, `"action":"opened","action":"closed"`), fencepost.ReasonMalformed},
		{"a key in other letters", pr, edit(`"action":"opened"`, `"Action":"opened"`), fencepost.ReasonMalformed},
		{"bytes after it", pr, opened + `{}`, fencepost.ReasonMalformed},
		{"form encoding", pr, `payload=%7B%7D`, fencepost.ReasonMalformed},
		{"no bytes", pr, ``, fencepost.ReasonMalformed},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			got, err := paper(t).Admit(headers(tc.event...), []byte(tc.body))
			wantReason(t, err, tc.want)
			if tc.want != "" {
				if got != (gate.Subject{}) {
					t.Errorf("a refused event has the subject %+v", got)
				}
				wantClean(t, err, "octocat", "acme", headSHA)
				return
			}
			if got.Number != 2 || got.Head.String() != headSHA || got.BaseRef != "refs/heads/main" {
				t.Errorf("subject %+v", got)
			}
		})
	}
}

func TestAdmitTakesWhatTheForgeSends(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	pr, s := b.open(forgesim.OpenPull{})
	_, err := pr.Push(t.Context(), forgesim.Change{Files: map[string]string{"b.md": "x"}})
	must(t, err)
	next := subjectOf(t, pr)
	var admitted []gate.Subject
	for _, d := range b.forge.TakeOutbox() {
		got, err := b.lane.Admit(headers(d.Event), d.Body)
		if d.Event != "pull_request" {
			wantReason(t, err, fencepost.ReasonEventNotHandled)
			continue
		}
		must(t, err)
		admitted = append(admitted, got)
	}
	if len(admitted) != 2 || admitted[0] != s || admitted[1] != next {
		t.Errorf("admitted %+v, want %+v and %+v", admitted, s, next)
	}
}

func FuzzAdmit(f *testing.F) {
	lane := paper(f)
	f.Add("pull_request", []byte(opened))
	f.Add("pull_request", []byte(strings.ReplaceAll(opened, "null", "nul")))
	f.Add("ping", []byte(`{"zen":"z"}`))
	f.Add("check_run", []byte(`{"repository":{"id":1296269,"owner":{"id":583231}},"installation":null}`))
	f.Fuzz(func(t *testing.T, kind string, body []byte) {
		s, err := lane.Admit(headers(kind), body)
		switch fencepost.ReasonOf(err) {
		case fencepost.ReasonNone:
			if kind != "pull_request" || s.Head.IsZero() || s.Number < 1 || s.BaseRef != "refs/heads/main" {
				t.Errorf("admitted %q as %+v", kind, s)
			}
		case fencepost.ReasonEventNotHandled, fencepost.ReasonMalformed, fencepost.ReasonUnauthorized:
			if s != (gate.Subject{}) {
				t.Errorf("refused with the subject %+v", s)
			}
		default:
			t.Errorf("error %v", err)
		}
	})
}
