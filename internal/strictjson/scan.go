package strictjson

import (
	"encoding/binary"
	"math"
	"math/bits"
	"reflect"
	"unicode/utf16"
	"unicode/utf8"
)

// Default limits (DESIGN §4).
const (
	// DefaultDepth is how deep values nest: an object alone is 1 deep.
	DefaultDepth = 64
	// DefaultValues is how many values a text has, containers and what they
	// contain alike.
	DefaultValues = 200_000
	// DefaultStringBytes is the length of the longest string after
	// unescaping, in bytes.
	DefaultStringBytes = 1 << 20
)

// Limits bound a text. In each field zero means the default.
type Limits struct {
	// Depth is how deep values may nest; default [DefaultDepth].
	Depth int
	// Values is how many values there may be; default [DefaultValues].
	Values int
	// StringBytes bounds each string, keys too, after unescaping, and each
	// number; default [DefaultStringBytes].
	StringBytes int
}

func (l Limits) orDefault() Limits {
	if l.Depth == 0 {
		l.Depth = DefaultDepth
	}
	if l.Values == 0 {
		l.Values = DefaultValues
	}
	if l.StringBytes == 0 {
		l.StringBytes = DefaultStringBytes
	}
	return l
}

// Check reports whether data is exactly one object by every rule of the
// package. Its error is an *[Error].
func Check(data []byte, l Limits) error {
	var s scanner
	return s.scan(data, l, nil, reflect.Value{}, true)
}

// CheckValue is [Check] for one value of any type.
func CheckValue(data []byte, l Limits) error {
	var s scanner
	return s.scan(data, l, nil, reflect.Value{}, false)
}

// A scanner reads one text once. It lives on its caller's stack.
type scanner struct {
	data   []byte
	pos    int
	limits Limits
	values int
	keys   keyList
	closed bool
	err    *Error
}

// scan reads the whole text. With a plan it decodes into v.
func (s *scanner) scan(data []byte, l Limits, p *plan, v reflect.Value, object bool) error {
	s.data, s.limits = data, l.orDefault()
	if len(data) > math.MaxInt32 {
		return &Error{Kind: KindSize, Offset: math.MaxInt32}
	}
	s.space()
	if object && s.pos < len(data) && data[s.pos] != '{' {
		return &Error{Kind: KindObject, Offset: s.pos}
	}
	if !s.value(0, p, v) {
		return s.err
	}
	if s.space(); s.pos < len(data) {
		return &Error{Kind: KindTrailing, Offset: s.pos}
	}
	return nil
}

// fail notes the first fault and returns false.
func (s *scanner) fail(kind Kind, at int) bool {
	if s.err == nil {
		s.err = &Error{Kind: kind, Offset: at}
	}
	return false
}

// unexpected fails at the present byte: it is wrong, or there is none.
func (s *scanner) unexpected() bool {
	if s.pos >= len(s.data) {
		return s.fail(KindTruncated, len(s.data))
	}
	return s.fail(KindSyntax, s.pos)
}

// space passes over white space.
func (s *scanner) space() {
	// Compact texts have none: this much is inlined.
	if s.pos < len(s.data) && s.data[s.pos] <= ' ' {
		s.spaces()
	}
}

func (s *scanner) spaces() {
	for s.pos < len(s.data) {
		switch s.data[s.pos] {
		case ' ', '\t', '\n', '\r':
			s.pos++
		default:
			return
		}
	}
}

// peek returns the present byte, or 0, which no grammar rule wants.
func (s *scanner) peek() byte {
	if s.pos < len(s.data) {
		return s.data[s.pos]
	}
	return 0
}

// value reads one value at the present byte. Depth counts the containers
// around it. A nil plan means that nobody wants it.
func (s *scanner) value(depth int, p *plan, v reflect.Value) bool {
	if p == nil {
		return s.skip(depth)
	}
	if s.values++; s.values > s.limits.Values {
		return s.fail(KindValues, s.pos)
	}
	return s.into(s.peek(), depth, p, v)
}

// skip is [scanner.value] for a value that nobody wants.
func (s *scanner) skip(depth int) bool {
	if s.values++; s.values > s.limits.Values {
		return s.fail(KindValues, s.pos)
	}
	switch s.peek() {
	case '"':
		_, ok := s.str()
		return ok
	case '{':
		return s.object(depth+1, nil, reflect.Value{})
	case '[':
		return s.array(depth+1, nil, reflect.Value{})
	case 't':
		return s.literal("true")
	case 'f':
		return s.literal("false")
	case 'n':
		return s.literal("null")
	}
	return s.number()
}

// object reads an object whose opening brace is the present byte.
func (s *scanner) object(depth int, p *plan, v reflect.Value) bool {
	opening := s.pos
	if depth > s.limits.Depth {
		return s.fail(KindDepth, opening)
	}
	own, seen := objectKeys{base: s.keys.n}, uint64(0)
	s.pos++
	s.space()
	if s.peek() == '}' {
		s.pos++
		return p == nil || s.complete(p, seen)
	}
	for {
		at := s.pos
		if s.peek() != '"' {
			return s.unexpected()
		}
		key, ok := s.str()
		if !ok {
			return false
		}
		name := key.text(s.data)
		if !s.addKey(&own, key, name) {
			return s.fail(KindDuplicate, at)
		}
		if s.space(); s.peek() != ':' {
			return s.unexpected()
		}
		s.pos++
		s.space()
		if p == nil {
			if !s.skip(depth) {
				return false
			}
		} else if !s.field(name, at, depth, p, v, &seen) {
			return false
		}
		s.space()
		switch s.peek() {
		case ',':
			s.pos++
			s.space()
		case '}':
			s.pos++
			s.keys.n = own.base
			return p == nil || s.complete(p, seen)
		default:
			return s.unexpected()
		}
	}
}

// array reads an array whose opening bracket is the present byte.
func (s *scanner) array(depth int, p *plan, v reflect.Value) bool {
	if depth > s.limits.Depth {
		return s.fail(KindDepth, s.pos)
	}
	s.pos++
	s.space()
	if s.peek() == ']' {
		s.pos++
		return true
	}
	for {
		if p == nil {
			if !s.skip(depth) {
				return false
			}
		} else if !s.element(depth, p, v) {
			return false
		}
		s.space()
		switch s.peek() {
		case ',':
			s.pos++
			s.space()
		case ']':
			s.pos++
			return true
		default:
			return s.unexpected()
		}
	}
}

func (s *scanner) literal(word string) bool {
	if rest := s.data[s.pos:]; len(rest) >= len(word) && string(rest[:len(word)]) == word {
		s.pos += len(word)
		return true
	}
	for i := 0; s.peek() == word[i]; i++ {
		s.pos++
	}
	return s.unexpected()
}

// number reads a number: RFC 8259 §6.
func (s *scanner) number() bool {
	start := s.pos
	if s.peek() == '-' {
		s.pos++
	}
	if s.peek() == '0' {
		s.pos++
	} else if !s.digits() {
		return false
	}
	if s.peek() == '.' {
		s.pos++
		if !s.digits() {
			return false
		}
	}
	if c := s.peek(); c == 'e' || c == 'E' {
		s.pos++
		if c := s.peek(); c == '+' || c == '-' {
			s.pos++
		}
		if !s.digits() {
			return false
		}
	}
	if s.pos-start > s.limits.StringBytes {
		return s.fail(KindSize, start)
	}
	return true
}

// digits reads one digit or more.
func (s *scanner) digits() bool {
	i := s.pos
	for i < len(s.data) && s.data[i]-'0' <= 9 {
		i++
	}
	if i == s.pos {
		return s.unexpected()
	}
	s.pos = i
	return true
}

// A span is a string's text between its quotes.
type span struct {
	start, end int
	escaped    bool
}

// text returns the string itself. Without escapes that is a part of data.
func (p span) text(data []byte) []byte {
	if !p.escaped {
		return data[p.start:p.end]
	}
	return unescape(data[p.start:p.end])
}

// str reads and validates a string whose opening quote is the present byte.
func (s *scanner) str() (span, bool) {
	data := s.data
	start := s.pos + 1
	saved := 0 // bytes that escapes take more than what they stand for
	for i := start; i < len(data); {
		if len(data)-i >= 8 {
			special := specials(binary.LittleEndian.Uint64(data[i:]))
			if special == 0 {
				i += 8
				continue
			}
			i += bits.TrailingZeros64(special) / 8
		}
		switch c := data[i]; {
		case c == '"':
			if i-start-saved > s.limits.StringBytes {
				return span{}, s.fail(KindSize, start-1)
			}
			s.pos = i + 1
			return span{start, i, saved > 0}, true
		case c == '\\':
			n, size, kind := escape(data[i:])
			if kind != 0 {
				return span{}, s.fail(kind, i)
			}
			i += n
			saved += n - size
		case c < ' ':
			return span{}, s.fail(KindSyntax, i)
		case c < utf8.RuneSelf:
			i++
		default:
			r, size := utf8.DecodeRune(data[i:])
			if r == utf8.RuneError && size <= 1 {
				return span{}, s.fail(KindUTF8, i)
			}
			i += size
		}
	}
	return span{}, s.fail(KindTruncated, len(data))
}

// specials looks at eight bytes at once. The lowest bit that is set in the
// result lies in the first of them that is a quote, a backslash, a control
// character or not ASCII: subtracting makes a byte's top bit appear where the
// byte was less than what was taken away. A borrow can make one appear by
// mistake, but only in a byte above a right one.
func specials(x uint64) uint64 {
	const ones = 0x0101010101010101
	return (x | (x - ones*' ') | ((x ^ ones*'"') - ones) | ((x ^ ones*'\\') - ones)) & (ones << 7)
}

// escape reads one escape, or a pair of them that make one character: how
// many bytes it has, and how many its character has in UTF-8.
func escape(data []byte) (n, size int, kind Kind) {
	if len(data) < 2 {
		return 0, 0, KindTruncated
	}
	switch data[1] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return 2, 1, 0
	case 'u':
	default:
		return 0, 0, KindSyntax
	}
	r, kind := hex4(data[2:])
	if kind != 0 || !utf16.IsSurrogate(r) {
		return 6, utf8.RuneLen(r), kind
	}
	if len(data) < 8 || data[6] != '\\' || data[7] != 'u' {
		return 0, 0, KindSurrogate
	}
	low, kind := hex4(data[8:])
	if kind != 0 {
		return 0, 0, kind
	}
	if utf16.DecodeRune(r, low) == utf8.RuneError {
		return 0, 0, KindSurrogate
	}
	return 12, 4, 0
}

// hex4 reads four hexadecimal digits.
func hex4(data []byte) (rune, Kind) {
	if len(data) < 4 {
		return 0, KindTruncated
	}
	var r rune
	for _, c := range data[:4] {
		switch {
		case c >= '0' && c <= '9':
			c -= '0'
		case c >= 'a' && c <= 'f':
			c -= 'a' - 10
		case c >= 'A' && c <= 'F':
			c -= 'A' - 10
		default:
			return 0, KindSyntax
		}
		r = r<<4 | rune(c)
	}
	return r, 0
}

// unescape returns the text of a string that str has validated.
func unescape(raw []byte) []byte {
	out := make([]byte, 0, len(raw))
	for i := 0; i < len(raw); {
		if raw[i] != '\\' {
			out = append(out, raw[i])
			i++
			continue
		}
		i += 2
		switch c := raw[i-1]; c {
		case 'b':
			out = append(out, '\b')
		case 'f':
			out = append(out, '\f')
		case 'n':
			out = append(out, '\n')
		case 'r':
			out = append(out, '\r')
		case 't':
			out = append(out, '\t')
		case 'u':
			r, _ := hex4(raw[i:])
			i += 4
			if utf16.IsSurrogate(r) {
				low, _ := hex4(raw[i+2:])
				r = utf16.DecodeRune(r, low)
				i += 6
			}
			out = utf8.AppendRune(out, r)
		default:
			out = append(out, c)
		}
	}
	return out
}
