package sqlinbox

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/inbox"
	"github.com/fencepost/fencepost/internal/store"
)

// Read returns what was recorded of an item that this process has. The caller
// owns the result. Its error matches [inbox.ErrNotLeased] or [inbox.ErrClosed],
// or is one of the database's; bytes that do not verify are
// [inbox.ErrCorrupt], which [Inbox.Health] reports from then on; such an item
// can only be Done.
func (b *Inbox) Read(ctx context.Context, id inbox.ItemID) (inbox.Recorded, error) {
	if err := context.Cause(ctx); err != nil {
		return inbox.Recorded{}, err
	}
	if err := b.begin(); err != nil {
		return inbox.Recorded{}, err
	}
	defer b.users.Done()
	b.mu.Lock()
	owner, version := b.owner, b.held[id.Serial()]
	b.mu.Unlock()
	if version == 0 {
		return inbox.Recorded{}, notHeld(id)
	}
	var s stored
	found := false
	err := b.read(ctx, "inbox.read", func(ctx context.Context, tx *store.Tx) (err error) {
		found, err = tx.One(ctx, "select version, key, binding, received_ns, digest, body from inbox_entries where serial = ? and owner = ?",
			[]any{int64(id.Serial()), owner}, &version, &s.key, &s.binding, &s.received, &s.digest, &s.body)
		return err
	})
	if err != nil {
		return inbox.Recorded{}, err
	}
	if !found {
		b.drop(owner, id)
		return inbox.Recorded{}, notHeld(id)
	}
	b.mu.Lock()
	if b.owner == owner {
		b.held[id.Serial()] = version
	}
	b.mu.Unlock()
	r, err := s.verified()
	if err != nil {
		b.mu.Lock()
		b.corrupt++
		b.mu.Unlock()
		return inbox.Recorded{}, &fencepost.Error{
			Op: "inbox.read", Reason: fencepost.ReasonCorrupt, Err: fmt.Errorf("inbox item %s: %w: %w", id, inbox.ErrCorrupt, err),
		}
	}
	return r, nil
}

// stored is an entry as its row has it.
type stored struct {
	key, binding, digest string
	received             int64
	body                 []byte
}

func (s stored) verified() (inbox.Recorded, error) {
	if digest(s.body) != s.digest {
		return inbox.Recorded{}, errors.New("its bytes are not those of its digest")
	}
	r, err := inbox.Decode(s.body)
	if err != nil {
		return inbox.Recorded{}, err
	}
	if r.Key.Hex() != s.key || hex.EncodeToString(r.Binding[:]) != s.binding || r.Received.UnixNano() != s.received {
		return inbox.Recorded{}, errors.New("its row is another entry's")
	}
	return r, nil
}

func digest(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// Stats returns what the inbox holds, all processes together, as it was a
// moment ago; Leased counts what this process has.
func (b *Inbox) Stats() inbox.Stats {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.stats
	s.Leased = len(b.held)
	return s
}

// Health returns nil if all is well. Otherwise it joins [inbox.ErrCorrupt], if
// entries were read that don't verify, and what the database can't do now.
func (b *Inbox) Health() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	errs := []error{b.trouble, b.looking}
	if b.corrupt > 0 {
		errs = append(errs, fmt.Errorf("%d entries: %w", b.corrupt, inbox.ErrCorrupt))
	}
	return errors.Join(errs...)
}
