package inbox

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/durable"
	"github.com/fencepost/fencepost/internal/durable/frame"
)

// An Inbox holds recorded requests until they are done. It is safe for
// concurrent use; [Inbox.Run] should run for as long as it is open.
type Inbox struct {
	cfg  Config
	root *durable.Root
	uuid [16]byte
	own  *journal

	// users are calls under way, which Close waits for.
	users sync.WaitGroup
	// shut is closed by Close.
	shut chan struct{}
	// news has a token while entries may be ready, for one who waits.
	news chan struct{}
	// work has a token while there is something for upkeep.
	work chan struct{}

	mu sync.Mutex
	// Guarded by mu.
	index   index
	adopted []*journal
	disk    int64 // bytes of all segments
	damage  []*frame.CorruptError
	// What the last round of upkeep, and of adopting, could not do.
	tidying, adopting error
	closed            bool
}

// An Item is an entry that was handed out.
type Item struct {
	// ID names it; see [ParseItemID].
	ID ItemID
	// Key is the delivery's.
	Key fencepost.DeliveryKey
	// Received is when it came, UTC.
	Received time.Time
}

// Stats is what an inbox holds.
type Stats struct {
	// Entries is how many are not done, and Leased how many of those are
	// handed out.
	Entries, Leased int
	// Bytes is the size of all segment files, done entries and free room
	// included.
	Bytes int64
	// Oldest is the receipt time of the oldest entry that is not handed out;
	// zero if there is none.
	Oldest time.Time
}

const (
	formatName  = "FORMAT"
	slotsDir    = "slots"
	formatFirst = "fencepost inbox 1"
	formatLimit = 256
	// slotCount is how many processes can use one inbox.
	slotCount = 64
)

// Open opens the inbox in fsys, a directory of its own that exists, and makes
// it if the directory is empty. It takes a free slot with its log, and adopts
// the logs of all dead processes; what they recorded and did not finish is
// handed out again. ctx ends the opening alone.
//
// Its error matches [ErrVersion], [ErrNoSlot], [durable.ErrUnsuitable],
// [durable.ErrPoisoned] or [fencepost.ErrMalformed]. Damage of the logs is no
// error: see [Inbox.Health].
func Open(ctx context.Context, fsys durable.FS, cfg Config) (*Inbox, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	if _, err := durable.CheckVolume(fsys, "inbox", cfg.NotDurable); err != nil {
		return nil, err
	}
	uuid, err := openFormat(fsys)
	if err != nil {
		return nil, fmt.Errorf("open inbox: %w", err)
	}
	root, err := durable.OpenRoot(fsys)
	if err != nil {
		return nil, fmt.Errorf("open inbox: %w", err)
	}
	b := &Inbox{
		cfg: cfg, root: root, uuid: uuid, index: newIndex(),
		shut: make(chan struct{}), news: make(chan struct{}, 1), work: make(chan struct{}, 1),
	}
	if err := b.open(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("open inbox: %w", err), b.closeFiles())
	}
	return b, nil
}

func (b *Inbox) open(ctx context.Context) error {
	for slot := range slotCount {
		j, err := b.takeSlot(slot)
		if err != nil {
			return err
		}
		if j == nil {
			continue
		}
		b.own = j
		if err := b.recover(ctx, j); err != nil {
			return err
		}
		return b.adopt(ctx)
	}
	return ErrNoSlot
}

// openFormat reads the file that says what the directory is, and makes it in
// an empty one. Of several processes that make it, one succeeds.
func openFormat(fsys durable.FS) ([16]byte, error) {
	uuid, err := readFormat(fsys)
	if !errors.Is(err, fs.ErrNotExist) {
		return uuid, err
	}
	held, err := fsys.ReadDir(".")
	if err != nil {
		return uuid, err
	}
	for _, info := range held {
		switch {
		case info.Name == slotsDir, info.Name == logsDir, info.Name == durable.HealthName,
			strings.HasSuffix(info.Name, durable.TempSuffix):
		case info.Name == formatName: // made meanwhile
		default:
			return uuid, fmt.Errorf("%s in a directory without %s: %w", info.Name, formatName, ErrVersion)
		}
	}
	for _, dir := range []string{slotsDir, logsDir} {
		if err := durable.MkdirAll(fsys, dir); err != nil {
			return uuid, err
		}
		// Another process may have made it, and not synced it yet.
		if err := fsys.SyncDir("."); err != nil {
			return uuid, err
		}
	}
	var fresh [16]byte
	if _, err := rand.Read(fresh[:]); err != nil {
		return uuid, err
	}
	text := formatFirst + "\nuuid " + hex.EncodeToString(fresh[:]) + "\n"
	temp := formatName + "." + rand.Text() + durable.TempSuffix
	err = durable.PublishFile(fsys, temp, formatName, []byte(text))
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return uuid, err
	}
	if err := fsys.SyncDir("."); err != nil {
		return uuid, err
	}
	return readFormat(fsys)
}

func readFormat(fsys durable.FS) (uuid [16]byte, err error) {
	text, err := durable.ReadFile(fsys, formatName, formatLimit)
	if err != nil {
		return uuid, err
	}
	digits, ok := strings.CutPrefix(string(text), formatFirst+"\nuuid ")
	digits, whole := strings.CutSuffix(digits, "\n")
	raw, err := hex.DecodeString(digits)
	if !ok || !whole || err != nil || len(raw) != len(uuid) {
		return uuid, fmt.Errorf("%s: %w", formatName, ErrVersion)
	}
	copy(uuid[:], raw)
	return uuid, nil
}

// takeSlot takes the lock of a slot, unless a living process has it; then
// the journal is nil.
func (b *Inbox) takeSlot(slot int) (*journal, error) {
	name := fmt.Sprintf("%s/%03d", slotsDir, slot)
	lock, err := b.root.OpenFile(name, os.O_RDWR|os.O_CREATE, durable.FilePerm)
	if err != nil {
		return nil, err
	}
	taken, err := lock.TryLock(durable.Exclusive)
	if err != nil || !taken {
		return nil, errors.Join(err, lock.Close())
	}
	return &journal{
		box: b, slot: slot, lock: lock, next: newBatch(),
		id: frame.Log{UUID: b.uuid, Shard: uint32(slot)},
	}, nil
}

// begin counts a call that uses the files, unless the inbox is closed. The
// caller then calls users.Done.
func (b *Inbox) begin() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return ErrClosed
	}
	b.users.Add(1)
	return nil
}

// Record records a request durably and returns when it is on stable storage.
// headers are those that the route's verifier needs. It uses body until it
// returns, and keeps nothing of it. ctx can end the wait for another call
// that records the same delivery; its own write is not given up once begun.
//
// Its error matches [ErrFull], [ErrClosed], [fencepost.ErrTooLarge],
// [fencepost.ErrZeroValue] or [durable.ErrPoisoned]. After an error the
// request may have been recorded all the same, unless it is [ErrFull].
func (b *Inbox) Record(ctx context.Context, d fencepost.AcceptedDelivery, headers fencepost.Headers, body []byte) (Outcome, error) {
	if !d.Valid() {
		return 0, fmt.Errorf("record: %w", fencepost.ErrZeroValue)
	}
	texts := headers.Size() + len(d.Route()) + len(d.Anchor())
	if len(body) > b.cfg.MaxBody || headers.Len() > maxHeaders || texts > maxText {
		return 0, fmt.Errorf("record %d bytes of body and %d of text: %w", len(body), texts, fencepost.ErrTooLarge)
	}
	if err := context.Cause(ctx); err != nil {
		return 0, err
	}
	if err := b.begin(); err != nil {
		return 0, err
	}
	defer b.users.Done()
	meta := appendMeta(make([]byte, 0, texts+headers.Len()*8+metaFixed), recordedOf(d, headers, body))
	for {
		r := &request{typ: frameEntry, meta: meta, body: body}
		a, err := b.admit(d, r)
		switch {
		case err != nil:
			return 0, err
		case a.flight != nil:
			// The first copy is on its way: its end decides.
			select {
			case <-a.flight.done:
				continue
			case <-ctx.Done():
				return 0, context.Cause(ctx)
			}
		case a.batch == nil:
			return a.outcome, nil
		}
		b.own.await(a.batch, a.leads)
		if r.err != nil {
			return 0, fmt.Errorf("record: %w", r.err)
		}
		return a.outcome, nil
	}
}

func recordedOf(d fencepost.AcceptedDelivery, headers fencepost.Headers, body []byte) Recorded {
	return Recorded{
		Route: d.Route(), Received: d.Received(), Anchor: d.Anchor(), Headers: headers, Body: body,
		Key: d.Key(), Binding: d.Binding(), Lifetime: d.Lifetime(),
	}
}

// An admission is how Record goes on: wait for another copy's flight; wait
// for its own batch; or, with neither, answer at once.
type admission struct {
	flight  *batch
	batch   *batch
	leads   bool
	outcome Outcome
}

// admit looks at what is known of a delivery, and has r written if it is new.
func (b *Inbox) admit(d fencepost.AcceptedDelivery, r *request) (admission, error) {
	if err := b.root.Err(); err != nil {
		return admission{}, fmt.Errorf("record: %w", err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	end := endNanos(d.Lifetime().End())
	a := admission{outcome: Accepted}
	if e := b.index.byKey[d.Key()]; e != nil {
		switch {
		case e.binding != d.Binding():
			return admission{outcome: Conflict}, nil
		case e.state == flying:
			return admission{flight: e.flight}, nil
		case !endsLater(end, e.end):
			return admission{outcome: Replayed}, nil
		}
		// To be recognised for longer it has to be on the disk (DESIGN §4).
		a.outcome = Replayed
	} else if b.index.count >= b.cfg.MaxEntries {
		return admission{}, &FullError{Bound: boundEntries, RetryAfter: b.cfg.RetryAfter}
	}
	r.entry = &entry{
		key: d.Key(), binding: d.Binding(), received: d.Received().UnixNano(), end: end,
		log: b.own, state: flying,
	}
	b.index.enter(r.entry)
	a.batch, a.leads = b.own.join(r)
	r.entry.flight = a.batch
	return a, nil
}

// settle enters into the index what a commit has stored, and forgets what it
// has not. The leader calls it before anyone learns of the commit.
func (b *Inbox) settle(requests []*request) {
	stored := false
	b.mu.Lock()
	for _, r := range requests {
		switch {
		case r.typ == frameEntry && r.err != nil:
			b.index.drop(r.entry)
		case r.typ == frameEntry:
			r.entry.serial = r.lsn
			b.index.place(r.entry, r)
			b.index.store(r.entry)
			b.replace(r.entry)
			stored = true
		case r.typ == frameMoved && r.err == nil:
			b.moved(r)
		}
	}
	b.mu.Unlock()
	if stored {
		signal(b.news)
	}
	signal(b.work)
}

// replace decides between a stored entry and another of its key. Of two with
// one binding the one that is to be recognised longer stays, and the other is
// done with; unless that is handed out, when whoever has it says so, or what
// stays is not stored yet. Two bindings are two deliveries.
func (b *Inbox) replace(e *entry) {
	stays, goes := e, b.index.byKey[e.key]
	if goes == nil || goes == e {
		b.index.byKey[e.key] = e
		return
	}
	if goes.binding != e.binding {
		return
	}
	if !endsLater(stays.end, goes.end) {
		stays, goes = goes, stays
	}
	if goes.state == ready && stays.state != flying {
		b.index.drop(goes)
		goes.log.markDone(goes.serial, reasonRepeated)
	}
	b.index.byKey[e.key] = stays
}

// reasonRepeated marks an entry as done that a repeat of it has replaced.
const reasonRepeated fencepost.Reason = "repeated"

// moved gives an entry the place of its copy.
func (b *Inbox) moved(r *request) {
	e := r.entry
	if e.state == gone {
		// Its mark may be in a segment that is removed before the copy's.
		e.log.markDone(e.serial, fencepost.ReasonNone)
		return
	}
	b.index.unplace(e)
	b.index.place(e, r)
}

// signal leaves a token unless there is one.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Next hands out the entry that was received first among those that are not
// handed out, waiting for one. Its error is ctx's cause, or [ErrClosed].
func (b *Inbox) Next(ctx context.Context) (Item, error) {
	for {
		if err := context.Cause(ctx); err != nil {
			return Item{}, err
		}
		b.mu.Lock()
		closed := b.closed
		var e *entry
		if !closed {
			e = b.index.lease()
		}
		more := len(b.index.queue) > 0
		b.mu.Unlock()
		switch {
		case closed:
			return Item{}, ErrClosed
		case e != nil:
			if more {
				signal(b.news)
			}
			return e.item(), nil
		}
		select {
		case <-b.news:
		case <-b.shut:
		case <-ctx.Done():
		}
	}
}

// leasedEntry returns an entry that is handed out; mu is held.
func (b *Inbox) leasedEntry(id ItemID) (*entry, error) {
	e := b.index.leased[id]
	if e == nil {
		return nil, fmt.Errorf("inbox item %s: %w", id, ErrNotLeased)
	}
	return e, nil
}

// Release puts an item back, to be handed out again.
func (b *Inbox) Release(id ItemID) error {
	b.mu.Lock()
	e, err := b.leasedEntry(id)
	if err == nil {
		b.index.release(e)
	}
	b.mu.Unlock()
	signal(b.news)
	return err
}

// Done forgets an item for good; outcome is kept beside it for people, and
// may be empty. It does not wait for the disk: after a crash the item may be
// handed out once more, so whoever works on it must know that it is
// completed. Its error matches [ErrNotLeased] or [ErrClosed].
func (b *Inbox) Done(id ItemID, outcome fencepost.Reason) error {
	if err := b.begin(); err != nil {
		return err
	}
	defer b.users.Done()
	b.mu.Lock()
	e, err := b.leasedEntry(id)
	if err == nil {
		b.index.drop(e)
	}
	b.mu.Unlock()
	if err != nil {
		return err
	}
	e.log.markDone(e.serial, outcome)
	signal(b.work)
	return nil
}

// Read returns what was recorded of an item that is handed out. The caller
// owns the result. Its error matches [ErrNotLeased] or [ErrClosed]; bytes
// that do not verify are a [frame.CorruptError], which [Inbox.Health] reports
// from then on; such an item can only be Done.
func (b *Inbox) Read(ctx context.Context, id ItemID) (Recorded, error) {
	if err := context.Cause(ctx); err != nil {
		return Recorded{}, err
	}
	if err := b.begin(); err != nil {
		return Recorded{}, err
	}
	defer b.users.Done()
	payload, typ, err := b.readFrame(id)
	if err != nil {
		return Recorded{}, err
	}
	if typ == frameMoved {
		payload = payload[serialSize:]
	}
	return decodeEntry(payload)
}

// readFrame returns the verified payload of an item's frame.
func (b *Inbox) readFrame(id ItemID) ([]byte, uint8, error) {
	b.mu.Lock()
	e, err := b.leasedEntry(id)
	if err != nil {
		b.mu.Unlock()
		return nil, 0, err
	}
	b.mu.Unlock()
	f, err := b.load(e)
	return f.Payload, f.Type, err
}

// load reads the frame of an entry and verifies it whole.
func (b *Inbox) load(e *entry) (frame.Frame, error) {
	b.mu.Lock()
	if e.state == gone || e.state == flying {
		b.mu.Unlock()
		return frame.Frame{}, ErrNotLeased
	}
	seg, offset, size := e.seg, e.offset, e.size
	seg.readers++
	b.mu.Unlock()
	defer func() {
		b.mu.Lock()
		seg.readers--
		b.mu.Unlock()
		signal(b.work) // the segment may have waited for this
	}()
	buf := make([]byte, size)
	n, err := seg.file.ReadAt(buf, offset)
	if err != nil && !errors.Is(err, io.EOF) {
		return frame.Frame{}, fmt.Errorf("read inbox entry: %w", err)
	}
	f, err := seg.header.Seed().Decode(buf[:n], offset)
	if err == nil {
		var s stored
		if s, err = decodeFrame(f); err == nil && (s.serial != e.serial || s.Key != e.key || s.Binding != e.binding) {
			err = errors.New("another entry than was recorded")
		}
	}
	if err != nil {
		damage := &frame.CorruptError{File: seg.name, Offset: offset, Why: err.Error()}
		b.damaged(seg, damage)
		return frame.Frame{}, damage
	}
	return f, nil
}

// damaged reports damage of a segment, which may be nil if there is none to
// keep.
func (b *Inbox) damaged(seg *segment, damage *frame.CorruptError) {
	b.mu.Lock()
	if seg != nil {
		seg.damaged = true
	}
	known := slices.ContainsFunc(b.damage, func(d *frame.CorruptError) bool {
		return d.File == damage.File && d.Offset == damage.Offset
	})
	if !known {
		b.damage = append(b.damage, damage)
	}
	b.mu.Unlock()
	if !known {
		b.cfg.OnDamage(damage)
	}
}

// Health returns nil if all is well: no failed sync, no damage, no trouble in
// the upkeep. Otherwise it joins the [durable.PoisonedError], each
// [frame.CorruptError], and the last trouble. A damaged inbox still serves
// what verifies and records what is new.
func (b *Inbox) Health() error {
	errs := []error{b.root.Err()}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, d := range b.damage {
		errs = append(errs, d)
	}
	return errors.Join(append(errs, b.tidying, b.adopting)...)
}

// Stats returns what the inbox holds now.
func (b *Inbox) Stats() Stats {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := Stats{Entries: b.index.count, Leased: len(b.index.leased), Bytes: b.disk}
	if len(b.index.queue) > 0 {
		s.Oldest = time.Unix(0, b.index.queue[0].received).UTC()
	}
	return s
}

// Close waits for the calls under way, writes the marks that wait and frees
// the slots. Later calls are [ErrClosed]. What is not done is handed out by
// the next who opens the inbox.
func (b *Inbox) Close() error {
	b.mu.Lock()
	if b.closed {
		b.mu.Unlock()
		return ErrClosed
	}
	b.closed = true
	b.mu.Unlock()
	close(b.shut)
	b.users.Wait()
	var errs []error
	for _, j := range b.journals() {
		errs = append(errs, j.flush())
	}
	return errors.Join(append(errs, b.closeFiles())...)
}

// journals lists the logs that this process owns.
func (b *Inbox) journals() []*journal {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := slices.Clone(b.adopted)
	if b.own != nil {
		all = append(all, b.own)
	}
	return all
}

func (b *Inbox) closeFiles() error {
	var errs []error
	for _, j := range b.journals() {
		errs = append(errs, j.close())
	}
	return errors.Join(append(errs, b.root.Close())...)
}
