package links

import (
	"bytes"
	"unicode"
	"unicode/utf8"

	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/parser"
	"github.com/yuin/goldmark/text"
	"github.com/yuin/goldmark/util"
)

// maxLabelBytes is the length of a label (CommonMark, "Link reference
// definitions").
const maxLabelBytes = 999

// An undefined is a reference to a label that the page doesn't define. It
// becomes plain text, so the tree has no node for it.
type undefined struct {
	offset int
	label  string
}

// A referenceWatch looks where a reference link would end, and leaves the
// parsing to others.
type referenceWatch struct{}

// Trigger implements [parser.InlineParser].
func (referenceWatch) Trigger() []byte { return []byte{']'} }

// Parse implements [parser.InlineParser]. It always returns nil, after which
// the caller moves the reader back.
func (referenceWatch) Parse(_ ast.Node, block text.Reader, pc parser.Context) ast.Node {
	page, ok := pc.(*pageContext)
	line, at := block.PeekLine()
	if !ok || len(line) < 2 || line[1] != '[' || !pc.IsInLinkLabel() {
		return nil
	}
	start := openingBracket(block.Source(), at.Start)
	if start < 0 || looksLikeCode(block.Source()[:start]) {
		return nil
	}
	block.Advance(len("]["))
	segments, found := block.FindClosure('[', ']', text.FindClosureOptions{Newline: true, Advance: true})
	if !found || isContinued(block) {
		return nil
	}
	textOf := block.Source()[start+1 : at.Start]
	var label []byte
	for i := range segments.Len() {
		label = append(label, block.Value(segments.At(i))...)
	}
	switch {
	case util.IsBlank(textOf), len(label) > maxLabelBytes:
		return nil
	case util.IsBlank(label):
		label = textOf
	case label[0] == '^', bytes.Equal(label, textOf):
		// A footnote, or prose: press [tab][tab].
		return nil
	}
	if _, defined := pc.Reference(util.ToLinkReference(label)); !defined {
		page.undefined = append(page.undefined, undefined{start, "[" + string(label) + "]"})
	}
	return nil
}

// openingBracket finds the bracket that the one at end closes; -1 if it is too
// far away to matter.
func openingBracket(source []byte, end int) int {
	depth := 0
	for i := end - 1; i >= max(0, end-maxLabelBytes-1); i-- {
		switch {
		case source[i] == ']':
			depth++
		case source[i] == '[' && depth == 0:
			return i
		case source[i] == '[':
			depth--
		}
	}
	return -1
}

// looksLikeCode reports whether brackets after this text are an index, as in
// matrix[i][j], rather than a reference.
func looksLikeCode(before []byte) bool {
	last, _ := utf8.DecodeLastRune(before)
	return len(before) > 0 && (unicode.IsLetter(last) || unicode.IsDigit(last) || bytes.ContainsRune([]byte("_)]"), last))
}

// isContinued reports whether what follows makes the second pair of brackets
// something else than a label: the text of a link, or code as in [n][]byte and
// [a-z][0-9]+.
func isContinued(block text.Reader) bool {
	next := block.Peek()
	return util.IsAlphaNumeric(next) || bytes.IndexByte([]byte("[(+{"), next) >= 0
}
