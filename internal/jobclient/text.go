package jobclient

import (
	"strings"
	"unicode"
)

// hidden stands for a secret that the other side put into a text.
const hidden = "[redacted]"

// shortestSecret is the length below which a text is no secret of ours: a part of
// a token that is shorter is no signature.
const shortestSecret = 32

// hide keeps texts out of all that is told.
func (r *run) hide(secrets ...string) {
	for _, s := range secrets {
		if len(s) >= shortestSecret {
			r.secrets = append(r.secrets, s)
		}
	}
}

// clean makes a text that can be shown on a terminal and in a job's log: valid
// UTF-8, no control or format characters but line ends and tabs, and none of
// the run's secrets.
func (r *run) clean(s string) string {
	s = strings.Map(func(c rune) rune {
		if c == '\n' || c == '\t' {
			return c
		}
		// Cf holds what reorders text; what is no character is shown as such.
		if unicode.IsControl(c) || unicode.Is(unicode.Cf, c) || c == '\u2028' || c == '\u2029' {
			return -1
		}
		return c
	}, strings.ToValidUTF8(s, "\ufffd"))
	for _, secret := range r.secrets {
		s = strings.ReplaceAll(s, secret, hidden)
	}
	return s
}

// line is clean on one line.
func (r *run) line(s string) string { return strings.Join(strings.Fields(r.clean(s)), " ") }
