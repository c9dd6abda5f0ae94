package shelf

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strings"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/durable"
)

// A Shelf keeps results. It is safe for concurrent use, also by several
// processes over one directory. Close it when it is no longer used. Its errors
// are those of package durable, but where a method says otherwise.
type Shelf struct {
	fsys   durable.FS
	limits Limits
	now    func() time.Time
	lock   durable.File
}

const (
	lockName  = "lock"
	usageName = "usage"
	usageSize = 16
	keyName   = "poll-key"
	keySize   = 32
	dayLayout = "2006-01-02"
)

// Open opens the shelf in fsys, an existing directory, makes what is missing in
// it, removes what has expired and counts the rest.
func Open(ctx context.Context, fsys durable.FS, limits Limits, now func() time.Time) (*Shelf, error) {
	lock, err := fsys.OpenFile(lockName, os.O_RDWR|os.O_CREATE, durable.FilePerm)
	if err != nil {
		return nil, fmt.Errorf("open results: %w", err)
	}
	s := &Shelf{fsys: fsys, limits: limits.WithDefaults(), now: now, lock: lock}
	if err := s.locked(ctx, s.recount); err != nil {
		return nil, errors.Join(fmt.Errorf("open results: %w", err), lock.Close())
	}
	return s, nil
}

// Close frees the shelf. What was put stays.
func (s *Shelf) Close() error { return s.lock.Close() }

// PollKey returns the key that poll secrets are made from, the same for all
// processes that share the directory, and makes it when there is none.
func (s *Shelf) PollKey(ctx context.Context) (fencepost.Secret, error) {
	var key []byte
	err := s.locked(ctx, func() (err error) {
		key, err = durable.ReadFile(s.fsys, keyName, keySize)
		if errors.Is(err, fs.ErrNotExist) {
			key = make([]byte, keySize)
			_, _ = rand.Read(key) // never fails
			err = durable.WriteFile(s.fsys, keyName, key)
		}
		return err
	})
	defer clear(key)
	switch {
	case err != nil:
		return fencepost.Secret{}, fmt.Errorf("read %s of results: %w", keyName, err)
	case len(key) != keySize:
		return fencepost.Secret{}, fmt.Errorf("read %s of results: %w", keyName, Damaged("results.key"))
	}
	return fencepost.NewSecret(key), nil
}

// Put tells the result of a delivery, durably. Telling the same again does
// nothing, and a result takes the place of an end without one. An error with
// [fencepost.ReasonPublishConflict] means that another result is told of, one
// with [fencepost.ReasonFull] that there is no room; see also [Check].
func (s *Shelf) Put(ctx context.Context, d fencepost.DeliveryID, document []byte) error {
	err := Check(d, document)
	if err == nil {
		err = s.locked(ctx, func() error { return s.put(d, document) })
	}
	if err != nil {
		return fmt.Errorf("put result: %w", err)
	}
	return nil
}

func (s *Shelf) put(d fencepost.DeliveryID, document []byte) error {
	held, err := s.find(d)
	switch {
	case err != nil:
		return err
	case held.valid && !held.entry.Ended():
		if !bytes.Equal(held.entry.Document, document) {
			return Conflict("results.put")
		}
		return s.settle(held)
	}
	return s.write("results.put", d, held, Entry{Document: document})
}

// End tells durably that a delivery ended without a result, and why. It changes
// nothing where a result or an end is told of. An error with
// [fencepost.ReasonFull] means that there is no room.
func (s *Shelf) End(ctx context.Context, d fencepost.DeliveryID, why fencepost.Reason) error {
	err := CheckEnd(d, why)
	if err == nil {
		err = s.locked(ctx, func() error { return s.end(d, why) })
	}
	if err != nil {
		return fmt.Errorf("put end: %w", err)
	}
	return nil
}

func (s *Shelf) end(d fencepost.DeliveryID, why fencepost.Reason) error {
	held, err := s.find(d)
	switch {
	case err != nil:
		return err
	case held.valid:
		return s.settle(held)
	}
	return s.write("results.end", d, held, Entry{Reason: why})
}

// Get returns what is told of a delivery, if anything is. Its error has
// [fencepost.ReasonCorrupt] where that is damaged.
func (s *Shelf) Get(_ context.Context, d fencepost.DeliveryID) (Entry, bool, error) {
	held, err := s.find(d)
	switch {
	case err != nil:
		return Entry{}, false, fmt.Errorf("get result: %w", err)
	case held.dir == "":
		return Entry{}, false, nil
	case !held.valid:
		return Entry{}, false, fmt.Errorf("get result: %w", Damaged("results.get"))
	}
	return held.entry, true, nil
}

// Expire removes what has outlived its TTL. Call it now and then.
func (s *Shelf) Expire(ctx context.Context) error {
	if err := s.locked(ctx, s.recount); err != nil {
		return fmt.Errorf("expire results: %w", err)
	}
	return nil
}

// Usage returns how many entries there are, and their bytes.
func (s *Shelf) Usage(ctx context.Context) (count, bytes int64, err error) {
	err = s.locked(ctx, func() error {
		u, err := s.usage()
		count, bytes = u.count, u.bytes
		return err
	})
	return count, bytes, err
}

// A held is what the shelf has of a delivery: nothing where dir is empty.
type held struct {
	dir   string
	size  int64
	entry Entry
	valid bool
}

// find looks the days through, the newest first: the most that there are is
// one more than the TTL has days, and one for each by which a clock was ahead.
func (s *Shelf) find(d fencepost.DeliveryID) (held, error) {
	days, err := s.days()
	if err != nil {
		return held{}, err
	}
	for i := len(days) - 1; i >= 0; i-- {
		name := path.Join(days[i], string(d))
		b, err := durable.ReadFile(s.fsys, name, int64(maxEntry))
		switch {
		case errors.Is(err, fs.ErrNotExist):
			continue
		case errors.Is(err, durable.ErrTooLarge):
			info, err := s.fsys.Stat(name)
			return held{dir: days[i], size: info.Size}, err
		case err != nil:
			return held{}, err
		}
		h := held{dir: days[i], size: int64(len(b))}
		h.entry, h.valid = decode(d, b)
		return h, nil
	}
	return held{}, nil
}

// settle makes durable what is there: the process that wrote it may have ended
// before its name was.
func (s *Shelf) settle(h held) error { return s.fsys.SyncDir(h.dir) }

// write writes an entry, in place of what is held of the delivery. The caller
// holds the lock.
func (s *Shelf) write(op string, d fencepost.DeliveryID, old held, e Entry) error {
	u, err := s.counted()
	if err != nil {
		return err
	}
	dir, more := old.dir, usage{count: 0, bytes: e.Size() - old.size}
	if dir == "" {
		dir, more = s.now().UTC().Format(dayLayout), usage{count: 1, bytes: e.Size()}
	}
	if u, err = s.makeRoom(op, u, more, dir); err != nil {
		return err
	}
	if err := durable.MkdirAll(s.fsys, dir); err != nil {
		return err
	}
	// The day may be of another process, which ended before its name was
	// durable: no entry is in it before.
	if err := s.fsys.SyncDir("."); err != nil {
		return err
	}
	// Counted before it is written: a crash between leaves the count too high,
	// and the next Open counts anew.
	if err := s.setUsage(usage{u.count + more.count, u.bytes + more.bytes}); err != nil {
		return err
	}
	return durable.WriteFile(s.fsys, path.Join(dir, string(d)), encode(d, e))
}

func (s *Shelf) locked(ctx context.Context, do func() error) error {
	if err := s.lock.Lock(ctx, durable.Exclusive); err != nil {
		return err
	}
	return errors.Join(do(), s.lock.Unlock())
}

// days lists the day directories, oldest first.
func (s *Shelf) days() ([]string, error) {
	infos, err := s.fsys.ReadDir(".")
	if err != nil {
		return nil, err
	}
	var days []string
	for _, info := range infos {
		if _, err := time.Parse(dayLayout, info.Name); err == nil && info.Dir {
			days = append(days, info.Name)
		}
	}
	return days, nil
}

// recount removes the days that have expired and counts what is left. The
// caller holds the lock.
func (s *Shelf) recount() error {
	days, err := s.days()
	if err != nil {
		return err
	}
	var u usage
	for _, name := range days {
		began, err := time.Parse(dayLayout, name)
		if err != nil {
			return err
		}
		if !s.now().Before(began.Add(day + s.limits.TTL)) {
			if err := durable.RemoveAll(s.fsys, name); err != nil {
				return err
			}
			continue
		}
		entries, err := s.fsys.ReadDir(name)
		if err != nil {
			return err
		}
		for _, info := range entries {
			// A temporary file of a crash was never promised to anybody.
			if strings.HasSuffix(info.Name, durable.TempSuffix) {
				if err := s.fsys.Remove(path.Join(name, info.Name)); err != nil {
					return err
				}
				continue
			}
			u = usage{u.count + 1, u.bytes + info.Size}
		}
	}
	return s.setUsage(u)
}

// makeRoom evicts the oldest days until there is room for more, but neither
// the one that is written to nor those that may still be waited for.
func (s *Shelf) makeRoom(op string, u, more usage, writing string) (usage, error) {
	fits := func() bool {
		return u.count+more.count <= s.limits.Count && u.bytes+more.bytes <= s.limits.TotalBytes
	}
	if fits() {
		return u, nil
	}
	days, err := s.days()
	if err != nil {
		return u, err
	}
	awaited := s.now().UTC().Add(-Awaited).Format(dayLayout)
	for _, name := range days {
		if name >= awaited || name == writing {
			continue
		}
		entries, err := s.fsys.ReadDir(name)
		if err != nil {
			return u, err
		}
		for _, info := range entries {
			if fits() {
				return u, nil
			}
			if err := s.fsys.Remove(path.Join(name, info.Name)); err != nil {
				return u, err
			}
			u = usage{u.count - 1, u.bytes - info.Size}
		}
	}
	if !fits() {
		// What was evicted is gone all the same.
		return u, errors.Join(Full(op), s.setUsage(u))
	}
	return u, nil
}

type usage struct{ count, bytes int64 }

// counted is the usage, counted anew where the cache can't be believed.
func (s *Shelf) counted() (usage, error) {
	u, err := s.usage()
	if errors.Is(err, errCount) || errors.Is(err, fs.ErrNotExist) {
		if err := s.recount(); err != nil {
			return usage{}, err
		}
		u, err = s.usage()
	}
	return u, err
}

// errCount: the cache of the usage has another size.
var errCount = errors.New("the count of results is damaged")

func (s *Shelf) usage() (usage, error) {
	b, err := durable.ReadFile(s.fsys, usageName, usageSize)
	switch {
	case errors.Is(err, durable.ErrTooLarge), err == nil && len(b) != usageSize:
		return usage{}, errCount
	case err != nil:
		return usage{}, err
	}
	return usage{
		count: int64(binary.BigEndian.Uint64(b)),
		bytes: int64(binary.BigEndian.Uint64(b[8:])),
	}, nil
}

// setUsage writes the cache in place and without a sync: every Open counts
// anew.
func (s *Shelf) setUsage(u usage) (err error) {
	f, err := s.fsys.OpenFile(usageName, os.O_WRONLY|os.O_CREATE, durable.FilePerm)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	var b [usageSize]byte
	binary.BigEndian.PutUint64(b[:], uint64(u.count))
	binary.BigEndian.PutUint64(b[8:], uint64(u.bytes))
	_, err = f.WriteAt(b[:], 0)
	return err
}
