package shelf

import (
	"bytes"
	"testing"

	"github.com/fencepost/fencepost"
)

// Of all bytes, those alone are an entry that were written as one, for that
// delivery.
func FuzzDecode(f *testing.F) {
	mine, other := fencepost.DeliveryKey{1}.ID(), fencepost.DeliveryKey{2}.ID()
	for _, e := range []Entry{{Document: []byte("staged")}, {Reason: fencepost.ReasonSuperseded}, {}} {
		f.Add(encode(mine, e))
		f.Add(encode(other, e))
	}
	f.Add([]byte(magic))
	f.Fuzz(func(t *testing.T, b []byte) {
		e, ok := decode(mine, b)
		if !ok {
			if e.Document != nil || e.Reason != "" {
				t.Errorf("refused, and yet %+v", e)
			}
			return
		}
		if again := encode(mine, e); !bytes.Equal(again, b) {
			t.Errorf("%x is read as %+v, which is %x", b, e, again)
		}
		if _, ok := decode(other, b); ok {
			t.Errorf("%x is an entry of two deliveries", b)
		}
	})
}
