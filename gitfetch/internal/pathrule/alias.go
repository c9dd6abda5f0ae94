package pathrule

import "strings"

func hasControl(name string) bool {
	for i := range len(name) {
		if name[i] < 0x20 || name[i] == 0x7f {
			return true
		}
	}
	return false
}

func isDots(n *spelt) bool {
	folded := strings.TrimRight(n.folded(), " ")
	return folded == "." || folded == ".."
}

// isDotGit looks at each part between backslashes, since NTFS takes one for
// a slash also where the policy allows it in a name.
func isDotGit(n *spelt) bool {
	for part := range strings.SplitSeq(n.folded(), `\`) {
		stem := ntfsStem(part)
		if stem == ".git" || stem == "git~1" {
			return true
		}
	}
	return false
}

// ntfsStem returns what NTFS makes of a name: it ends before a stream, and
// loses its dots and spaces at the end.
func ntfsStem(folded string) string {
	folded, _, _ = strings.Cut(folded, ":")
	return strings.TrimRight(folded, " .")
}

// A gitfile is one of the files that Git reads from a tree, with the stems
// of the short names that NTFS makes for it: the first six letters, and the
// four digits of a hash after two.
type gitfile struct{ name, short, hashed string }

func gitmodules() gitfile { return gitfile{".gitmodules", "gitmod", "gi7eba"} }

func otherGitfiles() [3]gitfile {
	return [3]gitfile{
		{".gitattributes", "gitatt", "gi7d29"},
		{".gitignore", "gitign", "gi250a"},
		{".mailmap", "mailma", "maba30"},
	}
}

func isGitmodules(n *spelt) bool { return gitmodules().means(n) }

func isOtherGitfile(n *spelt) bool {
	for _, g := range otherGitfiles() {
		if g.means(n) {
			return true
		}
	}
	return false
}

// isGitfileAlias reports whether name stands for a gitfile without being its
// name in some letter case.
func isGitfileAlias(n *spelt) bool {
	if isASCII(n.name) {
		lower := n.folded()
		if lower == gitmodules().name {
			return false
		}
		for _, g := range otherGitfiles() {
			if lower == g.name {
				return false
			}
		}
	}
	return isGitmodules(n) || isOtherGitfile(n)
}

// means reports whether some file system takes the name for the gitfile's.
func (g gitfile) means(n *spelt) bool {
	for part := range strings.SplitSeq(n.folded(), `\`) {
		stem := ntfsStem(part)
		if stem == g.name || g.isShort(stem) {
			return true
		}
	}
	return false
}

// isShort reports whether stem is a short name that NTFS may give the file:
// six letters, a tilde and 1 to 4; or, after four of those, up to six
// characters of the hashed form, a tilde and a number, eight in all.
func (g gitfile) isShort(stem string) bool {
	const shortLen = 8
	if len(stem) != shortLen {
		return false
	}
	head, number, found := strings.Cut(stem, "~")
	if !found {
		return false
	}
	if head == g.short {
		return number >= "1" && number <= "4"
	}
	return strings.HasPrefix(g.hashed, head) && isNumber(number)
}

func isNumber(s string) bool {
	if s == "" || s[0] == '0' {
		return false
	}
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return true
}

// isDevice reports whether Windows opens a device under that name: what
// stands before the first dot or colon decides, less spaces at its end.
func isDevice(name string) bool {
	if i := strings.IndexAny(name, ".:"); i >= 0 {
		name = name[:i]
	}
	name = strings.TrimRight(name, " ")
	const longest = len("CONOUT$")
	if len(name) < 3 || len(name) > longest {
		return false
	}
	name = strings.ToUpper(name)
	switch name {
	case "CON", "PRN", "AUX", "NUL", "CONIN$", "CONOUT$":
		return true
	}
	port, ok := strings.CutPrefix(name, "COM")
	if !ok {
		if port, ok = strings.CutPrefix(name, "LPT"); !ok {
			return false
		}
		// git is_valid_win32_path: this one too, and not COM0.
		if port == "0" {
			return true
		}
	}
	switch port {
	case "1", "2", "3", "4", "5", "6", "7", "8", "9", "¹", "²", "³":
		return true
	}
	return false
}
