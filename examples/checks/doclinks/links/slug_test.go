package links_test

import (
	"testing"

	"github.com/fencepost/fencepost/examples/checks/doclinks/links"
)

func TestSlugs(t *testing.T) {
	t.Parallel()
	var s links.Slugs
	for _, c := range []struct{ text, want string }{
		{"Simple", "simple"},
		{"Two Words", "two-words"},
		{" at the edges ", "-at-the-edges-"},
		{"two  blanks\tand a tab", "two--blanksand-a-tab"},
		{"a/b.c:d;e,f(g)[h]{i}<j>'k'\"l\"", "abcdefghijkl"},
		{"dash - en–dash em—dash", "dash---endash-emdash"},
		{"snake_case and ‿", "snake_case-and-‿"},
		{"100 % of ½ × 2²", "100--of---2"},
		{"Ⅳ and Ⓐ, ª º", "ⅳ-and-ⓐ-ª-º"},
		{"ÀÉÎÕÜ ß İ ǅ", "àéîõü-ß-i̇-ǆ"},
		{"Ελληνικά עברית العربية हिन्दी", "ελληνικά-עברית-العربية-हिन्दी"},
		{"日本語、한국어。", "日本語한국어"},
		{"⚙️ gear", "\ufe0f-gear"},
		{"👩‍💻 zero-width joiner", "-zero-width-joiner"},
		{"no\u00a0break\u200bspace", "nobreakspace"},
		{"", ""},
		{"!?", "-1"},
		{"", "-2"},
		{"simple", "simple-1"},
		{"Simple!", "simple-2"},
		{"simple 1", "simple-1-1"},
		{"other-1", "other-1"},
		{"other", "other"},
		{"other", "other-2"},
	} {
		if got := s.Next(c.text); got != c.want {
			t.Errorf("%q → %q, want %q", c.text, got, c.want)
		}
	}
}
