package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/fencepost/fencepost"
)

// maxSecretBytes bounds a secret: a PEM key of 16,384 bits has about 13 KB.
const maxSecretBytes = 64 << 10

// ErrSecret is matched by every error of [SecretRef.Resolve].
var ErrSecret = errors.New("secret is not usable")

// A Lookup finds the value of an environment variable, as [os.LookupEnv]
// does.
type Lookup func(name string) (value string, ok bool)

// A SecretRef says where a secret is kept: "file:PATH", "env:NAME" or
// "cred:NAME", a systemd credential (DESIGN §10). It holds no secret itself.
// The zero SecretRef refers to none.
type SecretRef struct {
	kind secretKind
	// name is the path, the variable or the credential.
	name string
	// dir is what a relative path is relative to.
	dir string
	// public is set for what is no secret: others may read it, but not write
	// it.
	public bool
}

type secretKind string

const (
	secretFile secretKind = "file"
	secretEnv  secretKind = "env"
	secretCred secretKind = "cred"
)

var referencePattern = regexp.MustCompile(`^(file:.+|env:[A-Za-z_][A-Za-z0-9_]*|cred:[A-Za-z0-9._-]+)$`)

func (*SecretRef) describe() leaf {
	return leaf{"a secret reference: file:PATH, env:NAME or cred:NAME", referencePattern}
}

// ParseSecretRef reads a reference. A relative path is relative to dir. Its
// error doesn't repeat the text, which might be a secret that was put in the
// place of its reference.
func ParseSecretRef(text, dir string) (SecretRef, error) {
	var r SecretRef
	if err := r.UnmarshalText([]byte(text)); err != nil {
		return SecretRef{}, err
	}
	r.dir = dir
	return r, nil
}

// UnmarshalText is [ParseSecretRef] with paths relative to the working
// directory.
func (r *SecretRef) UnmarshalText(text []byte) error {
	l := r.describe()
	kind, name, _ := strings.Cut(string(text), ":")
	legal := l.pattern.Match(text) && len(text) <= 1024
	if !legal || name == "." || name == ".." || strings.ContainsAny(name, "\x00\n\r") {
		return errors.New("must be " + l.what + "; the secret itself does not belong in this file")
	}
	r.kind, r.name = secretKind(kind), name
	return nil
}

// IsZero reports whether r refers to nothing.
func (r SecretRef) IsZero() bool { return r.kind == "" }

// String is the reference as it was written. It is for the operator who
// wrote it: a path doesn't belong in logs.
func (r SecretRef) String() string {
	if r.IsZero() {
		return ""
	}
	return string(r.kind) + ":" + r.name
}

// Resolve reads the secret anew at each call, so that a rotated one is seen.
// One line end after the last line is not part of it. The caller owns the
// result and zeroes it. Its error matches [ErrSecret], names the reference
// and the mend, and holds nothing of the secret.
func (r SecretRef) Resolve(env Lookup) (fencepost.Secret, error) {
	var raw []byte
	var err error
	switch r.kind {
	case secretFile:
		raw, err = readSecret(r.path(), guardOf(r.public))
	case secretEnv:
		value, ok := env(r.name)
		if !ok {
			err = errors.New("the variable is not set")
		}
		raw = []byte(value)
	case secretCred:
		dir, ok := env("CREDENTIALS_DIRECTORY")
		if !ok || !filepath.IsAbs(dir) {
			err = errors.New("$CREDENTIALS_DIRECTORY is not set: start it by systemd with LoadCredential=" + r.name)
			break
		}
		// systemd itself guards the directory, with modes of its own choice.
		raw, err = readSecret(filepath.Join(dir, r.name), unguarded)
	default:
		err = errors.New("no reference")
	}
	if err != nil {
		return fencepost.Secret{}, &secretError{text: r.String() + ": " + err.Error(), causes: []error{ErrSecret, err}}
	}
	kept, cut := bytes.CutSuffix(raw, []byte("\n"))
	if cut {
		kept = bytes.TrimSuffix(kept, []byte("\r"))
	}
	if len(kept) == 0 {
		return fencepost.Secret{}, &secretError{text: r.String() + ": it is empty", causes: []error{ErrSecret}}
	}
	secret := fencepost.NewSecret(kept)
	clear(raw)
	return secret, nil
}

func (r SecretRef) path() string {
	if filepath.IsAbs(r.name) {
		return r.name
	}
	return filepath.Join(r.dir, r.name)
}

// A guard is the permissions that nobody but a file's owner may have.
type guard uint32

const (
	unguarded  guard = 0
	unwritable guard = 0o022
	unreadable guard = 0o077
)

func guardOf(public bool) guard {
	if public {
		return unwritable
	}
	return unreadable
}

// readSecret reads a regular file. If guarded, it must be its owner's alone,
// who must be this process's user or root: a secret that others may read is
// none, and one that others may write is theirs. What is checked is the open
// file, so that nothing can be put in its place in between.
func readSecret(path string, g guard) ([]byte, error) {
	f, err := openSecret(path)
	if err != nil {
		return nil, describeOpen(err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, describeOpen(err)
	}
	if !info.Mode().IsRegular() {
		return nil, errors.New("it is not a regular file")
	}
	if g != unguarded {
		if err := guardFile(info, path, g); err != nil {
			return nil, err
		}
	}
	raw := make([]byte, maxSecretBytes+1)
	n, err := io.ReadFull(f, raw)
	switch {
	case err == nil:
		clear(raw)
		return nil, fmt.Errorf("it is larger than %d KiB", maxSecretBytes>>10)
	case !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF):
		clear(raw)
		return nil, describeOpen(err)
	}
	return raw[:n], nil
}

// A secretError has a text made for the operator, and causes for callers.
type secretError struct {
	text   string
	causes []error
}

func (e *secretError) Error() string   { return e.text }
func (e *secretError) Unwrap() []error { return e.causes }

// describeOpen says what a file system error means for a file, without the
// path, which the caller names.
func describeOpen(err error) error {
	text := "it can't be read"
	switch {
	case errors.Is(err, fs.ErrNotExist):
		text = "there is no such file"
	case errors.Is(err, fs.ErrPermission):
		text = "this user may not read it"
	default:
		if e, ok := errors.AsType[*os.PathError](err); ok {
			text += ": " + e.Err.Error()
		}
	}
	return &secretError{text: text, causes: []error{err}}
}
