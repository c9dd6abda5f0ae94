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
	if err := s.scan(data, l, p, fresh, true); err != nil {
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
	if err := s.scan(data, d.limits, d.plan, reflect.ValueOf(&out).Elem(), true); err != nil {
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
)

// compile makes the plan of t. Outer are the structs around it.
func compile(t reflect.Type, outer []reflect.Type) (*plan, error) {
	p := &plan{typ: t}
	if reflect.PointerTo(t).Implements(reflect.TypeFor[encoding.TextUnmarshaler]()) {
		p.kind = intoText
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
		p.list = append(p.list, planField{key: key, index: f.Index[0], plan: elem})
	}
	return nil
}

// into reads the value that begins with c into v.
func (s *scanner) into(c byte, depth int, p *plan, v reflect.Value) bool {
	at := s.pos
	switch p.kind {
	case intoPointer:
		if c == 'n' {
			return s.literal("null")
		}
		v.Set(reflect.New(p.elem.typ))
		return s.into(c, depth, p.elem, v.Elem())
	case intoStruct:
		if c == '{' {
			return s.object(depth+1, p, v)
		}
	case intoSlice:
		if c == '[' {
			v.Set(reflect.MakeSlice(p.typ, 0, 0))
			return s.array(depth+1, p, v)
		}
	case intoString, intoText:
		if c == '"' {
			return s.intoString(p, v)
		}
	case intoBool:
		switch c {
		case 't':
			v.SetBool(true)
			return s.literal("true")
		case 'f':
			v.SetBool(false)
			return s.literal("false")
		}
	case intoInt, intoUint:
		if c == '-' || c-'0' <= 9 {
			return s.intoInteger(p, v)
		}
	}
	// What is no value at all is a fault of syntax before it is one of type.
	if s.values--; !s.skip(depth) {
		return false
	}
	return s.fail(KindType, at)
}

func (s *scanner) intoString(p *plan, v reflect.Value) bool {
	at := s.pos
	raw, ok := s.str()
	if !ok {
		return false
	}
	text := raw.text(s.data)
	if p.kind == intoString {
		v.SetString(string(text))
		return true
	}
	// The type's error may hold the text, so it is not kept. Cloned, since
	// the type may keep the bytes.
	if v.Addr().Interface().(encoding.TextUnmarshaler).UnmarshalText(bytes.Clone(text)) != nil {
		return s.fail(KindForm, at)
	}
	return true
}

func (s *scanner) intoInteger(p *plan, v reflect.Value) bool {
	at := s.pos
	if !s.number() {
		return false
	}
	digits := s.data[at:s.pos]
	if bytes.ContainsAny(digits, ".eE") {
		return s.fail(KindType, at)
	}
	if p.kind == intoInt {
		n, err := strconv.ParseInt(string(digits), 10, 64)
		if err != nil || v.OverflowInt(n) {
			return s.fail(KindRange, at)
		}
		v.SetInt(n)
		return true
	}
	n, err := strconv.ParseUint(string(digits), 10, 64)
	if err != nil || v.OverflowUint(n) {
		return s.fail(KindRange, at)
	}
	v.SetUint(n)
	return true
}

// field reads the value of a key of a struct, which began at byte at.
func (s *scanner) field(name []byte, at, depth int, p *plan, v reflect.Value, seen *uint64) bool {
	place, known := p.fields[string(name)]
	if !known {
		if s.closed {
			return s.fail(KindUnknown, at)
		}
		return s.skip(depth)
	}
	f := &p.list[place]
	*seen |= 1 << place
	if s.value(depth, f.plan, v.Field(f.index)) {
		return true
	}
	s.err.within(f.key)
	return false
}

// element reads one element of a slice.
func (s *scanner) element(depth int, p *plan, v reflect.Value) bool {
	e := reflect.New(p.elem.typ).Elem()
	if !s.value(depth, p.elem, e) {
		return false
	}
	v.Set(reflect.Append(v, e))
	return true
}

// complete reports whether every field is there that must be.
func (s *scanner) complete(p *plan, seen uint64) bool {
	missing := p.required &^ seen
	if missing == 0 {
		return true
	}
	s.fail(KindMissing, s.pos-1)
	s.err.within(p.list[bits.TrailingZeros64(missing)].key)
	return false
}

// within puts the field that encloses the fault before the path.
func (e *Error) within(key string) {
	if e.Field != "" {
		key += "." + e.Field
	}
	e.Field = key
}
