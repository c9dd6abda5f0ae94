package strictjson

import (
	"bytes"
	"encoding/binary"
	"math/bits"
)

// mapKeys is the number of keys from which on an object's are kept in a map.
const mapKeys = 256

// An objectKeys finds a key that stands twice in one object. It lies in the
// stack frame of the object's reading.
//
// Almost every key is new, and the filter, a set of bits chosen by a cheap
// fingerprint, says so at once. Where it can't, the object's keys are gone
// through one by one. That they may all be chosen to have one fingerprint
// costs at most mapKeys comparisons a key: beyond that number a map with a
// seeded hash takes over.
type objectKeys struct {
	filter [8]uint64
	base   int // the object's first key in the scanner's list
	many   map[string]struct{}
}

// A keyText is one key of an object that is being read.
type keyText struct {
	fingerprint uint64
	start, end  uint32
}

// A keyList holds the keys of the objects that are open, those of outer
// objects before those of inner ones. The first few lie in the scanner
// itself.
type keyList struct {
	n     int
	first [firstKeys]keyText
	more  []keyText
}

// firstKeys is how many keys a scanner has room for before it allocates:
// enough for common webhooks.
const firstKeys = 128

func (l *keyList) at(i int) *keyText {
	if i < firstKeys {
		return &l.first[i]
	}
	return &l.more[i-firstKeys]
}

func (l *keyList) add(k keyText) {
	if l.n < firstKeys {
		l.first[l.n] = k
	} else {
		l.more = append(l.more[:l.n-firstKeys], k)
	}
	l.n++
}

// addKey notes a key of the object o, or returns false if it has it already.
func (s *scanner) addKey(o *objectKeys, key span, name []byte) bool {
	if o.many != nil {
		before := len(o.many)
		o.many[string(name)] = struct{}{}
		return len(o.many) > before
	}
	f := fingerprint(name)
	word, bit := &o.filter[f>>61], uint64(1)<<(f>>55&63)
	if *word&bit != 0 && s.hasKey(o, f, name) {
		return false
	}
	*word |= bit
	s.keys.add(keyText{f, uint32(key.start), uint32(key.end)})
	if s.keys.n-o.base == mapKeys {
		o.many = make(map[string]struct{}, 2*mapKeys)
		for i := o.base; i < s.keys.n; i++ {
			o.many[string(s.keyName(s.keys.at(i)))] = struct{}{}
		}
	}
	return true
}

func (s *scanner) hasKey(o *objectKeys, f uint64, name []byte) bool {
	for i := o.base; i < s.keys.n; i++ {
		if k := s.keys.at(i); k.fingerprint == f && bytes.Equal(s.keyName(k), name) {
			return true
		}
	}
	return false
}

func (s *scanner) keyName(k *keyText) []byte {
	raw := s.data[k.start:k.end]
	return span{int(k.start), int(k.end), bytes.IndexByte(raw, '\\') >= 0}.text(s.data)
}

// fingerprint mixes the length with the first and last eight bytes. Its top
// bits depend on all of them.
func fingerprint(name []byte) uint64 {
	n := len(name)
	var x uint64
	switch {
	case n >= 8:
		x = binary.LittleEndian.Uint64(name) ^ bits.RotateLeft64(binary.LittleEndian.Uint64(name[n-8:]), 32)
	case n >= 4:
		x = uint64(binary.LittleEndian.Uint32(name))<<32 | uint64(binary.LittleEndian.Uint32(name[n-4:]))
	case n > 0:
		x = uint64(name[0])<<16 | uint64(name[n/2])<<8 | uint64(name[n-1])
	}
	return (x ^ uint64(n)) * 0x9e3779b97f4a7c15
}
