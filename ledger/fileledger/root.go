package fileledger

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/fencepost/fencepost/internal/durable"
	"github.com/fencepost/fencepost/ledger"
)

// Errors of a directory that can't be opened as a ledger, beside
// [ErrVersion], [ErrParameters] and [ErrCorrupt].
var (
	// ErrForeign: the directory is none of a ledger.
	ErrForeign = errors.New("not a ledger's directory")
	// ErrMissing: a file that is never removed is not there.
	ErrMissing = errors.New("a file of the ledger is missing")
	// ErrPermission: this process may not do with the files what it must.
	ErrPermission = errors.New("no permission to the ledger's files")
	// ErrCopy: the directory holds a copy that was made for safe keeping. What
	// the original has handed out since is not known, so that it is no ledger
	// until it was restored.
	ErrCopy = errors.New("a copy of a ledger")
	// ErrLocks: locks do not exclude on this file system.
	ErrLocks = errors.New("locks do not work on this file system")
)

// A RootError says what keeps a directory from being opened as a ledger, where
// and what to do. It matches the sentinel that it was made with, and its cause.
type RootError struct {
	// Kind is one of this package's sentinels, or of package ledger's.
	Kind error
	// File is a name inside the ledger's directory, or empty.
	File string
	// Why says more; may be empty.
	Why string
	// Mend says what to do.
	Mend string
	// Err is the cause; may be nil.
	Err error
}

// Error says what, where, and the mend.
func (e *RootError) Error() string {
	var b strings.Builder
	b.WriteString(e.Kind.Error())
	for _, part := range []string{e.File, e.Why} {
		if part != "" {
			b.WriteString(": " + part)
		}
	}
	if e.Err != nil {
		b.WriteString(": " + e.Err.Error())
	}
	return b.String() + "; " + e.Mend
}

// Unwrap returns the kind and the cause.
func (e *RootError) Unwrap() []error {
	if e.Err == nil {
		return []error{e.Kind}
	}
	return []error{e.Kind, e.Err}
}

const (
	// movedName is there in a root that was moved: see [ledger.ErrMoved].
	movedName = "MOVED"
	// movedLimit bounds what is read of it.
	movedLimit = 512
	// arrivedName is there in a root that came from another store.
	arrivedName = "ARRIVED"
	// copyName is there in a copy: see [ErrCopy].
	copyName = "COPY"
	// incomingSuffix is behind the name of a root that is not here yet.
	incomingSuffix = ".incoming"
)

// inspect reads what a root is, and changes nothing. What it refuses can't be
// opened; see [RootError].
func inspect(dir durable.FS) (superblock, error) {
	b, err := durable.ReadFile(dir, formatName, superSize)
	switch {
	case isNotExist(err):
		return superblock{}, &RootError{
			Kind: ErrForeign, File: formatName, Err: fs.ErrNotExist,
			Mend: "name the directory of a ledger, or one that does not exist yet",
		}
	case errors.Is(err, durable.ErrTooLarge):
		return superblock{}, &CorruptError{File: formatName, Offset: superSize, Why: "longer than a superblock", Mend: mendFormat}
	case err != nil:
		return superblock{}, permission(formatName, err)
	}
	super, err := decodeSuperblock(b)
	if err != nil {
		return superblock{}, err
	}
	if m, err := readMove(dir, movedName); err != nil {
		return superblock{}, err
	} else if !m.IsZero() {
		return super, &RootError{
			Kind: ledger.ErrMoved, File: movedName, Why: "it goes on as ledger " + hex.EncodeToString(m.To[:]),
			Mend: "configure where it was moved to, or end the move with `fencepost ledger migrate`; never remove this mark while the other is in use",
		}
	}
	if m, err := readMove(dir, copyName); err != nil {
		return superblock{}, err
	} else if !m.IsZero() {
		return super, &RootError{Kind: ErrCopy, File: copyName, Mend: "bring it back with `fencepost ledger restore`, which lets fences go on where they can't meet"}
	}
	return super, checkLocks(dir, super)
}

// checkLocks looks for the files that every process must lock alike.
func checkLocks(dir durable.FS, super superblock) error {
	names := []string{slotDir, lockDir}
	for n := range super.shards {
		names = append(names, appendLockName(n), syncLockName(n), shardDir(n), shardDir(n)+"/"+headName)
	}
	for _, name := range names {
		_, err := dir.Stat(name)
		if isNotExist(err) {
			return &RootError{
				Kind: ErrMissing, File: name, Err: fs.ErrNotExist,
				Mend: "stop every process that has the ledger open; if it is a lock, make it anew as an empty file, else bring the ledger back from a copy",
			}
		}
		if err != nil {
			return permission(name, err)
		}
	}
	return nil
}

// permission names what this process may not do.
func permission(file string, err error) error {
	if err == nil || !errors.Is(err, fs.ErrPermission) {
		return err
	}
	return &RootError{
		Kind: ErrPermission, File: file, Err: err,
		Mend: "run as the user that owns the ledger, or give that user the files back (directories 0700, files 0600)",
	}
}

// onlyPermission is [permission] that leaves every other error to others.
func onlyPermission(file string, err error) error {
	if !errors.Is(err, fs.ErrPermission) {
		return nil
	}
	return permission(file, err)
}

// mendLocks says what to do about [ErrLocks].
const mendLocks = "use a directory on a local ext4, XFS, btrfs or ZFS"

// hold takes the lock of a root that every process with the ledger open
// shares. Exclusive is for who must be alone with it.
func hold(dir durable.FS, mode durable.LockMode) (durable.File, error) {
	f, err := dir.OpenFile(formatName, os.O_RDONLY, 0)
	if err != nil {
		return nil, permission(formatName, err)
	}
	taken, err := f.TryLock(mode)
	if err != nil {
		err = &RootError{Kind: ErrLocks, File: formatName, Err: err, Mend: mendLocks}
	}
	if err == nil && !taken {
		err = &RootError{
			Kind: ledger.ErrInUse, File: formatName,
			Mend: "wait until the other process has ended: `fencepost ledger migrate` and `restore` need a ledger that nobody has open, and while they run nobody can open it",
		}
	}
	if err == nil {
		err = probeLocks(dir)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// probeLocks finds a file system whose locks exclude nobody: what this process
// holds must not be had a second time.
func probeLocks(dir durable.FS) error {
	f, err := dir.OpenFile(formatName, os.O_RDONLY, 0)
	if err != nil {
		return err
	}
	taken, err := f.TryLock(durable.Exclusive)
	if err == nil && taken {
		err = &RootError{
			Kind: ErrLocks, File: formatName, Why: "a lock that is held could be taken again",
			Mend: mendLocks,
		}
	}
	return errors.Join(err, f.Close())
}

// upgrade makes a root of version 1 one of this version, whose logs and
// snapshots may hold more. No process of an older program may have it open.
func upgrade(ctx context.Context, dir durable.FS, super superblock) (_ superblock, err error) {
	if super.version == superVersion {
		return super, nil
	}
	f, err := dir.OpenFile(formatName, os.O_RDONLY, 0)
	if err != nil {
		return super, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if err := f.Lock(ctx, durable.Exclusive); err != nil {
		// Another process has put an upgraded file in its place.
		if now, again := inspect(dir); again == nil && now.version == superVersion {
			return now, nil
		}
		return super, err
	}
	if super, err = inspect(dir); err != nil || super.version == superVersion {
		return super, err
	}
	if err := nobodyHas(dir); err != nil {
		return super, err
	}
	super.version = superVersion
	return super, durable.WriteFile(dir, formatName, super.encode())
}

// nobodyHas looks through the slots for a process that has the ledger open.
func nobodyHas(dir durable.FS) error {
	entries, err := dir.ReadDir(slotDir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		name := slotDir + "/" + e.Name
		f, err := dir.OpenFile(name, os.O_RDWR, 0)
		if err != nil {
			return permission(name, err)
		}
		free, err := f.TryLock(durable.Exclusive)
		if err == nil && !free {
			err = &RootError{Kind: ledger.ErrInUse, File: name, Mend: "stop the process that has it open, such as `fencepost serve`"}
		}
		if err := errors.Join(err, f.Close()); err != nil {
			return err
		}
	}
	return nil
}

// A mark of a move is lines of text: what it is, then from, to, rows, digest.
const moveText = "fencepost ledger move 1\nfrom %x\nto %x\nrows %d\ndigest %x\n"

func encodeMove(m ledger.Move) []byte {
	return fmt.Appendf(nil, moveText, m.From, m.To, m.Rows, m.Digest)
}

// readMove reads the mark of a move; the zero Move if there is none.
func readMove(dir durable.FS, name string) (ledger.Move, error) {
	b, err := durable.ReadFile(dir, name, movedLimit)
	if isNotExist(err) {
		return ledger.Move{}, nil
	}
	if err != nil && !errors.Is(err, durable.ErrTooLarge) {
		return ledger.Move{}, permission(name, err)
	}
	var m ledger.Move
	var from, to, digest []byte
	if n, err := fmt.Sscanf(string(b), moveText, &from, &to, &m.Rows, &digest); err == nil && n == 4 &&
		len(from) == len(m.From) && len(to) == len(m.To) && len(digest) == len(m.Digest) {
		m.From, m.To, m.Digest = [16]byte(from), [16]byte(to), [32]byte(digest)
	}
	if m.IsZero() || string(encodeMove(m)) != string(b) {
		return ledger.Move{}, &CorruptError{File: name, Why: "not the mark of a move", Mend: mendMark}
	}
	return m, nil
}

// notIncoming refuses to make a ledger where one is to arrive: what was moved
// must not be forgotten over it.
func notIncoming(fsys durable.FS, name string) error {
	if _, err := fsys.Stat(name + incomingSuffix); isNotExist(err) {
		return nil
	} else if err != nil {
		return err
	}
	return &RootError{
		Kind: ledger.ErrIncoming, File: name + incomingSuffix,
		Mend: "end the move with the command that began it, or remove that directory if the ledger is still used where it was",
	}
}
