package glob_test

import (
	"errors"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/glob"
)

func TestMatch(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		pattern  string
		yes, not []string
	}{
		{"README.md", []string{"README.md"}, []string{"readme.md", "docs/README.md", "README.md/x", "README.mdx"}},
		{"*.md", []string{"a.md", ".md"}, []string{"docs/a.md", "a.md.txt"}},
		{"**/*.md", []string{"a.md", "docs/a.md", "a/b/c.md"}, []string{"a.txt", "a.md/b"}},
		{"docs/**", []string{"docs/a", "docs/a/b", "docs"}, []string{"doc/a", "docsx/a", "x/docs/a"}},
		{"docs/*", []string{"docs/a"}, []string{"docs/a/b", "docs"}},
		{"**", []string{"a", "a/b"}, nil},
		{"a/**/z", []string{"a/z", "a/b/z", "a/b/c/z"}, []string{"a", "z", "a/zz", "a/b"}},
		{"a/**/m/**/z", []string{"a/m/z", "a/x/m/y/z", "a/m/m/z"}, []string{"a/z", "a/m", "a/z/m"}},
		{"**/a/**/a", []string{"a/a", "x/a/y/a"}, []string{"a", "x/a"}},
		{"**/**/x", []string{"x", "a/x"}, []string{"x/a"}},
		{"?.md", []string{"a.md", "ä.md", "€.md"}, []string{".md", "aa.md"}},
		{"*??", []string{"ab", "€a", "äöü"}, []string{"€", "a"}},
		{"a*b*c", []string{"abc", "axxbyyc", "abbc", "abcbc"}, []string{"acb", "ab", "abcx"}},
		{"*a*a*a*a*b", []string{"aaaab"}, []string{strings.Repeat("a", 200)}},
		{"[id]", nil, nil},
		{"+(a).$^|", []string{"+(a).$^|"}, []string{"a"}},
		{"b\xff?", []string{"b\xffx", "b\xff\xfe"}, []string{"b\xff"}},
	} {
		p, err := glob.Parse(c.pattern)
		if c.yes == nil && c.not == nil {
			if err == nil {
				t.Errorf("%q was parsed", c.pattern)
			}
			continue
		}
		if err != nil {
			t.Errorf("Parse(%q): %v", c.pattern, err)
			continue
		}
		for _, path := range c.yes {
			if !p.Match(path) {
				t.Errorf("%q does not match %q", c.pattern, path)
			}
		}
		for _, path := range c.not {
			if p.Match(path) {
				t.Errorf("%q matches %q", c.pattern, path)
			}
		}
	}
	if (glob.Pattern{}).Match("a") {
		t.Error("the zero Pattern matches")
	}
}

func TestParseRefuses(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]error{
		"": fencepost.ErrMalformed, "/a": fencepost.ErrMalformed, "a/": fencepost.ErrMalformed, "a//b": fencepost.ErrMalformed,
		"./a": fencepost.ErrMalformed, "a/..": fencepost.ErrMalformed, "a**": fencepost.ErrMalformed, "***": fencepost.ErrMalformed,
		"!a": fencepost.ErrMalformed, "a[b]": fencepost.ErrMalformed, "{a,b}": fencepost.ErrMalformed, `a\*`: fencepost.ErrMalformed,
		"a\x00": fencepost.ErrMalformed, "a\nb": fencepost.ErrMalformed, strings.Repeat("a", glob.MaxBytes+1): fencepost.ErrTooLarge,
	} {
		if _, err := glob.Parse(text); !errors.Is(err, want) {
			t.Errorf("Parse(%.20q) = %v, want %v", text, err, want)
		}
	}
	if _, err := glob.Parse(strings.Repeat("a", glob.MaxBytes)); err != nil {
		t.Errorf("a pattern of the greatest length: %v", err)
	}
}

// slow is what a pattern means, as a regular expression.
func slow(t testing.TB, pattern string) *regexp.Regexp {
	t.Helper()
	const char = `(?:[^/\x{FFFD}]|\x{FFFD})`
	var b strings.Builder
	b.WriteString(`\A(?s:`)
	for part := range strings.SplitSeq(pattern, "/") {
		// Every part ends in a slash here, and so does the path.
		if part == "**" {
			b.WriteString("(?:" + char + "+/)*")
			continue
		}
		for _, c := range part {
			switch c {
			case '*':
				b.WriteString(char + "*")
			case '?':
				b.WriteString(char)
			default:
				b.WriteString(regexp.QuoteMeta(string(c)))
			}
		}
		b.WriteString("/")
	}
	b.WriteString(`)\z`)
	re, err := regexp.Compile(b.String())
	if err != nil {
		t.Fatal(err)
	}
	return re
}

// FuzzMatch holds Match against regular expressions.
func FuzzMatch(f *testing.F) {
	for _, s := range [][2]string{
		{"**/*.md", "docs/a.md"}, {"docs/**", "docs"}, {"a/**/b/**/c", "a/b/b/c/c"}, {"*a*?b", "aaab"}, {"?*?", "äö"},
		{"**/a/*/**/?", "a/a/a/a"}, {"*/**", "x"}, {"**", "a/b/c"},
	} {
		f.Add(s[0], s[1])
	}
	f.Fuzz(func(t *testing.T, pattern, path string) {
		p, err := glob.Parse(pattern)
		if err != nil {
			if !errors.Is(err, fencepost.ErrMalformed) && !errors.Is(err, fencepost.ErrTooLarge) {
				t.Fatalf("Parse(%q) = %v", pattern, err)
			}
			return
		}
		got := p.Match(path)
		if len(path) > 1<<10 || !utf8.ValidString(pattern) || !utf8.ValidString(path) {
			return // the other side knows no bytes that are no characters
		}
		for part := range strings.SplitSeq(path, "/") {
			if part == "" {
				return
			}
		}
		if want := slow(t, pattern).MatchString(path + "/"); got != want {
			t.Fatalf("%q on %q = %v, want %v", pattern, path, got, want)
		}
	})
}

// BenchmarkMatchHostile is the worst pattern of its length on the worst path.
func BenchmarkMatchHostile(b *testing.B) {
	p, err := glob.Parse(strings.Repeat("*a", 250) + "b")
	if err != nil {
		b.Fatal(err)
	}
	path := strings.Repeat("a", 4096)
	for b.Loop() {
		if p.Match(path) {
			b.Fatal("matches")
		}
	}
}

func BenchmarkMatch(b *testing.B) {
	p, err := glob.Parse("docs/**/*.md")
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if !p.Match("docs/handbook/chapter-12/page-3.md") {
			b.Fatal("does not match")
		}
	}
}
