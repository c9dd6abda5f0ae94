package sqlnotebook

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/gate"
	"github.com/fencepost/fencepost/internal/store"
)

// maxRequests bounds the requests that are remembered for one head.
const maxRequests = 16

// A head is what is remembered of one gate and head. Version 0: nothing is.
type head struct {
	version  int64
	requests []int64
	standing gate.Standing
}

// place is where the head of a subject stands.
func place(g gate.Name, s gate.Subject) (bucket int64, key string) {
	sum := fencepost.NewEncoder("fencepost.notebook-head/v1").Text(string(g)).Bytes(s.Head.ObjectID[:]).Sum()
	return int64(sum[0]) % buckets, fmt.Sprintf("%x", sum)
}

func readHead(ctx context.Context, tx *store.Tx, key string) (h head, err error) {
	var requests, delivery string
	var received int64
	found, err := tx.One(ctx, "select version, requests, received_ns, delivery from gate_heads where head = ?", []any{key},
		&h.version, &requests, &received, &delivery)
	if err != nil || !found {
		return head{}, err
	}
	for text := range strings.FieldsSeq(requests) {
		number, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return head{}, corrupt("a head's requests")
		}
		h.requests = append(h.requests, number)
	}
	if delivery == "" {
		return h, nil
	}
	h.standing.Received = fromNanos(received)
	if h.standing.Delivery, err = fencepost.ParseDeliveryKey(delivery); err != nil {
		return head{}, corrupt("a head's delivery")
	}
	return h, nil
}

// columns are the head's values as they are stored.
func (h head) columns() (requests string, received int64, delivery string) {
	texts := make([]string, len(h.requests))
	for i, number := range h.requests {
		texts[i] = strconv.FormatInt(number, 10)
	}
	if !h.standing.Delivery.IsZero() {
		delivery = h.standing.Delivery.Hex()
	}
	return strings.Join(texts, " "), nanos(h.standing.Received), delivery
}

// look reads the head of a subject.
func (n *Notebook) look(ctx context.Context, op string, g gate.Name, s gate.Subject) (h head, err error) {
	_, key := place(g, s)
	err = n.read(ctx, op, func(ctx context.Context, tx *store.Tx) error {
		h, err = readHead(ctx, tx, key)
		return err
	})
	return h, err
}

// Enter implements [gate.Standings].
func (n *Notebook) Enter(ctx context.Context, g gate.Name, s gate.Subject) (gate.Standing, error) {
	h, err := n.look(ctx, "notebook.enter", g, s)
	if err != nil || slices.Contains(h.requests, s.Number) {
		return h.standing, err
	}
	return n.change(ctx, "notebook.enter", g, s, func(*head) {})
}

// Newest implements [gate.Standings].
func (n *Notebook) Newest(ctx context.Context, g gate.Name, s gate.Subject) (gate.Standing, error) {
	h, err := n.look(ctx, "notebook.newest", g, s)
	return h.standing, err
}

// Known implements [gate.Standings].
func (n *Notebook) Known(ctx context.Context, g gate.Name, s gate.Subject) (bool, error) {
	h, err := n.look(ctx, "notebook.known", g, s)
	return slices.Contains(h.requests, s.Number), err
}

// Advance implements [gate.Standings].
func (n *Notebook) Advance(ctx context.Context, g gate.Name, s gate.Subject, st gate.Standing) (gate.Standing, error) {
	return n.change(ctx, "notebook.advance", g, s, func(h *head) {
		if h.standing.Before(st) {
			h.standing = gate.Standing{Received: st.Received.UTC().Round(0), Delivery: st.Delivery}
		}
	})
}

// Leave implements [gate.Standings].
func (n *Notebook) Leave(ctx context.Context, g gate.Name, s gate.Subject) error {
	_, key := place(g, s)
	return n.write(ctx, "notebook.leave", func(ctx context.Context, tx *store.Tx) error {
		h, err := readHead(ctx, tx, key)
		i := slices.Index(h.requests, s.Number)
		if err != nil || i < 0 {
			return err
		}
		h.requests = slices.Delete(h.requests, i, i+1)
		requests, _, _ := h.columns()
		changed, err := tx.Exec(ctx, "update gate_heads set version = version + 1, requests = ? where head = ? and version = ?", requests, key, h.version)
		return once(changed, err)
	})
}

// change enters the subject, applies edit to its head and returns the standing
// that holds then.
func (n *Notebook) change(ctx context.Context, op string, g gate.Name, s gate.Subject, edit func(*head)) (gate.Standing, error) {
	bucket, key := place(g, s)
	var result gate.Standing
	err := n.write(ctx, op, func(ctx context.Context, tx *store.Tx) error {
		h, err := readHead(ctx, tx, key)
		if err != nil {
			return err
		}
		if !slices.Contains(h.requests, s.Number) {
			h.requests = append(h.requests[max(0, len(h.requests)-maxRequests+1):], s.Number)
		}
		edit(&h)
		result = h.standing
		if err := h.put(ctx, tx, bucket, key); err != nil || h.version > 0 {
			return err
		}
		return n.makeRoom(ctx, tx, bucket, key)
	})
	if err != nil {
		return gate.Standing{}, err
	}
	return result, nil
}

// put stores a head in place of the one of its version.
func (h head) put(ctx context.Context, tx *store.Tx, bucket int64, key string) error {
	requests, received, delivery := h.columns()
	if h.version == 0 {
		return once(tx.Exec(ctx, `insert into gate_heads (head, bucket, version, requests, received_ns, delivery, looked_at)
			values (?, ?, 1, ?, ?, ?, {now}) on conflict (head) do nothing`, key, bucket, requests, received, delivery))
	}
	return once(tx.Exec(ctx, `update gate_heads set version = version + 1, requests = ?, received_ns = ?, delivery = ?, looked_at = {now}
		where head = ? and version = ?`, requests, received, delivery, key, h.version))
}

// makeRoom drops the heads of a bucket that were looked at longest ago, but
// not keep.
func (n *Notebook) makeRoom(ctx context.Context, tx *store.Tx, bucket int64, keep string) error {
	_, err := tx.Exec(ctx, `delete from gate_heads where head in
		(select head from gate_heads where bucket = ? and head <> ? order by looked_at desc, head offset ?)`, bucket, keep, n.limits.heads-1)
	return err
}
