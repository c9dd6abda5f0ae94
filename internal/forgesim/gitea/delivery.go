package gitea

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha1"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/fencepost/fencepost/internal/forgesim"
)

type object = map[string]any

// A HookConfig says where a repository's events go.
type HookConfig struct {
	// URL is where to; empty: deliveries stay in [Forge.Outbox].
	URL string
	// Secret signs them; without one the signature headers are empty.
	Secret []byte
	// Events default to push.
	Events []string
	// Forgejo makes it a hook of Forgejo's own type.
	Forgejo bool
}

// A Hook is a webhook of one repository.
type Hook struct {
	repo *Repository
	id   int64
	// Guarded by Forge.mu:
	config HookConfig
	off    bool
}

// AddHook makes a webhook. It sends nothing: there is no ping.
func (r *Repository) AddHook(c HookConfig) *Hook {
	f := r.forge
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(c.Events) == 0 {
		c.Events = []string{"push"}
	}
	f.hooks++
	h := &Hook{repo: r, id: f.hooks, config: c}
	r.hooks = append(r.hooks, h)
	return h
}

// ID returns the hook's id.
func (h *Hook) ID() int64 { return h.id }

// Set changes where deliveries go and what signs them.
func (h *Hook) Set(url string, secret []byte) {
	f := h.repo.forge
	f.mu.Lock()
	h.config.URL, h.config.Secret = url, slices.Clone(secret)
	f.mu.Unlock()
	f.wake()
}

// Test makes the test delivery: a push whose before and after are the branch's
// tip, whatever the hook's events are.
func (h *Hook) Test(ref string) error {
	f := h.repo.forge
	f.mu.Lock()
	defer f.mu.Unlock()
	return h.test(ref)
}

// test is called with mu held.
func (h *Hook) test(ref string) error {
	r := h.repo
	if ref == "" {
		ref = "refs/heads/main"
	}
	tip := r.under.Ref(ref)
	if tip == "" {
		tip = r.under.Ref("refs/heads/main")
	}
	if tip == "" {
		return fmt.Errorf("gitea: test delivery: %w", forgesim.ErrNotFound)
	}
	now := r.forge.config.Now()
	by := person{Name: "Forge", Email: "forge@forge.invalid", Username: ""}
	body := r.pushPayload(pushed{
		Ref: ref, Before: tip, After: tip,
		Commits: []change{{ID: tip, Message: "tip", Timestamp: now, Author: by, Committer: by}},
	}, r.forge.user(account{ID: 1, Login: "tester"}))
	h.add("push", body)
	r.forge.wake()
	return nil
}

// A Delivery is one webhook: first as it waits in the outbox, then as the
// history has it.
type Delivery struct {
	// UUID is new for each delivery, a replay's too.
	UUID  string
	Event string
	Hook  *Hook
	// Body is the JSON text, made once and sent as it was made.
	Body []byte
	Made time.Time

	// What follows is set once it was tried.

	// Header is what was sent. StatusCode is zero where there was no answer,
	// Lost where the request was never sent at all.
	Header     http.Header
	StatusCode int
	Lost       bool
}

// queue makes a delivery if the hook listens. Called with mu held.
func (h *Hook) queue(event string, payload object) {
	if !h.off && slices.Contains(h.config.Events, event) {
		h.add(event, payload)
	}
}

// add is called with mu held.
func (h *Hook) add(event string, payload object) {
	h.push(event, indent(payload))
}

// push is called with mu held.
func (h *Hook) push(event string, body []byte) {
	f := h.repo.forge
	a, b := f.rng.Uint64(), f.rng.Uint64()
	f.outbox = append(f.outbox, &Delivery{
		UUID:  fmt.Sprintf("%08x-%04x-4%03x-%04x-%012x", a>>32, a>>16&0xffff, a&0xfff, b>>48&0x3fff|0x8000, b&0xffff_ffff_ffff),
		Event: event, Hook: h, Body: body, Made: f.config.Now(),
	})
}

// indent writes JSON as it is sent: two blanks for each level.
func indent(value any) []byte {
	body, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		panic("gitea: " + err.Error()) // a value of our own that has no JSON
	}
	return body
}

// Replay makes the delivery of the history again: the same body under a new
// UUID, signed with the hook's present secret.
func (f *Forge) Replay(uuid string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	i := slices.IndexFunc(f.deliveries, func(d *Delivery) bool { return d.UUID == uuid })
	if i < 0 {
		return fmt.Errorf("gitea: replay: %w", forgesim.ErrNotFound)
	}
	f.deliveries[i].Hook.push(f.deliveries[i].Event, f.deliveries[i].Body)
	f.wake()
	return nil
}

// Outbox returns what was made and not tried yet, in order.
func (f *Forge) Outbox() []Delivery { return f.copies(&f.outbox) }

// Deliveries returns the history, oldest first.
func (f *Forge) Deliveries() []Delivery { return f.copies(&f.deliveries) }

func (f *Forge) copies(all *[]*Delivery) []Delivery {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := make([]Delivery, 0, len(*all))
	for _, d := range *all {
		out = append(out, *d)
	}
	return out
}

// TakeOutbox empties the outbox and returns what was in it. Nothing of it
// enters the history.
func (f *Forge) TakeOutbox() []Delivery {
	taken := f.Outbox()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.outbox = slices.Clone(f.outbox[len(taken):])
	return taken
}

// Deliver sends what is in the outbox, one after the other, each once. An
// answer that is none is in the history and no error; the error is the
// context's. What has no URL to go to stays.
func (f *Forge) Deliver(ctx context.Context) error {
	for {
		d, to := f.next()
		if d == nil {
			return nil
		}
		if err := f.send(ctx, d, to); err != nil {
			return err
		}
	}
}

// next takes a delivery out of the outbox. It is in the history from then on:
// the real one marks it as delivered before it sends it, so that what dies in
// between is lost.
func (f *Forge) next() (*Delivery, string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for !f.down {
		i := slices.IndexFunc(f.outbox, func(d *Delivery) bool { return d.Hook.config.URL != "" })
		if i < 0 {
			return nil, ""
		}
		d := f.outbox[i]
		f.outbox = slices.Delete(f.outbox, i, i+1)
		f.deliveries = append(f.deliveries, d)
		if f.config.Lose <= 0 || f.rng.Float64() >= f.config.Lose {
			return d, d.Hook.config.URL
		}
		d.Lost = true
	}
	return nil, ""
}

func (f *Forge) send(ctx context.Context, d *Delivery, to string) error {
	limited, cancel := context.WithTimeout(ctx, f.config.HookTimeout)
	defer cancel()
	request, err := f.Request(limited, *d, to)
	if err != nil {
		return err
	}
	code := 0
	if response, err := f.client.Do(request); err == nil {
		_, err := io.Copy(io.Discard, io.LimitReader(response.Body, maxHookResponse))
		if errors.Join(err, response.Body.Close()) == nil {
			code = response.StatusCode
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	d.Header, d.StatusCode = request.Header, code
	return ctx.Err()
}

// Request makes the signed request of a delivery to a URL, without sending it.
func (f *Forge) Request(ctx context.Context, d Delivery, to string) (*http.Request, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, to, bytes.NewReader(d.Body))
	if err != nil {
		return nil, fmt.Errorf("gitea: delivery: %w", err)
	}
	f.mu.Lock()
	hook := d.Hook.config
	f.mu.Unlock()
	signature, legacy := "", ""
	if len(hook.Secret) > 0 {
		signature = forgesim.Sign(hook.Secret, d.Body)
		mac := hmac.New(sha1.New, hook.Secret)
		mac.Write(d.Body)
		legacy = hex.EncodeToString(mac.Sum(nil))
	}
	h := request.Header
	h.Set("Content-Type", "application/json")
	h.Set("User-Agent", "Go-http-client/1.1")
	families := []string{"Gitea", "Gogs", "GitHub"}
	if f.config.Forgejo {
		families = append(families, "Forgejo")
	}
	for _, family := range families {
		h.Set("X-"+family+"-Delivery", d.UUID)
		h.Set("X-"+family+"-Event", d.Event)
		h.Set("X-"+family+"-Event-Type", d.Event)
		if family != "GitHub" {
			h.Set("X-"+family+"-Signature", signature)
		}
		if !f.config.Forgejo && family != "Gogs" {
			h.Set("X-"+family+"-Hook-Installation-Target-Type", "repository")
		}
	}
	h.Set("X-Hub-Signature", "sha1="+legacy)
	h.Set("X-Hub-Signature-256", "sha256="+signature)
	return request, nil
}

// wake lets the delivery loop look at the outbox.
func (f *Forge) wake() {
	select {
	case f.kick <- struct{}{}:
	default:
	}
}

// user is an account as it is shown. Called with mu held.
func (f *Forge) user(a account) object {
	return object{
		"id": a.ID, "login": a.Login, "login_name": "", "source_id": 0, "full_name": "", "email": a.Login + "@noreply.gitea.invalid",
		"avatar_url": f.base + "/avatars/" + strings.ToLower(a.Login), "html_url": f.base + "/" + a.Login, "language": "", "is_admin": false,
		"last_login": "0001-01-01T00:00:00Z", "created": "2026-01-01T00:00:00Z", "restricted": false, "active": false, "prohibit_login": false,
		"location": "", "website": "", "description": "", "visibility": "public",
		"followers_count": 0, "following_count": 0, "starred_repos_count": 0, "username": a.Login,
	}
}
