package fileledger

import (
	"context"
	"errors"
	"os"

	"github.com/fencepost/fencepost/internal/durable"
)

// A lockFile is a file that exists to be locked. It is owned by a shard's
// loop.
type lockFile struct {
	fsys durable.FS
	name string
	flag int
	file durable.File // nil until it is opened, and after a failure
}

// open opens the file, unless it is.
func (l *lockFile) open() (err error) {
	if l.file == nil {
		l.file, err = l.fsys.OpenFile(l.name, l.flag, 0)
	}
	return err
}

// lock waits for the lock. After a failure, such as that the file is not the
// one which others lock any more, it is opened anew at the next try.
func (l *lockFile) lock(ctx context.Context) error {
	if err := l.open(); err != nil {
		return err
	}
	err := l.file.Lock(ctx, durable.Exclusive)
	if err != nil && context.Cause(ctx) == nil {
		err = errors.Join(err, l.close())
	}
	return err
}

// unlock frees the lock; where that fails, by closing the file.
func (l *lockFile) unlock() error {
	err := l.file.Unlock()
	if err != nil {
		err = errors.Join(err, l.close())
	}
	return err
}

func (l *lockFile) close() error {
	if l.file == nil {
		return nil
	}
	err := l.file.Close()
	l.file = nil
	return err
}

func newLock(fsys durable.FS, name string) lockFile {
	return lockFile{fsys: fsys, name: name, flag: os.O_RDWR}
}
