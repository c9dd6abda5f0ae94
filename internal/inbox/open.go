package inbox

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/fencepost/fencepost/internal/durable"
	"github.com/fencepost/fencepost/internal/durable/frame"
)

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
