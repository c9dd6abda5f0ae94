package config

import (
	"errors"
	"regexp"

	"github.com/fencepost/fencepost/internal/glob"
)

var patternPattern = regexp.MustCompile(`^[^/\\\[\]{}!][^\\\[\]{}]*$`)

// globText names paths of a repository, in the grammar of package glob.
type globText string

func (*globText) describe() leaf {
	return leaf{"a pattern of paths in the repository, such as docs/** or *.md, of * and ? within a part and ** for any parts", patternPattern}
}

func (g *globText) UnmarshalText(text []byte) error {
	if err := setText(g, g.describe(), glob.MaxBytes, text); err != nil {
		return err
	}
	if _, err := glob.Parse(string(text)); err != nil {
		*g = ""
		return errors.New("must be " + g.describe().what + "; ** stands alone in its part, and there is no empty part, . or ..")
	}
	return nil
}
