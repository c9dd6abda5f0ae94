package pack

// applyWhole is [delta.apply] where base, text and result are in memory, the
// result as long as the text's start says. It keeps the same rules.
func applyWhole(base, text, result []byte) error {
	for range 2 { // the two sizes, which were read before
		for text[0]&0x80 != 0 {
			text = text[1:]
		}
		text = text[1:]
	}
	for len(text) > 0 {
		op := text[0]
		text = text[1:]
		if op == 0 {
			return malformed("reserved delta instruction")
		}
		if op&copyFlag == 0 {
			n := int(op)
			if n > len(result) {
				return malformed("delta inserts beyond its result")
			}
			if n > len(text) {
				return malformed("delta ends inside an insertion")
			}
			copy(result, text[:n])
			text, result = text[n:], result[n:]
			continue
		}
		var args [7]uint32 // four bytes of offset, three of size
		for i := range args {
			if op&(1<<i) != 0 {
				if len(text) == 0 {
					return malformed("delta ends inside an instruction")
				}
				args[i] = uint32(text[0])
				text = text[1:]
			}
		}
		off := int64(args[0] | args[1]<<8 | args[2]<<16 | args[3]<<24)
		size := int64(args[4] | args[5]<<8 | args[6]<<16)
		if size == 0 {
			size = copySizeZero
		}
		if size > int64(len(result)) {
			return malformed("delta copies beyond its result")
		}
		if off > int64(len(base)) || size > int64(len(base))-off {
			return malformed("delta copies from beyond its base")
		}
		copy(result, base[off:off+size])
		result = result[size:]
	}
	if len(result) > 0 {
		return malformed("delta fills its result but for %d bytes", len(result))
	}
	return nil
}
