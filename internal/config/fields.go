package config

import (
	"math"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// A field is what the tags of a struct field say about it:
//
//	yaml:"lease"            its key
//	default:"60s"           what absence means; items of a list by spaces
//	need:"required"         absence is a fault
//	need:"unsupported"      presence is a fault, in this version
//	example:"./data"        shown where it is missing, and in the manual
//	min:"5s" max:"10m"      bounds of a number, a duration or a size, inclusive
//	oneof:"github gitlab"   the closed list of values
//	least:"1" most:"8"      bounds of a list's or a mapping's length
type field struct {
	name                  string
	index                 []int
	required, unsupported bool
	hasDefault            bool
	def, example          string
	min, max              string
	oneOf                 []string
	least, most           int
}

// fieldSet holds a struct's fields by name, and the names in order.
type fieldSet struct {
	byName map[string]field
	names  []string
}

// fieldsOf lists the fields of t; those of embedded structs are t's own.
func fieldsOf(t reflect.Type) fieldSet {
	set := fieldSet{byName: map[string]field{}}
	for _, sf := range reflect.VisibleFields(t) {
		if sf.Anonymous {
			continue
		}
		tag := sf.Tag
		f := field{
			name: tag.Get("yaml"), index: sf.Index,
			required:    tag.Get("need") == "required",
			unsupported: tag.Get("need") == "unsupported",
			example:     tag.Get("example"),
			min:         tag.Get("min"), max: tag.Get("max"),
			oneOf: strings.Fields(tag.Get("oneof")),
			least: number(tag.Get("least")), most: number(tag.Get("most")),
		}
		f.def, f.hasDefault = tag.Lookup("default")
		set.byName[f.name] = f
		set.names = append(set.names, f.name)
	}
	return set
}

// span says the bounds as people say them.
func (f field) span() string {
	switch f.max {
	case f.min:
		return f.min
	case strconv.Itoa(math.MaxInt64):
		return f.min + " or more"
	}
	return f.min + " to " + f.max
}

// number reads a length bound; the tags are ours, and a test reads them all.
func number(text string) int {
	if text == "" {
		return 0
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		panic("config: length bound " + text)
	}
	return n
}

const wholeNumber = "a whole number in decimal digits"

// A leaf describes a scalar type to people, and to the JSON Schema.
type leaf struct {
	// what completes "must be …".
	what string
	// pattern is a regular expression in the dialect that Go and
	// ECMA-262 share; nil for none.
	pattern *regexp.Regexp
}

// leafText is what the document's own scalar types have in common.
type leafText interface{ describe() leaf }

var (
	durationPattern = regexp.MustCompile(`^([0-9]+(\.[0-9]+)?(ns|us|ms|s|m|h))+$`)
	timePattern     = regexp.MustCompile(`^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.]+(Z|[+-][0-9]{2}:[0-9]{2})$`)
)

func leafOf(t reflect.Type) leaf {
	if l, ok := reflect.New(t).Interface().(leafText); ok {
		return l.describe()
	}
	switch t {
	case reflect.TypeFor[time.Duration]():
		return leaf{`a duration with a unit, such as 90s, 5m or 24h`, durationPattern}
	case reflect.TypeFor[time.Time]():
		return leaf{`a time in RFC 3339, such as 2026-10-01T00:00:00Z`, timePattern}
	case reflect.TypeFor[bool]():
		return leaf{what: "true or false"}
	case reflect.TypeFor[string]():
		return leaf{what: "text"}
	case reflect.TypeFor[int](), reflect.TypeFor[int64]():
		return leaf{what: wholeNumber}
	}
	return leaf{}
}
