package fileledger

import (
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/clock"
	"github.com/fencepost/fencepost/ledger"
)

// Defaults and bounds of a [Config].
const (
	DefaultLease    = time.Minute
	DefaultCapacity = 1_000_000
	DefaultShards   = 4
	DefaultSegment  = 1 << 20
	DefaultMaxBytes = 1 << 30
	DefaultMaintain = time.Minute

	MinLease, MaxLease     = 5 * time.Second, 10 * time.Minute
	MaxCapacity            = 10_000_000
	MaxShards              = 64
	MinSegment, MaxSegment = 256 << 10, 64 << 20
	minBytesPerShard       = 1 << 20
)

// ErrConfig is matched by the errors of a [Config] whose values are out of
// range.
var ErrConfig = errors.New("ledger configuration")

// A Config says where a ledger is and what it is made with. Lease, Capacity,
// Window and Shards are fixed when the root is made; opening it with others
// is a [ParameterError].
type Config struct {
	// Dir is the ledger's directory. It is made, whole and at once, if it
	// does not exist; the directory above it must.
	Dir string
	// Lease is how long a lease lasts: 5 s to 10 min; zero means 60 s.
	Lease time.Duration
	// Capacity is the most rows, 1 to 10,000,000; zero means 1,000,000. It is
	// spread evenly over the shards, and a delivery whose shard has no room
	// is answered Full: with keys spread by chance, at 99% and more of
	// capacity for the default sizes.
	Capacity int
	// Window is the replay window; zero means
	// [fencepost.DefaultReplayWindow].
	Window fencepost.ReplayWindow
	// Shards is the number of logs, 1 to 64; zero means 4. Each sync carries
	// what one shard's workers wait for, so that more shards mean more and
	// smaller syncs: see the package comment for figures. What is lost to
	// damage is one shard.
	Shards int
	// SegmentBytes is the size of a log file, 256 KiB to 64 MiB; zero means
	// 1 MiB. Two are kept per shard, the second one as the reserve in which
	// known work ends when the disk is full.
	SegmentBytes int64
	// MaxBytes bounds the rows' own bytes, in which a leased row counts with
	// the largest publication that it may yet stage: new rows are answered
	// Full from 90% on. 1 MiB a shard or more; zero means 1 GiB. On disk, a
	// ledger takes up to about three times the bytes of its rows, and two
	// segments a shard.
	MaxBytes int64
	// Maintain is how often rows are cleaned up and logs are compacted by
	// themselves; zero means every minute, a negative value never.
	Maintain time.Duration
	// Volatile allows a file system that keeps nothing over a restart, for
	// trials and tests.
	Volatile bool
	// Now reads the wall clock, which judges replay ends. It should not go
	// back while the process lives. Nil means [clock.System]'s.
	Now func() time.Time
	// Instant reads the clock that leases are timed by. Nil means
	// [clock.SystemBoot]'s.
	Instant func() ledger.Instant
	// Random makes evaluation ids; it is a cryptographic source. Nil means
	// crypto/rand.
	Random io.Reader
}

// withDefaults fills in what is zero and checks the ranges. All faults are
// reported; each matches [ErrConfig].
func (c Config) withDefaults() (Config, error) {
	setDefault(&c.Lease, DefaultLease)
	setDefault(&c.Capacity, DefaultCapacity)
	setDefault(&c.Window, fencepost.DefaultReplayWindow)
	setDefault(&c.Shards, DefaultShards)
	setDefault(&c.SegmentBytes, DefaultSegment)
	setDefault(&c.MaxBytes, DefaultMaxBytes)
	setDefault(&c.Maintain, DefaultMaintain)
	if c.Random == nil {
		c.Random = rand.Reader
	}
	if c.Now == nil {
		c.Now = clock.System().Now
	}
	var errs []error
	if c.Instant == nil {
		boot, err := clock.SystemBoot()
		if err != nil {
			return c, fmt.Errorf("%w: %w", ErrConfig, err)
		}
		c.Instant = bootInstant(boot)
	}
	bad := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("%w: %s", ErrConfig, fmt.Sprintf(format, args...)))
	}
	if c.Lease < MinLease || c.Lease > MaxLease {
		bad("lease must be %v to %v, is %v", MinLease, MaxLease, c.Lease)
	}
	if c.Shards < 1 || c.Shards > MaxShards {
		bad("shards must be 1 to %d, is %d", MaxShards, c.Shards)
	}
	if c.Capacity < c.Shards || c.Capacity > MaxCapacity {
		bad("capacity must be %d (one a shard) to %d, is %d", c.Shards, MaxCapacity, c.Capacity)
	}
	if c.SegmentBytes < MinSegment || c.SegmentBytes > MaxSegment || c.SegmentBytes%4096 != 0 {
		bad("segment must be %d to %d bytes in whole pages, is %d", MinSegment, MaxSegment, c.SegmentBytes)
	}
	if c.MaxBytes < int64(c.Shards)*minBytesPerShard {
		bad("max bytes must be %d (1 MiB a shard) or more, is %d", c.Shards*minBytesPerShard, c.MaxBytes)
	}
	if err := c.Window.Validate(); err != nil {
		errs = append(errs, fmt.Errorf("%w: replay window: %w", ErrConfig, err))
	}
	return c, errors.Join(errs...)
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// bootInstant gives the machine's starts ids of a fixed length.
func bootInstant(boot clock.Boot) func() ledger.Instant {
	first := boot.Now().Boot
	digest := sha256.Sum256([]byte(first))
	id := ledger.BootID(digest[:16])
	return func() ledger.Instant { return ledger.Instant{Boot: id, At: boot.Now().Up} }
}
