// Package glob matches the paths of a tree against patterns.
//
// # The grammar
//
// A path is what Git has: parts with a slash between them, none of them empty.
// A pattern has parts, too, and matches a path if its parts match those of the
// path, each the next, from the first to the last:
//
//	**         as a whole part: any number of parts, none included
//	*          within a part: any number of characters, none included
//	?          within a part: one character
//	\ [ ] { }  are refused, and so is ! at the beginning: other grammars give
//	           them a meaning
//	else       itself: case counts, and so does each byte
//
// A pattern begins at the top: `*.md` matches README.md and not docs/a.md,
// which `**/*.md` does. `docs/**` matches all that is below docs. A dot is a
// character like others. A character is what UTF-8 makes one; a byte that is
// no UTF-8 is one by itself.
//
// # Cost
//
// Matching takes at most as many steps as the product of both lengths, and no
// memory, whatever the pattern: a pattern is as harmless as it is long.
package glob

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/fencepost/fencepost"
)

// MaxBytes is the longest pattern.
const MaxBytes = 512

const anyParts = "**"

// A Pattern is a parsed pattern. The zero Pattern matches nothing. It is
// immutable.
type Pattern struct {
	// blocks are the parts between one ** and the next: the first block stands
	// at the beginning of a path, the last one at its end. Without any ** there
	// is one block.
	blocks [][]string
}

// Parse reads a pattern. Its error says what the grammar asks for, and matches
// [fencepost.ErrMalformed] or [fencepost.ErrTooLarge].
func Parse(text string) (Pattern, error) {
	bad := func(why string) (Pattern, error) {
		return Pattern{}, fmt.Errorf("pattern: %s: %w", why, fencepost.ErrMalformed)
	}
	switch {
	case text == "":
		return bad("is empty")
	case len(text) > MaxBytes:
		return Pattern{}, fmt.Errorf("pattern of %d bytes, at most %d: %w", len(text), MaxBytes, fencepost.ErrTooLarge)
	case text[0] == '/':
		return bad("begins with a slash; paths begin at the top of the tree anyway")
	case text[0] == '!':
		return bad("begins with !; what is not wanted is excluded by a list of its own")
	case strings.ContainsAny(text, "\\[]{}"):
		return bad(`holds one of \ [ ] { }, which have no meaning here; ? stands for any character`)
	case strings.IndexFunc(text, func(r rune) bool { return r < ' ' || r == 0x7f }) >= 0:
		return bad("holds a control character")
	}
	p := Pattern{blocks: [][]string{nil}}
	for part := range strings.SplitSeq(text, "/") {
		switch {
		case part == "":
			return bad("has an empty part; for all that is below a directory write dir/**")
		case part == "." || part == "..":
			return bad("has . or .. as a part")
		case part == anyParts:
			p.blocks = append(p.blocks, nil)
			continue
		case strings.Contains(part, anyParts):
			return bad("has ** within a part; it stands alone between slashes")
		}
		last := len(p.blocks) - 1
		p.blocks[last] = append(p.blocks[last], part)
	}
	return p, nil
}

// Match reports whether p matches a path.
func (p Pattern) Match(path string) bool {
	if len(p.blocks) == 0 {
		return false
	}
	rest, ok := prefix(p.blocks[0], path)
	if !ok {
		return false
	}
	if len(p.blocks) == 1 {
		return rest == ""
	}
	// Between two ** the first place that a block fits is as good as any later
	// one: what follows has the more parts to choose from.
	for _, block := range p.blocks[1 : len(p.blocks)-1] {
		if rest, ok = seek(block, rest); !ok {
			return false
		}
	}
	return suffix(p.blocks[len(p.blocks)-1], rest)
}

// prefix matches a block with the first parts of a path, and returns the rest.
func prefix(block []string, path string) (rest string, ok bool) {
	for _, part := range block {
		var name string
		if name, path, ok = cut(path); !ok || !matchPart(part, name) {
			return "", false
		}
	}
	return path, true
}

// seek matches a block at the first place of a path where it fits.
func seek(block []string, path string) (rest string, ok bool) {
	for {
		if rest, ok = prefix(block, path); ok {
			return rest, true
		}
		if _, path, ok = cut(path); !ok {
			return "", false
		}
	}
}

// suffix matches a block with the last parts of a path.
func suffix(block []string, path string) bool {
	if len(block) == 0 {
		return true
	}
	// From the end on, so that no place is tried in vain.
	for i := len(block) - 1; i >= 0; i-- {
		if path == "" {
			return false
		}
		at := strings.LastIndexByte(path, '/')
		if !matchPart(block[i], path[at+1:]) {
			return false
		}
		path = path[:max(at, 0)]
	}
	return true
}

// cut takes the first part off a path; it fails if there is none.
func cut(path string) (name, rest string, ok bool) {
	if path == "" {
		return "", "", false
	}
	name, rest, _ = strings.Cut(path, "/")
	return name, rest, true
}

// matchPart matches within one part. After each * the rest of the pattern is
// tried at every place, but never again for an earlier *: if it does not fit
// from here on, more for that one would not help.
func matchPart(pattern, name string) bool {
	star, back := -1, 0
	for i, j := 0, 0; i < len(name) || j < len(pattern); {
		if j < len(pattern) {
			switch c := pattern[j]; {
			case c == '*':
				star, back = j, i
				j++
				continue
			case i == len(name):
			case c == '?':
				i += width(name[i:])
				j++
				continue
			case c == name[i]:
				i++
				j++
				continue
			}
		}
		if star < 0 || back == len(name) {
			return false
		}
		back += width(name[back:])
		i, j = back, star+1
	}
	return true
}

// width is that of the first character, in bytes.
func width(s string) int {
	_, n := utf8.DecodeRuneInString(s)
	return n
}
