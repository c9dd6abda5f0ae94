//go:build unix

package pgtest

import (
	"errors"
	"os"
	"os/user"
	"strconv"
	"syscall"
)

// account says as whom the server runs: PostgreSQL refuses root. uid is -1
// where it is the caller.
func account() (attr *syscall.SysProcAttr, uid, gid int, err error) {
	attr = childAttributes()
	if os.Geteuid() != 0 {
		return attr, -1, -1, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		id, errUID := strconv.ParseUint(u.Uid, 10, 32)
		group, errGID := strconv.ParseUint(u.Gid, 10, 32)
		if err := errors.Join(errUID, errGID); err != nil {
			return nil, 0, 0, err
		}
		attr.Credential = &syscall.Credential{Uid: uint32(id), Gid: uint32(group)}
		return attr, int(id), int(group), nil
	}
	return nil, 0, 0, errors.New("root may not run PostgreSQL, and there is no user postgres or nobody")
}
