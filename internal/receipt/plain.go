package receipt

import (
	"strconv"
	"time"
)

// appendPlain appends e as [encoding/json] does, if it can: every delivery is
// answered after its event was written, and reflection took longer than the
// write. It returns false for an event whose texts need escaping or whose year
// has not four digits; what is appended then is of no use.
func appendPlain(b []byte, e Event) ([]byte, bool) {
	p := plain{b: b, ok: e.At.Year() >= 0 && e.At.Year() <= 9999}
	p.b = append(p.b, `{"at":"`...)
	p.b = append(e.At.AppendFormat(p.b, time.RFC3339Nano), '"')
	p.text(`,"delivery":`, string(e.Delivery))
	p.text(`,"event":`, string(e.Kind))
	p.optional(`,"route":`, string(e.Route))
	p.optional(`,"anchor":`, string(e.Anchor))
	p.optional(`,"gate":`, e.Gate)
	p.optional(`,"evaluation":`, e.Evaluation)
	if e.Fence != 0 {
		p.b = strconv.AppendUint(append(p.b, `,"fence":`...), e.Fence, 10)
	}
	p.number(`,"attempt":`, int64(e.Attempt))
	p.optional(`,"reason":`, string(e.Reason))
	p.number(`,"took_ns":`, int64(e.Took))
	for i, d := range e.Details {
		if i == 0 {
			p.b = append(p.b, `,"details":[`...)
		} else {
			p.b = append(p.b, ',')
		}
		p.text(`{"name":`, d.Name)
		p.text(`,"value":`, d.Value)
		p.b = append(p.b, '}')
	}
	if len(e.Details) > 0 {
		p.b = append(p.b, ']')
	}
	return append(p.b, '}'), p.ok
}

// plain is a JSON text that is being written, ok for as long as nothing in it
// needed escaping.
type plain struct {
	b  []byte
	ok bool
}

// text appends what goes before a string, and the string.
func (p *plain) text(before, s string) {
	for i := range len(s) {
		c := s[i]
		if c < ' ' || c > '~' || c == '"' || c == '\\' || c == '<' || c == '>' || c == '&' {
			p.ok = false
		}
	}
	p.b = append(append(p.b, before...), '"')
	p.b = append(append(p.b, s...), '"')
}

func (p *plain) optional(before, s string) {
	if s != "" {
		p.text(before, s)
	}
}

func (p *plain) number(before string, n int64) {
	if n != 0 {
		p.b = strconv.AppendInt(append(p.b, before...), n, 10)
	}
}
