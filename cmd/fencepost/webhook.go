package main

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/config"
	"github.com/fencepost/fencepost/webhook"
)

// A scheme signs and verifies.
type scheme interface {
	fencepost.Verifier
	Sign(webhook.Message) ([]fencepost.Header, error)
}

// schemeNames is the closed list for --scheme.
const schemeNames = "github, gitea, forgejo, gogs or standard"

// A signing is what the webhook commands have in common.
type signing struct {
	scheme, secret, body, id, at string
}

func (s *signing) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&s.scheme, "scheme", "github", schemeNames)
	f.StringVar(&s.secret, "secret", "", "where the secret is: file:PATH, env:NAME or cred:NAME")
	f.StringVar(&s.body, "body", "-", "the file with the exact body; - reads it from stdin")
	f.StringVar(&s.at, "at", "", "the time to sign or judge at, RFC 3339; now unless given")
	_ = cmd.MarkFlagRequired("secret") // it fails for an unknown flag alone
}

// open makes the scheme over the secret. The caller zeroes the keyring.
func (m Main) open(s signing) (scheme, *webhook.Keyring, error) {
	ref, err := config.ParseSecretRef(s.secret, ".")
	if err != nil {
		return nil, nil, usagef("--secret %w", err)
	}
	secret, err := ref.Resolve(m.LookupEnv)
	if err != nil {
		return nil, nil, usage(err)
	}
	if s.scheme == "standard" {
		if secret, err = webhook.ParseStandardSecret(secret.Reveal()); err != nil {
			return nil, nil, usagef("--secret %s: must be whsec_ and base64: %w", ref, err)
		}
	}
	ring, err := webhook.NewKeyring("command-line", webhook.Anchor{ID: "command-line", Secret: secret})
	if err != nil {
		return nil, nil, usage(err)
	}
	switch s.scheme {
	case "github":
		return webhook.GitHub{Keys: ring}, ring, nil
	case "gitea":
		return webhook.Gitea{Keys: ring}, ring, nil
	case "forgejo":
		return webhook.Forgejo{Keys: ring}, ring, nil
	case "gogs":
		return webhook.Gogs{Keys: ring}, ring, nil
	case "standard":
		return webhook.StandardWebhooks{Keys: ring}, ring, nil
	}
	ring.Zero()
	return nil, nil, usagef("--scheme must be %s", schemeNames)
}

// read reads the body and the time.
func (m Main) read(s signing) (body []byte, at time.Time, err error) {
	at = m.Now()
	if s.at != "" {
		if at, err = time.Parse(time.RFC3339, s.at); err != nil {
			return nil, time.Time{}, usagef("--at must be a time in RFC 3339, such as 2026-10-01T00:00:00Z")
		}
	}
	var from io.Reader = m.In
	if s.body != "-" {
		f, err := os.Open(s.body)
		if err != nil {
			return nil, time.Time{}, usage(err)
		}
		defer f.Close()
		from = f
	}
	body, err = readAtMost(from, webhook.DefaultMaxBody, "the body")
	return body, at, err
}

func (m Main) webhookCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "webhook",
		Short: "Sign, verify and send webhooks by hand",
	}
	cmd.AddCommand(m.signCommand(), m.verifyCommand(), m.sendCommand())
	return cmd
}

func (m Main) signCommand() *cobra.Command {
	var s signing
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "sign --secret REF",
		Short:   "Print the headers that sign a body",
		Example: "  fencepost webhook sign --secret file:secrets/webhook --body event.json",
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			headers, _, err := m.sign(s)
			if err != nil {
				return err
			}
			if asJSON {
				named := map[string]string{}
				for _, h := range headers {
					named[http.CanonicalHeaderKey(h.Name)] = h.Value
				}
				return printJSON(m.Out, named)
			}
			for _, h := range headers {
				if _, err := fmt.Fprintf(m.Out, "%s: %s\n", http.CanonicalHeaderKey(h.Name), h.Value); err != nil {
					return err
				}
			}
			return nil
		},
	}
	s.flags(cmd)
	idFlag(cmd, &s.id)
	jsonFlag(cmd, &asJSON)
	return cmd
}

func idFlag(cmd *cobra.Command, id *string) {
	cmd.Flags().StringVar(id, "id", "", "the message id, for the schemes that sign one")
}

func (m Main) sign(s signing) (headers []fencepost.Header, body []byte, err error) {
	sch, ring, err := m.open(s)
	if err != nil {
		return nil, nil, err
	}
	defer ring.Zero()
	body, at, err := m.read(s)
	if err != nil {
		return nil, nil, err
	}
	if s.scheme == "standard" && s.id == "" {
		return nil, nil, usagef("--id is needed: the standard scheme signs a message id")
	}
	headers, err = sch.Sign(webhook.Message{Body: body, At: at, ID: s.id})
	if err != nil {
		return nil, nil, fmt.Errorf("sign: %w", err)
	}
	return headers, body, nil
}

func (m Main) verifyCommand() *cobra.Command {
	var s signing
	var lines []string
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "verify --secret REF --header 'NAME: VALUE'",
		Short:   "Say whether headers sign a body, and if not, why",
		Example: "  fencepost webhook verify --secret file:secrets/webhook --body event.json \\\n    --header 'X-Hub-Signature-256: sha256=…'",
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			headers, err := parseHeaders(lines)
			if err != nil {
				return err
			}
			return m.verify(s, headers, asJSON)
		},
	}
	s.flags(cmd)
	cmd.Flags().StringArrayVar(&lines, "header", nil, "a header as it was received; repeat it for each")
	jsonFlag(cmd, &asJSON)
	return cmd
}

func parseHeaders(lines []string) (fencepost.Headers, error) {
	var pairs []fencepost.Header
	for _, line := range lines {
		name, value, ok := strings.Cut(line, ":")
		if !ok || name == "" || strings.ContainsAny(name, " \t") {
			return fencepost.Headers{}, usagef("--header must be 'NAME: VALUE'")
		}
		pairs = append(pairs, fencepost.Header{Name: name, Value: strings.TrimSpace(value)})
	}
	return fencepost.NewHeaders(pairs), nil
}

// A verdict is what `webhook verify` says.
type verdict struct {
	Authentic bool `json:"authentic"`
	// Cause is why not.
	Cause string `json:"cause,omitempty"`
	// SignedAt is the signed time, where the scheme signs one.
	SignedAt time.Time `json:"signed_at,omitzero"`
}

func (m Main) verify(s signing, headers fencepost.Headers, asJSON bool) error {
	sch, ring, err := m.open(s)
	if err != nil {
		return err
	}
	defer ring.Zero()
	body, at, err := m.read(s)
	if err != nil {
		return err
	}
	evidence, err := sch.Verify(headers, body, at)
	v := verdict{Authentic: err == nil, SignedAt: evidence.SignedAt}
	if err != nil {
		refusal, ok := errors.AsType[*webhook.Refusal](err)
		if !ok {
			return fmt.Errorf("verify: %w", err)
		}
		v.Cause = refusal.Cause.String()
	}
	if asJSON {
		if err := printJSON(m.Out, v); err != nil {
			return err
		}
	} else if v.Authentic {
		fmt.Fprintln(m.Out, "authentic")
	}
	switch {
	case v.Authentic:
		return nil
	case asJSON:
		return errSilent
	}
	return fmt.Errorf("not authentic: %s", v.Cause)
}
