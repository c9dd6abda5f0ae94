package gitlab

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/fencepost/fencepost/internal/forgesim"
)

// A Delivery is one webhook: first as it waits in the outbox, then as the
// history has it.
type Delivery struct {
	// ID is that of the history's entry; MessageID the same for a resend.
	ID        int64
	MessageID string
	// EventUUID is that of what happened: hooks set off by one another share
	// it.
	EventUUID string
	Event     string
	Hook      *Hook
	// Body is the JSON text, made once and sent as it was made.
	Body []byte
	Made time.Time
	// To is where it went first: a resend elsewhere is refused.
	To string

	// What follows is set once it was tried.

	// Header is what was sent. StatusCode is zero where there was no answer,
	// Lost where the request was never sent, Skipped where the hook was off.
	Header        http.Header
	StatusCode    int
	Lost, Skipped bool
	// force sends it whatever the hook's state is.
	force bool
}

// queue makes a delivery if the hook listens. Called with mu held.
func (h *Hook) queue(event string, payload object) {
	c := h.config
	if event == pushHook && c.Pushes || event == tagHook && c.TagPushes || event == requestHook && c.Requests {
		h.add(event, encode(payload), h.project.forge.uuid(), false)
	}
}

// add is called with mu held.
func (h *Hook) add(event string, body []byte, message string, force bool) *Delivery {
	f := h.project.forge
	f.ids.event++
	d := &Delivery{
		ID: f.ids.event, MessageID: message, EventUUID: f.uuid(), Event: event, Hook: h, Body: body, Made: f.config.Now(),
		force: force,
	}
	f.outbox = append(f.outbox, d)
	f.wake()
	return d
}

func encode(value any) []byte {
	body, err := json.Marshal(value)
	if err != nil {
		panic("gitlab: " + err.Error()) // a value of our own that has no JSON
	}
	return body
}

// Test sends the newest state of the default branch as a push, whatever state
// the hook is in. A good answer switches it on again.
func (h *Hook) Test(ctx context.Context) error {
	f := h.project.forge
	f.mu.Lock()
	defer f.mu.Unlock()
	p := h.project
	branch := p.under.DefaultBranch()
	tip := p.under.Ref("refs/heads/" + branch)
	c, err := p.under.Commit(ctx, tip)
	if err != nil {
		return fmt.Errorf("gitlab: test: %w", err)
	}
	before := zeroID
	if len(c.Parents) > 0 {
		before = c.Parents[0]
	}
	h.add(pushHook, encode(p.pushPayload(pushed{
		Ref: "refs/heads/" + branch, Before: before, After: tip, Commits: []change{{ID: tip, Message: c.Message, Timestamp: f.config.Now()}},
	})), f.uuid(), true)
	return nil
}

// Resend makes an entry of the history again: the same bytes under the same
// message id, at another time. Its error matches [ErrRefused] where the hook's
// URL is another now, the entry is older than two days, the hook is off, or
// there were too many.
func (f *Forge) Resend(id int64) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	i := slices.IndexFunc(f.deliveries, func(d *Delivery) bool { return d.ID == id })
	if i < 0 {
		return fmt.Errorf("gitlab: resend: %w", forgesim.ErrNotFound)
	}
	d, now := f.deliveries[i], f.config.Now()
	h := d.Hook
	h.resends = slices.DeleteFunc(h.resends, func(t time.Time) bool { return now.Sub(t) >= time.Minute })
	status, _ := h.alertStatus()
	switch {
	case now.Sub(d.Made) > keptEvents:
		return fmt.Errorf("gitlab: resend: %w", forgesim.ErrNotFound)
	case d.To != h.config.URL, status != "executable":
		return fmt.Errorf("gitlab: resend: %w: the hook's URL has changed, or it is off", ErrRefused)
	case len(h.resends) >= resends:
		return fmt.Errorf("gitlab: resend: %w: 5 a minute", errTooMany)
	}
	h.resends = append(h.resends, now)
	h.add(d.Event, d.Body, d.MessageID, false)
	return nil
}

var errTooMany = fmt.Errorf("%w: too many", ErrRefused)

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
		d := f.next()
		if d == nil {
			return nil
		}
		if err := f.send(ctx, d); err != nil {
			return err
		}
	}
}

// next takes a delivery out of the outbox into the history.
func (f *Forge) next() *Delivery {
	f.mu.Lock()
	defer f.mu.Unlock()
	for !f.down {
		i := slices.IndexFunc(f.outbox, func(d *Delivery) bool { return d.Hook.config.URL != "" })
		if i < 0 {
			return nil
		}
		d := f.outbox[i]
		f.outbox = slices.Delete(f.outbox, i, i+1)
		f.deliveries = append(f.deliveries, d)
		d.To = d.Hook.config.URL
		status, _ := d.Hook.alertStatus()
		d.Skipped = status != "executable" && !d.force
		d.Lost = !d.Skipped && f.config.Lose > 0 && f.rng.Float64() < f.config.Lose
		if !d.Lost && !d.Skipped {
			return d
		}
	}
	return nil
}

func (f *Forge) send(ctx context.Context, d *Delivery) error {
	limited, cancel := context.WithTimeout(ctx, f.config.HookTimeout)
	defer cancel()
	request, err := f.SignedRequest(limited, *d, d.To)
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
	if ctx.Err() == nil {
		d.Hook.count(code >= 200 && code < 300)
	}
	return ctx.Err()
}

// count counts an answer for or against the hook. Called with mu held.
func (h *Hook) count(good bool) {
	if good {
		h.failed, h.pauses, h.until, h.off = 0, 0, time.Time{}, false
		return
	}
	h.failed++
	switch {
	case h.failed >= failuresToDisable:
		h.off = true
	case h.failed >= failuresToPause:
		pause := min(firstPause<<min(h.pauses, 20), longestPause)
		h.pauses, h.until = h.pauses+1, h.project.forge.config.Now().Add(pause)
	}
}

// SignedRequest makes the request of a delivery to a URL at this moment,
// without sending it.
func (f *Forge) SignedRequest(ctx context.Context, d Delivery, to string) (*http.Request, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, to, bytes.NewReader(d.Body))
	if err != nil {
		return nil, fmt.Errorf("gitlab: delivery: %w", err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	h := request.Header
	h.Set("Content-Type", "application/json")
	h.Set("User-Agent", "GitLab/"+f.config.Version.String())
	h.Set("X-Gitlab-Event", d.Event)
	h.Set("X-Gitlab-Event-UUID", d.EventUUID)
	h.Set("X-Gitlab-Webhook-UUID", d.Hook.uuid)
	h.Set("X-Gitlab-Instance", f.base)
	h.Set("Idempotency-Key", d.MessageID)
	if d.Hook.config.Token != "" {
		h.Set("X-Gitlab-Token", d.Hook.config.Token)
	}
	if f.config.Version.before(19, 0) {
		return request, nil
	}
	at := strconv.FormatInt(f.config.Now().Unix(), 10)
	h.Set("webhook-id", d.MessageID)
	h.Set("webhook-timestamp", at)
	if len(d.Hook.key) > 0 {
		mac := hmac.New(sha256.New, d.Hook.key)
		mac.Write([]byte(d.MessageID + "." + at + "."))
		mac.Write(d.Body)
		h.Set("webhook-signature", "v1,"+base64.StdEncoding.EncodeToString(mac.Sum(nil)))
	}
	return request, nil
}

// wake lets the delivery loop look at the outbox.
func (f *Forge) wake() {
	select {
	case f.kick <- struct{}{}:
	default:
	}
}
