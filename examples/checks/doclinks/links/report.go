package links

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
)

// ReportSchema names the form of [Report].
const ReportSchema = "doclinks.report/v1"

// A Report is a [Result] as it is written to report.json.
type Report struct {
	// Schema is [ReportSchema].
	Schema string `json:"schema"`
	// Files, Links, Broken and BrokenFiles are those of the [Result].
	Files       int `json:"files"`
	Links       int `json:"links"`
	Broken      int `json:"broken"`
	BrokenFiles int `json:"broken_files"`
	// Findings are the first of the broken links. Fewer than Broken means
	// that not all of them had room.
	Findings []Finding `json:"findings"`
}

// maxReportString is how much of a path or a target a report holds, in bytes.
const maxReportString = 1024

// reportFrame is room for what a report holds beside its findings, in bytes.
const reportFrame = 512

// Report returns r with as many findings as make at most maxBytes in JSON.
// Long strings are cut, and what is not UTF-8 in them is replaced.
func (r Result) Report(maxBytes int) (Report, error) {
	report := Report{
		Schema: ReportSchema, Files: r.Files, Links: r.Links, Broken: r.Broken, BrokenFiles: r.BrokenFiles,
		Findings: []Finding{},
	}
	room := maxBytes - reportFrame
	for _, f := range r.Findings {
		f.File, f.Link, f.Hint = printable(f.File), printable(f.Link), printable(f.Hint)
		encoded, err := json.Marshal(f)
		if err != nil {
			return Report{}, fmt.Errorf("encode finding: %w", err)
		}
		if room -= len(encoded) + len(","); room < 0 {
			break
		}
		report.Findings = append(report.Findings, f)
	}
	return report, nil
}

func printable(s string) string {
	return strings.ToValidUTF8(clip(s, maxReportString), "\ufffd")
}

// Title says in one line what was found.
func (r Result) Title() string {
	switch {
	case r.Broken > 0:
		return fmt.Sprintf("%s in %s", counted(r.Broken, "broken link"), counted(r.BrokenFiles, "file"))
	case r.Links == 0:
		return "No links to follow"
	case r.Links == 1:
		return "The only link leads somewhere"
	}
	return fmt.Sprintf("All %d links lead somewhere", r.Links)
}

func counted(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// maxCellString is how much of a path or a target a summary shows, in bytes.
const maxCellString = 200

// Summary is Markdown of at most maxBytes: a table of the first broken links,
// or how much was followed. Nothing of the tree can become markup in it.
// MaxBytes must be 1024 or more.
func (r Result) Summary(maxBytes int) string {
	if r.Broken == 0 {
		return fmt.Sprintf("Followed %s in %s.\n", counted(r.Links, "link"), counted(r.Files, "Markdown file"))
	}
	const rest = "\n%d more.\n"
	room := maxBytes - len(rest) - len("9223372036854775807")
	var b strings.Builder
	b.WriteString("| where | link | why |\n| --- | --- | --- |\n")
	listed := 0
	for _, f := range r.Findings {
		row := fmt.Sprintf("| %s | %s | %s |\n", code(f.where(), ""), code(shown(f.Link), "(none)"), f.reason())
		if b.Len()+len(row) > room {
			break
		}
		b.WriteString(row)
		listed++
	}
	if listed < r.Broken {
		fmt.Fprintf(&b, rest, r.Broken-listed)
	}
	return b.String()
}

func (f Finding) where() string {
	if f.Line == 0 {
		return shown(f.File)
	}
	return fmt.Sprintf("%s:%d", shown(f.File), f.Line)
}

func (f Finding) reason() string {
	if f.Hint == "" {
		return string(f.Why)
	}
	return string(f.Why) + "; there is " + code(shown(f.Hint), "")
}

// shown is a path or a target as a summary shows it.
func shown(s string) string { return clip(visible(clip(s, maxCellString)), maxCellString) }

// code makes visible text code in a table's cell; what stands for none is
// given.
func code(s, none string) string {
	if s == "" {
		return none
	}
	if !strings.ContainsAny(s, "`|\\") && strings.TrimSpace(s) == s {
		return "`" + s + "`"
	}
	// A code span can't hold these safely in a table. Character references
	// can: they are never taken for markup.
	var b strings.Builder
	b.WriteString("<code>")
	for _, r := range s {
		if r < utf8.RuneSelf && !unicode.IsLetter(r) && !unicode.IsDigit(r) {
			fmt.Fprintf(&b, "&#%d;", r)
			continue
		}
		b.WriteRune(r)
	}
	b.WriteString("</code>")
	return b.String()
}

// visible spells out what could not be seen, or would steer how the rest is
// shown: control and format characters, line ends, blanks but the plain one.
func visible(s string) string {
	var b strings.Builder
	for _, r := range strings.ToValidUTF8(s, "\ufffd") {
		if r == ' ' || unicode.IsGraphic(r) && !unicode.IsSpace(r) {
			b.WriteRune(r)
			continue
		}
		fmt.Fprintf(&b, "(U+%04X)", r)
	}
	return b.String()
}

// clip returns s, or its beginning with an ellipsis, in at most so many bytes
// and with whole characters.
func clip(s string, most int) string {
	const ellipsis = "…"
	if len(s) <= most {
		return s
	}
	cut := most - len(ellipsis)
	for cut > 0 && !utf8.RuneStart(s[cut]) {
		cut--
	}
	return s[:cut] + ellipsis
}
