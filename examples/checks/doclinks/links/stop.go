package links

import (
	"context"
	"runtime"

	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/parser"
	"github.com/yuin/goldmark/text"
)

// A pageContext goes along with the parsing of one page. It collects what the
// syntax tree does not show, and stops the parser when nobody waits any more.
//
// The parser takes quadratic time over some pages that nobody writes by
// accident, and can't be told to stop. It does come by here, or at a [stopper] or
// [stoppableMatch], for every block, definition and delimiter.
type pageContext struct {
	parser.Context
	// ctx is of the call that parses this page, and ends with it.
	ctx       context.Context
	undefined []undefined
}

// SetBlockOffset implements [parser.Context]; it is called where a block may
// begin.
func (p *pageContext) SetBlockOffset(n int) {
	p.stop()
	p.Context.SetBlockOffset(n)
}

// AddReference implements [parser.Context]; it is called for each definition.
func (p *pageContext) AddReference(r parser.Reference) {
	p.stop()
	p.Context.AddReference(r)
}

// stop ends the goroutine, with everything that it deferred, once the context
// has ended.
func (p *pageContext) stop() {
	if p.ctx.Err() != nil {
		runtime.Goexit()
	}
}

// A stopper is asked before all other inline parsers at everything that may be
// markup.
type stopper struct{}

// Trigger implements [parser.InlineParser] with what the others are asked at.
func (stopper) Trigger() []byte { return []byte(" !([]`<*_~") }

// Parse implements [parser.InlineParser].
func (stopper) Parse(_ ast.Node, _ text.Reader, pc parser.Context) ast.Node {
	if page, ok := pc.(*pageContext); ok {
		page.stop()
	}
	return nil
}

// stoppable is a parser of delimiters, such as of emphasis, that can be stopped
// while these are matched with each other.
type stoppable struct{ parser.InlineParser }

// Parse implements [parser.InlineParser].
func (s stoppable) Parse(parent ast.Node, block text.Reader, pc parser.Context) ast.Node {
	n := s.InlineParser.Parse(parent, block, pc)
	page, ok := pc.(*pageContext)
	if d, isDelimiter := n.(*parser.Delimiter); ok && isDelimiter {
		d.Processor = stoppableMatch{d.Processor, page}
	}
	return n
}

type stoppableMatch struct {
	parser.DelimiterProcessor
	page *pageContext
}

// CanOpenCloser implements [parser.DelimiterProcessor].
func (m stoppableMatch) CanOpenCloser(opener, closer *parser.Delimiter) bool {
	m.page.stop()
	return m.DelimiterProcessor.CanOpenCloser(opener, closer)
}
