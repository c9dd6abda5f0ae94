package inflate

import "math/bits"

const (
	maxLitlen  = 288
	maxDist    = 32
	maxCodeLen = 15

	litlenBits = 10
	distBits   = 8
	litlenMask = 1<<litlenBits - 1
	distMask   = 1<<distBits - 1
	// What the tables of all complete codes of 288 and 32 symbols need is 1334
	// and 402 entries.
	litlenSize = 2048
	distSize   = 512

	endOfBlock = 256
)

// An entry of a table:
//
//	bits 0-7    bits of the symbol; in a subtable, beyond the first level
//	bits 8-11   extra bits of a length or distance; or of a subtable's index
//	bits 12-15  the flags below
//	bits 16-31  the literal; the least length or distance; where a subtable begins
const (
	isLiteral  = 1 << 12
	isSubtable = 1 << 13
	isEnd      = 1 << 14
	isInvalid  = 1 << 15
)

type (
	litlenTable [litlenSize]uint32
	distTable   [distSize]uint32
)

// litlenEntry returns what a symbol of the first code means. RFC 1951 §3.2.5.
func litlenEntry(sym int) uint32 {
	switch {
	case sym < endOfBlock:
		return uint32(sym)<<16 | isLiteral
	case sym == endOfBlock:
		return isEnd
	case sym > 285:
		return isInvalid
	case sym == 285:
		return maxLength << 16
	case sym < 265:
		return uint32(sym-257+3) << 16
	}
	extra := uint32(sym-261) / 4
	return (3+(4+uint32(sym-261)%4)<<extra)<<16 | extra<<8
}

// distEntry returns what a symbol of the second code means.
func distEntry(sym int) uint32 {
	switch {
	case sym > 29:
		return isInvalid
	case sym < 4:
		return uint32(sym+1) << 16
	}
	extra := uint32(sym)/2 - 1
	return (1+(2+uint32(sym)&1)<<extra)<<16 | extra<<8
}

// makeFixed makes the tables of RFC 1951 §3.2.6 when they are first needed.
func (d *Decoder) makeFixed() {
	if d.fixed {
		return
	}
	d.fixed = true
	var lengths [maxLitlen]uint8
	for i := range lengths {
		switch {
		case i < 144, i > 279:
			lengths[i] = 8
		case i < 256:
			lengths[i] = 9
		default:
			lengths[i] = 7
		}
	}
	build(d.fixedLitlen[:], litlenBits, lengths[:], litlenEntry)
	for i := range maxDist {
		lengths[i] = 5
	}
	build(d.fixedDist[:], distBits, lengths[:maxDist], distEntry)
}

// readCodes reads the two codes of a block. RFC 1951 §3.2.7.
func (d *Decoder) readCodes() error {
	head, err := d.take(14)
	if err != nil {
		return err
	}
	nlit, ndist, nlen := int(head&31)+257, int(head>>5&31)+1, int(head>>10)+4
	if nlit > 286 || ndist > 30 {
		return ErrCorrupt
	}
	order := [...]uint8{16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15}
	var short [len(order)]uint8
	for _, at := range order[:nlen] {
		v, err := d.take(3)
		if err != nil {
			return err
		}
		short[at] = uint8(v)
	}
	var table [1 << 7]uint32
	if !build(table[:], 7, short[:], func(sym int) uint32 { return uint32(sym) << 16 }) {
		return ErrCorrupt
	}
	lengths := d.lengths[:nlit+ndist]
	for i := 0; i < len(lengths); {
		e, err := d.symbol(table[:], 7)
		if err != nil {
			return err
		}
		if e&isInvalid != 0 {
			return ErrCorrupt
		}
		sym := uint8(e >> 16)
		if sym < 16 {
			lengths[i] = sym
			i++
			continue
		}
		n, err := d.repeat(sym)
		if err != nil {
			return err
		}
		var v uint8
		if sym == 16 {
			if i == 0 {
				return ErrCorrupt
			}
			v = lengths[i-1]
		}
		if n > len(lengths)-i {
			return ErrCorrupt
		}
		for range n {
			lengths[i] = v
			i++
		}
	}
	if lengths[endOfBlock] == 0 ||
		!build(d.litlen[:], litlenBits, lengths[:nlit], litlenEntry) ||
		!build(d.dist[:], distBits, lengths[nlit:], distEntry) {
		return ErrCorrupt
	}
	return nil
}

// repeat reads how often a length is repeated.
func (d *Decoder) repeat(sym uint8) (int, error) {
	n, least := uint(2), 3
	switch sym {
	case 17:
		n = 3
	case 18:
		n, least = 7, 11
	}
	v, err := d.take(n)
	return least + int(v), err
}

// build makes the table of a canonical code from the lengths of its symbols,
// and reports whether it is one: complete, or one symbol of one bit, or none.
// RFC 1951 §3.2.2.
func build(table []uint32, first int, lengths []uint8, entry func(sym int) uint32) bool {
	var count [maxCodeLen + 1]int
	for _, n := range lengths {
		count[n]++
	}
	var next [maxCodeLen + 2]int
	left := 1 // codes of the length that are not used
	for n := 1; n <= maxCodeLen; n++ {
		left = left<<1 - count[n]
		if left < 0 {
			return false
		}
		next[n+1] = next[n] + count[n]
	}
	used := next[maxCodeLen+1]
	if left > 0 && (used > 1 || used == 1 && count[1] != 1) {
		return false
	}
	var sorted [maxLitlen]uint16
	for sym, n := range lengths {
		if n != 0 {
			sorted[next[n]] = uint16(sym)
			next[n]++
		}
	}
	if left > 0 {
		for i := range table[:1<<first] {
			table[i] = isInvalid | 1
		}
		if used == 1 {
			for i := 0; i < 1<<first; i += 2 {
				table[i] = entry(int(sorted[0])) | 1
			}
		}
		return true
	}
	return fill(table, first, count[:], sorted[:used], entry)
}

// fill fills the table of a complete code: the first level by doubling it from
// one length to the next, and behind it one subtable for each prefix of
// longer codes. sorted are the symbols by length.
func fill(table []uint32, first int, count []int, sorted []uint16, entry func(sym int) uint32) bool {
	code, i := uint(0), 0 // the next code, its first bit lowest
	size := 1
	for n := 1; n <= first; n++ {
		copy(table[size:2*size], table[:size])
		size *= 2
		for range count[n] {
			table[code] = entry(int(sorted[i])) | uint32(n)
			i++
			code = increment(code, n)
		}
	}
	end := size
	prefix := ^uint(0)
	var start, width int
	for n := first + 1; n <= maxCodeLen; n++ {
		for k := range count[n] {
			if p := code & (1<<first - 1); p != prefix {
				// As wide as it must be for the codes that follow to fill it.
				prefix, start, width = p, end, n-first
				room := 1<<width - (count[n] - k)
				for room > 0 && first+width < maxCodeLen {
					width++
					room = room<<1 - count[first+width]
				}
				end += 1 << width
				if end > len(table) {
					return false
				}
				table[p] = uint32(start)<<16 | isSubtable | uint32(width)<<8 | uint32(first)
			}
			e := entry(int(sorted[i])) | uint32(n-first)
			for at := code >> first; at < 1<<width; at += 1 << (n - first) {
				table[start+int(at)] = e
			}
			i++
			code = increment(code, n)
		}
	}
	return true
}

// increment returns the next code of n bits, whose first bit is the lowest.
// After the last it returns the first.
func increment(code uint, n int) uint {
	up := ^code & (1<<n - 1)
	if up == 0 {
		return 0
	}
	top := uint(1) << (bits.Len(up) - 1)
	return code&(top-1) | top
}
