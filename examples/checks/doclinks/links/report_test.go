package links_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"
	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	extast "github.com/yuin/goldmark/extension/ast"
	"github.com/yuin/goldmark/text"

	"github.com/fencepost/fencepost/examples/checks/doclinks/links"
)

var rewrite = flag.Bool("rewrite", false, "write what the golden files should be")

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *rewrite {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s (-want +got):\n%s", path, diff)
	}
}

func TestReportAndSummary(t *testing.T) {
	t.Parallel()
	r := run(t, files(map[string]string{
		"README.md":        "# Shop\n\n[Setup](docs/setup.md) and [its end](docs/Setup.md#end), [more][faqs], ![logo](logo.svg)\n\n[faq]: faq.md\n",
		"docs/setup.md":    "# Set-up\n\n[up](../../elsewhere) [here](#set-up) [there](#Set-up) [x](a|b`c) []()\n",
		"docs/odd|name.md": "<img src=\"*&lt;b&gt;@all_\u202e\">\n",
	}))
	report, err := r.Report(1 << 20)
	if err != nil {
		t.Fatal(err)
	}
	encoded, err := json.Marshal(report, json.Deterministic(true))
	if err != nil {
		t.Fatal(err)
	}
	pretty := jsontext.Value(encoded)
	if err := pretty.Indent(jsontext.WithIndent("  ")); err != nil {
		t.Fatal(err)
	}
	golden(t, "report.json", append(pretty, '\n'))
	golden(t, "summary.md", []byte(r.Summary(8<<10)))
}

func TestTitle(t *testing.T) {
	t.Parallel()
	for want, r := range map[string]links.Result{
		"3 broken links in 2 files":     {Links: 9, Broken: 3, BrokenFiles: 2},
		"1 broken link in 1 file":       {Links: 9, Broken: 1, BrokenFiles: 1},
		"All 412 links lead somewhere":  {Files: 3, Links: 412},
		"The only link leads somewhere": {Files: 3, Links: 1},
		"No links to follow":            {Files: 3},
	} {
		if got := r.Title(); got != want {
			t.Errorf("%+v: %q, want %q", r, got, want)
		}
	}
}

func TestSummaryOfNothingBroken(t *testing.T) {
	t.Parallel()
	if got, want := (links.Result{Files: 1, Links: 2}).Summary(1024), "Followed 2 links in 1 Markdown file.\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// long is a result of many findings, with strings as long and odd as can be.
func long(n int, filler string) links.Result {
	r := links.Result{Files: 1, Links: n, Broken: n, BrokenFiles: 1}
	for i := range n {
		r.Findings = append(r.Findings, links.Finding{
			File: strings.Repeat(filler, 500), Line: i + 1, Link: strings.Repeat(filler, 5000), Why: links.WhyMissing, Hint: strings.Repeat(filler, 300),
		})
	}
	return r
}

func TestReportStaysWithinItsBound(t *testing.T) {
	t.Parallel()
	for _, filler := range []string{"a", "\"", "\x00", "é", "\xff", "日", "a\xff"} {
		const bound = 64 << 10
		r := long(1000, filler)
		report, err := r.Report(bound)
		if err != nil {
			t.Fatalf("%q: %v", filler, err)
		}
		encoded, err := json.Marshal(report)
		if err != nil {
			t.Fatalf("%q: %v", filler, err)
		}
		if len(encoded) > bound {
			t.Errorf("%q: %d bytes, at most %d", filler, len(encoded), bound)
		}
		if n := len(report.Findings); n == 0 || n == 1000 || report.Broken != 1000 {
			t.Errorf("%q: %d findings of %d, want some", filler, n, report.Broken)
		}
		all, err := r.Report(100 << 20)
		if err != nil || len(all.Findings) != 1000 {
			t.Errorf("%q: %d findings where all have room (%v)", filler, len(all.Findings), err)
		}
	}
}

func TestSummaryStaysWithinItsBound(t *testing.T) {
	t.Parallel()
	for _, filler := range []string{"a", "`", "|", "\\", "\x00`", "é", "\u202e", "\xff", "a|b"} {
		for _, bound := range []int{1024, 8 << 10} {
			got := long(1000, filler).Summary(bound)
			if len(got) > bound {
				t.Errorf("%q: %d bytes, at most %d", filler, len(got), bound)
			}
			rows := len(tableRows(t, got))
			if bound > 1024 && rows == 0 {
				t.Errorf("%q: no finding is shown", filler)
			}
			if want := fmt.Sprintf("\n%d more.\n", 1000-rows); !strings.HasSuffix(got, want) {
				t.Errorf("%q: %d rows, and the end is %q", filler, rows, got[max(0, len(got)-20):])
			}
		}
	}
}

func TestSummaryCountsWhatIsNotListed(t *testing.T) {
	t.Parallel()
	r := links.Result{Broken: 7, BrokenFiles: 1, Findings: []links.Finding{{File: "a.md", Line: 3, Link: "b", Why: links.WhyMissing}}}
	want := "| where | link | why |\n| --- | --- | --- |\n| `a.md:3` | `b` | no such file or directory |\n\n6 more.\n"
	if diff := cmp.Diff(want, r.Summary(1024)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// tableRows parses a summary as a forge does and returns the cells of its
// rows. It fails for anything but one table, in whose cells is nothing but
// text, code and the tags around code, and at most one paragraph after it.
func tableRows(t *testing.T, summary string) [][]string {
	t.Helper()
	source := []byte(summary)
	doc := goldmark.New(goldmark.WithExtensions(extension.GFM)).Parser().Parse(text.NewReader(source))
	table, ok := doc.FirstChild().(*extast.Table)
	if !ok {
		t.Fatalf("a summary does not begin with a table:\n%s", summary)
	}
	if next := table.NextSibling(); next != nil && (next.Kind() != ast.KindParagraph || next.NextSibling() != nil) {
		t.Fatalf("a table is followed by more than one paragraph:\n%s", summary)
	}
	var rows [][]string
	for row := table.FirstChild().NextSibling(); row != nil; row = row.NextSibling() {
		var cells []string
		for cell := row.FirstChild(); cell != nil; cell = cell.NextSibling() {
			cells = append(cells, cellText(t, cell, source))
		}
		if len(cells) != 3 || slices.Contains(cells, "") {
			t.Fatalf("a row has the cells %q:\n%s", cells, summary)
		}
		rows = append(rows, cells)
	}
	return rows
}

func cellText(t *testing.T, cell ast.Node, source []byte) string {
	t.Helper()
	var b strings.Builder
	err := ast.Walk(cell, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if !entering {
			return ast.WalkContinue, nil
		}
		switch n := n.(type) {
		case *extast.TableCell, *ast.CodeSpan:
		case *ast.Text:
			b.Write(n.Value(source))
		case *ast.RawHTML:
			if tag := string(n.Segments.Value(source)); tag != "<code>" && tag != "</code>" {
				t.Fatalf("the tag %s is in a summary", tag)
			}
		default:
			t.Fatalf("a %s is in a summary:\n%s", n.Kind(), source)
		}
		return ast.WalkContinue, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// FuzzSummary holds that nothing of a tree becomes markup, breaks the table or
// steers a terminal.
func FuzzSummary(f *testing.F) {
	for _, s := range []string{
		"docs/a.md", "a|b", "`", "``", "\\|", "a\\", "<img src=x onerror=y>", "</code><b>", "[x](y)", "@everyone", "www.x.org", "https://x.org",
		"\n| a | b | c |\n", "\u202e", "\x1b[2J", "\xff\xfe", "&#96;", " ", "  a  ", "*a*", "~~a~~", "a@b.cd", ":rocket:", "|", "-", "日本", "\u0085",
	} {
		f.Add(s, s)
	}
	f.Fuzz(func(t *testing.T, file, target string) {
		r := links.Result{Broken: 2, BrokenFiles: 1, Findings: []links.Finding{
			{File: file, Line: 1, Link: target, Why: links.WhyMissing, Hint: target},
			{File: file + "x", Link: target + "y", Why: links.WhyNoAnchor},
		}}
		got := r.Summary(8 << 10)
		if rows := tableRows(t, got); len(rows) != 2 {
			t.Fatalf("%d rows, want 2:\n%s", len(rows), got)
		}
		if !utf8.ValidString(got) {
			t.Fatalf("not UTF-8: %q", got)
		}
		for _, c := range got {
			if c != '\n' && !unicode.IsGraphic(c) {
				t.Fatalf("%U is in a summary: %q", c, got)
			}
		}
		report, err := r.Report(64 << 10)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := json.Marshal(report); err != nil {
			t.Fatalf("report: %v", err)
		}
	})
}
