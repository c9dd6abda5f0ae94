package sourcedb

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/source"
	"github.com/fencepost/fencepost/internal/store"
)

// A zeroer is a value whose zero is stored as "".
type zeroer interface {
	comparable
	String() string
}

// text is how an id is stored: as it is printed, "" for none.
func text[T zeroer](id T) string {
	var zero T
	if id == zero {
		return ""
	}
	return id.String()
}

func commitText(c fencepost.CommitID) string { return text(c.ObjectID) }
func treeText(t fencepost.TreeID) string     { return text(t.ObjectID) }

// hexText is how digests and tokens are stored.
func hexText(b []byte) string {
	for _, c := range b {
		if c != 0 {
			return hex.EncodeToString(b)
		}
	}
	return ""
}

func bit(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

// refusedText is how a log's refusals are stored: JSON, "" for none.
func refusedText(all []source.Refusal) (string, error) {
	if len(all) == 0 {
		return "", nil
	}
	rows := make([]refusal, len(all))
	for i, r := range all {
		rows[i] = refusal{r.Entry, string(r.Reason)}
	}
	b, err := json.Marshal(rows)
	if err != nil {
		return "", fmt.Errorf("encode refusals: %w", err)
	}
	return string(b), nil
}

type refusal struct {
	Entry  int64  `json:"entry"`
	Reason string `json:"reason"`
}

// A decoder turns columns into values. Its first error stays.
type decoder struct{ err error }

func (d *decoder) fail(column string) {
	if d.err == nil {
		d.err = &fencepost.Error{
			Op: "read source rows", Reason: fencepost.ReasonCorrupt,
			Err: fmt.Errorf("column %s: %w", column, fencepost.ErrMalformed),
		}
	}
}

// parsed parses a column by parse; "" is the zero value.
func parsed[T any](d *decoder, column, s string, parse func(string) (T, error)) (v T) {
	if s == "" {
		return v
	}
	v, err := parse(s)
	if err != nil {
		d.fail(column)
	}
	return v
}

func (d *decoder) hex(column, s string, into []byte) {
	clear(into)
	if s == "" {
		return
	}
	b, err := hex.DecodeString(s)
	if err != nil || len(b) != len(into) {
		d.fail(column)
		return
	}
	copy(into, b)
}

func (d *decoder) fence(column string, n int64) uint64 {
	if n < 0 {
		d.fail(column)
		return 0
	}
	return uint64(n)
}

func (d *decoder) refused(s string) []source.Refusal {
	if s == "" {
		return nil
	}
	var rows []refusal
	if json.Unmarshal([]byte(s), &rows) != nil {
		d.fail("refused")
		return nil
	}
	all := make([]source.Refusal, len(rows))
	for i, r := range rows {
		all[i] = source.Refusal{Entry: r.Entry, Reason: fencepost.Reason(r.Reason)}
	}
	return all
}

func at(us int64) time.Time { return store.FromMicros(us) }
func us(t time.Time) int64  { return store.Micros(t) }
