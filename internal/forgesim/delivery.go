package forgesim

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"
)

// A Delivery is one webhook: first as it waits in the outbox, then as the
// delivery log has it.
type Delivery struct {
	// ID is the log's; a redelivery has its own.
	ID int64
	// GUID is X-GitHub-Delivery; a redelivery has that of the first delivery.
	GUID string
	// Event is X-GitHub-Event; Action the payload's, or "".
	Event, Action string
	// AppID is the App whose hook it is for; zero: HookID's.
	AppID int64
	// HookID is the repository's own hook that it is for; zero: an App's.
	HookID int64
	// InstallationID and RepositoryID are zero where the event has none.
	InstallationID, RepositoryID int64
	// Redelivery: asked for again.
	Redelivery bool
	// Body is the JSON text. In form mode the wire has it percent-encoded.
	Body []byte
	// Made is when the event happened.
	Made time.Time
	// Due is when it is sent at the earliest.
	Due time.Time

	// What follows is set once it was sent.

	// URL and Header are what was sent, the signature included.
	URL    string
	Header http.Header
	// DeliveredAt is when, Duration how long until the answer.
	DeliveredAt time.Time
	Duration    time.Duration
	// Status is "OK" for 2xx, else a text; StatusCode is zero where there was
	// no answer.
	Status     string
	StatusCode int
	// ResponseHeader and ResponseBody are the answer's, the body's first 64 KiB.
	ResponseHeader http.Header
	ResponseBody   []byte
}

// Errors of deliveries.
var (
	// ErrNoHook: the webhook has no URL.
	ErrNoHook = errors.New("no webhook URL")
	// ErrTooOld: a delivery of more than three days ago can't be asked for
	// again.
	ErrTooOld = errors.New("delivery is too old")
)

// queue puts a delivery into the outbox. Called with mu held.
func (f *Forge) queue(d *Delivery) {
	d.ID, d.Made = next(&f.ids.delivery), f.now()
	d.Due = d.Made.Add(f.mood.lateness())
	setDefault(&d.GUID, f.guid())
	f.outbox = append(f.outbox, d)
	f.wake()
}

// wake lets the delivery loop look at the outbox.
func (f *Forge) wake() {
	select {
	case f.kick <- struct{}{}:
	default:
	}
}

// guid is a random UUID. Called with mu held.
func (f *Forge) guid() string {
	a, b := f.mood.rng.Uint64(), f.mood.rng.Uint64()
	return fmt.Sprintf("%08x-%04x-4%03x-%04x-%012x", a>>32, a>>16&0xffff, a&0xfff, b>>48&0x3fff|0x8000, b&0xffff_ffff_ffff)
}

// Outbox returns what was made and not sent yet, in order.
func (f *Forge) Outbox() []Delivery {
	f.mu.Lock()
	defer f.mu.Unlock()
	return copies(f.outbox)
}

// TakeOutbox empties the outbox and returns what was in it, for a test that
// sends by itself: see [Forge.Request]. Nothing of it enters the log.
func (f *Forge) TakeOutbox() []Delivery {
	f.mu.Lock()
	defer f.mu.Unlock()
	taken := copies(f.outbox)
	f.outbox = nil
	return taken
}

// Deliveries returns the delivery log, oldest first.
func (f *Forge) Deliveries() []Delivery {
	f.mu.Lock()
	defer f.mu.Unlock()
	return copies(f.deliveries)
}

func copies(all []*Delivery) []Delivery {
	out := make([]Delivery, 0, len(all))
	for _, d := range all {
		out = append(out, *d)
	}
	return out
}

// Ping queues the event that GitHub sends when a webhook is made.
func (a *App) Ping() {
	f := a.forge
	f.mu.Lock()
	defer f.mu.Unlock()
	show := rendering{f}
	f.queue(&Delivery{Event: "ping", AppID: a.id, Body: encode(object{
		"zen": "Keep it logically awesome.", "hook_id": a.hook.id,
		"hook": object{
			"type": "App", "id": a.hook.id, "name": "web", "active": true, "events": slices.Clone(a.events), "app_id": a.id,
			"config":     a.hook.config(),
			"updated_at": stamp(a.created), "created_at": stamp(a.created),
			"deliveries_url": f.apiURL("/app/hook/deliveries"),
		},
		"sender": show.user(a.owner),
	})})
}

// Redeliver queues a delivery of the log again: same GUID, same bytes.
func (f *Forge) Redeliver(id int64) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.redeliver(f.logged(id))
}

// redeliver is called with mu held; nil is a delivery that is not there.
func (f *Forge) redeliver(d *Delivery) error {
	if d == nil {
		return fmt.Errorf("redeliver: %w", ErrNotFound)
	}
	if f.now().Sub(d.DeliveredAt) > redeliverable {
		return fmt.Errorf("redeliver %d: %w", d.ID, ErrTooOld)
	}
	f.queue(&Delivery{
		GUID: d.GUID, Event: d.Event, Action: d.Action, AppID: d.AppID, HookID: d.HookID, InstallationID: d.InstallationID,
		RepositoryID: d.RepositoryID, Redelivery: true, Body: d.Body,
	})
	return nil
}

// logged finds a delivery of the log. Called with mu held.
func (f *Forge) logged(id int64) *Delivery {
	i := slices.IndexFunc(f.deliveries, func(d *Delivery) bool { return d.ID == id })
	if i < 0 {
		return nil
	}
	return f.deliveries[i]
}

// Deliver sends what is due in the outbox, one after the other, and writes the
// log. While the forge is down it sends nothing. An answer that is not 2xx, or none, is in the log and no error; the
// error is [ErrNoHook] or the context's.
func (f *Forge) Deliver(ctx context.Context) error {
	for {
		d := f.nextDelivery()
		if d == nil {
			return nil
		}
		if err := f.deliverOne(ctx, d); err != nil {
			return err
		}
	}
}

// nextDelivery takes the next delivery out of the outbox, as the mood has it.
func (f *Forge) nextDelivery() *Delivery {
	f.mu.Lock()
	defer f.mu.Unlock()
	for !f.down {
		now := f.now()
		due := func(d *Delivery) bool { return !d.Due.After(now) }
		at := slices.IndexFunc(f.outbox, due)
		if at < 0 {
			return nil
		}
		if at+1 < len(f.outbox) && due(f.outbox[at+1]) && f.mood.chance(f.mood.Reorder) {
			at++
		}
		d := f.outbox[at]
		f.outbox = slices.Delete(f.outbox, at, at+1)
		if !d.Redelivery && f.mood.chance(f.mood.Duplicate) {
			again := *d
			again.Redelivery = true
			f.queue(&again)
		}
		if !f.mood.chance(f.mood.Lose) {
			return d
		}
		d.DeliveredAt, d.Duration, d.Status = now, f.config.HookTimeout, "timed out"
		f.deliveries = append(f.deliveries, d)
	}
	return nil
}

// nextDue is how long until a delivery of the outbox is due that waits for its
// time alone; false: none is.
func (f *Forge) nextDue() (time.Duration, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now, least, found := f.now(), time.Duration(0), false
	for _, d := range f.outbox {
		if wait := d.Due.Sub(now); wait > 0 && (!found || wait < least) {
			least, found = wait, true
		}
	}
	return least, found
}

// deliverOne sends one delivery.
func (f *Forge) deliverOne(ctx context.Context, d *Delivery) error {
	f.mu.Lock()
	target, err := f.targetOf(*d)
	if err == nil && target.url == "" {
		f.outbox = slices.Insert(f.outbox, 0, d)
		err = fmt.Errorf("deliver %s to %s: %w", d.Event, target, ErrNoHook)
	}
	f.mu.Unlock()
	if err != nil {
		return err
	}
	limited, cancel := context.WithTimeout(ctx, f.config.HookTimeout)
	defer cancel()
	request, err := f.Request(limited, *d, target.url)
	if err != nil {
		return err
	}
	started := f.now()
	code, header, body, status := f.post(request)
	f.mu.Lock()
	defer f.mu.Unlock()
	d.URL, d.Header, d.DeliveredAt, d.Duration = target.url, request.Header, started, f.now().Sub(started)
	d.StatusCode, d.ResponseHeader, d.ResponseBody, d.Status = code, header, body, status
	f.deliveries = append(f.deliveries, d)
	return ctx.Err()
}

// post sends a request and reads what is kept of the answer.
func (f *Forge) post(request *http.Request) (code int, header http.Header, body []byte, status string) {
	response, err := f.client.Do(request)
	if errors.Is(err, context.DeadlineExceeded) {
		return 0, nil, nil, "timed out"
	}
	if err != nil {
		return 0, nil, nil, "failed to connect to host"
	}
	defer response.Body.Close()
	var b bytes.Buffer
	if _, err := io.Copy(&b, io.LimitReader(response.Body, maxHookResponse)); err != nil {
		return response.StatusCode, response.Header, b.Bytes(), "invalid response"
	}
	status = "OK"
	if response.StatusCode/100 != 2 {
		status = "Invalid HTTP Response: " + strconv.Itoa(response.StatusCode)
	}
	return response.StatusCode, response.Header, b.Bytes(), status
}

// Request makes the signed request of a delivery to a URL, without sending it.
// The signature is made with the hook's present secret.
func (f *Forge) Request(ctx context.Context, d Delivery, to string) (*http.Request, error) {
	f.mu.Lock()
	hook, err := f.targetOf(d)
	f.mu.Unlock()
	if err != nil {
		return nil, err
	}
	body, kind := d.Body, "application/json"
	if hook.contentType == "form" {
		body, kind = []byte(url.Values{"payload": {string(d.Body)}}.Encode()), "application/x-www-form-urlencoded"
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, to, bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("request for %s: %w", hook, err)
	}
	h := request.Header
	h.Set("Accept", "*/*")
	h.Set("Content-Type", kind)
	h.Set("User-Agent", "GitHub-Hookshot/f0rge51")
	h.Set("X-GitHub-Event", d.Event)
	h.Set("X-GitHub-Delivery", d.GUID)
	h.Set("X-GitHub-Hook-ID", strconv.FormatInt(hook.id, 10))
	h.Set("X-GitHub-Hook-Installation-Target-Type", hook.kind)
	h.Set("X-GitHub-Hook-Installation-Target-ID", strconv.FormatInt(hook.of, 10))
	if len(hook.secret) > 0 {
		h.Set("X-Hub-Signature-256", "sha256="+Sign(hook.secret, body))
		legacy := hmac.New(sha1.New, hook.secret)
		legacy.Write(body)
		h.Set("X-Hub-Signature", "sha1="+hex.EncodeToString(legacy.Sum(nil)))
	}
	return request, nil
}

// Sign returns the lower-case hexadecimal HMAC-SHA256 of a body, the part of
// X-Hub-Signature-256 after "sha256=".
func Sign(secret, body []byte) string {
	mac := hmac.New(sha256.New, secret)
	mac.Write(body)
	return hex.EncodeToString(mac.Sum(nil))
}

// newHookClient makes a client that goes only where it is told.
func newHookClient() *http.Client {
	return &http.Client{
		Transport:     &http.Transport{MaxIdleConnsPerHost: 4, IdleConnTimeout: time.Minute},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}
