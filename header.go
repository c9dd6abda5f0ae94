package fencepost

import (
	"maps"
	"slices"
	"strings"
)

// A Header is one (name, value) pair as it was received. Name is in lower
// case: HTTP field names do not distinguish case (RFC 9110 §5.1), and are
// ASCII.
type Header struct{ Name, Value string }

// Headers is the whole header sequence of a request in its one canonical
// order: by name, bytewise; pairs of one name in the order received.
// The zero Headers is empty. It is immutable.
type Headers struct{ pairs []Header }

// NewHeaders puts pairs into the canonical order. It keeps no reference to
// the slice.
func NewHeaders(pairs []Header) Headers {
	own := slices.Clone(pairs)
	lowerNames(own)
	slices.SortStableFunc(own, func(a, b Header) int { return strings.Compare(a.Name, b.Name) })
	return Headers{pairs: own}
}

// HeadersFromMap puts the pairs of a name → values map, such as
// [net/http.Header], into the canonical order. Values of names that differ in
// case alone stand in the bytewise order of those names.
func HeadersFromMap(values map[string][]string) Headers {
	var pairs []Header
	for _, name := range slices.Sorted(maps.Keys(values)) {
		for _, v := range values[name] {
			pairs = append(pairs, Header{Name: name, Value: v})
		}
	}
	return NewHeaders(pairs)
}

// lowerNames turns all names into lower case, in one string for all of them.
func lowerNames(pairs []Header) {
	n := 0
	for _, p := range pairs {
		if hasUpper(p.Name) {
			n += len(p.Name)
		}
	}
	if n == 0 {
		return
	}
	all := make([]byte, 0, n)
	for _, p := range pairs {
		if hasUpper(p.Name) {
			all = appendLower(all, p.Name)
		}
	}
	rest := string(all)
	for i := range pairs {
		if name := pairs[i].Name; hasUpper(name) {
			pairs[i].Name, rest = rest[:len(name)], rest[len(name):]
		}
	}
}

func hasUpper(s string) bool {
	for i := range len(s) {
		if s[i]-'A' < 26 {
			return true
		}
	}
	return false
}

func appendLower(b []byte, s string) []byte {
	for i := range len(s) {
		c := s[i]
		if c-'A' < 26 {
			c += 'a' - 'A'
		}
		b = append(b, c)
	}
	return b
}

// lowerName is a name in lower case.
func lowerName(s string) string {
	if !hasUpper(s) {
		return s
	}
	return string(appendLower(make([]byte, 0, len(s)), s))
}

// Len returns the number of pairs.
func (h Headers) Len() int { return len(h.pairs) }

// Size returns the length of all names and values together, in bytes.
func (h Headers) Size() int {
	n := 0
	for _, p := range h.pairs {
		n += len(p.Name) + len(p.Value)
	}
	return n
}

// All returns a copy of the pairs in canonical order.
func (h Headers) All() []Header { return slices.Clone(h.pairs) }

// Values returns every value of the named header. Name is matched without
// regard to case.
func (h Headers) Values(name string) []string {
	name = lowerName(name)
	var values []string
	for _, p := range h.pairs {
		if p.Name == name {
			values = append(values, p.Value)
		}
	}
	return values
}

// Only returns the value of a header that stands exactly once. More than one
// value is ambiguous, and ok is false just as for none (DESIGN §4).
func (h Headers) Only(name string) (value string, ok bool) {
	name = lowerName(name)
	for _, p := range h.pairs {
		if p.Name != name {
			continue
		}
		if ok {
			return "", false
		}
		value, ok = p.Value, true
	}
	return value, ok
}

// Select returns the pairs of the named headers alone.
func (h Headers) Select(names ...string) Headers {
	wanted := make([]string, 0, 8)
	for _, name := range names {
		wanted = append(wanted, lowerName(name))
	}
	kept := make([]Header, 0, len(names))
	for _, p := range h.pairs {
		if slices.Contains(wanted, p.Name) {
			kept = append(kept, p)
		}
	}
	return Headers{pairs: kept}
}

// Digest is the SHA-256 of the canonical encoding of the whole sequence,
// domain "fencepost.headers/v1".
func (h Headers) Digest() [32]byte {
	const perPair = 2 * 8
	e := NewEncoder("fencepost.headers/v1")
	e.buf = slices.Grow(e.buf, h.Size()+len(h.pairs)*perPair+2*8)
	e.List(len(h.pairs))
	for _, p := range h.pairs {
		e.Text(p.Name).Text(p.Value)
	}
	return e.Sum()
}
