package artifact

import (
	"context"
	"crypto/sha256"
	"encoding/base32"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strings"
	"time"

	"github.com/fencepost/fencepost/internal/durable"
)

// Errors of a [Store].
var (
	// ErrGone: expired, evicted, or never stored.
	ErrGone = errors.New("artifact is gone")
	// ErrDamaged: the stored bytes are not those that the reference names.
	ErrDamaged = errors.New("artifact is damaged")
	// ErrTooLarge: over [Limits.ArtifactBytes].
	ErrTooLarge = errors.New("artifact is too large")
	// ErrRef: not the form of a reference.
	ErrRef = errors.New("malformed artifact reference")
)

// Limits bound a [Store]. A zero field has its default.
type Limits struct {
	// ArtifactBytes is the most that one artifact may hold; default 4 MiB.
	ArtifactBytes int64
	// Count is how many artifacts are kept; default 20,000.
	Count int64
	// TotalBytes is how much they may hold together; default 1 GiB.
	TotalBytes int64
	// TTL is how long an artifact is kept at least, room permitting; it is
	// removed within a day after. Default 30 days.
	TTL time.Duration
}

// WithDefaults returns the limits with every zero field at its default.
func (l Limits) WithDefaults() Limits {
	setDefault(&l.ArtifactBytes, 4<<20)
	setDefault(&l.Count, 20_000)
	setDefault(&l.TotalBytes, 1<<30)
	setDefault(&l.TTL, 30*24*time.Hour)
	return l
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

var base32Lower = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// A Ref names an artifact by the SHA-256 of its bytes. The zero Ref names
// none.
type Ref struct{ sum [sha256.Size]byte }

// RefOf names data.
func RefOf(data []byte) Ref { return Ref{sha256.Sum256(data)} }

// ParseRef reads "art_" and 52 base32 characters. Its error matches [ErrRef].
func ParseRef(s string) (Ref, error) {
	rest, ok := strings.CutPrefix(s, "art_")
	raw, err := base32Lower.DecodeString(rest)
	if !ok || err != nil || len(raw) != sha256.Size {
		return Ref{}, fmt.Errorf("want art_ and 52 characters of a-z and 2-7: %w", ErrRef)
	}
	ref := Ref{[sha256.Size]byte(raw)}
	if ref.String() != s {
		return Ref{}, ErrRef
	}
	return ref, nil
}

// String returns "art_" and 52 base32 characters, safe in URLs, file names
// and logs.
func (r Ref) String() string { return "art_" + base32Lower.EncodeToString(r.sum[:]) }

// Names reports whether data is what r names.
func (r Ref) Names(data []byte) bool { return r.sum == sha256.Sum256(data) }

// Hex returns the SHA-256 of what r names, in 64 hexadecimal digits.
func (r Ref) Hex() string { return hex.EncodeToString(r.sum[:]) }

// A Store keeps artifacts. It is safe for concurrent use, also by several
// processes over one directory. Close it when it is no longer used.
type Store struct {
	fsys   durable.FS
	limits Limits
	now    func() time.Time
	lock   durable.File
}

const (
	lockName  = "lock"
	usageName = "usage"
	usageSize = 16
	dayLayout = "2006-01-02"
	day       = 24 * time.Hour
)

// Open opens the store in fsys, an existing directory, makes what is missing
// in it, removes what has expired and counts the rest.
func Open(ctx context.Context, fsys durable.FS, limits Limits, now func() time.Time) (*Store, error) {
	lock, err := fsys.OpenFile(lockName, os.O_RDWR|os.O_CREATE, durable.FilePerm)
	if err != nil {
		return nil, fmt.Errorf("open artifact store: %w", err)
	}
	s := &Store{fsys: fsys, limits: limits.WithDefaults(), now: now, lock: lock}
	if err := s.locked(ctx, func() error { return s.recount() }); err != nil {
		return nil, errors.Join(fmt.Errorf("open artifact store: %w", err), lock.Close())
	}
	return s, nil
}

// Close frees the store. What was stored stays.
func (s *Store) Close() error { return s.lock.Close() }

// Put stores a copy of data, durably, and returns its reference. Storing the
// same bytes again only makes them last longer. Its error matches
// [ErrTooLarge], or those of package durable.
func (s *Store) Put(ctx context.Context, data []byte) (Ref, error) {
	if int64(len(data)) > s.limits.ArtifactBytes {
		return Ref{}, fmt.Errorf("put artifact of %d bytes, at most %d: %w", len(data), s.limits.ArtifactBytes, ErrTooLarge)
	}
	ref := RefOf(data)
	err := s.locked(ctx, func() error { return s.put(ref, data) })
	if err != nil {
		return Ref{}, fmt.Errorf("put artifact: %w", err)
	}
	return ref, nil
}

func (s *Store) put(ref Ref, data []byte) error {
	dir := s.now().UTC().Format(dayLayout)
	name := path.Join(dir, ref.Hex())
	if held, err := s.read(name); err == nil && ref.Names(held) {
		return nil
	}
	u, err := s.usage()
	if errors.Is(err, ErrDamaged) || errors.Is(err, fs.ErrNotExist) {
		if err := s.recount(); err != nil {
			return err
		}
		u, err = s.usage()
	}
	if err != nil {
		return err
	}
	if u, err = s.makeRoom(u, int64(len(data))); err != nil {
		return err
	}
	if err := durable.MkdirAll(s.fsys, dir); err != nil {
		return err
	}
	// Counted before it is written: a crash between leaves the count too
	// high, and the next Open counts anew.
	if err := s.setUsage(usage{u.count + 1, u.bytes + int64(len(data))}); err != nil {
		return err
	}
	return durable.WriteFile(s.fsys, name, data)
}

// Get returns the bytes that ref names. Its error matches [ErrGone] or
// [ErrDamaged].
func (s *Store) Get(_ context.Context, ref Ref) ([]byte, error) {
	days, err := s.days()
	if err != nil {
		return nil, fmt.Errorf("get artifact: %w", err)
	}
	damaged := false
	for i := len(days) - 1; i >= 0; i-- {
		data, err := s.read(path.Join(days[i], ref.Hex()))
		switch {
		case errors.Is(err, fs.ErrNotExist):
			continue
		case err != nil && !errors.Is(err, ErrDamaged):
			return nil, fmt.Errorf("get artifact: %w", err)
		case err == nil && ref.Names(data):
			return data, nil
		}
		damaged = true
	}
	if damaged {
		return nil, fmt.Errorf("get artifact %s: %w", ref, ErrDamaged)
	}
	return nil, fmt.Errorf("get artifact %s: %w", ref, ErrGone)
}

// Expire removes what has outlived its TTL. Call it now and then.
func (s *Store) Expire(ctx context.Context) error {
	if err := s.locked(ctx, s.recount); err != nil {
		return fmt.Errorf("expire artifacts: %w", err)
	}
	return nil
}

// Usage returns how many artifacts are stored, and their bytes.
func (s *Store) Usage(ctx context.Context) (count, bytes int64, err error) {
	err = s.locked(ctx, func() error {
		u, err := s.usage()
		count, bytes = u.count, u.bytes
		return err
	})
	return count, bytes, err
}

func (s *Store) read(name string) ([]byte, error) {
	info, err := s.fsys.Stat(name)
	if err != nil {
		return nil, err
	}
	if info.Size > s.limits.ArtifactBytes {
		return nil, ErrDamaged
	}
	return durable.ReadFile(s.fsys, name, s.limits.ArtifactBytes)
}

func (s *Store) locked(ctx context.Context, do func() error) error {
	if err := s.lock.Lock(ctx, durable.Exclusive); err != nil {
		return err
	}
	return errors.Join(do(), s.lock.Unlock())
}

// days lists the day directories, oldest first.
func (s *Store) days() ([]string, error) {
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
func (s *Store) recount() error {
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
		held, err := s.fsys.ReadDir(name)
		if err != nil {
			return err
		}
		for _, info := range held {
			// A temporary file of a crashed Put was never named by a Ref.
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

// makeRoom evicts the oldest artifacts until one more of size bytes fits.
func (s *Store) makeRoom(u usage, size int64) (usage, error) {
	fits := func() bool { return u.count < s.limits.Count && u.bytes+size <= s.limits.TotalBytes }
	if fits() {
		return u, nil
	}
	days, err := s.days()
	if err != nil {
		return u, err
	}
	for _, name := range days {
		held, err := s.fsys.ReadDir(name)
		if err != nil {
			return u, err
		}
		for _, info := range held {
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
		return u, fmt.Errorf("%d bytes do not fit into %d: %w", size, s.limits.TotalBytes, ErrTooLarge)
	}
	return u, nil
}

type usage struct{ count, bytes int64 }

func (s *Store) usage() (usage, error) {
	b, err := durable.ReadFile(s.fsys, usageName, usageSize)
	if err != nil {
		return usage{}, err
	}
	if len(b) != usageSize {
		return usage{}, fmt.Errorf("%s has %d bytes, want %d: %w", usageName, len(b), usageSize, ErrDamaged)
	}
	return usage{
		count: int64(binary.BigEndian.Uint64(b)),
		bytes: int64(binary.BigEndian.Uint64(b[8:])),
	}, nil
}

// setUsage writes the cache in place and without a sync: every Open counts
// anew.
func (s *Store) setUsage(u usage) (err error) {
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
