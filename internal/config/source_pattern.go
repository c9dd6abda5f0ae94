package config

import (
	"errors"
	"path"
	"regexp"
	"strings"
)

// maxPatternBytes bounds a pattern; maxPatternStars how many ** it may have,
// so that matching is cheap whatever is asked.
const (
	maxPatternBytes = 512
	maxPatternStars = 4
)

var globPattern = regexp.MustCompile(`^[^/\\\[\]{}!][^\\\[\]{}]*$`)

// globText names paths of a repository.
type globText string

func (*globText) describe() leaf {
	return leaf{"a pattern of paths in the repository, such as docs/** or *.md, of * and ? within a part and ** for any parts", globPattern}
}

func (g *globText) UnmarshalText(text []byte) error {
	s := string(text)
	if err := setText(g, g.describe(), maxPatternBytes, text); err != nil {
		return err
	}
	stars := 0
	for part := range strings.SplitSeq(s, "/") {
		if part == "**" {
			stars++
		}
		if part == "" || part == "." || part == ".." || part != "**" && strings.Contains(part, "**") {
			*g = ""
			return errors.New("must be " + g.describe().what + "; ** stands alone in its part, and there is no empty part, . or ..")
		}
	}
	if stars > maxPatternStars {
		*g = ""
		return errors.New("must have at most 4 times **")
	}
	return nil
}

// MatchPath reports whether a legal pattern of a [Sink] names a path: clean,
// slash-separated, of a file or of a link. In a pattern * stands for any
// characters of one part, ? for one character, and ** for any number of parts,
// none included.
func MatchPath(pattern, name string) bool {
	return matchParts(strings.Split(pattern, "/"), strings.Split(name, "/"))
}

func matchParts(pattern, name []string) bool {
	for len(pattern) > 0 {
		if pattern[0] == "**" {
			for skip := 0; skip <= len(name); skip++ {
				if matchParts(pattern[1:], name[skip:]) {
					return true
				}
			}
			return false
		}
		if len(name) == 0 {
			return false
		}
		// A legal pattern has nothing that path.Match refuses.
		if ok, err := path.Match(pattern[0], name[0]); !ok || err != nil {
			return false
		}
		pattern, name = pattern[1:], name[1:]
	}
	return len(name) == 0
}
