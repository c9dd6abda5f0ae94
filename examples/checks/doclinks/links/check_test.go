package links_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"github.com/fencepost/fencepost/examples/checks/doclinks/links"
)

// files makes a tree of paths and contents.
func files(contents map[string]string) fstest.MapFS {
	tree := fstest.MapFS{}
	for name, text := range contents {
		tree[name] = &fstest.MapFile{Data: []byte(text), Mode: 0o644}
	}
	return tree
}

func run(t *testing.T, tree fs.FS) links.Result {
	t.Helper()
	r, err := links.Check(t.Context(), tree, links.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// lines are findings as "file:line link: why", with the hint after an arrow.
func lines(findings []links.Finding) []string {
	out := []string{}
	for _, f := range findings {
		s := fmt.Sprintf("%s:%d %s: %s", f.File, f.Line, f.Link, f.Why)
		if f.Hint != "" {
			s += " -> " + f.Hint
		}
		out = append(out, s)
	}
	return out
}

// broken is the page's findings, as lines without the file.
func broken(t *testing.T, page string) []string {
	t.Helper()
	tree := files(map[string]string{
		"page.md":             page,
		"there.md":            "# There\n\n## Über uns\n\n<a id=\"By.Hand\"></a>\n",
		"a b.md":              "# A B\n",
		"a(b).md":             "# AB\n",
		"q?x.md":              "# Q\n",
		"x&y.md":              "# XY\n",
		"under_score.md":      "",
		"img.png":             "",
		"code.go":             "package code\n",
		"page.html":           "",
		"docs/README.md":      "# Docs\n",
		"docs/a.md":           "# A\n",
		"docs/deep/readme.md": "# Deep\n",
		"plain/x.txt":         "",
		"rst/README.rst":      "",
	})
	var got []string
	for _, line := range lines(run(t, tree).Findings) {
		rest, ours := strings.CutPrefix(line, "page.md:")
		if !ours {
			t.Fatalf("a finding in another file: %s", line)
		}
		got = append(got, rest)
	}
	return got
}

const (
	missing   = ": no such file or directory"
	noAnchor  = ": no such heading or anchor"
	outside   = ": leads out of the tree"
	undefined = ": the reference has no definition"
)

func TestWhatALinkMayLeadTo(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		page string
		want []string
	}{
		"a file":                           {"[x](there.md) [y](docs/a.md) [z](./docs/../there.md)", nil},
		"no file":                          {"a\n\n[x](nowhere.md)", []string{"3 nowhere.md" + missing}},
		"a directory":                      {"[x](docs) [y](docs/) [z](.) [w](plain/)", nil},
		"no directory":                     {"[x](dogs/)", []string{"1 dogs/" + missing}},
		"a file as a directory":            {"[x](there.md/)", []string{"1 there.md/: a file, not a directory"}},
		"a way through no directory":       {"[x](dogs/../there.md)", nil},
		"from the root":                    {"[x](/docs/a.md) [y](/) [z](/docs/b.md)", []string{"1 /docs/b.md" + missing}},
		"out of the tree":                  {"[x](../x.md) [y](docs/../../page.md) [z](/../page.md) [w](..)", []string{"1 ../x.md" + outside, "1 docs/../../page.md" + outside, "1 /../page.md" + outside, "1 .." + outside}},
		"out of the tree when decoded":     {"[x](%2e%2e/page.md)", []string{"1 %2e%2e/page.md" + outside}},
		"in another case":                  {"[x](There.md) [y](DOCS/a.md)", []string{"1 There.md" + missing + " -> there.md", "1 DOCS/a.md" + missing + " -> docs/a.md"}},
		"an anchor here":                   {"# One two\n\n[x](#one-two) [y](#two)", []string{"3 #two" + noAnchor}},
		"an anchor by the own name":        {"# One\n\n[x](page.md#one) [y](page.md#two)", []string{"3 page.md#two" + noAnchor}},
		"an anchor there":                  {"[x](there.md#there) [y](there.md#here)", []string{"1 there.md#here" + noAnchor}},
		"an anchor in another case":        {"[x](there.md#There)", []string{"1 there.md#There" + noAnchor + " -> #there"}},
		"an anchor in HTML":                {"[x](there.md#By.Hand) [y](there.md#by.hand)", []string{"1 there.md#by.hand" + noAnchor}},
		"an anchor with GitHub's prefix":   {"[x](there.md#user-content-there)", nil},
		"an anchor in Unicode":             {"[x](there.md#über-uns) [y](there.md#%C3%BCber-uns)", nil},
		"the empty anchor, and the top":    {"[x](#) [y](#top) [z](there.md#) [w](there.md#TOP)", nil},
		"text for the browser to find":     {"[x](there.md#:~:text=There) [y](there.md#there:~:text=x) [z](there.md#x:~:text=x)", []string{"1 there.md#x:~:text=x" + noAnchor}},
		"an anchor of a directory":         {"[x](docs#docs) [y](docs/#dogs) [z](docs/deep/#deep)", []string{"1 docs/#dogs" + noAnchor}},
		"an anchor without a README":       {"[x](plain/#x)", []string{"1 plain/#x: an anchor, but the directory has no README"}},
		"a README in another format":       {"[x](rst/#anything)", nil},
		"a line of code":                   {"[x](code.go#L1) [y](code.go#L1-L3) [z](code.go#L1-3) [w](code.go#L1C2-L3C4)", nil},
		"an anchor in code":                {"[x](code.go#main) [y](code.go#L) [z](code.go#L1-)", []string{"1 code.go#main: not Markdown: only line anchors such as #L10 lead into it", "1 code.go#L: not Markdown: only line anchors such as #L10 lead into it", "1 code.go#L1-: not Markdown: only line anchors such as #L10 lead into it"}},
		"an anchor in HTML files":          {"[x](page.html#anything)", nil},
		"a line of Markdown":               {"[x](there.md#L1) [y](there.md?plain=1#L1) [z](there.md?a=b&plain=1#L1-L2)", []string{"1 there.md#L1" + noAnchor}},
		"a query":                          {"[x](there.md?raw=true) [y](there.md?raw=true#there) [z](?x#nowhere)", []string{"1 ?x#nowhere" + noAnchor}},
		"percent-encoding":                 {"[x](a%20b.md) [y](q%3Fx.md) [z](q?x.md) [w](100%.md)", []string{"1 q?x.md" + missing, "1 100%.md" + missing}},
		"an image":                         {"![x](img.png) ![y](no.png) ![z](docs)", []string{"1 no.png" + missing, "1 docs: a directory, not an image"}},
		"other sites":                      {"[a](https://x.org/y.md) [b](//x.org/y) [c](mailto:a@b.c) [d](tel:1) [e](ftp://x) [f](HTTP://X) ![g](data:image/png;base64,AA==)", nil},
		"a colon that makes no scheme":     {"[x](1a:b) [y](./a:b)", []string{"1 1a:b" + missing, "1 ./a:b" + missing}},
		"nothing":                          {"[x]() [y](<>) ![z]()", []string{"1 : the link is empty", "1 : the link is empty", "1 : the link is empty"}},
		"what is no byte order of UTF-8":   {"[x](\xff.md)", []string{"1 \xff.md" + missing}},
		"a name with NUL or backslash":     {"[x](%00) [y](docs%5Ca.md)", []string{"1 %00" + missing, "1 docs%5Ca.md" + missing}},
		"several in one line, in order":    {"[b](b) [a](a) <a href=\"c\">c</a> [d][d1]", []string{"1 b" + missing, "1 a" + missing, "1 c" + missing, "1 [d1]" + undefined}},
		"no links at all":                  {"# Just text\n", nil},
		"an empty page":                    {"", nil},
		"a slash more, or a dot directory": {"[x](docs//a.md) [y](docs/./a.md)", nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(c.want, broken(t, c.page)); diff != "" {
				t.Errorf("%q (-want +got):\n%s", c.page, diff)
			}
		})
	}
}

func TestWhatIsALink(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		page string
		want []string
	}{
		"titles":                    {"[x](n1 \"t\") [x](n2 't') [x](n3 (t)) [x](\nn4\n\"t\"\n)", []string{"1 n1" + missing, "1 n2" + missing, "1 n3" + missing, "1 n4" + missing}},
		"angle brackets":            {"[x](<a b.md>) [y](<n o.md>)", []string{"1 n o.md" + missing}},
		"parentheses":               {"[x](a(b).md) [y](a\\(b\\).md) [z](n(o).md)", []string{"1 n(o).md" + missing}},
		"brackets in the text":      {"[a [b] c](n1) [a \\] c](n2) [`]`](n3)", []string{"1 n1" + missing, "1 n2" + missing, "1 n3" + missing}},
		"escapes":                   {"[x](under\\_score.md) \\[y](n1) [z\\](n2)", nil},
		"character references":      {"[x](x&amp;y.md) [y](x&#38;y.md) [z](x&bogus;y.md)", []string{"1 x&bogus;y.md" + missing}},
		"an image in a link":        {"[![x](n1)](n2)", []string{"1 n2" + missing, "1 n1" + missing}},
		"a link in an image's text": {"![[x](n1)](img.png)", nil},
		"emphasis around and in":    {"**[x](n1)** [*x*](n2) ~~[x](n3)~~", []string{"1 n1" + missing, "1 n2" + missing, "1 n3" + missing}},
		"lists, quotes, tables":     {"- a\n  - [x](n1)\n\n> > [x](n2)\n\n| a | b |\n| --- | --- |\n| c | [x](n3) |\n", []string{"2 n1" + missing, "4 n2" + missing, "8 n3" + missing}},
		"headings":                  {"# [x](n1)\n\n[y](n2)\n===\n\n[z](#x) [w](#y)", []string{"1 n1" + missing, "3 n2" + missing}},
		"a footnote":                {"a[^1]\n\n[^1]: see [x](n1)\n", []string{"3 n1" + missing}},
		"code spans":                {"`[x](n1)` ``[y](`n2`)``", nil},
		"code fences":               {"```\n[x](n1)\n```\n\n~~~md\n[x](n2)\n~~~\n\n- a\n\n  ```\n  [x](n3)\n  ```\n\n````\n```\n[x](n4)\n```\n````\n", nil},
		"a fence without an end":    {"```\n[x](n1)\n", nil},
		"indented code":             {"a\n\n    [x](n1)\n\n\t[y](n2)\n", nil},
		"comments":                  {"<!-- [x](n1) -->\n\n<!--\n[y](n2)\n\n<a href=\"n3\">\n-->\n\na <!-- [z](n4)\n<a href=\"n5\"> --> b", nil},
		"autolinks":                 {"<https://x.org/n1> https://x.org/n2 www.x.org/n3 <a@b.cd>", nil},
		"text that is no link":      {"[x] (n1) [y] [z](n 2) ](n3) [w](n4", nil},
		"front matter":              {"---\ntitle: \"[x](n1)\"\nlink: n2\n---\n[y](n3)", []string{"5 n3" + missing}},
		"front matter of TOML":      {"+++\n[params]\ntitle = \"[x](n1)\"\n+++\n[y](n3)", []string{"5 n3" + missing}},
		"front matter after a mark": {"\ufeff---\nx: \"[x](n1)\"\n...\n[y](n3)", []string{"4 n3" + missing}},
		"rules, not front matter":   {"---\n[x](n1)\n---\n", []string{"2 n1" + missing}},
		"a rule without an end":     {"---\na: [x](n1)\n", []string{"2 n1" + missing}},
		"CR LF":                     {"a\r\n\r\n[x](n1)\r\n\r\n# One\r\n\r\n[y](#one)\r\n", []string{"3 n1" + missing}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(c.want, broken(t, c.page)); diff != "" {
				t.Errorf("%q (-want +got):\n%s", c.page, diff)
			}
		})
	}
}

func TestReferences(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		page string
		want []string
	}{
		"used, and leads somewhere":     {"[x][a] [a][] [a] ![y][b]\n\n[a]: there.md\n[b]: <img.png> 'title'\n", nil},
		"broken where it is defined":    {"[x][a] [y][a]\n\n[a]: n1\n", []string{"3 n1" + missing}},
		"broken though not used":        {"text\n\n[a]: n1 \"t\"\n", []string{"3 n1" + missing}},
		"in another case, with blanks":  {"[x][A  b]\n\n[a B]: there.md\n", nil},
		"in a quote, or a list":         {"[x][a] [x][b]\n\n> [a]: n1\n\n- [b]: n2\n", []string{"3 n1" + missing, "5 n2" + missing}},
		"several lines":                 {"[x][a]\n\n[a]:\n  n1\n  'title'\n[b]: n2\n", []string{"3 n1" + missing, "6 n2" + missing}},
		"without a definition":          {"[x][a] [b][] ![y][c]\n", []string{"1 [a]" + undefined, "1 [b]" + undefined, "1 [c]" + undefined}},
		"without, over two lines":       {"see [the\npage][of\nus].\n", []string{"1 [of\nus]" + undefined}},
		"without, in emphasis":          {"a\n**[x *y*][a]**\n", []string{"2 [a]" + undefined}},
		"without, and punctuation":      {"([x][a])? *[y][b]*, [z][c]:\n", []string{"1 [a]" + undefined, "1 [b]" + undefined, "1 [c]" + undefined}},
		"shortcuts may be text":         {"[x] and [ ] and [y]!\n", nil},
		"code may stand in text":        {"m[i][j] f(x)[0][n] [][]byte [n][]byte [a-z][0-9]+ map[string][]int\n", nil},
		"keys may stand in text":        {"press [tab][tab]\n", nil},
		"a link after brackets":         {"[x][y](there.md) [a][b][c]\n\n[c]: there.md\n", nil},
		"in code, comments and escaped": {"`[x][a]` <!-- [x][b] --> \\[x][c] [x\\][d]\n\n    [x][e]\n", nil},
		"footnotes":                     {"a[^1] [x][^1]\n\n[^1]: note\n", nil},
		"a footnote without a text":     {"a[^nope]\n", nil},
		"comments made of definitions":  {"[//]: # (a comment)\n[comment]: <> (another)\n", nil},
		"empty, and used":               {"[x][a]\n\n[a]: <>\n", []string{"1 : the link is empty"}},
		"tasks":                         {"- [ ] [x](there.md)\n- [x] [ ][a]\n", nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(c.want, broken(t, c.page)); diff != "" {
				t.Errorf("%q (-want +got):\n%s", c.page, diff)
			}
		})
	}
}

func TestHTML(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		page string
		want []string
	}{
		"a block":                   {"<p align=\"center\">\n  <a href=\"n1\"><img src='n2' alt=\"x\"></a>\n  <img src=n3 />\n</p>\n", []string{"2 n1" + missing, "2 n2" + missing, "3 n3" + missing}},
		"in a line":                 {"text <a\n  title=\"a > b\"\n  href=\"n1\">x</a> <IMG SRC=\"n2\">", []string{"1 n1" + missing, "3 n2" + missing}},
		"in a quote":                {"> <div>\n> <a href=\"n1\">\n> </div>\n", []string{"2 n1" + missing}},
		"in a list, after a tab":    {"-\t<div>\n\t<a href=\"n1\">\n\t</div>\n", []string{"2 n1" + missing}},
		"good ones":                 {"<a href=\"there.md#there\">x</a> <img src=\"img.png\"> <a href=\"https://x.org\">y</a>", nil},
		"escapes":                   {"<a href=\"x&amp;y.md\">x</a> <a href=\" a%20b.md \">y</a> <a href=\"there.md&num;n\">z</a>", []string{"1 there.md&num;n" + noAnchor}},
		"an empty one":              {"<a href=\"\">x</a> <a href>y</a> <a name=\"z\"></a>", []string{"1 : the link is empty", "1 : the link is empty"}},
		"the first of a name":       {"<a href=\"there.md\" href=\"n1\">x</a>", nil},
		"sets of images":            {"<picture><source srcset=\"img.png 1x, n1 2x,n2\"><img srcset=\"img.png, data:image/png;base64,AA== 2x\" src=\"img.png\"></picture>", []string{"1 n1" + missing, "1 n2" + missing}},
		"films":                     {"<video src=\"n1\" poster=\"n2\"></video>", []string{"1 n1" + missing, "1 n2" + missing}},
		"other attributes":          {"<a data-href=\"n1\" title=\"href='n2'\">x</a> <link href=\"n3\"> <script src=\"n4\"></script>", nil},
		"scripts and styles":        {"<script>\nvar s = '<a href=\"n1\">'\n</script>\n\n<style>\n/* <img src=\"n2\"> */\n</style>\n\n<a href=\"n3\">x</a>", []string{"9 n3" + missing}},
		"preformatted text":         {"<pre>\n<a href=\"n1\">x</a> [y](n2)\n</pre>\n", []string{"2 n1" + missing}},
		"Markdown between":          {"<details>\n<summary>x</summary>\n\n[y](n1)\n\n</details>\n", []string{"4 n1" + missing}},
		"no Markdown inside":        {"<div>\n[x](n1)\n</div>\n", nil},
		"no HTML":                   {"a < b <a href = c \\<a href=\"n1\"> &lt;a href=\"n2\">", nil},
		"a tag that never ends":     {"<div>\n<a href=\"n1\n", nil},
		"anchors":                   {"<a id=\"one\"></a><a name=two></a>\n<h2 id='three'>x</h2>\n\n[a](#one) [b](#two) [c](#three) [d](#x) [e](#four)", []string{"4 #four" + noAnchor}},
		"anchors in comments":       {"<!-- <a id=\"one\"></a> -->\n\n[a](#one)", []string{"3 #one" + noAnchor}},
		"a comment of its own ilk":  {"<div>\n<!--> <a href=\"n1\">x</a> <!---> <a href=\"n2\">y</a>\n</div>", []string{"2 n1" + missing, "2 n2" + missing}},
		"instructions and sections": {"<div>\n<?php <a href=\"n1\" ?><!DOCTYPE x><a href=\"n2\">\n</div>\n", []string{"2 n2" + missing}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(c.want, broken(t, c.page)); diff != "" {
				t.Errorf("%q (-want +got):\n%s", c.page, diff)
			}
		})
	}
}

// TestHeadings holds the anchors of headings by a page that links to each of
// them.
func TestHeadings(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		page    string
		anchors []string
	}{
		"levels":                     {"# A\n###### B\n####### C\n#D\n", []string{"a", "b"}},
		"closing hashes":             {"## A b ##\n", []string{"a-b"}},
		"setext":                     {"A b\n===\n\nC\nd\n---\n", []string{"a-b", "cd"}},
		"punctuation":                {"# What's `new`, in v1.2 (and *why*)?\n# a - b\n# c_d\n", []string{"whats-new-in-v12-and-why", "a---b", "c_d"}},
		"emphasis":                   {"# _A_ **b** ~~c~~ d_e_f\n", []string{"a-b-c-d_e_f"}},
		"code keeps what it holds":   {"# `a_b` `*c*` `&amp;`\n", []string{"a_b-c-amp"}},
		"escapes and references":     {"# a\\_b\\*c &amp; d &lt;e&gt; \\&amp;\n", []string{"a_bc--d-e-amp"}},
		"a link, an image, an email": {"# [A](there.md) ![b](img.png) <c@d.ef>\n", []string{"a--cdef"}},
		"other scripts":              {"# Größe Ñandú\n# Привет МИР\n# 你好\n", []string{"größe-ñandú", "привет-мир", "你好"}},
		"emoji":                      {"# 🚀 Go\n# :rocket: Go\n", []string{"-go", "rocket-go"}},
		"twice":                      {"# A\n## A\n# A\n# A-1\n", []string{"a", "a-1", "a-2", "a-1-1"}},
		"in quotes and lists":        {"> # A\n\n- # B\n", []string{"a", "b"}},
		"in HTML":                    {"<h1 align=\"center\">My <b>Own</b> &amp; Thing</h1>\n\n## Own\n", []string{"my-own--thing", "own"}},
		"in HTML over Markdown":      {"<h2>\n\nA **b**\n\n</h2>\n", []string{"a-b"}},
		"with HTML in it":            {"# <img src=\"img.png\"> A <sub>b</sub> <!-- c -->\n", []string{"-a-b-"}},
		"not in code":                {"```\n# A\n```\n\n    # B\n", nil},
		"with a footnote":            {"# A[^1]\n\n[^1]: b\n", []string{"a1"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			probe := []string{"a", "b", "c", "d", "go", "own", "a-1", "a-b", "cd", "c-d"}
			want := []string{}
			for _, p := range probe {
				if !slices.Contains(c.anchors, p) {
					want = append(want, "probe.md:1 page.md#"+p+noAnchor)
				}
			}
			text := ""
			for _, a := range append(c.anchors, probe...) {
				text += "[x](page.md#" + a + ") "
			}
			tree := files(map[string]string{"page.md": c.page, "probe.md": text, "there.md": "", "img.png": ""})
			if diff := cmp.Diff(want, lines(run(t, tree).Findings)); diff != "" {
				t.Errorf("%q (-want +got):\n%s", c.page, diff)
			}
		})
	}
}

func TestWhichFilesAreChecked(t *testing.T) {
	t.Parallel()
	const bad = "[x](nowhere)"
	tree := files(map[string]string{
		"a.md": bad, "b.markdown": bad, "C.MD": bad, "docs/d.md": bad, "docs/d/e.md": bad, "vendored/f.md": bad, ".github/g.md": bad,
		"h.txt": bad, "i.mdx": bad, ".git/j.md": bad, "node_modules/k/l.md": bad, "web/node_modules/m.md": bad,
		"vendor/n.md": bad, "pkg/testdata/o.md": bad, "pkg/testdata/p/q.md": bad, "pkg/testdata2/r.md": bad, "zz/s.md": bad,
	})
	want := []string{".github/g.md", "C.MD", "a.md", "b.markdown", "docs/d.md", "docs/d/e.md", "pkg/testdata2/r.md", "vendored/f.md", "zz/s.md"}
	r := run(t, tree)
	var got []string
	for _, f := range r.Findings {
		got = append(got, f.File)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("files with findings (-want +got):\n%s", diff)
	}
	if r.Files != len(want) || r.Links != len(want) || r.Broken != len(want) || r.BrokenFiles != len(want) {
		t.Errorf("counts are %+v, want %d each", r, len(want))
	}
}

func TestLinksIntoWhatIsNotChecked(t *testing.T) {
	t.Parallel()
	tree := files(map[string]string{
		"a.md":        "[x](vendor/b.md) [y](vendor/b.md#b) [z](vendor/b.md#c) [w](.git/config) [v](vendor/#readme) [u](vendor/#b)",
		"vendor/b.md": "# B\n[x](nowhere)", "vendor/README.md": "# Readme", ".git/config": "",
	})
	want := []string{"a.md:1 vendor/b.md#c" + noAnchor, "a.md:1 .git/config" + missing, "a.md:1 vendor/#b" + noAnchor}
	if diff := cmp.Diff(want, lines(run(t, tree).Findings)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestSymbolicLinks(t *testing.T) {
	t.Parallel()
	tree := files(map[string]string{
		"a.md":        "[x](link.md) [y](link.md#real) [z](link.md#no) [w](dir/real.md#real) [v](dir/none.md) [u](lost.md) [t](dir/) [s](dir/#real) [r](LOST.md)",
		"sub/real.md": "# Real\n", "sub/README.md": "# Real\n",
	})
	for name, to := range map[string]string{"link.md": "sub/real.md", "dir": "sub", "lost.md": "sub/gone.md"} {
		tree[name] = &fstest.MapFile{Data: []byte(to), Mode: fs.ModeSymlink | 0o777}
	}
	want := []string{
		"a.md:1 link.md#no" + noAnchor, "a.md:1 dir/none.md" + missing, "a.md:1 lost.md" + missing,
		"a.md:1 dir/#real: an anchor, but the directory has no README", "a.md:1 LOST.md" + missing + " -> lost.md",
	}
	r := run(t, tree)
	if diff := cmp.Diff(want, lines(r.Findings)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if r.Files != 3 {
		t.Errorf("%d files were checked, want the 3 that are no links", r.Files)
	}
}

func TestLimits(t *testing.T) {
	t.Parallel()
	tree := files(map[string]string{"a.md": "[x](n)", "b.md": "[x](n)[y](n)", "vendor/c.md": "# C", "d.txt": ""})
	for name, c := range map[string]struct {
		limits links.Limits
		want   error
	}{
		"within all":   {links.Limits{Entries: 6, Files: 2, FileBytes: 12, TotalBytes: 18}, nil},
		"entries":      {links.Limits{Entries: 5}, links.ErrTooLarge},
		"files":        {links.Limits{Files: 1}, links.ErrTooLarge},
		"bytes in all": {links.Limits{TotalBytes: 17}, links.ErrTooLarge},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, err := links.Check(t.Context(), tree, c.limits)
			if !errors.Is(err, c.want) {
				t.Fatalf("err = %v, want %v", err, c.want)
			}
			if err != nil && r.Files+r.Broken > 0 {
				t.Errorf("a result came with the error: %+v", r)
			}
		})
	}
	t.Run("of one file is a finding", func(t *testing.T) {
		t.Parallel()
		tree := files(map[string]string{"a.md": "[x](b.md) [y](b.md#c)", "b.md": "# C" + strings.Repeat(" ", 40), "vendor/d.md": ""})
		r, err := links.Check(t.Context(), tree, links.Limits{FileBytes: 40})
		if err != nil {
			t.Fatal(err)
		}
		const tooLarge = "the file is too large to be checked"
		want := []string{"a.md:1 b.md#c: " + tooLarge, "b.md:0 : " + tooLarge}
		if diff := cmp.Diff(want, lines(r.Findings)); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
	t.Run("of findings counts the rest", func(t *testing.T) {
		t.Parallel()
		r, err := links.Check(t.Context(), tree, links.Limits{Findings: 2})
		if err != nil {
			t.Fatal(err)
		}
		if want := []string{"a.md:1 n" + missing, "b.md:1 n" + missing}; !cmp.Equal(want, lines(r.Findings)) {
			t.Errorf("findings = %v, want %v", lines(r.Findings), want)
		}
		if r.Broken != 3 || r.BrokenFiles != 2 {
			t.Errorf("broken = %d in %d files, want 3 in 2", r.Broken, r.BrokenFiles)
		}
	})
}

// TestSameTreeSameResult runs many files through the workers.
func TestSameTreeSameResult(t *testing.T) {
	t.Parallel()
	contents := map[string]string{}
	for i := range 300 {
		contents[fmt.Sprintf("d%d/p%d.md", i%7, i)] = fmt.Sprintf("# P\n[a](p%d.md#p) [b](../d%d/p%d.md) [c][u%d]\n", i-7, i%5, i, i)
	}
	tree := files(contents)
	first := run(t, tree)
	if first.Files != 300 || first.Broken < 300 {
		t.Fatalf("result = %d files, %d broken", first.Files, first.Broken)
	}
	for range 3 {
		if diff := cmp.Diff(lines(first.Findings), lines(run(t, tree).Findings)); diff != "" {
			t.Fatalf("(-first +again):\n%s", diff)
		}
	}
}

// errTree is a tree that fails in one place.
type errTree struct {
	fs.FS
	name string
	err  error
}

func (e errTree) Open(name string) (fs.File, error) {
	if name == e.name {
		return nil, e.err
	}
	return e.FS.Open(name)
}

func TestTreeThatCannotBeReadIsAnError(t *testing.T) {
	t.Parallel()
	boom := errors.New("boom")
	tree := files(map[string]string{"docs/a.md": "", "docs/b.md": "", "c.md": ""})
	for _, name := range []string{".", "docs", "docs/b.md"} {
		if _, err := links.Check(t.Context(), errTree{tree, name, boom}, links.Limits{}); !errors.Is(err, boom) {
			t.Errorf("%s: err = %v, want %v", name, err, boom)
		}
	}
}

func TestContextThatHasEnded(t *testing.T) {
	t.Parallel()
	gone := errors.New("nobody waits")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(gone)
	if _, err := links.Check(ctx, files(map[string]string{"a.md": ""}), links.Limits{}); !errors.Is(err, gone) {
		t.Errorf("err = %v, want %v", err, gone)
	}
}
