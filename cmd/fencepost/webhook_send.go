package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fencepost/fencepost"
)

// Bounds of `webhook send`.
const (
	sendTimeout    = 30 * time.Second
	maxAnswerBytes = 1 << 20
)

// A sending is where a signed request goes, with what headers.
type sending struct {
	signing
	url, event, delivery string
	allowHTTP            bool
}

// An answered is what `webhook send` got.
type answered struct {
	Status int `json:"status"`
	// Answer is the body, if it is JSON.
	Answer json.RawMessage `json:"answer,omitempty"`
}

func (m Main) sendCommand() *cobra.Command {
	var s sending
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "send --secret REF URL",
		Short:   "Sign a body and post it, and print the answer",
		Example: "  fencepost webhook send --secret file:secrets/webhook --event pull_request --body event.json \\\n    --allow-http http://127.0.0.1:8080/hooks/docs\n  fencepost webhook send --secret file:secrets/webhook --event push --body push.json \\\n    --allow-http http://127.0.0.1:8080/hooks/handbook",
		Args:    takes("URL"),
		RunE: func(cmd *cobra.Command, args []string) error {
			s.url = args[0]
			a, err := m.send(cmd.Context(), s)
			if err != nil {
				return err
			}
			return m.printAnswer(a, asJSON)
		},
	}
	s.flags(cmd)
	idFlag(cmd, &s.id)
	cmd.Flags().StringVar(&s.event, "event", "pull_request", "the event's name, for the schemes that have a header for it")
	cmd.Flags().StringVar(&s.delivery, "delivery", "", "the delivery's id, for the schemes that have a header for it")
	cmd.Flags().BoolVar(&s.allowHTTP, "allow-http", false, "take a URL of plain http, which is meant for loopback")
	jsonFlag(cmd, &asJSON)
	return cmd
}

func (m Main) send(ctx context.Context, s sending) (answered, error) {
	u, err := url.Parse(s.url)
	switch {
	case err != nil || u.Host == "" || u.User != nil || (u.Scheme != "https" && u.Scheme != "http"):
		return answered{}, usagef("URL must be an https URL without a user")
	case u.Scheme == "http" && !s.allowHTTP:
		return answered{}, usagef("URL is plain http; where that is meant, such as on loopback, add --allow-http")
	}
	headers, body, err := m.sign(s.signing)
	if err != nil {
		return answered{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, sendTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, u.String(), bytes.NewReader(body))
	if err != nil {
		return answered{}, usage(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", "fencepost-webhook-send")
	for _, h := range append(headers, s.senderHeaders()...) {
		req.Header.Set(h.Name, h.Value)
	}
	client := &http.Client{
		Transport:     &http.Transport{DisableKeepAlives: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	resp, err := client.Do(req)
	if err != nil {
		return answered{}, fmt.Errorf("send: %w", err)
	}
	defer resp.Body.Close()
	text, err := readAtMost(resp.Body, maxAnswerBytes, "the answer")
	if err != nil {
		return answered{}, err
	}
	a := answered{Status: resp.StatusCode}
	if text = bytes.TrimSpace(text); json.Valid(text) {
		a.Answer = text
	}
	return a, nil
}

// senderHeaders are those that a provider sends beside the signature.
func (s sending) senderHeaders() []fencepost.Header {
	prefix := map[string]string{"github": "X-GitHub-", "gitea": "X-Gitea-", "forgejo": "X-Forgejo-", "gogs": "X-Gogs-"}[s.scheme]
	if prefix == "" {
		return nil
	}
	list := []fencepost.Header{{Name: prefix + "Event", Value: s.event}}
	if s.delivery != "" {
		list = append(list, fencepost.Header{Name: prefix + "Delivery", Value: s.delivery})
	}
	return list
}

func (m Main) printAnswer(a answered, asJSON bool) error {
	if asJSON {
		if err := printJSON(m.Out, a); err != nil {
			return err
		}
	} else {
		fmt.Fprintln(m.Out, strings.TrimSpace(fmt.Sprintf("%d %s", a.Status, a.Answer)))
	}
	if a.Status < 200 || a.Status > 299 {
		if asJSON {
			return errSilent
		}
		return fmt.Errorf("send: it was answered with status %d", a.Status)
	}
	return nil
}
