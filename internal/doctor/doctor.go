package doctor

import (
	"slices"
	"strings"
	"unicode/utf8"
)

// A Status is what a check came to.
type Status string

// The closed list of them.
const (
	// OK: it is as it must be.
	OK Status = "ok"
	// Warn: it works, and is not as it should be, or will not work for long.
	Warn Status = "warn"
	// Fail: something does not work.
	Fail Status = "fail"
	// Skipped: it was not looked at, and Seen says why.
	Skipped Status = "skipped"
)

// A Check is one thing that was looked at. None of its texts holds a secret.
type Check struct {
	// Subject is what it is about: "gate docs", "source handbook", "machine".
	Subject string `json:"subject"`
	// Name is what was looked at, such as "rule.enable_push".
	Name   string `json:"check"`
	Status Status `json:"status"`
	// Seen is what was seen, or why nothing was; Want, what is needed, where
	// that is not plain.
	Seen string `json:"seen"`
	Want string `json:"want,omitempty"`
	// Mend is what to do; empty for what is well.
	Mend string `json:"mend,omitempty"`
}

// A Report is all that was looked at, in the order of the looks.
type Report struct {
	Checks []Check `json:"checks"`
}

// maxText bounds each text, in bytes.
const maxText = 400

// Add adds checks, with texts that stay on their line.
func (r *Report) Add(checks ...Check) {
	for _, c := range checks {
		for _, text := range []*string{&c.Subject, &c.Name, &c.Seen, &c.Want, &c.Mend} {
			*text = line(*text)
		}
		r.Checks = append(r.Checks, c)
	}
}

// line makes a text one line of what can be printed.
func line(s string) string {
	s = strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' {
			return ' '
		}
		if r < ' ' || r == 0x7f || r >= 0x80 && r < 0xa0 || r == utf8.RuneError {
			return '?'
		}
		return r
	}, strings.TrimSpace(s))
	if len(s) <= maxText {
		return s
	}
	cut := maxText
	for cut > 0 && !utf8.RuneStart(s[cut]) {
		cut--
	}
	return s[:cut] + "…"
}

// Count is how many checks came to a status.
func (r Report) Count(s Status) (n int) {
	for _, c := range r.Checks {
		if c.Status == s {
			n++
		}
	}
	return n
}

// Healthy reports whether nothing is broken.
func (r Report) Healthy() bool {
	return !slices.ContainsFunc(r.Checks, func(c Check) bool { return c.Status == Fail })
}
