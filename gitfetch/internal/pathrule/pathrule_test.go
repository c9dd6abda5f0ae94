package pathrule_test

import (
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/fencepost/fencepost/gitfetch/internal/pathrule"
	"pgregory.net/rapid"
)

func kinds() []pathrule.Kind {
	return []pathrule.Kind{pathrule.File, pathrule.Link, pathrule.Dir, pathrule.Gitlink}
}

func TestEveryExampleIsRefusedByItsOwnRule(t *testing.T) {
	t.Parallel()
	for _, rule := range pathrule.Table() {
		if len(rule.Examples) == 0 || rule.What == "" || rule.Why == "" {
			t.Errorf("rule %s has no examples or no words", rule.ID)
		}
		for _, name := range rule.Examples {
			for _, names := range []pathrule.Names{pathrule.Portable, pathrule.POSIX} {
				c := pathrule.NewChecker(names)
				for _, kind := range kinds() {
					applies := rule.Kinds == "any" || rule.Kinds == "links" && kind == pathrule.Link || rule.Kinds == "all but files" && kind != pathrule.File
					if !applies || rule.Scope == pathrule.OnlyPortable && kind == pathrule.Link {
						continue // for a link another rule may come before
					}
					got := c.Check(name, kind)
					switch {
					case rule.Scope == pathrule.Always && got != rule.ID:
						t.Errorf("Check(%q, %d) under %d = %q, want %q", name, kind, names, got, rule.ID)
					case rule.Scope == pathrule.OnlyPortable && names == pathrule.Portable && kind == pathrule.File && got != rule.ID:
						t.Errorf("Check(%q, %d) = %q, want %q", name, kind, got, rule.ID)
					case rule.Scope == pathrule.OnlyPortable && names == pathrule.POSIX && kind == pathrule.File && got != "":
						t.Errorf("Check(%q) under POSIX = %q, want it allowed", name, got)
					}
				}
			}
		}
	}
}

func TestOrdinaryNamesAreAllowed(t *testing.T) {
	t.Parallel()
	c := pathrule.NewChecker(pathrule.Portable)
	for _, name := range []string{
		"README.md", ".github", ".gitignore", ".gitattributes", ".gitmodules", ".mailmap", ".gitkeep", ".GITIGNORE", ".git-blame-ignore-revs", "git", "gitlab", ".gi", "..a", "...b", "a..b", ".a",
		"console", "con-fig", "auxiliary.c", "com", "com0", "com10", "lpt", "null", "CONIN", "nul_", "a b", " leading", "a~1", "~", "~backup", "git~2", "gitmod~5", "file#1", "[x]", "{y}", "$z", "%20", "a&b", "a;b", "'q'", "!", "@", "^", "`",
		"caf\u00e9", "\u65e5\u672c\u8a9e", "\u202fnarrow", "\U0001f600.png", strings.Repeat("x", 255),
	} {
		if rule := c.Check(name, pathrule.File); rule != "" {
			t.Errorf("Check(%q) = %s", name, rule)
		}
	}
}

func TestGitmodulesMayOnlyBeAFile(t *testing.T) {
	t.Parallel()
	for _, names := range []pathrule.Names{pathrule.Portable, pathrule.POSIX} {
		c := pathrule.NewChecker(names)
		if rule := c.Check(".gitmodules", pathrule.File); rule != "" {
			t.Errorf("as a file: %s", rule)
		}
		for _, kind := range []pathrule.Kind{pathrule.Link, pathrule.Dir, pathrule.Gitlink} {
			if rule := c.Check(".gitmodules", kind); rule != "gitmodules" {
				t.Errorf("as kind %d: %q, want gitmodules", kind, rule)
			}
		}
	}
}

// TestDotGitInEveryLetterCase and with every single code point that some
// file system drops, at every place.
func TestDotGitInEverySpelling(t *testing.T) {
	t.Parallel()
	c := pathrule.NewChecker(pathrule.POSIX)
	for bits := range 8 {
		name := []byte(".git")
		for i := range 3 {
			if bits&(1<<i) != 0 {
				name[1+i] -= 'a' - 'A'
			}
		}
		if rule := c.Check(string(name), pathrule.Dir); rule != "dotgit" {
			t.Errorf("%q: %q", name, rule)
		}
	}
	dropped := []rune{0xfeff, 0xad, 0x34f, 0x2060, 0xfe00, 0xfe0f, 0xe0100}
	for _, span := range [][2]rune{{0x200c, 0x200f}, {0x202a, 0x202e}, {0x206a, 0x206f}} {
		for r := span[0]; r <= span[1]; r++ {
			dropped = append(dropped, r)
		}
	}
	for _, r := range dropped {
		for at := range 5 {
			name := ".git"[:at] + string(r) + ".git"[at:]
			if rule := c.Check(name, pathrule.Dir); rule != "dotgit" {
				t.Errorf("%q: %q", name, rule)
			}
		}
	}
}

func TestSiblings(t *testing.T) {
	t.Parallel()
	tests := []struct {
		a, b            string
		portable, posix string
	}{
		{"a", "b", "", ""},
		{"a", "a", "duplicate", "duplicate"},
		{"a", "A", "collision", ""},
		{"\u00e9", "e\u0301", "collision", ""},
		{"\u00c9", "e\u0301", "collision", ""},
		{"\u00df", "SS", "collision", ""},
		{"\u212a", "k", "collision", ""}, // Kelvin sign
		{"\u03c3", "\u03c2", "collision", ""},
		{"a\u200d", "a", "collision", ""},
		{"\u0345", "\u03b9", "collision", ""}, // folds to what decomposes anew
		{"\u00e9", "e", "", ""},
		{"\ufb01", "fi", "collision", ""},
	}
	for _, tt := range tests {
		for names, want := range map[pathrule.Names]string{pathrule.Portable: tt.portable, pathrule.POSIX: tt.posix} {
			c := pathrule.NewChecker(names)
			c.Enter()
			if rule := c.Add(tt.a); rule != "" {
				t.Errorf("first Add(%q) = %s", tt.a, rule)
			}
			if rule := c.Add(tt.b); rule != want {
				t.Errorf("Add(%q) after %q under %d = %q, want %q", tt.b, tt.a, names, rule, want)
			}
			c.Enter()
			if rule := c.Add(tt.b); rule != "" {
				t.Errorf("in another directory: Add(%q) = %s", tt.b, rule)
			}
		}
	}
}

// TestFoldJoinsAllCasesOfALetter holds the fold against the case orbits of
// another implementation, for every code point there is.
func TestFoldJoinsAllCasesOfALetter(t *testing.T) {
	t.Parallel()
	for r := rune(0); r <= unicode.MaxRune; r++ {
		other := unicode.SimpleFold(r)
		if other == r {
			continue
		}
		if a, b := pathrule.Fold(string(r)), pathrule.Fold(string(other)); a != b {
			t.Errorf("%U and %U fold to %q and %q", r, other, a, b)
		}
	}
}

func TestFoldIsItsOwnFold(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := rapid.String().Draw(t, "name")
		if once, twice := pathrule.Fold(s), pathrule.Fold(pathrule.Fold(s)); once != twice {
			t.Fatalf("Fold(%q) = %q, and its fold %q", s, once, twice)
		}
	})
}

// TestAPartFoldsAsItDoesInItsName is why one fold serves rules that look at
// what stands between backslashes.
func TestAPartFoldsAsItDoesInItsName(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		parts := rapid.SliceOfN(rapid.String(), 1, 4).Draw(t, "parts")
		name := strings.Join(parts, `\`)
		for i, folded := range strings.Split(pathrule.Fold(name), `\`) {
			if part := strings.Split(name, `\`)[i]; folded != pathrule.Fold(part) {
				t.Fatalf("part %d of %q folds to %q, and by itself to %q", i, name, folded, pathrule.Fold(part))
			}
		}
	})
}

// FuzzCheck holds what the writer relies on: a name that passes is one
// component, and no file system reads it as .git or as another directory.
func FuzzCheck(f *testing.F) {
	for _, rule := range pathrule.Table() {
		for _, name := range rule.Examples {
			f.Add(name)
		}
	}
	for _, name := range []string{"README.md", "a..b", "caf\u00e9", ".gitignore", strings.Repeat("\u200d", 90) + ".git"} {
		f.Add(name)
	}
	portable, posix := pathrule.NewChecker(pathrule.Portable), pathrule.NewChecker(pathrule.POSIX)
	f.Fuzz(func(t *testing.T, name string) {
		for _, kind := range kinds() {
			strict, lax := portable.Check(name, kind), posix.Check(name, kind)
			if lax != "" && strict == "" {
				t.Errorf("%q: refused under POSIX by %s and allowed under Portable", name, lax)
			}
			if lax != "" {
				continue
			}
			if !utf8.ValidString(name) || name == "" || name == "." || name == ".." || strings.ContainsAny(name, "/\x00\n\r\x7f") {
				t.Errorf("%q is allowed", name)
			}
			folded := pathrule.Fold(name)
			if slices.Contains([]string{"", ".", "..", ".git", "git~1"}, strings.TrimRight(folded, " ")) && folded != strings.Repeat(" ", len(folded)) {
				t.Errorf("%q is allowed, and folds to %q", name, folded)
			}
		}
	})
}

// BenchmarkNames judges names as they stand in a directory: what most are, and
// the longest whose every letter has to be folded.
func BenchmarkNames(b *testing.B) {
	for name, letters := range map[string]string{"plain": "a", "dotted": ".a", "long": strings.Repeat("\u00e9", 120)} {
		b.Run(name, func(b *testing.B) {
			names := make([]string, 1000)
			for i := range names {
				names[i] = letters + strconv.Itoa(i)
			}
			c := pathrule.NewChecker(pathrule.Portable)
			for b.Loop() {
				c.Enter()
				for _, n := range names {
					if rule := c.Check(n, pathrule.File) + c.Add(n); rule != "" {
						b.Fatal(rule)
					}
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(names)), "ns/name")
		})
	}
}
