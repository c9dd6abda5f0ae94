package forgesim

import (
	"fmt"
	"slices"
	"strconv"
)

// A Hook is a webhook of one repository, which needs no App. Its deliveries
// name no installation. Its exported methods are safe for concurrent use.
type Hook struct {
	repo *Repository
	// Guarded by Forge.mu:
	hook
	events []string
}

// AddHook gives the repository a webhook for events, default push, and makes
// the ping that a new hook gets. An empty URL leaves deliveries in
// [Forge.Outbox].
func (r *Repository) AddHook(url string, secret []byte, events ...string) *Hook {
	f := r.forge
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(events) == 0 {
		events = []string{"push"}
	}
	h := &Hook{repo: r, events: slices.Clone(events), hook: hook{
		id: next(&f.ids.hook), url: url, secret: slices.Clone(secret), contentType: "json", insecureSSL: "0",
	}}
	r.hooks = append(r.hooks, h)
	show := rendering{f}
	api := f.apiURL("/repos/%s/hooks/%d", r.fullName(), h.id)
	f.queue(&Delivery{Event: "ping", HookID: h.id, RepositoryID: r.id, Body: encode(merged(r.eventCommon(r.owner), object{
		"zen": "Keep it logically awesome.", "hook_id": h.id,
		"hook": object{
			"type": "Repository", "id": h.id, "name": "web", "active": true, "events": h.events, "config": h.config(),
			"updated_at": stamp(f.now()), "created_at": stamp(f.now()),
			"url": api, "test_url": api + "/test", "ping_url": api + "/pings", "deliveries_url": api + "/deliveries",
			"last_response": object{"code": nil, "status": "unused", "message": nil},
		},
		"sender": show.user(r.owner),
	}))})
	return h
}

// ID returns the hook's id.
func (h *Hook) ID() int64 { return h.id }

// Set changes where the hook's deliveries go and what signs them, as
// [App.SetHook] does.
func (h *Hook) Set(url string, secret []byte) {
	f := h.repo.forge
	f.mu.Lock()
	defer f.mu.Unlock()
	h.url, h.secret = url, slices.Clone(secret)
	f.wake()
}

// emitToHooks makes the deliveries of r's own hooks. Called with mu held.
func (r *Repository) emitToHooks(event, action string, payload func() (object, error)) error {
	for _, h := range r.hooks {
		if !slices.Contains(h.events, event) {
			continue
		}
		body, err := payload()
		if err != nil {
			return fmt.Errorf("webhook %s of %s: %w", event, r.fullName(), err)
		}
		r.forge.queue(&Delivery{Event: event, Action: action, HookID: h.id, RepositoryID: r.id, Body: encode(body)})
	}
	return nil
}

// A target is whose hook a delivery is for.
type target struct {
	hook
	kind string // as the header of that name says it
	of   int64
}

// String names the target.
func (t target) String() string { return t.kind + " " + strconv.FormatInt(t.of, 10) }

// targetOf finds the hook of a delivery. Called with mu held.
func (f *Forge) targetOf(d Delivery) (target, error) {
	for _, a := range f.apps {
		if d.HookID == 0 && a.id == d.AppID {
			return target{a.hook, "integration", a.id}, nil
		}
	}
	for _, r := range f.repositories {
		for _, h := range r.hooks {
			if h.id == d.HookID {
				return target{h.hook, "repository", r.id}, nil
			}
		}
	}
	return target{}, fmt.Errorf("delivery %d: its hook: %w", d.ID, ErrNotFound)
}
