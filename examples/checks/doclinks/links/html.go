package links

import (
	"html"
	"slices"
	"strings"

	"github.com/yuin/goldmark/text"
)

// A tag is one start or end tag of HTML. Names are in lower case.
type tag struct {
	name string
	end  bool
	// attributes in their order; the first of a name counts.
	attributes []attribute
	// offset is where the tag begins in what was scanned.
	offset int
}

type attribute struct {
	name, value string
	// written is the value with its character references.
	written string
}

// html takes links, anchors and headings from HTML between the Markdown.
func (r *pageReader) html(lines *text.Segments) {
	var scanned strings.Builder
	starts := make([]int, lines.Len())
	for i := range lines.Len() {
		starts[i] = scanned.Len()
		at := lines.At(i)
		scanned.Write(at.Value(r.source))
	}
	scanHTML(scanned.String(), func(t tag) {
		i, _ := slices.BinarySearch(starts, t.offset+1)
		line := lines.At(i - 1)
		// Tabs in the source may be more blanks here.
		r.tag(t, min(line.Start+t.offset-starts[i-1], line.Stop-1))
	}, func(s string) { r.say(html.UnescapeString(s)) })
}

func (r *pageReader) tag(t tag, offset int) {
	isHeading := len(t.name) == 2 && t.name[0] == 'h' && '1' <= t.name[1] && t.name[1] <= '6'
	switch {
	case t.end:
		if isHeading {
			r.endHeading()
		}
		return
	case isHeading:
		r.startHeading()
	}
	seen := make(map[string]bool, len(t.attributes))
	for _, a := range t.attributes {
		if seen[a.name] {
			continue
		}
		seen[a.name] = true
		for _, l := range linksIn(t.name, a) {
			l.offset = offset
			r.add(l)
		}
		if (a.name == "id" || a.name == "name") && a.value != "" {
			r.page.anchors[a.value] = true
		}
	}
}

// linksIn lists what an attribute names.
func linksIn(element string, a attribute) []link {
	image := true
	switch {
	case a.name == "href" && element == "a":
		image = false
	case a.name == "src" && slices.Contains([]string{"img", "source", "video", "audio", "track"}, element):
	case a.name == "poster" && element == "video":
	case a.name == "srcset" && (element == "img" || element == "source"):
		var all []link
		for _, u := range srcset(a.value) {
			all = append(all, link{written: u, dest: u, image: true})
		}
		return all
	default:
		return nil
	}
	const blanks = " \t\r\n\f"
	return []link{{written: strings.Trim(a.written, blanks), dest: strings.Trim(a.value, blanks), image: image}}
}

// srcset lists the addresses of a list of images (HTML, "Parsing a srcset
// attribute").
func srcset(s string) (addresses []string) {
	const blanks = " \t\r\n\f"
	for {
		s = strings.TrimLeft(s, blanks+",")
		if s == "" {
			return addresses
		}
		end := strings.IndexAny(s, blanks)
		if end < 0 {
			end = len(s)
		}
		address := strings.TrimRight(s[:end], ",")
		addresses = append(addresses, address)
		// A comma right after the address ends it; else its size follows.
		if s = s[end:]; len(address) == end {
			_, s, _ = strings.Cut(s, ",")
		}
	}
}

// scanHTML calls onTag for each tag of s and onText for the text between, in
// order. Comments and what stands in scripts and styles it leaves out. It
// reads s once: where something is never closed, the rest belongs to it.
func scanHTML(s string, onTag func(tag), onText func(string)) {
	for i := 0; i < len(s); {
		open := strings.IndexByte(s[i:], '<')
		if open < 0 {
			onText(s[i:])
			return
		}
		onText(s[i : i+open])
		i += open
		rest := s[i:]
		var n int
		switch {
		case strings.HasPrefix(rest, "<!--"):
			n = comment(rest)
		case strings.HasPrefix(rest, "<!"), strings.HasPrefix(rest, "<?"):
			n = after(rest, ">")
		default:
			var t tag
			if t, n = parseTag(rest); n > 0 && t.name != "" {
				t.offset = i
				onTag(t)
				n += rawText(t, rest[n:])
			} else if n > 0 {
				onText(rest[:n])
			}
		}
		if n <= 0 {
			return
		}
		i += n
	}
}

// after is the length of s up to and with mark; -1 without one.
func after(s, mark string) int {
	i := strings.Index(s, mark)
	if i < 0 {
		return -1
	}
	return i + len(mark)
}

// comment is the length of the comment that s begins with; -1 for one without
// an end. CommonMark also takes <!--> and <!---> for comments.
func comment(s string) int {
	for _, short := range []string{"<!-->", "<!--->"} {
		if strings.HasPrefix(s, short) {
			return len(short)
		}
	}
	n := after(s[len("<!--"):], "-->")
	if n < 0 {
		return -1
	}
	return len("<!--") + n
}

// rawText is the length of what follows a tag and is no HTML, up to the end
// tag.
func rawText(t tag, s string) int {
	if t.end || !slices.Contains([]string{"script", "style", "textarea", "title"}, t.name) {
		return 0
	}
	for i := 0; ; {
		n := strings.Index(s[i:], "</")
		if n < 0 {
			return len(s)
		}
		i += n
		if name := s[i+len("</"):]; len(name) >= len(t.name) && strings.EqualFold(name[:len(t.name)], t.name) {
			return i
		}
		i += len("</")
	}
}

// parseTag reads the tag that s begins with and its length. The length is -1
// for one without an end; the name is empty for what is no tag at all.
func parseTag(s string) (tag, int) {
	i := 1
	var t tag
	if i < len(s) && s[i] == '/' {
		t.end = true
		i++
	}
	start := i
	for i < len(s) && (isLetter(s[i]) || i > start && (isDigit(s[i]) || s[i] == '-' || s[i] == ':')) {
		i++
	}
	if i == start {
		return tag{}, i
	}
	t.name = strings.ToLower(s[start:i])
	for {
		for i < len(s) && (isBlank(s[i]) || s[i] == '/') {
			i++
		}
		if i == len(s) {
			return tag{}, -1
		}
		if s[i] == '>' {
			return t, i + 1
		}
		a, n := parseAttribute(s[i:])
		if n < 0 {
			return tag{}, -1
		}
		t.attributes = append(t.attributes, a)
		i += n
	}
}

// parseAttribute reads the attribute that s begins with and its length; -1 if
// its value never ends.
func parseAttribute(s string) (attribute, int) {
	// A name has at least one character, even if that is an equals sign.
	i := 1
	for i < len(s) && !isBlank(s[i]) && !strings.ContainsRune("/>=", rune(s[i])) {
		i++
	}
	a := attribute{name: strings.ToLower(s[:i])}
	j := i
	for j < len(s) && isBlank(s[j]) {
		j++
	}
	if j == len(s) || s[j] != '=' {
		return a, i
	}
	j++
	for j < len(s) && isBlank(s[j]) {
		j++
	}
	if j == len(s) {
		return attribute{}, -1
	}
	end := j
	if quote := s[j]; quote == '"' || quote == '\'' {
		j++
		n := strings.IndexByte(s[j:], quote)
		if n < 0 {
			return attribute{}, -1
		}
		a.written, end = s[j:j+n], j+n+1
	} else {
		for end < len(s) && !isBlank(s[end]) && s[end] != '>' {
			end++
		}
		a.written = s[j:end]
	}
	a.value = html.UnescapeString(a.written)
	return a, end
}

func isBlank(c byte) bool  { return c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == '\f' }
func isDigit(c byte) bool  { return '0' <= c && c <= '9' }
func isLetter(c byte) bool { return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' }
