package sqlledger

import (
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/clock"
	"github.com/fencepost/fencepost/internal/durable"
	"github.com/fencepost/fencepost/internal/store"
	"github.com/fencepost/fencepost/ledger"
)

// Defaults and bounds of a [Config].
const (
	DefaultLease    = time.Minute
	DefaultCapacity = 1_000_000
	// DefaultSQLiteParts: SQLite has one writer anyway.
	DefaultSQLiteParts   = 1
	DefaultPostgresParts = 32
	DefaultMaintain      = time.Minute

	MinLease, MaxLease       = 5 * time.Second, 10 * time.Minute
	MinMaintain, MaxMaintain = time.Second, time.Hour
	MaxCapacity              = 10_000_000
	MaxParts                 = 64

	// tries is how often an operation is decided anew that other changes of
	// its row defeat. Of those that meet, one always gets through.
	tries = 100
)

// Errors of [Open], beside those of the database.
var (
	// ErrConfig is matched by the errors of a [Config] whose values are out
	// of range.
	ErrConfig = errors.New("ledger configuration")
	// ErrParameters: the ledger was made with other parameters;
	// [ParameterError] names the field.
	ErrParameters = errors.New("ledger was made with other parameters")
	// ErrVolatile: the server does not keep what it answers through the loss
	// of its power; [SettingError] names the setting.
	ErrVolatile = errors.New("the database server loses what it has answered")
	// ErrCorrupt: a stored row is not what was written.
	ErrCorrupt = errors.New("ledger row does not verify")
)

// A ParameterError names a parameter that a ledger was made with another
// value of. It matches [ErrParameters].
type ParameterError struct {
	// Field is the parameter's name in configuration, such as
	// "ledger.lease".
	Field string
	// Made is the ledger's value, Given that of the [Config].
	Made, Given string
}

// Error names the field, both values and the mend.
func (e *ParameterError) Error() string {
	return fmt.Sprintf("%s: the ledger was made with %s, configured is %s; set it back, or start with a new database", e.Field, e.Made, e.Given)
}

// Is reports whether target is [ErrParameters].
func (e *ParameterError) Is(target error) bool { return target == ErrParameters }

// A SettingError names a setting of a PostgreSQL server under which answers
// are not durable. It matches [ErrVolatile].
type SettingError struct {
	// Setting is the server's name for it, Value what it is.
	Setting, Value string
	// Mend says what to do about it.
	Mend string
}

// Error names the setting, its value and the mend.
func (e *SettingError) Error() string {
	return fmt.Sprintf("PostgreSQL runs with %s = %s: %s", e.Setting, e.Value, e.Mend)
}

// Is reports whether target is [ErrVolatile].
func (e *SettingError) Is(target error) bool { return target == ErrVolatile }

// A Config says where a ledger is and what it is made with. Lease, Capacity,
// Window and Parts are fixed when the ledger is made, which is when it is
// first opened; opening it with others is a [ParameterError].
type Config struct {
	// Path is the file of a SQLite database on a local disk, in a directory
	// that exists; the file is made if it is missing. Either it or URL is
	// required.
	Path string
	// URL is a connection string of PostgreSQL, 14 or later: postgres://… It
	// may hold a password and is never shown. Tables are made in the first
	// schema of its search path.
	URL string
	// Lease is how long a lease lasts: 5 s to 10 min; zero means 60 s.
	Lease time.Duration
	// Capacity is the most rows, 1 to 10,000,000; zero means 1,000,000. It is
	// spread evenly over the parts, and a delivery whose part has no room is
	// answered Full: a little before all of it is used.
	Capacity int
	// Window is the replay window; zero means
	// [fencepost.DefaultReplayWindow].
	Window fencepost.ReplayWindow
	// Parts is the number of counters, 1 to 64 and at most Capacity; zero
	// means 1 on SQLite and 32 on PostgreSQL. Claims of one part wait for each
	// other's commits.
	Parts int
	// Wait bounds one operation, with the wait for locks and connections;
	// 100 ms to 24 h, zero means 10 s.
	Wait time.Duration
	// Connections are how many there are at once; 1 to 1000, zero means 16 on
	// PostgreSQL, and 4 readers beside the writer on SQLite.
	Connections int
	// Maintain is the pause between two clean-ups of [Ledger.Run]; 1 s to 1 h,
	// zero means a minute.
	Maintain time.Duration
	// Volatile allows a PostgreSQL server that runs without fsync or
	// full_page_writes, and a SQLite file on a file system that keeps nothing
	// over a restart; for trials and tests.
	Volatile bool
	// Now reads the wall clock, which judges replay ends on SQLite; on
	// PostgreSQL it is not used. Nil means [clock.System]'s.
	Now func() time.Time
	// Instant reads the clock that leases are timed by on SQLite; on
	// PostgreSQL it only measures how long this process has seen time pass.
	// Nil means [clock.SystemBoot]'s.
	Instant func() ledger.Instant
	// Random makes evaluation ids and tokens; it is a cryptographic source,
	// safe for concurrent use. Nil means crypto/rand.
	Random io.Reader

	// volume is the file system of a directory; tests give it others. Nil means
	// the real one.
	volume func(dir string) durable.FS
}

// located is [Config.withDefaults] for a ledger that Path or URL says where is;
// it must be exactly one of them.
func (c Config) located() (Config, error) {
	kind := store.SQLite
	if c.URL != "" {
		kind = store.Postgres
	}
	full, err := c.withDefaults(kind)
	if (c.Path == "") == (c.URL == "") {
		err = errors.Join(fmt.Errorf("%w: need either a path or a URL", ErrConfig), err)
	}
	return full, err
}

// limit is how many rows part n may have: the capacity's rest goes to the
// first ones.
func (c Config) limit(n int) int {
	limit := c.Capacity / c.Parts
	if n < c.Capacity%c.Parts {
		limit++
	}
	return limit
}

// withDefaults fills in what is zero and checks the ranges. All faults are
// reported; each matches [ErrConfig].
func (c Config) withDefaults(kind store.Kind) (Config, error) {
	setDefault(&c.Lease, DefaultLease)
	setDefault(&c.Capacity, DefaultCapacity)
	setDefault(&c.Window, fencepost.DefaultReplayWindow)
	setDefault(&c.Maintain, DefaultMaintain)
	if kind == store.Postgres {
		setDefault(&c.Parts, min(DefaultPostgresParts, c.Capacity))
	} else {
		setDefault(&c.Parts, DefaultSQLiteParts)
	}
	if c.Random == nil {
		c.Random = rand.Reader
	}
	if c.Now == nil {
		c.Now = clock.System().Now
	}
	if c.Instant == nil {
		boot, err := clock.SystemBoot()
		if err != nil {
			return c, fmt.Errorf("%w: %w", ErrConfig, err)
		}
		c.Instant = bootInstant(boot)
	}
	return c, c.check()
}

func (c Config) check() error {
	var errs []error
	bad := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("%w: %s", ErrConfig, fmt.Sprintf(format, args...)))
	}
	if c.Maintain < MinMaintain || c.Maintain > MaxMaintain {
		bad("maintain must be %v to %v, is %v", MinMaintain, MaxMaintain, c.Maintain)
	}
	if c.Lease < MinLease || c.Lease > MaxLease {
		bad("lease must be %v to %v, is %v", MinLease, MaxLease, c.Lease)
	}
	if c.Parts < 1 || c.Parts > MaxParts {
		bad("parts must be 1 to %d, is %d", MaxParts, c.Parts)
	}
	if c.Capacity < max(c.Parts, 1) || c.Capacity > MaxCapacity {
		bad("capacity must be %d (one a part) to %d, is %d", max(c.Parts, 1), MaxCapacity, c.Capacity)
	}
	if err := c.Window.Validate(); err != nil {
		errs = append(errs, fmt.Errorf("%w: replay window: %w", ErrConfig, err))
	}
	return errors.Join(errs...)
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
