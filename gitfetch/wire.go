package gitfetch

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"
)

// A quietError is a failure below Git's protocol. What the libraries say of
// one may quote the server, so the text here is our own; theirs can be
// matched, and is not shown.
type quietError struct {
	kind error  // ErrConnection, ErrTLS, ErrProtocol
	text string // "" for none
	err  error
}

func (e *quietError) Error() string {
	if e.text == "" {
		return e.kind.Error()
	}
	return e.kind.Error() + ": " + e.text
}

func (e *quietError) Unwrap() []error { return []error{e.kind, e.err} }

// wireError sorts an error of the HTTP transport: what this package made
// comes back as it is.
func wireError(err error) error {
	switch {
	case err == nil, isBudget(err), errors.Is(err, errHost), errors.Is(err, ErrAddress), errors.Is(err, ErrTLS), errors.Is(err, ErrConnection):
		return err
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		// An end of the connection is never one of what was asked for.
		return fmt.Errorf("%w: closed by the server: %w", ErrConnection, io.ErrUnexpectedEOF)
	}
	var netErr net.Error
	var errno syscall.Errno
	if errors.As(err, &netErr) || errors.As(err, &errno) {
		return fmt.Errorf("%w: %w", ErrConnection, err)
	}
	return &quietError{ErrProtocol, "answer is not HTTP/1.1", err}
}

// tlsError says why a handshake came to nothing. A certificate's names are
// the server's words.
func tlsError(err error) error {
	var (
		authority x509.UnknownAuthorityError
		name      x509.HostnameError
		invalid   x509.CertificateInvalidError
		record    tls.RecordHeaderError
		op        *net.OpError
		netErr    net.Error
	)
	text := "handshake failed"
	switch {
	case errors.As(err, &authority):
		text = "certificate of an unknown authority"
	case errors.As(err, &name):
		text = "certificate for another name"
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		text = "certificate out of its time"
	case errors.As(err, &invalid):
		text = "certificate not valid"
	case errors.As(err, &record):
		text = "server does not speak TLS"
	case errors.As(err, &op) && op.Op == "remote error":
		text = "handshake refused by the server"
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return fmt.Errorf("%w: closed during the handshake: %w", ErrConnection, io.ErrUnexpectedEOF)
	case errors.As(err, &netErr):
		return fmt.Errorf("%w: %w", ErrConnection, err)
	}
	return &quietError{ErrTLS, text, err}
}
