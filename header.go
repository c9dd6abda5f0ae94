package fencepost

import (
	"slices"
	"strings"
)

// A Header is one (name, value) pair as it was received. Name is in lower
// case: HTTP field names do not distinguish case (RFC 9110 §5.1).
type Header struct{ Name, Value string }

// Headers is the whole header sequence of a request in its one canonical
// order: by name, bytewise; pairs of one name in the order received.
// The zero Headers is empty. It is immutable.
type Headers struct{ pairs []Header }

// NewHeaders puts pairs into the canonical order. It keeps no reference to
// the slice.
func NewHeaders(pairs []Header) Headers {
	own := make([]Header, len(pairs))
	for i, p := range pairs {
		own[i] = Header{Name: strings.ToLower(p.Name), Value: p.Value}
	}
	slices.SortStableFunc(own, func(a, b Header) int { return strings.Compare(a.Name, b.Name) })
	return Headers{pairs: own}
}

// HeadersFromMap puts the pairs of a name → values map, such as
// [net/http.Header], into the canonical order. Values of names that differ in
// case alone stand in the bytewise order of those names.
func HeadersFromMap(values map[string][]string) Headers {
	type key struct{ lower, as string }
	keys := make([]key, 0, len(values))
	n := 0
	for name, vs := range values {
		keys = append(keys, key{strings.ToLower(name), name})
		n += len(vs)
	}
	slices.SortFunc(keys, func(a, b key) int {
		if c := strings.Compare(a.lower, b.lower); c != 0 {
			return c
		}
		return strings.Compare(a.as, b.as)
	})
	pairs := make([]Header, 0, n)
	for _, k := range keys {
		for _, v := range values[k.as] {
			pairs = append(pairs, Header{Name: k.lower, Value: v})
		}
	}
	return Headers{pairs: pairs}
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
	name = strings.ToLower(name)
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
	name = strings.ToLower(name)
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
	var kept []Header
	for _, p := range h.pairs {
		if slices.ContainsFunc(names, func(n string) bool { return strings.EqualFold(n, p.Name) }) {
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
