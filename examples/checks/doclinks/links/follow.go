package links

import (
	"net/url"
	"path"
	"strings"
)

// A target is a link's destination, taken apart and decoded.
type target struct {
	// path is empty for the page itself.
	path string
	// query is everything between the first ? and the fragment.
	query string
	// anchor is what follows #; empty for none.
	anchor string
}

// parseTarget takes a destination apart, which has been freed of Markdown's or
// HTML's escapes before. It reports false for what leads to another site.
func parseTarget(dest string) (target, bool) {
	if strings.HasPrefix(dest, "//") || hasScheme(dest) {
		return target{}, false
	}
	var t target
	rest, anchor, _ := strings.Cut(dest, "#")
	// What follows :~: is for the browser alone.
	anchor, _, _ = strings.Cut(anchor, ":~:")
	t.path, t.query, _ = strings.Cut(rest, "?")
	t.path, t.anchor = decoded(t.path), decoded(anchor)
	return t, true
}

// hasScheme reports whether s begins as an absolute URL (RFC 3986, section
// 3.1).
func hasScheme(s string) bool {
	for i := range len(s) {
		c := s[i]
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z':
		case i > 0 && ('0' <= c && c <= '9' || c == '+' || c == '-' || c == '.'):
		default:
			return i > 0 && c == ':'
		}
	}
	return false
}

// decoded undoes percent-encoding. What is not well formed stands for itself.
func decoded(s string) string {
	if d, err := url.PathUnescape(s); err == nil {
		return d
	}
	return s
}

// resolve finds the path that a reference in a file means. It reports false
// for one that leads out of the tree.
func resolve(from, ref string) (string, bool) {
	dir := path.Dir(from)
	if strings.HasPrefix(ref, "/") {
		dir = "."
	}
	to := path.Join(dir, strings.TrimLeft(ref, "/"))
	return to, to != ".." && !strings.HasPrefix(to, "../")
}

// pageOf names the Markdown file whose anchors decide about a link; false if
// none does.
func (t *tree) pageOf(from string, l link) (string, bool) {
	to, ok := parseTarget(l.dest)
	if !ok || l.undefined || to.anchor == "" {
		return "", false
	}
	name, ok := from, true
	if to.path != "" {
		name, ok = resolve(from, to.path)
	}
	if ok && t.lookup(name) == directory {
		name = t.readmes[name]
	}
	return name, ok && isMarkdown(name) && t.lookup(name) == file
}

// follow says what is wrong with a link of a file, empty for nothing, and
// whether it leads to something of the tree at all.
func (c *checker) follow(from string, l link) (why Why, hint string, ours bool) {
	if l.undefined {
		return WhyUndefined, "", true
	}
	if l.dest == "" {
		return WhyEmpty, "", true
	}
	to, ours := parseTarget(l.dest)
	if !ours {
		return "", "", false
	}
	name := from
	if to.path != "" {
		if name, ours = resolve(from, to.path); !ours {
			return WhyOutside, "", true
		}
	}
	why, hint = c.arrive(name, to, l)
	return why, hint, true
}

// arrive looks at what stands at the path that a link names.
func (c *checker) arrive(name string, to target, l link) (why Why, hint string) {
	k := c.tree.lookup(name)
	switch {
	case k == missing:
		return WhyMissing, c.tree.inOtherCase(name)
	case k == file && strings.HasSuffix(to.path, "/"):
		return WhyNoDirectory, ""
	case k == directory && l.image:
		return WhyNoImage, ""
	case to.anchor == "" || strings.EqualFold(to.anchor, "top"):
		return "", ""
	case k == directory:
		readme, ok := c.tree.readmes[name]
		if !ok {
			return WhyNoReadme, ""
		}
		// A README in another format has anchors that nobody here can read.
		if name = readme; !isMarkdown(name) {
			return "", ""
		}
	}
	return c.anchorIn(name, to)
}

func (c *checker) anchorIn(name string, to target) (why Why, hint string) {
	if !isMarkdown(name) {
		if hasOwnAnchors(name) || isLineAnchor(to.anchor) {
			return "", ""
		}
		return WhyNoLine, ""
	}
	p := c.pages[name]
	switch {
	case p == nil:
		return WhyFileTooLarge, ""
	case p.anchors[to.anchor], p.anchors[strings.TrimPrefix(to.anchor, "user-content-")]:
		return "", ""
	case isPlain(to.query) && isLineAnchor(to.anchor):
		return "", ""
	case p.anchors[strings.ToLower(to.anchor)]:
		return WhyNoAnchor, "#" + strings.ToLower(to.anchor)
	}
	return WhyNoAnchor, ""
}

// isPlain reports whether a query asks for the text instead of the page.
func isPlain(query string) bool {
	for part := range strings.SplitSeq(query, "&") {
		if part == "plain=1" {
			return true
		}
	}
	return false
}

// isLineAnchor recognizes L10, L10-L20, L10-20 and L10C3-L12C5.
func isLineAnchor(s string) bool {
	from, to, isRange := strings.Cut(s, "-")
	return strings.HasPrefix(from, "L") && isLine(from) && (!isRange || isLine(to))
}

func isLine(s string) bool {
	line, column, hasColumn := strings.Cut(strings.TrimPrefix(s, "L"), "C")
	return isNumber(line) && (!hasColumn || isNumber(column))
}

func isNumber(s string) bool {
	return s != "" && strings.Trim(s, "0123456789") == ""
}
