package pgtest

import (
	"errors"
	"syscall"
)

func account() (*syscall.SysProcAttr, int, int, error) {
	return nil, 0, 0, errors.New("the tests run PostgreSQL on Unix alone")
}
