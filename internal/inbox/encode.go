package inbox

import (
	"fmt"

	"github.com/fencepost/fencepost"
)

// Encode returns a request as an entry holds it, and as [Decode] reads it; it
// is for stores that don't keep files. maxBody bounds the body, in bytes. Its
// error matches [fencepost.ErrZeroValue] or [fencepost.ErrTooLarge].
func Encode(d fencepost.AcceptedDelivery, headers fencepost.Headers, body []byte, maxBody int) ([]byte, error) {
	meta, err := encodeMeta(d, headers, body, maxBody, len(body))
	if err != nil {
		return nil, err
	}
	return append(meta, body...), nil
}

// encodeMeta is what stands before the body of an entry, with room for that
// many bytes behind it. Its errors are those of [Encode].
func encodeMeta(d fencepost.AcceptedDelivery, headers fencepost.Headers, body []byte, maxBody, room int) ([]byte, error) {
	if !d.Valid() {
		return nil, fmt.Errorf("record: %w", fencepost.ErrZeroValue)
	}
	texts := headers.Size() + len(d.Route()) + len(d.Anchor())
	if len(body) > maxBody || headers.Len() > maxHeaders || texts > maxText {
		return nil, fmt.Errorf("record %d bytes of body and %d of text: %w", len(body), texts, fencepost.ErrTooLarge)
	}
	return appendMeta(make([]byte, 0, texts+headers.Len()*8+metaFixed+room), recordedOf(d, headers, body)), nil
}
