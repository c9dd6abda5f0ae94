package strictjson

import (
	"bytes"
	"encoding"
	"fmt"
	"math/bits"
	"reflect"
	"strconv"
	"strings"
)

// maxFields bounds the fields of one struct, which one word keeps count of.
const maxFields = 64

// Raw is the text of one value of any type, null too, which has been checked
// like everything else. It shares no memory with what was decoded.
type Raw []byte

// Decode reads data as [Check] does and takes the fields of *v, which must be
// a pointer to a struct. Its error is an *[Error]; on any error *v is
// unchanged. It panics on a type that can't be decoded into, which is an
// error of the program.
func Decode(data []byte, l Limits, v any) error { return decode(data, l, v, false) }

// DecodeClosed is [Decode] for formats of our own: a key that no field has is
// refused.
func DecodeClosed(data []byte, l Limits, v any) error { return decode(data, l, v, true) }

func decode(data []byte, l Limits, v any, closed bool) error {
	to := reflect.ValueOf(v)
	if to.Kind() != reflect.Pointer || to.IsNil() || to.Elem().Kind() != reflect.Struct {
		panic(fmt.Sprintf("strictjson: decode into %T, want a pointer to a struct", v))
	}
	p, err := compile(to.Type().Elem(), nil)
	if err != nil {
		panic(err.Error())
	}
	fresh := reflect.New(to.Type().Elem()).Elem()
	s := scanner{closed: closed}
	if err := s.scan(data, l, target{p, fresh}, true); err != nil {
		return err
	}
	to.Elem().Set(fresh)
	return nil
}

// A Decoder is [Decode] for one type, prepared once. It is safe for
// concurrent use.
type Decoder[T any] struct {
	plan   *plan
	limits Limits
	closed bool
}

// NewDecoder prepares for T, a struct. It panics on a type that can't be
// decoded into, which is an error of the program.
func NewDecoder[T any](l Limits) *Decoder[T] { return newDecoder[T](l, false) }

// NewClosedDecoder is [NewDecoder] for [DecodeClosed].
func NewClosedDecoder[T any](l Limits) *Decoder[T] { return newDecoder[T](l, true) }

func newDecoder[T any](l Limits, closed bool) *Decoder[T] {
	t := reflect.TypeFor[T]()
	p, err := compile(t, nil)
	if err == nil && t.Kind() != reflect.Struct {
		err = fmt.Errorf("strictjson: decode into %s, want a struct", t)
	}
	if err != nil {
		panic(err.Error())
	}
	return &Decoder[T]{plan: p, limits: l, closed: closed}
}

// Decode returns what data holds, or the zero T and an *[Error].
func (d *Decoder[T]) Decode(data []byte) (T, error) {
	var out T
	s := scanner{closed: d.closed}
	if err := s.scan(data, d.limits, target{d.plan, reflect.ValueOf(&out).Elem()}, true); err != nil {
		var zero T
		return zero, err
	}
	return out, nil
}

// A plan is how to decode into one type.
type plan struct {
	kind     planKind
	typ      reflect.Type
	elem     *plan            // of pointers and slices
	fields   map[string]uint8 // of structs: key → place in list
	lengths  uint64           // bit i: a key has i bytes, or i more than a multiple of 64
	list     []planField
	required uint64 // bit i: list[i] must be there
}

type planField struct {
	key   string
	index int
	plan  *plan
}

type planKind uint8

const (
	intoString planKind = iota + 1
	intoBool
	intoInt
	intoUint
	intoStruct
	intoPointer
	intoSlice
	intoText
	intoRaw
)

// compile makes the plan of t. Outer are the structs around it.
func compile(t reflect.Type, outer []reflect.Type) (*plan, error) {
	p := &plan{typ: t}
	if reflect.PointerTo(t).Implements(reflect.TypeFor[encoding.TextUnmarshaler]()) {
		p.kind = intoText
		return p, nil
	}
	if t == reflect.TypeFor[Raw]() {
		p.kind = intoRaw
		return p, nil
	}
	var err error
	switch t.Kind() {
	case reflect.String:
		p.kind = intoString
	case reflect.Bool:
		p.kind = intoBool
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		p.kind = intoInt
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		p.kind = intoUint
	case reflect.Pointer:
		p.kind = intoPointer
		p.elem, err = compile(t.Elem(), outer)
	case reflect.Slice:
		p.kind = intoSlice
		p.elem, err = compile(t.Elem(), outer)
	case reflect.Struct:
		p.kind = intoStruct
		err = p.compileFields(append(outer, t))
	default:
		err = fmt.Errorf("strictjson: can't decode into %s", t)
	}
	return p, err
}

func (p *plan) compileFields(outer []reflect.Type) error {
	for _, t := range outer[:len(outer)-1] {
		if t == p.typ {
			return fmt.Errorf("strictjson: %s contains itself", t)
		}
	}
	p.fields = map[string]uint8{}
	for f := range p.typ.Fields() {
		key, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if key == "-" {
			continue
		}
		_, twice := p.fields[key]
		if key == "" || !f.IsExported() || twice || len(p.list) == maxFields {
			return fmt.Errorf("strictjson: %s.%s: every field is exported and has a json key of its own, %d at most", p.typ, f.Name, maxFields)
		}
		elem, err := compile(f.Type, outer)
		if err != nil {
			return fmt.Errorf("%w, field %s of %s", err, f.Name, p.typ)
		}
		switch option := f.Tag.Get("strict"); {
		case option != "" && option != "optional":
			return fmt.Errorf("strictjson: %s.%s: unknown option %q", p.typ, f.Name, option)
		case option == "" && elem.kind != intoPointer:
			p.required |= 1 << len(p.list)
		}
		p.fields[key] = uint8(len(p.list))
		p.lengths |= 1 << (len(key) % 64)
		p.list = append(p.list, planField{key: key, index: f.Index[0], plan: elem})
	}
	return nil
}

// into reads the value at byte i into a target that somebody wants.
func (s *scanner) into(i, depth int, to target) int {
	c, p, v := s.peek(i), to.plan, to.v
	switch p.kind {
	case intoPointer:
		if c == 'n' && p.elem.kind != intoRaw {
			return s.literal(i, "null")
		}
		v.Set(reflect.New(p.elem.typ))
		return s.into(i, depth, target{p.elem, v.Elem()})
	case intoStruct:
		if c == '{' {
			return s.object(i, depth+1, to)
		}
	case intoSlice:
		if c == '[' {
			v.Set(reflect.MakeSlice(p.typ, 0, 0))
			return s.array(i, depth+1, to)
		}
	case intoRaw:
		s.values-- // which skip counts again
		next := s.skip(i, depth)
		if next != failed {
			v.SetBytes(bytes.Clone(s.data[i:next]))
		}
		return next
	case intoString, intoText:
		if c == '"' {
			return s.intoString(i, p, v)
		}
	case intoBool:
		switch c {
		case 't':
			v.SetBool(true)
			return s.literal(i, "true")
		case 'f':
			v.SetBool(false)
			return s.literal(i, "false")
		}
	case intoInt, intoUint:
		if c == '-' || c-'0' <= 9 {
			return s.intoInteger(i, p, v)
		}
	}
	// What is no value at all is a fault of syntax before it is one of type.
	if s.values--; s.skip(i, depth) == failed {
		return failed
	}
	return s.fail(KindType, i)
}

func (s *scanner) intoString(i int, p *plan, v reflect.Value) int {
	raw, next := s.str(i)
	if next == failed {
		return failed
	}
	text := raw.text(s.data)
	if p.kind == intoString {
		v.SetString(string(text))
		return next
	}
	// The type's error may hold the text, so it is not kept. Cloned, since
	// the type may keep the bytes.
	if v.Addr().Interface().(encoding.TextUnmarshaler).UnmarshalText(bytes.Clone(text)) != nil {
		return s.fail(KindForm, i)
	}
	return next
}

func (s *scanner) intoInteger(i int, p *plan, v reflect.Value) int {
	next := s.number(i)
	if next == failed {
		return failed
	}
	digits := s.data[i:next]
	if bytes.ContainsAny(digits, ".eE") {
		return s.fail(KindType, i)
	}
	if p.kind == intoInt {
		n, err := strconv.ParseInt(string(digits), 10, 64)
		if err != nil || v.OverflowInt(n) {
			return s.fail(KindRange, i)
		}
		v.SetInt(n)
		return next
	}
	n, err := strconv.ParseUint(string(digits), 10, 64)
	if err != nil || v.OverflowUint(n) {
		return s.fail(KindRange, i)
	}
	v.SetUint(n)
	return next
}

// A keyName is a key's text, and the byte at which it stands.
type keyName struct {
	text []byte
	at   int
}

// field reads the value at byte i of a key of a struct, and notes in seen
// which it is.
func (s *scanner) field(i, depth int, key keyName, to target, seen *uint64) int {
	// Most keys of a provider are nobody's, and many by their length already.
	var place uint8
	known := to.plan.lengths>>(len(key.text)%64)&1 != 0
	if known {
		place, known = to.plan.fields[string(key.text)]
	}
	if !known {
		if s.closed {
			return s.fail(KindUnknown, key.at)
		}
		return s.skip(i, depth)
	}
	f := &to.plan.list[place]
	*seen |= 1 << place
	next := s.value(i, depth, target{f.plan, to.v.Field(f.index)})
	if next == failed {
		s.err.within(f.key)
	}
	return next
}

// element reads one element of a slice.
func (s *scanner) element(i, depth int, to target) int {
	e := target{to.plan.elem, reflect.New(to.plan.elem.typ).Elem()}
	next := s.value(i, depth, e)
	if next != failed {
		to.v.Set(reflect.Append(to.v, e.v))
	}
	return next
}

// complete ends an object, whose closing brace is byte i: every field must
// have been seen that must be there.
func (s *scanner) complete(i int, p *plan, seen uint64) int {
	if p == nil || p.required&^seen == 0 {
		return i + 1
	}
	missing := bits.TrailingZeros64(p.required &^ seen)
	s.fail(KindMissing, i)
	s.err.within(p.list[missing].key)
	return failed
}

// within puts the field that encloses the fault before the path.
func (e *Error) within(key string) {
	if e.Field != "" {
		key += "." + e.Field
	}
	e.Field = key
}
