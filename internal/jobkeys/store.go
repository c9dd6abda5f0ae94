package jobkeys

import (
	"crypto/rand"
	"errors"
	"io/fs"
	"path"
	"strings"

	"github.com/fencepost/fencepost/internal/durable"
	"github.com/fencepost/fencepost/webhook"
)

// extension is that of a key's file, whose name is the key's thumbprint.
const extension = ".jwk"

// A Store keeps keys that were found, each in a file. What is in a file is
// believed only if it has the thumbprint that it is looked for by. Several
// processes may use one directory.
type Store struct{ fsys durable.FS }

// NewStore makes a store in a directory, which must be there.
func NewStore(fsys durable.FS) Store { return Store{fsys: fsys} }

// Keep makes the key durable.
func (s Store) Keep(key webhook.JWK) error {
	text, err := key.MarshalJSON()
	if err != nil {
		return err
	}
	name := webhook.ThumbprintOf(key.Key).String()
	err = durable.PublishFile(s.fsys, name+"-"+rand.Text()+durable.TempSuffix, name+extension, text)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	return err
}

// Find returns the kept keys of these thumbprints. What can't be read is as if
// it weren't there, since it can be found again; err says so.
func (s Store) Find(thumbprints ...webhook.Thumbprint) (keys []webhook.JWK, err error) {
	var errs []error
	for _, t := range thumbprints {
		text, err := durable.ReadFile(s.fsys, t.String()+extension, webhook.MaxJWKBytes)
		if err != nil {
			if !errors.Is(err, fs.ErrNotExist) {
				errs = append(errs, err)
			}
			continue
		}
		key, err := webhook.ParseJWK(text)
		if err != nil || key.Thumbprint != t {
			errs = append(errs, s.fsys.Remove(t.String()+extension))
			continue
		}
		keys = append(keys, key)
	}
	return keys, errors.Join(errs...)
}

// Clean removes what a crash left behind, and keys that are not pinned any
// more.
func (s Store) Clean(pinned ...webhook.Thumbprint) error {
	entries, err := s.fsys.ReadDir(".")
	if err != nil {
		return err
	}
	keep := map[string]bool{}
	for _, t := range pinned {
		keep[t.String()+extension] = true
	}
	var errs []error
	for _, e := range entries {
		name := path.Base(e.Name)
		if !keep[name] && (strings.HasSuffix(name, extension) || strings.HasSuffix(name, durable.TempSuffix)) {
			if err := s.fsys.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
				errs = append(errs, err)
			}
		}
	}
	return errors.Join(errs...)
}
