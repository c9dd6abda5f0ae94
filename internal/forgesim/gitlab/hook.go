package gitlab

import (
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/fencepost/fencepost/internal/forgesim"
)

type object = map[string]any

// Values of X-Gitlab-Event.
const (
	pushHook    = "Push Hook"
	tagHook     = "Tag Push Hook"
	requestHook = "Merge Request Hook"
)

// When deliveries of a hook stop. contracts/gitlab.md §3
const (
	failuresToPause   = 4
	failuresToDisable = 40
	firstPause        = time.Minute
	longestPause      = 24 * time.Hour
	keptEvents        = 48 * time.Hour
	// resends is how many a minute may have.
	resends = 5
)

// ErrRefused is matched by the error of what the forge refuses to do.
var ErrRefused = errors.New("refused")

// A HookConfig says where a project's events go.
type HookConfig struct {
	// URL is where to; empty: deliveries stay in [Forge.Outbox].
	URL string
	// SigningToken signs them: "whsec_" and the base64 of 32 bytes. Versions
	// before 19.0 take it and do nothing with it.
	SigningToken string
	// Token is the legacy one, sent in clear text.
	Token string
	// Pushes, TagPushes and Requests are the events; with none, pushes.
	Pushes, TagPushes, Requests bool
}

// A Hook is a webhook of one project.
type Hook struct {
	project *Project
	id      int64
	uuid    string
	made    time.Time
	// Guarded by Forge.mu:
	config  HookConfig
	key     []byte
	failed  int // in a row
	pauses  int
	until   time.Time // of a pause
	off     bool
	resends []time.Time
}

// AddHook makes a webhook. It sends nothing. Its error is about the signing
// token.
func (p *Project) AddHook(c HookConfig) (*Hook, error) {
	f := p.forge
	f.mu.Lock()
	defer f.mu.Unlock()
	return p.addHook(c)
}

// addHook is called with mu held.
func (p *Project) addHook(c HookConfig) (*Hook, error) {
	f := p.forge
	if !c.Pushes && !c.TagPushes && !c.Requests {
		c.Pushes = true
	}
	f.ids.hook++
	h := &Hook{project: p, id: f.ids.hook, uuid: f.uuid(), made: f.config.Now()}
	if err := h.set(c); err != nil {
		return nil, err
	}
	p.hooks = append(p.hooks, h)
	return h, nil
}

// set is called with mu held.
func (h *Hook) set(c HookConfig) error {
	h.key = nil
	if c.SigningToken != "" && !h.project.forge.config.Version.before(19, 0) {
		text, ok := strings.CutPrefix(c.SigningToken, "whsec_")
		key, err := base64.StdEncoding.DecodeString(text)
		if !ok || err != nil || len(key) != 32 {
			return fmt.Errorf("gitlab: signing token: want whsec_ and the base64 of 32 bytes: %w", forgesim.ErrConfig)
		}
		h.key = key
	}
	h.config = c
	return nil
}

// ID returns the hook's id.
func (h *Hook) ID() int64 { return h.id }

// Set changes where deliveries go and what signs them. Waiting deliveries keep
// their ids.
func (h *Hook) Set(url, signingToken string) error {
	f := h.project.forge
	f.mu.Lock()
	defer f.mu.Unlock()
	c := h.config
	c.URL, c.SigningToken = url, signingToken
	defer f.wake()
	return h.set(c)
}

// AlertStatus is "executable", "temporarily_disabled" until a time, or
// "disabled".
func (h *Hook) AlertStatus() (string, time.Time) {
	f := h.project.forge
	f.mu.Lock()
	defer f.mu.Unlock()
	return h.alertStatus()
}

// alertStatus is called with mu held.
func (h *Hook) alertStatus() (string, time.Time) {
	switch {
	case h.off:
		return "disabled", time.Time{}
	case h.until.After(h.project.forge.config.Now()):
		return "temporarily_disabled", h.until
	}
	return "executable", time.Time{}
}

// render is the hook as the API shows it: no token is ever shown. Called with
// mu held.
func (h *Hook) render() object {
	status, until := h.alertStatus()
	o := object{
		"id": h.id, "url": h.config.URL, "name": "", "description": "", "project_id": h.project.id, "created_at": stamp(h.made),
		"push_events": h.config.Pushes, "push_events_branch_filter": "", "branch_filter_strategy": "wildcard",
		"tag_push_events": h.config.TagPushes, "merge_requests_events": h.config.Requests,
		"enable_ssl_verification": true, "alert_status": status, "disabled_until": nil,
		"url_variables": []object{}, "custom_headers": []object{}, "custom_webhook_template": nil,
	}
	if status == "temporarily_disabled" {
		o["disabled_until"] = stamp(until)
	}
	if !h.project.forge.config.Version.before(19, 0) {
		o["token_present"], o["signing_token_present"] = h.config.Token != "", len(h.key) > 0
	}
	return o
}
