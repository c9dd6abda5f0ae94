package links

import (
	"strconv"
	"strings"
	"unicode"
)

// Slugs gives the headings of one page their anchors, as GitHub does: in lower
// case, without punctuation and symbols (and so without emoji, though
// :shortcodes: keep their letters), blanks as hyphens, and numbered from the
// second of a name on. The zero Slugs is that of an empty page. It is not safe
// for concurrent use.
type Slugs struct {
	// last is the number that a name was given last, by every anchor so far.
	last map[string]int
}

// Next is the anchor of the next heading, whose plain text is given.
func (s *Slugs) Next(text string) string {
	if s.last == nil {
		s.last = map[string]int{}
	}
	base := slug(text)
	anchor := base
	for {
		if _, taken := s.last[anchor]; !taken {
			break
		}
		s.last[base]++
		anchor = base + "-" + strconv.Itoa(s.last[base])
	}
	s.last[anchor] = 0
	return anchor
}

func slug(text string) string {
	// The one letter whose lower case is two characters, which ToLower makes
	// one of.
	text = strings.ReplaceAll(text, "İ", "i\u0307")
	return strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case r == '-' || isWord(r):
			return r
		}
		return -1
	}, strings.ToLower(text))
}

// isWord is Unicode's class for regular expressions (UTS #18, annex C), less
// the joiners.
func isWord(r rune) bool {
	return unicode.IsLetter(r) || unicode.In(r, unicode.M, unicode.Nd, unicode.Nl, unicode.Other_Alphabetic, unicode.Pc)
}
