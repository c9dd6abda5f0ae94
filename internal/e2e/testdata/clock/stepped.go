package main

import (
	"os"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"
)

// noFloor is that of a clock that starts.
var noFloor time.Time

// seconds is by how much the wall clock is wrong: in a file that a test writes
// while the process runs; nil for not at all.
var seconds = mapped(os.Getenv("FENCEPOST_TEST_CLOCK"))

// stepped is time.Now with another wall reading and the same monotonic one, as
// a step of the system's clock leaves it: the seconds are bits 30 to 62 of a
// time's first word.
func stepped() time.Time {
	t := time.Now()
	if seconds != nil {
		*(*uint64)(unsafe.Pointer(&t)) += uint64(atomic.LoadInt64(seconds)) << 30
	}
	return t
}

func mapped(name string) *int64 {
	if name == "" {
		return nil
	}
	f, err := os.Open(name)
	if err != nil {
		panic(err)
	}
	defer f.Close()
	page, err := syscall.Mmap(int(f.Fd()), 0, 8, syscall.PROT_READ, syscall.MAP_SHARED)
	if err != nil {
		panic(err)
	}
	return (*int64)(unsafe.Pointer(&page[0]))
}
