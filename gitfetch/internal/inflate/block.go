package inflate

import "encoding/binary"

// block decodes what is compressed with a pair of codes, up to its end.
func (d *Decoder) block(litlen *litlenTable, dist *distTable) error {
	for {
		if len(d.in)-d.pos >= 16 && d.at < d.limit {
			done, err := d.fast(litlen, dist)
			if done || err != nil {
				return err
			}
		}
		if d.at > d.limit {
			if err := d.room(); err != nil {
				return err
			}
		}
		done, err := d.slow(litlen, dist)
		if done || err != nil {
			return err
		}
	}
}

// fast decodes while there are 16 bytes of input and some room for output. It
// may overshoot the limit by no more than Slack.
func (d *Decoder) fast(litlen *litlenTable, dist *distTable) (done bool, err error) {
	in, pos, hold, bits := d.in, d.pos, d.hold, d.bits
	out, at, limit := d.out, d.at, d.limit
	for pos+16 <= len(in) && at < limit {
		hold |= binary.LittleEndian.Uint64(in[pos:]) << (bits & 63)
		pos += int((63 - bits) >> 3)
		bits |= 56
		// Three literals that stand in the first level take at most 30 bits.
		e := litlen[hold&litlenMask]
		if e&isLiteral != 0 {
			hold >>= e & 63
			bits -= uint(e & 63)
			out[at] = byte(e >> 16)
			at++
			if e = litlen[hold&litlenMask]; e&isLiteral != 0 {
				hold >>= e & 63
				bits -= uint(e & 63)
				out[at] = byte(e >> 16)
				at++
				if e = litlen[hold&litlenMask]; e&isLiteral != 0 {
					hold >>= e & 63
					bits -= uint(e & 63)
					out[at] = byte(e >> 16)
					at++
					continue
				}
			}
			hold |= binary.LittleEndian.Uint64(in[pos:]) << (bits & 63)
			pos += int((63 - bits) >> 3)
			bits |= 56
		}
		// From here on a length and a distance take at most 48.
		if e&isSubtable != 0 {
			hold >>= litlenBits
			bits -= litlenBits
			e = litlen[(uint64(e>>16)+hold&(1<<(e>>8&15)-1))&(litlenSize-1)]
		}
		if e&(isLiteral|isEnd|isInvalid) != 0 {
			hold >>= e & 63
			bits -= uint(e & 63)
			if e&isLiteral != 0 {
				out[at] = byte(e >> 16)
				at++
				continue
			}
			if done = e&isEnd != 0; !done {
				err = ErrCorrupt
			}
			break
		}
		hold >>= e & 63
		bits -= uint(e & 63)
		extra := e >> 8 & 15
		length := int(e>>16) + int(hold&(1<<extra-1))
		hold >>= extra
		bits -= uint(extra)

		e = dist[hold&distMask]
		if e&isSubtable != 0 {
			hold >>= distBits
			bits -= distBits
			e = dist[(uint64(e>>16)+hold&(1<<(e>>8&15)-1))&(distSize-1)]
		}
		hold >>= e & 63
		bits -= uint(e & 63)
		extra = e >> 8 & 15
		distance := int(e>>16) + int(hold&(1<<extra-1))
		hold >>= extra
		bits -= uint(extra)
		if e&isInvalid != 0 || distance > at {
			err = ErrCorrupt
			break
		}
		end := at + length
		switch from := at - distance; {
		case distance >= 16:
			for at < end {
				s, t := out[from:from+16], out[at:at+16]
				binary.LittleEndian.PutUint64(t, binary.LittleEndian.Uint64(s))
				binary.LittleEndian.PutUint64(t[8:], binary.LittleEndian.Uint64(s[8:]))
				from += 16
				at += 16
			}
		case distance >= 8:
			for at < end {
				binary.LittleEndian.PutUint64(out[at:], binary.LittleEndian.Uint64(out[from:]))
				from += 8
				at += 8
			}
		case distance == 1:
			word := uint64(out[from]) * 0x0101010101010101
			for at < end {
				binary.LittleEndian.PutUint64(out[at:], word)
				at += 8
			}
		default:
			for at < end {
				out[at] = out[from]
				from++
				at++
			}
		}
		at = end
	}
	// What is above the bits is to be zero for those who take single bytes.
	d.pos, d.hold, d.bits, d.at = pos, hold&(1<<bits-1), bits, at
	d.back()
	return done, err
}

// back returns whole bytes to the piece: all of them are of this one.
func (d *Decoder) back() {
	n := d.bits / 8
	d.pos -= int(n)
	d.bits -= 8 * n
	d.hold &= 1<<d.bits - 1
}

// slow decodes one symbol, taking no byte that it does not need.
func (d *Decoder) slow(litlen *litlenTable, dist *distTable) (done bool, err error) {
	e, err := d.symbol(litlen[:], litlenBits)
	if err != nil {
		return false, err
	}
	if e&isEnd != 0 {
		return true, nil
	}
	if e&isInvalid != 0 {
		return false, ErrCorrupt
	}
	if d.at >= d.limit {
		if err := d.room(); err != nil {
			return false, err
		}
	}
	if e&isLiteral != 0 {
		d.out[d.at] = byte(e >> 16)
		d.at++
		return false, nil
	}
	extra, err := d.take(uint(e >> 8 & 15))
	if err != nil {
		return false, err
	}
	length := int(e>>16) + int(extra)
	if e, err = d.symbol(dist[:], distBits); err != nil {
		return false, err
	}
	if e&isInvalid != 0 {
		return false, ErrCorrupt
	}
	if extra, err = d.take(uint(e >> 8 & 15)); err != nil {
		return false, err
	}
	distance := int(e>>16) + int(extra)
	if distance > d.at {
		return false, ErrCorrupt
	}
	// It may go beyond the limit, where there is Slack.
	for range length {
		d.out[d.at] = d.out[d.at-distance]
		d.at++
	}
	return false, nil
}

// symbol decodes one symbol of a table with that many bits in its first level.
func (d *Decoder) symbol(table []uint32, first uint) (uint32, error) {
	for {
		e := table[d.hold&(1<<first-1)]
		used := uint(e & 63)
		if e&isSubtable != 0 {
			// The bits that are not there yet count as zero: whatever is found
			// by them is longer than what is there.
			e = table[uint64(e>>16)+d.hold>>first&(1<<(e>>8&15)-1)]
			used = first + uint(e&63)
		}
		if used <= d.bits {
			d.hold >>= used
			d.bits -= used
			return e, nil
		}
		if err := d.pull(); err != nil {
			return 0, err
		}
	}
}
