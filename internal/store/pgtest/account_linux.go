package pgtest

import "syscall"

// childAttributes end the server with whoever started it.
func childAttributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGINT} }
