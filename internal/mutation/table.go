package mutation

import (
	"errors"
	"fmt"
	"strings"
)

// A Mutant is one fault that can be made.
type Mutant struct {
	// Name is short and unique; What says the fault in a line, for people.
	Name, What string
	// File is the file that is altered, from the root of the module; Edits
	// are what is altered in it, each once.
	File  string
	Edits []Edit
	// Package is where the test is, such as "./internal/inbox", and Test its
	// name, or that of a subtest, with slashes.
	Package, Test string
}

// An Edit puts New in the place of Old.
type Edit struct{ Old, New string }

// Parse reads mutants.txt:
//
//	# a comment, between mutants
//	mutant NAME
//	what TEXT
//	file PATH
//	test PACKAGE NAME
//	--- old lines
//	+++ new lines, or none
//	===
//
// where each of the two parts begins with its mark on a line of its own, and
// parts may be repeated. The last line of a part need not be a whole one.
func Parse(text string) ([]Mutant, error) {
	var all []Mutant
	var part *string
	var m *Mutant
	for i, line := range strings.Split(strings.TrimSuffix(text, "\n"), "\n") {
		fail := func(why string) error { return fmt.Errorf("line %d: %s: %q", i+1, why, line) }
		word, rest, _ := strings.Cut(line, " ")
		switch {
		case line == "---" && m != nil:
			m.Edits = append(m.Edits, Edit{})
			part = &m.Edits[len(m.Edits)-1].Old
		case line == "+++" && part != nil:
			part = &m.Edits[len(m.Edits)-1].New
		case line == "===" && part != nil:
			for i := range m.Edits {
				e := &m.Edits[i]
				e.Old, e.New = strings.TrimSuffix(e.Old, "\n"), strings.TrimSuffix(e.New, "\n")
			}
			all = append(all, *m)
			m, part = nil, nil
		case part != nil:
			*part += line + "\n"
		case line == "", word == "#":
		case word == "mutant" && m == nil && rest != "":
			m = &Mutant{Name: rest}
		case m == nil:
			return nil, fail("want a mutant")
		case word == "what":
			m.What = rest
		case word == "file":
			m.File = rest
		case word == "test":
			m.Package, m.Test, _ = strings.Cut(rest, " ")
		default:
			return nil, fail("unknown word")
		}
	}
	if m != nil {
		return nil, fmt.Errorf("mutant %s has no end", m.Name)
	}
	for _, m := range all {
		if m.What == "" || m.File == "" || m.Package == "" || m.Test == "" {
			return nil, fmt.Errorf("mutant %s: what, file or test is missing", m.Name)
		}
	}
	return all, nil
}

// Apply makes the fault in the text of its file. Old text that is not there
// exactly once is an error: then the code has moved on, and the mutant must
// follow.
func (m Mutant) Apply(text string) (string, error) {
	var errs []error
	for _, e := range m.Edits {
		if n := strings.Count(text, e.Old); n != 1 || e.Old == "" {
			errs = append(errs, fmt.Errorf("mutant %s: this stands %d times in %s, want once:\n%s", m.Name, n, m.File, e.Old))
			continue
		}
		text = strings.Replace(text, e.Old, e.New, 1)
	}
	return text, errors.Join(errs...)
}

// Row is the mutant's row of the table in docs/reliability.md.
func (m Mutant) Row() string {
	return fmt.Sprintf("| %s | `%s` | `%s` |", m.What, m.File, m.Test)
}
