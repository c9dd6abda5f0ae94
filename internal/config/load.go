package config

import (
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/fencepost/fencepost/webhook"
)

// MinSecretBytes is the least length of an HMAC secret (DESIGN §10).
const MinSecretBytes = 16

// Load reads and validates a file, and tries every secret it refers to. Its
// error joins a [Fault] for each thing that is wrong, in the order of the
// file, and matches [ErrInvalid].
func Load(file string, env Lookup) (*Config, error) {
	text, err := readFile(file)
	if err != nil {
		return nil, err
	}
	v := read(file, text)
	v.trySecrets(env)
	if err := joinFaults(v.faults); err != nil {
		return nil, err
	}
	return v.cfg, nil
}

// LoadWithoutSecrets reads and validates a configuration file, and tries no
// secret, for what needs none: those of the service may be out of a person's
// reach. Its error is as [Load]'s.
func LoadWithoutSecrets(file string) (*Config, error) {
	text, err := readFile(file)
	if err != nil {
		return nil, err
	}
	return Parse(file, text)
}

// Parse validates text as the file of that name: it reads no other file, and
// no secret. Its error is as [Load]'s.
func Parse(file string, text []byte) (*Config, error) {
	v := read(file, text)
	if err := joinFaults(v.faults); err != nil {
		return nil, err
	}
	return v.cfg, nil
}

func read(file string, text []byte) *validator {
	v := &validator{decoder: newDecoder(file), dir: filepath.Dir(file), cfg: &Config{File: file}, trusted: map[name]bool{}, pinned: map[pin]string{}, issuers: map[name]string{}, schemes: map[name]schemeUse{}}
	// Places of other programs are compared with ours, which takes absolute
	// paths; where there is no working directory, relative ones have to do.
	v.abs = v.dir
	if abs, err := filepath.Abs(v.dir); err == nil {
		v.abs = abs
	}
	v.repositories.byID, v.repositories.byName = map[string]string{}, map[string]string{}
	var doc document
	if v.document(text, &doc) {
		v.config(&doc)
	}
	return v
}

func readFile(file string) ([]byte, error) {
	f, err := os.Open(file)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, &Fault{File: file, Problem: "there is no such file; `fencepost init` writes a starter configuration, and --config names another"}
	case err != nil:
		return nil, &Fault{File: file, Problem: describeOpen(err).Error()}
	}
	defer f.Close()
	text := make([]byte, maxFileBytes+1)
	n, err := io.ReadFull(f, text)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return nil, &Fault{File: file, Problem: describeOpen(err).Error()}
	}
	return text[:n], nil
}

// trySecrets resolves each reference once, so that a wrong one is found
// before anything starts, and drops what it got.
func (v *validator) trySecrets(env Lookup) {
	seen := newTried()
	for _, use := range v.refs {
		v.trySecret(use, env, seen)
	}
	v.tryDatabases(env)
}

// tried is what the references of a file led to so far.
type tried struct {
	// secrets and keys say where an anchor's stands, since two anchors of a set
	// may refer to one by different names. Of secrets only digests are kept.
	secrets map[string]string
	keys    map[pin]string
	// others are tried once, however many sections share one.
	others map[secretTry]error
}

func newTried() *tried {
	return &tried{secrets: map[string]string{}, keys: map[pin]string{}, others: map[secretTry]error{}}
}

// trySecret refuses a reference that does not lead to what its section needs.
func (v *validator) trySecret(use secretUse, env Lookup, seen *tried) {
	switch use.as {
	case asHMAC:
		v.tryHMAC(use, env, seen.secrets)
		return
	case asJWK:
		v.tryJWK(use, env, seen.keys)
		return
	}
	what := secretTry{use.ref, use.as}
	err, known := seen.others[what]
	if !known {
		err = try(use, env)
		seen.others[what] = err
	}
	if err != nil {
		v.refuse(use.path, "%s", err)
	}
}

// A secretTry is one reference with what it was tried as.
type secretTry struct {
	ref SecretRef
	as  secretForm
}

// try resolves a reference that is no anchor's.
func try(use secretUse, env Lookup) error {
	secret, err := use.ref.Resolve(env)
	if err != nil {
		return err
	}
	defer secret.Zero()
	if use.as == asAppKey {
		if _, err := ParseAppKey(secret); err != nil {
			return fmt.Errorf("%s: %w", use.ref, err)
		}
	}
	return nil
}

// tryJWK holds a key against the others of its set, also those that are known
// by their thumbprint alone.
func (v *validator) tryJWK(use secretUse, env Lookup, seen map[pin]string) {
	text, err := use.ref.Resolve(env)
	if err != nil {
		v.refuse(use.path, "%s", err)
		return
	}
	key, err := webhook.ParseJWK(text.Reveal())
	if err != nil {
		v.refuse(use.path, "%s: %s", use.ref, err)
		return
	}
	this := pin{use.set, key.Thumbprint}
	if there := cmp.Or(seen[this], v.pinned[this]); there != "" {
		v.refuse(use.path, "%s: is the same key as %s; give each anchor its own", use.ref, there)
		return
	}
	seen[this] = use.path
}

func (v *validator) tryHMAC(use secretUse, env Lookup, seen map[string]string) {
	secret, err := use.ref.Resolve(env)
	if err != nil {
		v.refuse(use.path, "%s", err)
		return
	}
	if v.schemes[name(use.set)].standard {
		if secret, err = signingKey(secret); err != nil {
			v.refuse(use.path, "%s: %s", use.ref, err)
			return
		}
	}
	defer secret.Zero()
	if secret.Len() < MinSecretBytes {
		v.refuse(use.path, "%s: must be %d bytes or more, is %d; `openssl rand -hex 32` makes one", use.ref, MinSecretBytes, secret.Len())
		return
	}
	key := fmt.Sprintf("%s\x00%x", use.set, sha256.Sum256(secret.Reveal()))
	if there, twice := seen[key]; twice {
		v.refuse(use.path, "%s: is the same secret as %s; give each anchor its own", use.ref, there)
		return
	}
	seen[key] = use.path
}
