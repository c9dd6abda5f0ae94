package gitlab

import (
	"errors"
	"net/http"
	"slices"
)

// All functions here are called with Forge.mu held, and for maintainers alone.

// onHook finds the hook that a path names.
func onHook(serve func(*call, *Hook)) func(*call) {
	return func(c *call) {
		if c.level < Maintainer {
			c.fail(http.StatusForbidden, "")
			return
		}
		for _, h := range c.project.hooks {
			if h.id == c.number("hook") {
				serve(c, h)
				return
			}
		}
		c.fail(http.StatusNotFound, "Not found")
	}
}

func listHooks(c *call) {
	if c.level < Maintainer {
		c.fail(http.StatusForbidden, "")
		return
	}
	all := []object{}
	for _, h := range c.project.hooks {
		all = append(all, h.render())
	}
	page(c, all)
}

func getHook(c *call, h *Hook) { c.reply(h.render()) }

func postHook(c *call) {
	var ask struct {
		URL          string `json:"url"`
		SigningToken string `json:"signing_token"`
		Token        string `json:"token"`
		Pushes       bool   `json:"push_events"`
		TagPushes    bool   `json:"tag_push_events"`
		Requests     bool   `json:"merge_requests_events"`
	}
	if c.level < Maintainer {
		c.fail(http.StatusForbidden, "")
		return
	}
	if err := decode(c.Request, &ask); err != nil || ask.URL == "" {
		c.fail(http.StatusBadRequest, "")
		return
	}
	h, err := c.project.addHook(HookConfig{
		URL: ask.URL, SigningToken: ask.SigningToken, Token: ask.Token, Pushes: ask.Pushes, TagPushes: ask.TagPushes, Requests: ask.Requests,
	})
	if err != nil {
		reply(c.ResponseWriter, http.StatusUnprocessableEntity, object{"error": "signing_token is invalid"})
		return
	}
	reply(c.ResponseWriter, http.StatusCreated, h.render())
}

// listEvents lists what was sent in two days, newest first.
func listEvents(c *call, h *Hook) {
	f := c.project.forge
	all := []object{}
	for _, d := range slices.Backward(f.deliveries) {
		if d.Hook != h || f.config.Now().Sub(d.Made) > keptEvents || d.Skipped || d.Lost {
			continue
		}
		all = append(all, object{
			"id": d.ID, "url": d.To, "trigger": map[string]string{pushHook: "push_hooks", tagHook: "tag_push_hooks", requestHook: "merge_request_hooks"}[d.Event],
			"request_headers": object{"Idempotency-Key": d.MessageID, "X-Gitlab-Event": d.Event, "X-Gitlab-Event-UUID": d.EventUUID},
			"request_data":    string(d.Body), "response_headers": object{}, "response_body": "", "execution_duration": 0.1, "response_status": d.StatusCode,
		})
	}
	page(c, all)
}

func resend(c *call, _ *Hook) {
	f := c.project.forge
	// Resend takes the lock itself.
	f.mu.Unlock()
	err := f.Resend(c.number("event"))
	f.mu.Lock()
	switch {
	case errors.Is(err, errTooMany):
		c.fail(http.StatusTooManyRequests, "")
	case errors.Is(err, ErrRefused):
		reply(c.ResponseWriter, http.StatusUnprocessableEntity, object{"message": "The hook URL has changed. Unable to resend"})
	case err != nil:
		c.fail(http.StatusNotFound, "Not found")
	default:
		reply(c.ResponseWriter, http.StatusCreated, object{"response_status": 0})
	}
}

func testHook(c *call, h *Hook) {
	f := c.project.forge
	f.mu.Unlock()
	err := h.Test(c.Context())
	f.mu.Lock()
	if err != nil {
		c.fail(http.StatusUnprocessableEntity, "")
		return
	}
	reply(c.ResponseWriter, http.StatusCreated, object{"message": "201 Created"})
}
