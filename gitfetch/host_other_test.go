//go:build !unix

package gitfetch_test

import (
	"io/fs"
	"testing"
	"time"
)

// cpuTime is not known here.
func cpuTime(testing.TB) time.Duration { return 0 }

func sameDevice(fs.FileInfo, fs.FileInfo) bool { return true }
