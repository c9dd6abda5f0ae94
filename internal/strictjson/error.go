package strictjson

import "fmt"

// A Kind is what is wrong with a text. The zero Kind is not set.
type Kind uint8

// The kinds.
const (
	// KindSyntax: a byte that RFC 8259 doesn't allow there.
	KindSyntax Kind = iota + 1
	// KindTruncated: the text ends inside a value, or is empty.
	KindTruncated
	// KindTrailing: something other than white space follows the value.
	KindTrailing
	// KindObject: the value is not an object.
	KindObject
	// KindUTF8: a string is not valid UTF-8.
	KindUTF8
	// KindSurrogate: an escaped surrogate without its other half.
	KindSurrogate
	// KindDuplicate: a key stands a second time in its object.
	KindDuplicate
	// KindDepth: values nest deeper than [Limits.Depth].
	KindDepth
	// KindValues: more values than [Limits.Values].
	KindValues
	// KindSize: a string or number is longer than [Limits.StringBytes], or
	// the text longer than can be read.
	KindSize
	// KindType: a field's value is of another type.
	KindType
	// KindRange: a field's number does not fit.
	KindRange
	// KindForm: a field's text does not have the form that its type asks for.
	KindForm
	// KindMissing: a field that must be there is not.
	KindMissing
	// KindUnknown: a key that no field has.
	KindUnknown
)

// String returns a few words.
func (k Kind) String() string {
	switch k {
	case KindSyntax:
		return "syntax"
	case KindTruncated:
		return "truncated"
	case KindTrailing:
		return "trailing bytes"
	case KindObject:
		return "not an object"
	case KindUTF8:
		return "not UTF-8"
	case KindSurrogate:
		return "lone surrogate"
	case KindDuplicate:
		return "duplicate key"
	case KindDepth:
		return "nested too deep"
	case KindValues:
		return "too many values"
	case KindSize:
		return "too long"
	case KindType:
		return "wrong type"
	case KindRange:
		return "number out of range"
	case KindForm:
		return "wrong form"
	case KindMissing:
		return "missing field"
	case KindUnknown:
		return "unknown key"
	}
	return "none"
}

// An Error says what is wrong and where. It holds nothing of the text: Field
// consists of names that the struct has.
type Error struct {
	// Kind is what is wrong.
	Kind Kind
	// Offset is where, in bytes from the start. For KindMissing it is the end
	// of the object that lacks the field.
	Offset int
	// Field is the path of the field that was being decoded, such as
	// "repository.id"; empty outside of fields.
	Field string
}

// Error returns kind, field and offset in one line.
func (e *Error) Error() string {
	if e.Field == "" {
		return fmt.Sprintf("json: %s at byte %d", e.Kind, e.Offset)
	}
	return fmt.Sprintf("json: %s: %s at byte %d", e.Field, e.Kind, e.Offset)
}
