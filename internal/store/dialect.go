package store

import (
	"strconv"
	"strings"
)

// now stands in queries for the store's clock.
const now = "{now}"

// postgresNow is the server's clock when the statement needs it first, not at
// the transaction's beginning. As a query of its own it is asked once, so that
// what is compared with it can be found by an index.
const postgresNow = "(select (extract(epoch from clock_timestamp())*1000000)::bigint)"

// A statement is a query in one dialect.
type statement struct {
	text string
	// clock: the last argument is the time.
	clock bool
}

// rebind turns a query into k's dialect. Queries hold `?` and `{now}` for
// nothing else.
func rebind(k Kind, query string) statement {
	mark := "?"
	if k == Postgres {
		mark = "$"
		query = strings.ReplaceAll(query, now, postgresNow)
	}
	parts := strings.Split(query, "?")
	var b strings.Builder
	for i, part := range parts {
		b.WriteString(part)
		if i < len(parts)-1 {
			b.WriteString(mark + strconv.Itoa(i+1))
		}
	}
	s := statement{text: b.String()}
	if strings.Contains(s.text, now) {
		s.clock = true
		s.text = strings.ReplaceAll(s.text, now, mark+strconv.Itoa(len(parts)))
	}
	return s
}

// bind returns the statement of a query and its arguments.
func (d *DB) bind(query string, args []any) (string, []any) {
	s, ok := d.statements.Load(query)
	if !ok {
		s, _ = d.statements.LoadOrStore(query, rebind(d.kind, query))
	}
	st := s.(statement)
	if st.clock {
		args = append(args[:len(args):len(args)], Micros(d.opts.Now()))
	}
	return st.text, args
}
