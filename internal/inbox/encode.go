package inbox

import (
	"fmt"

	"github.com/fencepost/fencepost"
)

// Encode returns a request as an entry holds it, and as [Decode] reads it; it
// is for stores that don't keep files. maxBody bounds the body, in bytes. Its
// error matches [fencepost.ErrZeroValue] or [fencepost.ErrTooLarge].
func Encode(d fencepost.AcceptedDelivery, headers fencepost.Headers, body []byte, maxBody int) ([]byte, error) {
	if !d.Valid() {
		return nil, fmt.Errorf("record: %w", fencepost.ErrZeroValue)
	}
	texts := headers.Size() + len(d.Route()) + len(d.Anchor())
	if len(body) > maxBody || headers.Len() > maxHeaders || texts > maxText {
		return nil, fmt.Errorf("record %d bytes of body and %d of text: %w", len(body), texts, fencepost.ErrTooLarge)
	}
	meta := appendMeta(make([]byte, 0, texts+headers.Len()*8+metaFixed+len(body)), recordedOf(d, headers, body))
	return append(meta, body...), nil
}

// Decode reads what [Encode] returned. The body is part of entry. Its error
// matches [fencepost.ErrMalformed].
func Decode(entry []byte) (Recorded, error) { return decodeEntry(entry) }

// EndsLater reports whether the replay lifetime that ends at a outlasts the
// one that ends at b, both in Unix nanoseconds and 0 for permanent.
func EndsLater(a, b int64) bool { return endsLater(a, b) }
