package notebook

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"strconv"

	"github.com/go-json-experiment/json"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/durable"
)

const (
	magic = "fencepost.notebook/v"
	// newest is the latest version of the format.
	newest = 2
	// maxFile bounds a file that is read, in bytes.
	maxFile = 4 << 20
)

// An entry says which version of the format it needs.
type entry interface{ version() int }

// A table is the files of one kind.
type table[T entry] struct {
	fsys  durable.FS
	dir   string
	limit int
}

func (t table[T]) name(file int) string { return fmt.Sprintf("%s/%02x", t.dir, file) }

// read returns the entries of a file, none where there is no file.
func (t table[T]) read(file int) (map[string]T, error) {
	data, err := durable.ReadFile(t.fsys, t.name(file), maxFile)
	if errors.Is(err, fs.ErrNotExist) {
		return map[string]T{}, nil
	}
	if err != nil {
		return nil, err
	}
	entries, err := parse[T](data)
	if err != nil {
		return nil, corrupt(t.name(file), err.Error())
	}
	return entries, nil
}

// write replaces a file. The caller holds its lock.
func (t table[T]) write(file int, entries map[string]T) error {
	data, err := format(entries)
	if err != nil {
		return err
	}
	return durable.WriteFile(t.fsys, t.name(file), data)
}

// format and parse are each other's inverse.
func format[T entry](entries map[string]T) ([]byte, error) {
	body, err := json.Marshal(entries, json.Deterministic(true))
	if err != nil {
		return nil, fmt.Errorf("encode: %w", err)
	}
	return append(fmt.Appendf(nil, "%s%d %x\n", magic, versionOf(entries), sha256.Sum256(body)), body...), nil
}

// versionOf is the first version of the format that can hold the entries.
func versionOf[T entry](entries map[string]T) int {
	version := 1
	for _, e := range entries {
		version = max(version, e.version())
	}
	return version
}

func parse[T entry](data []byte) (map[string]T, error) {
	line, body, ok := bytes.Cut(data, []byte("\n"))
	rest, isOurs := bytes.CutPrefix(line, []byte(magic))
	number, digits, isWhole := bytes.Cut(rest, []byte(" "))
	if !ok || !isOurs || !isWhole {
		return nil, errors.New("it does not begin as a notebook's file")
	}
	version, err := strconv.ParseUint(string(number), 10, 16)
	if err != nil || version > newest {
		return nil, errors.New("it is of a later version of its format")
	}
	if sum := sha256.Sum256(body); hex.EncodeToString(sum[:]) != string(digits) {
		return nil, errors.New("its checksum is wrong")
	}
	entries := map[string]T{}
	if err := json.Unmarshal(body, &entries, json.RejectUnknownMembers(true)); err != nil {
		return nil, errors.New("it holds other fields than this version's")
	}
	if entries == nil {
		return nil, errors.New("it holds no entries")
	}
	if versionOf(entries) != int(version) {
		return nil, errors.New("it is not of the version that it says")
	}
	return entries, nil
}

func corrupt(where, what string) error {
	return &fencepost.Error{Op: "notebook.read", Reason: fencepost.ReasonCorrupt, Err: fmt.Errorf("%s: %s", where, what)}
}

// failure gives an error its reason.
func failure(op string, err error) error {
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[*fencepost.Error](err); ok {
		return err
	}
	r := fencepost.ReasonUnavailable
	if errors.Is(err, durable.ErrPoisoned) {
		r = fencepost.ReasonPoisoned
	}
	return &fencepost.Error{Op: op, Reason: r, Err: err}
}
