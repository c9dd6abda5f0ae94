package config

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
)

// ErrInvalid is matched by every error that says a configuration is not
// usable as it stands.
var ErrInvalid = errors.New("configuration is not usable")

// A Fault is one thing wrong with a configuration: where it stands, and what
// to write instead. It holds no value that could be a secret. It matches
// [ErrInvalid].
type Fault struct {
	// File is the name under which the file was read.
	File string
	// Line and Column count from 1. Both are 0 where the file could not be
	// read at all.
	Line, Column int
	// Path is the field, such as "gates.docs.plan.wall"; empty for the file
	// as a whole.
	Path string
	// Problem says what is wrong and what would be right.
	Problem string
}

// Error returns one line: "fencepost.yaml:14:3: ledger.lease: must be 5s to
// 10m, is 2s".
func (f *Fault) Error() string {
	s := f.File
	if f.Line > 0 {
		s += fmt.Sprintf(":%d:%d", f.Line, f.Column)
	}
	if f.Path != "" {
		s += ": " + f.Path
	}
	return s + ": " + f.Problem
}

// Unwrap returns [ErrInvalid].
func (f *Fault) Unwrap() error { return ErrInvalid }

// maxFaults bounds how many faults of one file are reported; a file with
// more is better mended a few at a time.
const maxFaults = 100

// joinFaults puts faults in the order of the file. It returns nil for none.
func joinFaults(faults []*Fault) error {
	slices.SortStableFunc(faults, func(a, b *Fault) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	errs := make([]error, 0, min(len(faults), maxFaults+1))
	for i, f := range faults {
		if i == maxFaults {
			errs = append(errs, &Fault{File: f.File, Problem: fmt.Sprintf("%d more faults after these; mend these first", len(faults)-i)})
			break
		}
		errs = append(errs, f)
	}
	return errors.Join(errs...)
}
