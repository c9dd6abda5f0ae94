package receipt

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/fencepost/fencepost/internal/durable"
)

// Limits bound a journal. A zero field has its default.
type Limits struct {
	// SegmentBytes is the size at which a writer begins a new segment;
	// default 8 MiB, at most [MaxSegmentBytes].
	SegmentBytes int64
	// TotalBytes is how much all segments hold together before the oldest
	// are removed; default 256 MiB. Each live writer may add a segment.
	TotalBytes int64
	// TTL is the age at which a segment is removed; default 90 days.
	TTL time.Duration
}

// MaxSegmentBytes bounds [Limits.SegmentBytes] and what is read as one
// segment: 64 MiB.
const MaxSegmentBytes = 64 << 20

func (l Limits) withDefaults() Limits {
	setDefault(&l.SegmentBytes, 8<<20)
	setDefault(&l.TotalBytes, 256<<20)
	setDefault(&l.TTL, 90*24*time.Hour)
	l.SegmentBytes = min(l.SegmentBytes, MaxSegmentBytes-2*MaxEventBytes)
	return l
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// ErrClosed is what a closed [Journal] answers.
var ErrClosed = errors.New("journal is closed")

const (
	lockName      = "lock"
	segmentSuffix = ".log"
	birthDigits   = 20
)

// A Journal is one process's writer. It is safe for concurrent use; readers
// need no Journal. Close it, or the last seconds are not synced.
type Journal struct {
	fsys   durable.FS
	limits Limits
	now    func() time.Time

	// Guarded by mu.
	mu      sync.Mutex
	segment durable.File
	size    int64
	line    []byte
	closed  bool
}

// Open begins a segment in fsys, an existing directory, and removes segments
// that are too old or too many.
func Open(ctx context.Context, fsys durable.FS, limits Limits, now func() time.Time) (*Journal, error) {
	j := &Journal{fsys: fsys, limits: limits.withDefaults(), now: now}
	if err := j.rotate(ctx); err != nil {
		return nil, fmt.Errorf("open journal: %w", err)
	}
	return j, nil
}

// Append writes one event. What it returned nil for survives the end of the
// process, but until [Journal.Close] or the end of the segment not that of
// the machine. Its error matches [ErrEvent], [ErrClosed], or those of package
// durable; no caller's work should depend on it.
func (j *Journal) Append(ctx context.Context, e Event) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.closed {
		return fmt.Errorf("append to journal: %w", ErrClosed)
	}
	line, err := appendLine(j.line[:0], e)
	j.line = line
	if err != nil {
		return fmt.Errorf("append to journal: %w", err)
	}
	if j.segment == nil || j.size+int64(len(line)) > j.limits.SegmentBytes {
		if err := j.rotate(ctx); err != nil {
			return fmt.Errorf("append to journal: %w", err)
		}
	}
	if _, err := j.segment.WriteAt(line, j.size); err != nil {
		// A part of the line may stand there. The next line overwrites it, or
		// it stays as the torn tail that readers pass over.
		return fmt.Errorf("append to journal: %w", err)
	}
	j.size += int64(len(line))
	return nil
}

// Close syncs the segment and ends the journal.
func (j *Journal) Close() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.closed {
		return nil
	}
	j.closed = true
	return j.finish()
}

// finish syncs and closes the segment, if there is one.
func (j *Journal) finish() error {
	if j.segment == nil {
		return nil
	}
	s := j.segment
	j.segment, j.size = nil, 0
	return errors.Join(s.Sync(), s.Close())
}

// rotate begins a new segment. The caller holds mu, or is Open.
func (j *Journal) rotate(ctx context.Context) error {
	if err := j.finish(); err != nil {
		return err
	}
	if err := j.clean(ctx); err != nil {
		return err
	}
	var salt [4]byte
	if _, err := rand.Read(salt[:]); err != nil {
		return err
	}
	name := fmt.Sprintf("%0*d-%s%s", birthDigits, j.now().UnixNano(), hex.EncodeToString(salt[:]), segmentSuffix)
	f, err := j.fsys.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, durable.FilePerm)
	if err != nil {
		return err
	}
	// The lock tells others that the segment has a writer.
	if err := f.Lock(ctx, durable.Exclusive); err != nil {
		return errors.Join(err, f.Close())
	}
	j.segment = f
	return nil
}

// clean removes the oldest segments that are over the bounds and have no
// writer.
func (j *Journal) clean(ctx context.Context) (err error) {
	lock, err := j.fsys.OpenFile(lockName, os.O_RDWR|os.O_CREATE, durable.FilePerm)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lock.Close()) }()
	if err := lock.Lock(ctx, durable.Exclusive); err != nil {
		return err
	}
	segments, err := list(j.fsys)
	if err != nil {
		return err
	}
	var total int64
	for _, s := range segments {
		total += s.size
	}
	oldest := j.now().Add(-j.limits.TTL)
	for _, s := range segments {
		if total <= j.limits.TotalBytes && s.birth.After(oldest) {
			return nil
		}
		removed, err := j.removeUnwritten(s.name)
		if err != nil {
			return err
		}
		if removed {
			total -= s.size
		}
	}
	return nil
}

func (j *Journal) removeUnwritten(name string) (removed bool, err error) {
	f, err := j.fsys.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	free, err := f.TryLock(durable.Exclusive)
	if err != nil || !free {
		return false, err
	}
	return true, j.fsys.Remove(name)
}

// A segment is a file of a journal.
type segment struct {
	name  string
	birth time.Time
	size  int64
	// last is the time of the last event, where that was looked for.
	last time.Time
}

// list returns the segments, oldest first.
func list(fsys durable.FS) ([]segment, error) {
	infos, err := fsys.ReadDir(".")
	if err != nil {
		return nil, err
	}
	var segments []segment
	for _, info := range infos {
		if !strings.HasSuffix(info.Name, segmentSuffix) || len(info.Name) < birthDigits {
			continue
		}
		nanos, err := strconv.ParseInt(info.Name[:birthDigits], 10, 64)
		if err != nil {
			continue
		}
		segments = append(segments, segment{name: info.Name, birth: time.Unix(0, nanos), size: info.Size})
	}
	return segments, nil
}
