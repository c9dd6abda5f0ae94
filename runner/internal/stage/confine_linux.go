package stage

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/fencepost/fencepost/runner/internal/landlock"
	"github.com/fencepost/fencepost/runner/internal/seccomp"
)

// A step restricts one thing.
type step struct {
	part Part
	do   func() error
}

// disarm does to the calling thread what no configuration is needed for: no
// capabilities, no way to gain any, the system call filter. The stage does it
// while it waits for a run. Landlock's own calls pass the filter.
func disarm() []Failure {
	return apply([]step{
		{PartCapabilities, dropCapabilities},
		{PartNoNewPrivs, func() error { return unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) }},
		{PartSeccomp, installFilter},
	})
}

// confine does to the calling thread what is the run's own: control groups,
// limits, Landlock. What the thread starts inherits all of it.
func (s *stage) confine() []Failure {
	return apply([]step{
		{PartCgroup, s.join},
		{PartRlimits, s.limit},
		{PartLandlock, s.landlock},
	})
}

func apply(steps []step) []Failure {
	var failures []Failure
	for _, step := range steps {
		err := step.do()
		if err == nil {
			continue
		}
		f, ok := errors.AsType[*Failure](err)
		if !ok {
			f = failure(step.part, "apply", err)
		}
		failures = append(failures, *f)
	}
	return failures
}

// join moves the calling thread alone into control groups of version 1; what it
// starts is born there. 0 is the caller itself: only for it does the kernel
// spare the lock that stops every fork on the machine.
func (s *stage) join() error {
	for _, door := range s.doors {
		if _, err := unix.Write(door, []byte("0")); err != nil {
			return err
		}
	}
	return nil
}

func (s *stage) landlock() error {
	if s.cfg.Landlock == 0 {
		return unix.ENOSYS
	}
	return landlock.Restrict(s.cfg.Landlock, s.cfg.Rules)
}

func installFilter() error {
	err := seccomp.Install()
	if errors.Is(err, seccomp.ErrUnsupported) {
		return unix.ENOSYS
	}
	return err
}

// limit sets the resource limits on this process, from which the program
// inherits them.
func (s *stage) limit() error {
	l := s.cfg.Limits
	for _, r := range []struct {
		resource int
		value    uint64
		always   bool
	}{
		{unix.RLIMIT_CORE, coreBytes, true},
		{unix.RLIMIT_CPU, l.CPUSeconds, false},
		{unix.RLIMIT_FSIZE, l.FileBytes, false},
		{unix.RLIMIT_NOFILE, l.OpenFiles, false},
		{unix.RLIMIT_NPROC, l.Processes, false},
		{unix.RLIMIT_DATA, l.DataBytes, false},
		{unix.RLIMIT_MEMLOCK, lockedBytes, true},
		{unix.RLIMIT_MSGQUEUE, 0, true},
		{unix.RLIMIT_RTPRIO, 0, true},
	} {
		if !r.always && r.value == 0 {
			continue
		}
		if err := lower(r.resource, r.value); err != nil {
			return err
		}
	}
	return nil
}

// coreBytes makes no core file, since no core is that small, and is the one
// value with which the kernel also does not start the host's core handler, a
// privileged process that would read what the program made of its memory.
const coreBytes = 1

// lockedBytes is what a process may keep from being swapped: the usual small
// amount that some runtimes expect.
const lockedBytes = 64 << 10

// lower sets both limits to value, or to the hard limit where that is lower
// already.
func lower(resource int, value uint64) error {
	var now unix.Rlimit
	if err := unix.Getrlimit(resource, &now); err != nil {
		return failure(PartRlimits, fmt.Sprintf("read limit %d", resource), err)
	}
	value = min(value, now.Max)
	if err := unix.Setrlimit(resource, &unix.Rlimit{Cur: value, Max: value}); err != nil {
		return failure(PartRlimits, fmt.Sprintf("set limit %d", resource), err)
	}
	return nil
}

// secureBits keep the last ways to capabilities shut: none for user 0 on exec,
// none kept or raised over a change of user; each locked.
const secureBits = 1<<0 | 1<<1 | 1<<2 | 1<<3 | 1<<5 | 1<<6 | 1<<7

// dropCapabilities empties every set of the calling thread. Outside a
// namespace, where there is nothing to drop, emptying what is left is enough.
func dropCapabilities() error {
	var data [2]unix.CapUserData
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	if err := unix.Capget(&header, &data[0]); err != nil {
		return failure(PartCapabilities, "read", err)
	}
	if data[unix.CAP_SETPCAP/32].Effective&(1<<(unix.CAP_SETPCAP%32)) != 0 {
		if err := dropBounds(); err != nil {
			return err
		}
	}
	if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); err != nil {
		return failure(PartCapabilities, "clear ambient set", err)
	}
	data = [2]unix.CapUserData{}
	if err := unix.Capset(&header, &data[0]); err != nil {
		return failure(PartCapabilities, "clear", err)
	}
	return nil
}

func dropBounds() error {
	for c := uintptr(0); ; c++ {
		err := unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0)
		if errors.Is(err, unix.EINVAL) && c > 0 {
			break
		}
		if err != nil {
			return failure(PartCapabilities, "drop from bounding set", err)
		}
	}
	if err := unix.Prctl(unix.PR_SET_SECUREBITS, secureBits, 0, 0, 0); err != nil {
		return failure(PartCapabilities, "set secure bits", err)
	}
	return nil
}
