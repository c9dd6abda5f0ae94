package gitea_test

import (
	"testing"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/forgesim"
	"github.com/fencepost/fencepost/internal/gate/gitea"
)

// TestAdmitsWhatAsksForAVerdict drives the simulated instance through what
// people do with a request, and holds what its deliveries ask for.
func TestAdmitsWhatAsksForAVerdict(t *testing.T) {
	t.Parallel()
	b := newBench(t, gitea.Gitea)
	ctx := t.Context()
	p, err := b.repo.OpenPull(ctx, forgesim.OpenPull{
		Head: "change", Title: "WIP: a guide", Change: forgesim.Change{Files: map[string]string{"guide.md": "1\n"}},
	}, nil)
	must(t, err)
	_, err = b.repo.Push(ctx, forgesim.Push{Branch: "stable"})
	must(t, err)
	want := func(what string, reason fencepost.Reason) {
		t.Helper()
		s, err := b.admit("pull_request", b.delivered())
		if reason != "" {
			if fencepost.ReasonOf(err) != reason {
				t.Errorf("%s: %v, want %s", what, err, reason)
			}
			return
		}
		if err != nil || s != b.subject(p) {
			t.Errorf("%s: %+v, %v; want %+v", what, s, err, b.subject(p))
		}
	}
	want("opened", "")
	_, err = p.Push(ctx, forgesim.Change{Files: map[string]string{"guide.md": "2\n"}})
	must(t, err)
	want("synchronized", "")
	must(t, p.SetTitle(ctx, "A guide"))
	want("ready", "")
	must(t, p.SetTitle(ctx, "A better guide"))
	want("another title", fencepost.ReasonEventNotHandled)
	must(t, p.SetBase(ctx, "stable"))
	want("another base", fencepost.ReasonEventNotHandled)
	must(t, p.SetBase(ctx, "main"))
	want("our base again", "")
	must(t, p.Close(ctx))
	want("closed", fencepost.ReasonEventNotHandled)
	must(t, p.Reopen(ctx))
	want("reopened", "")
}

func TestRefusesWhatIsNotOurs(t *testing.T) {
	t.Parallel()
	b := newBench(t, gitea.Forgejo)
	b.open()
	good := b.delivered()
	change := func(edit func(m map[string]any)) map[string]any {
		c := clone(good).(map[string]any)
		edit(c)
		return c
	}
	at := func(m map[string]any, path ...string) map[string]any {
		for _, p := range path {
			m = m[p].(map[string]any)
		}
		return m
	}
	for name, tc := range map[string]struct {
		event string
		body  any
		want  fencepost.Reason
	}{
		"another repository":     {"pull_request", change(func(m map[string]any) { at(m, "repository")["id"] = 99 }), fencepost.ReasonUnauthorized},
		"another owner":          {"pull_request", change(func(m map[string]any) { at(m, "repository", "owner")["id"] = 99 }), fencepost.ReasonUnauthorized},
		"a base elsewhere":       {"pull_request", change(func(m map[string]any) { at(m, "pull_request", "base")["repo_id"] = 99 }), fencepost.ReasonUnauthorized},
		"two numbers":            {"pull_request", change(func(m map[string]any) { m["number"] = 99 }), fencepost.ReasonUnauthorized},
		"two heads":              {"pull_request", change(func(m map[string]any) { m["after"] = "1111111111111111111111111111111111111111" }), fencepost.ReasonUnauthorized},
		"a short head":           {"pull_request", change(func(m map[string]any) { at(m, "pull_request", "head")["sha"] = "1111" }), fencepost.ReasonMalformed},
		"no request":             {"pull_request", change(func(m map[string]any) { delete(m, "pull_request") }), fencepost.ReasonMalformed},
		"no repository":          {"pull_request", change(func(m map[string]any) { delete(m, "repository") }), fencepost.ReasonMalformed},
		"no base":                {"pull_request", change(func(m map[string]any) { delete(at(m, "pull_request"), "base") }), fencepost.ReasonMalformed},
		"our own review":         {"pull_request_approved", good, fencepost.ReasonEventNotHandled},
		"a push":                 {"push", map[string]any{"repository": good["repository"]}, fencepost.ReasonEventNotHandled},
		"a push elsewhere":       {"push", change(func(m map[string]any) { at(m, "repository")["id"] = 99 }), fencepost.ReasonUnauthorized},
		"a list":                 {"pull_request", []int{1}, fencepost.ReasonMalformed},
		"an unknown action":      {"pull_request", change(func(m map[string]any) { m["action"] = "label_updated" }), fencepost.ReasonEventNotHandled},
		"GitHub's name of it":    {"pull_request", change(func(m map[string]any) { m["action"] = "synchronize" }), fencepost.ReasonEventNotHandled},
		"a title without change": {"pull_request", change(func(m map[string]any) { m["action"] = "edited" }), fencepost.ReasonEventNotHandled},
	} {
		if _, err := b.admit(tc.event, tc.body); fencepost.ReasonOf(err) != tc.want {
			t.Errorf("%s: %v, want %s", name, err, tc.want)
		}
	}
	if _, err := b.admit("pull_request", good); err != nil {
		t.Errorf("the untouched event: %v", err)
	}
	deleted := change(func(m map[string]any) {
		at(m, "pull_request", "head")["repo"], at(m, "pull_request", "head")["repo_id"] = nil, -1
	})
	if _, err := b.admit("pull_request", deleted); err != nil {
		t.Errorf("a deleted fork: %v", err)
	}
	if _, err := b.lane.Admit(fencepost.Headers{}, []byte("{}")); fencepost.ReasonOf(err) != fencepost.ReasonMalformed {
		t.Errorf("no event header: %v", err)
	}
}

// clone copies decoded JSON.
func clone(v any) any {
	switch v := v.(type) {
	case map[string]any:
		c := map[string]any{}
		for k, e := range v {
			c[k] = clone(e)
		}
		return c
	case []any:
		c := make([]any, len(v))
		for i, e := range v {
			c[i] = clone(e)
		}
		return c
	}
	return v
}
