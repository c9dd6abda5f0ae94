// Package pathrule judges the names of tree entries by one table of rules,
// which the documentation and the tests show as it stands.
package pathrule

import (
	"strings"
	"unicode/utf8"
)

// Names says which names a tree may hold.
type Names uint8

const (
	// Portable allows names that every common file system keeps apart and
	// stores as they are. It is the zero value.
	Portable Names = iota
	// POSIX allows also what only other file systems mind: case collisions,
	// backslashes, device names, and the like.
	POSIX
)

// A Kind is what an entry's name is the name of.
type Kind uint8

// The kinds of entries that rules tell apart.
const (
	File Kind = iota + 1
	Link
	Dir
	Gitlink
)

// A Scope says when a rule applies.
type Scope uint8

const (
	// Always: under either policy.
	Always Scope = iota + 1
	// OnlyPortable: under [Portable].
	OnlyPortable
)

// A Rule is one line of the table.
type Rule struct {
	// ID is the rule's code, as error values carry it.
	ID string
	// Scope says under which policy it applies.
	Scope Scope
	// Kinds is what it applies to in words: "any", "links", "all but files".
	Kinds string
	// What is refused, in one clause.
	What string
	// Why, in one clause.
	Why string
	// Examples are names that it refuses, and no rule above it does.
	Examples []string

	kinds   kindSet
	refuses func(n *spelt) bool
}

type kindSet uint8

const (
	anyKind  kindSet = 1<<File | 1<<Link | 1<<Dir | 1<<Gitlink
	onlyLink kindSet = 1 << Link
	notFile  kindSet = anyKind &^ (1 << File)
)

func (s kindSet) has(k Kind) bool { return s&(1<<k) != 0 }

// Table returns the rules in the order in which they are asked. The slice is
// the caller's own.
func Table() []Rule {
	return []Rule{
		{ID: "utf8", Scope: Always, Kinds: "any", kinds: anyKind,
			What: "bytes that are not UTF-8", Why: "each file system and tool reads them as another name",
			Examples: []string{"caf\xe9", "\xc0\xae\xc0\xae"}, refuses: func(n *spelt) bool { return !utf8.ValidString(n.name) }},
		{ID: "empty", Scope: Always, Kinds: "any", kinds: anyKind,
			What: "an empty name, or nothing but code points that file systems drop", Why: "it names the directory itself",
			Examples: []string{"", "\u200c", "\ufeff\u200d"}, refuses: func(n *spelt) bool { return n.folded() == "" }},
		{ID: "slash", Scope: Always, Kinds: "any", kinds: anyKind,
			What: "a slash", Why: "an entry is one component; more would be a way to another place",
			Examples: []string{"a/b", "/etc", "../up"}, refuses: func(n *spelt) bool { return strings.Contains(n.name, "/") }},
		{ID: "control", Scope: Always, Kinds: "any", kinds: anyKind,
			What: "a byte below 0x20, or 0x7f", Why: "line-based formats and terminals read it as something else",
			Examples: []string{"a\nb", "sub\r", "\x1b[2J", "del\x7f"}, refuses: func(n *spelt) bool { return hasControl(n.name) }},
		{ID: "dots", Scope: Always, Kinds: "any", kinds: anyKind,
			What: "`.` or `..`, also with dropped code points, or spaces at its end", Why: "it names this or the upper directory",
			Examples: []string{".", "..", ".\u200c.", ".. "}, refuses: isDots},
		{ID: "dotgit", Scope: Always, Kinds: "any", kinds: anyKind,
			What: "`.git` in every spelling that HFS+, NTFS or a case-folding file system reads as it", Why: "a later Git would take its configuration and hooks from it",
			Examples: []string{".git", ".GIT", ".Git", ".g\u200cit", "\ufeff.git", ".git.", ".git ", ".git . .", ".git::$INDEX_ALLOCATION", "git~1", "GIT~1", "GIT~1.", "a\\.git", ".git\\config", "..\\.GiT"}, refuses: isDotGit},
		{ID: "gitmodules", Scope: Always, Kinds: "all but files", kinds: notFile,
			What: "`.gitmodules` in every spelling, as anything but a file", Why: "Git reads it through the link",
			Examples: []string{".gitmodules", ".GITMODULES", "gitmod~1", "gi7eba~1", ".gitmodules ", ".git\u200cmodules"}, refuses: isGitmodules},
		{ID: "gitfile-link", Scope: Always, Kinds: "links", kinds: onlyLink,
			What: "`.gitattributes`, `.gitignore`, `.mailmap` in every spelling, as a link", Why: "Git reads it through the link, from outside the tree",
			Examples: []string{".gitattributes", ".gitignore", ".mailmap", ".GitIgnore", "gitatt~1", "gi250a~1", "maba30~9"}, refuses: isOtherGitfile},
		{ID: "gitfile-alias", Scope: OnlyPortable, Kinds: "any", kinds: anyKind,
			What: "a file-system alias of `.gitmodules`, `.gitattributes`, `.gitignore`, `.mailmap`, other than by letter case", Why: "it would stand in for the real one",
			Examples: []string{"gitmod~4", "GI7EBA~1", "gi7d29~1", ".gitignore.", ".mail\u200dmap"}, refuses: isGitfileAlias},
		{ID: "backslash", Scope: OnlyPortable, Kinds: "any", kinds: anyKind,
			What: "a backslash", Why: "Windows takes it for a slash",
			Examples: []string{"a\\b", "\\", "..\\up"}, refuses: func(n *spelt) bool { return strings.Contains(n.name, "\\") }},
		{ID: "colon", Scope: OnlyPortable, Kinds: "any", kinds: anyKind,
			What: "a colon", Why: "a drive prefix or a data stream on Windows",
			Examples: []string{"C:", "é:x", "file::$DATA", "Foo::Bar.3"}, refuses: func(n *spelt) bool { return strings.Contains(n.name, ":") }},
		{ID: "reserved-char", Scope: OnlyPortable, Kinds: "any", kinds: anyKind,
			What: "one of `<` `>` `\"` `|` `?` `*`", Why: "Windows can't store it",
			Examples: []string{"a<b", "a>b", "a\"b", "a|b", "what?", "*"}, refuses: func(n *spelt) bool { return strings.ContainsAny(n.name, `<>"|?*`) }},
		{ID: "trailing", Scope: OnlyPortable, Kinds: "any", kinds: anyKind,
			What: "a dot or space at the end", Why: "Windows drops it, which makes another name",
			Examples: []string{"a.", "a ", "a. ."}, refuses: func(n *spelt) bool { return n.name != strings.TrimRight(n.name, " .") }},
		{ID: "device", Scope: OnlyPortable, Kinds: "any", kinds: anyKind,
			What: "a Windows device name, also with an extension", Why: "opening it opens the device",
			Examples: []string{"CON", "nul", "aux.c", "prn .txt", "com1", "LPT9.log", "lpt0", "COM¹", "conin$", "CONOUT$.x"}, refuses: func(n *spelt) bool { return isDevice(n.name) }},
	}
}

// A spelt name is one with its fold, which takes far longer to make than to
// look at, and which most rules ask for.
type spelt struct {
	name string
	fold string
	done bool
}

func (n *spelt) folded() string {
	if !n.done {
		n.fold, n.done = Fold(n.name), true
	}
	return n.fold
}

// A Checker judges names under one policy. Not safe for concurrent use.
type Checker struct {
	names Names
	rules []Rule
	keys  map[string]string // sibling by key
	last  spelt             // the name judged last, which is mostly added next
}

// spell returns name as it was judged, or anew.
func (c *Checker) spell(name string) *spelt {
	if c.last.name != name {
		c.last = spelt{name: name}
	}
	return &c.last
}

// NewChecker returns a Checker of that policy.
func NewChecker(names Names) *Checker {
	c := &Checker{names: names, keys: make(map[string]string)}
	for _, rule := range Table() {
		if rule.Scope == Always || names == Portable {
			c.rules = append(c.rules, rule)
		}
	}
	return c
}

// Check returns the ID of the first rule that refuses the name of an entry
// of that kind, or "".
func (c *Checker) Check(name string, kind Kind) string {
	if isPlain(name) {
		return ""
	}
	n := c.spell(name)
	for i := range c.rules {
		if rule := &c.rules[i]; rule.kinds.has(kind) && rule.refuses(n) {
			return rule.ID
		}
	}
	return ""
}

// Codes of the two rules that compare siblings, beside those of [Table].
const (
	// RuleDuplicate: the same name twice in one tree.
	RuleDuplicate = "duplicate"
	// RuleCollision: two names of one tree that a file system may take for
	// one. Under [Portable] only.
	RuleCollision = "collision"
)

// Enter begins another directory.
func (c *Checker) Enter() {
	// Clearing takes as long as the map once was large, and a large directory
	// may have thousands of small ones in it.
	const keep = 1 << 10
	if len(c.keys) > keep {
		c.keys = make(map[string]string)
		return
	}
	clear(c.keys)
}

// Add returns the code of the rule that name breaks towards its siblings
// since [Checker.Enter], or "".
func (c *Checker) Add(name string) string {
	key := name
	if c.names == Portable {
		key = c.spell(name).folded()
	}
	switch sibling, taken := c.keys[key]; {
	case !taken:
		c.keys[key] = name
		return ""
	case sibling == name:
		return RuleDuplicate
	}
	return RuleCollision
}

// isPlain is the short way past the table for most names: letters, digits,
// and inner dots, hyphens and underscores that no rule minds.
func isPlain(name string) bool {
	if name == "" || name[0] == '.' || name[len(name)-1] == '.' {
		return false
	}
	for i := range len(name) {
		switch c := name[i]; {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '.', c == '-', c == '_', c == '+', c == '@', c == ',', c == '=':
		default:
			return false
		}
	}
	return !isDevice(name)
}
