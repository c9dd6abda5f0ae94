package runner

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// A Mode says what is done where the sandbox can't be had whole.
type Mode uint8

// The modes. The zero Mode is [Required].
const (
	// Required refuses to run, and names what the kernel lacks.
	Required Mode = iota
	// BestEffort runs with what there is; the record says what was missing.
	BestEffort
)

// String returns the mode as configuration spells it.
func (m Mode) String() string {
	if m == BestEffort {
		return "best_effort"
	}
	return "required"
}

// ParseMode reads "required" or "best_effort". Its error matches [ErrConfig].
func ParseMode(s string) (Mode, error) {
	switch s {
	case Required.String():
		return Required, nil
	case BestEffort.String():
		return BestEffort, nil
	}
	return 0, fmt.Errorf("sandbox must be required or best_effort: %w", ErrConfig)
}

// MaxWall is the highest wall limit (DESIGN §7).
const MaxWall = 120 * time.Second

// DrainLimit is how long a killed process tree may take to be proven gone
// (DESIGN §7).
const DrainLimit = 2 * time.Second

// A Config says where and how programs run.
type Config struct {
	// Entry is what [Init] returned.
	Entry Entry
	// Scratch is the directory that runs have their private directories in:
	// absolute, ours alone; made when it is missing. It must not lie in one of
	// SystemDirs, nor on a file system mounted noexec. Processes may share it.
	Scratch string
	// Sandbox is the mode; default [Required].
	Sandbox Mode
	// SystemDirs are directories and files of the host that programs may read,
	// absolute; those that don't exist are left out. Nil means
	// [DefaultSystemDirs]. Nothing secret may lie in them.
	SystemDirs []string
	// Cgroup is the control group (version 2) to make groups in; default a
	// place beneath the process's own groups.
	Cgroup string
	// Limits hold for runs that don't ask for other ones; zero fields mean
	// [DefaultLimits].
	Limits Limits
	// Now reads the clock; it must never step back. Required.
	Now func() time.Time
}

// defaultSystemDirs are what programs of most languages need to start. A
// symbolic link of the host stays one.
var defaultSystemDirs = [...]string{
	"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32",
	"/etc/alternatives", "/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d",
	"/nix/store", "/gnu/store",
}

// DefaultSystemDirs returns the default of [Config.SystemDirs].
func DefaultSystemDirs() []string { return append([]string(nil), defaultSystemDirs[:]...) }

// Limits bound one run. A zero field means the default.
type Limits struct {
	// Wall is from the start of the program to its kill: 1 s to [MaxWall],
	// default 90 s.
	Wall time.Duration
	// CPU is processor time of each process, rounded up to seconds; default
	// twice Wall.
	CPU time.Duration
	// Memory is in bytes over all processes, scratch included, where a control
	// group can be made, and else private memory of each process: 16 MiB or
	// more, default 512 MiB.
	Memory int64
	// Processes counts processes and threads: 1 to 4096, default 64.
	Processes int
	// OpenFiles counts descriptors of each process: 8 to 65536, default 256.
	OpenFiles int
	// FileBytes is the size of one file: 2 MiB or more, default 64 MiB.
	FileBytes int64
	// ScratchBytes is the size of the working directory, which lives in
	// memory: 4 MiB or more, default 128 MiB.
	ScratchBytes int64
	// ScratchFiles counts files and directories in it: 16 or more, default
	// 8192.
	ScratchFiles int64
	// ProgramBytes is the size of the program: 1 or more, default 64 MiB.
	ProgramBytes int64
}

// DefaultLimits returns the defaults.
func DefaultLimits() Limits {
	return Limits{
		Wall: 90 * time.Second, Memory: 512 << 20, Processes: 64, OpenFiles: 256,
		FileBytes: 64 << 20, ScratchBytes: 128 << 20, ScratchFiles: 8192, ProgramBytes: 64 << 20,
	}
}

// or returns l with zero fields taken from d.
func (l Limits) or(d Limits) Limits {
	l.Wall = orDefault(l.Wall, d.Wall)
	l.CPU = orDefault(l.CPU, d.CPU)
	l.Memory = orDefault(l.Memory, d.Memory)
	l.Processes = orDefault(l.Processes, d.Processes)
	l.OpenFiles = orDefault(l.OpenFiles, d.OpenFiles)
	l.FileBytes = orDefault(l.FileBytes, d.FileBytes)
	l.ScratchBytes = orDefault(l.ScratchBytes, d.ScratchBytes)
	l.ScratchFiles = orDefault(l.ScratchFiles, d.ScratchFiles)
	l.ProgramBytes = orDefault(l.ProgramBytes, d.ProgramBytes)
	if l.CPU == 0 {
		l.CPU = 2 * l.Wall
	}
	return l
}

func orDefault[T comparable](v, d T) T {
	var zero T
	if v == zero {
		return d
	}
	return v
}

// Validate reports every field out of range; zero fields are none. Its error
// matches [ErrConfig].
func (l Limits) Validate() error {
	l = l.or(DefaultLimits())
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format+": %w", append(args, ErrConfig)...))
		}
	}
	check(l.Wall >= time.Second && l.Wall <= MaxWall, "wall must be 1s to %v, is %v", MaxWall, l.Wall)
	check(l.CPU >= time.Second, "cpu must be 1s or more, is %v", l.CPU)
	check(l.Memory >= 16<<20, "memory must be 16 MiB or more, is %d bytes", l.Memory)
	check(l.Processes >= 1 && l.Processes <= 4096, "processes must be 1 to 4096, is %d", l.Processes)
	check(l.OpenFiles >= 8 && l.OpenFiles <= 65536, "open files must be 8 to 65536, is %d", l.OpenFiles)
	check(l.FileBytes >= 2<<20, "file bytes must be 2 MiB or more, is %d", l.FileBytes)
	check(l.ScratchBytes >= 4<<20, "scratch must be 4 MiB or more, is %d bytes", l.ScratchBytes)
	check(l.ScratchFiles >= 16, "scratch files must be 16 or more, is %d", l.ScratchFiles)
	check(l.ProgramBytes >= 1, "program bytes must be 1 or more, is %d", l.ProgramBytes)
	return errors.Join(errs...)
}

// resolve checks c and fills in its defaults.
func (c Config) resolve() (Config, error) {
	if !c.Entry.called {
		return Config{}, fmt.Errorf("the process did not start with a call of runner.Init: %w", ErrConfig)
	}
	if c.Now == nil {
		return Config{}, fmt.Errorf("no clock: %w", ErrConfig)
	}
	if !filepath.IsAbs(c.Scratch) {
		return Config{}, fmt.Errorf("scratch must be an absolute path: %w", ErrConfig)
	}
	if c.Sandbox != Required && c.Sandbox != BestEffort {
		return Config{}, fmt.Errorf("sandbox must be required or best_effort: %w", ErrConfig)
	}
	if err := c.Limits.Validate(); err != nil {
		return Config{}, err
	}
	c.Limits = c.Limits.or(DefaultLimits())
	if c.SystemDirs == nil {
		c.SystemDirs = DefaultSystemDirs()
	}
	for _, dir := range c.SystemDirs {
		if !filepath.IsAbs(dir) || filepath.Clean(dir) != dir || dir == "/" {
			return Config{}, fmt.Errorf("system directories must be absolute, clean and not the root: %w", ErrConfig)
		}
		if top, _, _ := strings.Cut(dir[1:], "/"); slices.Contains(reservedNames[:], top) {
			return Config{}, fmt.Errorf("system directories can't be in /%s, which the sandbox makes for itself: %w", top, ErrConfig)
		}
	}
	return c, nil
}

// reservedNames are the sandbox's own in its root, and what of the host must
// not be seen there.
var reservedNames = [...]string{"action", "candidate", "dev", "proc", "program", "request.json", "sys", "tmp", "work"}
