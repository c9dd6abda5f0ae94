package stage

import (
	"errors"
	"fmt"
	"io"

	"golang.org/x/sys/unix"
)

// The runner's end of the socket belongs to the runtime's poller; the stage's
// own is used by these two with plain blocking calls.

// send writes one message with descriptors.
func send(sock int, message []byte, fds ...int) error {
	return retry(func() error { return Send(sock, message, fds...) })
}

// receive reads one message of the wanted kind; io.EOF when the other side is
// gone.
func receive(sock int, buf []byte, want byte) (message []byte, fds []int, err error) {
	err = retry(func() error {
		message, fds, err = Receive(sock, buf)
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	if message[0] != want {
		return nil, fds, fmt.Errorf("stage message %q, want %q: %w", message[0], want, unix.EPROTO)
	}
	return message, fds, nil
}

func retry(f func() error) error {
	for {
		if err := f(); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// Send writes one message with descriptors to a socket, in one call that may
// be refused with EAGAIN or EINTR.
func Send(sock int, message []byte, fds ...int) error {
	var oob []byte
	if len(fds) > 0 {
		oob = unix.UnixRights(fds...)
	}
	_, err := unix.SendmsgN(sock, message, oob, nil, unix.MSG_NOSIGNAL)
	return err
}

// Receive reads one message into buf, with its descriptors, which are closed
// on exec and the caller's. It returns io.EOF when the other side is gone. It
// may be refused with EAGAIN or EINTR.
func Receive(sock int, buf []byte) (message []byte, fds []int, err error) {
	oob := make([]byte, unix.CmsgSpace(MaxFDs*4))
	n, oobn, flags, _, err := unix.Recvmsg(sock, buf, oob, unix.MSG_CMSG_CLOEXEC)
	if err != nil {
		return nil, nil, err
	}
	if oobn > 0 {
		if fds, err = rights(oob[:oobn]); err != nil {
			return nil, fds, err
		}
	}
	if flags&(unix.MSG_TRUNC|unix.MSG_CTRUNC) != 0 {
		return nil, fds, fmt.Errorf("stage message was cut: %w", unix.EMSGSIZE)
	}
	if n == 0 {
		return nil, fds, io.EOF
	}
	return buf[:n], fds, nil
}

func rights(oob []byte) (fds []int, err error) {
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil, err
	}
	for _, m := range messages {
		more, err := unix.ParseUnixRights(&m)
		if err != nil {
			return fds, err
		}
		fds = append(fds, more...)
	}
	return fds, nil
}
