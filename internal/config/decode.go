package config

import (
	"encoding"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
)

// maxFileBytes bounds a configuration file: one of 20,000 sources has about
// half as much.
const maxFileBytes = 16 << 20

// maxFlowDepth bounds how deep [ and { may nest, before the YAML parser,
// which recurses, sees them. The document's own depth is 7.
const maxFlowDepth = 32

// A place is where a value stands: its dotted path, and the position that a
// fault names, which is the field's key.
type place struct {
	path         string
	line, column int
}

// A decoder walks a syntax tree and a struct side by side. It is strict: what
// the struct doesn't name is a fault, as is everything that the tags of the
// struct exclude. It goes on after a fault, to find the others.
type decoder struct {
	file   string
	faults []*Fault
	// places remembers where each field that was written stands, for
	// faults that are found only when fields are compared.
	places map[string]place
	// broken has the path of each fault as true, and as false those of the
	// sections around one that have none of their own.
	broken map[string]bool
	// fields of the structs that were met: a file may have one thousands of
	// times.
	fields map[reflect.Type]fieldSet
}

func newDecoder(file string) *decoder {
	return &decoder{
		file: file, places: map[string]place{"": {line: 1, column: 1}},
		broken: map[string]bool{}, fields: map[reflect.Type]fieldSet{},
	}
}

func (d *decoder) fieldsOf(t reflect.Type) fieldSet {
	set, known := d.fields[t]
	if !known {
		set = fieldsOf(t)
		d.fields[t] = set
	}
	return set
}

// document decodes text into v, a pointer to a struct. It reports whether
// there was anything to decode.
func (d *decoder) document(text []byte, v any) bool {
	root := place{line: 1, column: 1}
	body, ok := d.parse(text, root)
	if ok {
		d.mapping(body, reflect.ValueOf(v).Elem(), root)
	}
	return ok
}

func (d *decoder) parse(text []byte, root place) (ast.Node, bool) {
	text = []byte(strings.TrimPrefix(string(text), "\ufeff"))
	switch {
	case len(text) > maxFileBytes:
		d.fault(root, "must be at most %d KiB, is %d bytes", maxFileBytes>>10, len(text))
		return nil, false
	case !utf8.Valid(text):
		d.fault(root, "must be UTF-8 text")
		return nil, false
	case flowDepth(text) > maxFlowDepth:
		d.fault(root, "brackets nest deeper than %d; is one of them not closed?", maxFlowDepth)
		return nil, false
	}
	file, err := parser.ParseBytes(text, 0, parser.AllowDuplicateMapKey())
	if err != nil {
		d.syntax(err, root)
		return nil, false
	}
	if len(file.Docs) > 1 {
		at := root
		if t := file.Docs[1].Start; t != nil && t.Position != nil {
			at.line, at.column = t.Position.Line, t.Position.Column
		}
		d.fault(at, "must be one YAML document; take out the --- and what follows it")
		return nil, false
	}
	if len(file.Docs) == 0 || file.Docs[0].Body == nil {
		d.fault(root, "is empty; `fencepost init` writes a starter file")
		return nil, false
	}
	return file.Docs[0].Body, true
}

// flowDepth is an upper bound of how deep brackets nest: it doesn't know
// quotes, so that it can be simple.
func flowDepth(text []byte) int {
	depth, deepest := 0, 0
	for _, c := range text {
		switch c {
		case '[', '{':
			depth++
			deepest = max(deepest, depth)
		case ']', '}':
			depth = max(0, depth-1)
		}
	}
	return deepest
}

// syntax reports a parser's error by position alone: its text and its
// excerpt may hold what is written in the file.
func (d *decoder) syntax(err error, root place) {
	at := root
	if e, ok := errors.AsType[yaml.Error](err); ok {
		if t := e.GetToken(); t != nil && t.Position != nil {
			at.line, at.column = t.Position.Line, t.Position.Column
		}
	}
	d.fault(at, "is not well-formed YAML at this place; look for a missing quote, bracket, colon or indent")
}

func (d *decoder) fault(at place, format string, args ...any) {
	d.faults = append(d.faults, &Fault{
		File: d.file, Line: at.line, Column: at.column,
		Path: at.path, Problem: fmt.Sprintf(format, args...),
	})
	d.broken[at.path] = true
	for around := at.path; around != ""; {
		around = around[:max(0, strings.LastIndexAny(around, ".["))]
		if !d.broken[around] {
			d.broken[around] = false
		}
	}
}

// at finds where the field of a path stands, or else the nearest section
// around it that was written.
func (d *decoder) at(path string) place {
	for around := path; ; {
		if p, ok := d.places[around]; ok {
			p.path = path
			return p
		}
		around = around[:max(0, strings.LastIndexAny(around, ".["))]
	}
}

// A member is one key of a mapping with its value.
type member struct {
	key   string
	value ast.Node
	at    place
}

// members lists a mapping's entries in order, without the duplicates, which
// it reports. ok is false where n is no mapping.
func (d *decoder) members(n ast.Node, at place) (list []member, ok bool) {
	m, ok := n.(ast.MapNode)
	if !ok {
		d.fault(at, "must be a mapping of fields, is %s", kindOf(n))
		return nil, false
	}
	seen := map[string]int{}
	for entries := m.MapRange(); entries.Next(); {
		key := entries.Key()
		tok := key.GetToken()
		here := place{path: at.path, line: tok.Position.Line, column: tok.Position.Column}
		if _, plain := key.(ast.ScalarNode); !plain || key.Type() == ast.MergeKeyType || key.Type() == ast.NullType {
			d.fault(here, "has a key that is no plain name; anchors, merges and ? keys are not used here")
			continue
		}
		here.path = join(at.path, shown(tok.Value))
		if line, twice := seen[tok.Value]; twice {
			d.fault(here, "is set already in line %d; keep one of the two", line)
			continue
		}
		seen[tok.Value] = here.line
		d.places[join(at.path, tok.Value)] = here
		list = append(list, member{key: tok.Value, value: entries.Value(), at: here})
	}
	return list, true
}

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

// shown makes a key fit for an error: bounded, on one line.
func shown(key string) string {
	const most = 64
	if len(key) > most {
		key = strings.ToValidUTF8(key[:most], "") + "…"
	}
	if q := strconv.Quote(key); q != `"`+key+`"` || key == "" {
		return q
	}
	return key
}

// mapping decodes n into the struct v.
func (d *decoder) mapping(n ast.Node, v reflect.Value, at place) {
	members, ok := d.members(n, at)
	if !ok {
		return
	}
	fields := d.fieldsOf(v.Type())
	given := map[string]bool{}
	for _, m := range members {
		f, known := fields.byName[m.key]
		if !known {
			d.fault(m.at, "unknown field; known here: %s", strings.Join(fields.names, ", "))
			continue
		}
		given[m.key] = true
		d.value(m.value, v.FieldByIndex(f.index), f, m.at)
	}
	for _, name := range fields.names {
		if !given[name] {
			d.absent(v.FieldByIndex(fields.byName[name].index), fields.byName[name], at)
		}
	}
}

// absent fills in the default of a field that was not written.
func (d *decoder) absent(v reflect.Value, f field, parent place) {
	here := parent
	here.path = join(parent.path, f.name)
	switch {
	case f.required:
		example := ""
		if f.example != "" {
			example = ": add it, such as " + f.name + ": " + f.example
		}
		d.fault(here, "missing%s", example)
	case isLeaf(v.Type()) && f.hasDefault:
		if err := setLeaf(v, f.def); err != nil {
			panic(fmt.Sprintf("config: default of %s: %v", here.path, err))
		}
	case v.Kind() == reflect.Slice && f.hasDefault:
		for item := range strings.FieldsSeq(f.def) {
			e := reflect.New(v.Type().Elem()).Elem()
			if err := setLeaf(e, item); err != nil {
				panic(fmt.Sprintf("config: default of %s: %v", here.path, err))
			}
			v.Set(reflect.Append(v, e))
		}
	case v.Kind() == reflect.Struct && !isLeaf(v.Type()):
		set := d.fieldsOf(v.Type())
		for _, name := range set.names {
			inner := set.byName[name]
			d.absent(v.FieldByIndex(inner.index), inner, here)
		}
	}
}

// value decodes n into v, which stands for field f.
func (d *decoder) value(n ast.Node, v reflect.Value, f field, at place) {
	switch n.(type) {
	case *ast.AnchorNode, *ast.AliasNode, *ast.TagNode:
		d.fault(at, "uses a YAML anchor, alias or tag; write the value out instead")
		return
	case nil, *ast.NullNode:
		d.fault(at, "has no value; write one, or take the field out")
		return
	}
	if f.unsupported {
		d.fault(at, "not yet supported in this version; take it out")
		return
	}
	switch t := v.Type(); {
	case isLeaf(t):
		d.leaf(n, v, f, at)
	case t.Kind() == reflect.Pointer:
		v.Set(reflect.New(t.Elem()))
		d.mapping(n, v.Elem(), at)
	case t.Kind() == reflect.Struct:
		d.mapping(n, v, at)
	case t.Kind() == reflect.Map:
		d.named(n, v, f, at)
	case t.Kind() == reflect.Slice:
		d.sequence(n, v, f, at)
	default:
		panic("config: no way to decode " + t.String())
	}
}

// named decodes a mapping of names to sections or to lists. The field's
// bounds are those of each list, or else those of the mapping.
func (d *decoder) named(n ast.Node, v reflect.Value, f field, at place) {
	members, ok := d.members(n, at)
	if !ok {
		return
	}
	inner := field{}
	if v.Type().Elem().Kind() == reflect.Slice {
		inner.least, inner.most = f.least, f.most
	} else if len(members) > f.most {
		d.fault(at, "must have at most %d entries, has %d", f.most, len(members))
		return
	}
	v.Set(reflect.MakeMap(v.Type()))
	for _, m := range members {
		key := reflect.New(v.Type().Key()).Elem()
		if err := setLeaf(key, m.key); err != nil {
			d.fault(m.at, "%s", err)
			continue
		}
		item := reflect.New(v.Type().Elem()).Elem()
		d.value(m.value, item, inner, m.at)
		v.SetMapIndex(key, item)
	}
}

// sequence decodes a list, whose length must be in the field's bounds.
func (d *decoder) sequence(n ast.Node, v reflect.Value, f field, at place) {
	seq, ok := n.(*ast.SequenceNode)
	if !ok {
		d.fault(at, "must be a list, is %s", kindOf(n))
		return
	}
	if len(seq.Values) < f.least || len(seq.Values) > f.most {
		d.fault(at, "must have %d to %d entries, has %d", f.least, f.most, len(seq.Values))
		return
	}
	for i, item := range seq.Values {
		here := startOf(item, at)
		here.path = fmt.Sprintf("%s[%d]", at.path, i)
		d.places[here.path] = here
		e := reflect.New(v.Type().Elem()).Elem()
		d.value(item, e, field{oneOf: f.oneOf}, here)
		v.Set(reflect.Append(v, e))
	}
}

// startOf is where a list's item begins: a block mapping's own token is a
// colon, so there the first key is meant.
func startOf(n ast.Node, fallback place) place {
	if m, ok := n.(*ast.MappingNode); ok && !m.IsFlowStyle && len(m.Values) > 0 {
		n = m.Values[0].Key
	}
	if n == nil || n.GetToken() == nil || n.GetToken().Position == nil {
		return fallback
	}
	p := n.GetToken().Position
	return place{line: p.Line, column: p.Column}
}

// leaf decodes a scalar and holds it against the field's bounds.
func (d *decoder) leaf(n ast.Node, v reflect.Value, f field, at place) {
	text, err := scalarText(n, v.Type())
	if err == nil {
		err = setLeaf(v, text)
	}
	if err != nil {
		d.fault(at, "%s", err)
		return
	}
	if len(f.oneOf) > 0 && !slices.Contains(f.oneOf, text) {
		d.fault(at, "must be one of %s", strings.Join(f.oneOf, ", "))
		return
	}
	if f.min != "" && outside(v, f.min, f.max) {
		d.fault(at, "must be %s, is %s", f.span(), text)
	}
}

// scalarText is the text that was written, whatever YAML would take it for:
// a commit of nothing but digits is a commit.
func scalarText(n ast.Node, t reflect.Type) (string, error) {
	_, isBool := n.(*ast.BoolNode)
	_, isInt := n.(*ast.IntegerNode)
	switch t.Kind() {
	case reflect.Bool:
		if !isBool {
			return "", errors.New("must be true or false, without quotes")
		}
	case reflect.Int, reflect.Int64:
		if !isInt && leafOf(t).what == wholeNumber {
			return "", errors.New("must be " + wholeNumber + ", without quotes")
		}
	default:
		if isBool {
			return "", fmt.Errorf("must be %s; put true or false in quotes if it is meant as text", leafOf(t).what)
		}
	}
	switch n := n.(type) {
	case *ast.StringNode:
		return n.Value, nil
	case *ast.LiteralNode:
		return n.Value.Value, nil
	case *ast.IntegerNode, *ast.FloatNode, *ast.InfinityNode, *ast.NanNode, *ast.BoolNode:
		return n.GetToken().Value, nil
	}
	return "", fmt.Errorf("must be %s, is %s", leafOf(t).what, kindOf(n))
}

func kindOf(n ast.Node) string {
	switch n.(type) {
	case ast.MapNode:
		return "a mapping"
	case *ast.SequenceNode:
		return "a list"
	case nil, *ast.NullNode:
		return "nothing"
	case *ast.AnchorNode, *ast.AliasNode, *ast.TagNode:
		return "a YAML anchor, alias or tag"
	}
	return "a plain value"
}

func isLeaf(t reflect.Type) bool { return leafOf(t).what != "" }

// setLeaf parses text into v. Its errors are fit to be shown: they hold the
// text only where it can't be a secret.
func setLeaf(v reflect.Value, text string) error {
	switch p := v.Addr().Interface().(type) {
	case *time.Time:
		at, err := time.Parse(time.RFC3339, text)
		if err != nil {
			return errors.New("must be " + leafOf(v.Type()).what)
		}
		*p = at.UTC()
		return nil
	case *time.Duration:
		dur, err := time.ParseDuration(text)
		if err != nil || dur < 0 {
			return errors.New("must be " + leafOf(v.Type()).what)
		}
		*p = dur
		return nil
	case encoding.TextUnmarshaler:
		return p.UnmarshalText([]byte(text))
	case *string:
		*p = text
		return nil
	case *bool:
		*p = text == "true"
		return nil
	case *int64:
		return setInt(v, text)
	case *int:
		return setInt(v, text)
	}
	panic("config: no way to set " + v.Type().String())
}

func setInt(v reflect.Value, text string) error {
	n, err := strconv.ParseInt(text, 10, v.Type().Bits())
	if err != nil || strconv.FormatInt(n, 10) != text {
		return errors.New("must be " + wholeNumber)
	}
	v.SetInt(n)
	return nil
}

// outside reports whether v is below min or above max, texts of its own type.
func outside(v reflect.Value, low, high string) bool {
	bound := func(text string) int64 {
		b := reflect.New(v.Type()).Elem()
		if err := setLeaf(b, text); err != nil {
			panic(fmt.Sprintf("config: bound %s: %v", text, err))
		}
		return b.Int()
	}
	return v.Int() < bound(low) || v.Int() > bound(high)
}

// sortedKeys are the keys of m in order.
func sortedKeys[K ~string, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }
