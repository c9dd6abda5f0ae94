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
	return s.scan(data, l, target{}, true)
}

// CheckValue is [Check] for one value of any type.
func CheckValue(data []byte, l Limits) error {
	var s scanner
	return s.scan(data, l, target{}, false)
}

// A scanner reads one text once. It lives on its caller's stack.
//
// Its methods take the index of the byte to begin with, and return that of
// the byte after what they read, or failed.
type scanner struct {
	data   []byte
	limits Limits
	values int
	keys   keyList
	closed bool
	err    *Error
}

// failed is no index.
const failed = -1

// A target is where a value goes, and how. Nobody wants what has the zero
// target.
type target struct {
	plan *plan
	v    reflect.Value
}

// scan reads the whole text, which must be an object if object is true.
func (s *scanner) scan(data []byte, l Limits, to target, object bool) error {
	s.data, s.limits = data, l.orDefault()
	if len(data) > math.MaxInt32 {
		return &Error{Kind: KindSize, Offset: math.MaxInt32}
	}
	i := s.space(0)
	if object && i < len(data) && data[i] != '{' {
		return &Error{Kind: KindObject, Offset: i}
	}
	if i = s.value(i, 0, to); i == failed {
		return s.err
	}
	if i = s.space(i); i < len(data) {
		return &Error{Kind: KindTrailing, Offset: i}
	}
	return nil
}

// fail notes the first fault.
func (s *scanner) fail(kind Kind, at int) int {
	if s.err == nil {
		s.err = &Error{Kind: kind, Offset: at}
	}
	return failed
}

// unexpected fails at byte i: it is wrong, or there is none.
func (s *scanner) unexpected(i int) int {
	if i >= len(s.data) {
		return s.fail(KindTruncated, len(s.data))
	}
	return s.fail(KindSyntax, i)
}

// space passes over white space.
func (s *scanner) space(i int) int {
	// Compact texts have none: this much is inlined.
	if i < len(s.data) && s.data[i] <= ' ' {
		return s.spaces(i)
	}
	return i
}

func (s *scanner) spaces(i int) int {
	for i < len(s.data) && (s.data[i] == ' ' || s.data[i] == '\t' || s.data[i] == '\n' || s.data[i] == '\r') {
		i++
	}
	return i
}

// peek returns byte i, or 0, which no grammar rule wants.
func (s *scanner) peek(i int) byte {
	if i < len(s.data) {
		return s.data[i]
	}
	return 0
}

// value reads one value. Depth counts the containers around it.
func (s *scanner) value(i, depth int, to target) int {
	if to.plan == nil {
		return s.skip(i, depth)
	}
	if s.values++; s.values > s.limits.Values {
		return s.fail(KindValues, i)
	}
	return s.into(i, depth, to)
}

// skip is [scanner.value] for a value that nobody wants.
func (s *scanner) skip(i, depth int) int {
	if s.values++; s.values > s.limits.Values {
		return s.fail(KindValues, i)
	}
	switch s.peek(i) {
	case '"':
		_, next := s.str(i)
		return next
	case '{':
		return s.object(i, depth+1, target{})
	case '[':
		return s.array(i, depth+1, target{})
	case 't':
		return s.literal(i, "true")
	case 'f':
		return s.literal(i, "false")
	case 'n':
		return s.literal(i, "null")
	}
	return s.number(i)
}

// object reads an object whose opening brace is byte i.
func (s *scanner) object(i, depth int, to target) int {
	if depth > s.limits.Depth {
		return s.fail(KindDepth, i)
	}
	own, seen := objectKeys{base: s.keys.n}, uint64(0)
	i = s.space(i + 1)
	if s.peek(i) == '}' {
		return s.complete(i, to.plan, seen)
	}
	for {
		at := i
		if s.peek(i) != '"' {
			return s.unexpected(i)
		}
		key, next := s.str(i)
		if next == failed {
			return failed
		}
		name := key.text(s.data)
		if !s.addKey(&own, key, name) {
			return s.fail(KindDuplicate, at)
		}
		if i = s.space(next); s.peek(i) != ':' {
			return s.unexpected(i)
		}
		i = s.space(i + 1)
		if to.plan == nil {
			i = s.skip(i, depth)
		} else {
			i = s.field(i, depth, keyName{name, at}, to, &seen)
		}
		if i == failed {
			return failed
		}
		switch i = s.space(i); s.peek(i) {
		case ',':
			i = s.space(i + 1)
		case '}':
			s.keys.n = own.base
			return s.complete(i, to.plan, seen)
		default:
			return s.unexpected(i)
		}
	}
}

// array reads an array whose opening bracket is byte i.
func (s *scanner) array(i, depth int, to target) int {
	if depth > s.limits.Depth {
		return s.fail(KindDepth, i)
	}
	if i = s.space(i + 1); s.peek(i) == ']' {
		return i + 1
	}
	for {
		if to.plan == nil {
			i = s.skip(i, depth)
		} else {
			i = s.element(i, depth, to)
		}
		if i == failed {
			return failed
		}
		switch i = s.space(i); s.peek(i) {
		case ',':
			i = s.space(i + 1)
		case ']':
			return i + 1
		default:
			return s.unexpected(i)
		}
	}
}

func (s *scanner) literal(i int, word string) int {
	if rest := s.data[i:]; len(rest) >= len(word) && string(rest[:len(word)]) == word {
		return i + len(word)
	}
	for n := 0; s.peek(i) == word[n]; n++ {
		i++
	}
	return s.unexpected(i)
}

// number reads a number: RFC 8259 §6.
func (s *scanner) number(start int) int {
	i := start
	if s.peek(i) == '-' {
		i++
	}
	if s.peek(i) == '0' {
		i++
	} else if i = s.digits(i); i == failed {
		return failed
	}
	if s.peek(i) == '.' {
		if i = s.digits(i + 1); i == failed {
			return failed
		}
	}
	if c := s.peek(i); c == 'e' || c == 'E' {
		i++
		if c := s.peek(i); c == '+' || c == '-' {
			i++
		}
		if i = s.digits(i); i == failed {
			return failed
		}
	}
	if i-start > s.limits.StringBytes {
		return s.fail(KindSize, start)
	}
	return i
}

// digits reads one digit or more.
func (s *scanner) digits(start int) int {
	i := start
	for i < len(s.data) && s.data[i]-'0' <= 9 {
		i++
	}
	if i == start {
		return s.unexpected(i)
	}
	return i
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

// str reads and validates a string whose opening quote is byte i.
func (s *scanner) str(i int) (_ span, next int) {
	data := s.data
	i++
	start := i
	saved := 0 // bytes that escapes take more than what they stand for
	for i < len(data) {
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
			return span{start, i, saved > 0}, i + 1
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
