package forgesim

import (
	"cmp"
	"encoding/json"
	"errors"
	"net/http"
	"net/textproto"
	"slices"
	"strconv"
)

// hookOperations are the calls on the App's webhook and its deliveries.
func hookOperations() []route {
	return []route{
		{operation: "GET /app/hook/config", app: true, serve: getHookConfig},
		{operation: "PATCH /app/hook/config", app: true, serve: updateHookConfig},
		{operation: "GET /app/hook/deliveries", app: true, serve: listDeliveries},
		{operation: "GET /app/hook/deliveries/{delivery_id}", app: true, serve: getDelivery},
		{operation: "POST /app/hook/deliveries/{delivery_id}/attempts", app: true, serve: redeliver},
	}
}

// config is the hook as it is shown: without the secret.
func (h hook) config() object {
	o := object{"content_type": h.contentType, "insecure_ssl": h.insecureSSL}
	if h.url != "" {
		o["url"] = h.url
	}
	if len(h.secret) > 0 {
		o["secret"] = "********"
	}
	return o
}

func getHookConfig(_ *Forge, c *call) answer { return found(c.who.app.hook.config()) }

func updateHookConfig(f *Forge, c *call) answer {
	var in struct {
		URL         *string          `json:"url"`
		ContentType *string          `json:"content_type"`
		Secret      *string          `json:"secret"`
		InsecureSSL *json.RawMessage `json:"insecure_ssl"`
	}
	if err := json.Unmarshal(c.body, &in); err != nil {
		return failure(http.StatusBadRequest, "Problems parsing JSON")
	}
	if in.ContentType != nil && *in.ContentType != "json" && *in.ContentType != "form" {
		return invalid("Validation Failed", wrong("Hook", "content_type", "invalid", "is neither json nor form"))
	}
	h := &c.who.app.hook
	if in.URL != nil {
		h.url = *in.URL
		f.wake()
	}
	if in.ContentType != nil {
		h.contentType = *in.ContentType
	}
	if in.Secret != nil {
		h.secret = []byte(*in.Secret)
	}
	if in.InsecureSSL != nil {
		h.insecureSSL = "0"
		if text := string(*in.InsecureSSL); text == "1" || text == `"1"` {
			h.insecureSSL = "1"
		}
	}
	return found(h.config())
}

func orNullID(id int64) any {
	if id == 0 {
		return nil
	}
	return id
}

func (d *Delivery) item() object {
	return object{
		"id": d.ID, "guid": d.GUID, "delivered_at": stamp(d.DeliveredAt), "redelivery": d.Redelivery,
		"duration": d.Duration.Seconds(), "status": d.Status, "status_code": d.StatusCode, "event": d.Event,
		"action": textOrNull(d.Action), "installation_id": orNullID(d.InstallationID),
		"repository_id": orNullID(d.RepositoryID), "throttled_at": nil,
	}
}

// listDeliveries lists the log, newest first, by cursor. A delivery without an
// answer is neither a success nor a failure.
func listDeliveries(f *Forge, c *call) answer {
	before := int64(0)
	if cursor := c.query.Get("cursor"); cursor != "" {
		n, err := strconv.ParseInt(cursor, 10, 64)
		if err != nil {
			return failure(http.StatusBadRequest, "Invalid cursor")
		}
		before = n
	}
	shown, header := []object{}, http.Header{}
	for _, d := range slices.Backward(f.sortedLog()) {
		if d.AppID != c.who.app.id || before != 0 && d.ID >= before || !d.ended(c.query.Get("status")) {
			continue
		}
		if len(shown) == c.perPage() {
			header.Set("Link", c.link("next", "cursor", strconv.FormatInt(shown[len(shown)-1]["id"].(int64), 10)))
			break
		}
		shown = append(shown, d.item())
	}
	return found(shown).withHeader(header)
}

// sortedLog is the log by id: what overtook something was sent out of order.
func (f *Forge) sortedLog() []*Delivery {
	return slices.SortedFunc(slices.Values(f.deliveries), func(a, b *Delivery) int {
		return cmp.Compare(a.ID, b.ID)
	})
}

// ended reports whether a delivery passes the filter of a list.
func (d *Delivery) ended(filter string) bool {
	switch filter {
	case "success":
		return d.StatusCode >= 200 && d.StatusCode < 400
	case "failure":
		return d.StatusCode >= 400 && d.StatusCode < 600
	}
	return true
}

// deliveryOfPath finds the App's delivery that a path names.
func deliveryOfPath(f *Forge, c *call) *Delivery {
	d := f.logged(c.number("delivery_id"))
	if d == nil || d.AppID != c.who.app.id {
		return nil
	}
	return d
}

func getDelivery(f *Forge, c *call) answer {
	d := deliveryOfPath(f, c)
	if d == nil {
		return notFound()
	}
	return found(merged(d.item(), object{
		"url":      d.URL,
		"request":  object{"headers": flat(d.Header), "payload": json.RawMessage(d.Body)},
		"response": object{"headers": flat(d.ResponseHeader), "payload": textOrNull(string(d.ResponseBody))},
	}))
}

// flat writes headers as the log shows them; nil is null.
func flat(h http.Header) any {
	if h == nil {
		return nil
	}
	o := object{}
	for name, values := range h {
		o[textproto.CanonicalMIMEHeaderKey(name)] = values[0]
	}
	return o
}

func redeliver(f *Forge, c *call) answer {
	err := f.redeliver(deliveryOfPath(f, c))
	switch {
	case errors.Is(err, ErrNotFound):
		return notFound()
	case errors.Is(err, ErrTooOld):
		return invalid("The delivery is too old")
	}
	return reply(http.StatusAccepted, object{})
}
