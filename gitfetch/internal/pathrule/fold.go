package pathrule

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/cases"
	"golang.org/x/text/unicode/norm"
)

// Fold returns the key under which file systems may take names for one: the
// full case fold of the canonical decomposition, less the code points that
// some of them drop. Two names with equal keys may meet on HFS+, APFS, NTFS,
// or a case-folding ext4.
func Fold(name string) string {
	if isASCII(name) {
		return strings.ToLower(name)
	}
	folded := cases.Fold().String(dropIgnorable(norm.NFD.String(name)))
	// Decomposed again at the end: folding can compose what it maps.
	return norm.NFD.String(strings.Map(upperCherokee, folded))
}

// upperCherokee mends what x/text v0.44 does to Cherokee: those letters fold
// to the upper case, being older, and it swaps the two cases instead.
// Unicode CaseFolding.txt.
func upperCherokee(r rune) rune {
	if unicode.Is(unicode.Cherokee, r) {
		return unicode.ToUpper(r)
	}
	return r
}

func dropIgnorable(s string) string {
	return strings.Map(func(r rune) rune {
		if ignorable(r) {
			return -1
		}
		return r
	}, s)
}

// ignorable reports whether a file system may drop r when it compares names:
// HFS+ does it for the joiners, direction marks and the byte order mark, a
// case-folding ext4 or F2FS for every default-ignorable code point. The set
// here is a little wider than both, never narrower.
func ignorable(r rune) bool {
	return unicode.In(r, unicode.Cf, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector)
}

func isASCII(s string) bool {
	for i := range len(s) {
		if s[i] >= utf8.RuneSelf {
			return false
		}
	}
	return true
}
