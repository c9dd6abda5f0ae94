package doctor

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// Synchronized asks the kernel whether something keeps its clock right.
// adjtimex(2)
func Synchronized() Check {
	c := Check{Subject: "machine", Name: "clock.synchronized", Status: OK}
	var t unix.Timex
	state, err := unix.Adjtimex(&t)
	switch {
	case err != nil:
		c.Status, c.Seen = Skipped, "the kernel does not tell"
	case state == unix.TIME_ERROR || t.Status&unix.STA_UNSYNC != 0:
		c.Status, c.Seen = Warn, "nothing keeps the clock right"
		c.Mend = "turn a time service on (timedatectl set-ntp true, or chrony); in a container, on the host"
	default:
		c.Seen = fmt.Sprintf("synchronized, at most %s off", (time.Duration(t.Maxerror) * time.Microsecond).Round(time.Millisecond))
	}
	return c
}
