// Package strictjson reads JSON that has to be exactly right: one value, no
// bytes around it but white space, no key twice in an object at any depth,
// valid UTF-8, no lone surrogate, and nothing over a limit (DESIGN §4).
//
// [Check] looks without taking anything. [Decode] also takes the fields of a
// struct, in the same single pass and by the same rules:
//
//   - Every field has a key, json:"key". Keys match exactly, letter case
//     included; no key is guessed.
//   - A field must be there, unless it is a pointer or tagged
//     strict:"optional". A pointer is nil for null, too, unless it is one to
//     a [Raw]; null suits nothing else but that.
//   - Types are string, bool, integers, structs, pointers, slices, [Raw] and
//     what implements [encoding.TextUnmarshaler]. A number goes into an integer
//     digit by digit, never through a float: 1.0 and 1e3 are no integers.
//   - Keys that no field has are passed over, having been checked;
//     [DecodeClosed] refuses them.
//
// On any error nothing is taken. An [Error] has the kind of the fault and its
// offset, and nothing of the text.
//
// RFC 8259; RFC 7493 (I-JSON) for what it leaves open.
package strictjson
