//go:build unix && !linux

package pgtest

import "syscall"

func childAttributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{} }
