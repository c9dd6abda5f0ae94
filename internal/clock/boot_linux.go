package clock

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// bootIDPath holds a random UUID that the kernel makes at each start
// (random(4)).
const bootIDPath = "/proc/sys/kernel/random/boot_id"

// SystemBoot returns the machine's own boot clock: CLOCK_BOOTTIME, under the
// kernel's boot id. Where the process is in a time namespace, which shifts
// that clock, its number is part of the id: processes that read different
// times must not compare them (RELIABILITY §3.6).
func SystemBoot() (Boot, error) {
	raw, err := os.ReadFile(bootIDPath)
	if err != nil {
		return nil, fmt.Errorf("boot clock: %w", err)
	}
	id := strings.TrimSpace(string(raw))
	if id == "" {
		return nil, errors.New("boot clock: the kernel's boot id is empty")
	}
	space, err := timeNamespace()
	if err != nil {
		return nil, fmt.Errorf("boot clock: %w", err)
	}
	b := boottime{id: BootID(id + space)}
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		return nil, fmt.Errorf("boot clock: CLOCK_BOOTTIME: %w", err)
	}
	return b, nil
}

// timeNamespace names the process's time namespace; "" where the kernel has
// none (time_namespaces(7)).
func timeNamespace() (string, error) {
	link, err := os.Readlink("/proc/self/ns/time")
	if errors.Is(err, os.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	return "/" + link, nil
}

type boottime struct{ id BootID }

// Now implements [Boot].
func (b boottime) Now() Instant {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		// clock_gettime(2) fails for a bad clock or address alone, and
		// SystemBoot has tried this clock.
		panic("clock: CLOCK_BOOTTIME: " + err.Error())
	}
	return Instant{Boot: b.id, Up: time.Duration(ts.Nano())}
}
