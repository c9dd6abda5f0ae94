package fencepost_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/gate"
)

// TestReasonsAreDocumented holds docs/reasons.md against the constants of
// reason.go: a row for each code, a code for each row, and in its fourth
// column what becomes of an evaluation.
func TestReasonsAreDocumented(t *testing.T) {
	t.Parallel()
	codes := reasonCodes(t)
	rows := reasonRows(t)
	for _, code := range codes {
		cells, ok := rows[code]
		if !ok {
			t.Errorf("docs/reasons.md has no row for %s", code)
			continue
		}
		for i, cell := range cells {
			if cell == "" {
				t.Errorf("docs/reasons.md: cell %d of %s is empty", i+1, code)
			}
		}
		if got, want := cells[3], fateWord(fencepost.Reason(code)); got != want {
			t.Errorf("docs/reasons.md says of an evaluation with %s: %q, the code: %q", code, got, want)
		}
	}
	for code := range rows {
		if !slices.Contains(codes, code) {
			t.Errorf("docs/reasons.md has a row for %s, which reason.go does not have", code)
		}
	}
}

// reasonCodes lists the values of the constants of type Reason, less the empty
// one.
func reasonCodes(t *testing.T) (codes []string) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "reason.go", nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok {
			return true
		}
		if kind, ok := spec.Type.(*ast.Ident); !ok || kind.Name != "Reason" || len(spec.Names) != len(spec.Values) {
			t.Errorf("reason.go: %s is no constant with type and value of its own", spec.Names[0].Name)
			return false
		}
		for _, v := range spec.Values {
			lit, ok := v.(*ast.BasicLit)
			if !ok {
				t.Errorf("reason.go: the value of %s is no literal", spec.Names[0].Name)
				continue
			}
			code, err := strconv.Unquote(lit.Value)
			if err != nil {
				t.Fatal(err)
			}
			if code != "" {
				codes = append(codes, code)
			}
		}
		return false
	})
	if len(codes) < 40 {
		t.Fatalf("reason.go has %d codes; was it read whole?", len(codes))
	}
	return codes
}

// reasonRows reads the tables of docs/reasons.md whose rows begin with a code.
func reasonRows(t *testing.T) map[string][]string {
	t.Helper()
	text, err := os.ReadFile("docs/reasons.md")
	if err != nil {
		t.Fatal(err)
	}
	const columns = 5
	rows := map[string][]string{}
	for line := range strings.Lines(string(text)) {
		cells := tableCells(line)
		if len(cells) != columns || cells[0] == "reason" || strings.HasPrefix(cells[0], "---") {
			continue
		}
		code, err := strconv.Unquote(cells[0])
		if err != nil || cells[0][0] != '`' {
			t.Errorf("docs/reasons.md: %q is no code in backquotes", cells[0])
			continue
		}
		if _, twice := rows[code]; twice {
			t.Errorf("docs/reasons.md has two rows for %s", code)
		}
		rows[code] = cells
	}
	return rows
}

// tableCells are the cells of a table's row; none for any other line.
func tableCells(line string) []string {
	line = strings.TrimSpace(line)
	if !strings.HasPrefix(line, "|") || !strings.HasSuffix(line, "|") || len(line) < 2 {
		return nil
	}
	cells := strings.Split(line[1:len(line)-1], "|")
	for i := range cells {
		cells[i] = strings.TrimSpace(cells[i])
	}
	return cells
}

// fateWord is how docs/reasons.md calls a fate.
func fateWord(r fencepost.Reason) string {
	fate, ok := gate.FateOf(r)
	if !ok {
		return "(no fate)"
	}
	switch fate {
	case gate.FateFail:
		return "fails"
	case gate.FateRetry:
		return "tried again"
	case gate.FateWait:
		return "waits"
	case gate.FateNone:
		return "ends"
	case gate.FateDrop:
		return "dropped"
	case gate.FateLost:
		return "let go"
	}
	return "(unknown fate)"
}

// A link is one relative link of a page.
type link struct {
	line   int
	target string
}

// TestLinksInDocs holds that every relative link of the pages leads to a file
// or directory that is there, and every anchor to a heading of its page.
func TestLinksInDocs(t *testing.T) {
	t.Parallel()
	pages := []string{"README.md", "SECURITY.md", "CHANGELOG.md"}
	more, err := filepath.Glob("docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	if len(more) < 10 {
		t.Fatalf("docs holds %d pages; is this the root of the module?", len(more))
	}
	seen := 0
	for _, page := range append(pages, more...) {
		page = filepath.ToSlash(page)
		for _, l := range linksOf(readPage(t, page)) {
			seen++
			if fault := follow(t, page, l.target); fault != "" {
				t.Errorf("%s:%d: %s: %s", page, l.line, l.target, fault)
			}
		}
	}
	if seen < 50 {
		t.Errorf("only %d relative links were found", seen)
	}
}

func readPage(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

var (
	inlineCode = regexp.MustCompile("``.*?``|`[^`]*`")
	inlineLink = regexp.MustCompile(`\]\(([^()\s]+)\)`)
	hasScheme  = regexp.MustCompile(`^[a-z][a-z0-9+.-]*:`)
)

// linksOf lists the relative links of a page, those in code aside.
func linksOf(text string) (links []link) {
	eachLine(text, func(n int, line string) {
		for _, m := range inlineLink.FindAllStringSubmatch(inlineCode.ReplaceAllString(line, ""), -1) {
			if !hasScheme.MatchString(m[1]) {
				links = append(links, link{n, m[1]})
			}
		}
	})
	return links
}

// eachLine calls f with the lines of a page that are not in fenced code.
func eachLine(text string, f func(n int, line string)) {
	fenced, n := false, 0
	for line := range strings.Lines(text) {
		n++
		if strings.HasPrefix(strings.TrimSpace(line), "```") {
			fenced = !fenced
			continue
		}
		if !fenced {
			f(n, line)
		}
	}
}

// follow says what is wrong with a link of a page; empty for nothing.
func follow(t *testing.T, page, target string) (fault string) {
	t.Helper()
	file, anchor, _ := strings.Cut(target, "#")
	to := page
	if file != "" {
		to = path.Join(path.Dir(page), file)
	}
	if to == ".." || strings.HasPrefix(to, "../") || path.IsAbs(file) {
		return "leads out of the repository"
	}
	if _, err := os.Stat(to); err != nil {
		return "there is no such file"
	}
	if anchor == "" {
		return ""
	}
	if path.Ext(to) != ".md" {
		return "an anchor in what is no page"
	}
	if !slices.Contains(anchorsOf(readPage(t, to)), anchor) {
		return "the page has no such heading"
	}
	return ""
}

// anchorsOf lists the anchors of a page's headings, made as GitHub makes them:
// in lower case, blanks as hyphens, without punctuation, and numbered from the
// second of a name on.
func anchorsOf(text string) (anchors []string) {
	times := map[string]int{}
	eachLine(text, func(_ int, line string) {
		heading := strings.TrimLeft(line, "#")
		level := len(line) - len(heading)
		if level < 1 || level > 6 || !strings.HasPrefix(heading, " ") {
			return
		}
		slug := strings.Map(func(r rune) rune {
			switch {
			case r == ' ':
				return '-'
			case r == '-', r == '_', unicode.IsLetter(r), unicode.IsDigit(r):
				return unicode.ToLower(r)
			}
			return -1
		}, strings.TrimSpace(heading))
		anchor := slug
		if n := times[slug]; n > 0 {
			anchor = slug + "-" + strconv.Itoa(n)
		}
		times[slug]++
		anchors = append(anchors, anchor)
	})
	return anchors
}

func TestTheLinkCheckSeesWhatIsWrong(t *testing.T) {
	t.Parallel()
	text := "# One `two`, three\n\n[a](x.md#y) `[b](z.md)` [c](https://example.org/) ![d](e.svg)\n\n```\n# no heading\n[f](g.md)\n```\n## One two three\n# One two three\n"
	if got, want := anchorsOf(text), []string{"one-two-three", "one-two-three-1", "one-two-three-2"}; !slices.Equal(got, want) {
		t.Errorf("anchors = %q, want %q", got, want)
	}
	if got, want := linksOf(text), []link{{3, "x.md#y"}, {3, "e.svg"}}; !slices.Equal(got, want) {
		t.Errorf("links = %v, want %v", got, want)
	}
	for target, want := range map[string]string{
		"encoding.md":               "",
		"encoding.md#delivery-key":  "",
		"#reasons":                  "",
		"../reason.go":              "",
		"nowhere.md":                "there is no such file",
		"encoding.md#nowhere":       "the page has no such heading",
		"../reason.go#L1":           "an anchor in what is no page",
		"../../elsewhere/README.md": "leads out of the repository",
	} {
		if got := follow(t, "docs/reasons.md", target); got != want {
			t.Errorf("%s: %q, want %q", target, got, want)
		}
	}
}
