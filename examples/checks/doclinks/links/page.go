package links

import (
	"bytes"
	"context"
	"html"
	"slices"
	"strconv"
	"strings"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	extast "github.com/yuin/goldmark/extension/ast"
	"github.com/yuin/goldmark/parser"
	"github.com/yuin/goldmark/text"
	"github.com/yuin/goldmark/util"
)

// A link is one place of a page that names a target.
type link struct {
	// line counts from 1; offset is the place in the file.
	line, offset int
	// written is the target as it stands in the file, dest the same without
	// the escapes of Markdown or HTML.
	written, dest string
	image         bool
	// undefined: written is the label of a reference without a definition.
	undefined bool
}

// A page is what matters of one Markdown file.
type page struct {
	links   []link
	anchors map[string]bool
}

// A markdown parses pages. It is safe for concurrent use.
type markdown struct{ parser parser.Parser }

// newMarkdown sets up GitHub's dialect, with parsers of our own between.
func newMarkdown() markdown {
	// Those with a lower number are asked first.
	p := parser.NewParser(
		parser.WithBlockParsers(parser.DefaultBlockParsers()...),
		parser.WithParagraphTransformers(parser.DefaultParagraphTransformers()...),
		parser.WithInlineParsers(
			util.Prioritized(stopper{}, 1),
			util.Prioritized(parser.NewCodeSpanParser(), 100),
			util.Prioritized(referenceWatch{}, 199),
			util.Prioritized(parser.NewLinkParser(), 200),
			util.Prioritized(parser.NewAutoLinkParser(), 300),
			util.Prioritized(parser.NewRawHTMLParser(), 400),
			util.Prioritized(stoppable{parser.NewEmphasisParser()}, 500),
			util.Prioritized(stoppable{extension.NewStrikethroughParser()}, 500),
		),
	)
	// Extensions add their parsers to p. That for tasks is left out: it takes
	// the text of a link such as [x](y) for a box.
	goldmark.New(goldmark.WithParser(p), goldmark.WithExtensions(extension.Linkify, extension.Table, extension.Footnote))
	return markdown{p}
}

// parse reads one page and takes over its text. When the context ends it ends
// the goroutine that called it.
func (m markdown) parse(ctx context.Context, source []byte) *page {
	source = bytes.TrimPrefix(source, []byte("\ufeff"))
	blankFrontMatter(source)
	pc := &pageContext{Context: parser.NewContext(), ctx: ctx}
	doc := m.parser.Parse(text.NewReader(source), parser.WithContext(pc))
	r := pageReader{source: source, page: &page{anchors: map[string]bool{}}}
	for _, u := range pc.undefined {
		r.add(link{offset: u.offset, written: u.label, undefined: true})
	}
	r.walk(doc)
	r.endHeading()
	return r.page
}

// A pageReader goes through the syntax tree of one page in the order of its
// text.
type pageReader struct {
	source []byte
	page   *page
	slugs  Slugs
	// starts are the offsets of all lines; nil until needed.
	starts []int
	// heading collects the text of a heading; nil outside of one.
	heading *strings.Builder
}

// walk visits a node, then its children. It keeps its own stack, since the
// depth is up to whoever wrote the page.
func (r *pageReader) walk(root ast.Node) {
	for n := root; n != nil; {
		descend := r.enter(n)
		if descend && n.FirstChild() != nil {
			n = n.FirstChild()
			continue
		}
		for n != nil {
			r.leave(n)
			if n == root {
				return
			}
			if next := n.NextSibling(); next != nil {
				n = next
				break
			}
			n = n.Parent()
		}
	}
}

// enter takes what a node says, and reports whether its children say more.
func (r *pageReader) enter(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.Heading:
		r.startHeading()
	case *ast.Link:
		r.addDestination(n.Pos(), n.Destination, n.Reference != nil, false)
	case *ast.Image:
		r.addDestination(n.Pos(), n.Destination, n.Reference != nil, true)
		// What stands in for an image is text alone: no link, no anchor, and
		// no part of a heading.
		return false
	case *ast.LinkReferenceDefinition:
		// An empty one, or one to the page, is how comments are written.
		if dest := string(n.Destination); dest != "" && dest != "#" {
			r.addDestination(n.Pos(), n.Destination, false, false)
		}
	case *ast.HTMLBlock:
		lines := n.Lines()
		if n.HasClosure() {
			lines = text.NewSegments()
			lines.AppendAll(n.Lines().Sliced(0, n.Lines().Len()))
			lines.Append(n.ClosureLine)
		}
		r.html(lines)
	case *ast.RawHTML:
		r.html(n.Segments)
	case *ast.CodeSpan:
		for c := n.FirstChild(); c != nil; c = c.NextSibling() {
			if t, ok := c.(*ast.Text); ok {
				r.say(string(t.Value(r.source)))
			}
		}
		return false
	case *ast.Text:
		r.say(unescaped(n.Value(r.source)))
	case *ast.String:
		r.say(string(n.Value))
	case *ast.AutoLink:
		r.say(string(n.Label(r.source)))
	case *extast.FootnoteLink:
		r.say(strconv.Itoa(n.Index))
	}
	return true
}

func (r *pageReader) leave(n ast.Node) {
	if _, ok := n.(*ast.Heading); ok {
		r.endHeading()
	}
}

func (r *pageReader) startHeading() {
	r.endHeading()
	r.heading = &strings.Builder{}
}

func (r *pageReader) endHeading() {
	if r.heading != nil {
		r.page.anchors[r.slugs.Next(r.heading.String())] = true
		r.heading = nil
	}
}

func (r *pageReader) say(text string) {
	if r.heading != nil {
		r.heading.WriteString(text)
	}
}

// addDestination adds what a link in Markdown names. What a reference names
// stands in its definition, unless nothing does.
func (r *pageReader) addDestination(offset int, dest []byte, reference, image bool) {
	if !reference || len(dest) == 0 {
		r.add(link{offset: offset, written: string(dest), dest: unescaped(dest), image: image})
	}
}

func (r *pageReader) add(l link) {
	if r.starts == nil {
		r.starts = []int{0}
		for i, c := range r.source {
			if c == '\n' {
				r.starts = append(r.starts, i+1)
			}
		}
	}
	// The line begins at the offset or is the last that begins before it.
	l.line, _ = slices.BinarySearch(r.starts, l.offset+1)
	r.page.links = append(r.page.links, l)
}

// unescaped undoes Markdown's backslashes and character references
// (CommonMark, "Backslash escapes", "Entity and numeric character references").
func unescaped(b []byte) string {
	if !bytes.ContainsAny(b, `\&`) {
		return string(b)
	}
	const longest = len("&CounterClockwiseContourIntegral;")
	var out strings.Builder
	for i := 0; i < len(b); i++ {
		if b[i] == '\\' && i+1 < len(b) && util.IsPunct(b[i+1]) {
			i++
		} else if b[i] == '&' {
			if end := bytes.IndexByte(b[i:min(len(b), i+longest)], ';'); end > 0 {
				out.WriteString(html.UnescapeString(string(b[i : i+end+1])))
				i += end
				continue
			}
		}
		out.WriteByte(b[i])
	}
	return out.String()
}

// blankFrontMatter overwrites YAML or TOML at the beginning of a page with
// blanks, which leaves every line in its place.
func blankFrontMatter(source []byte) {
	fence := ""
	keyed := false
	for start := 0; start < len(source); {
		end := len(source)
		if i := bytes.IndexByte(source[start:], '\n'); i >= 0 {
			end = start + i + 1
		}
		line := strings.TrimRight(string(source[start:end]), " \t\r\n")
		switch {
		case start == 0 && (line == "---" || line == "+++"):
			fence = line
		case start == 0:
			return
		case line == fence || fence == "---" && line == "...":
			blank(source[:end])
			return
		case !keyed:
			// Between two thematic breaks stands a page, not a key.
			if keyed = isKey(line); !keyed && line != "" && line[0] != '#' {
				return
			}
		}
		start = end
	}
}

// isKey reports whether a line begins as one of YAML's or TOML's does.
func isKey(line string) bool {
	i := strings.IndexAny(line, ":=")
	return i > 0 && !strings.ContainsAny(strings.TrimSpace(line[:i]), " \t*`<(") || strings.HasPrefix(line, "[") && strings.HasSuffix(line, "]")
}

func blank(b []byte) {
	for i := range b {
		if b[i] != '\n' && b[i] != '\r' {
			b[i] = ' '
		}
	}
}
